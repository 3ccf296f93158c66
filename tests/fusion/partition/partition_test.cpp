// What a partition must keep, whatever the graph: every value is there when it is read, nothing
// expensive is computed twice, temporaries that live together lie apart. What plans compute is in
// plan_test.cpp.
#include "fusion/partition/partition.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/partition/workspace.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/passes/split_reductions.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"
#include "tests/support/random_program.hpp"

namespace kiln {
namespace {

using fusion::NodeId;
using fusion::Op;

fusion::PlacedGraph shaped(const fusion::Graph& graph, const std::vector<Dims>& arguments,
                           const std::vector<DType>& dtypes) {
  std::vector<fusion::ArgumentType> types;
  for (const DType dtype : dtypes) types.push_back({dtype, false, false});
  fusion::ShapedGraph result =
      fusion::shape_graph(fusion::infer(graph, types, {}, Rounding::once, "f"), arguments, "f");
  result.graph = fusion::drop_trivial_reductions(result.graph, result.shapes);
  return fusion::place_views(fusion::split_reductions(fusion::optimise(result)).graph);
}

fusion::Partition partition_of(const std::string& text, const std::vector<Dims>& arguments,
                               DType dtype = DType::f32) {
  const std::vector<DType> dtypes(arguments.size(), dtype);
  return fusion::partition(shaped(fusion::parse(text), arguments, dtypes));
}

bool is_leaf(const fusion::TypedNode& node) { return node.arity == 0; }

// What takes more than a few instructions.
bool is_expensive(const fusion::TypedNode& node) {
  switch (node.op) {
    case Op::power:
    case Op::floor_divide:
    case Op::remainder:
    case Op::fmod: return true;
    case Op::copysign: return false;
    default: break;
  }
  const fusion::Rule rule = fusion::info(node.op).rule;
  return rule == fusion::Rule::floating || rule == fusion::Rule::random;
}

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
    EXPECT_FALSE(fusion::has_axes(node.op) || is_expensive(node))
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
  const bool named = std::ranges::any_of(partition.kernels, [](const fusion::KernelPart& kernel) {
    return kernel.reason.find("axes") != std::string::npos;
  });
  EXPECT_TRUE(named);
}

TEST(Partition, SiblingsThatReadTheSameShareAKernel) {
  const auto partition = partition_of("exp(x) + 1.0, sin(x) * 2.0", {{64, 512}});
  EXPECT_EQ(partition.kernels.size(), 1u);
  EXPECT_EQ(partition_of("exp(x), sin(y)", {{64, 512}, {64, 512}}).kernels.size(), 2u);
}

// Whatever is written first: what joins several arrays finds a kernel of all of them.
TEST(Partition, ReductionsOfTheSameArraysShareAKernel) {
  const auto kernels = [](const std::string& text, std::size_t arguments) {
    return partition_of(text, std::vector<Dims>(arguments, {64, 1000})).kernels.size();
  };
  EXPECT_EQ(kernels("sum(x * x, -1) * sum(y * y, -1) + sum(x * y, -1)", 2), 1u);
  EXPECT_EQ(kernels("r = rsqrt(mean(x * x, -1)); g * w - x * r * mean(g * w * x, -1)", 3), 1u);
  EXPECT_EQ(kernels("sum(exp(a) * x, -1), sum(exp(b) * x, -1)", 3), 1u);
  EXPECT_EQ(kernels("sum(a * b, -1), sum(c * c, -1), sum(b * c, -1), sum(a * c, -1)", 3), 1u);
  EXPECT_EQ(kernels("sum(a * b, -1), sum(c * c, -1)", 3), 2u);
  EXPECT_EQ(kernels("sum(a * a, 0), sum(a * b, -1)", 2), 2u);
}

TEST(Partition, ComputesCheapValuesAgain) {
  const auto partition = partition_of("s = w * 2.0; x * s, y + s", {{512}, {64, 512}, {8, 512}});
  ASSERT_EQ(partition.kernels.size(), 2u);
  for (const fusion::KernelPart& kernel : partition.kernels) EXPECT_TRUE(kernel.reads.empty());
  const auto kept = partition_of("s = exp(w); x * s, y + s", {{512}, {64, 512}, {8, 512}});
  EXPECT_EQ(kept.kernels.size(), 3u) << "an exponential is stored";
}

TEST(Partition, WaitsToSeeWhereAValueIsNeeded) {
  const Dims n{4096};
  const auto partition = partition_of(
      "m1 = 0.9 * m + 0.1 * g; v1 = 0.999 * v + 0.001 * g * g; p - m1 / (sqrt(v1) + 1e-8), m1, v1",
      {n, n, n, n});
  EXPECT_EQ(partition.kernels.size(), 1u);
  EXPECT_EQ(partition.bytes, partition.lower_bound);
}

TEST(Partition, ComputesWhatIsBroadcastFirst) {
  // A gated delta rule: gates of each head, then one kernel over the state.
  const auto partition = partition_of(
      "decay = exp(-exp(a_log) * softplus(a)); old = s * decay; d = (v - sum(old * k, -2)) * "
      "sigmoid(b); new = old + k * d; sum(new * q, -2), new",
      {{8, 1, 1}, {8, 1, 1}, {8, 32, 64}, {8, 1, 64}, {8, 32, 1}, {8, 1, 1}, {8, 32, 1}});
  EXPECT_EQ(partition.kernels.size(), 2u);
}

TEST(Partition, ReductionsOfFewLongRowsAreSplit) {
  const auto partition = partition_of("x / sum(x, -1)", {{2, 1 << 20}});
  ASSERT_EQ(partition.kernels.size(), 3u);
  EXPECT_EQ(partition.kernels[0].splits, 32);
  EXPECT_NE(partition.kernels[1].reason.find("split"), std::string::npos);
  EXPECT_EQ(partition.kernels[1].splits, 1);
  EXPECT_EQ(partition_of("sum(x, -1), max(x, -1), argmax(x, -1)", {{1, 1 << 20}}).kernels.size(),
            2u);
  EXPECT_EQ(partition_of("sum(x, 0)", {{65536, 4096}}).kernels[0].splits, 64) << "few columns";
}

TEST(Partition, RowsThatKeepADeviceBusyStayWhole) {
  for (const Dims& shape : {Dims{64, 1 << 20}, {1, 30000}, {1024, 65536}}) {
    EXPECT_EQ(partition_of("softmax(x, -1)", {shape}).kernels.size(), 1u);
  }
  EXPECT_EQ(partition_of("sum(x, -1)", {{512, 65536}}).kernels.size(), 1u);
  EXPECT_EQ(partition_of("sum(x, 0)", {{65536, 16384}}).kernels.size(), 1u);
}

// A softmax before a running sum: of rows that leave the caches only maxima and sums are stored.
TEST(Partition, WhatLeavesTheCachesIsComputedAgain) {
  const char* text = "cumsum(softmax(x, -1), -1)";
  const auto large = partition_of(text, {{4096, 4096}});
  ASSERT_EQ(large.kernels.size(), 2u);
  const std::uint64_t array = 4096 * 4096 * 4;
  EXPECT_LT(large.kernels[0].bytes, array + array / 8);
  const auto small = partition_of(text, {{64, 4096}});
  ASSERT_EQ(small.kernels.size(), 2u);
  EXPECT_EQ(small.kernels[0].bytes, 2 * 64 * 4096 * 4u);
}

// What a kernel that counts hands to one that reduces: the mask, not what it was applied to.
TEST(Partition, AKernelThatCountsStoresTheNarrowestValue) {
  const char* text = "h = where(uniform(1, 2) >= 0.1, x, 0.0); h * rsqrt(mean(h * h, -1) + 1e-5)";
  const auto graph = shaped(fusion::parse(text), {{64, 512}}, {DType::f32});
  const auto partition = fusion::partition(graph);
  ASSERT_EQ(partition.kernels.size(), 2u);
  ASSERT_EQ(partition.kernels[0].results.size(), 1u);
  EXPECT_EQ(graph.graph.nodes[partition.kernels[0].results[0]].dtype, DType::boolean);
  EXPECT_EQ(partition.bytes, partition.lower_bound + 2 * 64 * 512);
}

// What one kernel stores and another converts to a wider dtype is stored as it was.
TEST(Partition, NarrowValuesCrossBetweenKernels) {
  const auto partition = partition_of("cumsum(cummax(x, 0), 1)", {{64, 512}}, DType::i16);
  ASSERT_EQ(partition.kernels.size(), 2u);
  EXPECT_EQ(partition.kernels[0].bytes, 2u * 64 * 512 * 2);
  EXPECT_EQ(partition.kernels[1].bytes, 64u * 512 * (2 + 8));
}

// So is what is quantised, with its scales, whose numbers another kernel multiplies.
TEST(Partition, QuantisedValuesCrossBetweenKernels) {
  const std::uint64_t n = 64 * 512;
  const std::string quantise = "s = max(abs(x), -1); q = i8(round(x / s * 127)); ";
  for (const char* number : {"q * s", "s * q", "(f32(q) - 3) * s", "-(q * s)"}) {
    SCOPED_TRACE(number);
    const auto partition =
        partition_of(fmt::format("{}cumsum({}, 0)", quantise, number), {{64, 512}});
    ASSERT_EQ(partition.kernels.size(), 2u);
    EXPECT_EQ(partition.kernels[0].bytes, 4 * n + n + 4 * 64);
    EXPECT_EQ(partition.kernels[1].bytes, n + 4 * 64 + 4 * n);
  }
  // Two arrays of elements take more than what is computed of them.
  const auto partition = partition_of(quantise + "cumsum(q * x, 0)", {{64, 512}});
  EXPECT_EQ(partition.kernels[1].bytes, 4 * n + 4 * n);
}

TEST(Partition, UnfusedCopiesWhatIsConcatenatedAndWhatIsStoredTwice) {
  const std::uint64_t n = 64 * 512 * 4;
  EXPECT_EQ(partition_of("y = exp(x); concat(0, y, y)", {{64, 512}}).unfused_bytes, 2 * n + 4 * n);
  EXPECT_EQ(partition_of("y = exp(x); (y), (y)", {{64, 512}}).unfused_bytes, 2 * n + 2 * n);
  EXPECT_EQ(partition_of("f64(x)", {{64, 512}}).unfused_bytes, n + 2 * n);
}

TEST(Partition, HoldsItsInvariantsOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    testing::ProgramKind kind;
    kind.nodes = seed % 4 == 0 ? 1000 : 10 + seed * 3;
    kind.floats = seed / 4 % 4 != 0;
    kind.views = seed / 4 % 3 != 0;
    const testing::RandomProgram random = testing::random_program(seed, kind);
    const fusion::PlacedGraph graph = shaped(random.graph, random.shapes, random.dtypes);
    check_invariants(graph, fusion::partition(graph));
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

TEST(Workspace, OfFewIsTheSameWithoutAllocations) {
  std::mt19937_64 random(3);
  for (int turn = 0; turn < 500; ++turn) {
    std::vector<fusion::Lifetime> lives(random() % fusion::kFewLifetimes);
    for (fusion::Lifetime& life : lives) {
      life.first = random() % 20;
      life.last = life.first + random() % 8;
      life.bytes = random() % 3 == 0 ? 512 : random() % 5000;
    }
    std::vector<std::uint64_t> offsets(lives.size());
    const fusion::Workspace workspace = fusion::plan_workspace(lives);
    EXPECT_EQ(fusion::plan_few(lives, offsets), workspace.bytes);
    EXPECT_EQ(offsets, workspace.offsets);
  }
}

// Nothing of it is dead.
testing::RandomProgram live_program(std::size_t nodes, bool views) {
  testing::ProgramKind kind;
  kind.nodes = nodes;
  kind.views = views;
  kind.empty = false;
  kind.whole = true;
  return testing::random_program(11, kind);
}

// Ten times the nodes are ten times the steps, and not a hundred.
TEST(Partition, TakesStepsThatGrowWithTheGraph) {
  for (const bool views : {false, true}) {
    const auto steps = [&](std::size_t nodes) {
      const testing::RandomProgram random = live_program(nodes, views);
      const fusion::PlacedGraph graph = shaped(random.graph, random.shapes, random.dtypes);
      const fusion::Partition partition = fusion::partition(graph);
      EXPECT_GT(graph.graph.nodes.size(), nodes * 8 / 10);
      EXPECT_FALSE(partition.kernels.empty());
      return static_cast<double>(partition.steps);
    };
    const double small = steps(1000);
    EXPECT_GT(small, 1000);
    const double large = steps(10000);
    EXPECT_LT(large / small, 20) << large << " after " << small << (views ? " with" : " without")
                                 << " views";
  }
}

}  // namespace
}  // namespace kiln
