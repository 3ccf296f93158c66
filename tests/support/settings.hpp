// What the environment says of how tests run: how many cases, and which.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "kiln/view.hpp"

namespace kiln::testing {

/// A number from the environment, such as how many cases are drawn.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Of what a test draws: another one each time, unless KILN_TEST_SEED repeats that of a failure.
inline std::uint64_t random_seed() { return setting("KILN_TEST_SEED", std::random_device{}()); }

/// Which of a test's cases run that are many and much alike: on the CPU every `cpu`-th, on a GPU
/// all, and on both every KILN_TEST_SHARE-th where that is set, as `./check --long` sets it to 1.
/// The first of them is one of the first `cpu` cases, by `first`: a test with at least so many runs
/// at least one.
class Share {
 public:
  explicit Share(DeviceType device, std::uint64_t cpu = 4, std::uint64_t first = 0)
      : share_(std::max<std::uint64_t>(
            1, setting("KILN_TEST_SHARE", device == DeviceType::cpu ? cpu : 1))),
        left_(first % std::min(cpu, share_)) {}

  /// Whether the next case runs.
  bool next() {
    if (left_-- != 0) return false;
    left_ = share_ - 1;
    return true;
  }

 private:
  std::uint64_t share_;
  std::uint64_t left_;  ///< cases before the next one that runs
};

/// How many cases a test draws: KILN_TEST_DRAWS, or else `all`, of which on the CPU a `cpu`-th runs
/// where KILN_TEST_SHARE does not ask for all.
inline std::uint64_t draws_of(DeviceType device, std::uint64_t all, std::uint64_t cpu) {
  const bool shared = device == DeviceType::cpu && setting("KILN_TEST_SHARE", cpu) != 1;
  return setting("KILN_TEST_DRAWS", shared ? std::max<std::uint64_t>(1, all / cpu) : all);
}

}  // namespace kiln::testing
