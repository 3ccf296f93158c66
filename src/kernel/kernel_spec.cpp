#include "kernel/kernel_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::to_string;

void check_no_conflict(const TypedFunction& function, const std::string& conflict) {
  if (conflict.empty()) return;
  throw Error(Code::unsupported, fmt::format("{}: one kernel cannot compute this: {}; use a "
                                             "kiln::Program, which takes several kernels",
                                             function.name, conflict));
}

// An argument that nothing reads may have any shape.
bool fits(const ArrayType& array, const Dims& shape) {
  return fusion::broadcast(array.shape, shape) == shape;
}

fusion::Operand argument_operand(const ArrayType& array, const Dims& shape) {
  const ArrayType one{array.dtype, Dims(), Dims(), array.address};
  return operand_of(fits(array, shape) ? array : one, shape, false);
}

// ---- Element by element ------------------------------------------------------------------------

// How many arrays come before an argument.
std::size_t array_position(const fusion::TypedGraph& graph, std::uint64_t argument) {
  return static_cast<std::size_t>(std::count_if(
      graph.arguments.begin(), graph.arguments.begin() + static_cast<std::ptrdiff_t>(argument),
      [](const fusion::ArgumentType& type) { return !type.scalar; }));
}

// The outputs' shape, with the most axes that one of them has.
Dims common_shape(const TypedFunction& function, std::span<const ArrayType> outputs) {
  Dims shape;
  for (const ArrayType& output : outputs) {
    if (output.shape.size() > shape.size()) shape = output.shape;
  }
  for (const ArrayType& output : outputs) {
    if (fusion::same_but_for_ones_in_front(output.shape, shape)) continue;
    throw Error(Code::internal,
                fmt::format("{}: one kernel has outputs of shapes {} and {}", function.name,
                            to_string(output.shape), to_string(shape)));
  }
  return shape;
}

void add_elementwise(KernelSpec& spec, std::span<const ArrayType> arrays,
                     std::span<const ArrayType> outputs) {
  spec.shape = common_shape(spec.function, outputs);
  for (const ArrayType& array : arrays) {
    spec.operands.push_back(argument_operand(array, spec.shape));
  }
  for (const ArrayType& output : outputs) {
    spec.operands.push_back(operand_of(output, spec.shape, true));
  }
  for (fusion::Operand& count :
       fusion::iota_operands(spec.function.graph, spec.shape, spec.function.name)) {
    spec.operands.push_back(std::move(count));
  }
}

// ---- Along axes --------------------------------------------------------------------------------

// An output of the shape that the graph gives it.
fusion::Operand output_operand(const TypedFunction& function, std::size_t index,
                               const ArrayType& output, const Dims& kept, const Dims& shape) {
  const std::string label = output_label(function.graph.output_names, index);
  const ArrayType whole = with_kept_axes(function.name, label, output, kept);
  check_output(function.name, label, whole, kept);
  return operand_of(whole, shape, true);
}

// The output of a split reduction, with a result for each split of each row: an operand of the
// shape of the rows, and its stride from one split to the next.
fusion::Operand partial_result(const TypedFunction& function, std::size_t index,
                               const ArrayType& output, const fusion::ReduceSpace& rows) {
  const Dims expected = rows.split_shape();
  ArrayType whole = output;
  whole.shape = Dims(expected.size(), 1);
  whole.strides = Dims(expected.size(), 0);
  const std::size_t more = expected.size() - std::min(expected.size(), output.shape.size());
  std::copy(output.shape.begin(), output.shape.end(), whole.shape.begin() + more);
  std::copy(output.strides.begin(), output.strides.end(), whole.strides.begin() + more);
  if (whole.shape != expected) {
    throw Error(Code::internal,
                fmt::format("{}: output {}: expected shape {}, got {}", function.name, index,
                            to_string(expected), to_string(output.shape)));
  }
  const Dims strides = whole.strides;
  whole.shape = rows.row_shape();
  fusion::Operand operand = operand_of(whole, rows.shape, true);
  for (std::size_t k = 0; k < expected.size(); ++k) {
    if (expected[k] != whole.shape[k]) operand.split_stride = strides[k];
  }
  return operand;
}

// A kernel counts along the axes of its space. What has one element along such an axis, and is
// broadcast to it or beside it, has one index there, 0.
bool counts_shorter_axis(const fusion::TypedGraph& graph, std::span<const Dims> shapes,
                         const Dims& space) {
  for (fusion::NodeId id = 0; id < graph.nodes.size(); ++id) {
    const fusion::TypedNode& node = graph.nodes[id];
    const std::int64_t axis = fusion::iota_axis(node);
    if (node.op != fusion::Op::iota || axis == fusion::kAllAxes) continue;
    const auto extent = [&](const Dims& shape) {
      const std::int64_t k = axis < 0 ? axis + std::ssize(shape) : axis;
      return k < 0 || k >= std::ssize(shape) ? 1 : shape[static_cast<std::size_t>(k)];
    };
    if (extent(shapes[id]) != extent(space)) return true;
  }
  return false;
}

// Whether places are said by indices of elements of rows. They are those of rows.
bool counts_places(const fusion::TypedGraph& graph, std::span<const std::int64_t> within) {
  std::vector<fusion::NodeId> places;
  for (const fusion::IndexedOperand& one : graph.indexed) places.push_back(one.place);
  for (const fusion::BoundedAxis& bound : graph.bounds) places.push_back(bound.end);
  const std::vector<bool> says_places = fusion::live_nodes(graph.nodes, places);
  for (fusion::NodeId id = 0; id < graph.nodes.size(); ++id) {
    const fusion::TypedNode& node = graph.nodes[id];
    if (!says_places[id] || node.op != fusion::Op::iota) continue;
    if (std::ranges::find(within, fusion::iota_axis(node)) != within.end()) return true;
  }
  return false;
}

void add_rows(KernelSpec& spec, std::span<const ArrayType> arrays,
              std::span<const ArrayType> outputs, std::vector<Dims> shapes) {
  TypedFunction& function = spec.function;
  function.graph = fusion::drop_trivial_reductions(function.graph, shapes);
  RowsForm rows{fusion::reduce_space(function.graph, shapes), {}};
  check_no_conflict(function, rows_conflict(function.graph, shapes, rows.space));
  rows.space.splits = function.splits;
  spec.shape = rows.space.shape;
  for (const ArrayType& array : arrays) {
    spec.operands.push_back(argument_operand(array, spec.shape));
    rows.row_invariant.push_back(!fits(array, spec.shape) ||
                                 fusion::is_row_invariant(array.shape, rows.space));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (function.graph.place_of(true, i) != nullptr) {
      rows.row_invariant.push_back(fusion::is_row_invariant(outputs[i].shape, rows.space));
      spec.operands.push_back(operand_of(outputs[i], spec.shape, true));
      continue;
    }
    const Dims& kept = shapes[function.graph.outputs[i]];
    rows.row_invariant.push_back(fusion::is_row_invariant(kept, rows.space));
    const bool partial = rows.row_invariant.back() && function.splits > 1;
    spec.operands.push_back(partial ? partial_result(function, i, outputs[i], rows.space)
                                    : output_operand(function, i, outputs[i], kept, spec.shape));
  }
  for (fusion::Operand& index : fusion::iota_operands(function.graph, spec.shape, function.name)) {
    spec.operands.push_back(std::move(index));
  }
  const std::vector<std::int64_t> within = fusion::iotas_within_rows(function.graph, rows.space);
  for (const std::int64_t axis : fusion::iota_axes(function.graph)) {
    rows.row_invariant.push_back(std::ranges::find(within, axis) == within.end());
  }
  spec.form = std::move(rows);
}

void check_not_packed(const TypedFunction& function, std::span<const ArrayType> arrays,
                      std::span<const ArrayType> outputs) {
  const auto packed = [](const ArrayType& array) { return is_packed(array.dtype); };
  if (std::ranges::none_of(arrays, packed) && std::ranges::none_of(outputs, packed)) return;
  throw Error(
      Code::unsupported,
      fmt::format("{}: packed numbers (u4, i4, f4e2m1) are not read or stored in one kernel "
                  "with cumsum, cumprod or cummax; use a kiln::Program, which takes two",
                  function.name));
}

void add_scan(KernelSpec& spec, std::span<const ArrayType> arrays,
              std::span<const ArrayType> outputs, std::span<const Dims> shapes) {
  TypedFunction& function = spec.function;
  check_not_packed(function, arrays, outputs);
  fusion::ScanSpace space = fusion::scan_space(function.graph, shapes);
  check_no_conflict(function, space.conflict);
  spec.shape = space.shape;
  for (const ArrayType& array : arrays) {
    spec.operands.push_back(argument_operand(array, spec.shape));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Dims& kept = shapes[function.graph.outputs[i]];
    spec.operands.push_back(output_operand(function, i, outputs[i], kept, spec.shape));
  }
  function.graph = fusion::drop_trivial_scans(function.graph, shapes);
  // Along an axis of size one nothing runs.
  if (fusion::has_scans(function.graph)) spec.form = std::move(space);
}

// ---- Places that data says ----------------------------------------------------------------------

// The operands on which a value of the graph depends, as bits.
std::uint64_t operands_behind(const KernelSpec& spec, fusion::NodeId id) {
  const fusion::TypedGraph& graph = spec.function.graph;
  const std::vector<bool> live = fusion::live_nodes(graph.nodes, std::span(&id, 1));
  const auto iotas = fusion::iota_axes(graph);
  std::uint64_t operands = 0;
  for (fusion::NodeId at = 0; at <= id; ++at) {
    const fusion::TypedNode& node = graph.nodes[at];
    if (!live[at]) continue;
    std::size_t operand = 0;
    if (node.op == fusion::Op::input) {
      operand = array_position(graph, node.payload);
      if (const fusion::NodeId* place = graph.place_of(false, node.payload)) {
        operands |= operands_behind(spec, *place);
      }
    } else if (node.op == fusion::Op::iota) {
      const auto found = std::ranges::find(iotas, fusion::iota_axis(node)) - iotas.begin();
      operand = spec.operands.size() - iotas.size() + static_cast<std::size_t>(found);
    } else {
      continue;
    }
    if (operand >= 64) {
      throw Error(
          Code::unsupported,
          fmt::format("{}: places and ends that data says can depend on the first 64 operands of a "
                      "kernel, not on number {}",
                      spec.function.name, operand));
    }
    operands |= std::uint64_t{1} << operand;
  }
  return operands;
}

// `rank`: how many of the axes that the kernel runs over are those of values.
void add_index_operands(KernelSpec& spec, std::size_t axes) {
  const fusion::TypedGraph& graph = spec.function.graph;
  const auto rank = static_cast<std::int64_t>(axes);
  for (const fusion::BoundedAxis& bound : graph.bounds) {
    spec.function.bounds.push_back(
        {static_cast<std::size_t>(rank + bound.axis), operands_behind(spec, bound.end)});
  }
  for (const fusion::IndexedOperand& indexed : graph.indexed) {
    const std::size_t first = indexed.output ? graph.arguments.size() : indexed.position;
    const std::size_t position =
        array_position(graph, first) + (indexed.output ? indexed.position : 0);
    fusion::Operand& operand = spec.operands[position];
    operand.index_operands = operands_behind(spec, indexed.place);
    if (!indexed.output || !is_packed(operand.dtype)) continue;
    fusion::trace_remainder(operand.indexed.stride, 2);
    if (operand.indexed.stride % 2 != 0) {
      throw Error(
          Code::unsupported,
          fmt::format("{}: put: {} is stored where the elements of a place are whole bytes, "
                      "got places {} elements apart",
                      spec.function.name, name(operand.dtype), operand.indexed.stride));
    }
  }
}

// ---- Attention ----------------------------------------------------------------------------------

// The array over the axes of an attention: what lies along its values' elements does so along the
// last axis, and along the depth only what products are made of.
ArrayType over_attention(const ArrayType& array, const AttentionForm& space, std::uint8_t sides) {
  const std::size_t rank = space.value_axis();
  ArrayType result = array;
  result.shape = Dims(rank + 1, 1);
  result.strides = Dims(rank + 1, 0);
  const std::size_t more = rank - array.shape.size();
  const auto take = [&](std::size_t from, std::size_t to) {
    result.shape[to] = from < more ? 1 : array.shape[from - more];
    result.strides[to] = from < more || result.shape[to] == 1 ? 0 : array.strides[from - more];
  };
  for (std::size_t k = 0; k < rank; ++k) {
    if (k != space.nodes.depth && k != space.nodes.value) take(k, k);
  }
  if ((sides & fusion::kProductSide) != 0) take(space.nodes.depth, space.nodes.depth);
  if ((sides & (fusion::kValueSide | fusion::kResultSide)) != 0) {
    take(space.nodes.value, space.value_axis());
  }
  return result;
}

std::uint8_t sides_of_argument(const TypedFunction& function, const AttentionForm& space,
                               std::size_t argument) {
  std::uint8_t sides = 0;
  for (std::size_t id = 0; id < function.graph.nodes.size(); ++id) {
    const fusion::TypedNode& node = function.graph.nodes[id];
    if (node.op == fusion::Op::input && node.payload == argument) sides |= space.sides[id];
  }
  return sides;
}

// An output; of parts of the keys it has a result for each.
fusion::Operand attention_output(const TypedFunction& function, std::size_t index,
                                 const ArrayType& output, const Dims& natural,
                                 const AttentionForm& space) {
  const std::size_t key = space.nodes.key;
  Dims kept(space.value_axis(), 1);
  std::copy(natural.begin(), natural.end(),
            kept.begin() + static_cast<std::ptrdiff_t>(kept.size() - natural.size()));
  if (space.splits == 1) {
    const std::string label = output_label(function.graph.output_names, index);
    const ArrayType whole = with_kept_axes(function.name, label, output, natural);
    check_output(function.name, label, whole, natural);
    return operand_of(over_attention(whole, space, fusion::kResultSide), space.shape, true);
  }
  kept[key] = space.splits;
  ArrayType whole = output;
  whole.shape = Dims(kept.size(), 1);
  whole.strides = Dims(kept.size(), 0);
  const std::size_t more = kept.size() - std::min(kept.size(), output.shape.size());
  std::copy(output.shape.begin(), output.shape.end(), whole.shape.begin() + more);
  std::copy(output.strides.begin(), output.strides.end(), whole.strides.begin() + more);
  if (whole.shape != kept) {
    throw Error(Code::internal,
                fmt::format("{}: output {}: expected shape {}, got {}", function.name, index,
                            to_string(kept), to_string(output.shape)));
  }
  const std::int64_t step = whole.strides[key];
  whole.shape[key] = 1;
  fusion::Operand operand =
      operand_of(over_attention(whole, space, fusion::kResultSide), space.shape, true);
  operand.split_stride = step;
  return operand;
}

// An index along an axis of the values is one along those of the space.
fusion::Operand attention_iota(const TypedFunction& function, const AttentionForm& space,
                               std::int64_t axis) {
  const std::size_t rank = space.value_axis();
  const auto from = static_cast<std::size_t>(axis + static_cast<std::int64_t>(rank));
  fusion::Operand operand;
  operand.dtype = DType::i64;
  operand.iota = true;
  operand.strides = Dims(rank + 1, 0);
  std::uint8_t sides = 0;
  for (std::size_t id = 0; id < function.graph.nodes.size(); ++id) {
    const fusion::TypedNode& node = function.graph.nodes[id];
    if (node.op == fusion::Op::iota && static_cast<std::int64_t>(node.payload) == axis) {
      sides |= space.sides[id];
    }
  }
  const bool deep = from == space.nodes.depth && (sides & fusion::kProductSide) != 0;
  const bool wide =
      from == space.nodes.value && (sides & (fusion::kValueSide | fusion::kResultSide)) != 0;
  if (deep) operand.strides[from] = 1;
  if (wide) operand.strides[rank] = 1;
  if (from != space.nodes.depth && from != space.nodes.value) operand.strides[from] = 1;
  return operand;
}

void add_attention(KernelSpec& spec, std::span<const ArrayType> arrays,
                   std::span<const ArrayType> outputs, std::span<const Dims> shapes,
                   AttentionForm space) {
  const TypedFunction& function = spec.function;
  space.splits = function.splits;
  spec.shape = space.shape;
  std::size_t argument = 0;
  for (const ArrayType& array : arrays) {
    while (function.graph.arguments[argument].scalar) ++argument;
    const std::uint8_t sides = sides_of_argument(function, space, argument++);
    const ArrayType one{array.dtype, Dims(), Dims(), array.address, array.offset, array.place};
    spec.operands.push_back(
        operand_of(over_attention(sides == 0 ? one : array, space, sides), space.shape, false));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    spec.operands.push_back(
        attention_output(function, i, outputs[i], shapes[function.graph.outputs[i]], space));
  }
  for (const std::int64_t axis : fusion::iota_axes(function.graph)) {
    spec.operands.push_back(attention_iota(function, space, axis));
  }
  spec.form = std::move(space);
}

std::vector<std::size_t> positions(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

std::vector<Dims> argument_shapes(const fusion::TypedGraph& graph,
                                  std::span<const ArrayType> arrays) {
  std::vector<Dims> shapes;
  std::size_t next = 0;
  for (const fusion::ArgumentType& argument : graph.arguments) {
    shapes.push_back(argument.scalar ? Dims() : arrays[next++].shape);
  }
  return shapes;
}

std::string rows_conflict(const fusion::TypedGraph& graph, std::span<const Dims> shapes,
                          const fusion::ReduceSpace& space) {
  if (!space.conflict.empty()) return space.conflict;
  if (counts_shorter_axis(graph, shapes, space.shape)) {
    return "an iota counts along an axis that is longer for other values";
  }
  const std::vector<std::int64_t> within = fusion::iotas_within_rows(graph, space);
  // Random numbers are counted over all elements, and would be computed again in each pass.
  if (std::ranges::find(within, fusion::kAllAxes) != within.end()) {
    return "uniform and normal are beside a reduction";
  }
  if (counts_places(graph, within)) return "an iota says places along an axis that is reduced";
  return {};
}

KernelSpec kernel_spec(TypedFunction function, std::span<const ArrayType> arrays,
                       std::span<const ArrayType> outputs) {
  KernelSpec spec;
  spec.function = std::move(function);
  const fusion::TypedGraph& graph = spec.function.graph;
  spec.arguments = positions(graph.arguments.size());
  spec.outputs = positions(outputs.size());
  if (!fusion::works_along_axes(graph)) {
    add_elementwise(spec, arrays, outputs);
    add_index_operands(spec, spec.shape.size());
    return spec;
  }
  fusion::ShapedGraph shaped =
      fusion::shape_graph(graph, argument_shapes(graph, arrays), spec.function.name);
  if (auto space = fusion::attention_space(shaped.graph, shaped.shapes)) {
    spec.function.graph = std::move(shaped.graph);
    const std::size_t axes = space->value_axis();
    add_attention(spec, arrays, outputs, shaped.shapes, *std::move(space));
    add_index_operands(spec, axes);
    return spec;
  }
  const bool counts = !fusion::iota_axes(graph).empty();
  if (counts) spec.function.graph = std::move(shaped.graph);
  if (fusion::has_scans(graph)) {
    if (counts) check_no_conflict(spec.function, "an iota is beside a running result");
    add_scan(spec, arrays, outputs, shaped.shapes);
  } else {
    add_rows(spec, arrays, outputs, std::move(shaped.shapes));
  }
  add_index_operands(spec, spec.shape.size());
  return spec;
}

}  // namespace kiln
