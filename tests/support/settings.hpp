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

/// Which of a test's cases run that are many and much alike: on the CPU every KILN_TEST_SHARE-th,
/// which
/// `./check --long` sets to 1; on a GPU all of them, unless the variable is set.
class Share {
 public:
  explicit Share(DeviceType device, std::uint64_t cpu = 4, std::uint64_t first = 0)
      : share_(std::max<std::uint64_t>(
            1, setting("KILN_TEST_SHARE", device == DeviceType::cpu ? cpu : 1))),
        number_(first) {}

  /// Whether the next case runs.
  bool next() { return number_++ % share_ == 0; }

 private:
  std::uint64_t share_;
  std::uint64_t number_;
};

}  // namespace kiln::testing
