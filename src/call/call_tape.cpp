// Tapes of the kernels of a Function's calls (kernel/kernel_tape.hpp), and the numbers of a call
// that they take.
#include <algorithm>

#include "base/reclamation.hpp"
#include "call/call_class.hpp"

namespace kiln {
namespace {

// Which number of a call that is; an axis of kRepeats has stride 0.
CallSource source_in_call(const CallClass::Kernel& kernel, const CallNumber& number) {
  using Kind = CallNumber::Kind;
  if (number.kind == Kind::extent) return {number.kind, 0, kernel.sizes[number.axis]};
  const CallClass::Kernel::Operand& own = kernel.operands[number.operand];
  switch (number.kind) {
    case Kind::stride: return {number.kind, own.operand, own.axes[number.axis]};
    case Kind::place_stride: return {Kind::stride, own.operand, own.indexed_axis};
    case Kind::place_count: return {Kind::extent, 0, own.indexed_size};
    default: return {number.kind, own.operand};
  }
}

// Whether no call has another number there.
bool is_same_for_all(const CallSource& source) {
  using Kind = CallNumber::Kind;
  return source.kind == Kind::split_stride || source.kind == Kind::place ||
         (source.kind == Kind::stride && source.axis == CallClass::Kernel::kRepeats);
}

std::int64_t value_in_call(const CallSource& source, const Call& call,
                           std::span<const std::int64_t> sizes) {
  using Kind = CallNumber::Kind;
  const auto axis = static_cast<std::size_t>(source.axis);
  if (source.kind == Kind::extent) return sizes[axis];
  const View& view = view_of(call, source.operand);
  if (source.kind == Kind::stride) return view.strides()[axis];
  if (source.kind == Kind::offset) return view.offset();
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data()));
}

// Of some it depends on their sizes whether there is such a kernel, and what its iotas are.
bool can_have_tape(const CallClass::Kernel& kernel, const Call& call) {
  const bool stores_halves = std::ranges::any_of(kernel.operands, [&](const auto& own) {
    return own.indexed_size >= 0 && own.operand >= call.inputs.size() &&
           is_packed(view_of(call, own.operand).dtype());
  });
  return !kernel.has_iotas && kernel.iotas.empty() && !stores_halves &&
         !std::holds_alternative<AttentionForm>(kernel.spec.form);
}

std::uint64_t tapes_of_kernel(const CallClass& known, std::size_t kernel) {
  return known.id << 16 | kernel;
}

}  // namespace

const View& view_of(const Call& call, std::size_t operand) {
  return operand < call.inputs.size() ? call.inputs[operand].view()
                                      : call.outputs[operand - call.inputs.size()];
}

CallNumbers::CallNumbers(const CallClass::Kernel& kernel, const Call& call,
                         std::span<const std::int64_t> sizes)
    : shape(kernel.sizes.size()), operands([]() -> std::vector<fusion::Operand>& {
        thread_local std::vector<fusion::Operand> memory;  // with those of other kernels before
        return memory;
      }()) {
  for (std::size_t k = 0; k < shape.size(); ++k) shape[k] = sizes[kernel.sizes[k]];
  operands.resize(kernel.operands.size());
  for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
    const CallClass::Kernel::Operand& own = kernel.operands[i];
    const View& view = view_of(call, own.operand);
    fusion::Operand& operand = operands[i];
    operand.dtype = view.dtype();
    operand.output = own.operand >= call.inputs.size();
    operand.iota = false;
    if (operand.strides.size() != shape.size()) operand.strides = Dims(shape.size());
    for (std::size_t k = 0; k < shape.size(); ++k) {
      operand.strides[k] = own.axes[k] == CallClass::Kernel::kRepeats
                               ? 0
                               : view.strides()[static_cast<std::size_t>(own.axes[k])];
    }
    operand.address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(view.data()));
    operand.offset = view.offset();
    operand.index_operands = own.index_operands;
    operand.indexed = {};
    if (own.indexed_size < 0) continue;
    operand.indexed.extent = sizes[static_cast<std::size_t>(own.indexed_size)];
    if (own.indexed_axis != CallClass::Kernel::kRepeats) {
      operand.indexed.stride = view.strides()[static_cast<std::size_t>(own.indexed_axis)];
    }
  }
}

const TapedCall* find_tape(const PlanTable& plans, const CallClass& known, std::size_t kernel,
                           const Call& call, std::span<const std::int64_t> sizes,
                           std::size_t size_kind, TapeValues& memory, const std::int64_t*& values) {
  const auto tape_of = [&](std::uint64_t number) {
    const TapeKey key(tapes_of_kernel(known, kernel), number);
    return static_cast<const TapedCall*>(plans.find(key.words, key.hash));
  };
  return known.recent_tapes[kernel].find(size_kind, tape_of, [&](const TapedCall& taped) {
    values = run_tape(taped, memory,
                      [&](const CallSource& source) { return value_in_call(source, call, sizes); });
    return values != nullptr;
  });
}

void add_tape_of_call(PlanTable& plans, const CallClass& known, std::size_t kernel,
                      const Call& call, std::span<const std::int64_t> sizes,
                      const ScheduledKernel& scheduled) {
  const CallClass::Kernel& own = known.kernels[kernel];
  if (!can_have_tape(own, call)) return;
  known.recent_tapes[kernel].look_again();
  {
    TapeValues memory;
    const std::int64_t* values = nullptr;
    const base::ReadSection reading;
    if (find_tape(plans, known, kernel, call, sizes, size_kind_of(sizes), memory, values)) return;
  }
  const CallNumbers numbers(own, call, sizes);
  std::optional<KernelTape> tape = KernelTape::record(
      own.spec.function, own.spec.form, numbers.shape, numbers.operands, known.features,
      scheduled.parameters, scheduled.planned.parameters,
      [&](const CallNumber& number) { return !is_same_for_all(source_in_call(own, number)); });
  if (!tape) return;
  std::vector<CallSource> sources;
  for (const CallNumber& input : tape->inputs()) sources.push_back(source_in_call(own, input));
  auto taped = std::make_shared<TapedCall>(scheduled, *std::move(tape), std::move(sources));
  add_tape(plans, tapes_of_kernel(known, kernel), std::move(taped), known.recent_tapes[kernel],
           known.device);
}

}  // namespace kiln
