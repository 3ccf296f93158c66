#include "files/file_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

namespace kiln::files {
namespace {

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// The path behind links, so that a rename replaces the file and not the link. Also for a link whose
// target is not there yet.
std::string resolve(const std::string& path) {
  if (char* resolved = ::realpath(path.c_str(), nullptr)) {
    std::string result = resolved;
    std::free(resolved);
    return result;
  }
  char link[4096];
  const ssize_t length = ::readlink(path.c_str(), link, sizeof link);
  if (length <= 0 || static_cast<std::size_t>(length) == sizeof link) return path;
  std::string target(link, static_cast<std::size_t>(length));
  if (target.front() != '/') target = path.substr(0, path.rfind('/') + 1) + target;
  return target;
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // Not blocking, so that a pipe without a writer does not hold the program.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    const int error = errno;
    throw Error(error == ENOENT || error == ENOTDIR ? Code::not_found : Code::io,
                fmt::format("read {}: {}", path, std::strerror(error)));
  }
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw Error(Code::io, fmt::format("read {}: expected a regular file, it is {}", path,
                                      known ? kind_of(status.st_mode) : std::strerror(errno)));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(Code::io, fmt::format("read {}: {}", path_, std::strerror(errno)));
    if (count == 0) {
      throw Error(Code::io,
                  fmt::format("read {}: the file became shorter while it was read", path_));
    }
    to = to.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string InputFile::head(std::uint64_t size) const {
  std::string result(std::min(size, size_), '\0');
  read(0, std::as_writable_bytes(std::span(result)));
  return result;
}

OutputFile::OutputFile(const std::string& path) : path_(path), target_(resolve(path)) {
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    throw Error(Code::io, fmt::format("write {}: expected a regular file or a new one, it is {}",
                                      path, kind_of(status.st_mode)));
  }
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail(errno);
  const std::size_t slash = target_.rfind('/');
  const std::string directory = slash == target_.npos ? "" : target_.substr(0, slash + 1);
  std::random_device random;
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = fmt::format("{}.kiln-{:08x}.tmp", directory, random());
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                         exists ? status.st_mode & 0777 : 0666);
    if (descriptor_ < 0 && (errno != EEXIST || attempt == 16)) {
      temporary_.clear();
      fail(errno);
    }
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(int error) const {
  throw Error(Code::io, fmt::format("write {}: {}", path_, std::strerror(error)));
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::commit() {
  // Some file systems report a full disk only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

}  // namespace kiln::files
