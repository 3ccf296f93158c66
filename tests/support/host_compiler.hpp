// Host compilers, for tests that compile something themselves.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/subprocess.hpp"

namespace kiln::testing {

/// Runs `command`, whose first element is a path or a name on PATH, to its end, in this process's
/// environment. A compiler that is not there has failed.
inline base::CommandResult run_compiler(std::vector<std::string> command) {
  command.insert(command.begin(), "/usr/bin/env");
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return base::run_command(command, std::move(variables));
}

}  // namespace kiln::testing
