#include "call/indexed_specs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/partition/kernel_graph.hpp"
#include "fusion/partition/partition.hpp"
#include "fusion/passes/passes.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::ArrayLayout;
using fusion::NodeId;

class IndexedSpec {
 public:
  IndexedSpec(const Definition& definition, const CallTypes& types)
      : definition_(definition), types_(types) {}

  KernelSpec run() {
    place();
    const fusion::Partition partition = fusion::partition(placed_);
    if (partition.kernels.size() != 1) {
      refuse(partition.kernels.empty() ? "there is nothing to store"
                                       : partition.kernels.back().reason);
    }
    for (std::size_t i = 0; i < placed_.stores.size(); ++i) add_output(i);
    fusion::KernelGraph kernel = fusion::kernel_graph(placed_, partition.kernels.front(), stores_);
    std::vector<ArrayType> arrays;
    std::vector<std::size_t> arguments;
    for (const NodeId id : kernel.arguments) add_argument(id, arrays, arguments);
    name_operands(kernel.graph);
    KernelSpec spec = kernel_spec(
        {definition_.name, definition_.expression, definition_.options, std::move(kernel.graph)},
        arrays, outputs_);
    spec.arguments = std::move(arguments);
    spec.updates = std::move(updates_);
    check_updates(spec);
    return spec;
  }

 private:
  [[noreturn]] void refuse(std::string_view reason) const {
    throw Error(Code::unsupported, fmt::format("{}: one kernel cannot compute this: {}; use a "
                                               "kiln::Program, which takes several kernels",
                                               definition_.name, reason));
  }

  void place() {
    std::vector<DType> dtypes;
    for (const ArrayType& output : types_.outputs) dtypes.push_back(output.dtype);
    const fusion::TypedGraph typed = fusion::infer(definition_.graph, types_.arguments, dtypes,
                                                   definition_.options.rounding, definition_.name);
    std::vector<ArrayLayout> outputs;
    fusion::ShapedGraph graph = fusion::move_bounds(fusion::expand_places(
        fusion::shape_graph(typed, argument_shapes(typed, types_.arrays), definition_.name)));
    for (std::size_t i = 0; i < types_.outputs.size(); ++i) {
      const Dims& kept = graph.shapes[graph.graph.outputs[i]];
      const std::string label = output_label(definition_.graph.output_names(), i);
      const ArrayType whole = with_kept_axes(definition_.name, label, types_.outputs[i], kept);
      check_output(definition_.name, label, whole, kept);
      outputs.push_back({whole.strides, 0, {}});
    }
    std::size_t next = 0;
    for (const fusion::ArgumentType& argument : types_.arguments) {
      arguments_.push_back({argument.scalar ? Dims() : types_.arrays[next].strides, 0, {}});
      array_positions_.push_back(argument.scalar ? 0 : next++);
    }
    graph.graph = fusion::drop_trivial_reductions(graph.graph, graph.shapes);
    placed_ =
        fusion::place_views(fusion::hoist_views(fusion::drop_clamps(graph)), arguments_, outputs);
  }

  void add_output(std::size_t i) {
    const std::vector<fusion::PlacedPart>& parts = placed_.stores[i];
    fusion::PlacedPart part = parts.front();
    if (const auto argument = fusion::updated_argument(placed_, part.value)) {
      updates_.emplace_back(i, placed_.graph.nodes[*argument].payload);
      const auto& stored = placed_.joins[placed_.graph.nodes[part.value].payload];
      if (stored.size() != 1) refuse("put stores several values that are concatenated");
      part = stored.front();
    }
    if (parts.size() != 1 || !fusion::is_computed(placed_.graph.nodes[part.value])) {
      refuse("an output is stored by several kernels");
    }
    stores_.push_back({part.value, placed_.graph.nodes[part.value].dtype});
    ArrayType output = types_.outputs[i];
    output.shape = placed_.shapes[part.value];
    output.strides = part.layout.strides;
    output.indexed = part.layout.indexed;
    outputs_.push_back(std::move(output));
  }

  void add_argument(NodeId id, std::vector<ArrayType>& arrays,
                    std::vector<std::size_t>& arguments) const {
    const fusion::TypedNode& node = placed_.graph.nodes[id];
    const NodeId root = fusion::viewed(placed_.graph, id);
    const auto argument = static_cast<std::size_t>(placed_.graph.nodes[root].payload);
    arguments.push_back(argument);
    if (types_.arguments[argument].scalar) return;
    ArrayType array = types_.arrays[array_positions_[argument]];
    if (id != root) {
      const ArrayLayout& layout = placed_.views[node.payload];
      array.shape = placed_.shapes[id];
      array.strides = layout.strides;
      array.indexed = layout.indexed;
    }
    arrays.push_back(std::move(array));
  }

  // As the function's are called.
  void name_operands(fusion::TypedGraph& graph) const {
    graph.output_names = definition_.graph.output_names();
  }

  // Where the kernel writes is nothing that it reads: threads would meet there.
  void check_updates(const KernelSpec& spec) const {
    for (const auto& [output, argument] : spec.updates) {
      if (std::ranges::find(spec.arguments, argument) == spec.arguments.end()) continue;
      refuse(
          fmt::format("it reads '{}', which put updates", definition_.graph.arguments()[argument]));
    }
  }

  const Definition& definition_;
  const CallTypes& types_;
  fusion::PlacedGraph placed_;
  std::vector<ArrayLayout> arguments_;
  std::vector<std::size_t> array_positions_;  ///< of each argument among the arrays
  std::vector<fusion::Store> stores_;
  std::vector<ArrayType> outputs_;
  std::vector<std::pair<std::size_t, std::size_t>> updates_;
};

}  // namespace

KernelSpec indexed_spec(const Definition& definition, const CallTypes& types) {
  return IndexedSpec(definition, types).run();
}

}  // namespace kiln
