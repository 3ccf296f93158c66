// See file_identity.hpp.
#include "jit/toolchain/file_identity.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <ctime>

#include "base/elf.hpp"
#include "base/mapped_file.hpp"

namespace kiln::jit {
namespace {

std::string hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string build_id(std::string_view bytes) {
  constexpr std::uint32_t kBuildId = 3;  // NT_GNU_BUILD_ID
  const auto elf = base::Elf::parse(bytes);
  if (!elf) return {};
  std::string id;
  for (const base::ElfNote& note : elf->notes()) {
    if (note.type != kBuildId || note.name != "GNU") continue;
    for (const char byte : note.descriptor)
      id += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    break;
  }
  return id;
}

}  // namespace

std::string file_identity(const std::string& path) {
  const base::MappedFile file(path);
  if (file.bytes().empty()) return {};
  std::string id = build_id(file.bytes());
  return id.empty() ? hash_of(file.bytes()) : id;
}

std::string identity_of_all(const std::vector<std::string>& paths) {
  std::vector<std::string> identities;
  for (const std::string& path : paths) {
    identities.push_back(file_identity(path));
    if (identities.back().empty()) return {};
  }
  std::sort(identities.begin(), identities.end());
  return hash_of(fmt::format("{}", fmt::join(identities, "\n")));
}

std::string file_stamp(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "absent";
  return fmt::format("{}:{}:{}.{:09}:{}.{:09}", status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                     status.st_ctim.tv_nsec);
}

// A file system's clock ticks in milliseconds, or in seconds.
bool changed_just_now(const std::string& path) {
  constexpr std::time_t kCoarsestTick = 2;
  struct stat status {};
  return stat(path.c_str(), &status) == 0 &&
         status.st_ctim.tv_sec + kCoarsestTick >= std::time(nullptr);
}

}  // namespace kiln::jit
