// Where the server of the remote tier is, and the limits of its use: all that its URL says.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::cache {

struct RemoteSettings {
  std::string socket;  ///< path of a Unix socket; empty: host and port
  std::string host;
  int port = 6379;
  bool tls = false;
  std::string ca;  ///< file of the authority that signed the server's certificate; empty: system's
  std::string user;
  std::string password;
  int database = 0;
  std::string prefix = "kiln";                ///< of all names that kiln uses on the server
  std::chrono::milliseconds ttl{2592000000};  ///< of what is published: 30 days; 0: for ever
  std::chrono::milliseconds wait{0};          ///< of a look-up; 0: what a compile takes here
  std::chrono::milliseconds answer{5000};     ///< after which the server is taken to be gone
  std::chrono::milliseconds lease{15000};  ///< after which a dead machine's compile is taken over
  std::uint64_t max_value = 64 << 20;      ///< bytes of an entry

  /// scheme://host:port/database, for messages: without user and password.
  std::string display() const;
  /// What kiln keeps on the server under that name. The version of all of it is in the name:
  /// another one leaves it alone.
  std::string name(std::string_view kind, std::string_view rest) const;
};

/// Reads a URL:
///   redis://[[user]:password@]host[:port][/database][?option=value&...]
///   rediss://...                      over TLS
///   redis+unix://[[user]:password@]/path/of/socket[?option=value&...]
/// Options: db=0, prefix=kiln, ttl=30d, wait=200ms, answer=5s, lease=15s, max=64M, ca=/path. What
/// has a meaning in a URL is written %40. Throws Error(invalid_argument), whose message has nothing
/// of the URL but names of options: a password may stand anywhere in one that is not understood.
RemoteSettings parse_remote_url(std::string_view url);

}  // namespace kiln::cache
