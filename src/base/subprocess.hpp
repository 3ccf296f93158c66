// Running a short command, such as a host compiler, to its end with its output in hand.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::base {

struct CommandResult {
  int status = 0;        ///< as waitpid gives it; 0 if somebody else took it
  bool stopped = false;  ///< at the deadline
  std::string output;    ///< descriptor 1
  std::string errors;    ///< descriptor 2
  std::string ending;    ///< for people: "exited with status 1", "was killed by signal 11
                         ///< (Segmentation fault)", "did not end within 20000 ms and was stopped"
  bool succeeded() const { return status == 0 && !stopped; }
};

/// How long a question such as --version may take.
inline constexpr std::chrono::milliseconds kProbeDeadline{20'000};

/// Runs `command` (its first element is a path) with its standard input empty and that environment
/// ("NAME=value" each); its output is kept in `directory`. With a deadline it is, in a
/// process group of its own, stopped when it has not ended by then; without one it stays in this
/// process's group, whose end is somebody else's business. Throws Error(not_found) when it cannot
/// be started, Error(io) when no process can be, or its output cannot be kept.
CommandResult run_command(const std::vector<std::string>& command, const std::string& directory,
                          std::vector<std::string> environment,
                          std::chrono::milliseconds deadline = std::chrono::milliseconds::max());

/// The error of a program, named `what`, that posix_spawn() cannot start: not_found, with `advice`,
/// if it is the program's fault, else io.
Error start_error(std::string_view what, int error, std::string_view advice = {});

/// What a status of waitpid says, for people.
std::string describe_ending(int status);

}  // namespace kiln::base
