// How the compile service runs, and what of that a user can set: the table of KILN_* variables is
// in README.md. What the environment means to compilers is in environment.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace kiln::jit {

/// How the service runs. The defaults are those of an empty environment.
struct Settings {
  std::string worker;                           ///< path of kiln-compile-worker
  int jobs = 1;                                 ///< compiles at a time; default: usable cores
  std::chrono::milliseconds deadline{120'000};  ///< of one compile
  std::chrono::milliseconds idle{30'000};       ///< after which an unused worker ends
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;  ///< of one worker; 0: no limit
  /// Compile on threads of this process, where starting others is forbidden. Then a compiler that
  /// crashes or hangs takes the process along, hiprtc compiles one kernel at a time, prints to this
  /// process's stderr, and sees its whole environment; deadline, memory limit and cancelling have
  /// no effect. The host compiler is a process in any case.
  bool in_process = false;
  std::string dump;             ///< directory for source, log, ISA and command; or empty
  std::string cache_directory;  ///< where the ToolchainCache is; or empty
  std::vector<std::string>
      worker_environment;  ///< "NAME=value" for workers, on top of the scrubbed one
};

/// From kiln::configure(), and for the rest from KILN_WORKER, KILN_COMPILE_JOBS,
/// KILN_COMPILE_TIMEOUT (seconds), KILN_COMPILE_MEMORY (MiB), KILN_COMPILE (worker, inprocess or
/// remote, with which what is compiled here is compiled in a worker), KILN_DUMP and the cache
/// directory's variables. Throws Error(invalid_argument) for a value that makes no sense.
Settings settings_from_environment();

}  // namespace kiln::jit
