// When to try again what has failed, and may succeed the next time.
#pragma once

#include <algorithm>
#include <chrono>

namespace kiln::base {

/// Over a second after the failure, or ten times as long as that took if that is more: what goes on
/// failing takes a tenth of the time at most. Over from the start.
class RetryPause {
 public:
  using Clock = std::chrono::steady_clock;

  /// After what began then has failed.
  void start(Clock::time_point began, Clock::time_point now = Clock::now()) {
    end_ = now + std::max<Clock::duration>(std::chrono::seconds(1), 10 * (now - began));
  }
  bool is_over(Clock::time_point now = Clock::now()) const { return now >= end_; }

 private:
  Clock::time_point end_ = Clock::time_point::min();
};

}  // namespace kiln::base
