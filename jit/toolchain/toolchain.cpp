// The toolchains of this machine, with their identities. Only files are looked at, apart from a
// host compiler's --version: this is on the way of a first call whose kernel is on disk.
#include "jit/toolchain/toolchain.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <mutex>
#include <optional>

#include "base/elf.hpp"
#include "jit/toolchain/find.hpp"
#include "base/mapped_file.hpp"
#include "jit/toolchain/toolchain_cache.hpp"
#include "jit/toolchain/settings.hpp"
#include "base/subprocess.hpp"
#include "base/temporary.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

// "name:build-id:size" of a library, or empty if it has no build-id.
std::string library_identity(const std::string& path) {
  constexpr std::uint32_t kBuildId = 3;  // NT_GNU_BUILD_ID
  const MappedFile file(path);
  const auto elf = Elf::parse(file.bytes());
  if (!elf) return {};
  for (const ElfNote& note : elf->notes()) {
    if (note.type != kBuildId || note.name != "GNU") continue;
    std::string id;
    for (const char byte : note.descriptor)
      id += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return fmt::format("{}:{}:{}", fs::path(path).filename().string(), id, file.bytes().size());
  }
  return {};
}

// Empty as soon as one of the libraries cannot be told from another build of it.
std::string libraries_identity(const std::string& path) {
  std::string identity;
  for (const std::string& library : libraries_behind(path)) {
    const std::string part = library_identity(library);
    if (part.empty()) return {};
    identity += fmt::format("{}{}", identity.empty() ? "" : " ", part);
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

// A compiler's driver with its size and time: what is remembered about it is true as long as those
// are.
std::string file_stamp(const std::string& path) {
  struct stat status {};
  std::error_code error;
  const std::string file = fs::canonical(path, error).string();
  if (error || stat(file.c_str(), &status) != 0) return {};
  return fmt::format("{}:{}:{}.{:09}", file, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

std::optional<Toolchain> host_toolchain(const std::string& path) {
  const std::string stamp = file_stamp(path);
  Memory memory(settings_from_environment().memory_directory);
  std::optional<std::string> version =
      stamp.empty() ? std::nullopt : memory.compiler_version(stamp);
  if (!version) {
    const TemporaryDirectory directory("kiln-cxx");
    const CommandResult result = run_command({path, "--version"}, directory.path());
    if (!result.succeeded() || result.output.empty()) return std::nullopt;
    version = result.output;
    if (!stamp.empty()) memory.remember_compiler_version(stamp, *version);
  }
  Toolchain toolchain;
  toolchain.path = path;
  toolchain.version = first_line(*version);
  if (!stamp.empty()) toolchain.identity = fmt::format("host {} {}", stamp, first_line(*version));
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
