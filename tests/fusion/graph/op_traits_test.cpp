// What the op table claims of each op beside its bounds: that rows are complete, and that claims of
// order, errors, and what an op does to equal operands hold in the reference interpreter. Claims of
// signs are checked in signs_test.cpp, bounds by the tests of device code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <vector>

#include "fusion/graph/graph.hpp"
#include "fusion/graph/op.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/operation.hpp"

namespace kiln::fusion {
namespace {

using reference::Value;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<OpInfo> computing_ops() {
  std::vector<OpInfo> ops;
  for (const std::span<const OpInfo> part : {all_ops(), all_reductions()}) {
    std::ranges::copy_if(part, std::back_inserter(ops),
                         [](const OpInfo& op) { return op.arity > 0; });
  }
  return ops;
}

// Of floats, a float.
bool is_real_function(const OpInfo& op) {
  return is_elementwise(op.op) &&
         (op.rule == Rule::same || op.rule == Rule::floating || op.rule == Rule::integral);
}

Value operate(Op op, DType dtype, std::initializer_list<Value> operands) {
  TypedNode node;
  node.op = op;
  node.dtype = dtype;
  node.arity = static_cast<std::uint8_t>(operands.size());
  return reference::operate(node, std::span(operands.begin(), operands.size()), Rounding::once);
}

long double real_of(Op op, std::initializer_list<long double> operands) {
  std::vector<Value> values;
  for (const long double x : operands) values.push_back(reference::from_real(DType::f64, x));
  if (values.size() == 1) return operate(op, DType::f64, {values[0]}).real;
  return operate(op, DType::f64, {values[0], values[1]}).real;
}

TEST(OpTraits, OfARowFitTogether) {
  for (const OpInfo& op : computing_ops()) {
    SCOPED_TRACE(op.name);
    EXPECT_GE(op.cost, 0);
    EXPECT_TRUE(!op.cheap || (op.cost <= kMostCheap && !has_axes(op.op)));
    EXPECT_LE(op.narrow_cost, op.cost);
    EXPECT_EQ(op.combiner.empty(), !has_axes(op.op));
    EXPECT_TRUE(op.order == Order::unknown || (op.arity == 1 && is_real_function(op)));
    EXPECT_TRUE(op.relative_error != RelativeError::dampened || op.arity == 1);
    EXPECT_EQ(op.relative_error == RelativeError::kept_of_one_sign,
              op.op == Op::sum || op.op == Op::mean || op.op == Op::add);
    EXPECT_TRUE(!op.undoes_itself || op.arity == 1);
    EXPECT_TRUE(!op.idempotent || op.arity == 2);
    EXPECT_TRUE(!op.ieee || (op.f32.own == 0.5 && op.f32.hip == 0.5 && op.f64.libm == 0.5));
    EXPECT_TRUE(!op.fast_instruction || op.ieee);
    EXPECT_TRUE(!op.on_bools || op.rule == Rule::same);
    EXPECT_TRUE(!op.on_bools || info(*op.on_bools).arity == op.arity);
    EXPECT_TRUE(!op.c64 || (op.c64->error >= 0 && op.c64->error <= 0.51));
  }
}

// ---- Order -------------------------------------------------------------------------------------

std::vector<long double> ascending_numbers() {
  std::vector<long double> numbers = {0, kInf};
  for (double size = 1e-12; size < 1e12; size *= 1.7) numbers.push_back(size);
  for (double near : {0.5, 1.0, 1.5, 2.0, 2.5, 3.0}) {
    for (double step : {-1e-9, 0.0, 1e-9}) numbers.push_back(near + step);
  }
  for (std::size_t i = numbers.size(); i-- > 0;) numbers.push_back(-numbers[i]);
  std::ranges::sort(numbers);
  return numbers;
}

bool is_increasing(Op op, std::span<const long double> numbers) {
  long double last = -kInf;
  for (const long double x : numbers) {
    const long double result = real_of(op, {x});
    // Where a function is flat, the interpreter's last digits may go up and down.
    const bool smaller = result < last - std::fabs(last) * 1e-15L;
    if (std::isnan(result) || smaller) return false;
    last = std::isinf(result) && result < 0 ? last : result;
  }
  return std::isnan(real_of(op, {std::numeric_limits<double>::quiet_NaN()}));
}

bool is_identity(Op op, std::span<const long double> numbers) {
  return std::ranges::all_of(numbers, [&](long double x) { return real_of(op, {x}) == x; });
}

TEST(OpTraits, OrderIsKnownOfEveryFunctionThatKeepsIt) {
  const std::vector<long double> all = ascending_numbers();
  const std::span<const long double> from_zero(std::ranges::find(all, 0.0L), all.end());
  std::size_t claims = 0;
  for (const OpInfo& op : all_ops()) {
    if (op.arity != 1 || !is_real_function(op) || is_identity(op.op, all)) continue;
    SCOPED_TRACE(op.name);
    EXPECT_EQ(op.order == Order::increasing, is_increasing(op.op, all));
    EXPECT_TRUE(op.order != Order::increasing_from_zero || is_increasing(op.op, from_zero));
    claims += op.order == Order::unknown ? 0 : 1;
  }
  EXPECT_GT(claims, 15u);
}

// ---- Relative errors ---------------------------------------------------------------------------

constexpr long double kChange = 0x1p-20L;

// The largest relative change of `function` of `numbers` when each of those changes by kChange.
long double largest_change(
    std::vector<long double> numbers,
    const std::function<long double(const std::vector<long double>&)>& function) {
  const long double exact = function(numbers);
  long double largest = 0;
  for (std::size_t signs = 0; signs < std::size_t{1} << numbers.size(); ++signs) {
    std::vector<long double> moved = numbers;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      moved[i] *= (signs >> i & 1) != 0 ? 1 + kChange : 1 - kChange;
    }
    const long double change = std::fabs(function(moved) / exact - 1);
    if (!std::isnan(change)) largest = std::max(largest, change);
  }
  return largest;
}

TEST(OpTraits, RelativeErrorsAreNotAmplifiedWhereTheTableSaysSo) {
  const double sizes[] = {1e-6, 0.003, 0.2, 0.9, 1.0, 1.7, 4.0, 30.0, 1e5};
  std::vector<long double> numbers;
  for (const double size : sizes) numbers.insert(numbers.end(), {size, -size});
  std::size_t claims = 0;
  for (const OpInfo& op : all_ops()) {
    const bool claimed = op.relative_error != RelativeError::amplified;
    if (!claimed || op.rule == Rule::convert) continue;
    SCOPED_TRACE(op.name);
    ++claims;
    for (const long double x : numbers) {
      if (op.arity == 1) {
        const auto apply = [&](const auto& given) { return real_of(op.op, {given[0]}); };
        EXPECT_LE(largest_change({x}, apply), kChange * 1.001L) << x;
        continue;
      }
      for (const long double y : numbers) {
        if (op.relative_error == RelativeError::kept_of_one_sign && x * y < 0) continue;
        const auto apply = [&](const auto& given) {
          if (op.arity == 2) return real_of(op.op, {given[0], given[1]});
          const Value yes{DType::boolean, 0, 0, 1, {}};
          return operate(op.op, DType::f64,
                         {yes, reference::from_real(DType::f64, given[0]),
                          reference::from_real(DType::f64, given[1])})
              .real;
        };
        EXPECT_LE(largest_change({x, y}, apply), 2 * kChange * 1.001L) << x << " and " << y;
      }
    }
  }
  EXPECT_GT(claims, 12u);
}

// Of all numbers of a row.
long double reduced(Op op, const std::vector<long double>& numbers) {
  std::vector<double> row(numbers.begin(), numbers.end());
  double result = 0;
  Graph graph;
  graph.add_output(graph.reduce(op, graph.argument("x"), 0));
  const ArgumentType type{DType::f64, false, false};
  const TypedGraph typed = infer(graph, {&type, 1}, {}, Rounding::once, "f");
  const Dims shape{static_cast<std::int64_t>(row.size())};
  const ReferenceOperand argument{row.data(), DType::f64, {1}};
  const ReferenceOperand output{&result, DType::f64, {1}};
  evaluate_arrays(typed, infer_shapes(typed, {&shape, 1}, "f"), {&argument, 1}, {&output, 1});
  return result;
}

TEST(OpTraits, RelativeErrorsOfReductionsAreNotAmplifiedWhereTheTableSaysSo) {
  std::size_t claims = 0;
  for (const OpInfo& op : all_reductions()) {
    if (op.relative_error == RelativeError::amplified) continue;
    SCOPED_TRACE(op.name);
    ++claims;
    const auto apply = [&](const auto& given) { return reduced(op.op, given); };
    EXPECT_LE(largest_change({3, 0.25, 7, 0.001}, apply), kChange * 1.001L);
    if (op.relative_error == RelativeError::kept_of_one_sign) continue;
    EXPECT_LE(largest_change({3, -0.25, -7, 2.9999999}, apply), kChange * 1.001L);
  }
  EXPECT_EQ(claims, 4u);
  EXPECT_GT(largest_change({3, -2.9999}, [](const auto& x) { return reduced(Op::sum, x); }),
            kChange * 100)
      << "terms of two signs cancel";
}

// ---- Equal operands, bools ---------------------------------------------------------------------

std::vector<Value> some_values(DType dtype) {
  std::vector<Value> values;
  if (kind(dtype) == Kind::complex) return {{dtype, 1.5, -2, 0, {}}, {dtype, 0, 3, 0, {}}};
  if (is_floating(dtype)) {
    for (const double x : {0.0, -0.0, 1.0, -2.5, 96.0, -kInf, kInf}) {
      values.push_back(reference::from_real(dtype, x));
    }
    return values;
  }
  for (const int x : {0, 1, 2, 5, 127, 128, 200, -1, -2, -128}) {
    if (dtype == DType::boolean && (x < 0 || x > 1)) continue;
    values.push_back(reference::from_integer(dtype, x));
  }
  return values;
}

bool is_same(const Value& a, const Value& b) {
  if (is_floating(a.dtype) && std::signbit(a.real) != std::signbit(b.real)) return false;
  return a.real == b.real && a.imag == b.imag && a.integer == b.integer;
}

TEST(OpTraits, EqualOperandsAndRepetitionGiveWhatTheTableSays) {
  std::size_t checked = 0;
  for (const OpInfo& op : all_ops()) {
    if (!op.undoes_itself && !op.idempotent) continue;
    for (const DTypeInfo& entry : kDTypes) {
      // Logical operations are on bools alone, whatever they are given; arithmetic is on bools
      // another op.
      const bool is_bool = entry.dtype == DType::boolean;
      if (entry.storage_only || !accepts(op, entry.dtype)) continue;
      if (is_bool ? op.on_bools.has_value() : op.rule == Rule::logical) continue;
      SCOPED_TRACE(std::string(op.name) + " of " + std::string(entry.name));
      for (const Value& x : some_values(entry.dtype)) {
        const Value once =
            op.arity == 1 ? operate(op.op, entry.dtype, {x}) : operate(op.op, entry.dtype, {x, x});
        EXPECT_TRUE(is_same(op.arity == 1 ? operate(op.op, entry.dtype, {once}) : once, x));
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 300u);
}

// A bool says whether a number is zero, so True + True is True.
TEST(OpTraits, ArithmeticOnBoolsIsThatOfNumbersThatAreZeroOrNot) {
  for (const OpInfo& op : all_ops()) {
    if (!op.on_bools) continue;
    for (const int a : {0, 1}) {
      for (const int b : {0, 1}) {
        const Value number = operate(
            op.op, DType::i32,
            {reference::from_integer(DType::i32, a), reference::from_integer(DType::i32, b)});
        const Value boolean = operate(*op.on_bools, DType::boolean,
                                      {reference::from_integer(DType::boolean, a),
                                       reference::from_integer(DType::boolean, b)});
        EXPECT_EQ(number.integer != 0, boolean.integer != 0) << op.name << " " << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace kiln::fusion
