// What it takes to plan a program: types, shapes, passes, views, partition, and the whole plan with
// its kernels' text and the workspace, for random graphs of up to 10,000 nodes.
#include <benchmark/benchmark.h>

#include "fusion/partition.hpp"
#include "fusion/passes.hpp"
#include "fusion/reduce_layout.hpp"
#include "program_plan.hpp"
#include "tests/program/random_graph.hpp"

namespace kiln {
namespace {

// What nobody reads is an output too, so that nothing is dead.
testing::RandomGraph live_graph(std::size_t nodes) {
  testing::RandomGraph random = testing::random_graph(11, nodes, true, true);
  std::vector<bool> read(random.graph.nodes().size(), false);
  for (const fusion::Node& node : random.graph.nodes()) {
    for (const fusion::NodeId operand : node.inputs()) read[operand] = true;
  }
  for (fusion::NodeId id = 0; id < read.size(); ++id) {
    if (!read[id] && random.graph[id].arity > 0) random.graph.add_output(id);
  }
  return random;
}

void partition(benchmark::State& state) {
  const testing::RandomGraph random = live_graph(static_cast<std::size_t>(state.range(0)));
  const std::vector<fusion::ArgumentType> types(random.arguments.size(),
                                                {DType::f32, false, false});
  std::size_t kernels = 0;
  for (auto _ : state) {
    fusion::ShapedGraph graph = fusion::shape_graph(
        fusion::infer(random.graph, types, {}, Rounding::once, "bench"), random.arguments, "bench");
    graph.graph = fusion::drop_trivial_reductions(graph.graph, graph.shapes);
    kernels = fusion::partition(fusion::place_views(fusion::optimise(graph))).kernels.size();
  }
  state.counters["kernels"] = static_cast<double>(kernels);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(partition)->RangeMultiplier(10)->Range(10, 10000)->Unit(benchmark::kMillisecond);

void plan(benchmark::State& state) {
  const testing::RandomGraph random = live_graph(static_cast<std::size_t>(state.range(0)));
  Definition definition;
  definition.name = "bench";
  definition.graph = random.graph;
  ProgramCall call;
  for (const Dims& shape : random.arguments) {
    call.arguments.push_back({DType::f32, false, false});
    call.arrays.push_back({DType::f32, shape, contiguous_strides(shape)});
  }
  for (auto _ : state) benchmark::DoNotOptimize(plan_program(definition, call));
}
BENCHMARK(plan)->RangeMultiplier(10)->Range(10, 10000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kiln

BENCHMARK_MAIN();
