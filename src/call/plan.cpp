#include "call/plan.hpp"

#include <fmt/format.h>

#include <optional>

#include "call/call_types.hpp"
#include "call/record.hpp"
#include "core/view_bytes.hpp"
#include "kernel/kernel_table.hpp"
#include "kiln/error.hpp"

namespace kiln {
void check_view(const Definition& definition, const View& view, const Device& device,
                const std::string& what) {
  if (view.device() != device) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: is on {}, but the stream is on {}", definition.name, what,
                            to_string(view.device()), to_string(device)));
  }
  if (view.size() == 0) return;
  if (view.data() == nullptr) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: the data pointer is null", definition.name, what));
  }
  const auto bytes = static_cast<std::uintptr_t>(std::max(1, bits(view.dtype()) / 8));
  const std::uintptr_t unit = view.dtype() == DType::c64 ? 4 : bytes;
  if (reinterpret_cast<std::uintptr_t>(view.data()) % unit != 0) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: address {} is not a multiple of {}, the size of {}",
                            definition.name, what, view.data(), unit, name(view.dtype())));
  }
}

namespace {

constexpr std::uint64_t kScalarTag = 1ull << 63;

OperandShape shape_of(const View& view) {
  return {view.dtype(),   view.shape(),
          view.strides(), static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(view.data())),
          view.offset(),  {}};
}

std::vector<TypedCall> check_call(const Definition& definition, const Call& call) {
  if (call.inputs.size() != definition.graph.arguments().size()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: expected {} inputs, got {}", definition.name,
                            definition.graph.arguments().size(), call.inputs.size()));
  }
  if (call.outputs.size() != definition.graph.outputs().size()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: expected {} outputs, got {}", definition.name,
                            definition.graph.outputs().size(), call.outputs.size()));
  }
  std::vector<fusion::ArgumentType> types;
  std::vector<OperandShape> arrays;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Argument& input = call.inputs[i];
    if (input.is_scalar()) {
      types.push_back({input.scalar().dtype(), true, input.scalar().weak()});
      continue;
    }
    check_view(definition, input.view(), call.stream.device,
               operand_label(definition, call, static_cast<std::uint32_t>(i)));
    types.push_back({input.view().dtype(), false, false});
    arrays.push_back(shape_of(input.view()));
    arrays.back().place = definition.place(i);
  }
  std::vector<OperandShape> outputs;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    check_view(definition, call.outputs[i], call.stream.device,
               operand_label(definition, call, static_cast<std::uint32_t>(call.inputs.size() + i)));
    outputs.push_back(shape_of(call.outputs[i]));
    outputs.back().place = definition.place(call.inputs.size() + i);
  }
  return type_call(definition, types, arrays, outputs);
}

// The operand of the call for each array of a part's layout.
std::vector<std::uint32_t> operands_of(const TypedCall& part, const Call& call) {
  std::vector<std::uint32_t> operands;
  for (const std::size_t argument : part.arguments) {
    if (!call.inputs[argument].is_scalar())
      operands.push_back(static_cast<std::uint32_t>(argument));
  }
  for (const std::size_t output : part.outputs) {
    operands.push_back(static_cast<std::uint32_t>(call.inputs.size() + output));
  }
  return operands;
}

void place_slots(PlannedKernel& planned, const TypedCall& part, const Call& call,
                 const EmittedCall& emitted) {
  const std::vector<std::uint32_t> operands = operands_of(part, call);
  for (std::size_t p = 0; p < emitted.kernel.parameters.size(); ++p) {
    const fusion::Parameter& parameter = emitted.kernel.parameters[p];
    const std::uint32_t offset = planned.parameters.offsets[p];
    if (parameter.kind == fusion::Parameter::Kind::pointer) {
      const std::int64_t elements = emitted.layout.offsets[parameter.index];
      planned.pointers.push_back(
          {offset, operands[parameter.index],
           is_packed(parameter.dtype) ? elements >> 1 : elements * (bits(parameter.dtype) / 8),
           emitted.layout.schedule.operands[parameter.index].before_pdl_wait});
    } else if (parameter.kind == fusion::Parameter::Kind::scalar) {
      planned.scalars.push_back(
          {offset, static_cast<std::uint32_t>(part.arguments[parameter.index]), parameter.dtype});
    } else if (parameter.kind == fusion::Parameter::Kind::launched_early) {
      planned.early = offset;
    }
  }
}

std::vector<Plan::Extent> extents_of(const Call& call) {
  std::vector<Plan::Extent> extents;
  const auto add = [&](const View& view, std::uint32_t operand, bool output) {
    const ByteExtent extent = extent_of(view);
    extents.push_back({operand, extent.low, extent.high, output});
  };
  for (std::uint32_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].is_scalar()) add(call.inputs[i].view(), i, false);
  }
  for (std::uint32_t i = 0; i < call.outputs.size(); ++i) {
    const auto operand = static_cast<std::uint32_t>(call.inputs.size()) + i;
    add(call.outputs[i], operand, true);
  }
  return extents;
}

// Puts one kernel more into the plan, and what is to be said about it.
void add_kernel(Plan& plan, const TypedCall& part, const Call& call, OnMiss on_miss) {
  EmittedCall emitted = emit_call(part, plan.backend->target());
  emitted.request.options.on_miss = on_miss;
  plan.info.bytes += emitted.bytes;
  const bool first = plan.kernels.empty();
  if (first) plan.info.variant = emitted.variant;
  if (emitted.layout.work_items == 0) return;
  PlannedKernel planned;
  KernelInfo info;
  planned.kernel = load_kernel(*plan.backend, emitted.request, info);
  planned.entry = info.entry;
  if (first) {
    plan.info.entry = info.entry;
    plan.info.key = info.key;
    plan.info.source = fusion::with_entry(emitted.request.text, info.entry);
  }
  plan.info.cache = std::max(plan.info.cache, info.cache);
  plan.info.compile_ms += info.compile_ms;
  planned.parameters = fusion::pack_parameters(emitted.kernel, emitted.layout);
  planned.programmatic = emitted.layout.schedule.pdl;
  planned.shape.work_items = emitted.layout.threads();
  planned.shape.block = emitted.kernel.block;
  planned.shape.shared_bytes = emitted.kernel.shared_bytes;
  place_slots(planned, part, call, emitted);
  plan.kernels.push_back(std::move(planned));
}

}  // namespace

Signature::Signature(const Call& call) {
  push(static_cast<std::uint64_t>(call.stream.device.type) << 32 |
       static_cast<std::uint32_t>(call.stream.device.index));
  push(call.inputs.size() << 32 | call.outputs.size());
  for (const Argument& input : call.inputs) {
    if (input.is_scalar()) {
      push(kScalarTag | static_cast<std::uint64_t>(input.scalar().dtype()) << 1 |
           (input.scalar().weak() ? 1 : 0));
    } else {
      push_view(input.view());
    }
  }
  for (const View& output : call.outputs) push_view(output);
  hash_ ^= hash_ >> 29;
}

void Signature::push_view(const View& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data());
  push(static_cast<std::uint64_t>(view.dtype()) | view.shape().size() << 8 | (address & 15) << 24 |
       static_cast<std::uint64_t>(view.data() == nullptr) << 28 |
       static_cast<std::uint64_t>(view.offset()) << 29 |
       static_cast<std::uint64_t>(view.device().type) << 32 |
       static_cast<std::uint64_t>(view.device().index & 0xffff) << 40);
  for (const std::int64_t size : view.shape()) push(static_cast<std::uint64_t>(size));
  for (const std::int64_t stride : view.strides()) push(static_cast<std::uint64_t>(stride));
}

void Signature::push(std::uint64_t word) {
  hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
  hash_ ^= hash_ >> 32;
  if (size_ < kInline) {
    inline_[size_++] = word;
    return;
  }
  if (overflow_.empty()) overflow_.assign(inline_.begin(), inline_.end());
  overflow_.push_back(word);
  ++size_;
}

std::span<const std::uint64_t> Signature::words() const {
  if (!overflow_.empty()) return overflow_;
  return {inline_.data(), size_};
}

std::unique_ptr<Plan> make_plan(const Definition& definition, const Call& call,
                                const Signature& signature, OnMiss on_miss) {
  auto plan = std::make_unique<Plan>();
  plan->signature.assign(signature.words().begin(), signature.words().end());
  plan->hash = signature.hash();
  const std::vector<TypedCall> parts = check_call(definition, call);
  plan->backend = &jit::backend(call.stream.device);
  plan->info.function = definition.name;
  plan->info.expression = definition.expression;
  plan->info.target = plan->backend->target();
  // The text of a kernel over pieces does not say what it computes.
  if (recording() && definition.pieces == 1) record(definition, specification_of(definition, call));
  std::optional<Error> missing;  // thrown when all have been looked for, and compiles have begun
  for (const TypedCall& part : parts) {
    try {
      add_kernel(*plan, part, call, on_miss);
    } catch (const Error& error) {
      if (error.code() != Code::would_compile || on_miss != OnMiss::background) throw;
      if (!missing) missing = error;
    }
  }
  if (missing) throw Error(*missing);
  plan->info.kernels = static_cast<int>(plan->kernels.size());
  plan->extents = extents_of(call);
  return plan;
}

}  // namespace kiln
