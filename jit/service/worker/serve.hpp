// A worker's conversation with its parent over descriptor 3, and how it makes sure to end with it.
#pragma once

#include <cstdint>
#include <string>

#include "jit/service/compile.hpp"

namespace kiln::jit {

struct WorkerArguments {
  ToolchainKind kind = ToolchainKind::host;
  std::string path;                ///< of the compiler
  int parent = 0;                  ///< process id
  std::uint64_t memory_bytes = 0;  ///< limit, or 0
};

/// Serves requests until the parent closes the socket or ends. Returns the exit status.
int serve(const WorkerArguments& arguments);

}  // namespace kiln::jit
