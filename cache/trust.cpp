#include "cache/trust.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace kiln::cache {
namespace {

constexpr mode_t kPrivateDirectory = 0700;

std::string distrust_parent(const struct stat& status) {
  if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0) {
    return fmt::format("may be written by anybody (mode {:04o}) and is not sticky",
                       status.st_mode & 07777);
  }
  return {};
}

base::UniqueFd step(base::Io& io, int parent, const char* name, bool last, bool create) {
  // O_PATH for parents: being allowed to pass through is enough.
  const int flags = O_DIRECTORY | (last ? O_RDONLY : O_PATH);
  base::UniqueFd next = base::open_at(io, parent, name, flags);
  if (next || errno != ENOENT || !create) return next;
  if (io.make_directory_at(parent, name, kPrivateDirectory) != 0 && errno != EEXIST) return {};
  return base::open_at(io, parent, name, flags);
}

}  // namespace

std::string distrust(const struct stat& status) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return fmt::format("is owned by uid {}, expected {} or root", status.st_uid, ::geteuid());
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format("may be written by others (mode {:04o})", status.st_mode & 07777);
  }
  return {};
}

Opened open_trusted(base::Io& io, const std::string& path, bool create) {
  const auto refuse = [](Opened::State state, const std::string& at, const std::string& reason) {
    return Opened{state, {}, fmt::format("{}: {}", at, reason)};
  };
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  if (error) return refuse(Opened::State::failed, path, error.message());
  if (!resolved.is_absolute()) {
    return refuse(Opened::State::failed, path, "is not an absolute path");
  }
  base::UniqueFd at = base::open_at(io, AT_FDCWD, "/", O_DIRECTORY | O_PATH);
  std::filesystem::path so_far = "/";
  const std::filesystem::path relative = resolved.relative_path();
  struct stat status = {};
  for (auto name = relative.begin(); at && name != relative.end(); ++name) {
    if (io.stat(at.get(), status) != 0) {
      return refuse(Opened::State::failed, so_far, base::describe_errno(errno));
    }
    if (const std::string reason = distrust_parent(status); !reason.empty()) {
      return refuse(Opened::State::untrusted, so_far, reason);
    }
    so_far /= *name;
    at = step(io, at.get(), name->c_str(), std::next(name) == relative.end(), create);
  }
  if (!at || io.stat(at.get(), status) != 0) {
    const auto state = errno == ENOENT && !create ? Opened::State::missing : Opened::State::failed;
    return refuse(state, so_far, base::describe_errno(errno));
  }
  if (const std::string reason = distrust(status); !reason.empty()) {
    return refuse(Opened::State::untrusted, so_far, reason);
  }
  return {Opened::State::open, std::move(at), {}};
}

}  // namespace kiln::cache
