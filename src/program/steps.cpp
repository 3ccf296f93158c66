#include "program/steps.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/partition/kernel_graph.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::ArrayLayout;
using fusion::NodeId;
using fusion::Op;
using fusion::PlacedPart;

// Where a stored value is: it may begin somewhere in an output.
struct Place {
  ProgramOperand::Kind kind = ProgramOperand::Kind::temporary;
  std::size_t index = 0;
  ArrayLayout layout;
};

std::vector<fusion::MemoryPlace> places_of(const ProgramStep& step) {
  std::vector<fusion::MemoryPlace> places;
  std::map<std::pair<ProgramOperand::Kind, std::size_t>, std::uint32_t> memories;
  const auto add = [&](const ProgramOperand& operand) {
    const auto number = static_cast<std::uint32_t>(memories.size() + 1);
    const auto memory = memories.emplace(std::pair{operand.kind, operand.index}, number).first;
    places.push_back({operand.scalar ? 0 : memory->second, operand.layout.offset});
  };
  for (const ProgramOperand& operand : step.inputs) add(operand);
  for (const ProgramOperand& operand : step.outputs) add(operand);
  return places;
}

std::vector<fusion::IndexedAxis> indexed_of(const ProgramStep& step) {
  std::vector<fusion::IndexedAxis> indexed;
  for (const auto* operands : {&step.inputs, &step.outputs}) {
    for (const ProgramOperand& operand : *operands) indexed.push_back(operand.layout.indexed);
  }
  return indexed;
}

class Steps {
 public:
  Steps(const Definition& definition, const fusion::PlacedGraph& graph,
        const std::vector<ArrayLayout>& arguments, const std::vector<std::int64_t>& lengths,
        const fusion::Partition& partition)
      : definition_(definition),
        graph_(graph),
        arguments_(arguments),
        lengths_(lengths),
        partition_(partition),
        has_custom_calls_(fusion::has_custom_calls(definition.graph)) {}

  ProgramPlan run() {
    plan_.written.assign(graph_.graph.outputs.size(), partition_.kernels.size());
    plan_.last_read.resize(arguments_.size());
    find_shared();
    place_whole();
    for (std::size_t k = 0; k < partition_.kernels.size(); ++k) {
      add_step(k);
      check_updates(k);
    }
    plan_.info.program = definition_.name;
    plan_.info.bytes = partition_.bytes;
    plan_.info.op_by_op_bytes = partition_.unfused_bytes;
    plan_.info.lower_bound = partition_.lower_bound;
    return std::move(plan_);
  }

 private:
  using Kind = ProgramOperand::Kind;

  const fusion::TypedNode& node(NodeId id) const { return graph_.graph.nodes[id]; }

  // -- Places

  void find_shared() {
    for (const fusion::KernelPart& kernel : partition_.kernels) {
      for (const NodeId id : kernel.reads) {
        const NodeId root = fusion::viewed(graph_.graph, id);
        shared_.insert(root);
        if (root != id) seen_.insert(root);
      }
    }
  }

  // Joins and results of calls have one place each: the output that they are, or a temporary.
  void place_whole() {
    for (std::size_t i = 0; i < graph_.stores.size(); ++i) {
      for (const PlacedPart& part : graph_.stores[i]) {
        const Op op = node(part.value).op;
        const Place place{Kind::output, i, part.layout};
        outputs_[part.value].push_back(place);
        if (op == Op::join || op == Op::custom_call) places_[part.value] = place;
        if (const auto argument = fusion::updated_argument(graph_, part.value)) {
          plan_.updates.emplace_back(i, node(*argument).payload);
        }
      }
    }
    for (NodeId id = 0; id < graph_.graph.nodes.size(); ++id) {
      const Op op = node(id).op;
      if (op != Op::join && op != Op::custom_call) continue;
      if (!places_.contains(id)) places_[id] = add_temporary(id);
      if (op != Op::join) continue;
      for (const PlacedPart& part : graph_.joins[node(id).payload]) {
        joined_[part.value].push_back({id, part.layout});
      }
    }
  }

  Place add_temporary(NodeId id) {
    const DType dtype = fusion::stored_dtype(graph_, id);
    const std::uint64_t bytes = fusion::byte_count(dtype, graph_.shapes[id]);
    plan_.temporaries.push_back({dtype, bytes, 0});
    return {Kind::temporary, plan_.temporaries.size() - 1,
            fusion::contiguous_layout(graph_.shapes[id])};
  }

  ProgramOperand written(NodeId id, const Place& place, std::size_t k) {
    ProgramOperand operand{place.kind, place.index, false, graph_.shapes[id], place.layout};
    if (place.kind == Kind::output) {
      plan_.written[place.index] = std::min(plan_.written[place.index], k);
    }
    return operand;
  }

  std::string output_name(std::size_t i) const {
    const std::string& name = graph_.graph.output_names[i];
    return name.empty() ? fmt::format("out{}", i) : name;
  }

  std::string part_name(const Place& place, NodeId id) const {
    const std::string whole =
        place.kind == Kind::output ? output_name(place.index) : fmt::format("t{}", id);
    return fmt::format("a part of {}", whole);
  }

  // Where a kernel writes is nothing that it reads: threads would meet there.
  void check_updates(std::size_t k) const {
    const ProgramStep& step = plan_.steps[k];
    for (const auto& [output, argument] : plan_.updates) {
      const auto writes = [&](const ProgramOperand& operand) {
        return operand.kind == Kind::output && operand.index == output;
      };
      const auto reads = [&](const ProgramOperand& operand) {
        return operand.kind == Kind::argument && operand.index == argument;
      };
      if (!step.kernel || std::ranges::none_of(step.outputs, writes) ||
          std::ranges::none_of(step.inputs, reads)) {
        continue;
      }
      throw Error(Code::unsupported,
                  fmt::format("{}: put: the kernel that updates '{}' reads it too; only another "
                              "kernel, before it, can",
                              definition_.name, graph_.graph.argument_names[argument]));
    }
  }

  // -- Steps

  void add_step(std::size_t k) {
    const fusion::KernelPart& part = partition_.kernels[k];
    ProgramKernel info;
    info.reason = part.reason;
    info.bytes = part.bytes;
    info.op_by_op_bytes = part.unfused_bytes;
    std::set<std::size_t> after;
    ProgramStep step =
        part.call ? call_step(part, k, info, after) : kernel_step(part, k, info, after);
    info.after.assign(after.begin(), after.end());
    plan_.steps.push_back(std::move(step));
    plan_.info.kernels.push_back(std::move(info));
  }

  ProgramStep call_step(const fusion::KernelPart& part, std::size_t k, ProgramKernel& info,
                        std::set<std::size_t>& after) {
    const fusion::PlacedCall& placed = graph_.calls[*part.call];
    const fusion::CustomCall& call = graph_.graph.tables->calls[placed.call];
    ProgramStep step;
    step.call = std::static_pointer_cast<const LibraryCall>(call.body);
    info.name = call.name;
    info.call = true;
    for (const NodeId id : placed.inputs) step.inputs.push_back(input(id, k, info, after));
    std::vector<NodeId> results = placed.results;
    std::ranges::sort(results, {}, [&](NodeId id) { return node(id).payload; });
    for (const NodeId id : results) {
      step.outputs.push_back(written(id, places_.at(id), k));
      stored_by_[id] = k;
      info.writes.push_back(places_.at(id).kind == Kind::output ? output_name(places_.at(id).index)
                                                                : fmt::format("t{}", id));
    }
    info.expression = fmt::format("{}({})", call.name, fmt::join(info.reads, ", "));
    return step;
  }

  ProgramStep kernel_step(const fusion::KernelPart& part, std::size_t k, ProgramKernel& info,
                          std::set<std::size_t>& after) {
    std::vector<fusion::Store> stores;
    ProgramStep step;
    for (const NodeId id : part.results) store(id, k, stores, step.outputs, info);
    fusion::KernelGraph kernel = fusion::kernel_graph(graph_, part, stores);
    info.name = partition_.kernels.size() == 1 ? definition_.name
                                               : fmt::format("{}_{}", definition_.name, k);
    const bool along_axes = fusion::works_along_axes(kernel.graph);
    TypedFunction function{info.name, fusion::to_text(kernel.untyped), definition_.options,
                           std::move(kernel.graph), part.splits};
    function.forced = definition_.forced;
    info.expression = fusion::to_short_text(kernel.untyped);
    for (const NodeId id : part.values) {
      const bool counts =
          node(id).arity > 0 && node(id).op != Op::promote && node(id).op != Op::view;
      info.operations += counts ? 1 : 0;
    }
    for (const NodeId id : kernel.arguments) step.inputs.push_back(input(id, k, info, after));
    if (!along_axes) give_one_rank(step.outputs);
    step.kernel = kiln::step_kernel(std::move(function), step, has_custom_calls_);
    step.shape = part.shape;
    return step;
  }

  // Outputs of a kernel that works element by element have one shape, but for axes of size one in
  // front.
  static void give_one_rank(std::vector<ProgramOperand>& outputs) {
    std::size_t rank = 0;
    for (const ProgramOperand& output : outputs) rank = std::max(rank, output.shape.size());
    for (ProgramOperand& output : outputs) {
      const std::size_t more = rank - output.shape.size();
      Dims shape(rank, 1);
      Dims strides(rank, 0);
      std::ranges::copy(output.shape, shape.begin() + more);
      std::ranges::copy(output.layout.strides, strides.begin() + more);
      output.shape = std::move(shape);
      output.layout.strides = std::move(strides);
    }
  }

  // A result goes to every output and into every join that it is a part of, and where another
  // kernel needs it, to a temporary, unless an output holds it without loss.
  void store(NodeId id, std::size_t k, std::vector<fusion::Store>& stores,
             std::vector<ProgramOperand>& outputs, ProgramKernel& info) {
    const DType stored = fusion::stored_dtype(graph_, id);
    const DType own = node(id).dtype;
    stored_by_[id] = k;
    for (const Place& place : outputs_[id]) {
      stores.push_back({id, own});
      outputs.push_back(written(id, place, k));
      const bool whole = graph_.stores[place.index].size() == 1;
      info.writes.push_back(whole ? output_name(place.index) : part_name(place, id));
      const bool readable =
          !seen_.contains(id) || fusion::is_contiguous(place.layout, graph_.shapes[id]);
      if (stored == own && readable) places_.emplace(id, place);
    }
    if (const auto joined = joined_.find(id); joined != joined_.end()) {
      for (const auto& [join, layout] : joined->second) {
        Place place = places_.at(join);
        place.layout.strides = layout.strides;
        place.layout.offset += layout.offset;
        place.layout.indexed = layout.indexed;
        stores.push_back(
            {id, place.kind == Kind::output ? own : fusion::stored_dtype(graph_, join)});
        outputs.push_back(written(id, place, k));
        stored_by_[join] = std::max(stored_by_[join], k);
        info.writes.push_back(part_name(place, join));
      }
    }
    if (places_.contains(id) || !shared_.contains(id)) return;
    places_[id] = add_temporary(id);
    stores.push_back({id, stored});
    outputs.push_back(written(id, places_[id], k));
    info.writes.push_back(fmt::format("t{}", id));
  }

  ProgramOperand input(NodeId id, std::size_t k, ProgramKernel& info,
                       std::set<std::size_t>& after) {
    const NodeId root = fusion::viewed(graph_.graph, id);
    const fusion::TypedNode& source = node(root);
    const std::string suffix =
        root == id ? "" : fmt::format(" seen as {}", fusion::to_string(graph_.shapes[id]));
    if (source.op == Op::scalar) {
      info.reads.push_back(graph_.graph.argument_names[source.payload]);
      if (source.payload >= arguments_.size()) {
        const std::int64_t length = lengths_[source.payload - arguments_.size()];
        return {Kind::length, static_cast<std::size_t>(length), true, {}, {}};
      }
      return {Kind::argument, source.payload, true, {}, {}};
    }
    if (source.op == Op::input) {
      info.reads.push_back(graph_.graph.argument_names[source.payload] + suffix);
      plan_.last_read[source.payload] = k + 1;
      ProgramOperand operand{Kind::argument, source.payload, false, graph_.shapes[id], {}};
      operand.layout = root == id ? arguments_[source.payload] : view_layout(id);
      return operand;
    }
    const auto place = places_.find(root);
    if (place == places_.end() || !stored_by_.contains(root) || stored_by_[root] >= k) {
      throw Error(Code::internal, fmt::format("{}: kernel {} reads a value that none has stored",
                                              definition_.name, k));
    }
    add_writers(root, after);
    info.reads.push_back(fmt::format("t{}{}", root, suffix));
    ProgramOperand operand{place->second.kind, place->second.index, false, graph_.shapes[id],
                           place->second.layout};
    if (root != id) {
      operand.layout.strides = view_layout(id).strides;
      operand.layout.offset += view_layout(id).offset;
      operand.layout.indexed = view_layout(id).indexed;
    }
    return operand;
  }

  const ArrayLayout& view_layout(NodeId id) const { return graph_.views[node(id).payload]; }

  void add_writers(NodeId root, std::set<std::size_t>& after) {
    if (node(root).op != Op::join) {
      after.insert(stored_by_[root]);
      return;
    }
    for (const PlacedPart& part : graph_.joins[node(root).payload]) {
      after.insert(stored_by_[part.value]);
    }
  }

  const Definition& definition_;
  const fusion::PlacedGraph& graph_;
  const std::vector<ArrayLayout>& arguments_;
  const std::vector<std::int64_t>& lengths_;
  const fusion::Partition& partition_;
  const bool has_custom_calls_;
  ProgramPlan plan_;
  std::set<NodeId> shared_;  ///< values that cross from one kernel to another
  std::set<NodeId> seen_;    ///< of those, the ones that are read through views
  std::map<NodeId, Place> places_;
  std::map<NodeId, std::vector<Place>> outputs_;      ///< that a value is, or a part of
  std::map<NodeId, std::size_t> stored_by_;           ///< the last step that writes to it
  std::map<NodeId, std::vector<PlacedPart>> joined_;  ///< the joins that a value is a part of
};

}  // namespace

std::shared_ptr<StepKernel> step_kernel(TypedFunction function, const ProgramStep& step,
                                        bool logged) {
  return std::make_shared<StepKernel>(std::move(function), places_of(step), indexed_of(step),
                                      logged);
}

ProgramPlan program_steps(const Definition& definition, const fusion::PlacedGraph& graph,
                          const std::vector<ArrayLayout>& arguments,
                          const std::vector<std::int64_t>& lengths,
                          const fusion::Partition& partition) {
  return Steps(definition, graph, arguments, lengths, partition).run();
}

}  // namespace kiln
