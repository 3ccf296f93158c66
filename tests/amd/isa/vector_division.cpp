// Division, step by step as the ISA documents have it: v_div_scale, v_div_fmas, v_div_fixup.
#include "tests/amd/isa/lanewise.hpp"

namespace kiln::amd {
namespace {

struct Real32 {
  using Bits = u32;
  using Value = float;
  using Wide = double;
  static constexpr int kScale = 64;
  static constexpr int kLargeDifference = 96;
  static constexpr int kSmallNumerator = 23;
  static constexpr int kUnderflow = -150;
  static constexpr int kTop = 255;
  static constexpr int kBias = 127;
  static constexpr Bits kDefaultNan = 0xffc00000;
  static constexpr Bits kQuiet = 0x00400000;
  static constexpr Bits kSign = 0x80000000;
  static constexpr Bits kInfinity = 0x7f800000;
  static constexpr double kLeastNormal = 0x1p-126;
  static int exponent(Bits bits) { return static_cast<int>(bits >> 23 & 0xff); }
};
__extension__ typedef __float128 Quad;
struct Real64 {
  using Bits = u64;
  using Value = double;
  using Wide = Quad;
  static constexpr int kScale = 128;
  static constexpr int kLargeDifference = 768;
  static constexpr int kSmallNumerator = 53;
  static constexpr int kUnderflow = -1075;
  static constexpr int kTop = 2047;
  static constexpr int kBias = 1023;
  static constexpr Bits kDefaultNan = 0xfff8000000000000;
  static constexpr Bits kQuiet = 0x0008000000000000;
  static constexpr Bits kSign = 0x8000000000000000;
  static constexpr Bits kInfinity = 0x7ff0000000000000;
  static constexpr double kLeastNormal = 0x1p-1022;
  static int exponent(Bits bits) { return static_cast<int>(bits >> 52 & 0x7ff); }
};

// S0 (denominator or numerator), S1 (denominator), S2 (numerator).
template <class R>
constexpr auto scale =
    [](MaskBits& flag, typename R::Bits x, typename R::Bits d, typename R::Bits n) {
      using Wide = typename R::Wide;
      const auto value = std::bit_cast<typename R::Value>(x);
      const auto denominator = std::bit_cast<typename R::Value>(d);
      const auto numerator = std::bit_cast<typename R::Value>(n);
      const auto scaled = [&](int by) {
        return std::bit_cast<typename R::Bits>(std::ldexp(value, by));
      };
      const auto is_small = [](Wide quotient) {
        if (quotient < 0) quotient = -quotient;
        return quotient < static_cast<Wide>(R::kLeastNormal);
      };
      const bool is_denominator = x == d;
      if (numerator == 0 || denominator == 0) return R::kInfinity | R::kQuiet;
      if (R::exponent(n) - R::exponent(d) >= R::kLargeDifference) {
        flag.out = true;
        return is_denominator ? scaled(R::kScale) : x;
      }
      if (R::exponent(d) == 0) return scaled(R::kScale);
      const bool finite = std::isfinite(denominator) && std::isfinite(numerator);
      const bool reciprocal_small =
          std::isfinite(denominator) && is_small(Wide{1} / static_cast<Wide>(denominator));
      const bool quotient_small =
          finite && is_small(static_cast<Wide>(numerator) / static_cast<Wide>(denominator));
      if (quotient_small) flag.out = true;
      if (reciprocal_small) {
        // With a small quotient the documents have it scaled up, which would overflow.
        return !quotient_small || is_denominator ? scaled(-R::kScale) : x;
      }
      if (quotient_small) return x == n ? scaled(R::kScale) : x;
      return R::exponent(n) <= R::kSmallNumerator ? scaled(R::kScale) : x;
    };

// A fused multiply-add, and where v_div_scale has scaled, the scale undone in the same rounding.
template <class R>
int scale_of(typename R::Value c) {
  return R::exponent(as_bits(c)) > R::kBias ? R::kScale : -R::kScale;
}
constexpr auto fma32 = [](MaskBits& flag, float a, float b, float c) {
  const float result = std::fma(a, b, c);
  if (!flag.in || !std::isfinite(result)) return result;
  return static_cast<float>(std::ldexp(fma_odd(a, b, c), scale_of<Real32>(c)));
};
constexpr auto fma64 = [](MaskBits& flag, double a, double b, double c) {
  const double result = std::fma(a, b, c);
  if (!flag.in || !std::isfinite(result)) return result;
  Quad wide = static_cast<Quad>(a) * b + c;
  const double step = scale_of<Real64>(c) > 0 ? 0x1p64 : 0x1p-64;
  for (int i = 0; i < Real64::kScale; i += 64) wide *= static_cast<Quad>(step);
  return static_cast<double>(wide);
};

// S0 the quotient, S1 the denominator, S2 the numerator.
template <class R>
constexpr auto fixup = [](typename R::Bits q, typename R::Bits d, typename R::Bits n) {
  const auto sign = (d ^ n) & R::kSign;
  const auto magnitude_d = d & ~R::kSign;
  const auto magnitude_n = n & ~R::kSign;
  if (magnitude_n > R::kInfinity) return n | R::kQuiet;
  if (magnitude_d > R::kInfinity) return d | R::kQuiet;
  if (magnitude_d == 0 && magnitude_n == 0) return R::kDefaultNan;
  if (magnitude_d == R::kInfinity && magnitude_n == R::kInfinity) return R::kDefaultNan;
  if (magnitude_d == 0 || magnitude_n == R::kInfinity) return sign | R::kInfinity;
  if (magnitude_d == R::kInfinity || magnitude_n == 0) return sign;
  if (R::exponent(n) - R::exponent(d) < R::kUnderflow) return sign;
  // The steps before it have overflowed.
  if (R::exponent(d) == R::kTop || is_nan(q)) return sign | R::kInfinity;
  return (q & ~R::kSign) | sign;
};
constexpr auto fixup16 = [](u16 q, u16 d, u16 n) -> u32 {
  const u32 sign = (d ^ n) & 0x8000;
  const u32 magnitude_d = d & 0x7fff;
  const u32 magnitude_n = n & 0x7fff;
  if (magnitude_n > 0x7c00) return n | 0x200U;
  if (magnitude_d > 0x7c00) return d | 0x200U;
  if ((magnitude_d == 0 && magnitude_n == 0) || (magnitude_d == 0x7c00 && magnitude_n == 0x7c00)) {
    return 0xfe00;
  }
  if (magnitude_d == 0 || magnitude_n == 0x7c00) return sign | 0x7c00;
  if (magnitude_d == 0x7c00 || magnitude_n == 0) return sign;
  return (q & 0x7fffU) | sign;
};

const VectorRow kDivisions[] = {
    {"v_div_scale_f32", lanewise<B32, B32, B32, B32>(scale<Real32>).to_mask()},
    {"v_div_scale_f64", lanewise<B64, B64, B64, B64>(scale<Real64>).to_mask().of_doubles()},
    {"v_div_fmas_f32", lanewise<F32, F32, F32, F32>(fma32).masked(MaskSource::vcc)},
    {"v_div_fmas_f64", lanewise<F64, F64, F64, F64>(fma64).masked(MaskSource::vcc)},
    {"v_div_fixup_f16", lanewise<B16, B16, B16, B16>(fixup16).keeping_high()},
    {"v_div_fixup_f32", lanewise<B32, B32, B32, B32>(fixup<Real32>)},
    {"v_div_fixup_f64", lanewise<B64, B64, B64, B64>(fixup<Real64>).of_doubles()},
};

}  // namespace

std::span<const VectorRow> division_rows() { return kDivisions; }

}  // namespace kiln::amd
