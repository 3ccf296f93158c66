#include "program/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "call/call_reduction.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/passes/split_reductions.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "kiln/error.hpp"
#include "program/memory.hpp"
#include "program/steps.hpp"
#include "program/unpack.hpp"

namespace kiln {
namespace {

using fusion::ArrayLayout;
using fusion::NodeId;

// A call with its graph, up to where the cost model decides.
struct Prepared {
  fusion::PlacedGraph graph;
  std::vector<ArrayLayout> arguments;
  std::vector<Dims> output_shapes;
  std::vector<DType> output_dtypes;
};

Prepared prepare(const Definition& definition, const ProgramCall& call,
                 const fusion::Unpacked& unpacked) {
  std::vector<DType> dtypes;
  for (const OperandShape& output : call.outputs) dtypes.push_back(output.dtype);
  const fusion::TypedGraph typed = fusion::infer(definition.graph, call.arguments, dtypes,
                                                 definition.options.rounding, definition.name);
  Prepared prepared;
  std::vector<Dims> shapes;
  std::size_t next = 0;
  for (const fusion::ArgumentType& argument : call.arguments) {
    const OperandShape array = argument.scalar ? OperandShape() : call.arrays[next++];
    shapes.push_back(array.shape);
    prepared.arguments.push_back({array.strides, 0});
  }
  fusion::ShapedGraph graph = fusion::shape_graph(typed, shapes, definition.name);
  std::vector<ArrayLayout> outputs;
  for (std::size_t i = 0; i < graph.graph.outputs.size(); ++i) {
    const NodeId output = graph.graph.outputs[i];
    const Dims& kept = graph.shapes[output];
    prepared.output_shapes.push_back(kept);
    prepared.output_dtypes.push_back(graph.graph.nodes[output].dtype);
    if (call.outputs.empty()) {
      outputs.push_back(fusion::contiguous_layout(kept));
    } else {
      const OperandShape whole = with_kept_axes(definition, i, call.outputs[i], kept);
      check_output(definition, i, whole, kept);
      outputs.push_back({whole.strides, 0});
    }
  }
  graph.graph = fusion::drop_trivial_reductions(graph.graph, graph.shapes);
  graph = fusion::share_common(fusion::split_rows(fusion::optimise(graph)));
  prepared.graph = fusion::place_views(graph, prepared.arguments, outputs, unpacked);
  return prepared;
}

// A plan and the partition that it is of.
struct Planned {
  ProgramPlan plan;
  fusion::Partition partition;

  std::uint64_t room() const { return plan.info.workspace_bytes; }
};

Planned plan_prepared(const Definition& definition, const Prepared& prepared,
                      const fusion::CostModel& model) {
  Planned planned;
  planned.partition = fusion::partition(prepared.graph, model);
  planned.plan = program_steps(definition, prepared.graph, prepared.arguments, planned.partition);
  planned.plan.output_shapes = prepared.output_shapes;
  planned.plan.output_dtypes = prepared.output_dtypes;
  place_temporaries(planned.plan, model.fuse);
  return planned;
}

Planned plan_op_by_op(const Definition& definition, const Prepared& prepared) {
  fusion::CostModel model;
  model.fuse = false;
  return plan_prepared(definition, prepared, model);
}

// Plans in which less is fused. Of those that need no more room than `alone`, one kernel for each
// operation, the one that moves the fewest bytes.
class SmallerPlans {
 public:
  SmallerPlans(const Definition& definition, const Prepared& prepared,
               const fusion::CostModel& model, const Planned& alone)
      : definition_(definition), prepared_(prepared), model_(model), best_(alone) {}

  ProgramPlan run(const Planned& largest) {
    with_smaller_kernels();
    without_the_busiest(largest);
    return std::move(best_.plan);
  }

 private:
  bool consider(const Planned& other) {
    const bool fits = other.room() <= best_.plan.info.op_by_op_workspace;
    if (fits && other.plan.info.bytes < best_.plan.info.bytes) best_ = other;
    return fits;
  }

  // Kernels of fewer values, and none that is one only for reading the same array.
  void with_smaller_kernels() {
    fusion::CostModel smaller = model_;
    smaller.share_reads = false;
    for (const std::size_t values : {256, 64, 16, 8, 4, 2}) {
      smaller.most_values = std::min<std::size_t>(values, model_.most_values);
      // The first that fits moves the fewest: further ones are cut more often.
      if (consider(plan_prepared(definition_, prepared_, smaller))) return;
    }
  }

  // One kernel for each operation of the kernels at which the most is alive.
  void without_the_busiest(const Planned& largest) {
    constexpr int kMostRounds = 8;
    fusion::CostModel model = model_;
    model.alone.assign(prepared_.graph.graph.nodes.size(), false);
    Planned planned = largest;
    for (int round = 0; round < kMostRounds; ++round) {
      const std::size_t busiest = busiest_step(planned.plan);
      for (const NodeId id : planned.partition.kernels[busiest].values) model.alone[id] = true;
      planned = plan_prepared(definition_, prepared_, model);
      if (consider(planned)) return;
    }
  }

  const Definition& definition_;
  const Prepared& prepared_;
  const fusion::CostModel& model_;
  Planned best_;
};

// The plan of a call, and what it is of.
struct Chosen {
  Prepared prepared;
  ProgramPlan plan;
};

ProgramPlan choose(const Definition& definition, const Prepared& prepared,
                   const fusion::CostModel& model) {
  Planned planned = plan_prepared(definition, prepared, model);
  if (planned.room() == 0) return std::move(planned.plan);
  Planned alone = plan_op_by_op(definition, prepared);
  alone.plan.info.op_by_op_workspace = alone.room();
  // Fusing can make values live longer.
  if (planned.room() > alone.room()) {
    planned.plan = SmallerPlans(definition, prepared, model, alone).run(planned);
  }
  planned.plan.info.op_by_op_workspace = alone.room();
  return std::move(planned.plan);
}

// Packed numbers that no kernel of the plan could read are unpacked by one before, which may put
// others together than before.
Chosen choose(const Definition& definition, const ProgramCall& call,
              const fusion::CostModel& model) {
  fusion::Unpacked unpacked;
  while (true) {
    Chosen chosen{prepare(definition, call, unpacked), {}};
    chosen.plan = choose(definition, chosen.prepared, model);
    if (!add_to_unpack(unpacked, chosen.plan, call)) return chosen;
  }
}

}  // namespace

std::uint64_t op_by_op_workspace(const Definition& definition, const ProgramCall& call) {
  return plan_op_by_op(definition, choose(definition, call, {}).prepared).room();
}

ProgramPlan plan_program(const Definition& definition, const ProgramCall& call,
                         const fusion::CostModel& model) {
  return choose(definition, call, model).plan;
}

ProgramCall program_call(const Definition& definition, const Specification& specification) {
  ProgramCall call;
  for (const std::string& name : definition.graph.arguments()) {
    const auto found = std::ranges::find(specification.arguments, name, &ArgumentSpec::name);
    if (found == specification.arguments.end()) {
      throw Error(Code::invalid_argument, fmt::format("{}: no type was given for the argument '{}'",
                                                      definition.name, name));
    }
    call.arguments.push_back({found->dtype, found->scalar, found->weak});
    if (found->scalar) continue;
    const Dims strides = found->strides.empty() ? contiguous_strides(found->shape) : found->strides;
    call.arrays.push_back({found->dtype, found->shape, strides, found->misalignment});
  }
  if (specification.outputs.empty()) return call;
  const ProgramPlan natural = plan_program(definition, call);
  if (specification.outputs.size() != natural.output_shapes.size()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: expected the dtypes of {} outputs, got {}", definition.name,
                            natural.output_shapes.size(), specification.outputs.size()));
  }
  for (std::size_t i = 0; i < natural.output_shapes.size(); ++i) {
    const Dims& shape = natural.output_shapes[i];
    call.outputs.push_back({specification.outputs[i], shape, contiguous_strides(shape)});
  }
  return call;
}

}  // namespace kiln
