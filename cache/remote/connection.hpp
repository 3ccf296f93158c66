// One connection to a Redis or Valkey server: commands in, replies out, each exchange within a
// time. What is sent, and when it is tried again, is not known here. connection.cpp is built where
// there is hiredis, connection_absent.cpp elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/remote/settings.hpp"

namespace kiln::cache {

using TimePoint = std::chrono::steady_clock::time_point;
using Command = std::vector<std::string>;

struct Reply {
  enum class Type : std::uint8_t { nil, text, integer, array, error };
  Type type = Type::nil;
  std::string text;  ///< of an error too
  std::int64_t integer = 0;
  std::vector<Reply> elements;

  bool is_error() const { return type == Type::error; }
};

/// Why nothing that a URL names can be reached by this build of kiln; empty if all can.
std::string remote_unsupported(const RemoteSettings& settings);

/// Not for several threads at once. A thread that uses it has SIGPIPE blocked.
class Connection {
 public:
  enum class Failure : std::uint8_t {
    lost,       ///< the server or the network closed it
    timed_out,  ///< no whole answer at the deadline
    cancelled,
    bad_reply,  ///< what came is no reply, or longer than any may be
  };
  /// `cancel`: a descriptor that becomes readable when nobody wants the connection any more.
  Connection(const RemoteSettings& settings, int cancel);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Connects. Why it did not, for people, without the server's name; empty: it did.
  std::string open(TimePoint deadline);
  /// Sends commands at once and reads a reply to each, of at most `max_reply` bytes, and of no more
  /// than 1 GiB together. After a failure the connection is of no use any more. An error reply is a
  /// reply.
  std::optional<Failure> exchange(std::span<const Command> commands, std::uint64_t max_reply,
                                  TimePoint deadline, std::vector<Reply>& replies);

 private:
  struct Context;
  const RemoteSettings& settings_;
  const int cancel_;
  std::unique_ptr<Context> context_;
};

}  // namespace kiln::cache
