// The server of the remote tier as the rest of kiln sees it: commands that are answered in time, or
// not at all. One thread owns the connection and does whatever may take long (names, connecting, a
// server that does not answer), so that a caller waits as long as it wants to and no longer. After
// a failure the server is left alone for a while, longer after each one, and tried again behind the
// callers' backs. What is stored on the server is not known here.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/remote/connection.hpp"
#include "cache/remote/settings.hpp"

namespace kiln::cache {

/// How the server does.
struct RemoteHealth {
  bool connected = false;
  std::string problem;                   ///< why it is not used now; empty if it is, or was not yet
  std::chrono::microseconds latency{0};  ///< of a PING, when the connection was made
};

class Client {
 public:
  /// Commands to be sent every now and then as long as there are any; asked for on the thread of
  /// the client.
  using Repeated = std::function<std::vector<Command>()>;
  Client(RemoteSettings settings, Repeated repeated, std::chrono::milliseconds interval);
  /// What is posted and not yet sent is given up.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const RemoteSettings& settings() const { return settings_; }

  /// Sends the commands together and waits for all replies until the deadline. Nothing if there are
  /// none by then, or the server is being left alone: then at once. Which of these replies count as
  /// a failure of the server is decided here (is_failure).
  std::optional<std::vector<Reply>> ask(std::vector<Command> commands, TimePoint deadline);

  /// Sends commands when nobody waits for anything else; `done` gets the replies on the thread of
  /// the client, or none if they could not be sent, and must not throw. Kept while the server is
  /// away, as far as they fit; false: they did not.
  using Done = std::function<void(const std::vector<Reply>&)>;
  bool post(std::vector<Command> commands, Done done);

  /// Waits until what was posted is answered; false if that is not so at the deadline, or at once
  /// if the server is being left alone.
  bool flush(TimePoint deadline);

  RemoteHealth health();

 private:
  struct State;
  State& state();

  const RemoteSettings settings_;
  const Repeated repeated_;
  const std::chrono::milliseconds interval_;
  // A forked child has no thread of its parent's, and locks that may be held for ever: it gets a
  // state of its own, and the parent's stays as it is.
  struct Owned;
  std::atomic<Owned*> current_{nullptr};
};

/// All names on the server that begin with `start`, each once, in no order; nothing if it does not
/// list them all by then.
std::optional<std::vector<std::string>> scan_names(Client& client, std::string_view start,
                                                   TimePoint deadline);

/// What a server said, as far as a line of a log takes it.
std::string printable(std::string_view text);

/// Whether an error reply says that the server cannot be used at all, and not only for one name.
bool is_failure(const Reply& reply);

}  // namespace kiln::cache
