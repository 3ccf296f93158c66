// See atomic_file.hpp.
#include "base/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace kiln::base {
namespace {

constexpr int kMostNames = 16;  // that are tried

/// The directory in front of a name, with its slash; empty for a name alone.
std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

/// A file that the system removes however the process ends; none where the file system cannot do
/// that, or where it could not be named later. `directory` ends in a slash or is empty.
UniqueFd open_unnamed(Io& io, int at, const std::string& directory, mode_t mode) {
  if (::access("/proc/self/fd", X_OK) != 0) return {};
  return open_at(io, at, directory + ".", O_RDWR | O_TMPFILE, mode);
}

/// A new file of a temporary name. `directory` ends in a slash or is empty.
UniqueFd create_temporary(Io& io, int at, const std::string& directory, mode_t mode,
                          std::string& name) {
  UniqueFd fd;
  for (int i = 0; !fd && i < kMostNames; ++i) {
    name = directory + temporary_name(io);
    fd = open_at(io, at, name, O_RDWR | O_CREAT | O_EXCL, mode);
    if (!fd && errno != EEXIST) break;
  }
  return fd;
}

}  // namespace

std::string temporary_name(Io& io) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}{}-{:x}-{}", kTemporaryPrefix, ::getpid(), io.now(), counter++);
}

UniqueFd open_scratch(Io& io, const std::string& directory) {
  const std::string parent = directory + "/";
  UniqueFd fd = open_unnamed(io, AT_FDCWD, parent, 0600);
  if (fd) return fd;
  std::string name;
  fd = create_temporary(io, AT_FDCWD, parent, 0600, name);
  if (fd) io.unlink_at(AT_FDCWD, name.c_str(), 0);
  return fd;
}

AtomicFile::AtomicFile(Io& io, int directory, std::string name, Options options)
    : io_(io), directory_(directory), name_(std::move(name)), options_(options) {
  create();
}

void AtomicFile::create() {
  const std::string parent = directory_of(name_);
  if (options_.unnamed) fd_ = open_unnamed(io_, directory_, parent, options_.mode);
  if (fd_) return;
  fd_ = create_temporary(io_, directory_, parent, options_.mode, temporary_);
  named_ = static_cast<bool>(fd_);
  if (!named_) fail();
}

AtomicFile::~AtomicFile() {
  if (named_) io_.unlink_at(directory_, temporary_.c_str(), 0);
}

bool AtomicFile::fail() {
  error_ = errno;
  return false;
}

bool AtomicFile::write(std::string_view bytes) {
  if (error_ != 0) return false;
  return write_bytes(io_, fd_.get(), bytes) || fail();
}

bool AtomicFile::commit() {
  if (error_ != 0) return false;
  if (options_.sync && !sync_file(io_, fd_.get())) return fail();
  if (named_) {
    // Some file systems say only now that the disk is full.
    if (!fd_.close()) return fail();
  } else {
    // A link cannot replace a file, a rename can; nothing comes between them.
    const std::string from = fmt::format("/proc/self/fd/{}", fd_.get());
    temporary_ = directory_of(name_) + temporary_name(io_);
    named_ = io_.link_at(AT_FDCWD, from.c_str(), directory_, temporary_.c_str()) == 0;
    if (!named_) return fail();
  }
  if (io_.rename_at(directory_, temporary_.c_str(), directory_, name_.c_str()) != 0) return fail();
  named_ = false;
  return true;
}

}  // namespace kiln::base
