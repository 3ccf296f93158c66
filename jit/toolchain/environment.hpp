// The environment as compilers see it: which variables they get, and which of those change what
// they write. compiler_environment() is declared in toolchain.hpp, because it is part of a key.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/subprocess.hpp"

namespace kiln::jit {

/// The value of a variable that compilers get, as it was when this process first needed one: what a
/// key was made of is what every compile after it sees, whatever the application sets meanwhile.
/// Empty for one that is not set, or that compilers do not get.
std::string compiler_variable(std::string_view name);

/// The environment of a worker and of every compiler: what it needs to be found and to run, and the
/// variables of compiler_environment(). Everything else is left out, so that it cannot change the
/// output unseen.
std::vector<std::string> scrubbed_environment(const std::string& temporary_directory);

/// base::run_command() in scrubbed_environment(directory), whichever process this is.
base::CommandResult run_scrubbed(
    const std::vector<std::string>& command, const std::string& directory,
    std::chrono::milliseconds deadline = std::chrono::milliseconds::max());

}  // namespace kiln::jit
