#include "call/call_class.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/reclamation.hpp"
#include "core/view_bytes.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/scratch.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// The first words of signatures that are no call's, whose first word is a device.
constexpr std::uint64_t kClassTag = 1ull << 62;
// What kernel_spec() checks of the sizes of such a kernel.
bool may_have(const CallClass::Kernel& kernel, const Call& call,
              std::span<const std::int64_t> sizes) {
  const auto extent = [&](std::size_t axis) { return sizes[kernel.sizes[axis]]; };
  for (const auto& [axis, most] : kernel.limits) {
    double indices = 1;
    for (std::size_t k = 0; k < kernel.sizes.size(); ++k) {
      const bool counted = axis == fusion::kAllAxes || axis == static_cast<std::int64_t>(k);
      if (counted) indices *= static_cast<double>(extent(k));
    }
    if (indices > static_cast<double>(most)) return false;
  }
  for (const CallClass::Kernel::Operand& own : kernel.operands) {
    if (own.indexed_axis == CallClass::Kernel::kRepeats || own.operand < call.inputs.size())
      continue;
    const View& view = view_of(call, own.operand);
    const auto axis = static_cast<std::size_t>(own.indexed_axis);
    if (is_packed(view.dtype()) && view.strides()[axis] % 2 != 0) return false;  // halves of bytes
  }
  const auto* attention = std::get_if<AttentionForm>(&kernel.spec.form);
  if (attention == nullptr) return true;
  Dims shape(kernel.sizes.size());
  for (std::size_t k = 0; k < shape.size(); ++k) shape[k] = extent(k);
  return fusion::fits_attention(*attention, shape);
}

fusion::Layout layout_of(const CallClass& known, const CallClass::Kernel& kernel, const Call& call,
                         std::span<const std::int64_t> sizes) {
  const CallNumbers numbers(kernel, call, sizes);
  return plan_kernel(kernel.spec.function, kernel.spec.form, numbers.shape, numbers.operands,
                     known.features);
}

// Whether the kernels run in the order in which they are: those of larger shapes first.
bool keeps_order(const CallClass& known, std::span<const std::int64_t> sizes) {
  double before = std::numeric_limits<double>::infinity();
  for (const CallClass::Kernel& kernel : known.kernels) {
    double elements = 1;
    for (const std::uint8_t size : kernel.sizes) elements *= static_cast<double>(sizes[size]);
    if (elements >= before) return false;
    before = elements;
  }
  return true;
}

void check_overlap_of(const CallClass& known, const Call& call) {
  fusion::ScratchVector<Plan::Extent> extents;
  extents.reserve(call.inputs.size() + call.outputs.size());
  for (std::size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    const bool output = i >= call.inputs.size();
    if (!output && call.inputs[i].is_scalar()) continue;
    const ByteExtent extent = extent_of(view_of(call, i));
    extents.push_back({static_cast<std::uint32_t>(i), extent.low, extent.high, output});
  }
  check_overlap(known.names, std::span(extents.data(), extents.size()), call);
}

void launch(const CallClass& known, const CallClass::Kernel& mapping, const KernelLaunch& kernel,
            const Call& call) {
  std::array<char*, ClassKey::kMostOperands> data;
  for (std::size_t i = 0; i < mapping.operands.size(); ++i) {
    data[i] = static_cast<char*>(view_of(call, mapping.operands[i].operand).data());
  }
  LaunchBlock block = kernel.block(std::span(data).first(mapping.operands.size()));
  fill_scalars(known.names, (*kernel.kernel)->planned, call, block.bytes());
  block.launch(*known.backend, mapping.spec.form, call.stream);
}

// Where no tape of a kernel holds, that one is planned. False if there is no such kernel, or it
// would have nothing to compute, or is not known.
bool find_launch(const PlanTable& plans, const CallClass& known, std::size_t kernel,
                 const Call& call, std::span<const std::int64_t> sizes, std::size_t size_kind,
                 KernelLaunches& launches) {
  const CallClass::Kernel& own = known.kernels[kernel];
  KernelLaunch& launch = launches.of[kernel];
  launch = {};
  if (!may_have(own, call, sizes)) return false;
  if (find_tape_of_call(plans, known, kernel, call, sizes, size_kind, launches.values, launch)) {
    return true;
  }
  launches.layouts.reserve(known.kernels.size());
  const fusion::Layout& layout =
      launches.layouts.emplace_result([&] { return layout_of(known, own, call, sizes); });
  return layout.work_items != 0 && find_planned(plans, known.known[kernel], layout, launch);
}

bool find_launches(const PlanTable& plans, const CallClass& known, const Call& call,
                   std::span<const std::int64_t> sizes, KernelLaunches& launches) {
  const std::size_t size_kind = size_kind_of(sizes);
  try {
    for (std::size_t i = 0; i < known.kernels.size(); ++i) {
      if (!find_launch(plans, known, i, call, sizes, size_kind, launches)) return false;
    }
  } catch (const Error&) {
    return false;  // a plan says it in the words of this call
  }
  return true;
}

// ---- Classes -----------------------------------------------------------------------------------

// Strides of C order, but 0 along axes of one element: others differ from each other.
Dims marked_strides(const Dims& shape) {
  Dims strides = contiguous_strides(shape);
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) strides[k] = 0;
  }
  return strides;
}

// The kernels' specifications, with strides that say which axis of the call each is.
std::vector<KernelSpec> marked_specs(const Call& call, const SpecsOf& specs_of) {
  CallTypes types = types_of(call);
  for (std::vector<ArrayType>* arrays : {&types.arrays, &types.outputs}) {
    for (ArrayType& array : *arrays) array.strides = marked_strides(array.shape);
  }
  return specs_of(types);
}

bool has_shape(const KernelForm& form, const Dims& shape) {
  if (const auto* attention = std::get_if<AttentionForm>(&form)) return attention->shape == shape;
  if (const auto* rows = std::get_if<RowsForm>(&form)) {
    return rows->space.shape == shape && rows->space.splits == 1;
  }
  const auto* scan = std::get_if<ScanForm>(&form);
  return scan == nullptr || scan->shape == shape;
}

// Of an attention, along every axis.
std::vector<CallClass::Kernel::IndexLimit> limits_of(const KernelSpec& spec) {
  std::vector<CallClass::Kernel::IndexLimit> limits;
  const auto rank = static_cast<std::int64_t>(spec.shape.size());
  for (const fusion::TypedNode& node : spec.function.graph.nodes) {
    if (node.op != fusion::Op::iota) continue;
    const std::int64_t most = fusion::most_indices(node.dtype);
    if (most == INT64_MAX) continue;
    if (std::holds_alternative<AttentionForm>(spec.form)) {
      for (std::int64_t axis = 0; axis < rank; ++axis) limits.push_back({axis, most});
    } else {
      const std::int64_t axis = fusion::iota_axis(node);
      limits.push_back({axis < 0 && axis != fusion::kAllAxes ? axis + rank : axis, most});
    }
  }
  return limits;
}

// Those behind its `arrays` operands.
std::vector<CallClass::Kernel::Iota> iotas_of(const KernelSpec& spec, std::size_t arrays) {
  const bool in_attention = std::holds_alternative<AttentionForm>(spec.form);
  const fusion::ScratchVector<std::int64_t> axes = fusion::iota_axes(spec.function.graph);
  std::vector<CallClass::Kernel::Iota> iotas;
  for (std::size_t i = arrays; i < spec.operands.size(); ++i) {
    iotas.push_back({spec.operands[i], !in_attention && axes[i - arrays] == fusion::kAllAxes});
  }
  return iotas;
}

// Nothing for kernels whose numbers are not a class's.
std::optional<CallClass::Kernel> kernel_of(KernelSpec spec, const Call& call,
                                           std::span<const std::int64_t> sizes) {
  CallClass::Kernel kernel;
  if (!has_shape(spec.form, spec.shape) || spec.shape.size() > Dims::kInline) return std::nullopt;
  for (const std::int64_t size : spec.shape) {
    const auto found = std::ranges::find(sizes, size);
    if (found == sizes.end()) return std::nullopt;
    kernel.sizes.push_back(static_cast<std::uint8_t>(found - sizes.begin()));
  }
  const std::vector<std::uint32_t> operands = operands_of(spec, call);
  if (spec.operands.size() > ClassKey::kMostOperands) return std::nullopt;
  kernel.iotas = iotas_of(spec, operands.size());
  kernel.limits = limits_of(spec);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Dims marks = marked_strides(view_of(call, operands[i]).shape());
    const auto axis_of = [&](std::int64_t stride) {
      const auto axis = std::ranges::find(marks, stride) - marks.begin();
      return stride == 0 ? CallClass::Kernel::kRepeats : static_cast<std::int8_t>(axis);
    };
    const fusion::Operand& own = spec.operands[i];
    CallClass::Kernel::Operand operand{operands[i], {}};
    for (const std::int64_t stride : own.strides) operand.axes.push_back(axis_of(stride));
    operand.index_operands = own.index_operands;
    if (own.indexed.exists()) {
      const auto found = std::ranges::find(sizes, own.indexed.extent);
      if (found == sizes.end()) return std::nullopt;
      operand.indexed_axis = axis_of(own.indexed.stride);
      operand.indexed_size = static_cast<std::int8_t>(found - sizes.begin());
    }
    kernel.operands.push_back(std::move(operand));
  }
  kernel.spec = std::move(spec);
  kernel.spec.operands.clear();
  return kernel;
}

std::shared_ptr<CallClass> make_class(const ClassKey& key, const Call& call, const Plan& plan,
                                      const SpecsOf& specs_of) {
  static std::atomic<std::uint64_t> next{1};
  std::vector<KernelSpec> specs = marked_specs(call, specs_of);
  if (specs.size() != plan.kernels.size() || specs.size() > CallClass::kMostKernels) return nullptr;
  auto made = std::make_shared<CallClass>();
  made->signature.assign(key.words().begin(), key.words().end());
  made->hash = key.hash();
  made->device = plan.device;
  made->id = next++;
  made->names = plan.names;
  made->backend = plan.backend;
  made->target = plan.backend->target();
  made->features = features_of(made->target);
  made->updates = updates_of(specs, call);
  for (KernelSpec& spec : specs) {
    auto kernel = kernel_of(std::move(spec), call, key.sizes());
    if (!kernel) return nullptr;
    made->known[made->kernels.size()].id = made->id << 16 | made->kernels.size();
    made->kernels.push_back(*std::move(kernel));
  }
  return made;
}

}  // namespace

ClassKey::ClassKey(const Call& call) {
  sizes_[0] = 1;
  has_class_ = call.inputs.size() + call.outputs.size() <= kMostOperands && !call.outputs.empty();
  if (!has_class_) return;
  push(kClassTag | static_cast<std::uint64_t>(call.stream.device.type) << 32 |
       static_cast<std::uint32_t>(call.stream.device.index));
  push(call.inputs.size() << 32 | call.outputs.size());
  for (const Argument& input : call.inputs) {
    if (input.is_scalar()) {
      push(kClassTag | static_cast<std::uint64_t>(input.scalar().dtype()) << 1 |
           (input.scalar().weak() ? 1 : 0));
    } else {
      push_view(input.view());
    }
  }
  input_sizes_ = sizes_count_;
  for (const View& output : call.outputs) push_view(output);
}

void ClassKey::push_view(const View& view) {
  if (view.shape().size() > Dims::kInline) has_class_ = false;
  if (!has_class_) return;
  push(static_cast<std::uint64_t>(view.dtype()) | view.shape().size() << 8);
  std::uint64_t axes = 0;
  for (const std::int64_t size : view.shape()) axes = axes << 8 | number_of(size);
  push(axes);
}

std::uint64_t ClassKey::number_of(std::int64_t size) {
  for (std::size_t i = 0; i < sizes_count_; ++i) {
    if (sizes_[i] == size) return i;
  }
  if (size == 0 || sizes_count_ == kMostSizes) {
    has_class_ = false;
    return 0;
  }
  sizes_[sizes_count_] = size;
  return sizes_count_++;
}

void ClassKey::push(std::uint64_t word) { words_[size_++] = word; }

std::size_t CallClass::bytes() const {
  std::size_t bytes =
      sizeof *this + 8 * signature.size() + target.size() + updates.size() * sizeof(Plan::Update);
  for (const Kernel& kernel : kernels) {
    const fusion::TypedGraph& graph = kernel.spec.function.graph;
    bytes += sizeof kernel + kernel.spec.function.expression.size() +
             graph.nodes.size() * sizeof(fusion::TypedNode) +
             kernel.operands.size() * (sizeof(Kernel::Operand) + Dims::kInline) +
             kernel.iotas.size() * sizeof(Kernel::Iota) +
             kernel.limits.size() * sizeof(Kernel::IndexLimit);
  }
  return bytes;
}

bool launch_by_class(PlanTable& plans, const Call& call, std::uint64_t hash) {
  const ClassKey key(call);
  if (!key.has_class()) return false;
  const CachedPlan* const found = plans.find(key.words(), key.hash());
  if (found == nullptr || !is_sound(call)) return false;
  const auto& known = static_cast<const CallClass&>(*found);
  if (!keeps_order(known, key.sizes())) return false;
  const fusion::ScratchScope scratch;  // of the launches, which end before it
  KernelLaunches launches(known.kernels.size());
  if (!find_launches(plans, known, call, key.sizes(), launches)) return false;
  if (known.counts.is_often(hash)) return false;
  check_overlap_of(known, call);
  check_updates(known.names, known.updates, call);
  for (std::size_t i = 0; i < known.kernels.size(); ++i) {
    launch(known, known.kernels[i], launches.of[i], call);
  }
  for (std::size_t i = 0; i < known.kernels.size(); ++i) {
    if (!launches.of[i].wants_tape) continue;
    add_tape_of_call(plans, known, i, call, key.sizes(), *launches.of[i].kernel);
  }
  return true;
}

void add_to_class(PlanTable& plans, const Call& call, const Plan& plan, const SpecsOf& specs_of) {
  const ClassKey key(call);
  if (!key.has_class() || plan.kernels.empty() ||
      !std::ranges::all_of(plan.kernels, ScheduledKernel::fits_stack)) {
    return;
  }
  std::shared_ptr<const CachedPlan> found;
  {
    const base::ReadSection reading;
    if (const CachedPlan* const known = plans.find(key.words(), key.hash())) {
      found = known->shared_from_this();
    }
  }
  if (found == nullptr) {
    std::shared_ptr<CallClass> made = make_class(key, call, plan, specs_of);
    if (made == nullptr) return;
    found = plans.insert(std::move(made));
  }
  const auto& known = static_cast<const CallClass&>(*found);
  if (!keeps_order(known, key.sizes())) return;
  const base::ReadSection reading;
  const std::size_t size_kind = size_kind_of(key.sizes());
  KernelLaunches launches(known.kernels.size());
  std::vector<KernelSpec> specs;
  for (std::size_t i = 0; i < known.kernels.size(); ++i) {
    const ClassKernel& own = known.known[i];
    own.tapes.look_again();
    KernelLaunch& launch = launches.of[i];
    const bool is_known = find_launch(plans, known, i, call, key.sizes(), size_kind, launches);
    if (is_known && launch.tape != nullptr) continue;
    if (launch.layout == nullptr) return;
    std::shared_ptr<const ScheduledKernel> added;
    if (!is_known) {
      if (specs.empty()) specs = specs_of(types_of(call));
      added = add_kernel(plans, own, launch.layout->schedule, specs[i], known.target,
                         plan.kernels[i], plan.device);
      if (added == nullptr) continue;
      launch.kernel = &added;
    }
    add_tape_of_call(plans, known, i, call, key.sizes(), *launch.kernel);
  }
}

}  // namespace kiln
