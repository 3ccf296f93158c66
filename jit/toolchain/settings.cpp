// See settings.hpp.
#include "jit/toolchain/settings.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/environment.hpp"
#include "base/usable_cores.hpp"
#include "cache/config.hpp"
#include "jit/toolchain/environment.hpp"
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

// The first of: KILN_WORKER; as installed, seen from this library or the program that holds it;
// beside that; the configured place.
std::string find_worker() {
  if (std::string chosen = base::environment("KILN_WORKER"); !chosen.empty()) return chosen;
  std::vector<fs::path> candidates;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&settings_from_environment), &info) != 0 &&
      info.dli_fname != nullptr) {
    std::error_code error;
    const fs::path library = fs::canonical(info.dli_fname, error);
    if (!error) {
      candidates.push_back(library.parent_path() / KILN_WORKER_RELATIVE);
      candidates.push_back(library.parent_path() / "kiln-compile-worker");
    }
  }
  candidates.emplace_back(KILN_WORKER_DEFAULT);
  for (const fs::path& candidate : candidates) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal().string();
  }
  return candidates.front().lexically_normal().string();
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  settings.worker = find_worker();
  settings.jobs = static_cast<int>(std::clamp<std::uint64_t>(
      number("KILN_COMPILE_JOBS", static_cast<std::uint64_t>(base::usable_cores())), 1, 1024));
  settings.deadline =
      std::chrono::seconds(std::max<std::uint64_t>(number("KILN_COMPILE_TIMEOUT", 120), 1));
  settings.memory_bytes = number("KILN_COMPILE_MEMORY", 4096) << 20;
  const std::string mode = base::environment("KILN_COMPILE");
  if (!mode.empty() && mode != "worker" && mode != "inprocess") {
    throw Error(Code::invalid_argument,
                fmt::format("KILN_COMPILE={}: expected worker or inprocess", mode));
  }
  settings.in_process = mode == "inprocess";
  settings.dump = base::environment("KILN_DUMP");
  settings.cache_directory = cache::Config::from_environment().directory;
  return settings;
}

}  // namespace kiln::jit
