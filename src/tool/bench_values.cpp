#include "tool/bench_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "fusion/reference/value.hpp"

namespace kiln::tool {
namespace {

constexpr std::size_t kPeriod = 65521;
constexpr std::uint64_t kCounts = 100;

// Of what is drawn at once, in bytes.
std::size_t width_of(DType dtype) {
  return is_packed(dtype) ? 1 : static_cast<std::size_t>(bits(dtype) / 8);
}

std::uint64_t rounded_to(DType dtype, double value) {
  using namespace fusion::reference;
  return encode(convert(from_real(DType::f64, value), dtype, true));
}

}  // namespace

std::vector<std::byte> random_values(DType dtype, std::size_t bytes, RandomFloats floats,
                                     std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> unit(0, 1);
  const auto real = [&](DType of) {
    return rounded_to(
        of, floats == RandomFloats::positive ? 0.25 + std::fabs(unit(random)) : 2 * unit(random));
  };
  const auto number = [&]() -> std::uint64_t {
    if (dtype == DType::boolean) return random() & 1;
    if (kind(dtype) == Kind::complex) {
      const std::uint64_t low = real(DType::f32);
      return low | real(DType::f32) << 32;
    }
    // Any byte is an integer or two packed numbers, but some are NaN in the formats of 8 bits.
    if (!is_floating(dtype) && bits(dtype) >= 32) return random() % kCounts;
    if (!is_floating(dtype) || is_packed(dtype)) return random();
    return real(dtype);
  };
  const std::size_t width = width_of(dtype);
  const std::size_t count = bytes / width;
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < std::min(count, kPeriod); ++i) {
    const std::uint64_t one = number();
    std::memcpy(values.data() + i * width, &one, width);
  }
  for (std::size_t i = kPeriod; i < count; i += kPeriod) {
    std::memcpy(values.data() + i * width, values.data(), std::min(kPeriod, count - i) * width);
  }
  return values;
}

std::size_t period_bytes(DType dtype) { return kPeriod * width_of(dtype); }

}  // namespace kiln::tool
