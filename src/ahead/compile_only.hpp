// Kernels without memory and without a device: from a function and the types and shapes of a call
// to source and code for any target. What `kiln emit`, `kiln compile` and `kiln isa` are made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fusion/schedule/explain.hpp"
#include "jit/service/compile.hpp"
#include "kernel/emit_kernel.hpp"
#include "kernel/kernel_spec.hpp"
#include "kiln/function.hpp"
#include "kiln/kernel.hpp"
#include "kiln/prepare.hpp"
#include "kiln/program.hpp"
#include "kiln/specification.hpp"

namespace kiln {

struct CompiledKernel {
  KernelInfo info;
  std::string source;  ///< with the preamble
  std::string code;
  std::string log;
  jit::Resources resources;
};

/// Whether such a call is more than a Function can do, so that it takes a Program: shape ops,
/// reductions over several sets of axes, counting beside reductions, reductions that wait for each
/// other and of which one kernel would compute too much again.
bool takes_program(const Function& function, const Specification& specification);

/// What such a program does on a target. Needs no compiler.
ProgramInfo explain_program(const Function& function, const Specification& specification,
                            std::string_view target = "cpu");

/// The kernels of such a call, in the order in which they run: one for each shape among its
/// outputs, or those of a program. Usually one.
std::vector<KernelSpec> kernel_specs(const Function& function, const Specification& specification,
                                     std::string_view target = "cpu");
/// Those of such a run of the Program of it, whether a Function can compute it or not.
std::vector<KernelSpec> program_specs(const Function& function, const Specification& specification,
                                      std::string_view target = "cpu");

/// The kernel's source for `target`, with its final entry name. Needs no compiler.
std::string emit_for(const KernelSpec& kernel, std::string_view target, bool with_preamble);
/// Of the only kernel of a call of a Function. Throws Error(unsupported), as compile_for does,
/// where the outputs have several shapes.
std::string emit_for(const Function& function, const Specification& specification,
                     std::string_view target, bool with_preamble);

/// The kernels of such a call of a Function for a target.
std::vector<EmittedKernel> emit_all(const Function& function, const Specification& specification,
                                    std::string_view target);

/// Finds the kernel in the cache or compiles it and publishes it. `info.cache` says which.
CompiledKernel compile_for(const KernelSpec& kernel, std::string_view target);
CompiledKernel compile_for(const Function& function, const Specification& specification,
                           std::string_view target);

/// A kernel of the caller's own.
CompiledKernel compile_for(const Kernel& kernel, std::string_view target);

/// Why such a call gets the variant that it gets, and what it should cost. Needs no compiler.
struct Explanation {
  fusion::LayoutReport layout;
  fusion::Estimate estimate;
  std::vector<std::string> ranges{};  ///< schedule_ranges()
};
Explanation explain_for(const KernelSpec& kernel, std::string_view target);

}  // namespace kiln
