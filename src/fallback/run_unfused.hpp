// Runs the operations of unfused kernels (unfused.hpp) on a device: each is one launch of a general
// kernel (general_kernels.hpp), or on the CPU device, where that is in no cache, one loop of the
// interpreter.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fallback/general_kernels.hpp"
#include "fallback/temporaries.hpp"
#include "fallback/unfused.hpp"
#include "kernel/kernel_spec.hpp"
#include "kiln/function.hpp"

namespace kiln {

/// A kernel and the numbers of a call: `scalars` has one for each of the function's arguments,
/// which counts where that is a number. The operands' addresses are those of the call.
struct UnfusedCall {
  const KernelSpec* spec = nullptr;
  std::vector<Scalar> scalars;
};

/// The general kernel that does an instruction. Nothing if there is none.
std::optional<GeneralKernel> general_kernel_of(const Instruction& instruction, Accuracy accuracy);

/// Runs the kernels, in order. Compiles nothing. Throws Error(would_compile) in the name of
/// `function` before anything has run where a general kernel is missing, where the memory is too
/// small for one row, or for what no general kernel does.
void run_unfused(jit::Backend& backend, const Stream& stream, std::string_view function,
                 std::span<const UnfusedCall> kernels);

}  // namespace kiln
