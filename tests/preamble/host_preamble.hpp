// The device code, compiled by this test's own compiler as the CPU device would compile it, and
// what the tests of it share: its types beside kiln's dtypes, and values worth trying.
#pragma once

#include "preamble/arithmetic.h"
#include "preamble/complex.h"
#include "preamble/convert.h"
#include "preamble/exp.h"
#include "preamble/hyperbolics.h"
#include "preamble/integer.h"
#include "preamble/integer_bits.h"
#include "preamble/integer_division.h"
#include "preamble/log.h"
#include "preamble/logaddexp.h"
#include "preamble/ndtr.h"
#include "preamble/order.h"
#include "preamble/power.h"
#include "preamble/roots.h"
#include "preamble/signs.h"
#include "preamble/special.h"
#include "preamble/trigonometry.h"
//
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fusion/reference/value.hpp"
#include "kiln/dtype.hpp"
#include "preamble/random_normal.h"

namespace kiln::test {

template <class T>
struct DeviceType;
#define KILN_DEVICE_TYPE(type, name)             \
  template <>                                    \
  struct DeviceType<type> {                      \
    static constexpr DType kDType = DType::name; \
  }
KILN_DEVICE_TYPE(b8, boolean);
KILN_DEVICE_TYPE(u8, u8);
KILN_DEVICE_TYPE(u16, u16);
KILN_DEVICE_TYPE(u32, u32);
KILN_DEVICE_TYPE(u64, u64);
KILN_DEVICE_TYPE(i8, i8);
KILN_DEVICE_TYPE(i16, i16);
KILN_DEVICE_TYPE(i32, i32);
KILN_DEVICE_TYPE(i64, i64);
KILN_DEVICE_TYPE(f16, f16);
KILN_DEVICE_TYPE(bf16, bf16);
KILN_DEVICE_TYPE(f32, f32);
KILN_DEVICE_TYPE(f64, f64);
KILN_DEVICE_TYPE(f8e4m3, f8e4m3);
KILN_DEVICE_TYPE(f8e5m2, f8e5m2);
KILN_DEVICE_TYPE(f8e4m3fnuz, f8e4m3fnuz);
KILN_DEVICE_TYPE(f8e5m2fnuz, f8e5m2fnuz);
KILN_DEVICE_TYPE(u4, u4);
KILN_DEVICE_TYPE(i4, i4);
KILN_DEVICE_TYPE(f4e2m1, f4e2m1);
#undef KILN_DEVICE_TYPE

template <class T>
inline constexpr DType kDTypeOf = DeviceType<T>::kDType;

template <class T>
T from_pattern(std::uint64_t pattern) {
  if constexpr (sizeof(T) == 1) return bit_cast<T>(static_cast<u8>(pattern));
  if constexpr (sizeof(T) == 2) return bit_cast<T>(static_cast<u16>(pattern));
  if constexpr (sizeof(T) == 4) return bit_cast<T>(static_cast<u32>(pattern));
  if constexpr (sizeof(T) == 8) return bit_cast<T>(static_cast<u64>(pattern));
}
template <class T>
std::uint64_t to_pattern(T value) {
  if constexpr (sizeof(T) == 1) return bit_cast<u8>(value);
  if constexpr (sizeof(T) == 2) return bit_cast<u16>(value);
  if constexpr (sizeof(T) == 4) return bit_cast<u32>(value);
  if constexpr (sizeof(T) == 8) return bit_cast<u64>(value);
}

/// Patterns of `width` bits worth trying: every one up to 8 bits; above, the boundaries of fields
/// and ranges with their neighbours, and `random` random ones.
inline std::vector<std::uint64_t> patterns(int width, int random = 2000) {
  std::vector<std::uint64_t> all;
  const std::uint64_t mask = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
  if (width <= 8) {
    for (std::uint64_t p = 0; p <= mask; ++p) all.push_back(p);
    return all;
  }
  for (int bit = 0; bit < width; ++bit) {
    for (int below = 0; below <= bit; ++below) {
      const std::uint64_t run = (std::uint64_t{2} << bit) - (std::uint64_t{1} << below);
      for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
        all.push_back((run + offset) & mask);
      }
    }
  }
  std::uint64_t state = 0x853c49e6748fea9bU;
  for (int i = 0; i < random; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    all.push_back((state ^ state >> 29) & mask);
  }
  return all;
}

/// Numbers at which casts between the types change their mind: powers of two and the ends of every
/// integer type, with their nearest neighbours and halves beside them.
inline std::vector<double> boundary_numbers() {
  std::vector<double> numbers = {0.0,   0.25,  0.5,   1.5,      2.5,   448, 464, 480,
                                 57344, 61440, 65504, 65519.99, 65520, 240, 248};
  for (int e = -150; e <= 130; ++e) {
    const double power = std::ldexp(1.0, e);
    for (const double x : {power, power - 1, power + 1, power - 0.5, power * 1.5}) {
      numbers.push_back(x);
      numbers.push_back(std::nextafter(x, HUGE_VAL));
      numbers.push_back(std::nextafter(x, -HUGE_VAL));
    }
  }
  const std::size_t count = numbers.size();
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(-numbers[i]);
  for (const double x : {HUGE_VAL, -HUGE_VAL, std::nan(""), 1e300, -1e300, 5e-324})
    numbers.push_back(x);
  return numbers;
}

/// Typed tests are named by the dtype.
struct TypeName {
  template <class T>
  static std::string GetName(int) {
    return std::string(name(kDTypeOf<T>));
  }
};

}  // namespace kiln::test
