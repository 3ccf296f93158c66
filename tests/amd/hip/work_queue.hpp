// Work that has been submitted to emulated GPUs and has not run: it runs when somebody waits for
// it, in an order that is drawn at random from those that its dependencies allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace kiln::amd {

struct Operation;
using Submitted = std::shared_ptr<Operation>;

/// One copy, fill, launch or mark of an event.
struct Operation {
  std::function<void()> run;  ///< empty once it has run
  int device = 0;
  bool done = false;
  std::size_t missing = 0;           ///< operations that it comes after and that have not run
  std::vector<Submitted> followers;  ///< that come after it
};

class WorkQueue {
 public:
  explicit WorkQueue(std::uint64_t seed) : random_(seed) {}

  /// `after` may hold null, operations that have run, and one twice. `run` throws nothing. Runs
  /// others first if too many wait.
  Submitted submit(int device, std::span<const Submitted> after, std::function<void()> run);
  /// Runs what has to run before `last` is done, and others that could as well.
  void finish(const Submitted& last);
  /// Everything that was submitted to that device.
  void finish_device(int device);

  std::uint64_t draw() { return random_(); }

 private:
  void run_one();

  std::mt19937_64 random_;
  std::vector<Submitted> ready_;      // they wait for nothing
  std::vector<std::size_t> waiting_;  // how many there are of each device, ready or not
  std::size_t total_ = 0;
};

}  // namespace kiln::amd
