// Modules that are loaded: from a kernel's text to a kernel that a device can launch, by way of
// memory, the cache or the compiler.
#pragma once

#include <memory>

#include "jit/backend.hpp"
#include "kernel_code.hpp"
#include "kiln/function.hpp"

namespace kiln {

/// Loads the kernel, from memory, disk or the compiler, and fills in `info`'s entry, key, cache and
/// compile_ms. A driver that refuses what the cache gave costs one recompile; one that refuses
/// fresh code is an error. Safe on any thread.
std::shared_ptr<jit::Kernel> load_kernel(jit::Backend& backend, const KernelRequest& request,
                                         KernelInfo& info);

}  // namespace kiln
