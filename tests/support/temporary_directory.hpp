// A directory of a test's own, removed with it, and the files in it.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/temporary.hpp"

namespace kiln::testing {

/// The bytes of a file; none if it cannot be read.
inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() : directory_("kiln-test") {}
  explicit TemporaryDirectory(const std::string& parent) : directory_(parent, "kiln-test") {}

  /// Of the directory, or of a name in it.
  std::string path(std::string_view name = {}) const {
    return name.empty() ? directory_.path() : directory_.path() + "/" + std::string(name);
  }
  /// Writes a file and gives its path.
  std::string put(std::string_view name, std::string_view bytes) const {
    return directory_.write(name, bytes);
  }

 private:
  base::TemporaryDirectory directory_;
};

}  // namespace kiln::testing
