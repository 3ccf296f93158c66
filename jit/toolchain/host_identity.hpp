// Which compiler a host compiler's driver is: the driver is a small part of it. The programs that
// it starts, the shared libraries behind each, and what it links into a kernel are found by asking
// it.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/subprocess.hpp"

namespace kiln::jit {

struct HostCompilerIdentity {
  std::string version;  ///< what --version prints
  /// By contents. Empty if the compiler does not name all that it starts, or part of it cannot be
  /// found or read, which may be over the next time.
  std::string identity;
  /// Files, and directories in which parts are searched for, absent ones among them, with the
  /// stamps that they had before they were looked at: as long as none changes, the rest is true.
  std::map<std::string, std::string> evidence;
  bool settled = true;  ///< none of it is so new that it could change and keep its stamp
};

/// Asks the driver at `path`, which takes some dozens of milliseconds; each question has that
/// deadline. Throws Error(not_found) with how it ended and what it printed if it does not answer to
/// --version.
HostCompilerIdentity identify_host_compiler(
    const std::string& path, std::chrono::milliseconds deadline = base::kProbeDeadline);

}  // namespace kiln::jit
