// What a partition must keep, whatever the graph: every value is there when it is read, nothing
// expensive is computed twice, temporaries that live together lie apart. Plans are executed by the
// reference interpreter in a real workspace, so that a wrong place gives a wrong number.
#include "fusion/partition.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <numeric>
#include <set>

#include "fusion/kernel_graph.hpp"
#include "fusion/passes.hpp"
#include "fusion/reduce_layout.hpp"
#include "fusion/reference_arrays.hpp"
#include "fusion/shapes.hpp"
#include "fusion/text.hpp"
#include "kiln/error.hpp"
#include "program_plan.hpp"
#include "tests/program/random_graph.hpp"
#include "tests/support/arrays.hpp"

namespace kiln {
namespace {

using fusion::NodeId;
using fusion::Op;
using testing::HostArray;

fusion::PlacedGraph shaped(const fusion::Graph& graph, const std::vector<Dims>& arguments,
                           DType dtype) {
  const std::vector<fusion::ArgumentType> types(arguments.size(), {dtype, false, false});
  fusion::ShapedGraph result =
      fusion::shape_graph(fusion::infer(graph, types, {}, Rounding::once, "f"), arguments, "f");
  result.graph = fusion::drop_trivial_reductions(result.graph, result.shapes);
  return fusion::place_views(fusion::optimise(result));
}

fusion::Partition partition_of(const std::string& text, const std::vector<Dims>& arguments,
                               DType dtype = DType::f32) {
  return fusion::partition(shaped(fusion::parse(text), arguments, dtype));
}

bool is_leaf(const fusion::TypedNode& node) { return node.arity == 0; }

// A join is stored when all of its parts are.
bool is_stored(const fusion::PlacedGraph& graph, const std::set<NodeId>& stored, NodeId id) {
  const fusion::TypedNode& node = graph.graph.nodes[id];
  if (node.op != Op::join) return stored.contains(id);
  return std::ranges::all_of(graph.joins[node.payload], [&](const fusion::PlacedPart& part) {
    return stored.contains(part.value);
  });
}

void check_invariants(const fusion::PlacedGraph& graph, const fusion::Partition& partition) {
  std::set<NodeId> stored;
  std::map<NodeId, int> computed;
  for (const fusion::KernelPart& kernel : partition.kernels) {
    for (const NodeId id : kernel.reads) {
      EXPECT_TRUE(is_stored(graph, stored, fusion::viewed(graph.graph, id)))
          << "value " << id << " is read before it is stored";
    }
    const std::set<NodeId> own(kernel.values.begin(), kernel.values.end());
    const std::set<NodeId> reads(kernel.reads.begin(), kernel.reads.end());
    for (const NodeId id : kernel.values) {
      if (graph.graph.nodes[id].op == Op::view) continue;  // of an argument, which is no value
      for (const NodeId operand : graph.graph.nodes[id].inputs()) {
        EXPECT_TRUE(own.contains(operand) || reads.contains(operand))
            << "value " << id << " lacks its operand " << operand;
      }
      ++computed[id];
    }
    for (const NodeId id : kernel.results) {
      EXPECT_TRUE(own.contains(id) || kernel.call);
      EXPECT_TRUE(stored.insert(id).second) << "value " << id << " is stored twice";
    }
  }
  for (const auto& parts : graph.stores) {
    for (const fusion::PlacedPart& part : parts) {
      EXPECT_TRUE(is_stored(graph, stored, part.value));
    }
  }
  for (const auto& [id, times] : computed) {
    const fusion::TypedNode& node = graph.graph.nodes[id];
    if (times == 1 || is_leaf(node)) continue;
    EXPECT_FALSE(fusion::is_reduction(node.op)) << "a reduction is computed " << times << " times";
    EXPECT_NE(fusion::info(node.op).rule, fusion::Rule::floating)
        << fusion::info(node.op).name << " is computed " << times << " times";
  }
}

TEST(Partition, KeepsANormInOneKernel) {
  for (const char* text : {"rms_norm(x, w, 1e-5)", "softmax(x, -1) * w",
                           "h = x + w; h, layer_norm(h, 1e-5)", "x - mean(x, -1), max(x, -1)"}) {
    const auto partition = partition_of(text, std::string(text).find('w') == std::string::npos
                                                  ? std::vector<Dims>{{64, 512}}
                                                  : std::vector<Dims>{{64, 512}, {512}});
    EXPECT_EQ(partition.kernels.size(), 1u) << text;
    EXPECT_EQ(partition.bytes, partition.lower_bound) << text;
  }
}

TEST(Partition, CutsWhereAxesDifferAndSaysSo) {
  const auto partition = partition_of("x / sum(x, -1) / sum(x, 0)", {{64, 512}});
  ASSERT_GE(partition.kernels.size(), 2u);
  const bool told = std::ranges::any_of(partition.kernels, [](const fusion::KernelPart& kernel) {
    return kernel.reason.find("axes") != std::string::npos;
  });
  EXPECT_TRUE(told);
}

TEST(Partition, SiblingsThatReadTheSameShareAKernel) {
  const auto partition = partition_of("exp(x) + 1.0, sin(x) * 2.0", {{64, 512}});
  EXPECT_EQ(partition.kernels.size(), 1u);
  EXPECT_EQ(partition_of("exp(x), sin(y)", {{64, 512}, {64, 512}}).kernels.size(), 2u);
}

TEST(Partition, ComputesCheapValuesAgain) {
  const auto partition = partition_of("s = w * 2.0; x * s, y + s", {{512}, {64, 512}, {8, 512}});
  ASSERT_EQ(partition.kernels.size(), 2u);
  for (const fusion::KernelPart& kernel : partition.kernels) EXPECT_TRUE(kernel.reads.empty());
  const auto kept = partition_of("s = exp(w); x * s, y + s", {{512}, {64, 512}, {8, 512}});
  EXPECT_EQ(kept.kernels.size(), 3u) << "an exponential is stored";
}

TEST(Partition, FewLongRowsAreCutFromWhatFollows) {
  const auto partition = partition_of("x / sum(x, -1)", {{2, 1 << 20}});
  ASSERT_EQ(partition.kernels.size(), 2u);
  EXPECT_NE(partition.kernels[1].reason.find("split"), std::string::npos);
}

TEST(Partition, HoldsItsInvariantsOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const auto random =
        testing::random_graph(seed, seed % 4 == 0 ? 1000 : 10 + seed * 3, seed % 2 == 0);
    const fusion::PlacedGraph graph =
        shaped(random.graph, random.arguments, seed % 2 == 0 ? DType::i64 : DType::f32);
    check_invariants(graph, fusion::partition(graph));
  }
}

// Runs the plan's steps by the reference, every operand where the plan puts it.
std::vector<HostArray> run_by_reference(const ProgramPlan& plan,
                                        const std::vector<HostArray>& inputs,
                                        std::vector<HostArray> outputs) {
  std::vector<std::byte> workspace(plan.info.workspace_bytes, std::byte{0xcd});
  for (const ProgramStep& step : plan.steps) {
    const fusion::TypedGraph& graph = *step.function->impl().definition.typed;
    std::vector<Dims> own;
    std::vector<fusion::ReferenceOperand> arguments;
    const auto place = [&](const ProgramOperand& operand) {
      fusion::ReferenceOperand result{nullptr, DType::f32, operand.layout.strides,
                                      operand.layout.offset};
      if (operand.kind == ProgramOperand::Kind::temporary) {
        const ProgramPlan::Temporary& temporary = plan.temporaries[operand.index];
        result.data = workspace.data() + temporary.offset;
        result.dtype = temporary.dtype;
      } else {
        const HostArray& array = operand.kind == ProgramOperand::Kind::output
                                     ? outputs[operand.index]
                                     : inputs[operand.index];
        result.data = const_cast<std::byte*>(array.bytes.data());
        result.dtype = array.dtype;
      }
      return std::pair(result, operand.shape);
    };
    for (const ProgramOperand& operand : step.inputs) {
      const auto [argument, shape] = place(operand);
      arguments.push_back(argument);
      own.push_back(shape);
    }
    std::vector<fusion::ReferenceOperand> results;
    for (const ProgramOperand& operand : step.outputs) results.push_back(place(operand).first);
    const fusion::ShapedGraph typed = fusion::shape_graph(graph, own, "step");
    fusion::evaluate_arrays(typed.graph, typed.shapes, arguments, results);
  }
  return outputs;
}

TEST(ProgramPlan, GivesTheSameNumbersInItsWorkspace) {
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const auto random = testing::random_graph(seed, 20 + seed % 7 * 20, true);
    Definition definition;
    definition.name = "random";
    definition.graph = random.graph;
    std::vector<HostArray> inputs;
    ProgramCall call;
    for (std::size_t i = 0; i < random.arguments.size(); ++i) {
      inputs.push_back(testing::random_array(DType::i64, random.arguments[i], seed + i, 0.3));
      call.arguments.push_back({DType::i64, false, false});
      call.arrays.push_back({DType::i64, random.arguments[i], inputs.back().strides});
    }
    const ProgramPlan plan = plan_program(definition, call);
    std::vector<HostArray> outputs;
    for (const Dims& shape : plan.output_shapes)
      outputs.push_back(HostArray::contiguous(DType::i64, shape));
    const std::vector<HostArray> got = run_by_reference(plan, inputs, outputs);
    const std::vector<HostArray> want =
        testing::reference_of(fusion::to_text(random.graph), inputs);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(got[i].bytes, want[i].bytes) << "output " << i;
  }
}

TEST(Workspace, PutsWhatLivesTogetherApart) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<fusion::Lifetime> lives;
    for (std::size_t i = 0; i < 1 + random() % 40; ++i) {
      const std::size_t first = random() % 30;
      lives.push_back({random() % 5000, first, first + random() % 10});
    }
    const fusion::Workspace workspace = fusion::plan_workspace(lives);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < lives.size(); ++i) {
      EXPECT_EQ(workspace.offsets[i] % 256, 0u);
      EXPECT_LE(workspace.offsets[i] + lives[i].bytes, workspace.bytes);
      sum += (lives[i].bytes / 256 + 1) * 256;
      for (std::size_t k = 0; k < i; ++k) {
        const bool together = lives[i].first <= lives[k].last && lives[k].first <= lives[i].last;
        const bool apart = workspace.offsets[i] + lives[i].bytes <= workspace.offsets[k] ||
                           workspace.offsets[k] + lives[k].bytes <= workspace.offsets[i];
        EXPECT_TRUE(apart || !together);
      }
    }
    EXPECT_LE(workspace.bytes, sum);
  }
}

TEST(Partition, TakesTenThousandNodesInLessThanASecond) {
  const auto random = testing::random_graph(7, 10000, true);
  const auto start = std::chrono::steady_clock::now();
  const fusion::PlacedGraph graph = shaped(random.graph, random.arguments, DType::i64);
  const fusion::Partition partition = fusion::partition(graph);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_FALSE(partition.kernels.empty());
#ifdef NDEBUG
  EXPECT_LT(took.count(), 1.0);
#endif
}

}  // namespace
}  // namespace kiln
