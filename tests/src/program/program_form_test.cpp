// Forms of classes against plans that are made for the sizes: wherever a form holds, its numbers
// are those of the plan, whatever sizes it was made of. From few elements to more than caches hold,
// so that what is fused and split differs.
#include "program/program_form.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "call/function_impl.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/text/text.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/error.hpp"
#include "kiln/program.hpp"
#include "program/memory.hpp"
#include "tests/support/random_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

/// A program; in shapes -1, -2 and -3 are the first sizes, and an output has the shape that the
/// program gives it.
struct SizedProgram {
  std::string_view text;
  std::vector<Dims> inputs;
};

const SizedProgram kPrograms[] = {
    {"(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * w", {{-1, -2}, {-2}}},
    {"y = x / sum(x, 0); y / sum(y, 1)", {{-1, -2}}},
    {"sum(x * y, 0, 2) + mean(y, 0, 2)", {{-1, -2, -3}, {-1, -2, -3}}},
    {"a = exp(x) * y; a + transpose(transpose(a) / sum(a)), max(a, 0)", {{-1, -2}, {-1, -2}}},
    {"t = transpose(x, 1, 0, 2); reshape(t * 2 + y, 0, -1) / 3", {{-1, -2, -3}, {-2, 1, -3}}},
    {"concat(0, x * 2, y + 1) / (1 + sum(x, 0))", {{-1, -2}, {-3, -2}}},
    {"c = concat(1, x, y); c / sum(c, 1), c * 2", {{-1, -2}, {-1, -3}}},
    {"x[1:, :-1] + x[:-1, 1:] * max(x, 0)[:, 1:]", {{-1, -2}}},
    {"s = softmax(x * 2, -1); t = softmax(s, 0); t - mean(t, -1) + s", {{-1, -2}}},
    {"u = x * y; v = u + 1; sum(u, 0) * sum(v, 1), sum(u * v)", {{-1, -2}, {-2}}},
    {"argmax(x, -1), argmin(x * y, 0), cumsum(x, 0) + 1", {{-1, -2}, {-1, -2}}},
    {"m = max(log(abs(x) + 1), -1); m + mean(x, -1) + sum(exp(x - m), -1)", {{-1, -2}}},
    {"sum(x[:, :, None] * y, 1)", {{-1, -2}, {-2, -3}}},
    {"h = x * 2 + 1; g = transpose(h); g[1:], sum(h, 1), h", {{-1, -2}}},
    {"reshape(x, -1) * 2 + reshape(y, -1)", {{-1, -2}, {-1, -2}}},
    {"f32(iota(0)) * x, uniform(7, 0) + x, sum(x * f32(iota(-1)), -1)", {{-1, -2}}},
    {"any(x > 1, 0), count_nonzero(x, 1), prod(x, -1)", {{-1, -2}}},
};

/// How operands of several axes lie; bit i stands for operand i, inputs first.
struct Order {
  std::int64_t gap = 0;      ///< after each row, where there is one
  std::uint64_t gaps = ~0u;  ///< which ones have gaps
  std::uint64_t turned = 0;  ///< which ones are in the order of Fortran

  Dims strides(std::size_t operand, Dims shape) const {
    if (shape.size() < 2) return contiguous_strides(shape);
    const bool is_turned = (turned >> operand & 1) != 0;
    if (is_turned) std::ranges::reverse(shape);
    if ((gaps >> operand & 1) != 0) shape[shape.size() - 1] += gap;
    Dims strides = contiguous_strides(shape);
    if (is_turned) std::ranges::reverse(strides);
    return strides;
  }
};

/// A call of a program with arrays of these shapes; outputs have those that the program gives them.
struct SizedCall {
  SizedCall(const Definition& definition, std::span<const Dims> shapes,
            std::span<const DType> dtypes, const Order& order) {
    std::size_t operand = 0;
    const auto view = [&](DType dtype, const Dims& shape) {
      const std::uintptr_t at = (std::uintptr_t{operand + 1} << 40) + (1 << 20);
      return View(reinterpret_cast<void*>(at), dtype, shape, order.strides(operand++, shape));
    };
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      inputs.emplace_back(view(dtypes.empty() ? DType::f32 : dtypes[i], shapes[i]));
    }
    const ProgramPlan natural = plan_program(definition, types_of({stream, inputs, {}}));
    for (std::size_t i = 0; i < natural.output_shapes.size(); ++i) {
      outputs.push_back(view(natural.output_dtypes[i], natural.output_shapes[i]));
    }
  }
  Call call() const { return {stream, inputs, outputs}; }

  Stream stream;
  std::vector<Argument> inputs;
  std::vector<View> outputs;
};

std::vector<Dims> shapes_of(const SizedProgram& program, std::span<const std::int64_t> sizes) {
  std::vector<Dims> shapes = program.inputs;
  for (Dims& shape : shapes) {
    for (std::int64_t& size : shape) {
      if (size < 0) size = sizes[static_cast<std::size_t>(-size - 1)];
    }
  }
  return shapes;
}

void expect_same(const ProgramClass& form, const ProgramNumbers& at, const ProgramPlan& plan,
                 const CallTypes& types) {
  EXPECT_EQ(at.workspace, plan.info.workspace_bytes);
  const TemporaryPlaces places = find_places(plan, true);
  for (std::size_t i = 0; i < plan.temporaries.size(); ++i) {
    EXPECT_EQ(at.offsets[places.of[i]], plan.temporaries[i].offset) << "temporary " << i;
  }
  const std::vector<KernelSpec> specs = step_specs(plan, types);
  ASSERT_EQ(form.steps.size(), specs.size());
  for (std::size_t k = 0; k < specs.size(); ++k) {
    const ProgramClass::Step& step = form.steps[k];
    EXPECT_EQ(step.spec.function.expression, specs[k].function.expression);
    EXPECT_EQ(step.spec.function.splits, specs[k].function.splits);
    ASSERT_EQ(step.shape.size(), specs[k].shape.size());
    ASSERT_EQ(step.operands.size(), specs[k].operands.size());
    for (std::size_t axis = 0; axis < step.shape.size(); ++axis) {
      EXPECT_EQ(at.numbers[step.shape[axis]], specs[k].shape[axis]);
    }
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const ProgramClass::Operand& own = step.operands[i];
      const fusion::Operand& operand = specs[k].operands[i];
      EXPECT_EQ(own.fixed.dtype, operand.dtype);
      for (std::size_t axis = 0; axis < step.shape.size(); ++axis) {
        EXPECT_EQ(at.numbers[own.strides[axis]], operand.strides[axis])
            << "kernel " << k << ", operand " << i << ", axis " << axis;
      }
      EXPECT_EQ(at.numbers[own.split_stride], operand.split_stride);
      EXPECT_EQ(at.numbers[own.place], operand.place.element);
      if (own.temporary < 0 || operand.iota) continue;
      const std::int64_t begin =
          at.numbers[own.bytes] +
          static_cast<std::int64_t>(at.offsets[static_cast<std::size_t>(own.temporary)]);
      EXPECT_EQ(static_cast<std::uint64_t>(begin), operand.address);
    }
  }
}

// Whether a form that was made for one call holds for another: then its numbers are those of that
// call's plan.
bool holds(const Definition& definition, const ProgramClass& form, const SizedCall& made_for,
           const SizedCall& call) {
  ProgramClassKey key(call.call());
  ProgramClassKey own(made_for.call());
  if (!key.has_class() || !std::ranges::equal(key.words(0), own.words(0))) return false;
  ProgramNumbers at;
  if (!evaluate(form, key, at)) return false;
  const CallTypes types = types_of(call.call());
  expect_same(form, at, plan_program(definition, types), types);
  return true;
}

TEST(ProgramForm, HoldsWhereItsNumbersAreThoseOfThePlan) {
  std::mt19937 random(17);
  const auto size = [&] {
    return static_cast<std::int64_t>(
        std::exp2(std::uniform_real_distribution<double>(1, 12.5)(random)));
  };
  std::string seldom;  // programs of which that is hardly tested
  for (const SizedProgram& program : kPrograms) {
    const Function function = parse("f", program.text);
    const Definition& definition = function.impl().definition;
    int made = 0;
    int held = 0;
    for (int turn = 0; turn < 12; ++turn) {
      const bool three = program.inputs[0].size() == 3;
      const std::int64_t limit = three ? 300 : 1 << 13;
      const auto draw = [&] { return std::min(limit, size()); };
      const std::int64_t first_sizes[] = {draw(), draw(), draw()};
      // Rows with gaps between them in every third call, columns that lie one after the other, with
      // gaps or without, in others.
      const bool gaps = turn % 3 == 2;
      const bool turned = turn % 4 == 1;
      const SizedCall first(definition, shapes_of(program, first_sizes), {},
                            {gaps ? 8 : 0, ~0u, turned ? ~0u : 0});
      const ProgramClassKey key(first.call());
      const auto form = make_form(definition, first.call(), key,
                                  plan_program(definition, types_of(first.call())));
      if (form->is_empty) continue;
      ++made;
      for (int other = 0; other < 40; ++other) {
        const std::int64_t sizes[] = {draw(), draw(), draw()};
        const std::int64_t gap = gaps || turned ? 4 * (other % 4) : 0;
        const SizedCall second(definition, shapes_of(program, sizes), {},
                               {gap, ~0u, turned ? ~0u : 0});
        if (holds(definition, *form, first, second)) ++held;
        if (::testing::Test::HasFailure()) {
          FAIL() << fmt::format("{}\nmade for {}, {}, {}, of {}, {}, {}", program.text,
                                first_sizes[0], first_sizes[1], first_sizes[2], sizes[0], sizes[1],
                                sizes[2]);
        }
      }
    }
    if (made < 2 || held < 4) seldom += fmt::format("{}: {} {}\n", program.text, made, held);
  }
  EXPECT_EQ(seldom, "");
}

std::string text_of(const std::vector<Argument>& arguments) {
  std::string text;
  for (const Argument& argument : arguments) {
    text += fusion::to_string(argument.view().shape()) + " by " +
            fusion::to_string(argument.view().strides()) + " ";
  }
  return text;
}

// What nobody thought of.
TEST(ProgramForm, OfRandomProgramsHoldsWhereItsNumbersAreThoseOfThePlan) {
  const std::uint64_t seed = testing::setting("KILN_TEST_SEED", 1);
  const auto draws = static_cast<int>(testing::setting("KILN_TEST_DRAWS", 60));
  std::mt19937_64 random(seed);
  int held = 0;
  for (int draw = 0; draw < draws; ++draw) {
    const testing::RandomProgram program =
        testing::random_program(seed + static_cast<std::uint64_t>(draw),
                                {.nodes = 4 + random() % 16, .floats = draw % 4 != 0});
    const Definition definition{"f", program.graph, {}, fusion::to_text(program.graph)};
    // Other numbers for the sizes of the program's arrays.
    const auto shapes = [&] {
      std::map<std::int64_t, std::int64_t> sizes{{0, 0}, {1, 1}};
      std::vector<Dims> other = program.shapes;
      for (Dims& shape : other) {
        for (std::int64_t& size : shape) {
          const double power = std::uniform_real_distribution<double>(1, 11)(random);
          size = sizes.try_emplace(size, static_cast<std::int64_t>(std::exp2(power))).first->second;
        }
      }
      return other;
    };
    const auto call_of = [&](const std::vector<Dims>& given, const Order& order) {
      std::optional<SizedCall> call;
      try {
        call.emplace(definition, given, program.dtypes, order);
      } catch (const Error&) {  // the program names sizes
      }
      return call;
    };
    const Order order{draw % 3 * 8, random(), draw % 2 == 0 ? 0 : random()};
    const auto first = call_of(random() % 2 == 0 ? program.shapes : shapes(), order);
    if (!first || !ProgramClassKey(first->call()).has_class()) continue;
    const auto form = make_form(definition, first->call(), ProgramClassKey(first->call()),
                                plan_program(definition, types_of(first->call())));
    for (int other = 0; other < 30 && !form->is_empty; ++other) {
      Order other_gaps = order;
      if (order.gap != 0 || order.turned != 0) other_gaps.gap = 4 * (other % 5);
      const auto second = call_of(shapes(), other_gaps);
      if (second && holds(definition, *form, *first, *second)) ++held;
      if (::testing::Test::HasFailure()) {
        FAIL() << definition.expression << "\nmade for " << text_of(first->inputs) << ", of "
               << text_of(second->inputs) << "\nof seed " << seed << ", program " << draw;
      }
    }
  }
  EXPECT_GT(held, draws) << "seed " << seed;
}

TEST(FormulaFinder, FindsProductsQuotientsAndSumsOfTwo) {
  const std::vector<std::vector<std::int64_t>> sizes = {
      {8, 6, 100}, {24, 10, 116}, {16, 14, 132}, {40, 22, 100}, {48, 26, 164}};
  FormulaFinder finder(sizes, 2);
  const std::vector<std::int64_t> others = {64, 3, 300};
  const auto value = [&](const auto& of) -> std::int64_t {
    std::vector<std::int64_t> values;
    for (const auto& sample : sizes) values.push_back(of(sample));
    const auto found = finder.find(values);
    if (!found) return -2;
    std::int64_t result = 0;
    return finder.formulas()[*found].evaluate(others, result) ? result : -1;
  };
  EXPECT_EQ(value([](const auto&) { return 7; }), 7);
  EXPECT_EQ(value([](const auto& s) { return 4 * s[0] * s[1]; }), 4 * 64 * 3);
  EXPECT_EQ(value([](const auto& s) { return s[0] / 8; }), 8);
  EXPECT_EQ(value([](const auto& s) { return s[1] / 2; }), -1) << "3 is no multiple of 2";
  EXPECT_EQ(value([](const auto& s) { return s[0] + s[1]; }), 67);
  EXPECT_EQ(value([](const auto& s) { return (s[0] - 2) / 2; }), 31);
  EXPECT_EQ(value([](const auto& s) { return -3 * s[2]; }), -900);
  EXPECT_EQ(value([](const auto& s) { return s[0] % 5; }), -2);
  EXPECT_EQ(value([](const auto& s) { return s[0] * s[1] + s[0] + 1; }), -2) << "three products";
}

TEST(SizePolynomial, SignsThatHoldForAllSizes) {
  using Terms = SizePolynomial;
  EXPECT_EQ(known_sign(Terms{{{0, 1}, 4}}, 2), 1);
  EXPECT_EQ(known_sign(Terms{{{0, 1}, 1}, {{0}, -1}}, 2), 1);             // a b - a
  EXPECT_EQ(known_sign(Terms{{{0, 1}, -1}, {{1}, 1}}, 2), -1);            // b - a b
  EXPECT_EQ(known_sign(Terms{{{0, 1}, 1}, {{0}, -1}, {{1}, -1}}, 2), 0);  // 0 for 2 and 2
  EXPECT_EQ(known_sign(Terms{{{0}, 1}, {{1}, -1}}, 2), 0);
  EXPECT_EQ(known_sign(Terms{{{2}, 1}}, 2), 0) << "a stride may be negative";
}

}  // namespace
}  // namespace kiln
