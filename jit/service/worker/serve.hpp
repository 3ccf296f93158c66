// A worker's conversation with its parent over descriptor 3, and how it makes sure to end with it.
#pragma once

#include <cstdint>
#include <string>

#include "jit/service/compile.hpp"

namespace kiln::jit {

struct WorkerArguments {
  ToolchainKind kind = ToolchainKind::host;
  std::string path;                ///< of the compiler
  std::uint64_t memory_bytes = 0;  ///< limit, or 0
};

/// Serves requests until the parent closes the socket or ends. Then what the parent has made for
/// this worker, its directory and its process group, ends with it, and nothing else. Throws
/// Error(invalid_argument) when descriptor 3 is no socket of a parent.
[[noreturn]] void serve(const WorkerArguments& arguments);

}  // namespace kiln::jit
