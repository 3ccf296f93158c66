// Requests for compiles, from machines that cannot compile to compile servers (`kiln serve`), over
// the server of the remote tier. What a request holds is in message.hpp, and who compiles it is not
// known here. In the names, each after `<prefix>:1:`, a source is the digits of a kernel's key
// without the toolchain, a priority `foreground` or `background`, and a kind what a compile server
// either compiles or does not (kind_of in kernel/remote_compile.hpp):
//
//   queue:<priority>:<kind>        a stream: sources that are wanted, read by the group `servers`;
//                                  forgotten an hour after the last one came
//   request:<priority>:<source>    the stream's number of it, a blank, and the request; forgotten
//                                  when nobody has asked for it for two leases
//   failure:<source>               the answer that it cannot be compiled, for a minute
//   serves:<kind>                  there is a compile server for it
//   server:<id>                    what a compile server says of itself
//   served                         a hash: what all compile servers have counted
//
// The answer to a request is the entry on the server, which `source:<source>` names (remote.hpp).
// A request is there once for all who want it. It is acknowledged, and gone, when its answer is
// there: a compile server that dies leaves it pending, and another one claims it after a lease.
// Who waits asks again every now and then, which keeps the request alive, or puts it back if the
// server has lost it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/mac.hpp"
#include "cache/remote/client.hpp"
#include "cache/remote/message.hpp"
#include "cache/stats.hpp"

namespace kiln::cache {

enum class RequestPriority : std::uint8_t { foreground, background };

/// The queue for who wants kernels.
class RequestQueue {
 public:
  /// Connects when something is first wanted. `counters` outlives it.
  RequestQueue(RemoteSettings settings, Secret secret, Counters& counters);

  struct Answer {
    std::optional<Key> entry;  ///< there is one of that key
    std::optional<RemoteFailure> failure;
  };
  struct Answers {
    std::vector<Answer> answers;  ///< in the order of the sources
    bool has_server = false;      ///< a compile server for the kind is alive
  };
  /// What there is of these sources now, in one round trip; nothing if the server does not answer.
  std::optional<Answers> look(std::span<const Key> sources, std::string_view kind);

  enum class Posted : std::uint8_t { waiting, full, failed };
  /// Asks for these sources, or again for them; `message` is called for those that are not in the
  /// queue.
  Posted post(std::span<const Key> sources, std::string_view kind, RequestPriority priority,
              const std::function<std::string(std::size_t index)>& message);

  /// Signs a request; empty if it is too long.
  std::string sign(const Key& source, const RemoteRequest& request) const {
    return encode_request(source, request, secret_);
  }

  const RemoteSettings& settings() const { return client_.settings(); }
  RemoteHealth health() { return client_.health(); }

 private:
  Answer answer_of(const Key& source, const Reply& pointer, const Reply& failure);
  void refuse(const std::string& name, std::string_view reason);

  const Secret secret_;
  Counters& counters_;
  Client client_;
};

/// The queue for a compile server.
class ServedQueue {
 public:
  ServedQueue(RemoteSettings settings, Secret secret, std::string id,
              std::vector<std::string> kinds);

  struct Taken {
    RequestPriority priority = RequestPriority::foreground;
    std::string kind;
    std::string number;  ///< in the stream
    std::string wanted;  ///< the source, as the stream has it
    bool taken_over = false;
    std::optional<RemoteRequest> request;
    std::string problem;   ///< why there is no request
    bool expired = false;  ///< nobody wants it any more
    Key source() const { return Key::parse(wanted).value_or(Key{}); }
  };
  /// Takes up to `foreground` requests, of which no more than `background` are of that priority,
  /// and those of servers that are gone before others. Nothing if the server does not answer.
  std::optional<std::vector<Taken>> take(std::size_t foreground, std::size_t background);

  /// Requests that nobody else is to take over, and what is known of this server, for a lease.
  /// Gives the lengths of the queues that it serves.
  struct Length {
    std::string priority;
    std::string kind;
    std::uint64_t waiting = 0;
    std::uint64_t running = 0;  ///< taken and not answered
  };
  std::vector<Length> renew(std::span<const Taken* const> taken, const RemoteServer& server);

  /// Acknowledges a request whose answer is there, or is this failure. False: it is not known
  /// whether the server has it, and somebody may take the request again.
  bool finish(const Taken& taken, Served result, const std::optional<RemoteFailure>& failure);

  /// This server is no more.
  void withdraw();

  const std::string& id() const { return id_; }

  const RemoteSettings& settings() const { return client_.settings(); }
  RemoteHealth health() { return client_.health(); }

 private:
  const Secret secret_;
  const std::string id_;
  const std::vector<std::string> kinds_;
  std::vector<std::string> queues_;  ///< names, those of the foreground first
  Client client_;
};

/// All compile servers and queues; nothing if the server does not answer.
struct QueueStatus {
  std::vector<RemoteServer> servers;
  std::uint64_t refused_servers = 0;  ///< that were not signed with the secret
  std::vector<ServedQueue::Length> queues;
  ServedCounts served{};
};
std::optional<QueueStatus> queue_status(const RemoteSettings& settings, const Secret& secret,
                                        TimePoint deadline);

}  // namespace kiln::cache
