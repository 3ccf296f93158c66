// The settings of this process, in code: for a program that embeds kiln and leaves nothing to the
// environment of whoever starts it.
//
//   kiln::configure({.cache_directory = "/var/cache/engine", .jobs = 4, .threads = 8});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "kiln/options.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// What an Executor runs: a reference to the work of one launch, valid until the executor returns.
class Task {
 public:
  using Run = void (*)(const void* work, std::size_t part);
  Task(Run run, const void* work) : run_(run), work_(work) {}
  /// Runs that part on the calling thread. Safe from any number of threads, each with another part.
  void operator()(std::size_t part) const { run_(work_, part); }

 private:
  Run run_;
  const void* work_;
};

/// Runs the CPU device's kernels on threads of the caller: calls task(part) exactly once for each
/// part from 0 up to `parts`, in any order and on any threads, also side by side, and returns when
/// all calls have returned. A launch that is cut into two or more parts calls it on the thread that
/// launches, so several threads may be in it at once. What it throws, the launch throws, and what
/// the outputs hold then is not defined; no part may run any more when it does.
using Executor = std::function<void(std::size_t parts, const Task& task)>;

/// What is set here comes before the environment variable that is named with it; everything else
/// is as the environment says. Other variables have no counterpart here.
struct Configuration {
  /// KILN_CACHE_DIR: where kernels are kept. Empty: nothing is kept on disk, and no other layer and
  /// no remote cache is used (KILN_CACHE=off).
  std::optional<std::string> cache_directory = {};
  /// KILN_CACHE_MAX_SIZE: bytes above which the least recently used entries go; 0: no limit.
  std::optional<std::uint64_t> cache_max_size = {};
  /// KILN_CACHE_READONLY_DIRS: directories and bundles that are only read.
  std::optional<std::vector<std::string>> cache_readonly = {};
  /// KILN_COMPILE_JOBS: how many kernels are compiled at a time; 1 to 1024.
  std::optional<int> jobs = {};
  /// KILN_WORKER: the path of kiln-compile-worker.
  std::optional<std::string> worker = {};
  /// KILN_CPU_THREADS: into how many parts a launch on the CPU is cut at most, and on how many
  /// threads they run without an executor; 1 to 4096.
  std::optional<int> threads = {};
  /// KILN_MEMORY_LIMIT: bytes that the plans of a device may take, and as many the kernels that are
  /// loaded on it (kiln/statistics.hpp); 0: no limit.
  std::optional<std::uint64_t> memory_limit = {};
  /// KILN_FALLBACK_MEMORY: bytes that calls with OnMiss::fallback may have on each device for
  /// temporaries, allocated by the first such call that needs them; 0: none (kiln/fallback.hpp).
  std::optional<std::uint64_t> fallback_memory = {};
  /// What calls do on a miss whose Options leave it to this; not OnMiss::configured.
  std::optional<OnMiss> on_miss = {};
  /// Runs the parts of launches on the CPU; empty: kiln's own threads.
  Executor executor = {};
  /// Receives the log, as by set_log(); empty: as it is.
  LogSink log = {};
};

/// Sets what this process uses. To be called before the first use of a setting: before a kernel is
/// looked up or compiled, a cache opened, a device or target asked for. Throws
/// Error(invalid_argument) that says who was first if kiln is in use already, or if another call
/// has set other values, and for a value that makes no sense; then nothing is changed. A call with
/// the same values as the one before changes nothing, whenever it comes; an executor and a log
/// cannot be compared and count as other values. Safe from any thread. `file` and `line` say where
/// the call is, for that message.
void configure(Configuration configuration, const char* file = __builtin_FILE(),
               int line = __builtin_LINE());

}  // namespace kiln

#pragma GCC visibility pop
