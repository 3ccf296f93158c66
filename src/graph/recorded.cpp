#include "graph/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "call/copying.hpp"
#include "call/function_impl.hpp"
#include "core/check_view.hpp"
#include "core/view_bytes.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// ---- Bytes -------------------------------------------------------------------------------------

jit::ByteRange range_of(const View& view) {
  if (view.size() == 0) return {};
  const ByteExtent extent = extent_of(view);
  const auto data = reinterpret_cast<std::uintptr_t>(view.data());
  return {data + static_cast<std::uintptr_t>(extent.low),
          data + static_cast<std::uintptr_t>(extent.high)};
}

std::size_t contiguous_bytes(const View& view) {
  return static_cast<std::size_t>((view.size() * bits(view.dtype()) + 7) / 8);
}

// Calls `visit` for every view, with whether it is read and whether it is written.
template <class Operation, class Visit>
void visit_views(Operation& operation, const Visit& visit) {
  using Type = std::remove_const_t<Operation>;
  if constexpr (std::is_same_v<Type, RecordedCall>) {
    for (const Argument& input : operation.inputs) {
      if (!input.is_scalar()) visit(input.view(), true, false);
    }
    for (const View& output : operation.outputs) visit(output, false, true);
  } else if constexpr (std::is_same_v<Type, RecordedKernel>) {
    for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
      const auto kind = operation.kernel->parameters[i].kind;
      if (kind == KernelParameter::Kind::scalar) continue;
      visit(operation.arguments[i].view(), kind != KernelParameter::Kind::writes,
            kind != KernelParameter::Kind::reads);
    }
  } else if constexpr (std::is_same_v<Type, Copy>) {
    visit(operation.from, true, false);
    visit(operation.to, false, true);
  } else if constexpr (std::is_same_v<Type, RecordedFill>) {
    visit(operation.to, false, true);
  } else {
    for (const View& view : operation.reads) visit(view, true, false);
    for (const View& view : operation.writes) visit(view, false, true);
  }
}

// ---- Checks ------------------------------------------------------------------------------------

constexpr std::string_view kUser = "the graph";  ///< of views, in messages

void check_contiguous(const View& view, Device device, std::string_view function,
                      std::string_view what) {
  check_view(view, device, function, what, kUser);
  if (view.size() > 1 && view.strides() != contiguous_strides(view.shape())) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected a view in C order", function, what));
  }
  if (is_packed(view.dtype()) && (view.offset() != 0 || view.size() % 2 != 0)) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected {} elements that fill whole bytes", function, what,
                            name(view.dtype())));
  }
}

// A copy of a block of bytes, which is all that is recorded as a copy.
void check_copy(const Copy& copy, Device device) {
  if (!block_bytes(copy, device, "Recorder::copy")) {
    throw Error(Code::internal, "Recorder::copy: this copy takes a kernel");
  }
}

Call call_of(const RecordedCall& recorded, const Stream& stream) {
  return {stream, recorded.inputs, recorded.outputs};
}

// Finds the plan of the operands as they are now.
void plan_call(RecordedCall& recorded, const Stream& stream) {
  const Call call = call_of(recorded, stream);
  recorded.plan = recorded.callable->plan_for(call);
  check_overlap(*recorded.plan, call);
}

// ---- Work --------------------------------------------------------------------------------------

Work work_of(const RecordedCall& recorded, const PlannedKernel& kernel, const Stream& stream) {
  std::vector<std::uint64_t> block((kernel.parameters.bytes.size() + 7) / 8);
  auto* const bytes = reinterpret_cast<std::byte*>(block.data());
  fill_parameters(*recorded.plan, kernel, {stream, recorded.inputs, recorded.outputs}, bytes);
  if (kernel.launched_early)
    bytes[*kernel.launched_early] = std::byte{1};  // the first byte of a little-endian number
  jit::Arguments arguments;
  for (std::size_t i = 0; i < kernel.parameters.offsets.size(); ++i) {
    arguments.add(bytes + kernel.parameters.offsets[i], kernel.parameters.sizes[i]);
  }
  return jit::KernelNode{kernel.kernel, kernel.shape, std::move(arguments), kernel.pdl};
}

Work work_of(const RecordedKernel& recorded, Device device) {
  const Kernel::Impl& kernel = *recorded.kernel;
  const std::size_t count = parameter_count(kernel, device);
  std::vector<std::uint64_t> words(count + kGridWords);
  fill_parameters(kernel, device, recorded.grid, recorded.arguments, words.data());
  jit::Arguments arguments;
  for (std::size_t i = 0; i < count; ++i) {
    arguments.add(words.data() + i, parameter_bytes(kernel, i));
  }
  const bool pdl = kernel.awaits && features_of(recorded.loaded->backend->target()).pdl;
  return jit::KernelNode{recorded.loaded->kernel, launch_shape(kernel, device, recorded.grid),
                         std::move(arguments), pdl};
}

}  // namespace

// ---- Recording ---------------------------------------------------------------------------------

Recorded record_call(std::shared_ptr<Callable> callable, const Stream& stream,
                     std::span<const Argument> inputs, std::span<const View> outputs,
                     std::vector<WantedKernel>& missing) {
  RecordedCall recorded{std::move(callable),
                        nullptr,
                        {inputs.begin(), inputs.end()},
                        {outputs.begin(), outputs.end()}};
  const Call call = call_of(recorded, stream);
  recorded.plan = recorded.callable->plan_or_missing(call, missing);
  if (recorded.plan) check_overlap(*recorded.plan, call);
  return recorded;
}

Recorded record_kernel(const Kernel& kernel, const Stream& stream, const Grid& grid,
                       std::span<const Argument> arguments, std::vector<WantedKernel>& missing) {
  RecordedKernel recorded{
      kernel.shared_impl(), nullptr, grid, {arguments.begin(), arguments.end()}};
  check_arguments(*recorded.kernel, stream.device, grid, arguments);
  Kernel::Impl& own = *recorded.kernel;
  recorded.loaded = when_kept(own.options.on_miss) == OnMiss::compile ? own.find(stream.device)
                                                                      : &own.on(stream.device);
  if (recorded.loaded == nullptr) {
    jit::Backend& backend = jit::backend(stream.device);
    missing.push_back({own.request(backend.target()), &backend});
  }
  return recorded;
}

void complete(Recorded& recorded, const Stream& stream) {
  if (auto* const call = std::get_if<RecordedCall>(&recorded)) {
    if (!call->plan) plan_call(*call, stream);
  } else if (auto* const kernel = std::get_if<RecordedKernel>(&recorded)) {
    if (kernel->loaded == nullptr) kernel->loaded = &kernel->kernel->on(stream.device);
  }
}

Recorded record_copy(const Copy& copy, const Stream& stream, std::vector<WantedKernel>& missing) {
  if (block_bytes(copy, stream.device, "Recorder::copy")) return copy;
  const CopyCall call = copy_call(copy);
  const std::array<Argument, 1> inputs = {Argument(call.views.from)};
  return record_call(call.function.shared_impl(), stream, inputs, std::span(&call.views.to, 1),
                     missing);
}

Recorded record_fill(const View& to, std::uint8_t byte, Device device) {
  check_contiguous(to, device, "Recorder::fill", "to");
  return RecordedFill{to, byte};
}

Recorded record_sequence(std::string_view name, Device device, std::span<const View> reads,
                         std::span<const View> writes, std::function<void(const Stream&)> body) {
  if (!body) throw Error(Code::invalid_argument, "Recorder::sequence: body: the function is empty");
  for (const View& view : reads) {
    check_view(view, device, "Recorder::sequence", "reads", kUser);
  }
  for (const View& view : writes) {
    check_view(view, device, "Recorder::sequence", "writes", kUser);
  }
  return RecordedSequence{std::string(name),
                          {reads.begin(), reads.end()},
                          {writes.begin(), writes.end()},
                          std::move(body)};
}

// ---- What an operation is ----------------------------------------------------------------------

jit::Access access_of(const Recorded& recorded) {
  jit::Access access;
  const auto add = [&](const View& view, bool read, bool written) {
    const jit::ByteRange range = range_of(view);
    if (read) access.reads.push_back(range);
    if (written) access.writes.push_back(range);
  };
  const auto* const call = std::get_if<RecordedCall>(&recorded);
  if (call == nullptr) {
    std::visit([&](const auto& operation) { visit_views(operation, add); }, recorded);
  } else {
    // Where data says places, a kernel is in more of the memory than its views show.
    for (const Plan::Extent& extent : call->plan->extents) {
      const std::size_t inputs = call->inputs.size();
      const View& view = extent.output ? call->outputs[extent.operand - inputs]
                                       : call->inputs[extent.operand].view();
      if (view.size() == 0) continue;
      const auto data = reinterpret_cast<std::uintptr_t>(view.data());
      const jit::ByteRange range{data + static_cast<std::uintptr_t>(extent.low),
                                 data + static_cast<std::uintptr_t>(extent.high)};
      (extent.output ? access.writes : access.reads).push_back(range);
    }
    for (const PlannedKernel& kernel : call->plan->kernels) {
      for (const PlannedKernel::PointerSlot& slot : kernel.pointers) {
        if (slot.before_pdl_wait)
          access.early.push_back(range_of(call->inputs[slot.operand].view()));
      }
    }
  }
  return access;
}

std::vector<Work> works_of(const Recorded& recorded, const Stream& stream) {
  if (const auto* call = std::get_if<RecordedCall>(&recorded)) {
    if (call->plan->kernels.empty()) return {jit::FillNode{}};  // nothing to compute
    std::vector<Work> works;
    for (const PlannedKernel& kernel : call->plan->kernels) {
      works.push_back(work_of(*call, kernel, stream));
    }
    return works;
  }
  if (const auto* kernel = std::get_if<RecordedKernel>(&recorded)) {
    return {work_of(*kernel, stream.device)};
  }
  if (const auto* copy = std::get_if<Copy>(&recorded)) {
    const std::size_t bytes = copy->to.data() == copy->from.data() ? 0 : contiguous_bytes(copy->to);
    return {jit::CopyNode{copy->to.data(), copy->from.data(), bytes}};
  }
  if (const auto* fill = std::get_if<RecordedFill>(&recorded)) {
    return {jit::FillNode{fill->to.data(), fill->byte, contiguous_bytes(fill->to)}};
  }
  return {jit::SequenceNode{std::get<RecordedSequence>(recorded).body}};
}

bool same_kernels(const Recorded& a, const Recorded& b) {
  const auto* before = std::get_if<RecordedCall>(&a);
  const auto* after = std::get_if<RecordedCall>(&b);
  return before == nullptr || before->plan == after->plan;
}

std::string name_of(const Recorded& recorded) {
  if (const auto* call = std::get_if<RecordedCall>(&recorded)) {
    return call->plan->info.function;
  }
  if (const auto* kernel = std::get_if<RecordedKernel>(&recorded)) return kernel->kernel->name;
  if (const auto* sequence = std::get_if<RecordedSequence>(&recorded)) return sequence->name;
  return std::holds_alternative<Copy>(recorded) ? "copy" : "fill";
}

std::string entry_of(const Recorded& recorded) {
  if (const auto* call = std::get_if<RecordedCall>(&recorded)) return call->plan->info.entry;
  const auto* kernel = std::get_if<RecordedKernel>(&recorded);
  return kernel == nullptr ? std::string() : kernel->loaded->info.entry;
}

// ---- Changes -----------------------------------------------------------------------------------

bool Move::applies_to(const View& view) const {
  const auto data = reinterpret_cast<std::uintptr_t>(view.data());
  const auto begin = reinterpret_cast<std::uintptr_t>(old);
  return data >= begin && data - begin < bytes;
}

bool uses(const Recorded& recorded, const Move& move) {
  bool found = false;
  const auto look = [&](const View& view, bool, bool) { found = found || move.applies_to(view); };
  std::visit([&](const auto& operation) { visit_views(operation, look); }, recorded);
  return found;
}

Moved move_operands(const Recorded& recorded, const Move& move, const Stream& stream) {
  Moved moved{recorded, 0};
  const auto move_view = [&](View& view) {
    if (!move.applies_to(view)) return;
    const auto offset = static_cast<const char*>(view.data()) - static_cast<const char*>(move.old);
    view = view.with_data(static_cast<char*>(move.now) + offset);
    ++moved.operands;
  };
  const auto move_argument = [&](Argument& argument) {
    if (argument.is_scalar() || !move.applies_to(argument.view())) return;
    View view = argument.view();
    move_view(view);
    argument = Argument(std::move(view));
  };
  if (auto* call = std::get_if<RecordedCall>(&moved.recorded)) {
    std::ranges::for_each(call->inputs, move_argument);
    std::ranges::for_each(call->outputs, move_view);
    plan_call(*call, stream);
  } else if (auto* kernel = std::get_if<RecordedKernel>(&moved.recorded)) {
    std::ranges::for_each(kernel->arguments, move_argument);
    check_arguments(*kernel->kernel, stream.device, kernel->grid, kernel->arguments);
  } else if (auto* copy = std::get_if<Copy>(&moved.recorded)) {
    move_view(copy->to);
    move_view(copy->from);
    check_copy(*copy, stream.device);
  } else if (auto* fill = std::get_if<RecordedFill>(&moved.recorded)) {
    move_view(fill->to);
    check_contiguous(fill->to, stream.device, "Graph::rebind", "now");
  } else {
    throw Error(Code::unsupported,
                fmt::format("Graph::rebind: the sequence '{}' was captured with the address {} and "
                            "cannot be given another",
                            name_of(recorded), move.old));
  }
  return moved;
}

Recorded with_scalar(const Recorded& recorded, std::size_t operation, std::size_t input,
                     Scalar value) {
  Recorded changed = recorded;
  std::vector<Argument>* arguments = nullptr;
  if (auto* call = std::get_if<RecordedCall>(&changed)) arguments = &call->inputs;
  if (auto* kernel = std::get_if<RecordedKernel>(&changed)) arguments = &kernel->arguments;
  if (arguments == nullptr || input >= arguments->size() || !(*arguments)[input].is_scalar()) {
    throw Error(
        Code::invalid_argument,
        fmt::format("Graph::set_scalar: operation {} has no scalar argument {}", operation, input));
  }
  const Scalar& bound = (*arguments)[input].scalar();
  if (bound.dtype() != value.dtype() || bound.weak() != value.weak()) {
    throw Error(Code::invalid_argument,
                fmt::format("Graph::set_scalar: operation {}, argument {}: expected {}, got {}",
                            operation, input, name(bound.dtype()), name(value.dtype())));
  }
  (*arguments)[input] = Argument(value);
  return changed;
}

}  // namespace kiln
