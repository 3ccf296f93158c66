// What a file is, by its contents, and how to tell that it has not changed since. The first goes
// into keys, which machines share; the second is this machine's own.
#pragma once

#include <string>
#include <vector>

namespace kiln::jit {

/// The build-id of an ELF file that has one, else the hash of its bytes: the same wherever the file
/// lies and whenever it was written. Empty if it cannot be read.
std::string file_identity(const std::string& path);

/// The contents of several files as one, in whatever order: 32 hex digits. Empty if one of them
/// cannot be read.
std::string identity_of_all(const std::vector<std::string>& paths);

/// Size, times and inode of a file or directory; "absent" if there is none. Another stamp, other
/// contents, or other names in the directory.
std::string file_stamp(const std::string& path);

/// Whether the file changed so lately that it could change again and keep its stamp.
bool changed_just_now(const std::string& path);

}  // namespace kiln::jit
