// Complex numbers against the reference and the op table's bounds. What special values give is
// written down in support/special_complex_rows.hpp.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fusion/reference/bound.hpp"
#include "fusion/reference/operation.hpp"
#include "tests/preamble/host_preamble.hpp"

namespace kiln::test {
namespace {

using fusion::Op;
using fusion::WideComplex;
namespace reference = fusion::reference;

// Moderate parts, the ends of f32's range and what is no finite number.
std::vector<c64> grid() {
  constexpr f32 inf = std::numeric_limits<f32>::infinity();
  constexpr f32 nan = std::numeric_limits<f32>::quiet_NaN();
  constexpr f32 kParts[] = {0.0f,  1.0f,   0.6f,       0.8f,   1e-3f,    2.5f,
                            20.0f, 70.0f,  1.5707964f, 1e-6f,  0.99999f, 3.4028235e38f,
                            1e20f, 1e-20f, 1e-45f,     100.0f, inf};
  std::vector<f32> parts = {nan};
  for (const f32 part : kParts) {
    parts.push_back(part);
    parts.push_back(-part);
  }
  std::vector<c64> points;
  for (const f32 re : parts) {
    for (const f32 im : parts) points.push_back({re, im});
  }
  return points;
}

WideComplex widened(c64 z) { return {z.re, z.im}; }

WideComplex exact(Op op, const std::vector<c64>& operands) {
  fusion::TypedNode node;
  node.op = op;
  node.dtype = op == Op::abs ? DType::f32 : DType::c64;
  node.arity = static_cast<std::uint8_t>(operands.size());
  std::vector<reference::Value> values;
  for (const c64 z : operands) values.push_back({DType::c64, z.re, z.im, 0});
  const reference::Value result = reference::operate(node, values, Rounding::once);
  return {result.real, result.imag};
}

void expect_within_bound(Op op, c64 actual, const std::vector<c64>& operands) {
  std::vector<WideComplex> given;
  std::string text;
  for (const c64 z : operands) {
    given.push_back(widened(z));
    text += " (" + std::to_string(z.re) + ", " + std::to_string(z.im) + ")";
  }
  const WideComplex expected = exact(op, operands);
  EXPECT_LE(fusion::counted_error(op, widened(actual), expected, given),
            fusion::info(op).c64->error)
      << fusion::info(op).name << " of" << text << " is " << widened(actual) << ", not "
      << expected;
}

#define KILN_UNARY(name)                                 \
  {                                                      \
    Op::name, [](c64 z) -> c64 { return kiln::name(z); } \
  }
TEST(Complex, FunctionsAreWithinTheTablesBoundAlsoAtTheEndsOfTheRange) {
  constexpr std::pair<Op, c64 (*)(c64)> kFunctions[] = {{Op::abs,
                                                         [](c64 z) -> c64 {
                                                           return {kiln::abs(z), 0.0f};
                                                         }},
                                                        KILN_UNARY(neg),
                                                        KILN_UNARY(conj),
                                                        KILN_UNARY(sign),
                                                        KILN_UNARY(square),
                                                        KILN_UNARY(reciprocal),
                                                        KILN_UNARY(sqrt),
                                                        KILN_UNARY(rsqrt),
                                                        KILN_UNARY(exp),
                                                        KILN_UNARY(log),
                                                        KILN_UNARY(log2),
                                                        KILN_UNARY(log10),
                                                        KILN_UNARY(sin),
                                                        KILN_UNARY(cos),
                                                        KILN_UNARY(tan),
                                                        KILN_UNARY(sinh),
                                                        KILN_UNARY(cosh),
                                                        KILN_UNARY(tanh),
                                                        KILN_UNARY(sigmoid)};
  for (const auto& [op, function] : kFunctions) {
    for (const c64 z : grid()) expect_within_bound(op, function(z), {z});
  }
}
#undef KILN_UNARY

#define KILN_BINARY(name)                                          \
  {                                                                \
    Op::name, [](c64 a, c64 b) -> c64 { return kiln::name(a, b); } \
  }
TEST(Complex, ArithmeticToo) {
  constexpr std::pair<Op, c64 (*)(c64, c64)> kFunctions[] = {
      KILN_BINARY(add), KILN_BINARY(sub), KILN_BINARY(mul), KILN_BINARY(div), KILN_BINARY(power)};
  const std::vector<c64> points = grid();
  for (const auto& [op, function] : kFunctions) {
    for (std::size_t i = 0; i < points.size(); i += 3) {
      for (std::size_t k = 0; k < points.size(); k += 5)
        expect_within_bound(op, function(points[i], points[k]), {points[i], points[k]});
    }
  }
}
#undef KILN_BINARY

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
