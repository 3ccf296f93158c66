// Kernels that are made ahead of their calls, on threads of their own: queued, shared by everybody
// who wants the same one, compiled several to a program, loaded. The public face is
// Function::prepare and prepare_all (prepare.cpp).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "jit/device/backend.hpp"
#include "kernel/kernel_batch.hpp"
#include "kernel/kernel_code.hpp"

namespace kiln {

/// One kernel; without a backend it is only put into the cache.
struct WantedKernel {
  KernelRequest request;
  jit::Backend* backend = nullptr;
};

/// What became of it: entry, key, cache and compile_ms of a KernelInfo, or an error.
struct PreparedKernel {
  KernelInfo info;
  std::optional<std::pair<Code, std::string>> error;
};

class Preparer {
 public:
  using Id = std::pair<const jit::Backend*, cache::Key>;
  using Done = std::function<void(const PreparedKernel&)>;
  struct Task;
  /// One wish for a kernel; `task` is null when it was granted at once.
  struct Wish {
    std::shared_ptr<Task> task;
    std::uint64_t number = 0;
  };

  /// The one of this process; a forked child gets its own.
  static Preparer& instance();

  /// Queues what is not loaded already. `done[i]` is called once for `wanted[i]`, from any thread,
  /// maybe before this returns, and must not throw. The queue takes them together, so that they may
  /// share programs.
  std::vector<Wish> add(std::span<const WantedKernel> wanted, std::span<const Done> done);
  /// Queues a kernel that a call missed and nobody is told about. Throws the error of an earlier
  /// attempt.
  void add_missed(const WantedKernel& wanted);

  /// Somebody waits for it now.
  void hurry(const Wish& wish);
  /// Takes back a wish: true if its `done` will not be called. What nobody wants any more is not
  /// compiled.
  bool drop(const Wish& wish);

 private:
  Preparer();
  std::shared_ptr<Task> enqueue(const WantedKernel& wanted, const cache::Key& key);
  void forget(const std::shared_ptr<Task>& task);
  void start_threads();
  void work();
  std::vector<std::shared_ptr<Task>> take();
  void run(const std::vector<std::shared_ptr<Task>>& tasks, BackgroundCompile& compile);
  void finish(const std::shared_ptr<Task>& task, const PreparedKernel& result);

  const std::size_t limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Task>> queue_;
  std::map<Id, std::shared_ptr<Task>> tasks_;            ///< queued or running
  std::map<Id, std::pair<Code, std::string>> failures_;  ///< of what a call missed
  std::size_t threads_ = 0;
  std::size_t waiting_ = 0;  ///< threads that have nothing to do
  std::uint64_t next_wish_ = 1;
};

}  // namespace kiln
