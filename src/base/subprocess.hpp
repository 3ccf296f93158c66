// Running a short command, such as a host compiler, to its end with its output in hand.
#pragma once

#include <string>
#include <vector>

namespace kiln::jit {

struct CommandResult {
  int status = 0;      ///< as waitpid gives it; 0 if somebody else took it
  std::string output;  ///< descriptor 1
  std::string errors;  ///< descriptor 2
  std::string ending;  ///< for people: "exited with status 1", "was killed by signal 11
                       ///< (Segmentation fault)"
  bool succeeded() const { return status == 0; }
};

/// Runs `command` (its first element is a path) with its standard input empty and, whichever process
/// this is, in scrubbed_environment(directory). Throws
/// Error(not_found) when it cannot be started and Error(io) when its output cannot be kept in
/// `directory`.
CommandResult run_command(const std::vector<std::string>& command, const std::string& directory);

/// What a status of waitpid says, for people.
std::string describe_ending(int status);

}  // namespace kiln::jit
