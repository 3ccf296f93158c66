// See toolchain_cache.hpp.
#include "jit/toolchain/toolchain_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

// The file's text, if it is a regular file of this user's: others must not decide what is
// supported.
std::string read_own_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return {};
  std::string text;
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && status.st_size < (1 << 22)) {
    text.resize(static_cast<std::size_t>(status.st_size));
    const ssize_t got = ::read(fd, text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  close(fd);
  return text;
}

bool write_and_rename(const std::string& path, const std::string& text) {
  std::string temporary = path + ".XXXXXX";
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool closed = close(fd) == 0;
  if (written && closed && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  unlink(temporary.c_str());
  return false;
}

}  // namespace

Memory::Memory(const std::string& directory) : directory_(directory) {
  if (directory_.empty()) return;
  path_ = directory_ + "/toolchains.json";
  content_ = read(path_);
}

Memory::Content Memory::read(const std::string& path) {
  Content content;
  const auto json = nlohmann::json::parse(read_own_file(path), nullptr, false);
  try {
    if (!json.is_object() || json.value("format", 0) != 1) return content;
    json.at("versions").get_to(content.versions);
    json.at("targets").get_to(content.targets);
  } catch (const nlohmann::json::exception&) {
    return {};  // damaged: found out again
  }
  return content;
}

void Memory::write() const {
  if (path_.empty()) return;
  std::error_code error;
  if (std::filesystem::create_directories(directory_, error)) chmod(directory_.c_str(), 0700);
  const nlohmann::json json = {
      {"format", 1}, {"versions", content_.versions}, {"targets", content_.targets}};
  if (error || !write_and_rename(path_, json.dump(1))) {
    log_once(
        LogLevel::info, "jit.memory " + path_,
        fmt::format("{} cannot be written ({}): what is found out about compilers is found out "
                    "again by every process",
                    path_, std::strerror(errno)));
  }
}

std::optional<std::string> Memory::compiler_version(const std::string& stamp) const {
  const auto found = content_.versions.find(stamp);
  return found != content_.versions.end() ? std::optional(found->second) : std::nullopt;
}

void Memory::remember_compiler_version(const std::string& stamp, const std::string& version) {
  content_ = read(path_);  // what others wrote since
  content_.versions[stamp] = version;
  write();
}

std::map<std::string, bool> Memory::targets(const std::string& identity) const {
  const auto found = content_.targets.find(identity);
  return found != content_.targets.end() ? found->second : std::map<std::string, bool>{};
}

void Memory::remember_targets(const std::string& identity,
                              const std::map<std::string, bool>& targets) {
  content_ = read(path_);
  for (const auto& [target, known] : targets) content_.targets[identity][target] = known;
  write();
}

}  // namespace kiln::jit
