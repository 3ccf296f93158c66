// What the environment says of how tests run: how many cases, and which.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

namespace kiln::testing {

/// A number from the environment, such as how many cases are drawn.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Of what a test draws: another one each time, unless KILN_TEST_SEED repeats that of a failure.
inline std::uint64_t random_seed() { return setting("KILN_TEST_SEED", std::random_device{}()); }

}  // namespace kiln::testing
