#include "program_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "fusion/reduce_layout.hpp"
#include "fusion/shapes.hpp"
#include "fusion/text.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::NodeId;

class Planner {
 public:
  Planner(const Definition& definition, fusion::ShapedGraph graph, fusion::Partition partition)
      : definition_(definition), graph_(std::move(graph)), partition_(std::move(partition)) {}

  ProgramPlan run() {
    plan_.output_shapes.resize(graph_.graph.outputs.size());
    plan_.written.resize(graph_.graph.outputs.size());
    plan_.last_read.resize(graph_.graph.arguments.size());
    for (std::size_t i = 0; i < graph_.graph.outputs.size(); ++i) {
      plan_.output_shapes[i] = graph_.shapes[graph_.graph.outputs[i]];
    }
    for (const fusion::KernelPart& kernel : partition_.kernels) {
      for (const NodeId id : kernel.reads) shared_.insert(id);
    }
    for (std::size_t k = 0; k < partition_.kernels.size(); ++k) add_step(k);
    place_temporaries();
    plan_.info.program = definition_.name;
    plan_.info.bytes = partition_.bytes;
    plan_.info.op_by_op_bytes = partition_.op_by_op;
    plan_.info.lower_bound = partition_.lower_bound;
    return std::move(plan_);
  }

 private:
  using Kind = ProgramOperand::Kind;

  void add_step(std::size_t k) {
    const fusion::KernelPart& part = partition_.kernels[k];
    ProgramKernel told;
    told.reason = part.reason;
    told.bytes = part.bytes;
    std::vector<fusion::Store> stores;
    std::vector<ProgramOperand> outputs;
    for (const NodeId id : part.results) store(id, k, stores, outputs, told);
    fusion::KernelGraph kernel = fusion::kernel_graph(graph_, part, stores);

    auto impl = std::make_shared<Function::Impl>();
    impl->definition.name = partition_.kernels.size() == 1
                                ? definition_.name
                                : fmt::format("{}_{}", definition_.name, k);
    impl->definition.expression = fusion::to_text(kernel.untyped);
    impl->definition.graph = std::move(kernel.untyped);
    impl->definition.options = definition_.options;
    impl->definition.typed = std::make_shared<fusion::TypedGraph>(std::move(kernel.graph));
    told.expression = impl->definition.expression;
    for (const NodeId id : part.values) {
      const fusion::TypedNode& node = graph_.graph.nodes[id];
      told.operations += node.arity > 0 && node.op != fusion::Op::promote ? 1 : 0;
    }
    ProgramStep step{Function(std::move(impl)), {}, std::move(outputs)};
    std::set<std::size_t> after;
    for (const NodeId id : kernel.arguments) step.inputs.push_back(input(id, k, told, after));
    told.after.assign(after.begin(), after.end());
    plan_.steps.push_back(std::move(step));
    plan_.info.kernels.push_back(std::move(told));
  }

  // A result goes to every output that it is, and where another kernel needs it, to a temporary,
  // unless an output holds it without loss.
  void store(NodeId id, std::size_t k, std::vector<fusion::Store>& stores,
             std::vector<ProgramOperand>& outputs, ProgramKernel& told) {
    const DType stored = fusion::stored_dtype(graph_.graph, id);
    const DType own = graph_.graph.nodes[id].dtype;
    bool held = false;
    for (std::size_t i = 0; i < graph_.graph.outputs.size(); ++i) {
      if (graph_.graph.outputs[i] != id) continue;
      stores.push_back({id, own});
      outputs.push_back({Kind::output, i});
      plan_.written[i] = k;
      const std::string& name = graph_.graph.output_names[i];
      told.writes.push_back(name.empty() ? fmt::format("out{}", i) : name);
      if (!held && stored == own) {
        places_[id] = {{Kind::output, i}, k};
        held = true;
      }
    }
    if (held || !shared_.contains(id)) return;
    stores.push_back({id, stored});
    outputs.push_back({Kind::temporary, plan_.temporaries.size()});
    places_[id] = {outputs.back(), k};
    plan_.temporaries.push_back({stored, graph_.shapes[id], 0});
    lifetimes_.push_back({bytes_of(stored, graph_.shapes[id]), k, k});
    told.writes.push_back(fmt::format("t{}", id));
  }

  static std::uint64_t bytes_of(DType dtype, const Dims& shape) {
    std::uint64_t size = 1;
    for (const std::int64_t extent : shape) size *= static_cast<std::uint64_t>(extent);
    return (size * static_cast<std::uint64_t>(bits(dtype)) + 7) / 8;
  }

  ProgramOperand input(NodeId id, std::size_t k, ProgramKernel& told,
                       std::set<std::size_t>& after) {
    const fusion::TypedNode& node = graph_.graph.nodes[id];
    if (const auto place = places_.find(id); place != places_.end() && place->second.second < k) {
      after.insert(place->second.second);
      told.reads.push_back(fmt::format("t{}", id));
      const ProgramOperand operand = place->second.first;
      if (operand.kind == Kind::temporary) lifetimes_[operand.index].last = k;
      return operand;
    }
    if (node.op != fusion::Op::input && node.op != fusion::Op::scalar) {
      throw Error(Code::internal, fmt::format("{}: kernel {} reads a value that none has stored",
                                              definition_.name, k));
    }
    told.reads.push_back(graph_.graph.argument_names[node.payload]);
    plan_.last_read[node.payload] = k + 1;
    return {Kind::argument, node.payload};
  }

  void place_temporaries() {
    const fusion::Workspace workspace = fusion::plan_workspace(lifetimes_);
    for (std::size_t i = 0; i < plan_.temporaries.size(); ++i) {
      plan_.temporaries[i].offset = workspace.offsets[i];
    }
    plan_.info.workspace_bytes = workspace.bytes;
  }

  const Definition& definition_;
  const fusion::ShapedGraph graph_;
  const fusion::Partition partition_;
  ProgramPlan plan_;
  std::set<NodeId> shared_;  ///< values that cross from one kernel to another
  std::map<NodeId, std::pair<ProgramOperand, std::size_t>> places_;
  std::vector<fusion::Lifetime> lifetimes_;
};

}  // namespace

ProgramPlan plan_program(const Definition& definition,
                         std::span<const fusion::ArgumentType> arguments,
                         std::span<const Dims> argument_shapes, std::span<const DType> outputs,
                         const fusion::CostModel& model) {
  fusion::ShapedGraph graph;
  graph.graph = fusion::infer(definition.graph, arguments, outputs, definition.options.rounding,
                              definition.name);
  graph.shapes = fusion::infer_shapes(graph.graph, argument_shapes, definition.name);
  graph.graph = fusion::drop_trivial_reductions(graph.graph, graph.shapes);
  graph = fusion::optimise(graph);
  fusion::Partition partition = fusion::partition(graph, model);
  return Planner(definition, std::move(graph), std::move(partition)).run();
}

}  // namespace kiln
