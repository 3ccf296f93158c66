// The toolchains of this machine, with their identities. Only files are looked at, except for a
// host compiler that is not in the ToolchainCache: a first call whose kernel is on disk comes
// through here.
#include "jit/toolchain/toolchain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/file_identity.hpp"
#include "jit/toolchain/find.hpp"
#include "jit/toolchain/found_toolchain.hpp"
#include "jit/toolchain/host_identity.hpp"
#include "jit/toolchain/settings.hpp"
#include "jit/toolchain/toolchain_cache.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

// Empty as soon as one of the libraries cannot be found or read.
std::string libraries_identity(const std::string& path) {
  const auto libraries = libraries_behind(path);
  if (!libraries) return {};
  std::string identity;
  for (const std::string& library : *libraries) {
    const std::string part = file_identity(library);
    if (part.empty()) return {};
    identity += fmt::format("{}{}:{}", identity.empty() ? "" : " ",
                            fs::path(library).filename().string(), part);
  }
  return identity;
}

Toolchain library_toolchain(ToolchainKind kind, const std::string& path) {
  Toolchain toolchain;
  toolchain.kind = kind;
  toolchain.path = path;
  toolchain.version =
      fmt::format("{} {}", kind == ToolchainKind::hiprtc ? "HIP" : "NVRTC", version_in_name(path));
  toolchain.identity = libraries_identity(path);
  if (!toolchain.identity.empty()) {
    toolchain.identity = fmt::format("{} {}", name(kind), toolchain.identity);
  }
  return toolchain;
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// What a host compiler's driver answers depends on its environment.
std::string name_in_cache(const std::string& path) {
  std::string name = path;
  for (const std::string& variable : scrubbed_environment("")) name += "\n" + variable;
  return name;
}

// A compiler that was found, or what is wrong with it.
struct Candidate {
  std::optional<Toolchain> toolchain;
  std::string problem;
};

Candidate host_toolchain(const std::string& path) {
  const Settings settings = settings_from_environment();
  ToolchainCache cache(settings.cache_directory);
  const std::string name = name_in_cache(path);
  auto known = cache.compiler(name);
  if (!known) {
    try {
      const HostCompilerIdentity found =
          identify_host_compiler(path, std::min(base::kProbeDeadline, settings.deadline));
      known = {found.version, found.identity};
      if (found.settled) cache.remember_compiler(name, *known, found.evidence);
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;
      return {std::nullopt, error.what()};
    }
  }
  Toolchain toolchain;
  toolchain.path = path;
  toolchain.version = first_line(known->version);
  toolchain.identity = known->identity;
  return {std::move(toolchain), {}};
}

Candidate describe(ToolchainKind kind, const std::string& path) {
  if (kind == ToolchainKind::host) return host_toolchain(path);
  return {library_toolchain(kind, path), {}};
}

// Whoever has several compilers learns why it is not the first.
void warn_passed_over(const std::string& problem) {
  log_once(LogLevel::warning, "passed over " + problem,
           fmt::format("a compiler is passed over: {}", problem));
}

constexpr std::array kKinds = {ToolchainKind::hiprtc, ToolchainKind::nvrtc, ToolchainKind::host};

Toolchain first_that_works(ToolchainKind kind) {
  std::vector<std::string> problems;
  for (const std::string& path : find_compilers(kind)) {
    Candidate found = describe(kind, path);
    if (found.toolchain) {
      for (const std::string& problem : problems) warn_passed_over(problem);
      return *std::move(found.toolchain);
    }
    problems.push_back(std::move(found.problem));
  }
  if (problems.empty()) {
    throw Error(Code::not_found,
                fmt::format("no {} compiler: {}", name(kind), missing_compiler(kind)));
  }
  throw Error(Code::not_found,
              fmt::format("no {} compiler that works: {}", name(kind), fmt::join(problems, "; ")));
}

constinit std::array<std::atomic<bool>, kKinds.size()> searched{};

// A search, which may throw, and has been at its end.
struct Search {
  explicit Search(ToolchainKind kind) : kind(kind) {}
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;
  ~Search() { searched[static_cast<std::size_t>(kind)].store(true, std::memory_order_release); }
  const ToolchainKind kind;
};

}  // namespace

Toolchain toolchain_at(ToolchainKind kind, const std::string& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  Candidate found;
  if (there) found = describe(kind, path);
  if (!found.toolchain) {
    throw Error(Code::not_found, fmt::format("no {} compiler at {}{}{}", name(kind), path,
                                             there ? ": " : "", found.problem));
  }
  return *std::move(found.toolchain);
}

std::vector<Toolchain> toolchains() {
  std::vector<Toolchain> all;
  for (const ToolchainKind kind : kKinds) {
    for (const std::string& path : find_compilers(kind)) {
      Candidate found = describe(kind, path);
      if (found.toolchain) {
        all.push_back(*std::move(found.toolchain));
      } else {
        warn_passed_over(found.problem);
      }
    }
  }
  return all;
}

Toolchain toolchain(ToolchainKind kind) {
  static std::mutex mutex;
  static auto* const all = new std::array<FoundToolchain, kKinds.size()>;
  const std::lock_guard lock(mutex);
  FoundToolchain& found = (*all)[static_cast<std::size_t>(kind)];
  if (const Toolchain* known = found.get()) return *known;
  const Search search(kind);
  const auto began = FoundToolchain::Clock::now();
  return found.set(first_that_works(kind), began);
}

bool was_looked_for(ToolchainKind kind) {
  return searched[static_cast<std::size_t>(kind)].load(std::memory_order_acquire);
}

}  // namespace kiln::jit
