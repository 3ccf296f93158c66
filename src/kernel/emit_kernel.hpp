// From a kernel's specification to its text for a target: layout, emission, and the request
// for a compile.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/schedule/element_moves.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/products/product_loops.hpp"
#include "fusion/schedule/rows/pass_schedule.hpp"
#include "kernel/kernel_request.hpp"
#include "kernel/kernel_spec.hpp"
#include "kernel/target.hpp"
#include "kiln/function.hpp"

namespace kiln {

struct EmittedKernel {
  fusion::Layout layout;
  std::optional<fusion::PassSchedule> passes;  ///< over rows or columns
  std::optional<fusion::ProductLoops> loops;   ///< of products
  std::vector<fusion::ElementMove> moves;      ///< elementwise and scans, of each operand
  fusion::KernelDescription kernel;            ///< but for its text, which is the request's
  KernelRequest request;
  std::string schedule_text;  ///< for people
  std::uint64_t bytes = 0;    ///< that a launch moves

  /// Whether there is nothing to compute, so that nothing is built and launched.
  bool is_empty() const { return layout.work_items == 0; }
};

/// How a kernel of that form runs over `shape`, whatever shape the form has, with those operands.
/// Throws Error(unsupported) for packed operands that no kernel of that form can have.
fusion::Layout plan_kernel(const TypedFunction& function, const KernelForm& form, const Dims& shape,
                           std::span<const fusion::Operand> operands, const TargetFeatures& target);
fusion::SizedLayout plan_kernel(const TypedFunction& function, const KernelForm& form,
                                const fusion::Sizes& shape,
                                std::span<const fusion::SizedOperand> operands,
                                const TargetFeatures& target);

/// The same layout and the text for it. Throws as that does.
EmittedKernel emit_kernel(const KernelSpec& spec, std::string_view target);

/// Whether the packed operands of a kernel over rows, if it has any, can be read and stored there:
/// on every target, or on none.
bool can_reduce_packed(const KernelSpec& spec);

/// The names of a kernel's operands, as its description and its text have them.
std::vector<std::string> operand_names(const fusion::TypedGraph& graph);

/// What is known of a call's kernels before any is built. Its source, of the first one that has
/// something to compute, has fusion::kEntryMarker for the entry's name.
KernelInfo describe_kernels(std::string_view function, std::string_view expression,
                            std::span<const EmittedKernel> kernels);
/// Adds the entry, key, cache and compile_ms of one that was built, the first one first.
void add_built(KernelInfo& info, const KernelInfo& built);

}  // namespace kiln
