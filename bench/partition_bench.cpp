// What it takes to plan a program: types, shapes, passes, views, partition, and the whole plan with
// its kernels' text and the workspace, for random graphs of up to 10,000 nodes.
#include <benchmark/benchmark.h>

#include "fusion/infer/infer.hpp"
#include "fusion/partition/partition.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "program/plan.hpp"
#include "tests/support/random_program.hpp"

namespace kiln {
namespace {

testing::RandomProgram live_program(std::size_t nodes) {
  testing::ProgramKind kind;
  kind.nodes = nodes;
  kind.empty = false;
  kind.whole = true;
  return testing::random_program(11, kind);
}

void partition(benchmark::State& state) {
  const testing::RandomProgram random = live_program(static_cast<std::size_t>(state.range(0)));
  std::vector<fusion::ArgumentType> types;
  for (const DType dtype : random.dtypes) types.push_back({dtype, false, false});
  std::size_t kernels = 0;
  for (auto _ : state) {
    fusion::ShapedGraph graph = fusion::shape_graph(
        fusion::infer(random.graph, types, {}, Rounding::once, "bench"), random.shapes, "bench");
    graph.graph = fusion::drop_trivial_reductions(graph.graph, graph.shapes);
    kernels = fusion::partition(fusion::place_views(fusion::optimise(graph))).kernels.size();
  }
  state.counters["kernels"] = static_cast<double>(kernels);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(partition)->RangeMultiplier(10)->Range(10, 10000)->Unit(benchmark::kMillisecond);

void plan(benchmark::State& state) {
  const testing::RandomProgram random = live_program(static_cast<std::size_t>(state.range(0)));
  Definition definition;
  definition.name = "bench";
  definition.graph = random.graph;
  CallTypes call;
  for (std::size_t i = 0; i < random.dtypes.size(); ++i) {
    const Dims& shape = random.shapes[i];
    call.arguments.push_back({random.dtypes[i], false, false});
    call.arrays.push_back({random.dtypes[i], shape, contiguous_strides(shape)});
  }
  for (auto _ : state) benchmark::DoNotOptimize(plan_program(definition, call));
}
BENCHMARK(plan)->RangeMultiplier(10)->Range(10, 10000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kiln

BENCHMARK_MAIN();
