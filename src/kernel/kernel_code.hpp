// From a kernel's text and a target to its code object: the key, the cache and the compile service
// meet here and nowhere else.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "jit/service/compile.hpp"
#include "kiln/function.hpp"

namespace kiln {

/// What is wanted. `text` has fusion::kEntryMarker for the entry's name and no preamble.
struct KernelRequest {
  std::string function;
  std::string expression;
  std::string signature;  ///< dtypes and layout, for people
  std::string text;
  std::string target;
  Options options;
  bool alone = false;  ///< shares no program: `text` may define names of its own
};

struct KernelCode {
  cache::Key key;
  std::string key_text;  ///< 32 hex digits; empty if the toolchain could not be identified
  std::string entry_name;
  jit::Toolchain toolchain;  ///< without a path if there is none on this machine
  std::string code;
  std::string log;  ///< of the compiler, if it ran
  CacheState state = CacheState::compiled;
  double compile_ms = 0;
};

/// The process's cache, opened on first use with the settings of the environment.
cache::Cache& process_cache();

/// Says once that what this compiler makes is not kept.
void warn_unidentified(const jit::Toolchain& toolchain);

/// The key and the final name. Runs no compiler, but needs to know which one there is; without one
/// the key is that of an unknown compiler.
KernelCode name_kernel(const KernelRequest& request);

/// The complete source for a request, as compiled under that name.
std::string complete_source(const KernelRequest& request, std::string_view entry_name);

/// The code of a request that name_kernel() has named, if it is on disk. Without a compiler for the
/// target, what another machine's compiler has made of the same source.
std::optional<KernelCode> find_code(const KernelRequest& request, KernelCode named);

/// The same, or compiles it; a background compile of the same key is hurried along. Throws Error:
/// compile_failed, unsupported, not_found.
KernelCode make_code(const KernelRequest& request);
/// The same for a request that name_kernel() has named.
KernelCode make_code(const KernelRequest& request, KernelCode named);

/// After a driver refused `code`: moves the entry to quarantine and compiles once more.
KernelCode remake_code(const KernelRequest& request, const KernelCode& refused,
                       std::string_view reason);

}  // namespace kiln
