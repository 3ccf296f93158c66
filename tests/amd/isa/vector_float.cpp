// Arithmetic of floats of 16, 32 and 64 bits, one by one and packed. Uncontracted: where an
// instruction is an operation of IEEE 754, the host's does it.
#include "tests/amd/isa/lanewise.hpp"

namespace kiln::amd {
namespace {

// The NaN that minimum and maximum give, as IEEE_MODE has it: a signalling one of the sources, made
// quiet; a quiet one gives way to the other source.
template <class T>
bool signals(T value) {
  return value != value && as_bits(value) != as_bits(quieted(value));
}
template <class T>
T number_or_nan(T a, T b) {
  if (signals(a)) return quieted(a);
  if (signals(b)) return quieted(b);
  return a != a ? b : a;
}

template <class T>
T minimum_number(T a, T b) {
  if (a != a || b != b) return number_or_nan(a, b);
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T maximum_number(T a, T b) {
  if (a != a || b != b) return number_or_nan(a, b);
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
// IEEE 754-2019 minimum and maximum: NaN if either is one.
template <class T>
T minimum_or_nan(T a, T b) {
  return a != a ? quieted(a) : b != b ? quieted(b) : minimum_number(a, b);
}
template <class T>
T maximum_or_nan(T a, T b) {
  return a != a ? quieted(a) : b != b ? quieted(b) : maximum_number(a, b);
}

template <class T>
T fraction(T x, T below_one) {
  const T rest = x - std::floor(x);
  return rest > below_one ? below_one : rest;
}

float flushed(float value) {
  return std::fabs(value) < 0x1p-126F ? std::copysign(0.0F, value) : value;
}

constexpr double kTwoPi = 6.283185307179586476925286766559;

// Beyond that many turns the instructions give up.
bool turns_too_often(float x) { return std::fabs(x) > 256; }
double sine(float x) {
  if (turns_too_often(x)) return std::isinf(x) ? std::nan("") : 0;
  return std::sin(kTwoPi * static_cast<double>(x));
}
double cosine(float x) {
  if (turns_too_often(x)) return std::isinf(x) ? std::nan("") : 1;
  return std::cos(kTwoPi * static_cast<double>(x));
}

// 2 / pi, the bits after the point.
constexpr u64 kTwoOverPi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0};

double pi_digits(double x, u32 segment) {
  const int exponent = static_cast<int>(as_bits(x) >> 52 & 0x7ff);
  int shift = static_cast<int>(segment & 31) * 53;
  if (exponent > 1077) shift += exponent - 1077;
  // 53 bits from `shift` on, of the 1201 that the instruction has.
  u64 digits = 0;
  for (int bit = 0; bit < 53; ++bit) {
    const int at = shift + bit;
    const bool one = at < 1201 && (kTwoOverPi[at / 64] >> (63 - at % 64) & 1) != 0;
    digits = digits << 1 | u64{one};
  }
  int scale = -53 - shift;
  if (exponent >= 1968) scale += 128;
  return std::ldexp(static_cast<double>(digits), scale);
}

constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto sub = [](auto a, auto b) { return a - b; };
constexpr auto subrev = [](auto a, auto b) { return b - a; };
constexpr auto mul = [](auto a, auto b) { return a * b; };
constexpr auto fma = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
constexpr auto fma16 = [](float a, float b, float c) { return fma_odd(a, b, c); };
// Unfused, and it flushes whatever the mode says.
constexpr auto mad = [](float a, float b, float c) {
  return flushed(flushed(flushed(a) * flushed(b)) + flushed(c));
};
constexpr auto mul_zero = [](float a, float b) { return a == 0 || b == 0 ? 0.0F : a * b; };
constexpr auto least = [](auto a, auto b) { return minimum_number(a, b); };
constexpr auto most = [](auto a, auto b) { return maximum_number(a, b); };
constexpr auto least_nan = [](auto a, auto b) { return minimum_or_nan(a, b); };
constexpr auto most_nan = [](auto a, auto b) { return maximum_or_nan(a, b); };
constexpr auto least3 = [](float a, float b, float c) { return least(least(a, b), c); };
constexpr auto most3 = [](float a, float b, float c) { return most(most(a, b), c); };
constexpr auto least3_nan = [](float a, float b, float c) { return least_nan(least_nan(a, b), c); };
constexpr auto most3_nan = [](float a, float b, float c) { return most_nan(most_nan(a, b), c); };
constexpr auto minmax = [](float a, float b, float c) { return most(least(a, b), c); };
constexpr auto maxmin = [](float a, float b, float c) { return least(most(a, b), c); };
constexpr auto middle = [](float a, float b, float c) {
  if (a != a || b != b || c != c) return least3(a, b, c);
  const float greatest = most3(a, b, c);
  if (greatest == a) return most(b, c);
  if (greatest == b) return most(a, c);
  return most(a, b);
};
constexpr auto ceil = [](auto a) { return std::ceil(a); };
constexpr auto floor = [](auto a) { return std::floor(a); };
constexpr auto trunc = [](auto a) { return std::trunc(a); };
constexpr auto rndne = [](auto a) { return std::nearbyint(a); };
constexpr auto fract16 = [](float a) { return fraction(a, half_to_float(0x3bff)); };
constexpr auto fract32 = [](float a) { return fraction(a, as_float(0x3f7fffff)); };
constexpr auto fract64 = [](double a) { return fraction(a, as_double(0x3fefffffffffffff)); };
constexpr auto ldexp = [](auto a, i32 e) { return std::ldexp(a, e); };
constexpr auto ldexp16 = [](float a, i16 e) { return std::ldexp(static_cast<double>(a), e); };
constexpr auto mantissa = [](auto a) {
  int exponent = 0;
  return a == 0 || !std::isfinite(a) ? a : std::frexp(a, &exponent);
};
constexpr auto exponent = [](auto a) {
  int exponent = 0;
  if (a != 0 && std::isfinite(a)) std::frexp(a, &exponent);
  return exponent;
};

// Exact: rounded once, or not to the nearest (LaneLoop::worst).
constexpr auto exp = [](float a) {
  const double power = std::exp2(static_cast<double>(flushed(a)));
  return static_cast<float>(power) < 0x1p-126F ? 0 : power;
};
constexpr auto log = [](float a) { return std::log2(static_cast<double>(flushed(a))); };
constexpr auto exp16 = [](float a) { return std::exp2(static_cast<double>(a)); };
constexpr auto log16 = [](float a) { return std::log2(static_cast<double>(a)); };
constexpr auto rcp = [](auto a) { return 1 / static_cast<double>(a); };
constexpr auto rsq = [](auto a) { return 1 / std::sqrt(static_cast<double>(a)); };
constexpr auto root = [](auto a) { return std::sqrt(static_cast<double>(a)); };
constexpr auto sin = [](float a) { return sine(a); };
constexpr auto cos = [](float a) { return cosine(a); };

template <class F>
constexpr VectorEntry f32_1(F function) {
  return lanewise<F32, F32>(function);
}
template <class F>
constexpr VectorEntry f32_2(F function) {
  return lanewise<F32, F32, F32>(function);
}
template <class F>
constexpr VectorEntry f32_3(F function) {
  return lanewise<F32, F32, F32, F32>(function);
}
template <class F>
constexpr VectorEntry f16_1(F function) {
  return lanewise<F16, F16>(function);
}
template <class F>
constexpr VectorEntry f16_2(F function) {
  return lanewise<F16, F16, F16>(function);
}
template <class F>
constexpr VectorEntry f16_3(F function) {
  return lanewise<F16, F16, F16, F16>(function).keeping_high();
}
template <class F>
constexpr VectorEntry f64_1(F function) {
  return lanewise<F64, F64>(function);
}
template <class F>
constexpr VectorEntry f64_2(F function) {
  return lanewise<F64, F64, F64>(function);
}

constexpr VectorEntry kFma16 = lanewise<F16Exact, F16, F16, F16>(fma16);

VectorEntry mixed(Mix mix) {
  VectorEntry entry = f32_3(fma).with(mix);
  entry.execute = &run_mixed;
  return entry;
}

const VectorRow kFloats[] = {
    {"v_add_f32", f32_2(add)},
    {"v_sub_f32", f32_2(sub)},
    {"v_subrev_f32", f32_2(subrev)},
    {"v_mul_f32", f32_2(mul)},
    {"v_mul_legacy_f32 v_mul_dx9_zero_f32", f32_2(mul_zero)},
    {"v_fma_f32 v_fmaak_f32 v_fmamk_f32", f32_3(fma)},
    {"v_fmac_f32", f32_3(fma).accumulating()},
    {"v_mad_f32 v_madak_f32 v_madmk_f32", f32_3(mad)},
    {"v_mac_f32", f32_3(mad).accumulating()},
    {"v_max_f32 v_max_num_f32", f32_2(most)},
    {"v_min_f32 v_min_num_f32", f32_2(least)},
    {"v_maximum_f32", f32_2(most_nan)},
    {"v_minimum_f32", f32_2(least_nan)},
    {"v_max3_f32 v_max3_num_f32", f32_3(most3)},
    {"v_min3_f32 v_min3_num_f32", f32_3(least3)},
    {"v_maximum3_f32", f32_3(most3_nan)},
    {"v_minimum3_f32", f32_3(least3_nan)},
    {"v_minmax_f32 v_minmax_num_f32", f32_3(minmax)},
    {"v_maxmin_f32 v_maxmin_num_f32", f32_3(maxmin)},
    {"v_med3_f32 v_med3_num_f32", f32_3(middle)},
    {"v_ceil_f32", f32_1(ceil)},
    {"v_floor_f32", f32_1(floor)},
    {"v_trunc_f32", f32_1(trunc)},
    {"v_rndne_f32", f32_1(rndne)},
    {"v_fract_f32", f32_1(fract32)},
    {"v_ldexp_f32", lanewise<F32, F32, I32>(ldexp)},
    {"v_frexp_mant_f32", f32_1(mantissa)},
    {"v_frexp_exp_i32_f32", lanewise<I32, F32>(exponent)},
    {"v_exp_f32", transcendental<F32, F32>(exp)},
    {"v_log_f32", transcendental<F32, F32>(log)},
    {"v_rcp_f32 v_rcp_iflag_f32", transcendental<F32, F32>(rcp)},
    {"v_rsq_f32", transcendental<F32, F32>(rsq)},
    {"v_sqrt_f32", transcendental<F32, F32>(root)},
    {"v_sin_f32", transcendental<F32, F32>(sin)},
    {"v_cos_f32", transcendental<F32, F32>(cos)},
    {"v_pk_add_f32", packed(f32_2(add))},
    {"v_pk_mul_f32", packed(f32_2(mul))},
    {"v_pk_fma_f32", packed(f32_3(fma))},
    {"v_fma_mix_f32 v_mad_mix_f32", mixed(kMixFloat)},
    {"v_fma_mixlo_f16", mixed(kMixLow)},
    {"v_fma_mixhi_f16", mixed(kMixHigh)},

    {"v_add_f16", f16_2(add)},
    {"v_sub_f16", f16_2(sub)},
    {"v_subrev_f16", f16_2(subrev)},
    {"v_mul_f16", f16_2(mul)},
    {"v_fma_f16", kFma16.keeping_high()},
    {"v_fmac_f16", kFma16.accumulating()},
    {"v_fmaak_f16 v_fmamk_f16", kFma16},
    {"v_max_f16 v_max_num_f16", f16_2(most)},
    {"v_min_f16 v_min_num_f16", f16_2(least)},
    {"v_maximum_f16", f16_2(most_nan)},
    {"v_minimum_f16", f16_2(least_nan)},
    {"v_max3_f16 v_max3_num_f16", f16_3(most3)},
    {"v_min3_f16 v_min3_num_f16", f16_3(least3)},
    {"v_med3_f16 v_med3_num_f16", f16_3(middle)},
    {"v_ceil_f16", f16_1(ceil)},
    {"v_floor_f16", f16_1(floor)},
    {"v_trunc_f16", f16_1(trunc)},
    {"v_rndne_f16", f16_1(rndne)},
    {"v_fract_f16", f16_1(fract16)},
    {"v_ldexp_f16", lanewise<F16Exact, F16, I16>(ldexp16)},
    {"v_frexp_mant_f16", f16_1(mantissa)},
    {"v_frexp_exp_i16_f16", lanewise<I16, F16>(exponent)},
    {"v_exp_f16", transcendental<F16Exact, F16>(exp16)},
    {"v_log_f16", transcendental<F16Exact, F16>(log16)},
    {"v_rcp_f16", transcendental<F16Exact, F16>(rcp)},
    {"v_rsq_f16", transcendental<F16Exact, F16>(rsq)},
    {"v_sqrt_f16", transcendental<F16Exact, F16>(root)},
    {"v_sin_f16", transcendental<F16Exact, F16>(sin)},
    {"v_cos_f16", transcendental<F16Exact, F16>(cos)},
    {"v_pk_add_f16", packed(f16_2(add))},
    {"v_pk_mul_f16", packed(f16_2(mul))},
    {"v_pk_fma_f16", packed(kFma16)},
    {"v_pk_max_f16 v_pk_max_num_f16", packed(f16_2(most))},
    {"v_pk_min_f16 v_pk_min_num_f16", packed(f16_2(least))},
    {"v_pk_maximum_f16", packed(f16_2(most_nan))},
    {"v_pk_minimum_f16", packed(f16_2(least_nan))},

    {"v_add_f64", f64_2(add)},
    {"v_mul_f64", f64_2(mul)},
    {"v_fma_f64", lanewise<F64, F64, F64, F64>(fma)},
    {"v_fmac_f64", lanewise<F64, F64, F64, F64>(fma).accumulating()},
    {"v_max_f64 v_max_num_f64", f64_2(most)},
    {"v_min_f64 v_min_num_f64", f64_2(least)},
    {"v_maximum_f64", f64_2(most_nan)},
    {"v_minimum_f64", f64_2(least_nan)},
    {"v_ceil_f64", f64_1(ceil)},
    {"v_floor_f64", f64_1(floor)},
    {"v_trunc_f64", f64_1(trunc)},
    {"v_rndne_f64", f64_1(rndne)},
    {"v_fract_f64", f64_1(fract64)},
    {"v_ldexp_f64", lanewise<F64, F64, I32>(ldexp)},
    {"v_frexp_mant_f64", f64_1(mantissa)},
    {"v_frexp_exp_i32_f64", lanewise<I32, F64>(exponent)},
    {"v_rcp_f64", transcendental<F64, F64>(rcp)},
    {"v_rsq_f64", transcendental<F64, F64>(rsq)},
    {"v_sqrt_f64", transcendental<F64, F64>(root)},
    {"v_trig_preop_f64",
     lanewise<F64, F64, B32>([](double a, u32 segment) { return pi_digits(a, segment); })},
};

}  // namespace

std::span<const VectorRow> float_rows() { return kFloats; }

}  // namespace kiln::amd
