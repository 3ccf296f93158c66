// The environment as compilers see it: which variables they get, and which of those change what
// they write. compiler_environment() is declared in compile.hpp, because it is part of a key.
#pragma once

#include <string>
#include <vector>

namespace kiln::jit {

/// The environment of a worker: what a compiler needs to be found and to run, and the variables of
/// compiler_environment(). Everything else is left out, so that it cannot change the output unseen.
std::vector<std::string> scrubbed_environment(const std::string& temporary_directory);

}  // namespace kiln::jit
