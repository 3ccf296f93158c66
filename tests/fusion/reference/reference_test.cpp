// The reference interpreter against values worked out by hand: it is what everything else is
// compared with, so it is compared with nothing but arithmetic.
#include "fusion/reference/reference.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "fusion/infer/infer.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"

namespace kiln::fusion {
namespace {

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::i8;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DType::u64;
}

// One argument `x` of T, an output of Out, one element.
template <class Out, class T>
Out evaluate_one(const char* text, T x, Rounding rounding = Rounding::once) {
  const Graph graph = parse(text);
  const ArgumentType type{dtype_of<T>(), false, false};
  const DType out_dtype = dtype_of<Out>();
  const TypedGraph typed = infer(graph, {&type, 1}, {&out_dtype, 1}, rounding, "test");
  Out out{};
  const ReferenceOperand argument{&x, dtype_of<T>(), Dims{0}, 0};
  const ReferenceOperand output{&out, out_dtype, Dims{0}, 0};
  evaluate(typed, Dims{1}, {&argument, 1}, {&output, 1});
  return out;
}

TEST(Reference, ChainsOfF32AreRoundedOnce) {
  // In f32, 1 + 2^-30 is 1; the chain keeps it until the store.
  EXPECT_EQ(evaluate_one<float>("(x + 1) - 1", 0x1p-30f), 0x1p-30f);
  EXPECT_EQ(evaluate_one<float>("(x + 1) - 1", 0x1p-30f, Rounding::each), 0.0f);
  EXPECT_EQ(evaluate_one<float>("f32(x + 1) - 1", 0x1p-30f), 0.0f);
}

TEST(Reference, WrittenCastsRoundEvenUnderOnce) {
  EXPECT_EQ(evaluate_one<float>("f32(f16(x))", 1.0f + 0x1p-12f), 1.0f);
  EXPECT_EQ(evaluate_one<float>("f32(f16(x))", 1.0f + 0x1.8p-11f), 1.0f + 0x1p-10f);
  EXPECT_EQ(evaluate_one<float>("f32(f16(x))", 70000.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(evaluate_one<float>("f32(bf16(x))", 1.0f + 0x1p-8f), 1.0f);
}

TEST(Reference, IntegersWrapInTheirOwnType) {
  EXPECT_EQ(evaluate_one<std::int8_t>("x + x", std::int8_t{100}), -56);
  EXPECT_EQ(evaluate_one<std::int32_t>("x * x", std::int32_t{65537}), 131073);
  EXPECT_EQ(evaluate_one<std::int64_t>("x - 1", std::numeric_limits<std::int64_t>::min()),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(evaluate_one<std::uint64_t>("x * x", ~std::uint64_t{0}), 1U);
  EXPECT_EQ(evaluate_one<std::int32_t>("abs(x)", std::numeric_limits<std::int32_t>::min()),
            std::numeric_limits<std::int32_t>::min());
}

TEST(Reference, DivisionIsPythons) {
  EXPECT_EQ(evaluate_one<std::int32_t>("x // 2", -7), -4);
  EXPECT_EQ(evaluate_one<std::int32_t>("x % 2", -7), 1);
  EXPECT_EQ(evaluate_one<std::int32_t>("x // 0", 7), 0);
  EXPECT_EQ(evaluate_one<std::int32_t>("x % 0", 7), 7);
  EXPECT_EQ(evaluate_one<std::int32_t>("x // -1", std::numeric_limits<std::int32_t>::min()),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(evaluate_one<double>("x // 0.1", 1.0), 9.0);
  EXPECT_EQ(evaluate_one<double>("x % 2.0", -7.0), 1.0);
}

TEST(Reference, ShiftsAndPowersAreDefined) {
  EXPECT_EQ(evaluate_one<std::int32_t>("x << 32", 1), 0);
  EXPECT_EQ(evaluate_one<std::int32_t>("x >> 99", -5), -1);
  EXPECT_EQ(evaluate_one<std::int32_t>("x << -1", 1), 0);
  EXPECT_EQ(evaluate_one<std::int32_t>("x ** -1", 3), 0);
  EXPECT_EQ(evaluate_one<std::int32_t>("x ** -1", -1), -1);
  EXPECT_EQ(evaluate_one<std::int32_t>("x ** 0", 0), 1);
}

TEST(Reference, FloatsBecomeIntegersSaturated) {
  EXPECT_EQ(evaluate_one<std::int32_t>("i32(x)", -2.9f), -2);
  EXPECT_EQ(evaluate_one<std::int32_t>("i32(x)", 1e20f), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(evaluate_one<std::int32_t>("i32(x)", std::nanf("")), 0);
  EXPECT_EQ(evaluate_one<std::uint8_t>("u8(x)", -1.0f), 0);
}

TEST(Reference, MaximumKeepsNanAndFmaxDropsIt) {
  EXPECT_TRUE(std::isnan(evaluate_one<float>("maximum(x, 1.0)", std::nanf(""))));
  EXPECT_EQ(evaluate_one<float>("fmax(x, 1.0)", std::nanf("")), 1.0f);
  EXPECT_FALSE(std::signbit(evaluate_one<float>("maximum(x, -0.0)", 0.0f)));
  EXPECT_TRUE(std::signbit(evaluate_one<float>("minimum(x, -0.0)", 0.0f)));
  EXPECT_EQ(evaluate_one<float>("sigmoid(x)", -HUGE_VALF), 0.0f);
  EXPECT_EQ(evaluate_one<float>("logaddexp(x, x)", -HUGE_VALF), -HUGE_VALF);
  EXPECT_EQ(evaluate_one<float>("round(x)", 2.5f), 2.0f);
}

TEST(Reference, StridesAndSeveralOutputs) {
  const Graph graph = parse("x + y, x * y");
  const ArgumentType types[] = {{DType::f32, false, false}, {DType::f32, false, false}};
  const TypedGraph typed = infer(graph, types, {}, Rounding::once, "test");
  float x[] = {1, 2, 3};
  float y[] = {10, 20};
  float sum[6] = {};
  float product[6] = {};
  // x is a row, y a column; the product is stored transposed.
  const ReferenceOperand arguments[] = {{x, DType::f32, Dims{0, 1}, 0},
                                        {y, DType::f32, Dims{1, 0}, 0}};
  const ReferenceOperand outputs[] = {{sum, DType::f32, Dims{3, 1}, 0},
                                      {product, DType::f32, Dims{1, 2}, 0}};
  evaluate(typed, Dims{2, 3}, arguments, outputs);
  EXPECT_EQ(std::vector<float>(sum, sum + 6), (std::vector<float>{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(std::vector<float>(product, product + 6), (std::vector<float>{10, 20, 20, 40, 30, 60}));
}

TEST(Reference, PackedTypesLieTwoToAByte) {
  const Graph graph = parse("x + 1");
  const ArgumentType type{DType::u4, false, false};
  const DType out_dtype = DType::i32;
  const TypedGraph typed = infer(graph, {&type, 1}, {&out_dtype, 1}, Rounding::once, "test");
  std::uint8_t bytes[] = {0x21, 0xf3};
  std::int32_t out[3] = {};
  const ReferenceOperand argument{bytes, DType::u4, Dims{1}, 1};
  const ReferenceOperand output{out, DType::i32, Dims{1}, 0};
  evaluate(typed, Dims{3}, {&argument, 1}, {&output, 1});
  EXPECT_EQ(std::vector<std::int32_t>(out, out + 3), (std::vector<std::int32_t>{3, 4, 16}));
}

TEST(Reference, AnEmptyShapeTouchesNothing) {
  const Graph graph = parse("x + 1");
  const ArgumentType type{DType::f32, false, false};
  const TypedGraph typed = infer(graph, {&type, 1}, {}, Rounding::once, "test");
  const ReferenceOperand nowhere{nullptr, DType::f32, Dims{0, 1}, 0};
  evaluate(typed, Dims{4, 0}, {&nowhere, 1}, {&nowhere, 1});
}

// The formats of narrow floats by their published tables: largest and smallest values and their
// codes.
TEST(ReferenceValue, NarrowFormatsHaveTheirPublishedLimits) {
  using reference::decode;
  EXPECT_EQ(decode(DType::f16, 0x7bff).real, 65504.0L);
  EXPECT_EQ(decode(DType::f16, 0x0001).real, 0x1p-24L);
  EXPECT_EQ(decode(DType::bf16, 0x0001).real, 0x1p-133L);
  EXPECT_EQ(decode(DType::f8e4m3, 0x7e).real, 448.0L);
  EXPECT_TRUE(std::isnan(decode(DType::f8e4m3, 0x7f).real));
  EXPECT_EQ(decode(DType::f8e4m3, 0x01).real, 0x1p-9L);
  EXPECT_EQ(decode(DType::f8e5m2, 0x7b).real, 57344.0L);
  EXPECT_TRUE(std::isinf(decode(DType::f8e5m2, 0x7c).real));
  EXPECT_EQ(decode(DType::f8e5m2, 0x01).real, 0x1p-16L);
  EXPECT_EQ(decode(DType::f8e4m3fnuz, 0x7f).real, 240.0L);
  EXPECT_TRUE(std::isnan(decode(DType::f8e4m3fnuz, 0x80).real));
  EXPECT_EQ(decode(DType::f8e4m3fnuz, 0x01).real, 0x1p-10L);
  EXPECT_EQ(decode(DType::f8e5m2fnuz, 0x7f).real, 57344.0L);
  EXPECT_EQ(decode(DType::f8e5m2fnuz, 0x01).real, 0x1p-17L);
  EXPECT_EQ(decode(DType::f4e2m1, 0x7).real, 6.0L);
  EXPECT_EQ(decode(DType::f4e2m1, 0x1).real, 0.5L);
}

TEST(ReferenceValue, EveryNarrowCodeComesBack) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2,
                            DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f4e2m1}) {
    for (std::uint64_t code = 0; code < std::uint64_t{1} << bits(dtype); ++code) {
      const reference::Value value = reference::decode(dtype, code);
      if (std::isnan(value.real)) {
        EXPECT_TRUE(std::isnan(reference::decode(dtype, reference::encode(value)).real));
      } else if (std::isfinite(value.real)) {
        EXPECT_EQ(reference::encode(value), code) << name(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace kiln::fusion
