// Numbers for the tests: samples of every dtype that hold its special values, and distances in
// units in the last place.
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

/// The distance of adjacent numbers of `dtype` around `exact`.
inline double ulp_at(double exact, DType dtype) {
  const int mantissa = dtype == DType::f16    ? 10
                       : dtype == DType::bf16 ? 7
                       : dtype == DType::f32  ? 23
                                              : 52;
  const int smallest = dtype == DType::f16 ? -14 : dtype == DType::f64 ? -1022 : -126;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent - 1, smallest) - mantissa);
}

/// The error of a result in units in the last place of its dtype; 0 for equal infinities and two
/// NaN, infinity where only one of the two is NaN.
inline double ulp_error(double exact, double got, DType dtype) {
  if (std::isnan(exact) || std::isnan(got)) {
    return std::isnan(exact) && std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  }
  if (exact == got) return 0;
  const double largest = fusion::decode(fusion::encode(INFINITY, dtype) - 1, dtype);
  const double step = ulp_at(largest, dtype);
  // Beyond the largest finite number the next one would be one step further.
  if (std::isinf(got) && !std::isinf(exact)) got = std::copysign(largest + step, got);
  if (std::isinf(exact) && !std::isinf(got)) exact = std::copysign(largest + step, exact);
  if (std::fabs(exact) > largest + step) exact = std::copysign(largest + step, exact);
  return std::fabs(got - exact) / ulp_at(exact, dtype);
}

}  // namespace kiln::testing
