// The hot path: a plan and the pointers and numbers of one call become a launch.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "call/plan.hpp"
#include "core/scalar_bytes.hpp"
#include "core/view_bytes.hpp"
#include "fusion/schedule/overlap.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

constexpr std::size_t kInlineBytes = 2048;
constexpr std::size_t kInlineParameters = 256;

const View& view_of(const Call& call, std::uint32_t operand) {
  return operand < call.inputs.size() ? call.inputs[operand].view()
                                      : call.outputs[operand - call.inputs.size()];
}
void* data_of(const Call& call, std::uint32_t operand) { return view_of(call, operand).data(); }
const Scalar& scalar_of(const Call& call, std::uint32_t input) {
  return call.inputs[input].scalar();
}

const PlacedOperands::Place& place_of(const PlacedOperands& operands, std::uint32_t operand) {
  return operand < operands.inputs.size() ? operands.inputs[operand]
                                          : operands.outputs[operand - operands.inputs.size()];
}
void* data_of(const PlacedOperands& operands, std::uint32_t operand) {
  const PlacedOperands::Place& place = place_of(operands, operand);
  return static_cast<char*>(operands.memories[place.memory]) + place.bytes;
}
View view_of(const PlacedOperands& operands, std::uint32_t operand) {
  return place_of(operands, operand).view.with_data(data_of(operands, operand));
}
const Scalar& scalar_of(const PlacedOperands& operands, std::uint32_t input) {
  if (const auto& length = operands.inputs[input].length) return *length;
  return operands.arguments[operands.inputs[input].memory].scalar();
}

std::string label_of(const CallNames& names, const Call& call, std::uint32_t operand) {
  return operand_label(names, call, operand);
}
std::string label_of(const CallNames& names, const PlacedOperands& operands,
                     std::uint32_t operand) {
  return operand_label(names, operands.inputs.size(), operand);
}

bool same_elements(const View& a, const View& b) {
  return a.data() == b.data() && bits(a.dtype()) == bits(b.dtype()) && a.shape() == b.shape() &&
         a.strides() == b.strides() && a.offset() == b.offset();
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

[[noreturn]] void throw_does_not_fit(const CallNames& names, std::uint32_t input,
                                     const Scalar& scalar, DType dtype) {
  throw Error(
      Code::invalid_argument,
      fmt::format("{}: input {} '{}': the number {} does not fit {}, the dtype of its partner",
                  names.function, input, names.arguments[input], scalar_text(scalar), name(dtype)));
}

void put_scalar(const CallNames& names, std::byte* to, std::uint32_t input, const Scalar& scalar,
                DType dtype) {
  if (!put_scalar_bytes(to, scalar, dtype)) throw_does_not_fit(names, input, scalar, dtype);
}

// Any overlap but the exact one would make the result depend on the order in which threads run.
template <class Operands>
void check_overlap_of(const CallNames& names, std::span<const Plan::Extent> extents,
                      const Operands& operands) {
  for (const Plan::Extent& output : extents) {
    if (!output.output || output.partial) continue;
    const char* const written_data = static_cast<const char*>(data_of(operands, output.operand));
    const char* const begin = written_data + output.low;
    const char* const end = written_data + output.high;
    for (const Plan::Extent& other : extents) {
      if (other.operand == output.operand || other.partial) continue;
      const char* const other_data = static_cast<const char*>(data_of(operands, other.operand));
      if (other_data + other.high <= begin || end <= other_data + other.low) continue;
      const View& written = view_of(operands, output.operand);
      const View& view = view_of(operands, other.operand);
      if (!other.output && same_elements(written, view)) continue;
      if (!fusion::overlaps(bytes_of(written), bytes_of(view))) continue;
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: {} overlaps {}: an output must be exactly the view of an input, or "
                      "lie apart from every other operand",
                      names.function, label_of(names, operands, output.operand),
                      label_of(names, operands, other.operand)));
    }
  }
}

// What is updated in place has no other content than what is there.
template <class Operands>
void check_updates_of(const CallNames& names, std::span<const Plan::Update> updates,
                      const Operands& operands) {
  for (const Plan::Update& update : updates) {
    if (same_elements(view_of(operands, update.output), view_of(operands, update.input))) continue;
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected exactly the view of {}, which put updates in place",
                            names.function, label_of(names, operands, update.output),
                            label_of(names, operands, update.input)));
  }
}

template <class Operands>
void fill_scalars_of(const CallNames& names, const PlannedKernel& kernel, const Operands& operands,
                     std::byte* block) {
  for (const PlannedKernel::ScalarSlot& slot : kernel.scalars) {
    put_scalar(names, block + slot.offset, slot.input, scalar_of(operands, slot.input), slot.dtype);
  }
}

template <class Operands>
void fill_parameters_of(const Plan& plan, const PlannedKernel& kernel, const Operands& operands,
                        std::byte* block) {
  std::memcpy(block, kernel.parameters.bytes.data(), kernel.parameters.bytes.size());
  for (const PlannedKernel::PointerSlot& slot : kernel.pointers) {
    put(block + slot.offset, static_cast<char*>(data_of(operands, slot.operand)) + slot.bytes);
  }
  fill_scalars_of(plan.names, kernel, operands, block);
}

template <class Operands>
void launch_kernel(const Plan& plan, const PlannedKernel& kernel, const Operands& operands) {
  const auto launch = [&](std::byte* block, void** arguments) {
    fill_parameters_of(plan, kernel, operands, block);
    for (std::size_t i = 0; i < kernel.parameters.offsets.size(); ++i) {
      arguments[i] = block + kernel.parameters.offsets[i];
    }
    plan.backend->launch(*kernel.kernel, kernel.shape, arguments, operands.stream);
  };
  if (kernel.parameters.bytes.size() <= kInlineBytes &&
      kernel.parameters.offsets.size() <= kInlineParameters) {
    alignas(16) std::array<std::byte, kInlineBytes> block;
    std::array<void*, kInlineParameters> arguments;
    launch(block.data(), arguments.data());
    return;
  }
  std::vector<std::uint64_t> block((kernel.parameters.bytes.size() + 7) / 8);
  std::vector<void*> arguments(kernel.parameters.offsets.size());
  launch(reinterpret_cast<std::byte*>(block.data()), arguments.data());
}

template <class Operands>
void launch_plan_of(const Plan& plan, const Operands& operands) {
  if (plan.kernels.empty()) return;
  check_overlap_of(plan.names, plan.extents, operands);
  check_updates_of(plan.names, plan.updates, operands);
  for (const PlannedKernel& kernel : plan.kernels) launch_kernel(plan, kernel, operands);
}

}  // namespace

void check_overlap(const Plan& plan, const Call& call) {
  check_overlap_of(plan.names, plan.extents, call);
  check_updates_of(plan.names, plan.updates, call);
}
void check_overlap(const CallNames& names, std::span<const Plan::Extent> extents,
                   const Call& call) {
  check_overlap_of(names, extents, call);
}
void check_updates(const CallNames& names, std::span<const Plan::Update> updates,
                   const Call& call) {
  check_updates_of(names, updates, call);
}
void check_overlap(const Plan& plan, const PlacedOperands& operands) {
  check_overlap_of(plan.names, plan.extents, operands);
}

void fill_scalars(const CallNames& names, const PlannedKernel& kernel, const Call& call,
                  std::byte* block) {
  fill_scalars_of(names, kernel, call, block);
}

void fill_scalars(const CallNames& names, const PlannedKernel& kernel,
                  const PlacedOperands& operands, std::byte* block) {
  fill_scalars_of(names, kernel, operands, block);
}

void fill_scalar(const PlannedKernel& kernel, std::uint32_t input, const Scalar& length,
                 std::byte* block) {
  for (const PlannedKernel::ScalarSlot& slot : kernel.scalars) {
    if (slot.input == input) put_scalar_bytes(block + slot.offset, length, slot.dtype);
  }
}

void fill_parameters(const Plan& plan, const PlannedKernel& kernel, const Call& call,
                     std::byte* block) {
  fill_parameters_of(plan, kernel, call, block);
}
void fill_parameters(const Plan& plan, const PlannedKernel& kernel, const PlacedOperands& operands,
                     std::byte* block) {
  fill_parameters_of(plan, kernel, operands, block);
}

void launch_plan(const Plan& plan, const Call& call) { launch_plan_of(plan, call); }
void launch_plan(const Plan& plan, const PlacedOperands& operands) {
  launch_plan_of(plan, operands);
}

}  // namespace kiln
