// The text form reads as Python would, says where an error is, has no limit but its nesting, and is
// what the printer writes: parse(to_text(g)) is g.
#include "fusion/text/text.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "tests/support/settings.hpp"

namespace kiln::fusion {
namespace {

using ::testing::HasSubstr;

/// The live nodes in the order in which the outputs need them, so that two graphs that compute the
/// same by the same ops are equal whatever order they were built in.
std::vector<Node> canonical(const Graph& graph, std::vector<NodeId>* outputs = nullptr) {
  constexpr NodeId kNew = ~NodeId{0};
  std::vector<NodeId> number(graph.nodes().size(), kNew);
  std::vector<Node> result;
  for (const NodeId output : graph.outputs()) {
    std::vector<NodeId> stack = {output};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      Node node = graph[id];
      bool ready = number[id] == kNew;
      if (!ready) {
        stack.pop_back();
        continue;
      }
      for (std::size_t i = node.arity; i-- > 0;) {
        if (number[node.operands[i]] != kNew) continue;
        stack.push_back(node.operands[i]);
        ready = false;
      }
      if (!ready) continue;
      for (std::size_t i = 0; i < node.arity; ++i) node.operands[i] = number[node.operands[i]];
      number[id] = static_cast<NodeId>(result.size());
      result.push_back(node);
      stack.pop_back();
    }
    if (outputs) outputs->push_back(number[output]);
  }
  return result;
}

::testing::AssertionResult same_graph(const Graph& a, const Graph& b) {
  std::vector<NodeId> outputs_a;
  std::vector<NodeId> outputs_b;
  if (canonical(a, &outputs_a) != canonical(b, &outputs_b)) {
    return ::testing::AssertionFailure() << "nodes differ";
  }
  if (outputs_a != outputs_b) return ::testing::AssertionFailure() << "outputs differ";
  if (a.arguments() != b.arguments()) return ::testing::AssertionFailure() << "arguments differ";
  if (a.output_names() != b.output_names()) {
    return ::testing::AssertionFailure() << "output names differ";
  }
  return ::testing::AssertionSuccess();
}

/// Both texts mean the same graph.
void expect_same(std::string_view a, std::string_view b) {
  EXPECT_TRUE(same_graph(parse(a), parse(b))) << a << "\n" << b;
}

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "parsed: " << text.substr(0, 100);
  return {};
}

Literal literal_of(std::string_view text) {
  const Graph graph = parse(text);
  const Node& node = graph[graph.outputs()[0]];
  EXPECT_EQ(node.op, Op::constant) << text;
  return {node.literal, node.payload};
}

TEST(Text, BindsOperatorsAsPythonDoes) {
  expect_same("a + b * c", "add(a, mul(b, c))");
  expect_same("a - b - c", "sub(sub(a, b), c)");
  expect_same("a / b // c % d", "remainder(floor_divide(div(a, b), c), d)");
  expect_same("-a ** b", "neg(power(a, b))");
  expect_same("a ** -b ** c", "power(a, neg(power(b, c)))");
  expect_same("-2[0:1]", "neg(2[0:1])");
  expect_same("a ** b ** c", "power(a, power(b, c))");
  expect_same("~a << b & c ^ d | e",
              "bitwise_or(bitwise_xor(bitwise_and(left_shift(bitwise_not(a), b), c), d), e)");
  expect_same("a << b >> c + d", "right_shift(left_shift(a, b), add(c, d))");
  expect_same("not a == b", "logical_not(equal(a, b))");
  expect_same("not a and not b or c", "logical_or(logical_and(logical_not(a), logical_not(b)), c)");
  expect_same("a | b < c", "less(bitwise_or(a, b), c)");
  expect_same("+a - +b", "sub(a, b)");
  expect_same("--a", "neg(neg(a))");
}

TEST(Text, ChainsComparisonsAsPythonDoes) {
  expect_same("a < b", "less(a, b)");
  expect_same("a < b <= c", "logical_and(less(a, b), less_equal(b, c))");
  expect_same("a < b == c != d",
              "logical_and(logical_and(less(a, b), equal(b, c)), not_equal(c, d))");
  expect_same("a + 1 < b * 2 < c", "logical_and(less(a + 1, b * 2), less(b * 2, c))");
  expect_same("(a < b) < c", "less(less(a, b), c)");
  expect_same("not a < b < c", "logical_not(logical_and(less(a, b), less(b, c)))");
}

TEST(Text, ReadsConditionalExpressions) {
  const Graph graph = parse("a if c else b");
  const Node& node = graph[graph.outputs()[0]];
  ASSERT_EQ(node.op, Op::where);
  EXPECT_EQ(graph.arguments(), (std::vector<std::string>{"a", "c", "b"}));
  EXPECT_EQ(graph[node.operands[0]].payload, 1u);
  EXPECT_EQ(graph[node.operands[1]].payload, 0u);
  EXPECT_EQ(graph[node.operands[2]].payload, 2u);
  expect_same("a if c else b if d else e", "a if c else (b if d else e)");
  expect_same("a + 1 if c or d else b", "(a + 1) if (c or d) else b");
}

TEST(Text, ReadsNumbersExactly) {
  EXPECT_EQ(literal_of("0"), Literal::integer(0));
  EXPECT_EQ(literal_of("0x1F"), Literal::integer(31));
  EXPECT_EQ(literal_of("9223372036854775807"), Literal::integer(INT64_MAX));
  EXPECT_EQ(literal_of("9223372036854775808"), Literal::unsigned_integer(1ull << 63));
  EXPECT_EQ(literal_of("18446744073709551615"), Literal::unsigned_integer(UINT64_MAX));
  EXPECT_EQ(literal_of("-9223372036854775808"), Literal::integer(INT64_MIN));
  EXPECT_EQ(literal_of("-0.0"), Literal::floating(-0.0));
  EXPECT_EQ(literal_of("0.1"), Literal::floating(0.1));
  EXPECT_EQ(literal_of(".5"), Literal::floating(0.5));
  EXPECT_EQ(literal_of("5."), Literal::floating(5.0));
  EXPECT_EQ(literal_of("1e-5"), Literal::floating(1e-5));
  EXPECT_EQ(literal_of("1E+5"), Literal::floating(1e5));
  EXPECT_EQ(literal_of("0x1.8p3"), Literal::floating(12.0));
  EXPECT_EQ(literal_of("0x.8p-1"), Literal::floating(0.25));
  EXPECT_EQ(literal_of("inf"), Literal::floating(INFINITY));
  EXPECT_EQ(literal_of("-inf"), Literal::floating(-INFINITY));
  EXPECT_TRUE(std::isnan(literal_of("nan").as_double()));
  EXPECT_EQ(literal_of("True"), Literal::boolean(true));
  EXPECT_EQ(literal_of("False"), Literal::boolean(false));
}

TEST(Text, NamesOutputsAndOrdersArguments) {
  EXPECT_EQ(parse("silu(gate) * up").arguments(), (std::vector<std::string>{"gate", "up"}));
  EXPECT_EQ(parse("a + b").output_names(), std::vector<std::string>{""});
  EXPECT_EQ(parse("t = a + b; y = t * t").output_names(), std::vector<std::string>{"y"});
  EXPECT_EQ(parse("y = a;").output_names(), std::vector<std::string>{"y"});
  const Graph two = parse("s = a + b; d = a - b; s, d, s * d");
  EXPECT_EQ(two.outputs().size(), 3u);
  EXPECT_EQ(two.output_names(), (std::vector<std::string>{"s", "d", ""}));
  EXPECT_EQ(parse("x = x + 1; x * 2").arguments(), std::vector<std::string>{"x"});
  EXPECT_EQ(parse("m = a; m, m").output_names(), (std::vector<std::string>{"m", ""}));
}

TEST(Text, ReadsCasts) {
  const Graph graph = parse("bf16(x) + bitcast(y, u16)");
  const Node& sum = graph[graph.outputs()[0]];
  EXPECT_EQ(graph[sum.operands[0]].op, Op::cast);
  EXPECT_EQ(graph[sum.operands[0]].dtype, DType::bf16);
  EXPECT_EQ(graph[sum.operands[1]].op, Op::bitcast);
  EXPECT_EQ(graph[sum.operands[1]].dtype, DType::u16);
}

TEST(Text, SaysWhereAndWhatIsWrong) {
  struct Case {
    std::string_view text;
    std::string_view place;
    std::string_view message;
  };
  const Case cases[] = {
      {"", "line 1, column 1", "expected a value, found the end"},
      {", x", "line 1, column 1", "expected a value, found ','"},
      {"x, , x", "line 1, column 4", "expected a value, found ','"},
      {"sum(x, y)", "line 1, column 1",
       "axis: expected an integer literal from -32 to 31, got 'y'"},
      {"sum(x, 1.0)", "line 1, column 1", "integer literal from -32 to 31, got 1.0"},
      {"rms_norm(x, exp(x))", "line 1, column 1", "expected a number, got the result of exp"},
      {"reshape(x, y)", "line 1, column 1", "expected integer literals, got 'y'"},
      {"x +", "line 1, column 4", "expected a value, found the end"},
      {"x * (a + )", "line 1, column 10", "expected a value, found ')'"},
      {"x y", "line 1, column 3", "expected an operator, ';' or the end, found 'y'"},
      {"(x", "line 1, column 3", "the ')' that closes '(' of line 1, column 1, found the end"},
      {"exp(x;", "line 1, column 6", "the ')' that closes exp( of line 1, column 1, found ';'"},
      {"x)", "line 1, column 2", "found ')' without '('"},
      {"(x, y)", "line 1, column 3", "expected ')' or an operator, found ','"},
      {"a if b", "line 1, column 7", "expected 'else', found the end"},
      {"(a if b)", "line 1, column 8", "expected 'else', found ')'"},
      {"a else b", "line 1, column 3", "found 'else' without 'if'"},
      {"a if b if c else d else e", "line 1, column 8", "expected 'else', found a second 'if'"},
      {"x + not y", "line 1, column 5", "put 'not ...' in parentheses"},
      {"a; b", "line 1, column 2", "only the last statement may do without a name"},
      {"y = a, b", "line 1, column 6", "an assignment has one value"},
      {"a = b = c", "line 1, column 7", "'==' compares"},
      {"exp = x", "line 1, column 1", "cannot assign to 'exp', which is a function"},
      {"f32 = x", "line 1, column 1", "cannot assign to 'f32', which is a dtype"},
      {"x * silu", "line 1, column 5", "'silu' is a function; write silu(...)"},
      {"x * f16", "line 1, column 5", "'f16' is a dtype; write f16(...)"},
      {"x && y", "line 1, column 3", "'&&' is not an operator; write 'and'"},
      {"x[y]", "line 1, column 3", "expected an integer, ':', '...' or None"},
      {"x\n+ $", "line 2, column 3", "found '$'"},
      {"x + \x01", "line 1, column 5", "found the byte 0x01"},
      {"1_000 * x", "line 1, column 2", "unexpected '_' after the number '1'"},
      {"0x", "line 1, column 1", "expected hex digits after '0x'"},
      {"1e", "line 1, column 3", "expected the digits of an exponent"},
      {"010", "line 1, column 1", "begins with 0"},
      {"1e999", "line 1, column 1", "outside the range of f64"},
      {"18446744073709551616", "line 1, column 1", "above the largest u64"},
      {"-9223372036854775809", "line 1, column 2", "below the smallest i64"},
      {"x + exq(y)", "line 1, column 5", "did you mean 'exp'"},
      {"x + exp(y, z)", "line 1, column 5", "exp"},
      {"f32(x, y)", "line 1, column 1", "the cast f32 takes 1 argument, 2 given"},
      {"bitcast(x)", "line 1, column 1", "bitcast takes a value and a dtype"},
  };
  for (const Case& wrong : cases) {
    const std::string message = error_of(wrong.text);
    EXPECT_THAT(message, HasSubstr(fmt::format("parse: {}: ", wrong.place))) << wrong.text;
    EXPECT_THAT(message, HasSubstr(std::string(wrong.message))) << wrong.text;
  }
}

TEST(Text, MarksThePlaceInALongLine) {
  const std::string text = std::string(500, ' ') + "x + * y" + std::string(500, ' ');
  const std::string message = error_of(text);
  EXPECT_THAT(message, HasSubstr("line 1, column 505"));
  EXPECT_LT(message.size(), 250u);
  const std::size_t mark = message.rfind('^') - message.rfind('\n');
  const std::string excerpt = message.substr(message.find('\n'));
  EXPECT_EQ(excerpt[mark], '*') << message;
}

TEST(Text, HasNoLimitOnLength) {
  std::string sum = "x";
  std::string power = "x";
  std::string negated;
  std::string choice;
  for (int i = 0; i < 10'000; ++i) {
    sum += fmt::format(" + {}", i);
    power += " ** x";
    negated += "-";
    choice += "a if c else ";
  }
  EXPECT_EQ(parse(sum).nodes().size(), 20'001u);
  EXPECT_EQ(parse(power).nodes().size(), 10'001u);
  EXPECT_EQ(parse(negated + "x").nodes().size(), 10'001u);
  EXPECT_EQ(parse(choice + "b").nodes().size(), 10'003u);
  for (const std::string& text : {sum, power, negated + "x", choice + "b"}) {
    const Graph graph = parse(text);
    EXPECT_TRUE(same_graph(parse(to_text(graph)), graph));
  }
  const std::string name(100'000, 'n');
  EXPECT_EQ(parse(name + " * 2").arguments().front(), name);
}

TEST(Text, NestsAThousandDeepAndRefusesMore) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += i % 2 ? "(" : "exp(";
    return text + "x" + std::string(static_cast<std::size_t>(depth), ')');
  };
  EXPECT_EQ(parse(nested(1000)).nodes().size(), 501u);
  EXPECT_THAT(error_of(nested(1001)), HasSubstr("more than 1000 brackets are open"));
  EXPECT_THAT(error_of(nested(100'000)), HasSubstr("more than 1000 brackets are open"));
  EXPECT_THAT(error_of(std::string(100'000, '(')), HasSubstr("more than 1000 brackets are open"));
}

TEST(Text, PrintsFewParentheses) {
  for (const std::string_view text : {"a + b * c",
                                      "(a + b) * c",
                                      "a - (b - c)",
                                      "-a ** b",
                                      "(-a) ** b",
                                      "a ** b ** c",
                                      "(a ** b) ** c",
                                      "not a and b",
                                      "(a < b) == c",
                                      "a // b % c",
                                      "x * -2",
                                      "(-2) ** x",
                                      "x ** -2",
                                      "-(2)",
                                      "-(-2)",
                                      "-2 ** x",
                                      "-2[0:1]",
                                      "(-2)[0:1]",
                                      "x - --0[::2][3:2]",
                                      "x[2]",
                                      "(x + 1)[..., 2]",
                                      "x[:, 2][-1]",
                                      "x[2:3] + 1, -x[2]",
                                      "x - --0[2:3], -0[2][2]",
                                      "t0 = x[2]; t0 * t0",
                                      "f32(x) + 0.1",
                                      "bitcast(x, u16)",
                                      "iota() + iota(u64) * iota(-1) + iota(0, f32)",
                                      "uniform(seed, 3) + normal(seed, 4, iota(0))",
                                      "clip(x, 0, 1)",
                                      "t0 = x + 1; t0 * t0",
                                      "m = a + b; d = a - b; m, d",
                                      "y = exp(x)",
                                      "where(c, a, b)",
                                      "a if c else b",
                                      "(a if c else b) + 1",
                                      "x * 1e-05",
                                      "x * inf",
                                      "x + -nan",
                                      "t0 = x + 1; (t0), t0 * 2",
                                      "x, y",
                                      "a = a; b"}) {
    EXPECT_EQ(to_text(parse(text)), text);
  }
}

TEST(Text, KeepsTheOrderOfArguments) {
  Graph graph;
  const NodeId a = graph.argument("a");
  const NodeId b = graph.argument("b");
  graph.argument("unused");
  const NodeId operands[] = {b, a};
  graph.add_output(graph.apply(Op::sub, operands));
  EXPECT_TRUE(same_graph(parse(to_text(graph)), graph)) << to_text(graph);
}

TEST(Text, KeepsArgumentsThatOutputsAreNamedAfter) {
  Graph graph;
  const NodeId a = graph.argument("a");
  const NodeId b = graph.argument("b");
  const NodeId operands[] = {a, b};
  graph.add_output(graph.apply(Op::sub, operands), "a");
  graph.add_output(a, "b");
  graph.add_output(b, "c");
  graph.add_output(a);
  EXPECT_TRUE(same_graph(parse(to_text(graph)), graph)) << to_text(graph);
}

Literal random_literal(std::mt19937_64& random) {
  constexpr double kSpecial[] = {0.0,      -0.0,      1.0,  0.1,         1e300, -1e-300,
                                 INFINITY, -INFINITY, 1e16, 123456789.0, 0.5,   -2.0};
  switch (random() % 6) {
    case 0: return Literal::boolean(random() % 2);
    case 1: return Literal::integer(static_cast<std::int64_t>(random() % 9) - 4);
    case 2: return Literal::unsigned_integer(random());
    case 3: return Literal::integer(static_cast<std::int64_t>(random()));
    case 4: return Literal::floating(kSpecial[random() % std::size(kSpecial)]);
    default: break;
  }
  double value = 0;
  do {
    value = std::bit_cast<double>(static_cast<std::uint64_t>(random()));
  } while (std::isnan(value) || (value != 0 && !std::isnormal(value)));
  return Literal::floating(value);
}

NodeId random_node(Graph& graph, std::mt19937_64& random, std::vector<NodeId>& pool) {
  static const std::vector<Op> ops = [] {
    std::vector<Op> result;
    for (const OpInfo& entry : all_ops()) {
      if (find_op(entry.name) == entry.op && entry.op != Op::bitcast) result.push_back(entry.op);
    }
    return result;
  }();
  // Mostly recent values, so that chains become long.
  const auto pick = [&] {
    const std::size_t back =
        random() % 4 ? random() % std::min<std::size_t>(pool.size(), 4) : random() % pool.size();
    return pool[pool.size() - 1 - back];
  };
  const auto dtype = [&] { return kDTypes[random() % kDTypes.size()].dtype; };
  switch (random() % 12) {
    case 0: return graph.constant(random_literal(random));
    case 1: return graph.cast(pick(), dtype());
    case 2: return graph.bitcast(pick(), dtype());
    case 3: {
      constexpr DType kCounting[] = {DType::i32, DType::u64, DType::i64, DType::f32};
      constexpr std::int64_t kAxes[] = {kAllAxes, 0, 1, -1};
      return graph.iota(kAxes[random() % 4], kCounting[random() % 4]);
    }
    default: break;
  }
  const Op op = ops[random() % ops.size()];
  std::vector<NodeId> operands;
  for (int i = 0; i < info(op).arity; ++i) operands.push_back(pick());
  return graph.apply(op, operands);
}

TEST(Text, PrintsWhatItReads) {
  const std::uint64_t seed = testing::random_seed();
  for (int round = 0; round < 3000; ++round) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(round));
    Graph graph;
    std::vector<NodeId> pool;
    const auto arguments = 1 + random() % 4;
    for (std::size_t i = 0; i < arguments; ++i) {
      pool.push_back(graph.argument(fmt::format("{}{}", random() % 2 ? "a" : "t", i)));
    }
    const auto count = random() % (round % 100 ? 40 : 1000);
    for (std::size_t i = 0; i < count; ++i) pool.push_back(random_node(graph, random, pool));
    const auto outputs = 1 + random() % 3;
    for (std::size_t i = 0; i < outputs; ++i) {
      const NodeId value = pool[pool.size() - 1 - random() % std::min<std::size_t>(pool.size(), 6)];
      graph.add_output(value, random() % 3 ? fmt::format("y{}", i) : "");
    }
    const std::string text = to_text(graph);
    ASSERT_TRUE(same_graph(parse(text), graph)) << "seed " << seed + round << ": " << text;
    ASSERT_EQ(to_text(parse(text)), text) << "seed " << seed + round;
  }
}

TEST(Text, PrintsSharedValuesInLinearLength) {
  Graph graph;
  NodeId value = graph.argument("x");
  for (int i = 0; i < 2000; ++i) {
    const NodeId twice[] = {value, value};
    value = graph.apply(i % 2 ? Op::add : Op::maximum, twice);
  }
  graph.add_output(value);
  const std::string text = to_text(graph);
  EXPECT_LT(text.size(), 2000u * 40);
  EXPECT_TRUE(same_graph(parse(text), graph));
}

TEST(Text, PrintsADeepGraphWithinTheNestingLimit) {
  Graph graph;
  NodeId value = graph.argument("x");
  for (int i = 0; i < 20'000; ++i) value = graph.apply(Op::sin, {&value, 1});
  graph.add_output(value);
  EXPECT_TRUE(same_graph(parse(to_text(graph)), graph));
}

// Each result writes the call's list: values of its own in it would double with every call.
TEST(Print, NamesWhatCallsOfSeveralResultsAreGiven) {
  Graph graph;
  std::vector<NodeId> values{graph.argument("x"), graph.argument("y")};
  for (int i = 0; i < 60; ++i) {
    values = graph.custom_call({fmt::format("two{}", i), {}, {}, nullptr}, values, 2);
  }
  graph.add_output(graph.apply(Op::add, values));
  EXPECT_EQ(to_text(graph).substr(0, 68),
            "t0 = two0(x, y); t1 = two0.1(x, y); t2 = two1(t0, t1); t3 = two1.1(t");
  EXPECT_LT(to_text(graph).size(), 60u * 60);
}

}  // namespace
}  // namespace kiln::fusion
