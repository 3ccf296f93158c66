#include "tool/compile_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>

#include "jit/service/compile.hpp"
#include "kernel/process_cache.hpp"
#include "kernel/remote_compile.hpp"
#include "kiln/error.hpp"
#include "kiln/version.hpp"

namespace kiln::tool {
namespace {

using Clock = std::chrono::steady_clock;
using cache::Served;
using cache::ServedQueue;
using std::chrono::milliseconds;

constexpr milliseconds kShortestPause{2};
constexpr milliseconds kLongestPause{100};

std::string make_id(const std::string& host) {
  std::random_device random;
  return fmt::format("{}:{}:{:08x}", host, ::getpid(), random());
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

struct CompileServer::Finished {
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, KernelResult>> results;
  const base::UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

CompileServer::CompileServer(const cache::RemoteSettings& settings, const cache::Secret& secret,
                             std::vector<std::string> kinds)
    : capacity_(static_cast<std::size_t>(jit::compile_jobs()) * kMaxKernelsPerUnit),
      kinds_(std::move(kinds)),
      queue_(settings, secret, make_id(host_name()), kinds_),
      finished_(std::make_shared<Finished>()) {
  cache::RemoteServer& self = state_.server;
  self.id = queue_.id();
  self.host = host_name();
  self.pid = static_cast<std::uint64_t>(::getpid());
  self.version = KILN_VERSION_STRING;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  self.started =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  self.jobs = static_cast<std::uint64_t>(jit::compile_jobs());
  self.kinds = kinds_;
}

CompileServer::State CompileServer::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

void CompileServer::run(int stop) {
  bool stopping = false;
  milliseconds pause = kShortestPause;
  std::minstd_rand random{std::random_device{}()};
  while (true) {
    finish_all();
    if (stopping && running_.empty()) break;
    if (Clock::now() >= renew_at_) renew();
    const bool took = !stopping && running_.size() < capacity_ && take();
    pause = took ? kShortestPause : std::min(pause * 2, kLongestPause);
    // So that servers do not ask in step.
    const auto wait =
        std::uniform_int_distribution<std::int64_t>(pause.count() / 2, pause.count())(random);
    pollfd found[2] = {{stop, POLLIN, 0}, {finished_->event.get(), POLLIN, 0}};
    if (::poll(found, 2, took ? 0 : static_cast<int>(wait)) <= 0) continue;
    if (found[0].revents == 0) continue;
    signalfd_siginfo signal{};
    if (::read(stop, &signal, sizeof signal) != sizeof signal) continue;
    if (std::exchange(stopping, true)) break;
    log(LogLevel::info, fmt::format("serve: ending, after {} requests", running_.size()));
  }
  process_cache().flush_remote(Clock::now() + queue_.settings().answer);
  queue_.withdraw();
}

bool CompileServer::take() {
  // A part is kept for what somebody waits for, and a turn takes no more than can run at once, so
  // that servers share what there is.
  const std::size_t jobs = capacity_ / kMaxKernelsPerUnit;
  const std::size_t left = capacity_ - running_.size();
  auto taken = queue_.take(std::min(jobs, left), std::min(jobs, left > jobs ? left - jobs : 0));
  if (!taken || taken->empty()) return false;
  for (ServedQueue::Taken& one : *taken) start(std::move(one));
  return true;
}

void CompileServer::start(ServedQueue::Taken taken) {
  if (taken.expired) return answer(taken, Served::expired, std::nullopt);
  if (!taken.request) {
    log(LogLevel::warning,
        fmt::format("serve: the request {} {}; refused", taken.wanted, taken.problem));
    return answer(taken, Served::refused, std::nullopt);
  }
  Running running;
  running.source = taken.source();
  WantedKernel wanted;
  try {
    wanted.request = kernel_request(*std::move(taken.request));
    taken.request.reset();
    if (source_key(wanted.request) != running.source ||
        kind_of(wanted.request.target) != taken.kind) {
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: the request makes another kernel here than what it asks for: the "
                      "compilers' environment differs, or the version of kiln",
                      wanted.request.function));
    }
  } catch (const Error& error) {
    return refuse(taken, Served::refused, {error.code(), error.what()});
  }
  const NamedKernel named = name_kernel(wanted.request);
  if (named.key_text.empty()) {
    return refuse(
        taken, Served::failed,
        {Code::not_found, fmt::format("{}: the compiler for {} is gone, or cannot be told "
                                      "from others",
                                      wanted.request.function, wanted.request.target)});
  }
  running.key = named.key;
  const bool urgent = taken.priority == cache::RequestPriority::foreground;
  running.taken = std::move(taken);
  const std::uint64_t number = next_++;
  const KernelTable::Done done = [finished = finished_, number](const KernelResult& result) {
    const std::lock_guard lock(finished->mutex);
    finished->results.emplace_back(number, result);
    ::eventfd_write(finished->event.get(), 1);
  };
  KernelTable& table = KernelTable::instance();
  running.ticket = table.request({&wanted, 1}, {&done, 1}).front();
  if (urgent) table.raise_priority(running.ticket);
  running_.emplace(number, std::move(running));
}

void CompileServer::finish_all() {
  std::vector<std::pair<std::uint64_t, KernelResult>> results;
  {
    const std::lock_guard lock(finished_->mutex);
    results.swap(finished_->results);
    eventfd_t count = 0;
    ::eventfd_read(finished_->event.get(), &count);
  }
  for (const auto& [number, result] : results) {
    const auto running = running_.find(number);
    finish(running->second, result);
    running_.erase(running);
    if (Clock::now() >= renew_at_) renew();
  }
}

void CompileServer::finish(const Running& running, const KernelResult& result) {
  if (result.failure) return refuse(running.taken, Served::failed, *result.failure);
  if (!process_cache().share(running.key, running.source)) {
    // It stays pending: somebody takes it over, and finds it here or compiles it.
    log_once(LogLevel::warning, "serve share",
             fmt::format("serve: {}: a kernel could not be sent; its request is left to be taken "
                         "again",
                         queue_.settings().display()));
    return;
  }
  const bool compiled = result.info.cache == CacheState::compiled;
  answer(running.taken, compiled ? Served::compiled : Served::found, std::nullopt);
}

void CompileServer::refuse(const ServedQueue::Taken& taken, Served result, const Failure& failure) {
  const std::string& text = failure.message;
  log(LogLevel::info,
      fmt::format("serve: the request {}: {}", taken.wanted, text.substr(0, text.find('\n'))));
  answer(taken, result,
         cache::RemoteFailure{static_cast<std::uint32_t>(failure.code), failure.is_verdict,
                              state_.server.host, text});
}

void CompileServer::answer(const ServedQueue::Taken& taken, Served result,
                           const std::optional<cache::RemoteFailure>& failure) {
  queue_.finish(taken, result, failure);
  const std::lock_guard lock(mutex_);
  ++state_.server.served[static_cast<std::size_t>(result)];
  if (taken.taken_over) ++state_.server.served[static_cast<std::size_t>(Served::taken_over)];
}

void CompileServer::renew() {
  renew_at_ = Clock::now() + queue_.settings().lease / 3;
  std::vector<const ServedQueue::Taken*> taken;
  for (const auto& [number, running] : running_) taken.push_back(&running.taken);
  State now = state();
  now.server.running = running_.size();
  now.queues = queue_.renew(taken, now.server);
  const std::lock_guard lock(mutex_);
  state_ = std::move(now);
}

}  // namespace kiln::tool
