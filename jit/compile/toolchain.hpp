// The part of toolchain.cpp that only the service needs.
#pragma once

#include <string>

#include "jit/compile.hpp"

namespace kiln::jit {

/// The toolchain at that path. Throws Error(not_found) when there is none.
Toolchain toolchain_at(ToolchainKind kind, const std::string& path);

}  // namespace kiln::jit
