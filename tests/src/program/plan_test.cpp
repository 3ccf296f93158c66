// Plans of random programs over arrays with any strides. Each is executed by the reference
// interpreter kernel by kernel in a real workspace, so that a wrong place gives a wrong number, and
// its kernels are emitted, so that none refuses what the plan gave it. A failure is shown as the
// smallest part of the program that fails.
#include "program/plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/extract.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/partition/workspace.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/text/text.hpp"
#include "tests/src/program/enclosure.hpp"
#include "tests/src/program/plan_cases.hpp"
#include "tests/src/program/random_arguments.hpp"

namespace kiln {
namespace {

using testing::call_of;
using testing::definition_of;
using testing::emit_kernels;
using testing::HostArray;
using testing::PlanCase;
using testing::random_case;
using testing::wrong_bytes;

std::byte* first_of(const HostArray& array) {
  return const_cast<std::byte*>(array.bytes.data()) + array.first;
}

// Runs the plan's steps by the reference, every operand where the plan puts it.
std::vector<HostArray> run_by_reference(const ProgramPlan& plan,
                                        const std::vector<HostArray>& inputs,
                                        std::vector<HostArray> outputs) {
  std::vector<std::byte> workspace(plan.info.workspace_bytes, std::byte{0xcd});
  const auto place = [&](const ProgramOperand& operand) {
    fusion::ReferenceOperand result{nullptr, DType::f32, operand.layout.strides,
                                    operand.layout.offset};
    if (operand.kind == ProgramOperand::Kind::temporary) {
      const ProgramPlan::Temporary& temporary = plan.temporaries[operand.index];
      result.data = workspace.data() + temporary.offset;
      result.dtype = temporary.dtype;
    } else {
      const bool output = operand.kind == ProgramOperand::Kind::output;
      const HostArray& array = output ? outputs[operand.index] : inputs[operand.index];
      result.data = first_of(array);
      result.dtype = array.dtype;
    }
    return result;
  };
  for (const ProgramStep& step : plan.steps) {
    std::vector<Dims> own;
    std::vector<fusion::ReferenceOperand> arguments;
    std::vector<fusion::ReferenceOperand> results;
    for (const ProgramOperand& operand : step.inputs) {
      arguments.push_back(place(operand));
      own.push_back(operand.shape);
    }
    const fusion::TypedGraph& typed = step.kernel->function().graph;
    const bool counts = std::ranges::find(typed.nodes, fusion::Op::iota, &fusion::TypedNode::op) !=
                        typed.nodes.end();
    if (counts && !fusion::works_along_axes(typed)) {
      // It counts through the shape of what it stores, whatever it reads.
      const Dims& shape = step.outputs[0].shape;
      for (std::size_t i = 0; i < own.size(); ++i) {
        arguments[i].strides = fusion::broadcast_strides(own[i], arguments[i].strides, shape);
      }
      for (const ProgramOperand& operand : step.outputs) results.push_back(place(operand));
      fusion::evaluate(typed, shape, arguments, results);
      continue;
    }
    const fusion::ShapedGraph graph = fusion::shape_graph(typed, own, "step");
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      results.push_back(place(step.outputs[i]));
      // Axes of one element in front are the plan's, not the graph's.
      const std::size_t rank = graph.shapes[graph.graph.outputs[i]].size();
      const std::span<const std::int64_t> strides(results[i].strides);
      results[i].strides = Dims(strides.subspan(strides.size() - rank));
    }
    fusion::evaluate_arrays(graph.graph, graph.shapes, arguments, results);
  }
  return outputs;
}

// What is wrong with the plan of a case, or nothing.
std::string wrong(const PlanCase& one) {
  const Definition definition = definition_of(one.graph, one.rounding);
  CallTypes call = call_of(one);
  std::mt19937_64 random(one.seed);
  std::vector<HostArray> outputs;
  const ProgramPlan natural = plan_program(definition, call);
  for (std::size_t i = 0; i < natural.output_shapes.size(); ++i) {
    const DType dtype = natural.output_dtypes[i];
    outputs.push_back(testing::with_random_layout(dtype, natural.output_shapes[i], random));
    call.outputs.push_back({dtype, natural.output_shapes[i], outputs.back().strides});
  }
  if (std::string bytes = wrong_bytes(definition, call); !bytes.empty()) return bytes;
  const ProgramPlan plan = plan_program(definition, call);
  try {
    if (one.seed % 3 == 0) emit_kernels(plan, call);
  } catch (const Error& error) {
    return fmt::format("a kernel is refused: {}", error.what());
  }
  const std::vector<HostArray> got = run_by_reference(plan, one.inputs, outputs);

  std::vector<fusion::ArgumentType> types;
  std::vector<Dims> shapes;
  for (const HostArray& input : one.inputs) {
    types.push_back({input.dtype, false, false});
    shapes.push_back(input.shape);
  }
  const fusion::ShapedGraph whole = fusion::shape_graph(
      fusion::infer(one.graph, types, {}, one.rounding, "reference"), shapes, "reference");
  const auto expected = testing::enclose(whole, one.inputs, definition.options, DeviceType::cpu);
  testing::Compared compared;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string text = testing::outside(expected[i], got[i], compared);
    if (!text.empty()) return fmt::format("output {}: {}", i, text);
  }
  return {};
}

// The part of a program that computes one of its values.
PlanCase part_of(const PlanCase& whole, fusion::NodeId value) {
  fusion::Graph graph = whole.graph;
  graph.add_output(value);
  const std::size_t last = graph.outputs().size() - 1;
  fusion::Extract part = fusion::extract(graph, std::span(&last, 1));
  PlanCase result{std::move(part.graph), {}, whole.rounding, whole.seed};
  for (const std::size_t i : part.arguments) result.inputs.push_back(whole.inputs[i]);
  return result;
}

std::string shrunk(const PlanCase& whole) {
  for (fusion::NodeId id = 0; id < whole.graph.nodes().size(); ++id) {
    if (whole.graph[id].arity == 0) continue;
    const PlanCase part = part_of(whole, id);
    if (wrong(part).empty()) continue;
    std::string text = fusion::to_text(part.graph);
    for (const HostArray& input : part.inputs) {
      text += fmt::format("; {}{}@{}", name(input.dtype), fusion::to_string(input.shape),
                          fusion::to_string(input.strides));
    }
    return text;
  }
  return "only the whole program fails: " + fusion::to_text(whole.graph);
}

TEST(ProgramPlan, GivesTheSameNumbersInItsWorkspace) {
  for (std::uint64_t seed = 100; seed < 400; ++seed) {
    const PlanCase one = random_case(seed, 10 + seed % 7 * 12);
    const std::string what = wrong(one);
    ASSERT_EQ(what, "") << "seed " << seed << ": " << shrunk(one);
  }
}

// Kernels that run along an axis read no packed numbers: those lie one in each byte for them,
// whatever else reads them and wherever they lie.
TEST(ProgramPlan, HasAKernelForWhatRunsBesidePackedNumbers) {
  for (std::uint64_t number = 0; number < 300; ++number) {
    const std::uint64_t seed = 3 * number;  // all of their kernels are emitted
    const PlanCase one = random_case(seed, 4 + number % 5 * 4, true);
    const std::string what = wrong(one);
    ASSERT_EQ(what, "") << "seed " << seed << ": " << shrunk(one);
  }
}

PlanCase packed_case(const std::string& text, DType dtype, std::uint64_t seed) {
  PlanCase one{fusion::parse(text), {}, seed % 2 == 0 ? Rounding::once : Rounding::each, 3 * seed};
  testing::RandomProgram types;
  types.dtypes.assign(one.graph.arguments().size(), dtype);
  types.shapes.assign(one.graph.arguments().size(), {6, 10});
  one.inputs = testing::random_arguments(types, seed);
  return one;
}

TEST(ProgramPlan, ReadsPackedNumbersInEveryWayBesideWhatRuns) {
  for (const char* text :
       {"t = cummax(a, -1); bool(c), t, a / (c + 1)", "cumsum(a, 0), a + c",
        "cumsum(a * c, -1) + c", "cumsum(a[::-1], 0), c[:, ::-1] + 1", "concat(0, cumsum(a, 0), c)",
        "s = cumsum(a, 1); u4(s), s * c", "cumprod(a, 0) + max(c, 1)",
        "cumsum(cumsum(a, 0), 1) + f32(c)", "cummax(transpose(a), 0) * transpose(c)",
        "cumsum(concat(1, a, c), 1)", "b = bitcast(a, i4); cumsum(b, 0), b + c, cumsum(c, 0)",
        "cumsum(bitcast(bitcast(a, i4), u4)[1:, ::2], 1)", "max(bitcast(a, i4), 1) + a * c",
        "cumsum(bitcast(a, f4e2m1), 0)", "cummax(bitcast(a, u4) + bitcast(c, u4), 0)"}) {
    for (const DType dtype : {DType::u4, DType::i4, DType::f4e2m1}) {
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        const PlanCase one = packed_case(text, dtype, seed);
        ASSERT_EQ(wrong(one), "") << text << " of " << name(dtype) << ", seed " << seed;
      }
    }
  }
}

// With a thousand operations there are hundreds of temporaries in few places.
TEST(ProgramPlan, KeepsApartWhatLivesTogetherInLargePrograms) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const PlanCase one = random_case(seed, 1000);
    const Definition definition = definition_of(one.graph, one.rounding);
    const ProgramPlan plan = plan_program(definition, call_of(one));
    std::vector<fusion::Lifetime> lives(plan.temporaries.size(), {0, plan.steps.size(), 0});
    for (std::size_t k = 0; k < plan.steps.size(); ++k) {
      for (const auto* operands : {&plan.steps[k].inputs, &plan.steps[k].outputs}) {
        for (const ProgramOperand& operand : *operands) {
          if (operand.kind != ProgramOperand::Kind::temporary) continue;
          fusion::Lifetime& life = lives[operand.index];
          life.first = std::min(life.first, k);
          life.last = std::max(life.last, k);
        }
      }
    }
    for (std::size_t i = 0; i < lives.size(); ++i) {
      const ProgramPlan::Temporary& a = plan.temporaries[i];
      EXPECT_LE(a.offset + a.bytes, plan.info.workspace_bytes);
      for (std::size_t k = 0; k < i; ++k) {
        const ProgramPlan::Temporary& b = plan.temporaries[k];
        const bool together = lives[i].first <= lives[k].last && lives[k].first <= lives[i].last;
        const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
        // A kernel may store where it reads for the last time.
        const bool in_turn = lives[i].first == lives[k].last || lives[k].first == lives[i].last;
        const bool same = a.offset == b.offset && a.bytes == b.bytes && a.dtype == b.dtype;
        EXPECT_TRUE(apart || !together || (in_turn && same))
            << "seed " << seed << ", temporaries " << k << ", " << i;
      }
    }
    EXPECT_GT(lives.size(), 10u) << "seed " << seed;
    EXPECT_EQ(wrong(one), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace kiln
