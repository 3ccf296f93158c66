#include "kernel/kernel_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>

#include "base/configuration.hpp"
#include "core/memory_limit.hpp"
#include "core/plan_table.hpp"
#include "kernel/process_cache.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// A process that makes failing functions without end must not grow without end.
constexpr std::size_t kMaxFailures = 4096;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// What a call gets that may not compile.
BuildResult look_up(const KernelRequest& request, const NamedKernel& named) {
  if (auto code = find_code(request, named)) return {*std::move(code), std::nullopt};
  BuildResult missing;
  missing.code.named = named;
  missing.failure = Failure{Code::would_compile,
                            fmt::format("{}: no kernel for {} ({}) is in the cache, and {}",
                                        request.function, request.target, request.signature,
                                        base::on_miss_of(request.options.on_miss) != OnMiss::fail
                                            ? "it is being compiled in the background (on_miss)"
                                            : "on_miss forbids compiling in the call")};
  return missing;
}

// A thread that waits for one result.
class Waiter {
 public:
  KernelTable::Done done() {
    return [this](const KernelResult& result) {
      const std::lock_guard lock(mutex_);
      result_ = result;
      arrived_.notify_one();  // under the lock: the waiter may be gone right after it
    };
  }
  KernelResult wait() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return result_.has_value(); });
    return *std::move(result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<KernelResult> result_;
};

}  // namespace

// A device that a kernel is wanted on, and who waits for it there.
struct KernelTable::Target {
  jit::Backend* backend = nullptr;
  std::vector<std::pair<std::uint64_t, Done>> waiters;
};

// Guarded by the table's mutex but for what never changes.
struct KernelTable::Task {
  NamedKernel named;
  KernelRequest request;
  OnMiss on_miss = OnMiss::compile;  ///< for another value the cache is asked, and no compiler
  std::string unit;  ///< equal for kernels that may share one; empty for one that may not
  std::vector<Target> targets;
  bool missed = false;  ///< by a call, which will ask again
  bool urgent = false;
  bool running = false;
  std::vector<std::weak_ptr<Task>> companions;  ///< in the same unit, itself included
  BuildControl* control = nullptr;              ///< while it is built

  bool is_wanted() const {
    return missed ||
           std::ranges::any_of(targets, [](const Target& one) { return !one.waiters.empty(); });
  }

  void add(jit::Backend* backend, std::uint64_t number, Done done) {
    auto target = std::ranges::find(targets, backend, &Target::backend);
    if (target == targets.end()) target = targets.insert(target, Target{backend, {}});
    if (done) target->waiters.emplace_back(number, std::move(done));
  }
};

KernelTable& KernelTable::instance() {
  // Never destroyed: its threads may be at work while the process ends. A forked child has none of
  // them, and locks that may be held for ever.
  static std::atomic<std::pair<pid_t, KernelTable*>*> current{nullptr};
  auto* known = current.load(std::memory_order_acquire);
  while (known == nullptr || known->first != getpid()) {
    auto* const made = new std::pair<pid_t, KernelTable*>(getpid(), new KernelTable);
    if (current.compare_exchange_strong(known, made)) return *made->second;
    delete made->second;
    delete made;
  }
  return *known->second;
}

KernelTable::KernelTable() : limit_(static_cast<std::size_t>(jit::compile_jobs())) {}

std::shared_ptr<jit::Kernel> KernelTable::find(const jit::Backend& backend, const cache::Key& key) {
  const std::lock_guard lock(mutex_);
  return use_loaded(&backend, key);
}

// Null if it is not loaded. The mutex is held.
std::shared_ptr<jit::Kernel> KernelTable::use_loaded(const jit::Backend* backend,
                                                     const cache::Key& key) {
  const auto found = loaded_.find({backend, key});
  if (found == loaded_.end()) return nullptr;
  found->second.last_wanted = ++wanted_;
  return found->second.kernel;
}

std::shared_ptr<jit::Kernel> KernelTable::insert(const jit::Backend& backend, const cache::Key& key,
                                                 std::shared_ptr<jit::Kernel> kernel,
                                                 std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t counted = std::max<std::uint64_t>(bytes, kLeastModuleBytes);
  const auto [at, added] =
      loaded_.emplace(std::pair(&backend, key), Loaded{std::move(kernel), counted, ++wanted_});
  if (added) {
    KernelUsage& usage = devices_[&backend].usage;
    ++usage.kernels;
    usage.bytes += counted;
  }
  return at->second.kernel;
}

KernelUsage KernelTable::usage(Device device) {
  const std::lock_guard lock(mutex_);
  for (const auto& [backend, own] : devices_) {
    if (backend->device() == device) return own.usage;
  }
  return {};
}

// ---- Unloading ---------------------------------------------------------------------------------

// Where a device's kernels take more than the limit. Plans hold kernels, so old plans go too if
// need be; what else holds kernels, such as graphs and launches, keeps them loaded.
void KernelTable::unload_old(jit::Backend& backend) {
  const std::uint64_t limit = memory_limit();
  {
    const std::lock_guard lock(mutex_);
    PerDevice& own = devices_[&backend];
    if (own.usage.bytes <= std::max(limit, own.next_limit)) return;
    take_unused(backend, own);
  }
  std::vector<std::shared_ptr<jit::Kernel>> unloading;
  if (usage(backend.device()).bytes > limit) drop_old_plans(backend.device());
  {
    const std::lock_guard lock(mutex_);
    PerDevice& own = devices_[&backend];
    if (own.usage.bytes > limit) take_unused(backend, own);
    own.next_limit = own.usage.bytes > limit ? own.usage.bytes + limit / 8 : 0;
    unloading.swap(own.unloading);
  }
  if (unloading.empty() || backend.wait_until_idle()) return;
  const std::lock_guard lock(mutex_);
  std::ranges::move(unloading, std::back_inserter(devices_[&backend].unloading));
}
// Takes those out of the table that nothing else holds, the least recently wanted first, until an
// eighth of the limit is free, so that this is rare. The mutex is held.
void KernelTable::take_unused(const jit::Backend& backend, PerDevice& own) {
  using Entry = decltype(loaded_)::iterator;
  std::vector<Entry> unused;
  for (auto at = loaded_.begin(); at != loaded_.end(); ++at) {
    if (at->first.first == &backend && at->second.kernel.use_count() == 1) unused.push_back(at);
  }
  std::ranges::sort(unused, {}, [](const Entry& at) { return at->second.last_wanted; });
  const std::uint64_t limit = memory_limit();
  for (const Entry& at : unused) {
    if (own.usage.bytes <= limit - limit / 8) return;
    --own.usage.kernels;
    own.usage.bytes -= at->second.bytes;
    ++own.usage.unloaded;
    own.unloading.push_back(std::move(at->second.kernel));
    loaded_.erase(at);
  }
}

// What needs no task. The mutex is held.
std::optional<KernelResult> KernelTable::known_result(const jit::Backend* backend,
                                                      const NamedKernel& named, OnMiss on_miss) {
  KernelResult result;
  result.info.entry = named.entry_name;
  result.info.key = named.key_text;
  if ((result.kernel = use_loaded(backend, named.key))) {
    result.info.cache = CacheState::memory;
    return result;
  }
  if (on_miss == OnMiss::compile) result.failure = verdict_on(named.key);
  return result.failure ? std::optional(result) : std::nullopt;
}

// The task of that kernel, which may be there already. The mutex is held.
std::shared_ptr<KernelTable::Task> KernelTable::task_of(const WantedKernel& wanted,
                                                        const NamedKernel& named, OnMiss on_miss) {
  std::shared_ptr<Task>& task = tasks_[{named.key, on_miss}];
  if (task) return task;
  task = std::make_shared<Task>();
  task->named = named;
  task->request = wanted.request;
  task->on_miss = on_miss;
  return task;
}

// For the table's threads, unless it is queued or running. The mutex is held.
void KernelTable::enqueue(const std::shared_ptr<Task>& task) {
  if (task->running || std::ranges::find(queue_, task) != queue_.end()) return;
  if (!task->request.alone) {
    task->unit =
        fmt::format("{}\n{}", task->request.target, fmt::join(kernel_options(task->request), "\n"));
  }
  queue_.push_back(task);
}

// The mutex is held.
void KernelTable::begin(const std::vector<std::shared_ptr<Task>>& tasks, BuildControl& control) {
  for (const auto& task : tasks) {
    task->running = true;
    task->control = &control;
    task->companions.assign(tasks.begin(), tasks.end());
    if (task->urgent) control.raise_priority();
  }
}

KernelResult KernelTable::get(const WantedKernel& wanted, const NamedKernel& named) {
  const OnMiss on_miss = base::on_miss_of(wanted.request.options.on_miss);
  Waiter waiter;
  BuildControl control(BuildControl::Priority::foreground);
  std::shared_ptr<Task> task;
  bool leads = false;
  {
    const std::lock_guard lock(mutex_);
    if (auto known = known_result(wanted.backend, named, on_miss)) return *std::move(known);
    task = task_of(wanted, named, on_miss);
    task->add(wanted.backend, next_number_++, waiter.done());
    leads = !task->running;
    if (leads) {
      std::erase(queue_, task);
      begin({task}, control);
    } else if (task->control != nullptr) {
      task->control->raise_priority();
    }
  }
  if (leads) run({task}, control);
  return waiter.wait();
}

std::vector<KernelTable::Ticket> KernelTable::request(std::span<const WantedKernel> wanted,
                                                      std::span<const Done> done, bool urgent) {
  std::vector<Ticket> tickets(wanted.size());
  std::vector<std::pair<std::size_t, KernelResult>> known;
  std::vector<NamedKernel> named;
  for (const WantedKernel& one : wanted) named.push_back(name_kernel(one.request));
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (auto result = known_result(wanted[i].backend, named[i], OnMiss::compile)) {
        known.emplace_back(i, *std::move(result));
        continue;
      }
      tickets[i] = {task_of(wanted[i], named[i], OnMiss::compile), next_number_++};
      tickets[i].task->add(wanted[i].backend, tickets[i].number, done[i]);
      enqueue(tickets[i].task);
      // Before a thread could take it together with others.
      if (urgent) raise_priority(tickets[i].task);
    }
  }
  for (const auto& [i, result] : known) done[i](result);
  start_threads();
  return tickets;
}

void KernelTable::request_missed(const WantedKernel& wanted, const NamedKernel& named) {
  throw_failure_of_miss(named.key);
  {
    const std::lock_guard lock(mutex_);
    enqueue_missed(wanted, named);
  }
  start_threads();
  throw_failure_of_miss(named.key);  // there may be no thread for it
}

void KernelTable::request_missed(std::span<const WantedKernel> wanted,
                                 std::span<const NamedKernel> named) {
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < wanted.size(); ++i) enqueue_missed(wanted[i], named[i]);
  }
  start_threads();
}

void KernelTable::request_unnamed(std::span<const WantedKernel> wanted) {
  do_later([this, missed = std::vector(wanted.begin(), wanted.end())] {
    std::vector<NamedKernel> named;
    for (const WantedKernel& one : missed) named.push_back(name_kernel(one.request));
    request_missed(missed, named);
  });
}

void KernelTable::do_later(std::function<void()> chore) {
  {
    const std::lock_guard lock(mutex_);
    chores_.push_back(std::move(chore));
  }
  start_threads();
}

// The mutex is held.
void KernelTable::enqueue_missed(const WantedKernel& wanted, const NamedKernel& named) {
  if (use_loaded(wanted.backend, named.key)) return;  // it came meanwhile
  const std::shared_ptr<Task> task = task_of(wanted, named, OnMiss::compile);
  task->missed = true;
  task->add(wanted.backend, 0, {});
  enqueue(task);
}

// The mutex is held.
std::optional<Failure> KernelTable::verdict_on(const cache::Key& key) const {
  const auto found = failures_.find(key);
  if (found == failures_.end() || !found->second.is_verdict) return std::nullopt;
  return found->second;
}

// Unless it is a verdict, once: the reason may be gone when it is asked for again.
void KernelTable::throw_failure_of_miss(const cache::Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(key);
  if (found == failures_.end()) return;
  const Failure failure = found->second;
  if (!failure.is_verdict) failures_.erase(found);
  throw error_of(failure);
}

// As many as there is work for. Where not even one can be started, what is queued fails.
void KernelTable::start_threads() {
  std::vector<std::shared_ptr<Task>> stranded;
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    while (threads_ < limit_ && queue_.size() + (chores_.empty() ? 0 : 1) > idle_) {
      try {
        std::thread(&KernelTable::work, this).detach();
        ++threads_;
        ++idle_;  // until it takes something
      } catch (const std::system_error& error) {
        if (threads_ > 0) break;  // what is queued is only later
        reason = error.what();
        stranded.assign(queue_.begin(), queue_.end());
        queue_.clear();
        chores_.clear();
        for (const auto& task : stranded) task->running = true;
      }
    }
    wake_.notify_all();
  }
  BuildControl control(BuildControl::Priority::background);
  for (const auto& task : stranded) {
    BuildResult built;
    built.code.named = task->named;
    built.failure = Failure{Code::io, fmt::format("{}: cannot start a thread to prepare it: {}",
                                                  task->request.function, reason)};
    finish(task, std::move(built), control);
  }
}

void KernelTable::raise_priority(const Ticket& ticket) {
  if (!ticket.task) return;
  const std::lock_guard lock(mutex_);
  raise_priority(ticket.task);
}

// The mutex is held.
void KernelTable::raise_priority(const std::shared_ptr<Task>& task) {
  if (std::exchange(task->urgent, true)) return;
  if (task->control != nullptr) {
    task->control->raise_priority();
  } else if (std::erase(queue_, task) > 0) {
    queue_.push_front(task);
  }
}

bool KernelTable::cancel(const Ticket& ticket) {
  if (!ticket.task) return false;
  const std::lock_guard lock(mutex_);
  Task& task = *ticket.task;
  std::size_t given_up = 0;
  for (Target& target : task.targets) {
    given_up +=
        std::erase_if(target.waiters, [&](const auto& own) { return own.first == ticket.number; });
  }
  if (given_up == 0) return false;
  if (task.is_wanted()) return true;
  if (!task.running) {
    std::erase(queue_, ticket.task);
    forget(ticket.task);
  } else if (task.control != nullptr &&
             std::ranges::none_of(task.companions, [](const std::weak_ptr<Task>& weak) {
               const auto companion = weak.lock();
               return companion && companion->is_wanted();
             })) {
    task.control->cancel();
    // Whoever wants one of them from now on gets another task, not this one's end.
    for (const std::weak_ptr<Task>& weak : task.companions) {
      if (const auto companion = weak.lock()) forget(companion);
    }
  }
  return true;
}

// The mutex is held.
void KernelTable::forget(const std::shared_ptr<Task>& task) {
  const auto known = tasks_.find({task->named.key, task->on_miss});
  if (known != tasks_.end() && known->second == task) tasks_.erase(known);
}

void KernelTable::work() {
  while (true) {
    std::vector<std::shared_ptr<Task>> tasks;
    std::function<void()> chore;
    BuildControl control(BuildControl::Priority::background);
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !queue_.empty() || !chores_.empty(); });
      --idle_;
      if (!chores_.empty()) {
        chore = std::move(chores_.front());
        chores_.pop_front();
      } else {
        tasks = take();
        begin(tasks, control);
      }
    }
    if (chore) {
      failure_of(chore);
    } else {
      run(tasks, control);
    }
    const std::lock_guard lock(mutex_);
    ++idle_;
  }
}

// The first of the queue and others that may share its unit: few enough that every thread gets
// its part of what is queued, and alone if somebody waits for it; without a compiler here, what a
// compile server is asked for at a time. The mutex is held.
std::vector<std::shared_ptr<KernelTable::Task>> KernelTable::take() {
  const bool elsewhere = queue_.front()->named.toolchain.path.empty();
  const std::size_t share = std::min(elsewhere ? kMaxKernelsAskedFor : kMaxKernelsPerUnit,
                                     (queue_.size() + limit_ - 1) / limit_);
  std::vector<std::shared_ptr<Task>> tasks = {queue_.front()};
  queue_.pop_front();
  const Task& first = *tasks.front();
  if (first.unit.empty() || first.urgent) return tasks;
  for (auto at = queue_.begin(); at != queue_.end() && tasks.size() < share;) {
    const bool joins = (*at)->unit == first.unit;
    if (joins) tasks.push_back(*at);
    at = joins ? queue_.erase(at) : at + 1;
  }
  return tasks;
}

// Builds tasks that have begun, or looks for one in the cache, and hands out what comes of them.
void KernelTable::run(const std::vector<std::shared_ptr<Task>>& tasks, BuildControl& control) {
  std::vector<BuildResult> built(tasks.size());
  const std::optional<Failure> failure = failure_of([&] {
    if (tasks.front()->on_miss != OnMiss::compile) {
      built.front() = look_up(tasks.front()->request, tasks.front()->named);
      return;
    }
    std::vector<KernelRequest> requests;
    std::vector<NamedKernel> names;
    for (const auto& task : tasks) {
      requests.push_back(task->request);
      names.push_back(task->named);
    }
    built = build_kernels(requests, names, control);
  });
  for (std::size_t i = 0; failure && i < tasks.size(); ++i) {  // somebody waits for each of them
    built[i].code.named = tasks[i]->named;
    built[i].failure = failure;
  }
  {
    const std::lock_guard lock(mutex_);
    for (const auto& task : tasks) task->control = nullptr;  // it ends before they do
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) finish(tasks[i], std::move(built[i]), control);
}

// Loads what was built wherever it is wanted, also by those who come meanwhile.
void KernelTable::finish(const std::shared_ptr<Task>& task, BuildResult built,
                         BuildControl& control) {
  if (built.failure) {
    const std::lock_guard lock(mutex_);
    if (task->missed || built.failure->is_verdict) {
      if (failures_.size() >= kMaxFailures) failures_.clear();
      failures_.insert_or_assign(task->named.key, *built.failure);
    }
  }
  while (true) {
    std::vector<Target> targets;
    {
      const std::lock_guard lock(mutex_);
      targets.swap(task->targets);
      if (targets.empty()) {
        forget(task);
        break;
      }
    }
    for (const Target& target : targets) {
      const KernelResult result = load(target.backend, *task, built, control);
      for (const auto& [number, done] : target.waiters) done(result);
    }
  }
  cache::Cache::reuse(std::move(built.code.code));
}

KernelResult KernelTable::load(jit::Backend* backend, const Task& task, BuildResult& built,
                               BuildControl& control) {
  KernelResult result;
  const auto load_built = [&] {
    const KernelCode& code = built.code;
    result.kernel =
        insert(*backend, task.named.key, backend->load(bytes_of(code.code), code.named.entry_name),
               code.code.size());
    unload_old(*backend);
  };
  result.failure = failure_of([&] {
    if (built.failure || backend == nullptr) return;
    // For whoever came while it was being loaded.
    if ((result.kernel = find(*backend, task.named.key))) return;
    try {
      load_built();
    } catch (const jit::InvalidImage& error) {
      if (built.code.state == CacheState::compiled) throw;
      built = rebuild_kernel(task.request, task.named, built.code, error.what(), control);
      if (!built.failure) load_built();
    }
  });
  if (!result.failure) result.failure = built.failure;
  result.info = info_of(built.code);
  return result;
}

void build_together(std::span<const WantedKernel> wanted) {
  std::mutex mutex;
  std::condition_variable arrived;
  std::size_t left = wanted.size();
  const KernelTable::Done done = [&](const KernelResult&) {
    const std::lock_guard lock(mutex);
    if (--left == 0) arrived.notify_one();
  };
  const std::vector<KernelTable::Done> all(wanted.size(), done);
  KernelTable::instance().request(wanted, all, true);
  std::unique_lock lock(mutex);
  arrived.wait(lock, [&] { return left == 0; });
}

std::shared_ptr<jit::Kernel> load_kernel(jit::Backend& backend, const KernelRequest& request,
                                         KernelInfo& info) {
  const OnMiss on_miss = base::on_miss_of(request.options.on_miss);
  if (on_miss == OnMiss::fallback && !is_named_at_once(request)) return nullptr;
  KernelTable& table = KernelTable::instance();
  const WantedKernel wanted{request, &backend};
  const NamedKernel named = name_kernel(request);
  const KernelResult result = table.get(wanted, named);
  if (result.failure) {
    const bool missed = result.failure->code == Code::would_compile;
    if (missed && on_miss == OnMiss::background) table.request_missed(wanted, named);
    if (missed && on_miss == OnMiss::fallback) {
      table.throw_failure_of_miss(named.key);
      return nullptr;
    }
    throw error_of(*result.failure);
  }
  info.entry = result.info.entry;
  info.key = result.info.key;
  info.cache = result.info.cache;
  info.compile_ms = result.info.compile_ms;
  return result.kernel;
}

}  // namespace kiln
