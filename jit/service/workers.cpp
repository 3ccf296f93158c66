// The service's workers: which one gets a request, which stay warm and for how long; and the
// compiler in this process that replaces them on request.
#include <fmt/format.h>

#include <algorithm>

#include "jit/compilers/compiler.hpp"
#include "jit/service/service.hpp"

namespace kiln::jit {

using Clock = std::chrono::steady_clock;

namespace {

// Not if it is out of memory, disk or anything else: another one may have more.
bool is_healthy(const Exchange& answer) {
  if (answer.end != Exchange::End::replied) return false;
  if (answer.reply.type == MessageType::done) return true;
  const Code code = decode_failure(answer.reply.body).code;
  return code != Code::io && code != Code::internal;
}

}  // namespace

Exchange Service::exchange(const Toolchain& toolchain, MessageType type, const std::string& body,
                           int cancel) {
  if (settings_.in_process) return exchange_in_process(toolchain, type, body);
  for (int fresh = 0;;) {
    std::unique_ptr<WorkerProcess> worker = take_worker(toolchain);
    fresh += worker->used() ? 0 : 1;
    ++exchanges_;
    Exchange answer = worker->call(type, body, settings_.deadline, cancel);
    if (is_healthy(answer)) keep_worker(std::move(worker));
    // A worker that died before it read the request did not die of it. Of those that were idle, any
    // number may have.
    const bool innocent = answer.end == Exchange::End::died && !answer.accepted;
    if (!innocent || fresh > 1) return answer;
  }
}

Exchange Service::exchange_in_process(const Toolchain& toolchain, MessageType type,
                                      const std::string& body) {
  Compiler* compiler = nullptr;
  {
    const std::lock_guard lock(compilers_mutex_);
    auto& slot = compilers_[fmt::format("{} {}", name(toolchain.kind), toolchain.path)];
    if (!slot) slot = open_compiler(toolchain.kind, toolchain.path);
    compiler = slot.get();
  }
  ++exchanges_;
  Exchange answer;
  answer.end = Exchange::End::replied;
  answer.accepted = true;
  answer.reply = answer_request(*compiler, {type, 0, body});
  return answer;
}

Exchange Service::exchange_apart(const Toolchain& toolchain, MessageType type,
                                 const std::string& body, int cancel) {
  WorkerProcess worker(settings_, toolchain.kind, toolchain.path);
  ++workers_started_;
  ++exchanges_;
  return worker.call(type, body, settings_.deadline, cancel);
}

std::unique_ptr<WorkerProcess> Service::take_worker(const Toolchain& toolchain) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const IdleWorker& idle) {
      return idle.worker->kind() == toolchain.kind && idle.worker->path() == toolchain.path;
    });
    if (found != idle_.end()) {
      std::unique_ptr<WorkerProcess> worker = std::move(found->worker);
      idle_.erase(found);
      return worker;
    }
  }
  ++workers_started_;
  return std::make_unique<WorkerProcess>(settings_, toolchain.kind, toolchain.path);
}

// Kept warm, but never more than run at a time: the one that has waited longest makes room.
void Service::keep_worker(std::unique_ptr<WorkerProcess> worker) {
  std::list<IdleWorker> ended;
  const std::lock_guard lock(mutex_);
  idle_.push_front({std::move(worker), Clock::now()});
  if (idle_.size() > static_cast<std::size_t>(settings_.jobs)) {
    ended.splice(ended.begin(), idle_, std::prev(idle_.end()));
  }
}

std::optional<Pool::TimePoint> Service::end_idle_workers() {
  std::list<IdleWorker> ended;  // after the lock, so that nobody waits for their end
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  while (!idle_.empty() && idle_.back().since + settings_.idle <= now) {
    ended.splice(ended.begin(), idle_, std::prev(idle_.end()));
  }
  if (idle_.empty()) return std::nullopt;
  return idle_.back().since + settings_.idle;
}

}  // namespace kiln::jit
