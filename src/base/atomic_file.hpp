// Files that others must never see half written, and files without a name.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/io.hpp"

namespace kiln::base {

/// A file that is under its name whole, or not at all: written under a temporary name in the same
/// directory, which commit() renames to the final one. Without commit() it leaves no trace, unless
/// the process is killed.
class AtomicFile {
 public:
  struct Options {
    mode_t mode = 0600;  ///< less the umask
    /// commit() waits until the bytes are on the disk: see sync_file().
    bool sync = false;
    /// Written without any name where the file system can do that, so that nothing is left of it
    /// however the process ends. To be used with `sync`: it is not closed before it is renamed.
    bool unnamed = false;
  };
  /// Will replace `name` in `directory`; with AT_FDCWD it is a path. Symbolic links are replaced,
  /// not followed. If it cannot be made, write() and commit() fail with the reason.
  AtomicFile(Io& io, int directory, std::string name, Options options);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Why it could not be made, written or committed, as an errno; 0 while nothing has failed.
  int error() const { return error_; }
  const UniqueFd& fd() const { return fd_; }
  /// Appends. False: see error().
  bool write(std::string_view bytes);
  /// False: see error().
  bool commit();

 private:
  void create();
  bool fail();

  Io& io_;
  const int directory_;
  const std::string name_;
  const Options options_;
  std::string temporary_;
  bool named_ = false;  ///< there is a file of the temporary name
  UniqueFd fd_;
  int error_ = 0;
};

/// An empty file without a name, to be written and read, on the file system of `directory`, a path.
/// Empty, errno: there can be none.
UniqueFd open_scratch(Io& io, const std::string& directory);

/// How the names of temporary files start.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";
/// A name for a temporary file that is most unlikely to be there, also on file systems that
/// machines share.
std::string temporary_name(Io& io);

}  // namespace kiln::base
