#include "cache/remote/connection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/io.hpp"
#include "cache/remote/tls.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kMostElements = 1 << 20;
constexpr std::uint64_t kFraming = 64 << 10;      // what a reply may have around its longest text
constexpr std::uint64_t kMostReceived = 1 << 30;  // of one exchange, all of which is in memory

// Replies as hiredis has them made, of a type that says how much there may be of it. An element is
// put into the array that is being read; the pointer to it is used until the next one comes.
Reply* place(const redisReadTask* task) {
  if (task->parent == nullptr) return new (std::nothrow) Reply;
  auto& elements = static_cast<Reply*>(task->parent->obj)->elements;
  return &elements.emplace_back();
}

template <class Fill>
void* make(const redisReadTask* task, Fill fill) {
  try {
    Reply* const reply = place(task);
    if (reply != nullptr) fill(*reply);
    return reply;
  } catch (const std::bad_alloc&) {
    return nullptr;  // hiredis then says that memory is short
  }
}

void* make_string(const redisReadTask* task, char* text, std::size_t size) {
  return make(task, [&](Reply& reply) {
    reply.type = task->type == REDIS_REPLY_ERROR ? Reply::Type::error : Reply::Type::text;
    reply.text.assign(text, size);
  });
}

#if HIREDIS_MAJOR < 1
using ElementCount = int;
#else
using ElementCount = std::size_t;
#endif

void* make_array(const redisReadTask* task, ElementCount count) {
  if (static_cast<std::size_t>(count) > kMostElements) return nullptr;
  return make(task, [](Reply& reply) { reply.type = Reply::Type::array; });
}

void* make_integer(const redisReadTask* task, long long value) {
  return make(task, [&](Reply& reply) {
    reply.type = Reply::Type::integer;
    reply.integer = value;
  });
}

void* make_nil(const redisReadTask* task) {
  return make(task, [](Reply&) {});
}

void free_reply(void* reply) { delete static_cast<Reply*>(reply); }

#if HIREDIS_MAJOR >= 1
void* make_double(const redisReadTask* task, double, char* text, std::size_t size) {
  return make_string(task, text, size);
}
void* make_bool(const redisReadTask* task, int value) { return make_integer(task, value); }
#endif

redisReplyObjectFunctions* reply_functions() {
  static redisReplyObjectFunctions functions = [] {
    redisReplyObjectFunctions all = {};
    all.createString = make_string;
    all.createArray = make_array;
    all.createInteger = make_integer;
    all.createNil = make_nil;
    all.freeObject = free_reply;
#if HIREDIS_MAJOR >= 1
    all.createDouble = make_double;
    all.createBool = make_bool;
#endif
    return all;
  }();
  return &functions;
}

enum class Wait : std::uint8_t { ready, timed_out, cancelled };

Wait wait_for(int fd, short events, int cancel, TimePoint deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Wait::timed_out;
    pollfd both[2] = {{fd, events, 0}, {cancel, POLLIN, 0}};
    const int found =
        ::poll(both, 2, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
    if (found < 0 && errno != EINTR) return Wait::timed_out;
    if (found > 0 && both[1].revents != 0) return Wait::cancelled;
    if (found > 0 && both[0].revents != 0) return Wait::ready;
  }
}

std::string unreachable(int error) {
  return fmt::format("cannot be reached: {}", base::describe_errno(error));
}

std::string name_of(Wait wait) {
  return wait == Wait::cancelled ? "was cancelled" : "does not answer";
}

// Why `address` cannot be connected to; empty: it was, by `fd`.
std::string connect_to(const sockaddr* address, socklen_t size, int cancel, TimePoint deadline,
                       base::UniqueFd& fd) {
  fd = base::UniqueFd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return unreachable(errno);
  if (::connect(fd.get(), address, size) == 0) return {};
  if (errno != EINPROGRESS && errno != EINTR) return unreachable(errno);
  if (const Wait wait = wait_for(fd.get(), POLLOUT, cancel, deadline); wait != Wait::ready) {
    return name_of(wait);
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? std::string() : unreachable(error);
}

std::string connect_to_socket(const std::string& path, int cancel, TimePoint deadline,
                              base::UniqueFd& fd) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return "has a path that is too long for a socket";
  path.copy(address.sun_path, path.size());
  return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address, cancel, deadline,
                    fd);
}

std::string connect_to_host(const RemoteSettings& settings, int cancel, TimePoint deadline,
                            base::UniqueFd& fd) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(settings.host.c_str(), std::to_string(settings.port).c_str(),
                                      &hints, &found);
      error != 0) {
    return fmt::format("has no address: {}", ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::string reason = "has no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    reason = connect_to(one->ai_addr, one->ai_addrlen, cancel, deadline, fd);
    if (!reason.empty()) continue;
    const int yes = 1;  // an exchange is one message each way, which should not wait to be longer
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return {};
  }
  return reason;
}

}  // namespace

struct Connection::Context {
  base::UniqueFd fd;  // hiredis uses it, and leaves it to us
  std::unique_ptr<redisContext, decltype(&redisFreeKeepFd)> redis{nullptr, redisFreeKeepFd};
};

std::string remote_unsupported(const RemoteSettings& settings) {
  return settings.tls ? tls_unsupported() : std::string();
}

Connection::Connection(const RemoteSettings& settings, int cancel)
    : settings_(settings), cancel_(cancel), context_(std::make_unique<Context>()) {}
Connection::~Connection() = default;

std::string Connection::open(TimePoint deadline) {
  base::UniqueFd& fd = context_->fd;
  std::string reason = settings_.socket.empty()
                           ? connect_to_host(settings_, cancel_, deadline, fd)
                           : connect_to_socket(settings_.socket, cancel_, deadline, fd);
  if (!reason.empty()) return reason;
  context_->redis.reset(::redisConnectFd(fd.get()));
  redisContext* const redis = context_->redis.get();
  if (redis == nullptr || redis->err != 0) return "cannot be used: memory is short";
  redis->flags &= ~REDIS_BLOCK;
  redisReader* const reader = ::redisReaderCreateWithFunctions(reply_functions());
  if (reader == nullptr) return "cannot be used: memory is short";
  ::redisReaderFree(redis->reader);
  redis->reader = reader;
  if (!settings_.tls) return {};
  return start_tls(*redis, settings_, [&](short events) {
    const Wait wait = wait_for(fd.get(), events, cancel_, deadline);
    return wait == Wait::ready ? std::string() : name_of(wait);
  });
}

std::optional<Connection::Failure> Connection::exchange(std::span<const Command> commands,
                                                        std::uint64_t max_reply, TimePoint deadline,
                                                        std::vector<Reply>& replies) {
  redisContext* const redis = context_->redis.get();
  for (const Command& command : commands) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& text : command) {
      texts.push_back(text.data());
      sizes.push_back(text.size());
    }
    if (::redisAppendCommandArgv(redis, static_cast<int>(texts.size()), texts.data(),
                                 sizes.data()) != REDIS_OK) {
      return Failure::lost;
    }
  }
  replies.clear();
  bool written = false;
  std::uint64_t left = std::min(max_reply * commands.size() + kFraming, kMostReceived);
  while (true) {
    void* reply = nullptr;
    if (::redisGetReplyFromReader(redis, &reply) != REDIS_OK) return Failure::bad_reply;
    if (reply != nullptr) {
      const std::unique_ptr<Reply> owner(static_cast<Reply*>(reply));
      replies.push_back(std::move(*owner));
      if (replies.size() == commands.size() && written) return std::nullopt;
      if (replies.size() >= commands.size()) return Failure::bad_reply;  // to nothing we asked
      continue;
    }
    if (redis->reader->len > max_reply + kFraming) return Failure::bad_reply;
    // Also while there is something to write: a server that nobody reads from stops reading.
    const short events = static_cast<short>(POLLIN | (written ? 0 : POLLOUT));
    switch (wait_for(redis->fd, events, cancel_, deadline)) {
      case Wait::ready: break;
      case Wait::timed_out: return Failure::timed_out;
      case Wait::cancelled: return Failure::cancelled;
    }
    int done = written ? 1 : 0;
    if (!written && ::redisBufferWrite(redis, &done) != REDIS_OK) return Failure::lost;
    written = done != 0;
    const std::size_t before = redis->reader->len;
    if (::redisBufferRead(redis) != REDIS_OK) return Failure::lost;
    const std::uint64_t received = redis->reader->len - before;
    // Also of many short texts, none of which stays in the reader.
    if (received > left) return Failure::bad_reply;
    left -= received;
  }
}

}  // namespace kiln::cache
