// What the tests of the numeric contract share: numbers that every dtype has of its own, and the
// fixture that runs a call on a device in every mode.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>

#include "fusion/graph/number.hpp"
#include "kiln/error.hpp"
#include "kiln/option_names.hpp"
#include "tests/support/devices.hpp"

namespace kiln::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A number, or one that every dtype has of its own.
struct Number {
  enum Kind { plain, largest, lowest, least, width } kind = plain;
  double value = 0;
  Number(double number) : value(number) {}  // NOLINT: implicit on purpose
  Number(Kind which) : kind(which) {}       // NOLINT: implicit on purpose
};
inline constexpr auto kLargest = Number::largest;  ///< the largest finite number
inline constexpr auto kLowest = Number::lowest;    ///< the smallest one: -kLargest of floats
inline constexpr auto kLeast = Number::least;      ///< the smallest above 0
inline constexpr auto kWidth = Number::width;      ///< the number of bits

inline std::uint64_t mask_of(DType dtype) {
  return bits(dtype) == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits(dtype)) - 1;
}

inline std::uint64_t number_bits(const Number& number, DType dtype) {
  if (number.kind == Number::width) return number_bits(double(bits(dtype)), dtype);
  if (is_floating(dtype)) {
    const std::uint64_t largest = fusion::encode(kInf, dtype) - 1;
    switch (number.kind) {
      case Number::largest: return largest;
      case Number::lowest: return largest | fusion::encode(-0.0, dtype);
      case Number::least: return 1;
      default: return fusion::encode(number.value, dtype);
    }
  }
  const std::uint64_t mask = mask_of(dtype);
  const bool is_signed = kind(dtype) == Kind::signed_integer;
  switch (number.kind) {
    case Number::largest: return is_signed ? mask >> 1 : mask;
    case Number::lowest: return is_signed ? (mask >> 1) + 1 : 0;
    case Number::least: return 1;
    default: return static_cast<std::uint64_t>(static_cast<std::int64_t>(number.value)) & mask;
  }
}

class Contract : public ::testing::TestWithParam<std::tuple<DeviceType, DType>> {
 protected:
  void SetUp() override {
    const DeviceType type = std::get<0>(GetParam());
    if (!testing::has_device(type)) GTEST_SKIP() << jit::why_absent(type);
  }
  Device device() const { return {std::get<0>(GetParam()), 0}; }
  DType dtype() const { return std::get<1>(GetParam()); }

  template <class Body>
  void for_each_mode(const Body& body) const {
    for (const Rounding rounding : {Rounding::once, Rounding::each}) {
      for (const Accuracy accuracy : {Accuracy::storage, Accuracy::fast, Accuracy::strict})
        body(Options{rounding, accuracy, OnMiss::compile});
    }
  }
  // Each mode once, for what knows neither.
  template <class Body>
  static void for_two_modes(const Body& body) {
    body(Options{Rounding::once, Accuracy::storage, OnMiss::compile});
    body(Options{Rounding::each, Accuracy::strict, OnMiss::compile});
  }
};

inline std::string mode_of(const Options& options) {
  return fmt::format("rounded {}, {}", name(options.rounding), name(options.accuracy));
}

inline const auto kCpu = ::testing::Values(DeviceType::cpu);
inline const auto kGpu = ::testing::Values(DeviceType::hip, DeviceType::cuda);

}  // namespace kiln::testing
