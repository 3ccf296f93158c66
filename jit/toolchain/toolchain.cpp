// The toolchains of this machine, with their identities. Only files are looked at, apart from a
// host compiler that is not remembered: this is on the way of a first call whose kernel is on disk.
#include "jit/toolchain/toolchain.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <mutex>
#include <optional>

#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/file_identity.hpp"
#include "jit/toolchain/find.hpp"
#include "jit/toolchain/host_identity.hpp"
#include "jit/toolchain/toolchain_cache.hpp"
#include "jit/toolchain/settings.hpp"
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

// What a host compiler's driver says depends on the environment that it is asked in.
std::string remembered_name(const std::string& path) {
  std::string name = path;
  for (const std::string& variable : scrubbed_environment("")) name += "\n" + variable;
  return name;
}

std::optional<Toolchain> host_toolchain(const std::string& path) {
  Memory memory(settings_from_environment().memory_directory);
  const std::string name = remembered_name(path);
  auto known = memory.compiler(name);
  if (!known) {
    const auto found = identify_host_compiler(path);
    if (!found) return std::nullopt;
    known = {found->version, found->identity};
    if (found->settled) memory.remember_compiler(name, *known, found->evidence);
  }
  Toolchain toolchain;
  toolchain.path = path;
  toolchain.version = first_line(known->version);
  toolchain.identity = known->identity;
  return toolchain;
}

std::optional<Toolchain> describe(ToolchainKind kind, const std::string& path) {
  return kind == ToolchainKind::host ? host_toolchain(path) : library_toolchain(kind, path);
}

constexpr std::array kKinds = {ToolchainKind::hiprtc, ToolchainKind::nvrtc, ToolchainKind::host};

}  // namespace

Toolchain toolchain_at(ToolchainKind kind, const std::string& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  const auto found = there ? describe(kind, path) : std::nullopt;
  if (!found) throw Error(Code::not_found, fmt::format("no {} compiler at {}", name(kind), path));
  return *found;
}

std::vector<Toolchain> toolchains() {
  std::vector<Toolchain> all;
  for (const ToolchainKind kind : kKinds) {
    for (const std::string& path : find_compilers(kind)) {
      if (auto toolchain = describe(kind, path)) all.push_back(std::move(*toolchain));
    }
  }
  return all;
}

Toolchain toolchain(ToolchainKind kind) {
  static std::mutex mutex;
  static std::array<std::optional<Toolchain>, kKinds.size()> found;
  const std::lock_guard lock(mutex);
  auto& remembered = found[static_cast<std::size_t>(kind)];
  if (!remembered) {
    for (const std::string& path : find_compilers(kind)) {
      if ((remembered = describe(kind, path))) break;
    }
  }
  if (!remembered) {
    throw Error(Code::not_found,
                fmt::format("no {} compiler: {}", name(kind), missing_compiler(kind)));
  }
  return *remembered;
}

}  // namespace kiln::jit
