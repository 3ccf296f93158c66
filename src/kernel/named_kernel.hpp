// A kernel under its final name: its key, its complete source, and the cache entry that a compile
// of it becomes. Nothing here compiles or touches a disk.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry.hpp"
#include "cache/key.hpp"
#include "jit/service/compile.hpp"
#include "kernel/kernel_request.hpp"

namespace kiln {

struct NamedKernel {
  cache::Key key;
  std::string key_text;  ///< 32 hex digits; empty if the toolchain could not be identified
  std::string entry_name;
  jit::Toolchain toolchain;  ///< without a path if there is none on this machine that is to be used
};

/// The compiler of this machine that makes what is asked for; without one, and with
/// KILN_COMPILE=remote, one without a path.
jit::Toolchain toolchain_of(const KernelRequest& request);

/// Runs no compiler, but needs to know which one there is; without one, and with
/// KILN_COMPILE=remote, the key is that of an unknown compiler. Where any compiler's code is as
/// good (KernelRequest::any_toolchain) none is looked for, and none is named.
NamedKernel name_kernel(const KernelRequest& request);
/// Whether that has no compiler to look for for the first time, which may take 100 ms.
bool is_named_at_once(const KernelRequest& request);

/// The names of what this toolchain makes of the request.
NamedKernel name_with(const KernelRequest& request, jit::Toolchain toolchain);

/// What the key is made of, with the compiler that is called `identity`.
std::vector<cache::Ingredient> ingredients_of(const KernelRequest& request,
                                              const std::string& identity);

/// What the key is made of but for the compiler, as a key.
cache::Key source_key(const KernelRequest& request);

/// Digits of all device code that kernels for the target may carry, which is another one in other
/// versions of kiln.
std::string preamble_digits(std::string_view target);

/// The compiler's options.
std::vector<std::string> kernel_options(const KernelRequest& request);

/// A kernel under the name that it is compiled as.
struct SourcePart {
  const KernelRequest* request;
  std::string_view entry_name;
};

/// The complete source for kernels of one target: the headers of the preamble that any of them
/// needs, and their texts.
std::string complete_source(std::span<const SourcePart> kernels);
std::string complete_source(const KernelRequest& request, std::string_view entry_name);

/// The compile of this kernel alone.
jit::CompileRequest compile_request(const KernelRequest& request, const NamedKernel& named);

/// What is kept of a compile. `source` is what was compiled.
cache::Entry make_entry(const KernelRequest& request, const NamedKernel& named,
                        const jit::CompileResult& result, std::string source);

}  // namespace kiln
