// The error of functions of two and three floats: all pairs of a set that holds every special
// value, the powers of two, the boundaries and random values, against the reference and the op
// table's bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/preamble/functions.hpp"

namespace kiln::test {
namespace {

using fusion::Op;

// About `count` values of T: the specials and boundaries, then random ones.
template <class T>
std::vector<T> operands(std::size_t count) {
  std::vector<T> values;
  const long double specials[] = {0.0L, -0.0L,     1,          -1,           2,     -2,
                                  3,    0.5L,      -0.5L,      1.5L,         -2.5L, 0.1L,
                                  10,   HUGE_VALL, -HUGE_VALL, std::nanl("")};
  for (const long double x : specials) values.push_back(static_cast<T>(x));
  const std::vector<std::uint64_t> all = patterns(int(sizeof(T)) * 8, static_cast<int>(count));
  // The boundaries, thinned to a quarter of the count, and random values as far as they are needed.
  const std::size_t boundaries = all.size() - count;
  const std::size_t step = std::max<std::size_t>(1, boundaries / (count / 4));
  for (std::size_t i = 0; i < boundaries; i += step) values.push_back(from_pattern<T>(all[i]));
  for (std::size_t i = boundaries; values.size() < count; ++i) {
    const T x = from_pattern<T>(all[i]);
    // Half of them in a range in which two operands meet, because random exponents hardly do.
    const T small = static_cast<T>(static_cast<std::int64_t>(all[i] % 200001) - 100000) / T(1024);
    values.push_back(i % 2 == 0 ? x : small);
  }
  return values;
}

template <class T>
void expect_within_bounds(T (*function)(T, T), Op op, std::size_t count, double bound,
                          const char* title, bool can_be_loose) {
  const std::vector<T> values = operands<T>(count);
  Errors errors;
  for (const T a : values) {
    for (const T b : values) {
      const long double exact_operands[] = {a, b};
      const long double exact = exact_value(op, kDTypeOf<T>, exact_operands);
      errors.add(counted_error(op, function(a, b), exact, exact_operands, kDTypeOf<T>), a, b);
    }
  }
  std::printf("%-12s %s %.4f ULP, %.4f %% misrounded\n", std::string(info(op).name).c_str(), title,
              errors.largest, errors.share());
  EXPECT_LE(errors.largest, bound) << info(op).name << " of " << static_cast<double>(errors.at)
                                   << " and " << static_cast<double>(errors.at_second);
  if (can_be_loose) expect_not_loose(info(op), bound, errors.largest);
}

TEST(Binary, F32IsWithinTheTablesBoundAndTheBoundIsNotLoose) {
  for (const BinaryFunction<f32>& f : binary_functions<f32>()) {
    expect_within_bounds(f.standard, f.op, 400, info(f.op).f32.own, "f32       ", true);
    expect_within_bounds(f.strict, f.op, 200, info(f.op).f32.libm, "f32 strict",
                         is_library_of_the_table());
  }
}

TEST(Binary, F64IsWithinTheTablesBoundAndTheBoundIsNotLoose) {
  for (const BinaryFunction<f64>& f : binary_functions<f64>()) {
    expect_within_bounds(f.standard, f.op, 250, info(f.op).f64.libm, "f64       ", false);
  }
}

// All pairs of 600 values of a 16-bit type, computed in f32 and stored once. Real kernels are tried
// on all pairs of 2,048: see tests/src/numerics/numerics_test.cpp.
template <class T>
void expect_sixteen_bit_pairs() {
  std::vector<T> values;
  for (const f32 x : operands<f32>(512)) values.push_back(to<T>(x));
  for (std::uint64_t code = 0; values.size() < 600; code += 739)
    values.push_back(from_pattern<T>(code & 0xffff));
  for (const BinaryFunction<f32>& f : binary_functions<f32>()) {
    if (f.op == Op::nextafter) continue;  // steps in the dtype itself: special_test.cpp
    Errors errors;
    for (const T a : values) {
      for (const T b : values) {
        const long double exact_operands[] = {to<f32>(a), to<f32>(b)};
        const long double exact = exact_value(f.op, kDTypeOf<T>, exact_operands);
        const f32 stored = to<f32>(to<T>(f.standard(to<f32>(a), to<f32>(b))));
        errors.add(counted_error(f.op, stored, exact, exact_operands, kDTypeOf<T>),
                   exact_operands[0], exact_operands[1]);
      }
    }
    EXPECT_LE(errors.largest, fusion::kStorageBound)
        << info(f.op).name << " of " << static_cast<double>(errors.at) << " and "
        << static_cast<double>(errors.at_second);
  }
}
TEST(Binary, PairsOfF16AreStoredWithin51HundredthsOfAnUlp) { expect_sixteen_bit_pairs<f16>(); }
TEST(Binary, PairsOfBf16AreStoredWithin51HundredthsOfAnUlp) { expect_sixteen_bit_pairs<bf16>(); }

TEST(Ternary, FmaIsRoundedOnceAndLerpMeetsItsEnds) {
  const std::vector<f32> values = operands<f32>(60);
  for (const f32 a : values) {
    for (const f32 b : values) {
      for (const f32 c : values) {
        const f32 expected = std::fma(a, b, c);
        const f32 actual = kiln::fma(a, b, c);
        if (std::isnan(expected) && std::isnan(actual)) continue;
        ASSERT_EQ(to_pattern(actual), to_pattern(expected)) << a << " " << b << " " << c;
      }
      if (!std::isfinite(a) || !std::isfinite(b)) continue;
      EXPECT_EQ(kiln::lerp(a, b, 0.0f), a);
      EXPECT_EQ(kiln::lerp(a, b, 1.0f), b);
    }
  }
}

}  // namespace
}  // namespace kiln::test
