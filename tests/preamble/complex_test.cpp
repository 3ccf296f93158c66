// Complex numbers against the reference: the distance of the result from the exact one, in units of
// the last place that an f32 of the exact result's size has.
#include <gtest/gtest.h>

#include <complex>
#include <vector>

#include "fusion/reference_operation.hpp"
#include "tests/preamble/host_preamble.hpp"

namespace kiln::test {
namespace {

using fusion::Op;
namespace reference = fusion::reference;

std::vector<c64> grid() {
  std::vector<c64> points;
  for (const f32 re : {-30.0f, -3.0f, -1.0f, -0.6f, -1e-3f, 0.0f, 1e-6f, 0.25f, 0.9999f, 1.0f, 2.5f,
                       11.0f, 70.0f}) {
    for (const f32 im :
         {-20.0f, -2.0f, -1.0f, -0.7f, -1e-4f, 0.0f, 1e-5f, 0.5f, 1.0f, 1.5707964f, 3.0f, 40.0f}) {
      points.push_back({re, im});
    }
  }
  return points;
}

using Exact = std::complex<long double>;

Exact exact(Op op, std::vector<c64> operands) {
  fusion::TypedNode node;
  node.op = op;
  node.dtype = DType::c64;
  node.arity = static_cast<std::uint8_t>(operands.size());
  std::vector<reference::Value> values;
  for (const c64 z : operands) values.push_back({DType::c64, z.re, z.im, 0});
  const reference::Value result = reference::operate(node, values, Rounding::once);
  return {result.real, result.imag};
}

double distance(c64 actual, Exact expected) {
  const long double size = std::abs(expected);
  if (!(size < 1e30L)) return 0;  // overflow of one part or both
  const long double unit =
      std::ldexp(1.0L, std::max(std::ilogb(size == 0 ? 1e-37L : size), -126) - 23);
  return static_cast<double>(std::abs(Exact(actual.re, actual.im) - expected) / unit);
}

double distance(f32 actual, Exact expected) { return distance(c64{actual, 0.0f}, expected); }

#define KILN_EXPECT_NEAR(name, bound)                                                 \
  for (const c64 z : grid()) {                                                        \
    const Exact expected = exact(Op::name, {z});                                      \
    if (!std::isfinite(expected.real()) || !std::isfinite(expected.imag())) continue; \
    EXPECT_LE(distance(kiln::name(z), expected), bound)                               \
        << #name << " of " << z.re << " + " << z.im << "i";                           \
  }

TEST(Complex, FunctionsAreWithinAFewUlpOfTheirSize){
    KILN_EXPECT_NEAR(abs, 1) KILN_EXPECT_NEAR(neg, 0) KILN_EXPECT_NEAR(conj, 0)
        KILN_EXPECT_NEAR(sign, 1) KILN_EXPECT_NEAR(square, 1) KILN_EXPECT_NEAR(reciprocal, 1)
            KILN_EXPECT_NEAR(sqrt, 1) KILN_EXPECT_NEAR(rsqrt, 3) KILN_EXPECT_NEAR(exp, 1)
                KILN_EXPECT_NEAR(log, 1) KILN_EXPECT_NEAR(log2, 3) KILN_EXPECT_NEAR(log10, 3)
                    KILN_EXPECT_NEAR(sin, 1) KILN_EXPECT_NEAR(cos, 1) KILN_EXPECT_NEAR(tan, 1)
                        KILN_EXPECT_NEAR(sinh, 1) KILN_EXPECT_NEAR(cosh, 1)
                            KILN_EXPECT_NEAR(tanh, 1)}
#define KILN_EXPECT_PAIR(name, bound)                                                              \
  for (const c64 a : grid()) {                                                                     \
    for (const c64 b : grid()) {                                                                   \
      if (b.re == 0 && b.im == 0) continue;                                                        \
      EXPECT_LE(distance(kiln::name(a, b), exact(Op::name, {a, b})), bound)                        \
          << #name << " of " << a.re << " + " << a.im << "i and " << b.re << " + " << b.im << "i"; \
    }                                                                                              \
  }

TEST(Complex, ArithmeticIsRoundedOncePerPart){KILN_EXPECT_PAIR(add, 1) KILN_EXPECT_PAIR(sub, 1)
                                                  KILN_EXPECT_PAIR(mul, 1) KILN_EXPECT_PAIR(div, 1)}

TEST(Complex, PowersOfZeroAndToZeroAreDefined) {
  EXPECT_TRUE(kiln::power(c64{0, 0}, c64{2, 1}) == (c64{0, 0}));
  EXPECT_TRUE(kiln::power(c64{0, 0}, c64{0, 0}) == (c64{1, 0}));
  EXPECT_LE(distance(kiln::power(c64{0, 1}, c64{2, 0}), Exact(-1, 0)), 4);
}

TEST(Complex, CastsTakeTheRealPart) {
  EXPECT_EQ(to<f32>(c64{1.5f, 2.0f}), 1.5f);
  EXPECT_EQ(to<i32>(c64{-2.9f, 7.0f}), -2);
  EXPECT_TRUE(to<bool>(c64{0.0f, 1.0f}));
  EXPECT_EQ(to<b8>(c64{0.0f, 0.0f}).bits, 0);
  EXPECT_TRUE(to<c64>(f16{0x3c00}) == (c64{1.0f, 0.0f}));
  EXPECT_EQ(to<bf16>(c64{1.0f, 9.0f}).bits, 0x3f80);
}

}  // namespace
}  // namespace kiln::test
