#include "kiln/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "bound_launch.hpp"
#include "copying.hpp"
#include "function_impl.hpp"
#include "jit/dependencies.hpp"
#include "jit/graph.hpp"
#include "kiln/error.hpp"
#include "plan.hpp"

namespace kiln {
namespace {

// One kernel of a call: a call whose outputs have several shapes is as many of these in a row.
struct RecordedCall {
  std::shared_ptr<Function::Impl> function;
  const Plan* plan = nullptr;
  std::size_t part = 0;  ///< which of the plan's kernels
  std::vector<Argument> inputs;
  std::vector<View> outputs;

  /// Null if there is nothing to compute.
  const PlannedKernel* kernel() const {
    return part < plan->kernels.size() ? &plan->kernels[part] : nullptr;
  }
};
struct RecordedCopy {
  View to;
  View from;
};
struct RecordedFill {
  View to;
  std::uint8_t byte = 0;
};
struct RecordedSequence {
  std::string name;
  std::vector<View> reads;
  std::vector<View> writes;
  std::function<void(const Stream&)> body;
};
using Recorded = std::variant<RecordedCall, RecordedCopy, RecordedFill, RecordedSequence>;

// ---- What an operation touches -----------------------------------------------------------------

jit::ByteRange range_of(const View& view) {
  if (view.size() == 0) return {};
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::size_t k = 0; k < view.shape().size(); ++k) {
    const std::int64_t reach = view.strides()[k] * (view.shape()[k] - 1);
    (reach < 0 ? low : high) += reach;
  }
  const std::int64_t width = bits(view.dtype());
  const auto data = reinterpret_cast<std::uintptr_t>(view.data());
  return {data + static_cast<std::uintptr_t>(low * width / 8),
          data + static_cast<std::uintptr_t>(((high + 1) * width + 7) / 8)};
}

jit::Access access_of(const Recorded& recorded) {
  jit::Access access;
  const auto add = [](std::vector<jit::ByteRange>& to, const View& view) {
    to.push_back(range_of(view));
  };
  if (const auto* call = std::get_if<RecordedCall>(&recorded)) {
    if (call->kernel() == nullptr) return access;
    for (const PlannedKernel::PointerSlot& slot : call->kernel()->pointers) {
      if (slot.operand < call->inputs.size()) {
        add(access.reads, call->inputs[slot.operand].view());
      } else {
        add(access.writes, call->outputs[slot.operand - call->inputs.size()]);
      }
    }
  } else if (const auto* copy = std::get_if<RecordedCopy>(&recorded)) {
    add(access.reads, copy->from);
    add(access.writes, copy->to);
  } else if (const auto* fill = std::get_if<RecordedFill>(&recorded)) {
    add(access.writes, fill->to);
  } else {
    const auto& sequence = std::get<RecordedSequence>(recorded);
    for (const View& view : sequence.reads) add(access.reads, view);
    for (const View& view : sequence.writes) add(access.writes, view);
  }
  return access;
}

std::vector<jit::Dependency> order_of(const std::vector<Recorded>& operations) {
  std::vector<jit::Access> accesses;
  for (const Recorded& recorded : operations) accesses.push_back(access_of(recorded));
  return jit::dependencies(accesses);
}

// ---- What it is for the driver -----------------------------------------------------------------

std::size_t contiguous_bytes(const View& view) {
  return static_cast<std::size_t>((view.size() * bits(view.dtype()) + 7) / 8);
}

jit::Arguments arguments_of(const RecordedCall& recorded, const Stream& stream) {
  const PlannedKernel& kernel = *recorded.kernel();
  std::vector<std::uint64_t> block((kernel.parameters.bytes.size() + 7) / 8);
  auto* const bytes = reinterpret_cast<std::byte*>(block.data());
  fill_parameters(recorded.function->definition, kernel,
                  {stream, recorded.inputs, recorded.outputs}, bytes);
  jit::Arguments arguments;
  for (std::size_t i = 0; i < kernel.parameters.offsets.size(); ++i) {
    arguments.add(bytes + kernel.parameters.offsets[i], kernel.parameters.sizes[i]);
  }
  return arguments;
}

std::variant<jit::KernelNode, jit::CopyNode, jit::FillNode, jit::SequenceNode> work_of(
    const Recorded& recorded, const Stream& stream) {
  if (const auto* call = std::get_if<RecordedCall>(&recorded)) {
    const PlannedKernel* const kernel = call->kernel();
    if (kernel == nullptr) return jit::FillNode{};  // nothing to compute
    return jit::KernelNode{kernel->kernel, kernel->shape, arguments_of(*call, stream)};
  }
  if (const auto* copy = std::get_if<RecordedCopy>(&recorded)) {
    const bool nothing = copy->to.data() == copy->from.data();
    return jit::CopyNode{copy->to.data(), copy->from.data(),
                         nothing ? 0 : contiguous_bytes(copy->to)};
  }
  if (const auto* fill = std::get_if<RecordedFill>(&recorded)) {
    return jit::FillNode{fill->to.data(), fill->byte, contiguous_bytes(fill->to)};
  }
  return jit::SequenceNode{std::get<RecordedSequence>(recorded).body};
}

// ---- Checks ------------------------------------------------------------------------------------

void check_contiguous(const View& view, Device device, std::string_view function,
                      std::string_view what) {
  if (view.device() != device) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: is on {}, but the graph is for {}", function, what,
                            to_string(view.device()), to_string(device)));
  }
  if (view.size() != 0 && view.data() == nullptr) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: the data pointer is null", function, what));
  }
  if (view.size() > 1 && view.strides() != contiguous_strides(view.shape())) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected a view in C order", function, what));
  }
}

// A copy of a block of bytes, which is all that is recorded as a copy.
void check_copy(const RecordedCopy& copy, Device device) {
  if (!block_bytes(copy.from, copy.to, device, "Recorder::copy")) {
    throw Error(Code::internal, "Recorder::copy: this copy takes a kernel");
  }
}

}  // namespace

struct Recorder::Impl {
  explicit Impl(Device on) : device(on), backend(jit::backend(on)) {}

  std::size_t add(Recorded recorded) {
    operations.push_back(std::move(recorded));
    return operations.size() - 1;
  }

  Stream stream() const { return {device, nullptr}; }

  void prepare() {
    std::vector<jit::GraphNode> nodes;
    for (const Recorded& recorded : operations) nodes.push_back({work_of(recorded, stream()), {}});
    order = order_of(operations);
    for (const jit::Dependency& dependency : order)
      nodes[dependency.to].after.push_back(dependency.from);
    prepared = backend.prepare(std::move(nodes));
  }

  // Takes over changed operations: node by node if only parameters changed, else as a new graph.
  void replace(std::vector<Recorded> changed, const std::vector<bool>& touched) {
    const std::vector<jit::Dependency> new_order = order_of(changed);
    bool same = edges_of(new_order) == edges_of(order);
    for (std::size_t i = 0; i < changed.size() && same; ++i) {
      const auto* before = std::get_if<RecordedCall>(&operations[i]);
      const auto* after = std::get_if<RecordedCall>(&changed[i]);
      if (before != nullptr && before->plan != after->plan) same = false;
    }
    operations.swap(changed);
    if (!same) return prepare();
    order = new_order;
    for (std::uint32_t i = 0; i < operations.size(); ++i) {
      if (touched[i]) update(i);
    }
  }

  void update(std::uint32_t i) {
    const auto work = work_of(operations[i], stream());
    if (const auto* kernel = std::get_if<jit::KernelNode>(&work))
      prepared->update(i, kernel->arguments);
    if (const auto* copy = std::get_if<jit::CopyNode>(&work)) prepared->update(i, *copy);
    if (const auto* fill = std::get_if<jit::FillNode>(&work)) prepared->update(i, *fill);
  }

  static std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_of(
      const std::vector<jit::Dependency>& dependencies) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    for (const jit::Dependency& dependency : dependencies)
      edges.emplace_back(dependency.from, dependency.to);
    return edges;
  }

  Device device;
  jit::Backend& backend;
  std::vector<Recorded> operations;
  std::vector<jit::Dependency> order;
  std::unique_ptr<jit::PreparedGraph> prepared;
};

// ---- Recording ---------------------------------------------------------------------------------

std::size_t Recorder::call(const Function& function, std::span<const Argument> inputs,
                           std::span<const View> outputs) {
  RecordedCall recorded;
  recorded.function = function.shared_impl();
  recorded.inputs.assign(inputs.begin(), inputs.end());
  recorded.outputs.assign(outputs.begin(), outputs.end());
  const Stream stream = impl_.stream();
  const Call call{stream, recorded.inputs, recorded.outputs};
  recorded.plan = &plan_for(*recorded.function, call);
  check_overlap(recorded.function->definition, *recorded.plan, call);
  const std::size_t others = std::max<std::size_t>(recorded.plan->kernels.size(), 1) - 1;
  for (; recorded.part < others; ++recorded.part) impl_.add(recorded);
  return impl_.add(std::move(recorded)) - others;
}

std::size_t Recorder::call(const Function& function, std::initializer_list<Argument> inputs,
                           std::initializer_list<View> outputs) {
  return call(function, std::span(inputs.begin(), inputs.size()),
              std::span(outputs.begin(), outputs.size()));
}

std::size_t Recorder::copy(const View& to, const View& from) {
  if (block_bytes(from, to, impl_.device, "Recorder::copy")) {
    return impl_.add(RecordedCopy{to, from});
  }
  const CopyCall copied = copy_call(from, to);
  return call(copied.function, {Argument(copied.src)}, {copied.dst});
}

std::size_t Recorder::fill(const View& to, std::uint8_t byte) {
  check_contiguous(to, impl_.device, "Recorder::fill", "to");
  return impl_.add(RecordedFill{to, byte});
}

std::size_t Recorder::sequence(std::string_view name, std::span<const View> reads,
                               std::span<const View> writes,
                               std::function<void(const Stream&)> body) {
  if (!body) throw Error(Code::invalid_argument, "Recorder::sequence: body: the function is empty");
  return impl_.add(RecordedSequence{std::string(name),
                                    {reads.begin(), reads.end()},
                                    {writes.begin(), writes.end()},
                                    std::move(body)});
}

Graph record(Device device, const std::function<void(Recorder&)>& body) {
  auto impl = std::make_unique<Recorder::Impl>(device);
  Recorder recorder(*impl);
  body(recorder);
  impl->prepare();
  return Graph(std::move(impl));
}

// ---- The graph ---------------------------------------------------------------------------------

Graph::Graph(std::unique_ptr<Recorder::Impl> impl) : impl_(std::move(impl)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(const Stream& stream) { impl_->prepared->launch(stream); }

std::size_t Graph::rebind(const void* old, void* now) {
  std::vector<Recorded> changed = impl_->operations;
  std::vector<bool> touched(changed.size(), false);
  std::size_t count = 0;
  const auto move_view = [&](View& view, std::size_t i) {
    if (view.data() != old) return false;
    view = View(now, view.dtype(), view.shape(), view.strides(), view.device());
    touched[i] = true;
    ++count;
    return true;
  };
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (auto* call = std::get_if<RecordedCall>(&changed[i])) {
      const std::size_t before = count;
      for (Argument& input : call->inputs) {
        if (input.is_scalar()) continue;
        View view = input.view();
        if (move_view(view, i)) input = Argument(std::move(view));
      }
      for (View& output : call->outputs) move_view(output, i);
      if (call->part != 0) count = before;  // counted with the first part
      if (!touched[i]) continue;
      const Stream stream = impl_->stream();
      const Call moved{stream, call->inputs, call->outputs};
      call->plan = &plan_for(*call->function, moved);
      check_overlap(call->function->definition, *call->plan, moved);
    } else if (auto* copy = std::get_if<RecordedCopy>(&changed[i])) {
      move_view(copy->to, i);
      move_view(copy->from, i);
      if (touched[i]) check_copy(*copy, impl_->device);
    } else if (auto* fill = std::get_if<RecordedFill>(&changed[i])) {
      move_view(fill->to, i);
    } else {
      const auto& sequence = std::get<RecordedSequence>(changed[i]);
      for (const std::vector<View>* views : {&sequence.reads, &sequence.writes}) {
        for (const View& view : *views) {
          if (view.data() != old) continue;
          throw Error(
              Code::unsupported,
              fmt::format("Graph::rebind: the sequence '{}' was captured with the address {} and "
                          "cannot be given another",
                          sequence.name, old));
        }
      }
    }
  }
  if (count != 0) impl_->replace(std::move(changed), touched);
  return count;
}

void Graph::set_scalar(std::size_t operation, std::size_t input, Scalar value) {
  const bool exists = operation < impl_->operations.size();
  const auto* call = exists ? std::get_if<RecordedCall>(&impl_->operations[operation]) : nullptr;
  if (call == nullptr || input >= call->inputs.size() || !call->inputs[input].is_scalar()) {
    throw Error(
        Code::invalid_argument,
        fmt::format("Graph::set_scalar: operation {} has no scalar argument {}", operation, input));
  }
  const Scalar& bound = call->inputs[input].scalar();
  if (bound.dtype() != value.dtype() || bound.weak() != value.weak()) {
    throw Error(Code::invalid_argument,
                fmt::format("Graph::set_scalar: operation {}, argument {}: expected {}, got {}",
                            operation, input, name(bound.dtype()), name(value.dtype())));
  }
  std::vector<Recorded> changed = impl_->operations;
  std::vector<bool> touched(changed.size(), false);
  const std::size_t first = operation - call->part;
  for (std::size_t i = first; i < first + std::max<std::size_t>(call->plan->kernels.size(), 1);
       ++i) {
    std::get<RecordedCall>(changed[i]).inputs[input] = Argument(value);
    touched[i] = true;
  }
  impl_->replace(std::move(changed), touched);
}

std::vector<Graph::Operation> Graph::operations() const {
  std::vector<Operation> result;
  for (const Recorded& recorded : impl_->operations) {
    if (const auto* call = std::get_if<RecordedCall>(&recorded)) {
      const PlannedKernel* const kernel = call->kernel();
      result.push_back({call->function->definition.name, kernel ? kernel->entry : std::string()});
    } else if (const auto* sequence = std::get_if<RecordedSequence>(&recorded)) {
      result.push_back({sequence->name, {}});
    } else {
      result.push_back({std::holds_alternative<RecordedCopy>(recorded) ? "copy" : "fill", {}});
    }
  }
  return result;
}

std::vector<Graph::Edge> Graph::edges() const {
  std::vector<Edge> result;
  for (const jit::Dependency& dependency : impl_->order) {
    result.push_back({dependency.from, dependency.to, jit::name(dependency.hazard),
                      dependency.bytes.begin, dependency.bytes.end});
  }
  return result;
}

bool Graph::is_replayed() const { return impl_->prepared->is_replayed(); }

}  // namespace kiln
