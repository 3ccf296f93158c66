#include "call/call_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "call/call_reduction.hpp"
#include "call/call_scan.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/extract.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/overlap.hpp"
#include "fusion/text/text.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::to_string;

std::string argument_label(const Definition& definition, std::size_t position) {
  return fmt::format("input {} '{}'", position, definition.graph.arguments()[position]);
}

// The positions of the array arguments among all arguments.
std::vector<std::size_t> array_positions(std::span<const fusion::ArgumentType> arguments) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].scalar) positions.push_back(i);
  }
  return positions;
}

// The shape of the arrays broadcast against each other, which they must be whatever reads them.
Dims broadcast_inputs(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                      std::span<const OperandShape> arrays) {
  const std::vector<std::size_t> positions = array_positions(arguments);
  Dims shape;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::optional<Dims> wider = fusion::broadcast(shape, arrays[i].shape);
    if (!wider) {
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: {}: shape {} does not broadcast with {}, the shape of the inputs "
                      "before it",
                      definition.name, argument_label(definition, positions[i]),
                      to_string(arrays[i].shape), to_string(shape)));
    }
    shape = *wider;
  }
  return shape;
}

// An argument that nothing reads may have any shape, also one that no output has.
bool reads_every_argument(const fusion::Graph& graph) {
  std::vector<bool> read(graph.arguments().size(), false);
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) {
    const std::vector<bool> own = fusion::arguments_of(graph, i);
    for (std::size_t k = 0; k < read.size(); ++k) read[k] = read[k] || own[k];
  }
  return std::ranges::find(read, false) == read.end();
}

// The shape of the arguments that the output depends on.
Dims natural_shape(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                   std::span<const OperandShape> arrays, std::size_t output) {
  const std::vector<bool> read = fusion::arguments_of(definition.graph, output);
  const std::vector<std::size_t> positions = array_positions(arguments);
  Dims shape;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (read[positions[i]]) shape = *fusion::broadcast(shape, arrays[i].shape);
  }
  return shape;
}

// `shape` with axes of size one in front, so that shapes of one call compare.
Dims with_rank(const Dims& shape, std::size_t rank) {
  Dims result(rank, 1);
  std::ranges::copy(shape, result.begin() + (rank - shape.size()));
  return result;
}

std::string output_label(const Definition& definition, std::size_t index) {
  const std::string& name = definition.graph.output_names()[index];
  return name.empty() ? fmt::format("output {}", index)
                      : fmt::format("output {} '{}'", index, name);
}

// What moves elements, or is the caller's, takes a Program.
void check_one_kernel(const Definition& definition) {
  const fusion::OpInfo* op = fusion::program_op(definition.graph);
  if (op == nullptr) return;
  throw Error(Code::unsupported,
              fmt::format("{}: {} is not for a Function, which is one kernel: make it a "
                          "kiln::Program (kiln::program, trace_program, parse_program)",
                          definition.name, op->op == fusion::Op::link ? "a call" : op->name));
}

fusion::TypedGraph typed_graph(const Definition& definition,
                               std::span<const fusion::ArgumentType> arguments,
                               std::span<const DType> dtypes) {
  if (definition.typed) return *definition.typed;
  check_one_kernel(definition);
  return fusion::drop_clamps(fusion::infer(definition.graph, arguments, dtypes,
                                           definition.options.rounding, definition.name));
}

// The outputs that have one shape, by position, and that shape.
struct Group {
  Dims shape;
  std::vector<std::size_t> outputs;
};

// An iota counts along the axes of its own output, so there ranks are told apart.
bool counts_axes(const fusion::Graph& graph) {
  return std::ranges::find(graph.nodes(), fusion::Op::iota, &fusion::Node::op) !=
         graph.nodes().end();
}

std::vector<Group> group_by_shape(std::span<const OperandShape> outputs, bool by_rank) {
  std::size_t rank = 0;
  for (const OperandShape& output : outputs) rank = std::max(rank, output.shape.size());
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

std::string signature_text(const TypedCall& call) {
  std::string text;
  for (const fusion::ArgumentType& argument : call.graph.arguments) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", argument.scalar ? "scalar " : "",
                        name(argument.dtype));
  }
  text += " ->";
  for (const fusion::Operand& operand : call.operands) {
    if (operand.output) text += fmt::format(" {}", name(operand.dtype));
  }
  return text;
}

std::uint64_t bytes_moved(const TypedCall& call) {
  std::uint64_t total_bits = 0;
  for (const fusion::Operand& operand : call.operands) {
    if (operand.iota) continue;
    std::uint64_t elements = 1;
    for (std::size_t k = 0; k < call.shape.size(); ++k) {
      if (operand.strides[k] != 0) elements *= static_cast<std::uint64_t>(call.shape[k]);
      if (call.shape[k] == 0) elements = 0;
    }
    total_bits += elements * static_cast<std::uint64_t>(bits(operand.dtype));
  }
  return total_bits / 8;
}

// The function of the part's outputs alone, typed as in the whole one.
void narrow_to(TypedCall& part, const Definition& whole,
               std::span<const fusion::ArgumentType> arguments, std::span<const DType> dtypes) {
  fusion::Extract extract = fusion::extract(whole.graph, part.outputs);
  auto definition = std::make_shared<Definition>();
  definition->name = whole.name;
  definition->graph = std::move(extract.graph);
  definition->options = whole.options;
  definition->expression = fusion::to_text(definition->graph);
  std::vector<fusion::ArgumentType> own_arguments;
  std::vector<DType> own_dtypes;
  for (const std::size_t i : extract.arguments) own_arguments.push_back(arguments[i]);
  for (const std::size_t i : part.outputs) own_dtypes.push_back(dtypes[i]);
  part.graph = fusion::drop_clamps(fusion::infer(definition->graph, own_arguments, own_dtypes,
                                                 whole.options.rounding, whole.name));
  part.arguments = std::move(extract.arguments);
  part.definition = std::move(definition);
}

void add_operands(TypedCall& part, std::span<const fusion::ArgumentType> arguments,
                  std::span<const OperandShape> arrays, std::span<const OperandShape> outputs) {
  const std::vector<std::size_t> positions = array_positions(arguments);
  for (const std::size_t argument : part.arguments) {
    const auto found = std::ranges::find(positions, argument);
    if (found == positions.end()) continue;  // a scalar
    const OperandShape& array = arrays[static_cast<std::size_t>(found - positions.begin())];
    part.operands.push_back(operand_of(array, part.shape, false));
  }
  for (const std::size_t output : part.outputs) {
    part.operands.push_back(operand_of(outputs[output], part.shape, true));
  }
  for (fusion::Operand& count :
       fusion::iota_operands(part.graph, part.shape, part.definition->name)) {
    part.operands.push_back(std::move(count));
  }
}

}  // namespace

fusion::Operand operand_of(const OperandShape& array, const Dims& shape, bool output) {
  fusion::Operand operand;
  operand.dtype = array.dtype;
  operand.output = output;
  operand.strides = fusion::broadcast_strides(array.shape, array.strides, shape);
  operand.address = array.address;
  operand.offset = array.offset;
  operand.place = array.place;
  return operand;
}

void check_output(const Definition& definition, std::size_t index, const OperandShape& output,
                  const Dims& natural) {
  const std::optional<Dims> wider = fusion::broadcast(natural, output.shape);
  if (!wider || *wider != output.shape) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected shape {}, or one that it broadcasts to, got {}",
                            definition.name, output_label(definition, index), to_string(natural),
                            to_string(output.shape)));
  }
  fusion::ByteView view{0, std::max(1, bits(output.dtype) / 8), output.shape, output.strides};
  for (std::size_t k = 0; k < output.shape.size(); ++k) {
    if (output.shape[k] > 1 && output.strides[k] == 0) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: {}: stride 0 along axis {} of shape {}: many elements "
                              "would be written to one place",
                              definition.name, output_label(definition, index), k,
                              to_string(output.shape)));
    }
    view.strides[k] *= view.element_bytes;
  }
  if (fusion::overlaps_itself(view)) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: strides {} of shape {} put two elements into one place",
                            definition.name, output_label(definition, index),
                            to_string(output.strides), to_string(output.shape)));
  }
}

fusion::Backend backend_of(std::string_view target) {
  switch (jit::toolchain_for(target)) {
    case jit::ToolchainKind::hiprtc: return fusion::Backend::amd;
    case jit::ToolchainKind::nvrtc: return fusion::Backend::nvidia;
    case jit::ToolchainKind::host: return fusion::Backend::host;
  }
  return fusion::Backend::host;
}

namespace {

// 0: not NVIDIA's.
int compute_capability(std::string_view target) {
  constexpr std::string_view kPrefix = "sm_";
  int number = 0;
  if (target.starts_with(kPrefix)) {
    std::from_chars(target.data() + kPrefix.size(), target.data() + target.size(), number);
  }
  return number;
}

}  // namespace

bool has_tiles(std::string_view target) { return compute_capability(target) >= 80; }

// From 9.0 to 10.3 multiprocessors have 228 KiB of shared memory; the others that have clusters
// have 100 KiB.
fusion::RowFeatures row_features(std::string_view target) {
  const int capability = compute_capability(target);
  return {capability >= 90, capability >= 90 && capability < 110};
}

bool has_programmatic_launches(std::string_view target) { return compute_capability(target) >= 90; }

std::vector<TypedCall> type_call(const Definition& definition,
                                 std::span<const fusion::ArgumentType> arguments,
                                 std::span<const OperandShape> arrays,
                                 std::span<const OperandShape> outputs) {
  std::vector<DType> dtypes;
  for (const OperandShape& output : outputs) dtypes.push_back(output.dtype);
  fusion::TypedGraph graph = typed_graph(definition, arguments, dtypes);
  std::vector<TypedCall> parts;
  if (fusion::works_along_axes(graph)) {
    parts.push_back(fusion::has_scans(graph)
                        ? type_scan(definition, arguments, arrays, outputs, std::move(graph))
                        : type_reduction(definition, arguments, arrays, outputs, std::move(graph)));
    return parts;
  }
  broadcast_inputs(definition, arguments, arrays);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_output(definition, i, outputs[i], natural_shape(definition, arguments, arrays, i));
  }
  const std::vector<Group> groups = group_by_shape(outputs, counts_axes(definition.graph));
  const bool whole = groups.size() == 1 && reads_every_argument(definition.graph);
  for (const Group& group : groups) {
    TypedCall part;
    part.outputs = group.outputs;
    part.shape = group.shape;
    if (whole) {
      part.definition = {std::shared_ptr<void>(), &definition};  // not owned
      part.arguments.resize(arguments.size());
      std::iota(part.arguments.begin(), part.arguments.end(), std::size_t{0});
      part.graph = std::move(graph);
    } else {
      narrow_to(part, definition, arguments, dtypes);
    }
    add_operands(part, arguments, arrays, outputs);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<OperandShape> natural_outputs(const Definition& definition,
                                          std::span<const fusion::ArgumentType> arguments,
                                          std::span<const OperandShape> arrays,
                                          std::span<const DType> dtypes, const Dims& at_least) {
  const fusion::TypedGraph graph = typed_graph(definition, arguments, dtypes);
  std::vector<Dims> reduced;
  if (fusion::works_along_axes(graph)) {
    reduced = reduction_shapes(definition, graph, arrays);
  } else {
    broadcast_inputs(definition, arguments, arrays);
  }
  std::vector<OperandShape> outputs;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    OperandShape output;
    output.dtype = graph.nodes[graph.outputs[i]].dtype;
    const Dims natural =
        reduced.empty() ? natural_shape(definition, arguments, arrays, i) : reduced[i];
    const std::optional<Dims> wider = fusion::broadcast(natural, at_least);
    if (!wider) {
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: {}: its shape {} does not broadcast with {}", definition.name,
                      output_label(definition, i), to_string(natural), to_string(at_least)));
    }
    output.shape = *wider;
    output.strides = contiguous_strides(output.shape);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::vector<std::string> operand_names(const fusion::TypedGraph& graph) {
  std::vector<std::string> names;
  const fusion::KernelNames operands(graph);
  for (const fusion::NamedOperand& operand : operands.operands()) names.push_back(operand.label);
  for (const std::int64_t axis : fusion::iota_axes(graph)) names.push_back(fusion::iota_name(axis));
  return names;
}

EmittedCall emit_call(const TypedCall& call, std::string_view target) {
  const Definition& definition = *call.definition;
  EmittedCall emitted;
  if (call.rows) {
    emit_reduction(call, target, emitted);
  } else if (call.scan) {
    emit_scan_call(call, target, emitted);
  } else {
    emitted.layout = fusion::plan_layout(call.shape, call.operands, backend_of(target));
    emitted.layout.schedule.pdl = has_programmatic_launches(target);
    emitted.kernel = fusion::emit(call.graph, emitted.layout.schedule, definition.options.accuracy,
                                  definition.name, definition.expression);
  }
  emitted.variant = fusion::describe(emitted.layout.schedule, operand_names(call.graph));
  emitted.bytes = bytes_moved(call);
  emitted.request = {definition.name,      definition.expression,
                     signature_text(call), std::move(emitted.kernel.source),
                     std::string(target),  definition.options};
  return emitted;
}

}  // namespace kiln
