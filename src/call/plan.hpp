// A plan: everything about one call of a function that does not change while dtypes, shapes,
// strides and alignments stay the same. Made once (plan.cpp), launched often (launch.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/configuration.hpp"
#include "call/call_types.hpp"
#include "core/plan_table.hpp"
#include "fusion/emit/emit.hpp"
#include "jit/device/backend.hpp"
#include "kernel/kernel_spec.hpp"
#include "kernel/kernel_table.hpp"
#include "kiln/function.hpp"

namespace kiln {

/// The words that decide the plan: per operand its dtype, device, alignment, shape and strides.
/// Lives on the stack of a call.
class Signature {
 public:
  explicit Signature(const Call& call);
  std::span<const std::uint64_t> words() const;
  std::uint64_t hash() const { return hash_; }

 private:
  void push(std::uint64_t word);
  void push_view(const View& view);

  static constexpr std::size_t kInline = 160;
  std::array<std::uint64_t, kInline> inline_;
  std::vector<std::uint64_t> overflow_;  ///< all words, once there are more than kInline
  std::size_t size_ = 0;
  std::uint64_t hash_ = 0;
};

/// One kernel of a plan, ready to be filled in and launched.
struct PlannedKernel {
  std::shared_ptr<jit::Kernel> kernel;
  jit::LaunchShape shape;
  fusion::ParameterBlock parameters;
  bool pdl = false;  ///< programmatic dependent launch: jit::KernelNode::pdl
  /// Where the parameter is that says whether it is launched so; 0 here.
  std::optional<std::uint32_t> launched_early;

  /// Where a pointer goes, and from which operand: inputs count from 0, outputs go on from there.
  struct PointerSlot {
    std::uint32_t offset;
    std::uint32_t operand;
    std::int64_t bytes;    ///< from the view's data to the first element that the kernel addresses
    bool before_pdl_wait;  ///< read before the kernel waits for those before it
  };
  struct ScalarSlot {
    std::uint32_t offset;
    std::uint32_t input;
    DType dtype;
  };
  std::vector<PointerSlot> pointers;
  std::vector<ScalarSlot> scalars;
};

struct Plan final : CachedPlan {
  std::size_t bytes() const override;
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override;

  CallNames names;  ///< of what was called, which owns the plan
  jit::Backend* backend = nullptr;
  /// In the order in which they run, one for each shape among the outputs; empty if there is
  /// nothing to compute.
  std::vector<PlannedKernel> kernels;
  /// Under OnMiss::fallback, kernels that are not there: such a plan is not kept, and launches
  /// nothing.
  std::vector<WantedKernel> missing;

  /// The bytes that an operand spans around its view's data, [low, high).
  struct Extent {
    std::uint32_t operand;
    std::int64_t low;
    std::int64_t high;
    bool output;
    bool partial = false;  ///< it has elements that are at no place, whatever data says
  };
  std::vector<Extent> extents;
  /// An output that is updated in place, and the input that it has to be exactly the view of.
  struct Update {
    std::uint32_t output;
    std::uint32_t input;
  };
  std::vector<Update> updates;
  KernelInfo info;
};

/// What a miss means for a plan that is kept, so that nothing can take over from another.
inline OnMiss when_kept(OnMiss on_miss) {
  const OnMiss own = base::on_miss_of(on_miss);
  return own == OnMiss::fallback ? OnMiss::compile : own;
}

/// Has what calls were served without compiled, at its end: compiling does not hold them up.
class CompileLater {
 public:
  explicit CompileLater(std::span<const WantedKernel> missing) : missing_(missing) {
    is_named_ = std::ranges::all_of(
        missing, [](const WantedKernel& one) { return is_named_at_once(one.request); });
    if (!is_named_) return;
    for (const WantedKernel& one : missing) named_.push_back(name_kernel(one.request));
  }
  CompileLater(const CompileLater&) = delete;
  CompileLater& operator=(const CompileLater&) = delete;
  ~CompileLater() {
    KernelTable& table = KernelTable::instance();
    is_named_ ? table.request_missed(missing_, named_) : table.request_unnamed(missing_);
  }

 private:
  const std::span<const WantedKernel> missing_;
  bool is_named_ = false;
  std::vector<NamedKernel> named_;  // beforehand: a destructor must not throw
};

/// Emits the kernels of a call for its device, finds or, as `on_miss` says, compiles them, and
/// loads them. `names` are of what owns the plan. Throws Error.
std::unique_ptr<Plan> make_plan(const CallNames& names, std::string_view expression,
                                std::span<const KernelSpec> specs, const Call& call,
                                OnMiss on_miss);

/// The operand of the call for each array of a kernel's layout: inputs count from 0, outputs go on
/// from there.
std::vector<std::uint32_t> operands_of(const KernelSpec& spec, const Call& call);

/// The bytes that so many elements take; two packed ones share one.
std::int64_t pointer_bytes(std::int64_t elements, DType dtype);

/// Of a call's operands.
std::vector<Plan::Extent> extents_of(const Call& call);
std::vector<Plan::Update> updates_of(std::span<const KernelSpec> specs, const Call& call);

/// Throws Error(invalid_argument) when an output overlaps another operand of the call, unless it is
/// element for element one of the inputs, and when one that is updated in place is not the input
/// that it updates.
void check_overlap(const Plan& plan, const Call& call);
void check_overlap(const CallNames& names, std::span<const Plan::Extent> extents, const Call& call);
void check_updates(const CallNames& names, std::span<const Plan::Update> updates, const Call& call);

/// Writes the parameters' values for this call into `block`, of kernel.parameters.bytes.size()
/// bytes.
void fill_parameters(const Plan& plan, const PlannedKernel& kernel, const Call& call,
                     std::byte* block);

/// Writes the numbers alone.
void fill_scalars(const CallNames& names, const PlannedKernel& kernel, const Call& call,
                  std::byte* block);

/// The operands of a kernel of a program: parts of memories that are somewhere else in each call.
struct PlacedOperands {
  struct Place {
    std::size_t memory = 0;             ///< of a number, the program's input that it is
    std::int64_t bytes = 0;             ///< from the memory's begin
    bool scalar = false;                ///< a number, which has no view
    View view = {};                     ///< the operand, wherever
    std::optional<Scalar> length = {};  ///< a number of elements, which no input is

    /// What a kernel is called with.
    Argument argument(std::span<const Argument> of_program) const {
      if (length) return *length;
      return scalar ? of_program[memory] : Argument(view);
    }
  };
  const Stream& stream;
  std::span<const Place> inputs;
  std::span<const Place> outputs;
  std::span<void* const> memories;
  std::span<const Argument> arguments;  ///< the program's inputs
};

/// The same for a kernel of a program. The message of an overlap names the operands of the plan.
void check_overlap(const Plan& plan, const PlacedOperands& operands);
void fill_parameters(const Plan& plan, const PlannedKernel& kernel, const PlacedOperands& operands,
                     std::byte* block);
void fill_scalars(const CallNames& names, const PlannedKernel& kernel,
                  const PlacedOperands& operands, std::byte* block);
/// Writes a number of elements, whatever the operands say, where the kernel takes that input.
void fill_scalar(const PlannedKernel& kernel, std::uint32_t input, const Scalar& length,
                 std::byte* block);
void launch_plan(const Plan& plan, const PlacedOperands& operands);

/// Fills in pointers and scalars and launches. No lock, and no allocation unless a kernel's
/// parameters take more than two kilobytes. Throws as check_overlap does.
void launch_plan(const Plan& plan, const Call& call);

}  // namespace kiln
