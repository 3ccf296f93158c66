// Calls by class, not by shape: what the text of a call's kernels depends on is looked up, and its
// numbers are computed on the stack. A shape never seen then leaves nothing behind.
//
// Calls are of one class if they agree in everything but sizes, strides and alignment, and if the
// same of their axes have one element and the same are equally long: then they have the same
// specification, but for those numbers. A class keeps, of each of its kernels, those of the
// schedules that its layouts have had so far, and tapes of what planners computed
// (kernel/kernel_tape.hpp): where one holds for a call, the kernel has its schedule. Else a planner
// runs for the call, and mostly leaves a tape.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "call/class_kernel.hpp"
#include "call/plan.hpp"
#include "call/scheduled_kernel.hpp"
#include "core/plan_table.hpp"
#include "kernel/kernel_spec.hpp"
#include "kernel/target.hpp"

namespace kiln {

/// The words that decide a call's class. Lives on the stack of a call.
class ClassKey {
 public:
  explicit ClassKey(const Call& call);
  /// Not with operands without elements, of more than eight axes, or more than kMostOperands: such
  /// calls are planned one by one.
  bool has_class() const { return has_class_; }
  std::span<const std::uint64_t> words() const { return {words_.data(), size_}; }
  /// Computed at each call.
  std::uint64_t hash() const { return hash_of_words(words()); }
  /// The sizes of axes, each once: 1, and then in the order of their first axes.
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), sizes_count_}; }
  /// How many of them, from the first on, inputs have.
  std::size_t input_sizes() const { return input_sizes_; }

  static constexpr std::size_t kMostOperands = 1024;
  static constexpr std::size_t kMostSizes = 64;

 private:
  void push(std::uint64_t word);
  void push_view(const View& view);
  std::uint64_t number_of(std::int64_t size);

  std::array<std::uint64_t, 2 + 2 * kMostOperands> words_;
  std::array<std::int64_t, kMostSizes> sizes_;
  std::size_t size_ = 0;
  std::size_t sizes_count_ = 1;
  std::size_t input_sizes_ = 1;
  bool has_class_ = true;
};

/// What the calls of a class have in common.
struct CallClass final : CachedPlan {
  /// From a call's numbers to those of one of its kernels.
  struct Kernel {
    static constexpr std::int8_t kRepeats = -1;
    struct Operand {
      std::uint32_t operand;          ///< of the call: inputs count from 0, outputs go on
      std::vector<std::int8_t> axes;  ///< for each axis of the space the operand's, or kRepeats
      std::int8_t indexed_axis = kRepeats;  ///< Operand::indexed: the axis, if it has elements, ...
      std::int8_t indexed_size = -1;        ///< ... and which of ClassKey::sizes() that is
      std::uint64_t index_operands = 0;     ///< as Operand has it
    };
    /// An index over the space, of which the array is none (fusion/schedule/iota_operands.hpp).
    struct Iota {
      fusion::Operand operand;
      bool counts_all = false;  ///< its strides are those of C order; else no size changes them
    };
    /// How many indices there may be: their dtype holds no more.
    struct IndexLimit {
      std::int64_t axis;  ///< of the space, or fusion::kAllAxes
      std::int64_t most;
    };

    KernelSpec spec;                  ///< of the first call
    std::vector<std::uint8_t> sizes;  ///< for each axis of the space, which of ClassKey::sizes()
    std::vector<Operand> operands;    ///< arrays; iotas come after them
    std::vector<Iota> iotas;
    std::vector<IndexLimit> limits;
  };

  std::size_t bytes() const override;
  std::size_t plans() const override { return 0; }
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override { return {}; }

  std::uint64_t id = 0;  ///< of no other class
  CallNames names;
  jit::Backend* backend = nullptr;
  std::string target;
  TargetFeatures features;      ///< of it
  std::vector<Kernel> kernels;  ///< in the order in which they run
  std::vector<Plan::Update> updates;

  CallCounts counts;
  static constexpr std::size_t kMostKernels = 4;
  std::array<ClassKernel, kMostKernels> known;  ///< of each kernel
};

/// The numbers that one of its kernels is planned for.
struct CallNumbers {
  CallNumbers(const CallClass::Kernel& kernel, const Call& call,
              std::span<const std::int64_t> sizes);
  Dims shape;
  std::vector<fusion::Operand>& operands;  ///< of the thread
};
/// The view of an operand; inputs count from 0, outputs go on.
const View& view_of(const Call& call, std::size_t operand);

/// Where a call has a number that a kernel's tape takes.
struct CallSource {
  enum class Kind : std::uint8_t {
    size,     ///< ClassKey::sizes(): `index`
    product,  ///< of the sizes of the kernel's axes after `index`
    stride,   ///< of an operand of the call, along its axis `index`
    offset,
    address,
    zero,
  };
  Kind kind = Kind::zero;
  std::uint8_t index = 0;
  std::uint16_t operand = 0;
};

/// Whether a tape of a kernel holds for a call (call/class_kernel.hpp).
bool find_tape_of_call(const PlanTable& plans, const CallClass& known, std::size_t kernel,
                       const Call& call, std::span<const std::int64_t> sizes, std::size_t size_kind,
                       TapeValues& memory, KernelLaunch& launch);
/// Adds one for a call that has none, with the kernel of its schedule, if it can have one.
void add_tape_of_call(PlanTable& plans, const CallClass& known, std::size_t kernel,
                      const Call& call, std::span<const std::int64_t> sizes,
                      const std::shared_ptr<const ScheduledKernel>& scheduled);

/// The specifications of calls of a Callable; throws Error.
using SpecsOf = std::function<std::vector<KernelSpec>(const CallTypes&)>;

/// Launches a call whose class and schedules are known, and returns true. Else, if it may be an
/// error, and if its signature (`hash`) has been called often, nothing happened. Kernels for which
/// no tape held may get one; else it takes no lock. To be called in a base::ReadSection. Throws as
/// launch_plan() does.
bool launch_by_class(PlanTable& plans, const Call& call, std::uint64_t hash);

/// Adds the class of a call, if it has none, and the kernels of its plan.
void add_to_class(PlanTable& plans, const Call& call, const Plan& plan, const SpecsOf& specs_of);

}  // namespace kiln
