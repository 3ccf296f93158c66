// TLS over a connection to the server of the remote tier. tls.cpp is built where hiredis has TLS,
// tls_absent.cpp elsewhere.
#pragma once

#include <functional>
#include <string>

#include "cache/remote/settings.hpp"

struct redisContext;

namespace kiln::cache {

/// Why this build of kiln has no TLS; empty if it has.
std::string tls_unsupported();

/// Has a connected context speak TLS from now on, with a server that proves by a certificate that
/// it is settings.host. `wait` returns when the socket is ready for these events of poll(), or why
/// it will not be. Why there is no TLS, for people; empty: there is.
std::string start_tls(redisContext& redis, const RemoteSettings& settings,
                      const std::function<std::string(short events)>& wait);

}  // namespace kiln::cache
