#include "cache/remote/tls.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <memory>

namespace kiln::cache {
namespace {

constexpr const char* kNoMemory = "cannot be used: memory is short";

bool is_address(const std::string& host) {
  in6_addr address = {};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// hiredis leaves it to others whether the certificate is the one of this server.
bool expect_host(SSL* ssl, const std::string& host) {
  if (is_address(host)) {
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
  }
  return SSL_set1_host(ssl, host.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
}

std::string describe_failure(SSL* ssl) {
  if (const long verdict = SSL_get_verify_result(ssl); verdict != X509_V_OK) {
    return fmt::format("has a certificate that is not accepted: {}",
                       X509_verify_cert_error_string(verdict));
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return fmt::format("does not speak TLS: {}",
                     reason != nullptr ? reason : "it closed the connection");
}

}  // namespace

std::string tls_unsupported() { return {}; }

std::string start_tls(redisContext& redis, const RemoteSettings& settings,
                      const std::function<std::string(short)>& wait) {
  // At the end of the process a thread may still use the connection: nothing is cleaned up then.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  ERR_clear_error();
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  if (!context) return kNoMemory;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  const bool has_authorities =
      settings.ca.empty()
          ? SSL_CTX_set_default_verify_paths(context.get()) == 1
          : SSL_CTX_load_verify_locations(context.get(), settings.ca.c_str(), nullptr) == 1;
  if (!has_authorities) {
    return fmt::format("cannot be checked: no certificates of authorities can be read from {}",
                       settings.ca.empty() ? "the system's directory" : settings.ca);
  }
  std::unique_ptr<SSL, decltype(&SSL_free)> owned(SSL_new(context.get()), SSL_free);
  SSL* const ssl = owned.get();
  if (ssl == nullptr || !expect_host(ssl, settings.host)) return kNoMemory;
  if (::redisInitiateSSL(&redis, ssl) != REDIS_OK) return describe_failure(ssl);
  static_cast<void>(owned.release());  // the context's now
  while (true) {
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl);
    if (done == 1) return {};
    const int error = SSL_get_error(ssl, done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      return describe_failure(ssl);
    }
    const std::string reason = wait(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT);
    if (!reason.empty()) return reason;
  }
}

}  // namespace kiln::cache
