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

}  // namespace

// Any overlap but the exact one would make the result depend on the order in which threads run.
void check_overlap(const Plan& plan, const Call& call) {
  for (const Plan::Extent& output : plan.extents) {
    if (!output.output) continue;
    const View& written = view_of(call, output.operand);
    const char* const begin = static_cast<const char*>(written.data()) + output.low;
    const char* const end = static_cast<const char*>(written.data()) + output.high;
    for (const Plan::Extent& other : plan.extents) {
      if (other.operand == output.operand) continue;
      const View& view = view_of(call, other.operand);
      const char* const other_begin = static_cast<const char*>(view.data()) + other.low;
      const char* const other_end = static_cast<const char*>(view.data()) + other.high;
      if (other_end <= begin || end <= other_begin) continue;
      if (!other.output && same_elements(written, view)) continue;
      if (!fusion::overlaps(bytes_of(written), bytes_of(view))) continue;
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: {} overlaps {}: an output must be exactly the view of an input, or "
                      "lie apart from every other operand",
                      plan.names.function, operand_label(plan.names, call, output.operand),
                      operand_label(plan.names, call, other.operand)));
    }
  }
}

void fill_parameters(const Plan& plan, const PlannedKernel& kernel, const Call& call,
                     std::byte* block) {
  std::memcpy(block, kernel.parameters.bytes.data(), kernel.parameters.bytes.size());
  for (const PlannedKernel::PointerSlot& slot : kernel.pointers) {
    put(block + slot.offset, static_cast<char*>(view_of(call, slot.operand).data()) + slot.bytes);
  }
  for (const PlannedKernel::ScalarSlot& slot : kernel.scalars) {
    put_scalar(plan.names, block + slot.offset, slot.input, call.inputs[slot.input].scalar(),
               slot.dtype);
  }
}

namespace {

void launch_kernel(const Plan& plan, const PlannedKernel& kernel, const Call& call) {
  const auto launch = [&](std::byte* block, void** arguments) {
    fill_parameters(plan, kernel, call, block);
    for (std::size_t i = 0; i < kernel.parameters.offsets.size(); ++i) {
      arguments[i] = block + kernel.parameters.offsets[i];
    }
    plan.backend->launch(*kernel.kernel, kernel.shape, arguments, call.stream);
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

}  // namespace

void launch_plan(const Plan& plan, const Call& call) {
  if (plan.kernels.empty()) return;
  check_overlap(plan, call);
  for (const PlannedKernel& kernel : plan.kernels) launch_kernel(plan, kernel, call);
}

}  // namespace kiln
