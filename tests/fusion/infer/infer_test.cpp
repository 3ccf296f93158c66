// What dtype every value has: the promotion lattice, weak literals, and what a call may store.

#include "fusion/infer/infer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

TypedGraph typed(std::string_view text, std::vector<DType> inputs, std::vector<DType> outputs = {},
                 Rounding rounding = Rounding::once) {
  const Graph graph = parse(text);
  std::vector<ArgumentType> arguments;
  for (const DType dtype : inputs) arguments.push_back({dtype, false, false});
  return infer(graph, arguments, outputs, rounding, "f");
}

DType result(std::string_view text, std::vector<DType> inputs) {
  const TypedGraph graph = typed(text, std::move(inputs));
  return graph.nodes[graph.outputs[0]].dtype;
}

std::string error_of(std::string_view text, std::vector<DType> inputs,
                     std::vector<DType> outputs = {}) {
  try {
    typed(text, std::move(inputs), std::move(outputs));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "no error";
}

int count(const TypedGraph& graph, Op op) {
  int n = 0;
  for (const TypedNode& node : graph.nodes) n += node.op == op ? 1 : 0;
  return n;
}

TEST(Promotion, FollowsTheLattice) {
  using enum DType;
  EXPECT_EQ(promote(f16, bf16), f32);
  EXPECT_EQ(promote(bf16, f32), f32);
  EXPECT_EQ(promote(i64, f16), f16);
  EXPECT_EQ(promote(u8, i8), i16);
  EXPECT_EQ(promote(u16, i8), i32);
  EXPECT_EQ(promote(u32, i32), i64);
  EXPECT_EQ(promote(u8, i32), i32);
  EXPECT_EQ(promote(u64, i8), f32);
  EXPECT_EQ(promote(boolean, u8), u8);
  EXPECT_EQ(promote(f64, i64), f64);
  EXPECT_EQ(promote(u4, bf16), bf16);
  EXPECT_EQ(promote(f8e4m3, bf16), f32);
}

TEST(Promotion, IsSymmetricAndHoldsBothOperands) {
  for (const DTypeInfo& a : kDTypes) {
    EXPECT_EQ(promote(a.dtype, a.dtype),
              info(a.dtype).storage_only ? compute_dtype(a.dtype) : a.dtype);
    for (const DTypeInfo& b : kDTypes) {
      EXPECT_EQ(promote(a.dtype, b.dtype), promote(b.dtype, a.dtype)) << a.name << " " << b.name;
      EXPECT_GE(kind(promote(a.dtype, b.dtype)), std::min(kind(a.dtype), kind(b.dtype)));
    }
  }
}

TEST(Literals, TakeTheDtypeThatTheirPartnerIsComputedIn) {
  EXPECT_EQ(result("2.7 + f4e2m1(x)", {DType::f16}), DType::f32);
  EXPECT_EQ(result("f4e2m1(x) + 2.7", {DType::f16}), DType::f32);
  EXPECT_EQ(result("u4(x) << 1", {DType::i64}), DType::i32);
  EXPECT_EQ(result("300 - u4(x)", {DType::i64}), DType::i32);
}

TEST(Literals, AreRealWhereTheirOpIs) {
  for (const std::string_view text : {"x + real(-1)", "x + abs(-2.0)", "x * floor(1.5)"}) {
    const TypedGraph graph = typed(text, {DType::c64});
    for (const TypedNode& node : graph.nodes) {
      const bool real_op = node.op == Op::real || node.op == Op::abs || node.op == Op::floor;
      EXPECT_FALSE(real_op && node.dtype == DType::c64) << text;
    }
    EXPECT_EQ(graph.nodes[graph.outputs[0]].dtype, DType::c64) << text;
  }
}

TEST(Literals, TakeTheDtypeOfTheirPartner) {
  EXPECT_EQ(result("x * 0.5", {DType::bf16}), DType::bf16);
  EXPECT_EQ(result("x * 2", {DType::bf16}), DType::bf16);
  EXPECT_EQ(result("x * 0.5", {DType::i32}), DType::f32);
  EXPECT_EQ(result("x + 1", {DType::u8}), DType::u8);
  EXPECT_EQ(result("x + True", {DType::i16}), DType::i16);
  EXPECT_EQ(result("2 * 3 * x", {DType::i64}), DType::i64);
}

TEST(Literals, AreExactInAnF64Chain) {
  const TypedGraph graph = typed("x + sqrt(0.1)", {DType::f64});
  bool found = false;
  for (const TypedNode& node : graph.nodes) {
    if (node.op != Op::constant) continue;
    found = true;
    EXPECT_EQ(node.dtype, DType::f64);
    EXPECT_EQ(std::bit_cast<double>(node.payload), 0.1);
  }
  EXPECT_TRUE(found);
}

TEST(Literals, RoundToTheirDtypeOnlyUnderEach) {
  const auto payload = [](Rounding rounding) {
    const TypedGraph graph = typed("x * 0.1", {DType::bf16}, {}, rounding);
    for (const TypedNode& node : graph.nodes) {
      if (node.op == Op::constant) return node.payload;
    }
    return std::uint64_t{0};
  };
  EXPECT_EQ(payload(Rounding::once), std::bit_cast<std::uint32_t>(0.1f));
  EXPECT_EQ(payload(Rounding::each), 0x3dcdu);  // bf16 nearest to 0.1
}

TEST(Literals, AreNotComputedWhereTheOpHasNoMeaning) {
  const auto computed_in = [](std::string_view text, DType argument, Op op) {
    const TypedGraph graph = typed(text, {argument});
    const auto node = std::ranges::find(graph.nodes, op, &TypedNode::op);
    return node == graph.nodes.end() ? DType::c64 : node->dtype;
  };
  EXPECT_EQ(computed_in("a + popcount(3)", DType::f32, Op::popcount), DType::i32);
  EXPECT_EQ(computed_in("a + (3 << 1)", DType::f16, Op::left_shift), DType::i32);
  EXPECT_EQ(computed_in("a + popcount(3)", DType::u8, Op::popcount), DType::u8);
  EXPECT_EQ(computed_in("a or rsqrt(False)", DType::f32, Op::rsqrt), DType::f32);
  EXPECT_EQ(computed_in("a and sqrt(2)", DType::boolean, Op::sqrt), DType::f32);
}

TEST(Literals, ThatDoNotFitAreErrors) {
  EXPECT_NE(error_of("x + 300", {DType::u8}).find("the literal 300 does not fit u8"),
            std::string::npos);
  EXPECT_NE(error_of("x + -1", {DType::u16}).find("does not fit u16"), std::string::npos);
}

TEST(Inference, FloatingOpsTakeIntegersToF32) {
  EXPECT_EQ(result("exp(x)", {DType::i64}), DType::f32);
  EXPECT_EQ(result("x / y", {DType::i32, DType::i32}), DType::f32);
  EXPECT_EQ(result("floor(x)", {DType::i8}), DType::i8);
  EXPECT_EQ(result("x < y", {DType::i8, DType::f16}), DType::boolean);
  EXPECT_EQ(result("where(x > 0, x, 1)", {DType::bf16}), DType::bf16);
}

TEST(Inference, DropsDeadValuesAndSharesEqualOnes) {
  const TypedGraph dead = typed("t = exp(x); u = log(t); x + 1", {DType::f32});
  EXPECT_EQ(count(dead, Op::exp), 0);
  const TypedGraph shared = typed("exp(x) * exp(x)", {DType::f32});
  EXPECT_EQ(count(shared, Op::exp), 1);
}

TEST(Inference, AWrittenCastIsKept) {
  const TypedGraph graph = typed("f32(bf16(x))", {DType::f32});
  EXPECT_EQ(count(graph, Op::cast), 2);
}

TEST(Inference, StoresWithinAKindAndUpwardsOnly) {
  EXPECT_EQ(error_of("x * y", {DType::bf16, DType::f32}, {DType::bf16}), "no error");
  EXPECT_EQ(error_of("x + 1", {DType::i32}, {DType::f32}), "no error");
  const std::string message = error_of("x * 2.5", {DType::f32}, {DType::i32});
  EXPECT_NE(message.find("f: output 0"), std::string::npos) << message;
  EXPECT_NE(message.find("i32"), std::string::npos) << message;
  EXPECT_NE(message.find("f32"), std::string::npos) << message;
}

TEST(Inference, RefusesWhatHasNoMeaning) {
  EXPECT_NE(error_of("x & y", {DType::f32, DType::i32}).find("bitwise_and"), std::string::npos);
  EXPECT_NE(error_of("x << 1", {DType::f32}).find("left_shift"), std::string::npos);
}

TEST(Inference, BoolsHaveOrAndInPlaceOfSumsAndProducts) {
  const std::vector<std::pair<std::string, Op>> cases = {{"x + y", Op::logical_or},
                                                         {"maximum(x, y)", Op::logical_or},
                                                         {"fmax(x, y)", Op::logical_or},
                                                         {"x * y", Op::logical_and},
                                                         {"minimum(x, y)", Op::logical_and},
                                                         {"fmin(x, y)", Op::logical_and},
                                                         {"max(x and y, -1)", Op::reduce_any},
                                                         {"min(x and y, -1)", Op::reduce_all},
                                                         {"cummax(x and y, -1)", Op::cummax}};
  for (const auto& [text, op] : cases) {
    const TypedGraph graph = typed(text, {DType::boolean, DType::boolean});
    EXPECT_EQ(graph.nodes[graph.outputs[0]].op, op) << text;
    EXPECT_EQ(graph.nodes[graph.outputs[0]].dtype, DType::boolean) << text;
  }
  EXPECT_EQ(result("x + y", {DType::boolean, DType::i8}), DType::i8);
  EXPECT_EQ(result("x * 2", {DType::boolean}), DType::i32);
  EXPECT_EQ(result("x + True", {DType::boolean}), DType::boolean);
  EXPECT_EQ(result("x / 2", {DType::boolean}), DType::f32);
  EXPECT_EQ(result("x / y", {DType::boolean, DType::f16}), DType::f16);
}

// Two literals that are true make one that is true, whatever that is added to.
TEST(Inference, BoolLiteralsHaveOrAndToo) {
  for (const char* text : {"x + (True + True)", "x * maximum(True, False)"}) {
    const TypedGraph graph = typed(text, {DType::i32});
    const auto node = std::ranges::find(graph.nodes, Op::logical_or, &TypedNode::op);
    ASSERT_NE(node, graph.nodes.end()) << text;
    EXPECT_EQ(node->dtype, DType::boolean) << text;
  }
}

TEST(Inference, RefusesOtherArithmeticOfBoolsByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"x - y", "- (sub)"},       {"-x", "- (neg)"},        {"x // y", "// (floor_divide)"},
      {"x % y", "% (remainder)"}, {"x ** y", "** (power)"}, {"sign(x)", "sign"},
      {"square(x)", "square"},    {"abs(x)", "abs"},        {"fmod(x, y)", "fmod"},
      {"clip(x, y, y)", "clip"},  {"fma(x, y, x)", "fma"},  {"x / y", "/ (div)"},
      {"x / True", "/ (div)"}};
  for (const auto& [text, name] : cases) {
    const std::vector<DType> dtypes(text.find('y') == std::string::npos ? 1 : 2, DType::boolean);
    const std::string message = error_of(text, dtypes);
    EXPECT_EQ(message.find("f: " + name + ": expected numbers, got bool; cast"), 0u) << message;
  }
}

TEST(Inference, NamesTheFunctionWhenTheNumberOfArgumentsIsWrong) {
  const Graph graph = parse("x + y");
  const std::vector<ArgumentType> one = {{DType::f32, false, false}};
  try {
    infer(graph, one, {}, Rounding::once, "my_function");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "my_function: expected 2 arguments, got 1");
  }
}

TEST(Inference, TenThousandLiteralsInAChainNeedNoDeepStack) {
  std::string text = "x";
  for (int i = 0; i < 10'000; ++i) text += " + 1.5";
  EXPECT_GE(typed(text, {DType::f32}).nodes.size(), 10'000u);
  std::string weak = "1.5";
  for (int i = 0; i < 10'000; ++i) weak += " + 1.5";
  EXPECT_EQ(result("x * (" + weak + ")", {DType::f16}), DType::f16);
}

TEST(Inference, MakesFloatsByOneFactorAndNoProduct) {
  using enum DType;
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const TypedGraph graph = typed("exp(x * 1.0)", {dtype});
    EXPECT_EQ(count(graph, Op::mul), 0);
    EXPECT_EQ(result("x * 1.0", {dtype}), dtype);
  }
  const TypedGraph graph = typed("x * 1.0", {i8});
  EXPECT_EQ(graph.nodes[graph.outputs[0]].op, Op::promote);
  EXPECT_EQ(result("x * 1.0", {i8}), f32);
  EXPECT_EQ(count(typed("x * 1", {i8}), Op::mul), 1);
  EXPECT_EQ(count(typed("x * 1.0", {c64}), Op::mul), 1) << "an infinite part would give NaN";
  EXPECT_EQ(count(typed("x * -1.0", {f32}), Op::mul), 1);
}

}  // namespace
}  // namespace kiln::fusion
