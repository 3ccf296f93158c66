#include "files/file_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

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

InputFile::InputFile(const std::string& path)
    : path_(path),
      // Not blocking, so that a pipe without a writer does not hold the program.
      fd_(base::open_file(base::system_io(), path, O_RDONLY | O_NONBLOCK)) {
  if (!fd_) {
    const int error = errno;
    throw Error(error == ENOENT || error == ENOTDIR ? Code::not_found : Code::io,
                fmt::format("read {}: {}", path, base::describe_errno(error)));
  }
  struct stat status {};
  const bool known = ::fstat(fd_.get(), &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    throw Error(Code::io, fmt::format("read {}: expected a regular file, it is {}", path,
                                      known ? kind_of(status.st_mode) : "unreadable"));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  std::size_t count = 0;
  if (!base::read_bytes(base::system_io(), fd_.get(), offset, to, count)) {
    throw Error(Code::io, fmt::format("read {}: {}", path_, base::describe_errno(errno)));
  }
  if (count < to.size()) {
    throw Error(Code::io, fmt::format("read {}: the file became shorter while it was read", path_));
  }
}

std::string InputFile::head(std::uint64_t size) const {
  std::string result(std::min(size, size_), '\0');
  read(0, std::as_writable_bytes(std::span(result)));
  return result;
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  const std::string target = resolve(path);
  struct stat status {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    throw Error(Code::io, fmt::format("write {}: expected a regular file or a new one, it is {}",
                                      path, kind_of(status.st_mode)));
  }
  if (exists && ::access(target.c_str(), W_OK) != 0) fail(errno);
  file_.emplace(base::system_io(), AT_FDCWD, target,
                base::AtomicFile::Options{.mode = exists ? status.st_mode & 0777 : 0666});
  if (file_->error() != 0) fail(file_->error());
}

void OutputFile::fail(int error) const {
  throw Error(Code::io, fmt::format("write {}: {}", path_, base::describe_errno(error)));
}

void OutputFile::write(std::string_view text) {
  if (!file_->write(text)) fail(file_->error());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void OutputFile::commit() {
  if (!file_->commit()) fail(file_->error());
}

}  // namespace kiln::files
