// The kernels of a base pack (fallback/general_kernels.hpp), compiled for a target.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel_table.hpp"

namespace kiln {

/// One of them, as it was found or compiled.
struct BaseKernel {
  std::string name;
  KernelResult result;
};

/// Finds them all in the cache or compiles them, side by side. `done` is called after each one, by
/// this thread, with how many there are by then and how many there will be. What failed says so in
/// its result. Throws Error(not_found) for a target that is none.
std::vector<BaseKernel> compile_base_kernels(
    std::string_view target,
    const std::function<void(const BaseKernel&, std::size_t, std::size_t)>& done);

}  // namespace kiln
