// A private directory for temporary files, removed with everything in it.
#pragma once

#include <string>
#include <string_view>

namespace kiln::base {

class TemporaryDirectory {
 public:
  /// Makes a directory of mode 0700 with a name that starts with `prefix`, under the
  /// directory of use_temporary_parent(), else $TMPDIR, if that is a directory to write in, else
  /// /tmp, /var/tmp or /dev/shm. Throws Error(io) when none of them is.
  explicit TemporaryDirectory(std::string_view prefix);
  /// Makes such a directory under `parent`. Throws Error(io) when it cannot.
  TemporaryDirectory(const std::string& parent, std::string_view prefix);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// Writes a new file and gives its path. Throws Error(io).
  std::string write(std::string_view name, std::string_view bytes) const;

 private:
  std::string path_;
};

/// Where this process makes its temporary directories. Not thread-safe: to be called first.
void use_temporary_parent(std::string directory);

/// Throws Error(io).
std::string read_whole_file(const std::string& path);

}  // namespace kiln::base
