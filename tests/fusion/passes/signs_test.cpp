// What is known of the signs of values, against the values that the reference interpreter gives:
// all of a small dtype, and the special ones of a larger.
#include "fusion/passes/signs.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "fusion/infer/infer.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

constexpr DType kDTypes[] = {
    DType::boolean, DType::u8,  DType::u16,    DType::u32,    DType::u64,        DType::i8,
    DType::i16,     DType::i32, DType::i64,    DType::f16,    DType::bf16,       DType::f32,
    DType::f64,     DType::c64, DType::f8e4m3, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz,
    DType::u4,      DType::i4,  DType::f4e2m1};

// All of up to eight bits; else what is about the ends, zero and one, and some others.
std::vector<std::uint64_t> patterns_of(DType dtype) {
  std::vector<std::uint64_t> patterns;
  if (dtype == DType::boolean) return {0, 1};
  const int width = bits(dtype);
  if (width <= 8) {
    for (std::uint64_t code = 0; code < std::uint64_t{1} << width; ++code) patterns.push_back(code);
    return patterns;
  }
  const std::uint64_t all = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
  for (const std::uint64_t near : {std::uint64_t{0}, all / 2, all / 2 + 1, all}) {
    for (const std::uint64_t step : {0, 1, 2, 3}) {
      patterns.push_back((near + step) & all);
      patterns.push_back((near - step) & all);
    }
  }
  if (is_floating(dtype)) {
    for (const double number : {1.0, -1.0, 0.5, -2.5, 100.0, -1e4}) {
      patterns.push_back(reference::encode(
          reference::convert(reference::from_real(DType::f64, number), dtype, true)));
    }
  }
  std::mt19937_64 random(static_cast<std::uint64_t>(dtype));
  for (int i = 0; i < 40; ++i) patterns.push_back(random() & all);
  return patterns;
}

std::vector<std::uint64_t> few_of(std::vector<std::uint64_t> patterns) {
  constexpr std::size_t kFew = 7;
  std::vector<std::uint64_t> few;
  for (std::size_t i = 0; i < kFew; ++i) {
    few.push_back(patterns[i * (patterns.size() - 1) / (kFew - 1)]);
  }
  return few;
}

bool is_below_zero(const reference::Value& value) {
  if (kind(value.dtype) == Kind::complex) return true;  // it has no sign, so none may be claimed
  return is_floating(value.dtype) ? value.real < 0 : value.integer < 0;
}

struct Checked {
  std::size_t graphs = 0;
  std::size_t claims = 0;
  std::string wrong;
};

void check(const TypedGraph& graph, const std::string& what, Checked& checked) {
  const std::vector<bool> claimed = never_negative(graph);
  ++checked.graphs;
  std::vector<std::vector<std::uint64_t>> given;
  for (const ArgumentType& argument : graph.arguments) {
    given.push_back(patterns_of(argument.dtype));
    if (given.size() > 1) given.back() = few_of(given.back());
  }
  given.resize(2, {0});
  for (const bool claim : claimed) checked.claims += claim ? 1 : 0;
  std::vector<reference::Value> values(graph.nodes.size());
  for (const std::uint64_t x : given[0]) {
    for (const std::uint64_t y : given[1]) {
      for (NodeId id = 0; id < graph.nodes.size(); ++id) {
        const TypedNode& node = graph.nodes[id];
        if (node.op == Op::input) {
          values[id] = reference::decode(node.dtype, node.payload == 0 ? x : y);
        } else {
          std::array<reference::Value, 3> operands;
          for (std::size_t i = 0; i < node.arity; ++i) operands[i] = values[node.operands[i]];
          values[id] = reference::evaluate_node(graph, node, std::span(operands).first(node.arity));
        }
        values[id].dtype = node.dtype;
        if (!claimed[id] || !is_below_zero(values[id])) continue;
        checked.wrong = fmt::format("{}: {} of {} at x = {:#x}, y = {:#x}", what,
                                    info(node.op).name, name(node.dtype), x, y);
        return;
      }
    }
  }
}

// Types that the text does not take are passed over.
void check(const std::string& text, DType x, DType y, Rounding rounding, Checked& checked) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> both{{x, false, false}, {y, false, false}};
  const std::span types = std::span(both).first(graph.arguments().size());
  TypedGraph typed;
  try {
    typed = infer(graph, types, {}, rounding, "f");
  } catch (const Error&) {
    return;
  }
  check(typed, fmt::format("{} with x of {} and y of {}", text, name(x), name(y)), checked);
}

// Every op on x, or on x and y or a number, where `x` may stand for more.
std::vector<std::string> operations() {
  std::vector<std::string> texts;
  for (const OpInfo& op : all_ops()) {
    if (op.rule == Rule::leaf || op.rule == Rule::index || op.rule == Rule::convert ||
        op.rule == Rule::random) {
      continue;
    }
    if (op.arity == 1) texts.push_back(fmt::format("{}(x)", op.name));
    for (const char* second : {"x", "y", "0", "3", "-1", "-2.5", "200"}) {
      if (op.arity == 2) {
        texts.push_back(fmt::format("{}(x, {})", op.name, second));
        texts.push_back(fmt::format("{}({}, x)", op.name, second));
      }
      if (op.arity == 3) texts.push_back(fmt::format("{}(x, {}, x)", op.name, second));
    }
  }
  for (const DType to : kDTypes) {
    texts.push_back(fmt::format("{}(x)", name(to)));
    texts.push_back(fmt::format("bitcast(x, {})", name(to)));
  }
  return texts;
}

TEST(Signs, HoldForEveryOperationOnEveryDType) {
  Checked checked;
  for (const std::string& text : operations()) {
    for (const DType dtype : kDTypes) {
      check(text, dtype, dtype, Rounding::once, checked);
      ASSERT_EQ(checked.wrong, "");
    }
  }
  EXPECT_GT(checked.graphs, 2000u);
  EXPECT_GT(checked.claims, 1000u);
}

TEST(Signs, HoldForWhatIsComposed) {
  std::vector<std::string> inner = operations();
  // What a sign passes through, more often.
  std::vector<std::string> outer = {"abs(@)",
                                    "square(@)",
                                    "(@) * (@)",
                                    "(@) * x",
                                    "maximum(@, x)",
                                    "maximum(x, @)",
                                    "sqrt(@)",
                                    "(@) + 0.0",
                                    "maximum(@, i64(y))",
                                    "maximum(@, f32(y))",
                                    "(@) * i16(y)",
                                    "sigmoid(@)"};
  for (const DType to : kDTypes) outer.push_back(fmt::format("{}(@)", name(to)));
  std::mt19937_64 random(5);
  const auto put = [](std::string into, const std::string& text) {
    for (std::size_t at = 0; (at = into.find('@', at)) != into.npos; at += text.size()) {
      into.replace(at, 1, text);
    }
    return into;
  };
  Checked checked;
  for (int i = 0; i < 6000; ++i) {
    std::string text = inner[random() % inner.size()];
    for (std::uint64_t depth = 1 + random() % 3; depth > 0; --depth) {
      text = put(outer[random() % outer.size()], text);
    }
    const DType x = kDTypes[random() % std::size(kDTypes)];
    const DType y = kDTypes[random() % std::size(kDTypes)];
    check(text, x, y, i % 3 == 0 ? Rounding::each : Rounding::once, checked);
    ASSERT_EQ(checked.wrong, "");
  }
  EXPECT_GT(checked.graphs, 2000u);
  EXPECT_GT(checked.claims, 2000u);
}

bool claimed(const std::string& text, DType dtype) {
  const std::vector<ArgumentType> types(2, {dtype, false, false});
  const Graph graph = parse(text);
  const TypedGraph typed =
      infer(graph, std::span(types).first(graph.arguments().size()), {}, Rounding::once, "f");
  return never_negative(typed)[typed.outputs[0]];
}

TEST(Signs, AreKnownOfWhatCannotBeBelowZero) {
  for (const char* text : {"abs(x)", "square(x)", "x * x", "abs(x) * square(x)", "exp(x)",
                           "maximum(x, 0)", "maximum(-1.0, abs(x))", "sqrt(x)", "sigmoid(x)"}) {
    for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
      EXPECT_TRUE(claimed(text, dtype)) << text << " of " << name(dtype);
    }
  }
  EXPECT_TRUE(claimed("x * x + 0 * x", DType::u8)) << "nothing unsigned is";
  EXPECT_TRUE(claimed("(x - 7) * 1.0", DType::u16));
  EXPECT_TRUE(claimed("maximum(x, 0)", DType::i32));
  EXPECT_TRUE(claimed("abs(maximum(x, 0)) * 1.0", DType::i8));
  EXPECT_TRUE(claimed("abs(x)", DType::c64));
}

TEST(Signs, AreUnknownWhereIntegersWrap) {
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64}) {
    for (const char* text : {"abs(x)", "square(x)", "x * x", "f32(abs(x))", "square(x) * 1.0",
                             "maximum(x, 0) * maximum(y, 0)"}) {
      EXPECT_FALSE(claimed(text, dtype)) << text << " of " << name(dtype);
    }
  }
  for (const char* text : {"square(x)", "x * x", "exp(x)", "sqrt(x)"}) {
    EXPECT_FALSE(claimed(text, DType::c64)) << text << " of c64, which has no order";
  }
}

// A walk of its operands again for each of its uses would never end.
TEST(Signs, TakeOneLookAtEachValue) {
  std::string text = "a = abs(x); ";
  for (int i = 0; i < 200; ++i) text += "a = maximum(a, a * y); ";
  EXPECT_TRUE(claimed(text + "maximum(a, x)", DType::f32));
  EXPECT_FALSE(claimed(text + "minimum(a, x)", DType::f32));
}

}  // namespace
}  // namespace kiln::fusion
