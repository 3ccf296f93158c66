// Tapes of the kernels of a Function's calls (kernel/kernel_tape.hpp), and the numbers of a call
// that they take.
#include <algorithm>

#include "call/call_class.hpp"

namespace kiln {
namespace {

// Which number of a call that is.
CallSource source_in_call(const CallClass::Kernel& kernel, const CallNumber& number) {
  using Kind = CallNumber::Kind;
  using Source = CallSource::Kind;
  const auto size = [](auto index) {
    return CallSource{Source::size, static_cast<std::uint8_t>(index)};
  };
  if (number.kind == Kind::extent) return size(kernel.sizes[number.axis]);
  if (number.operand >= kernel.operands.size()) {
    return {Source::product, static_cast<std::uint8_t>(number.axis)};  // of an iota that varies
  }
  const CallClass::Kernel::Operand& own = kernel.operands[number.operand];
  const auto operand = static_cast<std::uint16_t>(own.operand);
  const auto stride = [&](std::int8_t axis) {
    if (axis == CallClass::Kernel::kRepeats) return CallSource{};
    return CallSource{Source::stride, static_cast<std::uint8_t>(axis), operand};
  };
  switch (number.kind) {
    case Kind::stride: return stride(own.axes[number.axis]);
    case Kind::place_stride: return stride(own.indexed_axis);
    case Kind::place_count: return size(own.indexed_size);
    case Kind::offset: return {Source::offset, 0, operand};
    case Kind::address: return {Source::address, 0, operand};
    default: return {};
  }
}

// Whether calls differ in it.
bool varies(const CallClass::Kernel& kernel, const CallNumber& number) {
  using Kind = CallNumber::Kind;
  if (number.kind != Kind::extent && number.operand >= kernel.operands.size()) {
    const CallClass::Kernel::Iota& iota = kernel.iotas[number.operand - kernel.operands.size()];
    return iota.counts_all && number.kind == Kind::stride;
  }
  return source_in_call(kernel, number).kind != CallSource::Kind::zero;
}

// The elements of the axes of a kernel's space after that one.
std::int64_t elements_after(std::size_t axis, const CallClass::Kernel& kernel,
                            std::span<const std::int64_t> sizes) {
  std::int64_t elements = 1;
  for (std::size_t k = axis + 1; k < kernel.sizes.size(); ++k) elements *= sizes[kernel.sizes[k]];
  return elements;
}

std::int64_t value_in_call(const CallSource& source, const CallClass::Kernel& kernel,
                           const Call& call, std::span<const std::int64_t> sizes) {
  using Kind = CallSource::Kind;
  switch (source.kind) {
    case Kind::size: return sizes[source.index];
    case Kind::product: return elements_after(source.index, kernel, sizes);
    case Kind::stride: return view_of(call, source.operand).strides()[source.index];
    case Kind::offset: return view_of(call, source.operand).offset();
    case Kind::address: {
      void* const data = view_of(call, source.operand).data();
      return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
    }
    case Kind::zero: break;
  }
  return 0;
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
  for (const CallClass::Kernel::Iota& iota : kernel.iotas) {
    fusion::Operand& operand = operands.emplace_back(iota.operand);
    if (!iota.counts_all) continue;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      operand.strides[k] = elements_after(k, kernel, sizes);
    }
  }
}

bool find_tape_of_call(const PlanTable& plans, const CallClass& known, std::size_t kernel,
                       const Call& call, std::span<const std::int64_t> sizes, std::size_t size_kind,
                       TapeValues& memory, KernelLaunch& launch) {
  return find_taped<CallSource>(
      plans, known.known[kernel], size_kind,
      [&](const CallSource& source) {
        return value_in_call(source, known.kernels[kernel], call, sizes);
      },
      memory, launch);
}

void add_tape_of_call(PlanTable& plans, const CallClass& known, std::size_t kernel,
                      const Call& call, std::span<const std::int64_t> sizes,
                      const std::shared_ptr<const ScheduledKernel>& scheduled) {
  const CallClass::Kernel& own = known.kernels[kernel];
  const CallNumbers numbers(own, call, sizes);
  std::optional<KernelTape> tape =
      KernelTape::record(own.spec.function, own.spec.form, numbers.shape, numbers.operands,
                         known.features, scheduled->parameters, scheduled->planned.parameters,
                         [&](const CallNumber& number) { return varies(own, number); });
  std::shared_ptr<CachedPlan> taped;
  if (tape) {
    std::vector<CallSource> sources;
    for (const CallNumber& input : tape->inputs()) sources.push_back(source_in_call(own, input));
    taped =
        std::make_shared<TapedKernel<CallSource>>(scheduled, *std::move(tape), std::move(sources));
  }
  add_tape(plans, known.known[kernel], size_kind_of(sizes), std::move(taped), known.device);
}

}  // namespace kiln
