// How forms of classes are evaluated and made: what program_class.cpp and program_form.cpp share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "call/class_kernel.hpp"
#include "program/program_class.hpp"

namespace kiln {

/// The numbers of a form for one call.
struct ProgramNumbers {
  std::array<std::int64_t, ProgramClass::kMostNumbers> numbers;
  std::array<std::uint64_t, fusion::kFewLifetimes> offsets;  ///< of places in the workspace
  std::uint64_t workspace = 0;                               ///< bytes
  std::size_t size_kind = 0;                                 ///< of the call: RecentTapes
};

/// The numbers that a step's kernel is planned for.
struct StepNumbers {
  /// The operands; more may be left of another step.
  std::span<const fusion::Operand> read(const ProgramClass& form, std::size_t step,
                                        const Call& call, const ProgramNumbers& at);

  Dims shape;
  std::vector<fusion::Operand> operands;
};

/// Where a form has a number that a step's tape takes: a number of its own, or where an operand
/// begins.
struct NumberSource {
  bool is_address = false;
  ProgramClass::Number number = 0;  ///< or operand
};

/// Whether a tape of a step holds for a call (call/class_kernel.hpp).
bool find_tape_of_step(const PlanTable& plans, const ProgramClass& form, std::size_t step,
                       const Call& call, const ProgramNumbers& at, TapeValues& memory,
                       KernelLaunch& launch);
/// Adds one for a call that has none, with the kernel of its schedule, if it can have one.
void add_tape_of_step(PlanTable& plans, const ProgramClass& form, std::size_t step,
                      const Call& call, const ProgramNumbers& at,
                      const std::shared_ptr<const ScheduledKernel>& kernel);

/// How a step is launched; where no tape holds it is planned. False if it would have nothing to
/// compute, or its kernel is not known.
bool find_launch(const PlanTable& plans, const ProgramClass& form, std::size_t step,
                 const Call& call, const ProgramNumbers& at, KernelLaunches& launches);

/// Where a workspace is when kernels are planned: as aligned as any.
inline constexpr std::uintptr_t kWorkspaceAddress = std::uintptr_t{1} << 16;

/// Whether its strides are those of C order.
bool is_in_c_order(const View& view);

/// Which strides of an operand follow from its sizes, whatever these are, and which are numbers of
/// their own. Of up to eight axes.
struct StrideKinds {
  enum class Kind : std::uint8_t {
    literal,  ///< -1, 0 or 1
    dense,    ///< neighbours along the axis lie one after the other, without gaps
    free,     ///< there are gaps between them
  };
  StrideKinds(const Dims& shape, const Dims& strides);

  std::array<Kind, Dims::kInline> of{};             ///< of each axis
  std::array<std::uint8_t, Dims::kInline> order{};  ///< axes with shorter strides first
  bool overlaps = false;  ///< some neighbours share memory: then of() means nothing
};
/// Of the data of an operand; inputs count from 0, outputs go on.
std::uintptr_t address_of(const Call& call, std::size_t operand);
/// From the begin of its memory to an operand's first element, and where that is.
std::int64_t bytes_to(const ProgramClass::Operand& operand, const ProgramNumbers& at);
std::uintptr_t first_address(const ProgramClass::Operand& operand, const Call& call,
                             const ProgramNumbers& at);

/// Whether the form holds for such a call; then its numbers.
bool evaluate(const ProgramClass& form, const ProgramClassKey& key, ProgramNumbers& at);
/// The one that holds, or null; `count`: how many were looked at before.
const ProgramClass* find_form(const PlanTable& plans, ProgramClassKey& key, ProgramNumbers& at,
                              std::uint64_t& count);
/// The form of a call that has this plan; an empty one where its numbers are no functions of sizes.
/// `earlier`: the sizes that all calls of its class have had, 0 where those differ; nothing if that
/// is not known.
std::shared_ptr<ProgramClass> make_form(const Definition& definition, const Call& call,
                                        const ProgramClassKey& key, const ProgramPlan& plan,
                                        std::span<const std::int64_t> earlier = {});

}  // namespace kiln
