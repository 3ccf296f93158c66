// Numbers for the tests: samples of every dtype that hold its special values.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "fusion/number.hpp"
#include "kiln/dtype.hpp"
#include "tests/support/devices.hpp"

namespace kiln::testing {

inline void set_bits(HostArray& array, std::int64_t index, std::uint64_t value) {
  const auto bytes = static_cast<std::size_t>(bits(array.dtype) / 8);
  std::memcpy(array.bytes.data() + array.first + static_cast<std::size_t>(index) * bytes, &value,
              bytes);
}

inline std::uint64_t get_bits(const HostArray& array, std::int64_t index) {
  const auto bytes = static_cast<std::size_t>(bits(array.dtype) / 8);
  std::uint64_t value = 0;
  std::memcpy(&value, array.bytes.data() + array.first + static_cast<std::size_t>(index) * bytes,
              bytes);
  return value;
}

/// Special values first, then random ones: for floats of all magnitudes and around 1, for integers
/// of all widths.
inline std::vector<std::uint64_t> sample(DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> values;
  const int width = bits(dtype);
  const std::uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
  if (is_floating(dtype)) {
    for (const double value : {0.0,
                               -0.0,
                               1.0,
                               -1.0,
                               0.5,
                               -0.5,
                               1.5,
                               2.0,
                               2.5,
                               -2.5,
                               3.0,
                               0.1,
                               -0.1,
                               10.0,
                               -10.0,
                               88.0,
                               -88.0,
                               100.0,
                               1e-3,
                               -1e-3,
                               1e-8,
                               1e-40,
                               -1e-40,
                               65504.0,
                               1e30,
                               -1e30,
                               double(INFINITY),
                               -double(INFINITY),
                               std::nan("")}) {
      values.push_back(fusion::encode(value, dtype));
    }
    values.push_back(1);                                    // the smallest subnormal
    values.push_back(fusion::encode(INFINITY, dtype) - 1);  // the largest finite number
    std::normal_distribution<double> normal(0, 3);
    while (values.size() < count) {
      values.push_back(random() % 3 != 0 ? fusion::encode(normal(random), dtype) : random() & mask);
    }
  } else if (dtype == DType::boolean) {
    while (values.size() < count) values.push_back(random() & 1);
  } else {
    for (const std::uint64_t value :
         {0ull, 1ull, 2ull, 3ull, 5ull, 7ull, 10ull, ~0ull, ~1ull, ~2ull, ~6ull}) {
      values.push_back(value & mask);
    }
    values.push_back(mask >> 1);        // the largest signed
    values.push_back((mask >> 1) + 1);  // the smallest signed
    while (values.size() < count) values.push_back((random() >> random() % 64) & mask);
  }
  values.resize(count);
  return values;
}

}  // namespace kiln::testing
