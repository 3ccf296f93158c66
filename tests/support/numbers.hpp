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

#include "fusion/graph/number.hpp"
#include "kiln/dtype.hpp"
#include "tests/support/devices.hpp"

namespace kiln::testing {

/// Element `index` from the first one, in elements.
inline void set_bits(HostArray& array, std::int64_t index, std::uint64_t value) {
  std::byte* const first = array.bytes.data() + array.first;
  if (is_packed(array.dtype)) {
    const std::int64_t half = array.offset + index;
    const int shift = static_cast<int>(half & 1) * 4;
    std::byte& byte = first[half >> 1];
    byte = (byte & static_cast<std::byte>(0xf0 >> shift)) |
           static_cast<std::byte>((value & 15) << shift);
    return;
  }
  const int bytes = bits(array.dtype) / 8;
  std::memcpy(first + index * bytes, &value, static_cast<std::size_t>(bytes));
}

inline std::uint64_t get_bits(const HostArray& array, std::int64_t index) {
  const std::byte* const first = array.bytes.data() + array.first;
  if (is_packed(array.dtype)) {
    const std::int64_t half = array.offset + index;
    return std::to_integer<std::uint64_t>(first[half >> 1] >> (static_cast<int>(half & 1) * 4)) &
           15;
  }
  const int bytes = bits(array.dtype) / 8;
  std::uint64_t value = 0;
  std::memcpy(&value, first + index * bytes, static_cast<std::size_t>(bytes));
  return value;
}

/// Where element number `n` of the array in C order is, from the first one, in elements.
inline std::int64_t place_of(const HostArray& array, std::int64_t n) {
  std::int64_t place = 0;
  for (std::size_t k = array.shape.size(); k-- > 0;) {
    place += n % array.shape[k] * array.strides[k];
    n /= array.shape[k];
  }
  return place;
}

/// Special values first, then random ones: for floats of all magnitudes and around 1, for integers
/// of all widths.
inline std::vector<std::uint64_t> sample(DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> values;
  const int width = bits(dtype);
  const std::uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;
  if (dtype == DType::c64) {
    const std::vector<std::uint64_t> re = sample(DType::f32, count, seed + 1);
    const std::vector<std::uint64_t> im = sample(DType::f32, count, seed + 2);
    const std::size_t special = std::min<std::size_t>(count, 31);
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(re[i] | im[i < special ? i * 7 % special : i] << 32);
    }
    return values;
  }
  if (is_floating(dtype) && width <= 8) {  // all codes, then any
    for (std::uint64_t code = 0; code <= mask; ++code) values.push_back(code);
    while (values.size() < count) values.push_back(random() & mask);
  } else if (is_floating(dtype)) {
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
