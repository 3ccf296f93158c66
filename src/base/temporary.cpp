// See temporary.hpp.
#include "base/temporary.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/environment.hpp"
#include "base/io.hpp"
#include "kiln/error.hpp"

namespace kiln::base {
namespace {

std::string& temporary_parent() {
  static auto* const parent = new std::string;
  return *parent;
}

/// Empty, errno: it cannot be made.
std::string make_directory(const std::string& parent, std::string_view prefix) {
  std::string path = fmt::format("{}/{}-XXXXXX", parent, prefix);
  return mkdtemp(path.data()) != nullptr ? path : std::string();
}

}  // namespace

void use_temporary_parent(std::string directory) { temporary_parent() = std::move(directory); }

TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
  std::string reasons;
  for (const std::string& parent : {temporary_parent(), environment("TMPDIR"), std::string("/tmp"),
                                    std::string("/var/tmp"), std::string("/dev/shm")}) {
    if (!parent.starts_with('/')) continue;
    if (path_ = make_directory(parent, prefix); !path_.empty()) return;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", parent, describe_errno(errno));
  }
  throw Error(Code::io, fmt::format("no directory for temporary files ({})", reasons));
}

TemporaryDirectory::TemporaryDirectory(const std::string& parent, std::string_view prefix) {
  path_ = make_directory(parent, prefix);
  if (!path_.empty()) return;
  throw Error(Code::io, fmt::format("no directory for temporary files ({}: {})", parent,
                                    describe_errno(errno)));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // nothing can be done about what cannot be removed
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryDirectory::write(std::string_view name, std::string_view bytes) const {
  std::string path = fmt::format("{}/{}", path_, name);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw Error(Code::io, fmt::format("cannot write {}: {}", path, describe_errno(errno)));
  return path;
}

std::string read_whole_file(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Error(Code::io, fmt::format("cannot read {}", path));
  return std::move(text).str();
}

}  // namespace kiln::base
