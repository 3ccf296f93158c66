// A kernel under its final name: its key, its complete source, and the cache entry that a compile of
// it becomes. Nothing here compiles or touches a disk.
#pragma once

#include <string>
#include <vector>

#include "cache/entry.hpp"
#include "cache/key.hpp"
#include "jit/service/compile.hpp"
#include "kernel/kernel_code.hpp"

namespace kiln {

/// The key and the name, without the code.
KernelCode name_with(const KernelRequest& request, jit::Toolchain toolchain);

/// What the key is made of, with the compiler that is called `identity`.
std::vector<cache::Ingredient> ingredients_of(const KernelRequest& request,
                                              const std::string& identity);

/// The compiler's options.
std::vector<std::string> kernel_options(const KernelRequest& request);

/// The compile of this kernel alone.
jit::CompileRequest compile_request(const KernelRequest& request, const KernelCode& named);

/// What is kept of a compile; `named` gets the log and the time. `source` is what was compiled.
cache::Entry make_entry(const KernelRequest& request, KernelCode& named,
                        const jit::CompileResult& result, std::string source);

}  // namespace kiln
