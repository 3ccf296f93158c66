// Modules that are loaded: from a kernel's text to a kernel that a device can launch, by way of
// memory, the cache or the compiler.
#pragma once

#include <memory>

#include "jit/device/backend.hpp"
#include "kernel/kernel_code.hpp"
#include "kiln/function.hpp"

namespace kiln {

bool is_loaded(const jit::Backend& backend, const cache::Key& key);

/// Loads what was found or made. A driver that refuses what the cache gave costs one recompile, of
/// which `code` is then the result; one that refuses fresh code is an error. It is known as
/// `wanted` from then on: the key of the request, of which the code's own differs if it was made
/// elsewhere.
std::shared_ptr<jit::Kernel> load_code(jit::Backend& backend, const KernelRequest& request,
                                       KernelCode& code, const cache::Key& wanted);

/// Loads the kernel for a call, from memory, disk or, as far as `Options::on_miss` allows it, the
/// compiler, and fills in `info`'s entry, key, cache and
/// compile_ms. Safe on any thread.
std::shared_ptr<jit::Kernel> load_kernel(jit::Backend& backend, const KernelRequest& request,
                                         KernelInfo& info);

}  // namespace kiln
