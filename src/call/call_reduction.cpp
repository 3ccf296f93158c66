#include "call/call_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "fusion/emit/products/products.hpp"
#include "fusion/emit/rows/rows.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/partition/row_work.hpp"
#include "fusion/schedule/products/product_layout.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::to_string;

bool is_packed_operand(const fusion::Operand& operand) { return is_packed(operand.dtype); }

std::optional<fusion::Layout> products_of(const TypedCall& call, fusion::Backend backend,
                                          bool tiles) {
  if (call.rows->pieces > 1) return std::nullopt;
  return fusion::plan_products(call.graph, *call.rows, call.operands, call.uniform, backend, tiles);
}

// Kernels in several passes keep a row in registers, element by element.
void check_not_packed(const TypedCall& call) {
  const auto packed = std::ranges::find_if(call.operands, is_packed_operand);
  if (packed == call.operands.end()) return;
  const auto index = static_cast<std::size_t>(packed - call.operands.begin());
  throw Error(Code::unsupported,
              fmt::format("{}: {} '{}': packed numbers ({}) can be reduced where a kernel only "
                          "stores what there is one of for each row, and they are contiguous along "
                          "what is reduced; a kiln::Program does the rest in two kernels",
                          call.definition->name, packed->output ? "output" : "input",
                          operand_names(call.graph)[index], name(packed->dtype)));
}

// What the passes of one kernel with the graph of that space compute.
fusion::RowWork work_of(const fusion::TypedGraph& graph, std::span<const Dims> shapes,
                        const fusion::ReduceSpace& space) {
  std::vector<bool> uniform(graph.arguments.size(), true);
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const fusion::TypedNode& node = graph.nodes[id];
    if (node.op == fusion::Op::input)
      uniform[node.payload] = fusion::is_row_invariant(shapes[id], space);
  }
  return fusion::row_work(graph, fusion::row_invariant_nodes(graph, uniform));
}

// What a Program makes kernels of is bounded there (fusion/partition/row_passes.hpp).
void check_work(const Definition& definition, const fusion::RowWork& work) {
  if (definition.typed || !work.is_out_of_bounds()) return;
  throw Error(
      Code::unsupported,
      fmt::format("{}: one kernel cannot compute this: its reductions wait for each other, and to "
                  "compute again what each of them reduces would take more than {:.0f} operations "
                  "on every element instead of {:.0f}; a kiln::Program can, in several",
                  definition.name, work.once + work.again, work.once));
}

// A result for each piece of each row: it has the shape of the rows, and a stride from one piece to
// the next.
fusion::Operand partial_result(const Definition& definition, std::size_t index,
                               const OperandShape& output, const fusion::ReduceSpace& rows) {
  const Dims expected = rows.piece_shape();
  OperandShape whole = output;
  whole.shape = Dims(expected.size(), 1);
  whole.strides = Dims(expected.size(), 0);
  const std::size_t more = expected.size() - std::min(expected.size(), output.shape.size());
  std::copy(output.shape.begin(), output.shape.end(), whole.shape.begin() + more);
  std::copy(output.strides.begin(), output.strides.end(), whole.strides.begin() + more);
  if (whole.shape != expected) {
    throw Error(Code::internal,
                fmt::format("{}: output {}: expected shape {}, got {}", definition.name, index,
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

}  // namespace

std::vector<Dims> argument_shapes(const fusion::TypedGraph& graph,
                                  std::span<const OperandShape> arrays) {
  std::vector<Dims> shapes;
  std::size_t next = 0;
  for (const fusion::ArgumentType& argument : graph.arguments) {
    shapes.push_back(argument.scalar ? Dims() : arrays[next++].shape);
  }
  return shapes;
}

OperandShape with_kept_axes(const Definition& definition, std::size_t index,
                            const OperandShape& output, const Dims& kept) {
  if (output.shape == kept) return output;
  OperandShape whole = output;
  whole.shape = kept;
  whole.strides = Dims(kept.size(), 0);
  std::size_t next = 0;
  for (std::size_t k = 0; k < kept.size(); ++k) {
    const bool here = next < output.shape.size() && output.shape[next] == kept[k];
    if (here) whole.strides[k] = output.strides[next++];
    if (!here && kept[k] != 1) next = output.shape.size() + 1;
  }
  if (next == output.shape.size()) return whole;
  throw Error(Code::invalid_argument,
              fmt::format("{}: output {}: expected shape {}, of which axes of size one may be left "
                          "out, got {}",
                          definition.name, index, to_string(kept), to_string(output.shape)));
}

bool is_one_kernel(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                   std::span<const OperandShape> arrays) {
  const fusion::TypedGraph graph =
      fusion::infer(definition.graph, arguments, {}, definition.options.rounding, definition.name);
  if (std::ranges::find(graph.nodes, fusion::Op::iota, &fusion::TypedNode::op) !=
      graph.nodes.end()) {
    return false;
  }
  std::vector<Dims> shapes =
      fusion::infer_shapes(graph, argument_shapes(graph, arrays), definition.name);
  const auto packed = [](const auto& value) { return is_packed(value.dtype); };
  const bool packs = std::ranges::any_of(arrays, packed) ||
                     std::ranges::any_of(graph.outputs, [&](fusion::NodeId output) {
                       return packed(graph.nodes[output]);
                     });
  if (fusion::has_scans(graph)) {
    return !packs && fusion::scan_space(graph, shapes).conflict.empty();
  }
  const fusion::TypedGraph rest = fusion::drop_trivial_reductions(graph, shapes);
  const fusion::ReduceSpace space = fusion::reduce_space(rest, shapes);
  if (!space.conflict.empty() || work_of(rest, shapes, space).is_better_cut()) return false;
  if (!packs) return true;
  const std::vector<OperandShape> outputs =
      natural_outputs(definition, arguments, arrays, {}, Dims());
  return can_reduce_packed(type_reduction(definition, arguments, arrays, outputs, graph));
}

bool can_reduce_packed(const TypedCall& call) {
  return std::ranges::none_of(call.operands, is_packed_operand) ||
         products_of(call, fusion::Backend::host, false).has_value();
}

std::vector<Dims> reduction_shapes(const Definition& definition, const fusion::TypedGraph& graph,
                                   std::span<const OperandShape> arrays) {
  const std::vector<Dims> shapes =
      fusion::infer_shapes(graph, argument_shapes(graph, arrays), definition.name);
  std::vector<Dims> outputs;
  for (const fusion::NodeId output : graph.outputs) outputs.push_back(shapes[output]);
  return outputs;
}

TypedCall type_reduction(const Definition& definition,
                         std::span<const fusion::ArgumentType> arguments,
                         std::span<const OperandShape> arrays,
                         std::span<const OperandShape> outputs, fusion::TypedGraph graph) {
  std::vector<Dims> shapes =
      fusion::infer_shapes(graph, argument_shapes(graph, arrays), definition.name);
  TypedCall call;
  call.definition = {std::shared_ptr<void>(), &definition};  // not owned
  call.arguments.resize(arguments.size());
  std::iota(call.arguments.begin(), call.arguments.end(), std::size_t{0});
  call.outputs.resize(outputs.size());
  std::iota(call.outputs.begin(), call.outputs.end(), std::size_t{0});
  call.graph = fusion::drop_trivial_reductions(graph, shapes);
  call.rows = fusion::reduce_space(call.graph, shapes);
  if (!call.rows->conflict.empty()) {
    throw Error(
        Code::unsupported,
        fmt::format("{}: one kernel cannot compute this: {}; a kiln::Program can, in several",
                    definition.name, call.rows->conflict));
  }
  check_work(definition, work_of(call.graph, shapes, *call.rows));
  call.shape = call.rows->shape;
  call.rows->pieces = definition.pieces;
  for (const OperandShape& array : arrays) {
    // An argument that nothing reads may have any shape.
    const bool fits = fusion::broadcast(array.shape, call.shape) == call.shape;
    const OperandShape one{array.dtype, Dims(), Dims(), array.address};
    call.operands.push_back(operand_of(fits ? array : one, call.shape, false));
    call.uniform.push_back(!fits || fusion::is_row_invariant(array.shape, *call.rows));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Dims& kept = shapes[call.graph.outputs[i]];
    const bool uniform = fusion::is_row_invariant(kept, *call.rows);
    call.uniform.push_back(uniform);
    if (uniform && definition.pieces > 1) {
      call.operands.push_back(partial_result(definition, i, outputs[i], *call.rows));
      continue;
    }
    const OperandShape output = with_kept_axes(definition, i, outputs[i], kept);
    check_output(definition, i, output, kept);
    call.operands.push_back(operand_of(output, call.shape, true));
  }
  return call;
}

void emit_reduction(const TypedCall& call, std::string_view target, EmittedCall& emitted) {
  const fusion::Backend backend = backend_of(target);
  const Definition& definition = *call.definition;
  if (const auto products = products_of(call, backend, has_tiles(target))) {
    emitted.layout = *products;
    emitted.layout.schedule.pdl = has_programmatic_launches(target);
    emitted.kernel =
        fusion::emit_products(call.graph, emitted.layout.schedule, definition.options.accuracy,
                              definition.name, definition.expression);
    emitted.kernel.block = emitted.layout.block();
    return;
  }
  check_not_packed(call);
  const bool places = std::ranges::any_of(call.graph.nodes, [](const fusion::TypedNode& node) {
    return node.op == fusion::Op::argmax || node.op == fusion::Op::argmin;
  });
  emitted.layout = fusion::plan_rows(*call.rows, call.operands, call.uniform, places, backend,
                                     row_features(target));
  emitted.layout.schedule.pdl = has_programmatic_launches(target);
  emitted.kernel =
      fusion::emit_rows(call.graph, emitted.layout.schedule, definition.options.accuracy,
                        definition.name, definition.expression);
  emitted.kernel.block = emitted.layout.block();
}

}  // namespace kiln
