// See work_queue.hpp.
#include "tests/amd/hip/work_queue.hpp"

#include <utility>

namespace kiln::amd {
namespace {

// Queues of real devices are finite too.
constexpr std::size_t kMostThatWait = 4096;

}  // namespace

Submitted WorkQueue::submit(int device, std::span<const Submitted> after,
                            std::function<void()> run) {
  while (total_ >= kMostThatWait) run_one();
  auto operation = std::make_shared<Operation>();
  operation->run = std::move(run);
  operation->device = device;
  for (const Submitted& before : after) {
    if (before == nullptr || before->done) continue;
    before->followers.push_back(operation);
    ++operation->missing;
  }
  if (operation->missing == 0) ready_.push_back(operation);
  const auto index = static_cast<std::size_t>(device);
  if (waiting_.size() <= index) waiting_.resize(index + 1);
  ++waiting_[index];
  ++total_;
  return operation;
}

void WorkQueue::finish(const Submitted& last) {
  while (last != nullptr && !last->done) run_one();
}

void WorkQueue::finish_device(int device) {
  const auto index = static_cast<std::size_t>(device);
  while (index < waiting_.size() && waiting_[index] > 0) run_one();
}

void WorkQueue::run_one() {
  std::swap(ready_[random_() % ready_.size()], ready_.back());
  const Submitted operation = std::move(ready_.back());
  ready_.pop_back();
  std::exchange(operation->run, nullptr)();
  operation->done = true;
  --waiting_[static_cast<std::size_t>(operation->device)];
  --total_;
  for (Submitted& follower : operation->followers) {
    if (--follower->missing == 0) ready_.push_back(std::move(follower));
  }
  operation->followers.clear();
}

}  // namespace kiln::amd
