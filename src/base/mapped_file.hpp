// A file mapped for reading: for looking into libraries of a hundred megabytes without reading
// them.
#pragma once

#include <string>
#include <string_view>

namespace kiln::base {

class MappedFile {
 public:
  /// Empty if the file cannot be mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace kiln::base
