// See temporary.hpp.
#include "base/temporary.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/environment.hpp"
#include "kiln/error.hpp"

namespace kiln::base {
namespace {

std::string& temporary_parent() {
  static std::string parent;
  return parent;
}

}  // namespace

void use_temporary_parent(std::string directory) { temporary_parent() = std::move(directory); }

TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
  std::string reasons;
  for (const std::string& parent : {temporary_parent(), environment("TMPDIR"), std::string("/tmp"),
                                    std::string("/var/tmp"), std::string("/dev/shm")}) {
    if (!parent.starts_with('/')) continue;
    std::string path = fmt::format("{}/{}-XXXXXX", parent, prefix);
    if (mkdtemp(path.data()) != nullptr) {
      path_ = path;
      return;
    }
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", parent, std::strerror(errno));
  }
  throw Error(Code::io, fmt::format("no directory for temporary files ({})", reasons));
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
  if (!file) throw Error(Code::io, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
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
