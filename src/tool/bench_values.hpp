// What benchmarks compute with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kiln/dtype.hpp"

namespace kiln::tool {

enum class RandomFloats : std::uint8_t {
  around_zero,  ///< of both signs, most of them below 4
  positive,     ///< from 0.25 on, as scales and variances need
};

/// `bytes` bytes of random numbers of `dtype`: floats and both parts of c64 as `floats` says, any
/// bits of integers of 16 bits and less and of packed numbers, and from 0 to 99 of wider integers,
/// which are counts and labels. They repeat after period_bytes(): making a gigabyte of them would
/// take longer than what is measured.
std::vector<std::byte> random_values(DType dtype, std::size_t bytes, RandomFloats floats,
                                     std::uint64_t seed);

/// The bytes after which the numbers repeat: a prime number of elements, so that rows differ.
std::size_t period_bytes(DType dtype);

}  // namespace kiln::tool
