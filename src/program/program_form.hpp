// How forms of classes are evaluated and made: what program_class.cpp and program_form.cpp share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "program/program_class.hpp"

namespace kiln {

/// The numbers of a form for one call.
struct ProgramNumbers {
  std::array<std::int64_t, ProgramClass::kMostNumbers> numbers;
  std::array<std::uint64_t, fusion::kFewLifetimes> offsets;  ///< of places in the workspace
  std::uint64_t workspace = 0;                               ///< bytes
};

/// What the kernels of a step are found by.
struct StepKernelKey {
  StepKernelKey(const ProgramClass& form, std::size_t step, const fusion::Schedule& schedule);
  /// `of`: the hash of another key of that step.
  StepKernelKey(const ProgramClass& form, std::size_t step, std::uint64_t of);
  std::array<std::uint64_t, 3> words;
  std::uint64_t hash = 0;
};

/// The kernel of a step whose numbers sizes do not change, with the layout of all such calls: it is
/// not planned again. Such are most steps of a program in which one length grows.
struct FixedKernel final : CachedPlan {
  FixedKernel(ScheduledKernel of, fusion::Layout planned)
      : kernel(std::move(of)), layout(std::move(planned)) {}
  std::size_t bytes() const override;
  std::size_t plans() const override { return 0; }
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override;

  const ScheduledKernel kernel;
  const fusion::Layout layout;
};

/// What the kernel of such a step is found by: where its operands begin, modulo the largest power
/// of two that planners look at.
class FixedKernelKey {
 public:
  FixedKernelKey(const ProgramClass& form, std::size_t step, const Call& call,
                 const ProgramNumbers& at);
  std::span<const std::uint64_t> words() const { return {words_.data(), count_}; }
  std::uint64_t hash() const { return hash_; }

 private:
  static constexpr std::size_t kOperandsOfWord = 8;
  static constexpr std::uint64_t kAddresses = 256;  // a byte for each operand

  std::array<std::uint64_t, 2 + ClassKey::kMostOperands / kOperandsOfWord> words_;
  std::size_t count_ = 0;
  std::uint64_t hash_;
};

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

/// Whether the form holds for such a call; then its numbers.
bool evaluate(const ProgramClass& form, const ProgramClassKey& key, ProgramNumbers& at);
/// The one that holds, or null; `count`: how many were looked at before.
const ProgramClass* find_form(const PlanTable& plans, ProgramClassKey& key, ProgramNumbers& at,
                              std::uint64_t& count);
/// Of one kernel.
fusion::Layout layout_of(const ProgramClass& form, std::size_t step, const Call& call,
                         const ProgramNumbers& at);

/// The form of a call that has this plan; an empty one where its numbers are no functions of sizes.
/// `earlier`: the sizes of another call of its class, if they are known.
std::shared_ptr<ProgramClass> make_form(const Definition& definition, const Call& call,
                                        const ProgramClassKey& key, const ProgramPlan& plan,
                                        std::span<const std::int64_t> earlier = {});

}  // namespace kiln
