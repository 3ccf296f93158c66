// Runs of a program by class, not by shape: the numbers of a plan are functions of the sizes of a
// call, and are evaluated on the stack. A shape never seen then costs a few dozen operations for
// each kernel, and leaves nothing behind.
//
// Calls are of one class if they agree in everything but sizes, strides and alignment, if the same
// of their axes have one element and the same are equally long, and if the same operands are in C
// order, or have their axes in the same other order with gaps along the same ones. A class has
// several forms where what is fused, or how reductions are split, depends on sizes. A form is what
// is planned alike: it was planned for several sizes while every decision that depends on sizes was
// recorded (fusion/graph/size_trace.hpp), and holds for all sizes for which those decisions would
// be the same. So a run by class launches what a plan for its own shape would.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "call/call_class.hpp"
#include "call/class_kernel.hpp"
#include "core/plan_table.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/partition/workspace.hpp"
#include "kernel/target.hpp"
#include "program/ready_program.hpp"
#include "program/size_formulas.hpp"

namespace kiln {

/// The words that decide the class of a program's call, and its sizes. Lives on the stack of a
/// call.
class ProgramClassKey {
 public:
  explicit ProgramClassKey(const Call& call);
  /// See ClassKey; nor with packed operands that begin within a byte, or operands of which
  /// neighbours share memory.
  bool has_class() const { return has_class_; }
  /// Of one of its forms.
  std::span<const std::uint64_t> words(std::uint64_t form);
  std::uint64_t hash(std::uint64_t form) const { return mixed(hash_, form + 1); }

  /// The sizes of the inputs' axes but 1, each once; then the strides of operands that are not in C
  /// order, but for those that follow from sizes (StrideKinds).
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), size_count_}; }
  /// How many of them are sizes of axes.
  std::size_t axis_sizes() const { return axis_sizes_; }
  /// Sizes that only outputs have.
  std::span<const std::int64_t> output_sizes() const {
    return key_.sizes().subspan(key_.input_sizes());
  }

  static constexpr std::size_t kMostSizes = 32;

 private:
  void push_strides(const View& view);

  ClassKey key_;
  std::array<std::uint64_t, 3 * ClassKey::kMostOperands + 4> words_;
  std::array<std::int64_t, kMostSizes> sizes_;
  std::size_t count_ = 0;
  std::size_t size_count_ = 0;
  std::size_t axis_sizes_ = 0;
  std::uint64_t hash_ = 0;
  bool has_class_ = true;
};

/// A form of a class. Numbers are positions.
struct ProgramClass final : CachedPlan {
  using Number = std::uint16_t;
  static constexpr std::size_t kMostNumbers = 4096;
  static constexpr std::size_t kMostSteps = 1024;
  static constexpr std::uint64_t kMostForms = 16;
  static constexpr std::size_t kMostSums = 6;
  static constexpr std::size_t kOne = ProgramClassKey::kMostSizes + kMostSums;

  /// The most common formula: a factor and four sizes, of which any may be 1 (kOne).
  struct Product {
    std::int64_t factor = 0;
    Number number = 0;
    std::array<std::uint8_t, 4> sizes{};
  };
  /// What was decided when the form was planned.
  struct Condition {
    fusion::SizeFact::Kind kind = fusion::SizeFact::Kind::sign;
    bool read_again = false;
    bool is_exact = true;  ///< sign: terms are numbers as they are, not estimates of bytes and time
    std::int64_t result = 0;
    std::vector<std::pair<double, Number>> terms;
    // Of splits, whose terms are the axes that are kept, then what axes are reduced to where that
    // is not 1, and then those axes:
    std::uint8_t kept_terms = 0;  ///< how many the first ones are
    std::uint8_t row_terms = 0;   ///< and with the second ones, whose product is the rows
    bool has_columns = false;     ///< the innermost axis is kept, and the first term
  };
  struct Place {
    Number bytes;
    std::size_t first;  ///< steps in which it is alive
    std::size_t last;
  };
  struct Operand {
    fusion::Operand fixed;        ///< what does not depend on sizes
    std::uint32_t memory = 0;     ///< inputs count from 0, outputs go on, then the workspace
    std::int32_t temporary = -1;  ///< its place in the workspace
    Number bytes = 0;             ///< from there to its first element
    std::vector<Number> strides;
    Number offset = 0;  ///< of an iota
    Number split_stride = 0;
    Number place = 0;
    Number place_stride = 0;  ///< Operand::indexed
    Number place_count = 0;
  };
  struct Step {
    KernelSpec spec;  ///< of the first call
    std::vector<Number> shape;
    std::vector<Operand> operands;
    std::vector<PlacedOperands::Place> inputs;              ///< of numbers, which argument they are
    std::vector<std::pair<std::uint32_t, Number>> lengths;  ///< inputs that are numbers of elements
    CallNames names() const;
  };

  std::size_t bytes() const override;
  std::size_t plans() const override { return 0; }
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override { return {}; }
  /// first_sizes, with 0 in place of those that another call had or has now changed.
  std::vector<std::int64_t> unchanged_sizes(std::span<const std::int64_t> now) const;

  std::uint64_t id = 0;   ///< of no other form
  bool is_empty = false;  ///< calls that are planned one by one
  jit::Backend* backend = nullptr;
  std::string target;
  TargetFeatures features;              ///< of it
  std::vector<SizeFormula> sums;        ///< of sizes of axes: extents of which others are products
  std::vector<std::int64_t> constants;  ///< the numbers that no size changes, 0 for the others: ...
  /// ... functions of the sizes of axes, those sums, and then the strides.
  std::vector<Product> products;
  std::vector<std::pair<Number, SizeFormula>> formulas;      ///< the others
  std::vector<std::pair<std::size_t, std::int64_t>> pinned;  ///< sizes that have to be these
  /// Where a class has no form: of the first call, and which of them others had changed.
  std::vector<std::int64_t> first_sizes;
  mutable std::atomic<std::uint32_t> changed_sizes = 0;
  std::vector<Number> output_sizes;  ///< what ProgramClassKey::output_sizes() have to be
  std::vector<Number> extents;       ///< all greater than 0
  std::vector<std::pair<Number, Number>> different;
  std::vector<Condition> conditions;
  /// Outputs that are updated in place, and the inputs that they are.
  std::vector<std::pair<std::size_t, std::size_t>> updates;
  std::vector<Place> places;      ///< of the workspace
  bool has_fixed_places = false;  ///< no size changes what they take: then their places, and all
                                  ///< that the workspace takes
  std::vector<std::uint64_t> fixed_offsets;
  std::uint64_t fixed_workspace = 0;
  std::vector<Place> unfused;  ///< of the workspace if nothing were fused, which is not smaller
  std::vector<Number> unfused_together;  ///< bytes of those that lived together in the first call
                                         ///< when most did
  std::vector<Step> steps;
  CallCounts counts;
  /// Of the first form of a class: the number of the one that a call was of last, which the next is
  /// likely to be of.
  mutable std::atomic<std::uint64_t> recent = 0;
  std::vector<ClassKernel> known;  ///< of each step
};

/// Of a call whose class and form are known, the bytes of workspace that it needs. To be called in
/// a base::ReadSection. Takes no lock.
std::optional<std::uint64_t> workspace_by_class(const PlanTable& plans, const Call& call);

/// Runs a call whose class, form and schedules are known, and returns true. Else, if it may be an
/// error, and if its signature (`hash`) has been called often, nothing happened. Steps for which no
/// tape held may get one; else it takes no lock. To be called in a base::ReadSection. Throws as
/// ReadyProgram::run() does for a number that does not fit its partner's dtype.
bool run_by_class(PlanTable& plans, const Call& call, const View& workspace, std::uint64_t hash);

/// Adds the form of a call to its class, if it has none, and the kernels of its plan. A new form is
/// planned for several other sizes.
void add_to_class(PlanTable& plans, const Definition& definition, const Call& call,
                  const ProgramPlan& plan, const ReadyProgram& ready);

}  // namespace kiln
