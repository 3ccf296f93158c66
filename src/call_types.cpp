#include "call_types.hpp"

#include <fmt/format.h>

#include "fusion/broadcast.hpp"
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

fusion::Operand operand_of(const OperandShape& array, const Dims& shape, bool output) {
  fusion::Operand operand;
  operand.dtype = array.dtype;
  operand.output = output;
  operand.strides = fusion::broadcast_strides(array.shape, array.strides, shape);
  operand.address = array.address;
  return operand;
}

void check_output(const Definition& definition, std::size_t index, const OperandShape& output,
                  const Dims& shape) {
  if (output.shape == shape) {
    for (std::size_t k = 0; k < shape.size(); ++k) {
      if (shape[k] > 1 && output.strides[k] == 0) {
        throw Error(Code::invalid_argument,
                    fmt::format("{}: output {}: stride 0 along axis {} of shape {}: many elements "
                                "would be written to one place",
                                definition.name, index, k, to_string(shape)));
      }
    }
    return;
  }
  throw Error(Code::invalid_argument,
              fmt::format("{}: output {}: expected shape {}, got {}", definition.name, index,
                          to_string(shape), to_string(output.shape)));
}

std::string signature_text(const TypedCall& call) {
  std::string text;
  std::size_t outputs = 0;
  for (const fusion::Operand& operand : call.operands) outputs += operand.output ? 1 : 0;
  for (const fusion::ArgumentType& argument : call.graph.arguments) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", argument.scalar ? "scalar " : "",
                        name(argument.dtype));
  }
  text += " ->";
  for (std::size_t i = call.operands.size() - outputs; i < call.operands.size(); ++i) {
    text += fmt::format(" {}", name(call.operands[i].dtype));
  }
  return text;
}

std::uint64_t bytes_moved(const TypedCall& call) {
  std::uint64_t total_bits = 0;
  for (const fusion::Operand& operand : call.operands) {
    std::uint64_t elements = 1;
    for (std::size_t k = 0; k < call.shape.size(); ++k) {
      if (operand.strides[k] != 0) elements *= static_cast<std::uint64_t>(call.shape[k]);
      if (call.shape[k] == 0) elements = 0;
    }
    total_bits += elements * static_cast<std::uint64_t>(bits(operand.dtype));
  }
  return total_bits / 8;
}

}  // namespace

fusion::Family family_of(std::string_view target) {
  switch (jit::toolchain_for(target)) {
    case jit::ToolchainKind::hiprtc: return fusion::Family::amd;
    case jit::ToolchainKind::nvrtc: return fusion::Family::nvidia;
    case jit::ToolchainKind::host: return fusion::Family::host;
  }
  return fusion::Family::host;
}

TypedCall type_call(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                    std::span<const OperandShape> arrays, std::span<const OperandShape> outputs) {
  std::vector<DType> output_dtypes;
  for (const OperandShape& output : outputs) output_dtypes.push_back(output.dtype);
  TypedCall call;
  call.graph = fusion::infer(definition.graph, arguments, output_dtypes,
                             definition.options.rounding, definition.name);
  call.shape = broadcast_inputs(definition, arguments, arrays);
  // An output may be larger than the inputs, which then repeat in it, as NumPy's out= may.
  for (const OperandShape& output : outputs) {
    if (const auto wider = fusion::broadcast(call.shape, output.shape);
        wider && *wider == output.shape) {
      call.shape = *wider;
    }
  }
  for (const OperandShape& array : arrays)
    call.operands.push_back(operand_of(array, call.shape, false));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_output(definition, i, outputs[i], call.shape);
    call.operands.push_back(operand_of(outputs[i], call.shape, true));
  }
  return call;
}

TypedCall type_call_natural(const Definition& definition,
                            std::span<const fusion::ArgumentType> arguments,
                            std::span<const OperandShape> arrays, std::span<const DType> outputs) {
  TypedCall call;
  call.graph = fusion::infer(definition.graph, arguments, outputs, definition.options.rounding,
                             definition.name);
  call.shape = broadcast_inputs(definition, arguments, arrays);
  for (const OperandShape& array : arrays)
    call.operands.push_back(operand_of(array, call.shape, false));
  for (const fusion::NodeId output : call.graph.outputs) {
    OperandShape shape;
    shape.dtype = call.graph.nodes[output].dtype;
    shape.shape = call.shape;
    shape.strides = contiguous_strides(call.shape);
    call.operands.push_back(operand_of(shape, call.shape, true));
  }
  return call;
}

EmittedCall emit_call(const Definition& definition, const TypedCall& call,
                      std::string_view target) {
  EmittedCall emitted;
  emitted.layout = fusion::plan_layout(call.shape, call.operands, family_of(target));
  emitted.kernel = fusion::emit(call.graph, emitted.layout.variant, definition.options.accuracy,
                                definition.name, definition.expression);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < call.graph.arguments.size(); ++i) {
    if (!call.graph.arguments[i].scalar) names.push_back(call.graph.argument_names[i]);
  }
  for (std::size_t i = 0; i < call.graph.outputs.size(); ++i) {
    const std::string& wanted = call.graph.output_names[i];
    names.push_back(wanted.empty() ? fmt::format("out{}", i) : wanted);
  }
  emitted.variant = fusion::describe(emitted.layout.variant, names);
  emitted.bytes = bytes_moved(call);
  emitted.request = {definition.name,       definition.expression, signature_text(call),
                     emitted.kernel.source, std::string(target),   definition.options};
  return emitted;
}

}  // namespace kiln
