// See preparer.hpp.
#include "kernel/preparer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "kiln/error.hpp"
#include "kernel/loaded_kernels.hpp"
#include "kernel/named_kernel.hpp"

namespace kiln {
namespace {

// A program that makes failing functions without end must not grow without end.
constexpr std::size_t kMaxFailures = 4096;

}  // namespace

struct Preparer::Task {
  WantedKernel wanted;
  Id id;
  std::string program;  ///< equal for kernels that may share one; empty for one that may not
  // What follows is guarded by the preparer's mutex.
  std::vector<std::pair<std::uint64_t, Done>> wishes;
  bool missed = false;  ///< by a call, which will ask again
  bool urgent = false;
  bool running = false;
  std::vector<std::weak_ptr<Task>> companions;  ///< in the same program, itself included
  BackgroundCompile* compile = nullptr;         ///< while it runs

  bool wanted_by_somebody() const { return missed || !wishes.empty(); }
};

Preparer& Preparer::instance() {
  // Never destroyed: its threads may be at work while the process ends. A forked child has none of
  // them, and locks that may be held for ever.
  static std::atomic<std::pair<pid_t, Preparer*>*> current{nullptr};
  auto* known = current.load(std::memory_order_acquire);
  while (known == nullptr || known->first != getpid()) {
    auto* const made = new std::pair<pid_t, Preparer*>(getpid(), new Preparer);
    if (current.compare_exchange_strong(known, made)) return *made->second;
    delete made->second;
    delete made;
  }
  return *known->second;
}

Preparer::Preparer() : limit_(static_cast<std::size_t>(jit::compile_jobs())) {}

std::vector<Preparer::Wish> Preparer::add(std::span<const WantedKernel> wanted,
                                          std::span<const Done> done) {
  std::vector<Wish> wishes(wanted.size());
  std::vector<std::pair<std::size_t, KernelInfo>> loaded;
  std::vector<cache::Key> keys;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const KernelCode named = name_kernel(wanted[i].request);
    keys.push_back(named.key);
    if (wanted[i].backend == nullptr || !is_loaded(*wanted[i].backend, named.key)) continue;
    KernelInfo info;
    info.entry = named.entry_name;
    info.key = named.key_text;
    loaded.emplace_back(i, info);
  }
  {
    const std::lock_guard lock(mutex_);
    std::size_t next_loaded = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (next_loaded < loaded.size() && loaded[next_loaded].first == i) {
        ++next_loaded;
        continue;
      }
      wishes[i].number = next_wish_++;
      wishes[i].task = enqueue(wanted[i], keys[i]);
      wishes[i].task->wishes.emplace_back(wishes[i].number, done[i]);
    }
    start_threads();
  }
  for (const auto& [i, info] : loaded) done[i]({info, std::nullopt});
  return wishes;
}

void Preparer::add_missed(const WantedKernel& wanted) {
  const cache::Key key = name_kernel(wanted.request).key;
  const std::lock_guard lock(mutex_);
  if (const auto failure = failures_.find({wanted.backend, key}); failure != failures_.end()) {
    throw Error(failure->second.first, failure->second.second);
  }
  enqueue(wanted, key)->missed = true;
  start_threads();
}

// The task of that kernel, which may be there already.
std::shared_ptr<Preparer::Task> Preparer::enqueue(const WantedKernel& wanted,
                                                  const cache::Key& key) {
  std::shared_ptr<Task>& task = tasks_[{wanted.backend, key}];
  if (task) return task;
  task = std::make_shared<Task>();
  task->wanted = wanted;
  task->id = {wanted.backend, key};
  if (!wanted.request.alone) {
    task->program = fmt::format("{}\n{}", wanted.request.target,
                                fmt::join(kernel_options(wanted.request), "\n"));
  }
  queue_.push_back(task);
  return task;
}

void Preparer::start_threads() {
  while (threads_ < limit_ && queue_.size() > waiting_) {
    try {
      std::thread(&Preparer::work, this).detach();
      ++threads_;
      ++waiting_;  // until it takes something
    } catch (const std::system_error& error) {
      if (threads_ > 0) break;  // what is queued is only later
      throw Error(Code::io, fmt::format("prepare: cannot start a thread: {}", error.what()));
    }
  }
  wake_.notify_all();
}

void Preparer::hurry(const Wish& wish) {
  if (!wish.task) return;
  const std::lock_guard lock(mutex_);
  if (wish.task->urgent) return;
  wish.task->urgent = true;
  if (wish.task->compile != nullptr) {
    wish.task->compile->hurry();
    return;
  }
  const auto queued = std::ranges::find(queue_, wish.task);
  if (queued == queue_.end()) return;
  queue_.erase(queued);
  queue_.push_front(wish.task);
}

bool Preparer::drop(const Wish& wish) {
  if (!wish.task) return false;
  const std::lock_guard lock(mutex_);
  Task& task = *wish.task;
  if (std::erase_if(task.wishes, [&](const auto& own) { return own.first == wish.number; }) == 0) {
    return false;
  }
  if (task.wanted_by_somebody()) return true;
  if (!task.running) {
    std::erase(queue_, wish.task);
    forget(wish.task);
  } else if (task.compile != nullptr &&
             std::ranges::none_of(task.companions, [](const std::weak_ptr<Task>& weak) {
               const auto companion = weak.lock();
               return companion && companion->wanted_by_somebody();
             })) {
    task.compile->cancel();
    // Whoever wants one of them from now on gets another task, not this one's end.
    for (const std::weak_ptr<Task>& weak : task.companions) {
      if (const auto companion = weak.lock()) forget(companion);
    }
  }
  return true;
}

void Preparer::forget(const std::shared_ptr<Task>& task) {
  const auto known = tasks_.find(task->id);
  if (known != tasks_.end() && known->second == task) tasks_.erase(known);
}

void Preparer::work() {
  while (true) {
    std::vector<std::shared_ptr<Task>> tasks;
    BackgroundCompile compile;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return !queue_.empty(); });
      --waiting_;
      tasks = take();
      for (const auto& task : tasks) {
        task->running = true;
        task->compile = &compile;
        task->companions.assign(tasks.begin(), tasks.end());
        if (task->urgent) compile.hurry();
      }
    }
    run(tasks, compile);
    const std::lock_guard lock(mutex_);
    ++waiting_;
  }
}

// The first of the queue and others that may share its program: few enough that every thread gets
// its part of what is queued, and alone if somebody waits for it.
std::vector<std::shared_ptr<Preparer::Task>> Preparer::take() {
  const std::size_t share = std::min(kMaxKernelsOfProgram, (queue_.size() + limit_ - 1) / limit_);
  std::vector<std::shared_ptr<Task>> tasks = {queue_.front()};
  queue_.pop_front();
  const Task& first = *tasks.front();
  if (first.program.empty() || first.urgent) return tasks;
  for (auto at = queue_.begin(); at != queue_.end() && tasks.size() < share;) {
    const bool joins = (*at)->program == first.program &&
                       std::ranges::none_of(tasks, [&](const std::shared_ptr<Task>& task) {
                         return task->id.second == (*at)->id.second;
                       });
    if (joins) tasks.push_back(*at);
    at = joins ? queue_.erase(at) : at + 1;
  }
  return tasks;
}

void Preparer::run(const std::vector<std::shared_ptr<Task>>& tasks, BackgroundCompile& compile) {
  std::vector<KernelRequest> requests;
  for (const auto& task : tasks) requests.push_back(task->wanted.request);
  std::vector<CodeOutcome> outcomes = make_codes(requests, compile);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& task : tasks) task->compile = nullptr;  // it ends before they do
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    PreparedKernel result;
    result.error = std::move(outcomes[i].error);
    KernelCode& code = outcomes[i].code;
    try {
      if (!result.error && tasks[i]->wanted.backend != nullptr) {
        load_code(*tasks[i]->wanted.backend, requests[i], code, tasks[i]->id.second);
      }
    } catch (const Error& error) {
      result.error.emplace(error.code(), error.what());
    }
    result.info.entry = code.entry_name;
    result.info.key = code.key_text;
    result.info.cache = code.state;
    result.info.compile_ms = code.state == CacheState::compiled ? code.compile_ms : 0;
    finish(tasks[i], result);
  }
}

void Preparer::finish(const std::shared_ptr<Task>& task, const PreparedKernel& result) {
  std::vector<std::pair<std::uint64_t, Done>> wishes;
  {
    const std::lock_guard lock(mutex_);
    forget(task);
    wishes.swap(task->wishes);
    if (task->missed && result.error) {
      if (failures_.size() >= kMaxFailures) failures_.clear();
      failures_.emplace(task->id, *result.error);
    }
  }
  for (const auto& [number, done] : wishes) done(result);
}

}  // namespace kiln
