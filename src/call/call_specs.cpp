#include "call/call_specs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "call/indexed_specs.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/extract.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/partition/row_work.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/text/text.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::to_string;

// ---- Types -------------------------------------------------------------------------------------

// What moves elements, or is the caller's, takes a Program.
void check_one_kernel(const Definition& definition) {
  const fusion::OpInfo* op = fusion::program_op(definition.graph);
  if (op == nullptr) return;
  throw Error(Code::unsupported,
              fmt::format("{}: {} is not for a Function, which is one kernel: make it a "
                          "kiln::Program (kiln::program, trace_program, parse_program)",
                          definition.name, op->op == fusion::Op::tuple ? "a call" : op->name));
}

fusion::TypedGraph typed_graph(const Definition& definition,
                               std::span<const fusion::ArgumentType> arguments,
                               std::span<const DType> dtypes) {
  check_one_kernel(definition);
  return fusion::drop_clamps(fusion::infer(definition.graph, arguments, dtypes,
                                           definition.options.rounding, definition.name));
}

TypedFunction typed_function(const Definition& definition, fusion::TypedGraph graph) {
  return {.name = definition.name,
          .expression = definition.expression,
          .options = definition.options,
          .graph = std::move(graph),
          .forced = definition.forced};
}

// ---- Shapes ------------------------------------------------------------------------------------

// The positions of the array arguments among all arguments.
std::vector<std::size_t> array_positions(std::span<const fusion::ArgumentType> arguments) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].scalar) positions.push_back(i);
  }
  return positions;
}

// All arrays broadcast against each other, whatever reads them.
void check_inputs(const Definition& definition, const CallTypes& types) {
  const std::vector<std::size_t> positions = array_positions(types.arguments);
  Dims shape;
  for (std::size_t i = 0; i < types.arrays.size(); ++i) {
    const std::optional<Dims> wider = fusion::broadcast(shape, types.arrays[i].shape);
    if (!wider) {
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: input {} '{}': shape {} does not broadcast with {}, the shape "
                      "of the inputs before it",
                      definition.name, positions[i], definition.graph.arguments()[positions[i]],
                      to_string(types.arrays[i].shape), to_string(shape)));
    }
    shape = *wider;
  }
}

// The shape of the arguments that each node depends on.
std::vector<Dims> node_shapes(const fusion::Graph& graph, const CallTypes& types) {
  std::vector<Dims> arguments(types.arguments.size());
  const std::vector<std::size_t> positions = array_positions(types.arguments);
  for (std::size_t i = 0; i < positions.size(); ++i)
    arguments[positions[i]] = types.arrays[i].shape;
  std::vector<Dims> shapes;
  for (const fusion::Node& node : graph.nodes()) {
    Dims shape = node.op == fusion::Op::input ? arguments[node.payload] : Dims();
    for (const fusion::NodeId operand : node.inputs())
      shape = *fusion::broadcast(shape, shapes[operand]);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

// Of the outputs.
std::vector<Dims> natural_shapes(const Definition& definition, const fusion::TypedGraph& graph,
                                 const CallTypes& types) {
  std::vector<Dims> outputs;
  if (fusion::works_along_axes(graph)) {
    const fusion::ShapedGraph shaped =
        fusion::shape_graph(graph, argument_shapes(graph, types.arrays), definition.name);
    for (const fusion::NodeId output : shaped.graph.outputs) {
      outputs.push_back(shaped.shapes[output]);
    }
    return outputs;
  }
  if (fusion::has_indexed(definition.graph)) {
    const fusion::ShapedGraph shaped =
        fusion::shape_graph(graph, argument_shapes(graph, types.arrays), definition.name);
    for (const fusion::NodeId output : shaped.graph.outputs) {
      outputs.push_back(shaped.shapes[output]);
    }
    return outputs;
  }
  check_inputs(definition, types);
  const std::vector<Dims> shapes = node_shapes(definition.graph, types);
  for (const fusion::NodeId output : definition.graph.outputs()) outputs.push_back(shapes[output]);
  return outputs;
}

// ---- Along axes: one kernel --------------------------------------------------------------------

// What the passes of one kernel with the graph of that space compute.
fusion::RowWork work_of(const fusion::TypedGraph& graph, std::span<const Dims> arguments,
                        const fusion::ReduceSpace& space) {
  std::vector<bool> row_invariant(graph.arguments.size(), true);
  for (const fusion::TypedNode& node : graph.nodes) {
    if (node.op != fusion::Op::input) continue;
    row_invariant[node.payload] = fusion::is_row_invariant(arguments[node.payload], space);
  }
  return fusion::row_work(
      graph,
      fusion::row_invariant_nodes(graph, row_invariant, fusion::iotas_within_rows(graph, space)));
}

// What a Program makes kernels of is bounded there (fusion/partition/row_passes.hpp).
void check_work(const KernelSpec& spec, std::span<const ArrayType> arrays) {
  const auto* rows = std::get_if<RowsForm>(&spec.form);
  if (rows == nullptr) return;
  const fusion::TypedGraph& graph = spec.function.graph;
  const fusion::RowWork work = work_of(graph, argument_shapes(graph, arrays), rows->space);
  if (!work.is_out_of_bounds()) return;
  throw Error(
      Code::unsupported,
      fmt::format(
          "{}: one kernel cannot compute this: its reductions wait for each other, and "
          "recomputing what each of them reduces would take more than {:.0f} operations per "
          "element instead of {:.0f}; use a kiln::Program, which takes several kernels",
          spec.function.name, work.once + work.again, work.once));
}

// ---- Element by element: one kernel for each shape ---------------------------------------------

// `shape` with axes of size one in front, so that shapes of one call compare.
Dims with_rank(const Dims& shape, std::size_t rank) {
  Dims result(rank, 1);
  std::ranges::copy(shape, result.begin() + (rank - shape.size()));
  return result;
}

// An argument that nothing reads may have any shape, also one that no output has.
bool reads_every_argument(const fusion::Graph& graph) {
  const std::vector<bool> read = fusion::arguments_of(graph, graph.outputs());
  return std::ranges::find(read, false) == read.end();
}

// An iota counts along the axes of its own output, so shapes of different rank differ there.
bool counts_axes(const fusion::Graph& graph) {
  return std::ranges::find(graph.nodes(), fusion::Op::iota, &fusion::Node::op) !=
         graph.nodes().end();
}

// The outputs that have one shape, by position, and that shape.
struct Group {
  Dims shape;
  std::vector<std::size_t> outputs;
};

std::vector<Group> group_by_shape(std::span<const ArrayType> outputs, bool by_rank) {
  std::size_t rank = 0;
  for (const ArrayType& output : outputs) rank = std::max(rank, output.shape.size());
  std::vector<Group> groups;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Dims shape = by_rank ? outputs[i].shape : with_rank(outputs[i].shape, rank);
    auto group = std::ranges::find(groups, shape, &Group::shape);
    if (group == groups.end()) group = groups.insert(group, {shape, {}});
    group->outputs.push_back(i);
  }
  const auto size = [](const Group& group) {
    return std::accumulate(group.shape.begin(), group.shape.end(), 1.0, std::multiplies<>());
  };
  std::ranges::stable_sort(groups, std::greater<>(), size);
  return groups;
}

// The function of some outputs alone.
KernelSpec spec_of(const Definition& whole, const CallTypes& types,
                   std::vector<std::size_t> outputs) {
  fusion::Extract extract = fusion::extract(whole.graph, outputs);
  CallTypes own;
  for (const std::size_t argument : extract.arguments) {
    own.arguments.push_back(types.arguments[argument]);
    if (types.arguments[argument].scalar) continue;
    const auto array = std::count_if(
        types.arguments.begin(), types.arguments.begin() + static_cast<std::ptrdiff_t>(argument),
        [](const fusion::ArgumentType& type) { return !type.scalar; });
    own.arrays.push_back(types.arrays[static_cast<std::size_t>(array)]);
  }
  std::vector<DType> dtypes;
  for (const std::size_t output : outputs) {
    own.outputs.push_back(types.outputs[output]);
    dtypes.push_back(types.outputs[output].dtype);
  }
  std::string expression = fusion::to_text(extract.graph);
  const Definition definition{whole.name, std::move(extract.graph), whole.options,
                              std::move(expression)};
  KernelSpec spec =
      kernel_spec(typed_function(definition, typed_graph(definition, own.arguments, dtypes)),
                  own.arrays, own.outputs);
  spec.arguments = std::move(extract.arguments);
  spec.outputs = std::move(outputs);
  return spec;
}

}  // namespace

std::vector<KernelSpec> call_specs(const Definition& definition, const CallTypes& types) {
  if (fusion::has_indexed(definition.graph)) {
    check_one_kernel(definition);
    return {indexed_spec(definition, types)};
  }
  std::vector<DType> dtypes;
  for (const ArrayType& output : types.outputs) dtypes.push_back(output.dtype);
  fusion::TypedGraph graph = typed_graph(definition, types.arguments, dtypes);
  std::vector<KernelSpec> specs;
  const auto add_whole = [&] {
    specs.push_back(
        kernel_spec(typed_function(definition, std::move(graph)), types.arrays, types.outputs));
  };
  if (fusion::works_along_axes(graph)) {
    add_whole();
    check_work(specs.front(), types.arrays);
    return specs;
  }
  const std::vector<Dims> natural = natural_shapes(definition, graph, types);
  for (std::size_t i = 0; i < types.outputs.size(); ++i) {
    check_output(definition.name, output_label(definition.graph.output_names(), i),
                 types.outputs[i], natural[i]);
  }
  std::vector<Group> groups = group_by_shape(types.outputs, counts_axes(definition.graph));
  if (groups.size() == 1 && reads_every_argument(definition.graph)) {
    add_whole();
    return specs;
  }
  for (Group& group : groups) {
    specs.push_back(spec_of(definition, types, std::move(group.outputs)));
  }
  return specs;
}

std::vector<ArrayType> natural_outputs(const Definition& definition, const CallTypes& types,
                                       std::span<const DType> dtypes, const Dims& at_least) {
  const fusion::TypedGraph graph = typed_graph(definition, types.arguments, dtypes);
  const std::vector<Dims> natural = natural_shapes(definition, graph, types);
  std::vector<ArrayType> outputs;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    ArrayType output;
    output.dtype = graph.nodes[graph.outputs[i]].dtype;
    const std::optional<Dims> wider = fusion::broadcast(natural[i], at_least);
    if (!wider) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: {}: its shape {} does not broadcast with {}", definition.name,
                              output_label(definition.graph.output_names(), i),
                              to_string(natural[i]), to_string(at_least)));
    }
    output.shape = *wider;
    output.strides = contiguous_strides(output.shape);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

bool is_one_kernel(const Definition& definition, const CallTypes& types) {
  const fusion::TypedGraph graph = fusion::infer(definition.graph, types.arguments, {},
                                                 definition.options.rounding, definition.name);
  const std::vector<Dims> arguments = argument_shapes(graph, types.arrays);
  fusion::ShapedGraph shaped = fusion::shape_graph(graph, arguments, definition.name);
  const auto packed = [](const auto& value) { return is_packed(value.dtype); };
  const bool packs = std::ranges::any_of(types.arrays, packed) ||
                     std::ranges::any_of(graph.outputs, [&](fusion::NodeId output) {
                       return packed(graph.nodes[output]);
                     });
  if (fusion::has_scans(graph)) {
    return !packs && !counts_axes(definition.graph) &&
           fusion::scan_space(graph, shaped.shapes).conflict.empty();
  }
  const fusion::TypedGraph rest = fusion::drop_trivial_reductions(shaped.graph, shaped.shapes);
  const fusion::ReduceSpace space = fusion::reduce_space(rest, shaped.shapes);
  if (!rows_conflict(rest, shaped.shapes, space).empty()) return false;
  if (work_of(rest, arguments, space).is_better_cut()) return false;
  if (!packs) return true;
  return can_reduce_packed(kernel_spec(typed_function(definition, graph), types.arrays,
                                       natural_outputs(definition, types, {}, Dims())));
}

}  // namespace kiln
