// Threads that work off two queues: jobs that somebody waits for, then background ones, first come
// first served in each. What a job does is not known here.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/io.hpp"

namespace kiln::jit {

/// Only the pool touches what is not const.
class Job {
 public:
  /// `run` gets a descriptor that becomes readable when the job is cancelled, and must not throw.
  /// `drop` is called instead of it when the job is cancelled before it runs or the pool ends.
  Job(std::function<void(int cancel)> run, std::function<void()> drop, bool background)
      : run_(std::move(run)), drop_(std::move(drop)), background_(background) {}

 private:
  friend class Pool;
  enum class State { fresh, queued, running, finished };
  const std::function<void(int)> run_;
  const std::function<void()> drop_;
  bool background_;
  State state_ = State::fresh;
  int cancel_ = -1;
};

class Pool {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// At most `threads` jobs run at a time; threads are started when they are needed and stay until
  /// the pool ends. An unoccupied thread calls `housekeep`, at once and again at the time that it
  /// gives.
  Pool(int threads, std::function<std::optional<TimePoint>()> housekeep);
  /// Drops what is queued, cancels what runs and waits for it.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void add(const std::shared_ptr<Job>& job);
  /// Somebody waits for it now.
  void raise_priority(const std::shared_ptr<Job>& job);
  void cancel(const std::shared_ptr<Job>& job);

 private:
  void work();
  std::shared_ptr<Job> take();
  static bool signal(const Job& job);

  const std::size_t limit_;
  const std::function<std::optional<TimePoint>()> housekeep_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> interactive_;
  std::deque<std::shared_ptr<Job>> background_;
  std::vector<std::shared_ptr<Job>> running_;
  std::vector<std::thread> threads_;
  std::size_t unoccupied_ = 0;
  bool ending_ = false;
};

}  // namespace kiln::jit
