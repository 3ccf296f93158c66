// The general kernels that a call needs under OnMiss::fallback, compiled as a base pack would have
// them: all of them take minutes on some machines.
#pragma once

#include <latch>
#include <vector>

#include "fallback/run_unfused.hpp"
#include "kernel/kernel_table.hpp"

namespace kiln::testing {

/// Those that calls with such kernels need, each once.
inline std::vector<WantedKernel> general_kernels_of(std::span<const KernelSpec> kernels,
                                                    jit::Backend& backend) {
  std::vector<GeneralKernel> all;
  for (const KernelSpec& spec : kernels) {
    const std::vector<Scalar> scalars(spec.function.graph.arguments.size(), Scalar(0));
    for (const Instruction& one : unfuse(spec, scalars).instructions) {
      const auto kernel = general_kernel_of(one, spec.function.options.accuracy);
      if (kernel && std::ranges::find(all, *kernel) == all.end()) all.push_back(*kernel);
    }
  }
  std::vector<WantedKernel> wanted;
  for (const GeneralKernel& kernel : all) {
    wanted.push_back({general_request(kernel, backend.target()), &backend});
  }
  return wanted;
}

/// Compiles and loads kernels.
inline void load_kernels(const std::vector<WantedKernel>& wanted) {
  std::latch left(static_cast<std::ptrdiff_t>(wanted.size()));
  const std::vector<KernelTable::Done> done(wanted.size(),
                                            [&left](const KernelResult&) { left.count_down(); });
  KernelTable::instance().request(wanted, done);
  left.wait();
}

/// Compiles and loads those that calls with such kernels need.
inline void load_general_kernels(std::span<const KernelSpec> kernels, jit::Backend& backend) {
  load_kernels(general_kernels_of(kernels, backend));
}

}  // namespace kiln::testing
