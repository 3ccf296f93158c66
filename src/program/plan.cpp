#include "program/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

Prepared prepare(const Definition& definition, const CallTypes& call,
                 const fusion::Unpacked& unpacked) {
  std::vector<DType> dtypes;
  for (const ArrayType& output : call.outputs) dtypes.push_back(output.dtype);
  const fusion::TypedGraph typed = fusion::infer(definition.graph, call.arguments, dtypes,
                                                 definition.options.rounding, definition.name);
  Prepared prepared;
  std::vector<Dims> shapes;
  std::size_t next = 0;
  for (const fusion::ArgumentType& argument : call.arguments) {
    const ArrayType array = argument.scalar ? ArrayType() : call.arrays[next++];
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
      const std::string label = output_label(definition.graph.output_names(), i);
      const ArrayType whole = with_kept_axes(definition.name, label, call.outputs[i], kept);
      check_output(definition.name, label, whole, kept);
      outputs.push_back({whole.strides, 0});
    }
  }
  graph.graph = fusion::drop_trivial_reductions(graph.graph, graph.shapes);
  graph = fusion::split_reductions(fusion::optimise(graph));
  prepared.graph = fusion::place_views(graph, prepared.arguments, outputs, unpacked);
  return prepared;
}

// A plan and the partition that it is of.
struct Planned {
  ProgramPlan plan;
  fusion::Partition partition;

  std::uint64_t workspace() const { return plan.info.workspace_bytes; }
  std::uint64_t bytes() const { return plan.info.bytes; }
};

// Plans one call by several cost models.
class Planner {
 public:
  Planner(const Definition& definition, const CallTypes& call)
      : definition_(definition), call_(call) {}

  // Of the graph in which those arrays are unpacked.
  Planned plan(const fusion::Unpacked& unpacked, const fusion::CostModel& model) {
    const Prepared& graph = prepared(unpacked);
    Planned planned;
    planned.partition = fusion::partition(graph.graph, model);
    planned.plan = program_steps(definition_, graph.graph, graph.arguments, planned.partition);
    planned.plan.output_shapes = graph.output_shapes;
    planned.plan.output_dtypes = graph.output_dtypes;
    place_temporaries(planned.plan, model.fuse);
    return planned;
  }

  // Packed numbers that no kernel of the plan could read are unpacked by one before, which may fuse
  // others than before: planned again until nothing is missing. Each model begins with nothing
  // unpacked, since a kernel that fuses less may read them packed.
  Planned plan(const fusion::CostModel& model, fusion::Unpacked& unpacked) {
    unpacked = {std::vector<bool>(call_.arguments.size(), false), false};
    while (true) {
      Planned planned = plan(unpacked, model);
      if (!add_to_unpack(unpacked, planned.plan, call_)) return planned;
    }
  }

  // One kernel for each operation.
  Planned plan_unfused() {
    fusion::CostModel model;
    model.fuse = false;
    fusion::Unpacked unpacked;
    return plan(model, unpacked);
  }

  // Whether every kernel can read what it reads.
  bool is_readable(const Planned& planned, fusion::Unpacked unpacked) const {
    return !add_to_unpack(unpacked, planned.plan, call_);
  }

 private:
  const Prepared& prepared(const fusion::Unpacked& unpacked) {
    const auto known = prepared_.find(unpacked);
    if (known != prepared_.end()) return known->second;
    return prepared_.emplace(unpacked, prepare(definition_, call_, unpacked)).first->second;
  }

  const Definition& definition_;
  const CallTypes& call_;
  std::map<fusion::Unpacked, Prepared> prepared_;
};

// Whether a plan needs no more workspace and moves no more bytes than the unfused one.
bool is_no_larger(const Planned& planned, const Planned& unfused) {
  return planned.workspace() <= unfused.workspace() &&
         planned.bytes() <= unfused.plan.info.op_by_op_bytes;
}

// Plans in which less is fused. Of those that are no larger than the unfused one, the one that
// moves the fewest bytes.
class SmallerPlans {
 public:
  SmallerPlans(Planner& planner, const fusion::CostModel& model, const Planned& unfused)
      : planner_(planner), model_(model), unfused_(unfused), best_(unfused) {}

  // `largest` is of the graph in which those arrays are unpacked.
  Planned run(const Planned& largest, const fusion::Unpacked& unpacked) {
    with_smaller_kernels();
    without_the_busiest(largest, unpacked);
    return std::move(best_);
  }

 private:
  bool consider(const Planned& other) {
    const bool fits = is_no_larger(other, unfused_);
    if (fits && other.bytes() < best_.bytes()) best_ = other;
    return fits;
  }

  // Kernels of fewer values, and none that is one only for reading the same array.
  void with_smaller_kernels() {
    fusion::CostModel smaller = model_;
    smaller.share_reads = false;
    fusion::Unpacked unpacked;
    for (const std::size_t values : {256, 64, 16, 8, 4, 2}) {
      smaller.most_values = std::min<std::size_t>(values, model_.most_values);
      // The first that fits moves the fewest: further ones are cut more often.
      if (consider(planner_.plan(smaller, unpacked))) return;
    }
  }

  // One kernel for each operation of the kernels at which the most is alive.
  void without_the_busiest(const Planned& largest, const fusion::Unpacked& unpacked) {
    constexpr int kMostRounds = 8;
    fusion::CostModel model = model_;
    Planned planned = largest;
    for (int round = 0; round < kMostRounds; ++round) {
      const std::size_t busiest = busiest_step(planned.plan);
      for (const NodeId id : planned.partition.kernels[busiest].values) {
        if (id >= model.alone.size()) model.alone.resize(id + 1, false);
        model.alone[id] = true;
      }
      planned = planner_.plan(unpacked, model);  // the same nodes as before
      if (planner_.is_readable(planned, unpacked) && consider(planned)) return;
    }
  }

  Planner& planner_;
  const fusion::CostModel& model_;
  const Planned& unfused_;
  Planned best_;
};

}  // namespace

std::uint64_t unfused_workspace(const Definition& definition, const CallTypes& call) {
  return Planner(definition, call).plan_unfused().workspace();
}

ProgramPlan plan_program(const Definition& definition, const CallTypes& call,
                         const fusion::CostModel& model) {
  Planner planner(definition, call);
  fusion::Unpacked unpacked;
  Planned planned = planner.plan(model, unpacked);
  if (planned.workspace() == 0) return std::move(planned.plan);
  const Planned unfused = planner.plan_unfused();
  // Fused values can live longer, and fused kernels need more unpacked.
  if (!is_no_larger(planned, unfused)) {
    planned = SmallerPlans(planner, model, unfused).run(planned, unpacked);
  }
  planned.plan.info.op_by_op_bytes = unfused.plan.info.op_by_op_bytes;
  planned.plan.info.op_by_op_workspace = unfused.workspace();
  return std::move(planned.plan);
}

namespace {

// The array that an operand is a view of; temporaries begin at multiples of 16.
ArrayType memory_of(const ProgramOperand& operand, const ProgramPlan& plan, const CallTypes& call) {
  if (operand.kind == ProgramOperand::Kind::argument) {
    std::size_t array = 0;
    for (std::size_t i = 0; i < operand.index; ++i) array += call.arguments[i].scalar ? 0 : 1;
    return call.arrays[array];
  }
  const bool output = operand.kind == ProgramOperand::Kind::output;
  if (output && !call.outputs.empty()) return call.outputs[operand.index];
  ArrayType array;
  array.dtype = operand_dtype(operand, plan, call);
  if (!output) array.address = plan.temporaries[operand.index].offset;
  return array;
}

ArrayType type_of(const ProgramOperand& operand, const ProgramPlan& plan, const CallTypes& call) {
  ArrayType array = memory_of(operand, plan, call);
  array.shape = operand.shape;
  array.strides = operand.layout.strides;
  const std::int64_t bit = (array.offset + operand.layout.offset) * bits(array.dtype);
  array.address += static_cast<std::uint64_t>(bit >> 3);
  array.offset = is_packed(array.dtype) ? bit >> 2 & 1 : 0;  // as View::from()
  return array;
}

}  // namespace

DType operand_dtype(const ProgramOperand& operand, const ProgramPlan& plan, const CallTypes& call) {
  switch (operand.kind) {
    case ProgramOperand::Kind::argument: return call.arguments[operand.index].dtype;
    case ProgramOperand::Kind::output: return plan.output_dtypes[operand.index];
    case ProgramOperand::Kind::temporary: break;
  }
  return plan.temporaries[operand.index].dtype;
}

CallTypes step_types(const ProgramPlan& plan, const ProgramStep& step, const CallTypes& call) {
  CallTypes types;
  for (const ProgramOperand& operand : step.inputs) {
    if (operand.scalar) {
      types.arguments.push_back(call.arguments[operand.index]);
      continue;
    }
    types.arrays.push_back(type_of(operand, plan, call));
    types.arguments.push_back({types.arrays.back().dtype, false, false});
  }
  for (const ProgramOperand& operand : step.outputs) {
    types.outputs.push_back(type_of(operand, plan, call));
  }
  return types;
}

std::vector<KernelSpec> step_specs(const ProgramPlan& plan, const CallTypes& call) {
  std::vector<KernelSpec> specs;
  for (const ProgramStep& step : plan.steps) {
    if (step.kernel) specs.push_back(step.kernel->spec(step_types(plan, step, call)));
  }
  return specs;
}

CallTypes program_types(const Definition& definition, const Specification& specification) {
  CallTypes call = argument_types(definition, specification);
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
