// Plans of random programs: elementwise ops, broadcasts, reductions, shape ops, several outputs,
// over arrays with any strides. Each is executed by the reference interpreter kernel by kernel in a
// real workspace, so that a wrong place gives a wrong number. A failure is shown as the smallest
// part of the program that fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fusion/broadcast.hpp"
#include "fusion/extract.hpp"
#include "fusion/reference_arrays.hpp"
#include "fusion/text.hpp"
#include "program_plan.hpp"
#include "tests/program/random_graph.hpp"
#include "tests/support/arrays.hpp"

namespace kiln {
namespace {

using testing::HostArray;

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
    const fusion::ShapedGraph graph =
        fusion::shape_graph(*step.function->impl().definition.typed, own, "step");
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

// In C order, or with its axes in another order, or with room between rows.
HostArray with_random_layout(DType dtype, const Dims& shape, std::mt19937_64& random) {
  Dims strides(shape.size(), 0);
  std::vector<std::size_t> order(shape.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  std::int64_t step = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = step;
    step = step * shape[order[k]] + static_cast<std::int64_t>(random() % 3 == 0);
  }
  return HostArray::strided(dtype, shape, strides);
}

struct Case {
  fusion::Graph graph;
  std::vector<HostArray> inputs;
  std::uint64_t seed = 0;
};

Case random_case(std::uint64_t seed, std::size_t nodes) {
  testing::RandomGraph made = testing::random_graph(seed, nodes, true, true);
  std::mt19937_64 random(seed);
  Case result{std::move(made.graph), {}, seed};
  for (const Dims& shape : made.arguments) {
    HostArray array = with_random_layout(DType::i64, shape, random);
    for (std::size_t i = 0; i < array.bytes.size(); i += 8)
      array.bytes[i] = std::byte(random() % 5);
    result.inputs.push_back(std::move(array));
  }
  return result;
}

ProgramCall call_of(const Case& one) {
  ProgramCall call;
  for (const HostArray& input : one.inputs) {
    call.arguments.push_back({input.dtype, false, false});
    call.arrays.push_back({input.dtype, input.shape, input.strides});
  }
  return call;
}

Definition definition_of(const fusion::Graph& graph) {
  Definition definition;
  definition.name = "random";
  definition.graph = graph;
  return definition;
}

// The number of the first output that is wrong.
std::optional<std::size_t> wrong_output(const Case& one) {
  const Definition definition = definition_of(one.graph);
  ProgramCall call = call_of(one);
  std::mt19937_64 random(one.seed);
  std::vector<HostArray> outputs;
  for (const Dims& shape : plan_program(definition, call).output_shapes) {
    outputs.push_back(with_random_layout(DType::i64, shape, random));
    call.outputs.push_back({DType::i64, shape, outputs.back().strides});
  }
  const ProgramPlan plan = plan_program(definition, call);
  EXPECT_LE(plan.info.workspace_bytes, op_by_op_workspace(definition, call));
  EXPECT_GE(plan.info.bytes, plan.info.lower_bound);
  const std::vector<HostArray> got = run_by_reference(plan, one.inputs, outputs);

  std::vector<fusion::ArgumentType> types;
  std::vector<Dims> shapes;
  std::vector<fusion::ReferenceOperand> arguments;
  for (const HostArray& input : one.inputs) {
    types.push_back({input.dtype, false, false});
    shapes.push_back(input.shape);
    arguments.push_back({first_of(input), input.dtype, input.strides, 0});
  }
  const fusion::ShapedGraph whole = fusion::shape_graph(
      fusion::infer(one.graph, types, {}, Rounding::once, "reference"), shapes, "reference");
  std::vector<fusion::ReferenceOperand> results;
  for (const HostArray& output : outputs) {
    results.push_back({first_of(output), output.dtype, output.strides, 0});
  }
  fusion::evaluate_arrays(whole.graph, whole.shapes, arguments, results);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (got[i].bytes != outputs[i].bytes) return i;
  }
  return std::nullopt;
}

// The part of a program that computes one of its values.
Case part_of(const Case& whole, fusion::NodeId value) {
  fusion::Graph graph = whole.graph;
  graph.add_output(value);
  const std::size_t last = graph.outputs().size() - 1;
  fusion::Extract part = fusion::extract(graph, std::span(&last, 1));
  Case result{std::move(part.graph), {}, whole.seed};
  for (const std::size_t i : part.arguments) result.inputs.push_back(whole.inputs[i]);
  return result;
}

std::string shrunk(const Case& whole) {
  for (fusion::NodeId id = 0; id < whole.graph.nodes().size(); ++id) {
    if (whole.graph[id].arity == 0) continue;
    const Case part = part_of(whole, id);
    if (!wrong_output(part)) continue;
    std::string text = fusion::to_text(part.graph);
    for (const HostArray& input : part.inputs) {
      text +=
          fmt::format("; {}@{}", fusion::to_string(input.shape), fusion::to_string(input.strides));
    }
    return text;
  }
  return "only the whole program fails: " + fusion::to_text(whole.graph);
}

TEST(ProgramPlan, GivesTheSameNumbersInItsWorkspace) {
  for (std::uint64_t seed = 100; seed < 400; ++seed) {
    const Case one = random_case(seed, 10 + seed % 7 * 12);
    const auto wrong = wrong_output(one);
    ASSERT_FALSE(wrong) << "seed " << seed << ", output " << *wrong << ": " << shrunk(one);
  }
}

TEST(ProgramPlan, NeedsNoMoreRoomThanOpByOpOnLargeGraphs) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Case one = random_case(seed, 300);
    const Definition definition = definition_of(one.graph);
    const ProgramCall call = call_of(one);
    const ProgramPlan plan = plan_program(definition, call);
    EXPECT_LE(plan.info.workspace_bytes, op_by_op_workspace(definition, call)) << "seed " << seed;
    EXPECT_LE(plan.info.bytes, plan.info.op_by_op_bytes) << "seed " << seed;
  }
}

TEST(SinkViews, ComputesBehindAViewInsteadOfStoring) {
  const auto plan_of = [](const std::string& text, const std::vector<Dims>& shapes) {
    ProgramCall call;
    for (const Dims& shape : shapes) {
      call.arguments.push_back({DType::bf16, false, false});
      call.arrays.push_back({DType::bf16, shape, contiguous_strides(shape)});
    }
    return plan_program(definition_of(fusion::parse(text)), call);
  };
  const ProgramPlan pairs =
      plan_of("h = x * w + 1.0; h[..., 0::2] * h[..., 1::2]", {{8, 64}, {64}});
  EXPECT_EQ(pairs.steps.size(), 1u);
  EXPECT_EQ(pairs.info.workspace_bytes, 0u);
  // A norm before a rotation: only the scale of each row is stored.
  const ProgramPlan norm =
      plan_of("h = rms_norm(x, w, 1e-5); h[..., 0::2] * h[..., 1::2]", {{8, 64}, {64}});
  EXPECT_EQ(norm.steps.size(), 2u);
  EXPECT_EQ(norm.info.workspace_bytes, 256u);
  // Of which all is needed too stays where it is.
  EXPECT_EQ(plan_of("h = exp(x); h[..., 0::2] + sum(h, -1)", {{8, 64}}).steps.size(), 2u);
}

}  // namespace
}  // namespace kiln
