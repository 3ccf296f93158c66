// Whom the cache believes. A code object is code: a directory or file that somebody else could have
// written is not used, and the message says which path and why.
//
// The rule: the cache directory and everything in it is owned by the user or root and writable by
// nobody else, and no symlink is followed inside it. Above it symlinks are resolved once, and a
// parent that anybody may write into must be sticky (as /tmp is); whoever can still exchange a
// parent cannot make files that are owned by the user, so they gain nothing.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/io.hpp"

namespace kiln::cache {

/// Why a file or directory of that status is not trusted; empty if it is. Says nothing about its
/// type.
std::string distrust(const struct stat& status);

struct Opened {
  enum class State : std::uint8_t {
    open,
    missing,    ///< it does not exist, and `create` was false
    failed,     ///< a system call failed; another time it may not
    untrusted,  ///< by the rule above
  };
  State state = State::failed;
  base::UniqueFd directory;
  std::string reason;  ///< why there is none, with the path
};

/// Opens the directory at absolute `path` by the rule above; with `create` makes it and its missing
/// parents, for the user only.
Opened open_trusted(base::Io& io, const std::string& path, bool create);

}  // namespace kiln::cache
