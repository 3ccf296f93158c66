// Kernels of one schedule, for calls of which only the numbers differ: what calls by class launch,
// of Functions (call_class.hpp) and of Programs (program/program_class.hpp).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "call/plan.hpp"
#include "core/plan_table.hpp"
#include "kernel/kernel_spec.hpp"
#include "kernel/kernel_tape.hpp"

namespace kiln {

/// One, with what the parameters of a launch are.
struct ScheduledKernel {
  static constexpr std::size_t kMostBytes = 2048;
  static constexpr std::size_t kMostParameters = 256;

  fusion::Schedule schedule;
  std::vector<fusion::Parameter> parameters;
  PlannedKernel planned;  ///< of the call that it was made for

  /// Whether a launch can have its parameters on the stack.
  static bool fits_stack(const PlannedKernel& planned) {
    return planned.parameters.bytes.size() <= kMostBytes &&
           planned.parameters.offsets.size() <= kMostParameters;
  }
};

/// The memory that one takes, about.
std::size_t bytes_of(const ScheduledKernel& kernel);

/// One that calls by class find.
struct CachedKernel final : CachedPlan {
  explicit CachedKernel(ScheduledKernel of)
      : kernel(std::make_shared<ScheduledKernel>(std::move(of))) {}
  std::size_t bytes() const override;
  std::size_t plans() const override { return 0; }
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override {
    return {kernel->planned.kernel};
  }

  const std::shared_ptr<const ScheduledKernel> kernel;  ///< tapes have it too
};

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word);
/// Of what schedules of one kernel differ in: two of one hash are one too many for a table.
std::uint64_t hash_of(std::uint64_t hash, const fusion::Schedule& schedule);

/// Whether each operand is on the device and aligned, and no two elements of an output share memory
/// for sure: what is not may be an error, or not.
bool is_sound(const Call& call);

/// The parameters of a launch with numbers of its own. Lives on the stack of a call.
class LaunchBlock {
 public:
  /// `data`: of each operand of the layout.
  LaunchBlock(const ScheduledKernel& kernel, const fusion::Layout& layout,
              std::span<char* const> data);
  /// `values`: of a run of the kernel's tape.
  LaunchBlock(const ScheduledKernel& kernel, const KernelTape& tape, const std::int64_t* values,
              std::span<char* const> data);
  std::byte* bytes() { return bytes_.data(); }
  /// The scalars must have been filled in.
  void launch(jit::Backend& backend, const KernelForm& form, const Stream& stream);

 private:
  void point_at_parameters();
  void put_pointer(std::uint32_t offset, const void* pointer);

  const ScheduledKernel& kernel_;
  const std::uint64_t work_items_;
  const std::uint32_t block_;
  alignas(16) std::array<std::byte, ScheduledKernel::kMostBytes> bytes_;
  std::array<void*, ScheduledKernel::kMostParameters> arguments_;
};

/// How often signatures were called by class lately.
class CallCounts {
 public:
  /// A call of this signature gets a plan of its own when it was called this often by class; with
  /// lengths that are used for a while and then never again tables do not grow.
  static constexpr std::uint64_t kCallsBeforePlan = 256;

  /// Counts a call; whether the signature had better have a plan of its own.
  bool is_often(std::uint64_t hash) const;

 private:
  /// By the high bits of the hash, with the count in the low 16.
  mutable std::array<std::atomic<std::uint64_t>, 64> counts_{};
};

}  // namespace kiln
