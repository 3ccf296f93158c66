// Other programs: starting one, waiting for its end, and running a short command, such as a host
// compiler, to its end with its output in hand.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io.hpp"
#include "kiln/error.hpp"

namespace kiln::base {

struct SpawnRequest {
  /// What a descriptor of the program is: a file that is opened, a copy of one of this process's,
  /// or, with neither, closed.
  struct Redirection {
    int descriptor = 0;
    std::string path = {};
    int flags = 0;  ///< of open(2), with `path`
    int copy_of = -1;
  };

  std::vector<std::string> command;      ///< a path, and arguments
  std::vector<std::string> environment;  ///< "NAME=value" each
  /// Made in this order: none is a copy of what one before it has replaced.
  std::vector<Redirection> redirections = {};
  bool on_path = false;    ///< the first of `command` may be a name on PATH
  bool own_group = false;  ///< in a process group of its own, which no key of a terminal reaches
  bool reset_signals = false;  ///< nothing of this process's signal set-up reaches it
};

/// Starts a program. Throws Error that begins with `failure` ("cannot start the worker X"):
/// not_found, with `advice` at its end, if it is the program's fault, else io.
pid_t spawn(const SpawnRequest& request, std::string_view failure, std::string_view advice = {});

/// Waits for the end of a child; its status as waitpid gives it. Nothing if the application has
/// taken the status: it ignores SIGCHLD, or reaps all its children.
std::optional<int> wait_for(pid_t pid);

/// A descriptor that becomes readable at the end of the process. Empty, errno: ESRCH where there is
/// no such process, else the kernel has no such thing (Linux before 5.3).
UniqueFd process_descriptor(pid_t pid);

/// Whether a child ends before `deadline`. Leaves it to be reaped.
bool ends_before(pid_t pid, std::chrono::steady_clock::time_point deadline);

/// What a status of waitpid means, for people: "exited with status 1", "was killed by signal 11
/// (Segmentation fault)".
std::string describe_ending(int status);

struct CommandResult {
  int status = 0;        ///< as waitpid gives it; 0 if somebody else took it
  bool stopped = false;  ///< at the deadline
  std::string output;    ///< descriptor 1
  std::string errors;    ///< descriptor 2
  std::string ending;    ///< describe_ending(), or "did not end within 20000 ms and was stopped"
  bool succeeded() const { return status == 0 && !stopped; }
};

/// How long a question such as --version may take.
inline constexpr std::chrono::milliseconds kProbeDeadline{20'000};

/// Runs `command` (its first element is a path) with its standard input empty and that environment
/// ("NAME=value" each). With a deadline it is, in a process group of its own, stopped when it has
/// not ended by then; without one it stays in this process's group, whose end is somebody else's
/// business. Throws what spawn() throws, and Error(io) when its output cannot be held or read.
CommandResult run_command(const std::vector<std::string>& command,
                          std::vector<std::string> environment,
                          std::chrono::milliseconds deadline = std::chrono::milliseconds::max());

}  // namespace kiln::base
