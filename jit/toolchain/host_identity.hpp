// Which compiler a host compiler's driver is: the driver is a small part of it. The programs that
// it starts, the shared libraries behind each, and what it links into a kernel are found by asking
// it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kiln::jit {

struct HostCompilerIdentity {
  std::string version;   ///< what --version prints
  std::string identity;  ///< by contents; empty if part of the compiler cannot be found
  /// Files, and directories in which parts are searched for, absent ones among them, with the
  /// stamps that they had before they were looked at: as long as none changes, the rest is true.
  std::map<std::string, std::string> evidence;
  bool settled = true;  ///< none of it is so new that it could change and keep its stamp
};

/// Asks the driver at `path`, which takes some dozens of milliseconds. Nothing if it does not
/// answer to --version.
std::optional<HostCompilerIdentity> identify_host_compiler(const std::string& path);

}  // namespace kiln::jit
