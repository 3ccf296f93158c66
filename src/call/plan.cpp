#include "call/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/view_bytes.hpp"
#include "kernel/emit_kernel.hpp"
#include "kernel/kernel_table.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

constexpr std::uint64_t kScalarTag = 1ull << 63;

void place_slots(PlannedKernel& planned, const KernelSpec& spec, const Call& call,
                 const EmittedKernel& emitted) {
  const std::vector<std::uint32_t> operands = operands_of(spec, call);
  for (std::size_t p = 0; p < emitted.kernel.parameters.size(); ++p) {
    const fusion::Parameter& parameter = emitted.kernel.parameters[p];
    const std::uint32_t offset = planned.parameters.offsets[p];
    if (parameter.kind == fusion::Parameter::Kind::pointer) {
      const std::int64_t elements = emitted.layout.offsets[parameter.index];
      planned.pointers.push_back(
          {offset, operands[parameter.index], pointer_bytes(elements, parameter.dtype),
           emitted.layout.schedule.operands[parameter.index].before_pdl_wait});
    } else if (parameter.kind == fusion::Parameter::Kind::scalar) {
      planned.scalars.push_back(
          {offset, static_cast<std::uint32_t>(spec.arguments[parameter.index]), parameter.dtype});
    } else if (parameter.kind == fusion::Parameter::Kind::launched_early) {
      planned.launched_early = offset;
    }
  }
}

PlannedKernel planned_kernel(std::shared_ptr<jit::Kernel> kernel, const KernelSpec& spec,
                             const Call& call, const EmittedKernel& emitted) {
  PlannedKernel planned;
  planned.kernel = std::move(kernel);
  planned.parameters = fusion::pack_parameters(emitted.kernel, emitted.layout);
  planned.pdl = emitted.layout.schedule.pdl;
  planned.shape.work_items = emitted.layout.threads();
  planned.shape.block = emitted.kernel.block;
  planned.shape.shared_bytes = emitted.kernel.shared_bytes;
  place_slots(planned, spec, call, emitted);
  return planned;
}

}  // namespace

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

namespace {

// The bytes from an operand's first element that all places of a kernel's operand span.
ByteExtent extent_of(const fusion::Operand& operand, const Dims& shape) {
  std::int64_t low = operand.offset;
  std::int64_t high = operand.offset;
  const auto add = [&](std::int64_t stride, std::int64_t count) {
    (stride < 0 ? low : high) += stride * (std::max<std::int64_t>(count, 1) - 1);
  };
  for (std::size_t k = 0; k < shape.size(); ++k) add(operand.strides[k], shape[k]);
  add(operand.indexed.stride, operand.indexed.extent);
  return {pointer_bytes(low, operand.dtype),
          pointer_bytes(high, operand.dtype) + std::max(1, bits(operand.dtype) / 8)};
}

// Whether indices decide which elements of an output have a place, as where parts of what a kernel
// computes are put: the others are in memory that is none of the output's.
bool is_partial(const fusion::TypedGraph& graph, std::size_t output) {
  const fusion::NodeId* place = graph.place_of(true, output);
  if (place == nullptr || graph.nodes[*place].op != fusion::Op::where) return false;
  const fusion::NodeId condition = graph.nodes[*place].operands[0];
  const std::vector<bool> live = fusion::live_nodes(graph.nodes, std::span(&condition, 1));
  for (fusion::NodeId id = 0; id <= condition; ++id) {
    if (live[id] && graph.nodes[id].op == fusion::Op::iota) return true;
  }
  return false;
}

// Of operands at places that data says a view shows no more than one.
void add_places(std::vector<Plan::Extent>& extents, std::span<const KernelSpec> specs,
                const Call& call) {
  for (const KernelSpec& spec : specs) {
    const std::vector<std::uint32_t> operands = operands_of(spec, call);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!spec.operands[i].indexed.exists()) continue;
      const ByteExtent whole = extent_of(spec.operands[i], spec.shape);
      const bool output = operands[i] >= call.inputs.size();
      const bool partial =
          output && is_partial(spec.function.graph, operands[i] - call.inputs.size());
      for (Plan::Extent& extent : extents) {
        if (extent.operand != operands[i]) continue;
        extent.partial = extent.partial || partial;
        extent.low = std::min(extent.low, whole.low);
        extent.high = std::max(extent.high, whole.high);
      }
    }
  }
}

}  // namespace

std::vector<Plan::Update> updates_of(std::span<const KernelSpec> specs, const Call& call) {
  std::vector<Plan::Update> updates;
  for (const KernelSpec& spec : specs) {
    for (const auto& [output, argument] : spec.updates) {
      updates.push_back({static_cast<std::uint32_t>(call.inputs.size() + output),
                         static_cast<std::uint32_t>(argument)});
    }
  }
  return updates;
}

std::vector<std::uint32_t> operands_of(const KernelSpec& spec, const Call& call) {
  std::vector<std::uint32_t> operands;
  for (const std::size_t argument : spec.arguments) {
    if (!call.inputs[argument].is_scalar())
      operands.push_back(static_cast<std::uint32_t>(argument));
  }
  for (const std::size_t output : spec.outputs) {
    operands.push_back(static_cast<std::uint32_t>(call.inputs.size() + output));
  }
  return operands;
}

std::int64_t pointer_bytes(std::int64_t elements, DType dtype) {
  return is_packed(dtype) ? elements >> 1 : elements * (bits(dtype) / 8);
}

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
  hash_ = hash_of_words(words());
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

std::size_t Plan::bytes() const {
  std::size_t bytes = sizeof *this + 8 * signature.size() + extents.size() * sizeof(Extent);
  for (const PlannedKernel& kernel : kernels) {
    const fusion::ParameterBlock& block = kernel.parameters;
    bytes += sizeof kernel + block.bytes.size() + 8 * block.offsets.size() +
             kernel.pointers.size() * sizeof(PlannedKernel::PointerSlot) +
             kernel.scalars.size() * sizeof(PlannedKernel::ScalarSlot);
  }
  for (const std::string* text : {&info.function, &info.expression, &info.entry, &info.key,
                                  &info.target, &info.variant, &info.source}) {
    bytes += text->size();
  }
  return bytes;
}

std::vector<std::shared_ptr<jit::Kernel>> Plan::loaded_kernels() const {
  std::vector<std::shared_ptr<jit::Kernel>> loaded;
  for (const PlannedKernel& kernel : kernels) loaded.push_back(kernel.kernel);
  return loaded;
}

std::unique_ptr<Plan> make_plan(const CallNames& names, std::string_view expression,
                                std::span<const KernelSpec> specs, const Call& call,
                                OnMiss on_miss) {
  auto plan = std::make_unique<Plan>();
  plan->names = names;
  plan->device = call.stream.device;
  plan->backend = &jit::backend(call.stream.device);
  std::vector<EmittedKernel> kernels;
  for (const KernelSpec& spec : specs) {
    kernels.push_back(emit_kernel(spec, plan->backend->target()));
    kernels.back().request.options.on_miss = on_miss;
  }
  plan->info = describe_kernels(names.function, expression, kernels);
  std::optional<Error> missing;  // thrown when all have been looked for, and compiles have begun
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].is_empty()) continue;
    try {
      KernelInfo built;
      auto kernel = load_kernel(*plan->backend, kernels[i].request, built);
      if (!kernel) {
        plan->missing.push_back({kernels[i].request, plan->backend});
        continue;
      }
      add_built(plan->info, built);
      plan->kernels.push_back(planned_kernel(std::move(kernel), specs[i], call, kernels[i]));
    } catch (const Error& error) {
      if (error.code() != Code::would_compile || on_miss != OnMiss::background) throw;
      if (!missing) missing = error;
    }
  }
  if (missing) throw Error(*missing);
  plan->extents = extents_of(call);
  add_places(plan->extents, specs, call);
  plan->updates = updates_of(specs, call);
  return plan;
}

}  // namespace kiln
