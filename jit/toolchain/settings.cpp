// See settings.hpp.
#include "jit/toolchain/settings.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/configuration.hpp"
#include "base/environment.hpp"
#include "base/usable_cores.hpp"
#include "cache/config.hpp"
#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const std::string text = base::environment(variable);
  if (text.empty()) return otherwise;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > 1'000'000'000) {
    throw Error(Code::invalid_argument,
                fmt::format("{}={}: expected a whole number", variable, text));
  }
  return value;
}

// The shared library that holds this code, or the program. The loader has only the name under which
// the program was started, which is its caller's choice, and of a program found on PATH no path.
const char* own_file() {
  Dl_info own{};
  Dl_info program{};
  const bool known = dladdr(reinterpret_cast<const void*>(&settings_from_environment), &own) != 0;
  // The program's headers are in its own memory.
  dladdr(reinterpret_cast<const void*>(getauxval(AT_PHDR)), &program);
  const bool in_library = known && own.dli_fname != nullptr && own.dli_fbase != program.dli_fbase;
  return in_library ? own.dli_fname : "/proc/self/exe";
}

// The first of: what kiln::configure() has set; KILN_WORKER; as installed, seen from this library
// or the program that holds it; beside that; the configured place. With more rights than its
// caller, who may have made a link to the program elsewhere, only the first and the last.
std::string find_worker(const Configuration& configured) {
  if (configured.worker) return *configured.worker;
  if (base::has_more_rights_than_caller()) return KILN_WORKER_DEFAULT;
  if (std::string chosen = base::environment("KILN_WORKER"); !chosen.empty()) return chosen;
  std::vector<fs::path> candidates;
  std::error_code error;
  if (const fs::path file = fs::canonical(own_file(), error); !error) {
    candidates.push_back(file.parent_path() / KILN_WORKER_FROM_LIB);
    candidates.push_back(file.parent_path() / KILN_WORKER_FROM_BIN);
    candidates.push_back(file.parent_path() / "kiln-compile-worker");
  }
  candidates.emplace_back(KILN_WORKER_DEFAULT);
  for (const fs::path& candidate : candidates) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal().string();
  }
  return candidates.front().lexically_normal().string();
}

int jobs_from_environment() {
  return static_cast<int>(std::clamp<std::uint64_t>(
      number("KILN_COMPILE_JOBS", static_cast<std::uint64_t>(base::usable_cores())), 1, 1024));
}

}  // namespace

Settings settings_from_environment() {
  const Configuration& configured = base::configuration("the compile service");
  Settings settings;
  settings.worker = find_worker(configured);
  settings.jobs = configured.jobs ? *configured.jobs : jobs_from_environment();
  settings.deadline =
      std::chrono::seconds(std::max<std::uint64_t>(number("KILN_COMPILE_TIMEOUT", 120), 1));
  settings.memory_bytes = number("KILN_COMPILE_MEMORY", 4096) << 20;
  const std::string mode = base::environment("KILN_COMPILE");
  if (!mode.empty() && mode != "worker" && mode != "inprocess" && mode != "remote") {
    throw Error(Code::invalid_argument,
                fmt::format("KILN_COMPILE={}: expected worker, inprocess or remote", mode));
  }
  settings.in_process = mode == "inprocess";
  settings.dump = base::environment("KILN_DUMP");
  settings.cache_directory = cache::Config::from_environment().directory;
  return settings;
}

bool compiles_remotely() {
  static const bool remotely = base::environment("KILN_COMPILE") == "remote";
  return remotely;
}

}  // namespace kiln::jit
