// See pool.hpp.
#include "jit/service/pool.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "kiln/error.hpp"

namespace kiln::jit {

Pool::Pool(int threads, std::function<std::optional<TimePoint>()> housekeep)
    : limit_(static_cast<std::size_t>(std::max(threads, 1))), housekeep_(std::move(housekeep)) {}

Pool::~Pool() {
  std::vector<std::shared_ptr<Job>> dropped;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (auto* queue : {&interactive_, &background_}) {
      dropped.insert(dropped.end(), queue->begin(), queue->end());
      queue->clear();
    }
    for (const auto& job : running_) signal(*job);
  }
  wake_.notify_all();
  for (const auto& job : dropped) job->drop_();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::add(const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(mutex_);
  if (interactive_.size() + background_.size() >= unoccupied_ && threads_.size() < limit_) {
    try {
      threads_.emplace_back(&Pool::work, this);
    } catch (const std::system_error& error) {
      // With one thread at least, the job is only later.
      if (threads_.empty()) {
        throw Error(Code::io, fmt::format("compile: cannot start a thread: {}", error.what()));
      }
    }
  }
  job->state_ = Job::State::queued;
  (job->background_ ? background_ : interactive_).push_back(job);
  wake_.notify_one();
}

void Pool::raise_priority(const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(mutex_);
  if (!job->background_) return;
  job->background_ = false;
  if (job->state_ != Job::State::queued) return;
  background_.erase(std::find(background_.begin(), background_.end(), job));
  interactive_.push_back(job);
}

void Pool::cancel(const std::shared_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    if (job->state_ == Job::State::running) signal(*job);
    if (job->state_ != Job::State::queued) return;
    auto& queue = job->background_ ? background_ : interactive_;
    queue.erase(std::find(queue.begin(), queue.end(), job));
    job->state_ = Job::State::finished;
  }
  job->drop_();
}

bool Pool::signal(const Job& job) {
  const std::uint64_t one = 1;
  return write(job.cancel_, &one, sizeof(one)) == sizeof(one);
}

std::shared_ptr<Job> Pool::take() {
  auto& queue = interactive_.empty() ? background_ : interactive_;
  if (queue.empty()) return nullptr;
  std::shared_ptr<Job> job = std::move(queue.front());
  queue.pop_front();
  return job;
}

void Pool::work() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const std::shared_ptr<Job> job = take();
    if (!job) {
      lock.unlock();
      const std::optional<TimePoint> next = housekeep_();
      lock.lock();
      if (ending_ || !interactive_.empty() || !background_.empty()) continue;
      ++unoccupied_;
      if (next) {
        wake_.wait_until(lock, *next);
      } else {
        wake_.wait(lock);
      }
      --unoccupied_;
      continue;
    }
    // One per job: a cancellation that comes late must not hit the next.
    const base::UniqueFd cancel = base::own_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    job->cancel_ = cancel.get();
    job->state_ = Job::State::running;
    running_.push_back(job);
    lock.unlock();
    job->run_(cancel.get());
    lock.lock();
    job->state_ = Job::State::finished;
    running_.erase(std::find(running_.begin(), running_.end(), job));
  }
}

}  // namespace kiln::jit
