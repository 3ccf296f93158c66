// The kernels of this process: which are loaded, which are being made, and who waits for one.
//
// A kernel that is not loaded is a task, one for each key. Whoever wants it joins the task: a call
// takes one that nobody has begun and does it on its own thread, or raises its priority and waits;
// a preparation leaves it to the table's threads, which build several kernels as one translation
// unit. Calls that may not compile (Options::on_miss) have tasks of their own, which only look into
// the cache, and wait for no compile. When the code is there, it is loaded on every device that
// somebody wants it on. This is the only place of the process where one thread waits for another's
// kernel; other processes are kept out by the cache's locks while a key is compiled
// (kernel_build.hpp).
//
// Loaded kernels that only the table holds are unloaded, the least recently wanted first, when
// those of a device take more than a limit (core/memory_limit.hpp).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jit/device/backend.hpp"
#include "kernel/kernel_build.hpp"

namespace kiln {

/// One kernel; without a backend it is only put into the cache.
struct WantedKernel {
  KernelRequest request;
  jit::Backend* backend = nullptr;
};

/// What became of a kernel that was wanted.
struct KernelResult {
  std::shared_ptr<jit::Kernel> kernel;  ///< null without a backend, and after a failure
  KernelInfo info;                      ///< entry, key, cache and compile_ms
  std::optional<Failure> failure;
};

/// The kernels that the table has loaded on a device.
struct KernelUsage {
  std::uint64_t kernels = 0;
  std::uint64_t bytes = 0;     ///< of their code, and no less than kLeastModuleBytes each
  std::uint64_t unloaded = 0;  ///< since the process began
};

/// What a module counts at least: its pages and mappings. At four mappings each on the CPU, the
/// default limit is a quarter of what Linux lets a process have.
inline constexpr std::uint64_t kLeastModuleBytes = std::uint64_t{64} << 10;

class KernelTable {
 public:
  using Done = std::function<void(const KernelResult&)>;
  struct Task;
  /// A kernel that was asked for; `task` is null if it was there at once.
  struct Ticket {
    std::shared_ptr<Task> task;
    std::uint64_t number = 0;
  };

  /// The one of this process; a forked child gets its own.
  static KernelTable& instance();

  /// The loaded kernel, or null.
  std::shared_ptr<jit::Kernel> find(const jit::Backend& backend, const cache::Key& key);

  /// Gets it for a call, which waits: from the cache or, as far as the request's on_miss allows it,
  /// from the compiler, else the failure is would_compile. A source that a compiler of this process
  /// has refused is not compiled again, here or by request() and request_missed(); any other
  /// failure is tried again. `named` is its name_kernel().
  KernelResult get(const WantedKernel& wanted, const NamedKernel& named);

  /// Queues what is not loaded. `done[i]` is called once for `wanted[i]`, from any thread, maybe
  /// before this returns, and must not throw. The queue takes them together, so that they may share
  /// translation units; but each has its own if somebody waits for them (`urgent`).
  std::vector<Ticket> request(std::span<const WantedKernel> wanted, std::span<const Done> done,
                              bool urgent = false);

  /// Queues a kernel that a call missed and will ask for again. Throws why the attempt before
  /// failed, once: it is queued again by the call after that.
  void request_missed(const WantedKernel& wanted, const NamedKernel& named);
  /// The same of what calls missed that were served without; the next ones get its failures.
  void request_missed(std::span<const WantedKernel> wanted, std::span<const NamedKernel> named);
  /// The same where naming them may take long (is_named_at_once()): one of the table's threads does
  /// that. Where it fails, the next call that misses one looks for the compiler itself, and gets
  /// the error.
  void request_unnamed(std::span<const WantedKernel> wanted);
  /// Why the attempt before failed, if it has, as request_missed() throws it.
  void throw_failure_of_miss(const cache::Key& key);

  /// Somebody waits for it now.
  void raise_priority(const Ticket& ticket);

  /// Gives a request up: true if its `done` will not be called. What nobody wants any more is not
  /// compiled.
  bool cancel(const Ticket& ticket);

  /// Does something that nobody waits for on one of the table's threads, before what is queued;
  /// where none can be started, not at all. What it throws is lost.
  void do_later(std::function<void()> chore);

  KernelUsage usage(Device device);

 private:
  struct Target;
  using Id = std::pair<const jit::Backend*, cache::Key>;
  struct Loaded {
    std::shared_ptr<jit::Kernel> kernel;
    std::uint64_t bytes = 0;
    std::uint64_t last_wanted = 0;
  };
  struct PerDevice {
    KernelUsage usage;
    std::uint64_t next_limit = 0;  ///< where so much is in use that nothing more can be unloaded
    std::vector<std::shared_ptr<jit::Kernel>> unloading;  ///< not found any more; may be running
  };

  KernelTable();
  std::optional<KernelResult> known_result(const jit::Backend* backend, const NamedKernel& named,
                                           OnMiss on_miss);
  std::shared_ptr<Task> task_of(const WantedKernel& wanted, const NamedKernel& named,
                                OnMiss on_miss);
  void enqueue(const std::shared_ptr<Task>& task);
  void raise_priority(const std::shared_ptr<Task>& task);
  void enqueue_missed(const WantedKernel& wanted, const NamedKernel& named);
  std::optional<Failure> verdict_on(const cache::Key& key) const;
  void start_threads();
  void begin(const std::vector<std::shared_ptr<Task>>& tasks, BuildControl& control);
  void forget(const std::shared_ptr<Task>& task);
  void work();
  std::vector<std::shared_ptr<Task>> take();
  void run(const std::vector<std::shared_ptr<Task>>& tasks, BuildControl& control);
  void finish(const std::shared_ptr<Task>& task, BuildResult built, BuildControl& control);
  KernelResult load(jit::Backend* backend, const Task& task, BuildResult& built,
                    BuildControl& control);
  std::shared_ptr<jit::Kernel> use_loaded(const jit::Backend* backend, const cache::Key& key);
  std::shared_ptr<jit::Kernel> insert(const jit::Backend& backend, const cache::Key& key,
                                      std::shared_ptr<jit::Kernel> kernel, std::size_t bytes);
  void unload_old(jit::Backend& backend);
  void take_unused(const jit::Backend& backend, PerDevice& own);

  const std::size_t limit_;
  std::mutex mutex_;
  std::map<Id, Loaded> loaded_;
  std::map<const jit::Backend*, PerDevice> devices_;
  std::uint64_t wanted_ = 0;  ///< how often a kernel was: the time by which they are old
  std::map<std::pair<cache::Key, OnMiss>, std::shared_ptr<Task>> tasks_;  ///< queued or running
  /// Verdicts of compilers, and until they are thrown other failures of kernels that calls missed.
  std::unordered_map<cache::Key, Failure> failures_;
  std::deque<std::shared_ptr<Task>> queue_;
  std::deque<std::function<void()>> chores_;  ///< before what is queued
  std::condition_variable wake_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;  ///< threads that have nothing to do
  std::uint64_t next_number_ = 1;
};

/// Builds those that are not loaded side by side, as fast as calls would, and waits for them. What
/// becomes of each, the call that wants it finds out.
void build_together(std::span<const WantedKernel> wanted);

/// The kernel of a call: from the table, the cache or, as far as `Options::on_miss` allows it, the
/// compiler. Fills in `info`'s entry, key, cache and compile_ms. Null under OnMiss::fallback where
/// it is missing, or has a compiler to look for first. Safe on any thread.
std::shared_ptr<jit::Kernel> load_kernel(jit::Backend& backend, const KernelRequest& request,
                                         KernelInfo& info);

}  // namespace kiln
