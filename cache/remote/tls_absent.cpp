// Built without hiredis_ssl: a server with TLS is refused, with that reason.
#include "cache/remote/tls.hpp"

namespace kiln::cache {

std::string tls_unsupported() {
  return "this kiln was built with a hiredis without TLS (hiredis_ssl, since release 1.0); use "
         "redis:// on a network that you trust";
}

std::string start_tls(redisContext&, const RemoteSettings&,
                      const std::function<std::string(short)>&) {
  return tls_unsupported();
}

}  // namespace kiln::cache
