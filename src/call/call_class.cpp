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
constexpr std::uint64_t kKernelsTag = 1ull << 61;

// The kernels' layouts for a call.
using Layouts = fusion::ScratchVector<fusion::Layout>;

// What the kernels of a call's schedules are found by.
struct KernelsKey {
  KernelsKey(const CallClass& known, std::uint64_t of)
      : words{kKernelsTag, known.id, of}, hash(of) {}
  KernelsKey(const CallClass& known, const Layouts& layouts)
      : KernelsKey(known, hash_of(known, layouts)) {}
  std::array<std::uint64_t, 3> words;
  std::uint64_t hash;

 private:
  static std::uint64_t hash_of(const CallClass& known, const Layouts& layouts) {
    std::uint64_t hash = known.id;
    for (const fusion::Layout& layout : layouts) hash = kiln::hash_of(hash, layout.schedule);
    return hash;
  }
};

// What kernel_spec() checks of the sizes of such a kernel.
bool may_have(const CallClass::Kernel& kernel, const Dims& shape,
              std::span<const fusion::Operand> operands) {
  for (const fusion::Operand& operand : operands) {
    const bool halves = operand.output && operand.indexed.exists() && is_packed(operand.dtype);
    if (halves && operand.indexed.stride % 2 != 0) return false;
  }
  const auto* attention = std::get_if<AttentionForm>(&kernel.spec.form);
  if (attention == nullptr) return true;
  const bool counts = std::ranges::all_of(
      shape, [&](std::int64_t extent) { return extent <= kernel.most_indices; });
  return counts && fusion::fits_attention(*attention, shape);
}

// Without work items if there is no such kernel.
fusion::Layout layout_of(const CallClass& known, const CallClass::Kernel& kernel, const Call& call,
                         std::span<const std::int64_t> sizes) {
  const CallNumbers numbers(kernel, call, sizes);
  if (!may_have(kernel, numbers.shape, numbers.operands)) return {};
  std::vector<fusion::Operand>& operands = numbers.operands;
  operands.insert(operands.end(), kernel.iotas.begin(), kernel.iotas.end());
  if (kernel.has_iotas) {
    const TypedFunction& function = kernel.spec.function;
    for (fusion::Operand& iota :
         fusion::iota_operands(function.graph, numbers.shape, function.name)) {
      operands.push_back(std::move(iota));
    }
  }
  return plan_kernel(kernel.spec.function, kernel.spec.form, numbers.shape, operands,
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

// False if one would have nothing to compute.
bool find_layouts(const CallClass& known, const Call& call, std::span<const std::int64_t> sizes,
                  Layouts& layouts) {
  layouts.reserve(known.kernels.size());
  for (const CallClass::Kernel& kernel : known.kernels) {
    const fusion::Layout& layout =
        layouts.emplace_result([&] { return layout_of(known, kernel, call, sizes); });
    if (layout.work_items == 0) return false;
  }
  return true;
}

const ScheduledKernels* find_kernels(const PlanTable& plans, const CallClass& known,
                                     const Layouts& layouts) {
  const auto find = [&](const KernelsKey& key) -> const ScheduledKernels* {
    const CachedPlan* const found = plans.find(key.words, key.hash);
    if (found == nullptr) return nullptr;
    const auto& kernels = static_cast<const ScheduledKernels&>(*found);
    for (std::size_t i = 0; i < known.kernels.size(); ++i) {
      if (kernels.kernels[i].schedule != layouts[i].schedule) return nullptr;
    }
    return &kernels;
  };
  const std::uint64_t recent = known.recent.load(std::memory_order_relaxed);
  if (const ScheduledKernels* const same = find({known, recent})) return same;
  const KernelsKey key(known, layouts);
  known.recent.store(key.hash, std::memory_order_relaxed);
  return find(key);
}

void check_overlap_of(const CallClass& known, const Call& call) {
  std::array<Plan::Extent, ClassKey::kMostOperands> extents;
  std::size_t count = 0;
  for (std::size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    const bool output = i >= call.inputs.size();
    if (!output && call.inputs[i].is_scalar()) continue;
    const ByteExtent extent = extent_of(view_of(call, i));
    extents[count++] = {static_cast<std::uint32_t>(i), extent.low, extent.high, output};
  }
  check_overlap(known.names, std::span(extents).first(count), call);
}

void launch(const CallClass& known, const CallClass::Kernel& mapping, const KernelLaunch& kernel,
            const Call& call) {
  std::array<char*, ClassKey::kMostOperands> data;
  for (std::size_t i = 0; i < mapping.operands.size(); ++i) {
    data[i] = static_cast<char*>(view_of(call, mapping.operands[i].operand).data());
  }
  LaunchBlock block = kernel.block(std::span(data).first(mapping.operands.size()));
  fill_scalars(known.names, kernel.kernel->planned, call, block.bytes());
  block.launch(*known.backend, mapping.spec.form, call.stream);
}

// How each kernel is launched.
struct Launches {
  std::array<KernelLaunch, CallClass::kMostKernels> of;
  Layouts layouts;
  TapeValues values;
};

bool find_tapes(const PlanTable& plans, const CallClass& known, const Call& call,
                std::span<const std::int64_t> sizes, Launches& launches) {
  const std::size_t size_kind = size_kind_of(sizes);
  for (std::size_t i = 0; i < known.kernels.size(); ++i) {
    KernelLaunch& launch = launches.of[i];
    const TapedCall* const taped =
        find_tape(plans, known, i, call, sizes, size_kind, launches.values, launch.values);
    if (taped == nullptr) return false;
    launch.kernel = &taped->kernel;
    launch.tape = &taped->tape;
  }
  return true;
}

// Of the layouts that a call has; false if a kernel is not known.
bool plan_launches(const PlanTable& plans, const CallClass& known, const Call& call,
                   std::span<const std::int64_t> sizes, Launches& launches) {
  if (!find_layouts(known, call, sizes, launches.layouts)) return false;
  const ScheduledKernels* const kernels = find_kernels(plans, known, launches.layouts);
  for (std::size_t i = 0; kernels != nullptr && i < known.kernels.size(); ++i) {
    launches.of[i] = {&kernels->kernels[i], nullptr, nullptr, &launches.layouts[i]};
  }
  return kernels != nullptr;
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

// How many indices the dtypes of all iotas hold.
std::int64_t most_indices(const fusion::TypedGraph& graph) {
  std::int64_t most = INT64_MAX;
  for (const fusion::TypedNode& node : graph.nodes) {
    if (node.op == fusion::Op::iota) most = std::min(most, fusion::most_indices(node.dtype));
  }
  return most;
}

// Nothing for kernels whose numbers are not a class's.
std::optional<CallClass::Kernel> kernel_of(KernelSpec spec, const Call& call,
                                           std::span<const std::int64_t> sizes) {
  CallClass::Kernel kernel;
  const fusion::TypedGraph& graph = spec.function.graph;
  if (!has_shape(spec.form, spec.shape) || spec.shape.size() > Dims::kInline) return std::nullopt;
  for (const std::int64_t size : spec.shape) {
    const auto found = std::ranges::find(sizes, size);
    if (found == sizes.end()) return std::nullopt;
    kernel.sizes.push_back(static_cast<std::uint8_t>(found - sizes.begin()));
  }
  const std::vector<std::uint32_t> operands = operands_of(spec, call);
  if (spec.operands.size() > ClassKey::kMostOperands) return std::nullopt;
  if (std::holds_alternative<AttentionForm>(spec.form)) {
    kernel.most_indices = most_indices(graph);
    kernel.iotas.assign(spec.operands.begin() + std::ssize(operands), spec.operands.end());
  } else {
    kernel.has_iotas = spec.operands.size() > operands.size();
  }
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

void ClassKey::push(std::uint64_t word) {
  hash_ = mixed(hash_, word);
  words_[size_++] = word;
}

std::size_t CallClass::bytes() const {
  std::size_t bytes =
      sizeof *this + 8 * signature.size() + target.size() + updates.size() * sizeof(Plan::Update);
  for (const Kernel& kernel : kernels) {
    const fusion::TypedGraph& graph = kernel.spec.function.graph;
    bytes += sizeof kernel + kernel.spec.function.expression.size() +
             graph.nodes.size() * sizeof(fusion::TypedNode) +
             kernel.operands.size() * (sizeof(Kernel::Operand) + Dims::kInline) +
             kernel.iotas.size() * sizeof(fusion::Operand);
  }
  return bytes;
}

bool launch_by_class(const PlanTable& plans, const Call& call, std::uint64_t hash) {
  const ClassKey key(call);
  if (!key.has_class()) return false;
  const CachedPlan* const found = plans.find(key.words(), key.hash());
  if (found == nullptr || !is_sound(call)) return false;
  const auto& known = static_cast<const CallClass&>(*found);
  if (!keeps_order(known, key.sizes())) return false;
  const fusion::ScratchScope scratch;  // of the layouts, which end before it
  Launches launches;
  if (!find_tapes(plans, known, call, key.sizes(), launches)) {
    try {
      if (!plan_launches(plans, known, call, key.sizes(), launches)) return false;
    } catch (const Error&) {
      return false;  // a plan says it in the words of this call
    }
  }
  if (known.counts.is_often(hash)) return false;
  check_overlap_of(known, call);
  check_updates(known.names, known.updates, call);
  for (std::size_t i = 0; i < known.kernels.size(); ++i) {
    launch(known, known.kernels[i], launches.of[i], call);
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
  Layouts layouts;
  if (!keeps_order(known, key.sizes()) || !find_layouts(known, call, key.sizes(), layouts)) return;
  const KernelsKey kernels_key(known, layouts);
  std::shared_ptr<const CachedPlan> kernels;
  {
    const base::ReadSection reading;
    if (const CachedPlan* const other = plans.find(kernels_key.words, kernels_key.hash)) {
      kernels = other->shared_from_this();
    }
  }
  if (kernels == nullptr) {
    const std::vector<KernelSpec> specs = specs_of(types_of(call));
    auto made = std::make_shared<ScheduledKernels>();
    made->signature.assign(kernels_key.words.begin(), kernels_key.words.end());
    made->hash = kernels_key.hash;
    made->device = plan.device;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EmittedKernel emitted = emit_kernel(specs[i], known.target);
      made->kernels.push_back({std::move(emitted.layout.schedule),
                               std::move(emitted.kernel.parameters), plan.kernels[i]});
    }
    kernels = plans.insert(std::move(made));
  }
  const auto& scheduled = static_cast<const ScheduledKernels&>(*kernels).kernels;
  for (std::size_t i = 0; i < known.kernels.size(); ++i) {
    if (scheduled[i].schedule != layouts[i].schedule) continue;
    add_tape_of_call(plans, known, i, call, key.sizes(), scheduled[i]);
  }
}

}  // namespace kiln
