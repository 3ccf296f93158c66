#include "call/call_types.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/check_view.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

ArrayType type_of(const View& view) {
  return {view.dtype(),   view.shape(),
          view.strides(), static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(view.data())),
          view.offset(),  {}};
}

// Every argument that is given is one of the function's.
void check_names(const Definition& definition, const Specification& specification) {
  const std::vector<std::string>& names = definition.graph.arguments();
  for (const ArgumentSpec& argument : specification.arguments) {
    if (std::ranges::find(names, argument.name) != names.end()) continue;
    throw Error(
        Code::invalid_argument,
        fmt::format(
            "{}: there is no argument '{}'; the arguments are {}", definition.name, argument.name,
            names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "))));
  }
}

}  // namespace

CallNames names_of(const Definition& definition) {
  return {definition.name, definition.graph.arguments(), definition.graph.output_names()};
}

std::string operand_label(const CallNames& names, const Call& call, std::size_t operand) {
  return operand_label(names, call.inputs.size(), operand);
}

std::string operand_label(const CallNames& names, std::size_t inputs, std::size_t operand) {
  const bool input = operand < inputs;
  const std::size_t index = input ? operand : operand - inputs;
  const std::span<const std::string> own = input ? names.arguments : names.outputs;
  std::string text = fmt::format("{} {}", input ? "input" : "output", index);
  // A call with another number of operands than the function has is an error of its own.
  if (index < own.size() && !own[index].empty()) text += fmt::format(" '{}'", own[index]);
  return text;
}

CallTypes types_of(const Call& call) {
  CallTypes types;
  for (const Argument& input : call.inputs) {
    if (input.is_scalar()) {
      types.arguments.push_back({input.scalar().dtype(), true, input.scalar().weak()});
    } else {
      types.arguments.push_back({input.view().dtype(), false, false});
      types.arrays.push_back(type_of(input.view()));
    }
  }
  for (const View& output : call.outputs) types.outputs.push_back(type_of(output));
  return types;
}

void check_counts(const CallNames& names, const Call& call) {
  const auto check = [&](std::string_view what, std::size_t expected, std::size_t given) {
    if (expected == given) return;
    throw Error(Code::invalid_argument,
                fmt::format("{}: expected {} {}, got {}", names.function, expected, what, given));
  };
  check("inputs", names.arguments.size(), call.inputs.size());
  check("outputs", names.outputs.size(), call.outputs.size());
}

void check_operand(const CallNames& names, const View& view, const Device& device,
                   const std::string& what) {
  check_view(view, device, names.function, what);
  if (view.size() == 0) return;
  const auto bytes = static_cast<std::uintptr_t>(std::max(1, bits(view.dtype()) / 8));
  const std::uintptr_t unit = view.dtype() == DType::c64 ? 4 : bytes;
  if (reinterpret_cast<std::uintptr_t>(view.data()) % unit != 0) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: address {} is not a multiple of {}, the size of {}",
                            names.function, what, view.data(), unit, name(view.dtype())));
  }
}

CallTypes check_call(const CallNames& names, const Call& call) {
  check_counts(names, call);
  const Device& device = call.stream.device;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].is_scalar()) continue;
    check_operand(names, call.inputs[i].view(), device, operand_label(names, call, i));
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    check_operand(names, call.outputs[i], device,
                  operand_label(names, call, call.inputs.size() + i));
  }
  return types_of(call);
}

CallTypes argument_types(const Definition& definition, const Specification& specification) {
  CallTypes types;
  for (const std::string& name : definition.graph.arguments()) {
    const auto found = std::ranges::find(specification.arguments, name, &ArgumentSpec::name);
    if (found == specification.arguments.end()) {
      throw Error(Code::invalid_argument, fmt::format("{}: no type was given for the argument '{}'",
                                                      definition.name, name));
    }
    types.arguments.push_back({found->dtype, found->scalar, found->weak});
    if (found->scalar) continue;
    const Dims strides = found->strides.empty() ? contiguous_strides(found->shape) : found->strides;
    types.arrays.push_back({found->dtype,
                            found->shape,
                            strides,
                            found->misalignment,
                            0,
                            {found->memory, found->element}});
  }
  check_names(definition, specification);
  return types;
}

}  // namespace kiln
