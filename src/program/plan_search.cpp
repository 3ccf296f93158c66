// Which plan a call of a program gets: what is planned by several cost models, and of that the plan
// that moves the fewest bytes and needs no more workspace than one kernel for each operation, in
// which the results of the parts of split reductions share no memory.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/passes/split_attention.hpp"
#include "fusion/passes/split_reductions.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "kernel/target.hpp"
#include "program/memory.hpp"
#include "program/plan.hpp"
#include "program/prologues.hpp"
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
  std::vector<std::int64_t> lengths;  ///< arguments that follow: fusion::SplitGraph
  std::vector<Dims> output_shapes;
  std::vector<DType> output_dtypes;
};

// `fuse`: attention over many keys is split. Op by op there is no attention to split.
Prepared prepare(const Definition& definition, const CallTypes& call,
                 const fusion::Unpacked& unpacked, bool fuse) {
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
    prepared.arguments.push_back({array.strides, 0, {}});
  }
  fusion::ShapedGraph graph = fusion::move_bounds(fusion::keep_unit_axes(
      fusion::expand_places(fusion::shape_graph(typed, shapes, definition.name))));
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
      outputs.push_back({whole.strides, 0, {}});
    }
  }
  graph.graph = fusion::drop_trivial_reductions(graph.graph, graph.shapes);
  graph = fusion::optimise(graph);
  if (fuse) graph = fusion::split_attention(graph);
  fusion::SplitModel splits;
  splits.forced = definition.forced.parts;
  fusion::SplitGraph split = fusion::split_reductions(graph, splits);
  prepared.lengths = std::move(split.lengths);
  prepared.graph = fusion::place_views(split.graph, prepared.arguments, outputs, unpacked);
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
    const Prepared& graph = prepared(unpacked, model.fuse);
    Planned planned;
    planned.partition = fusion::partition(graph.graph, model);
    planned.plan =
        program_steps(definition_, graph.graph, graph.arguments, graph.lengths, planned.partition);
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
  const Prepared& prepared(const fusion::Unpacked& unpacked, bool fuse) {
    const std::pair key(unpacked, fuse);
    const auto known = prepared_.find(key);
    if (known != prepared_.end()) return known->second;
    return prepared_.emplace(key, prepare(definition_, call_, unpacked, fuse)).first->second;
  }

  const Definition& definition_;
  const CallTypes& call_;
  std::map<std::pair<fusion::Unpacked, bool>, Prepared> prepared_;
};

// Whether a plan needs no more workspace and moves no more bytes than the unfused one.
bool is_no_larger(const Planned& planned, const Planned& unfused) {
  fusion::SizeSum()
      .add(1, planned.partition.traced_bytes)
      .add(-1, unfused.partition.traced_unfused_bytes)
      .decide();
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
                         const fusion::CostModel& model, PlanChoice* choice) {
  Planner planner(definition, call);
  fusion::Unpacked unpacked;
  Planned planned = planner.plan(model, unpacked);
  if (planned.workspace() == 0) return std::move(planned.plan);
  const Planned unfused = planner.plan_unfused();
  // Fused values can live longer, and fused kernels need more unpacked.
  const bool is_larger = !is_no_larger(planned, unfused);
  if (choice != nullptr) {
    choice->is_smaller = is_larger;
    choice->unfused = find_places(unfused.plan, false).lifetimes;
  }
  if (is_larger) {
    planned = SmallerPlans(planner, model, unfused).run(planned, unpacked);
  } else if (model.fuse && !call.target.empty() && is_gpu(call.target) &&
             !fusion::has_custom_calls(definition.graph)) {
    // In manifests kernels beside custom calls are functions, which say what one kernel computes.
    join_prologues(planned.plan, call);
    place_temporaries(planned.plan, true);
  }
  planned.plan.info.op_by_op_bytes = unfused.plan.info.op_by_op_bytes;
  planned.plan.info.op_by_op_workspace = unfused.workspace();
  return std::move(planned.plan);
}

}  // namespace kiln
