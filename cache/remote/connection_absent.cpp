// Without hiredis there is no remote tier, and who asks for one is told so.
#include "cache/remote/connection.hpp"

namespace kiln::cache {

struct Connection::Context {};

std::string remote_unsupported(const RemoteSettings&) {
  return "this kiln was built without hiredis; install it (Debian's libhiredis-dev) and build kiln "
         "again";
}

Connection::Connection(const RemoteSettings& settings, int cancel)
    : settings_(settings), cancel_(cancel) {}
Connection::~Connection() = default;

std::string Connection::open(TimePoint) { return remote_unsupported(settings_); }

std::optional<Connection::Failure> Connection::exchange(std::span<const Command>, std::uint64_t,
                                                        TimePoint, std::vector<Reply>&) {
  return Failure::lost;
}

}  // namespace kiln::cache
