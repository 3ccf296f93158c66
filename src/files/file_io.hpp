// Reading and replacing regular files that the user named, with messages that say which file and
// why.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/atomic_file.hpp"
#include "kiln/error.hpp"

namespace kiln::files {

/// A regular file, open for reading. Links are followed; directories, pipes and devices are
/// refused, because a size is needed to know what can be true.
class InputFile {
 public:
  explicit InputFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Fills `to` from `offset` on; a file that became shorter meanwhile is Error(io).
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  /// Up to `size` bytes from the start.
  std::string head(std::uint64_t size) const;

 private:
  std::string path_;
  base::UniqueFd fd_;
  std::uint64_t size_ = 0;
};

/// A file that appears under its name when commit() is called, and otherwise leaves no trace. A
/// link is followed, so that what it points to is replaced.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;  ///< as given, for messages
  std::optional<base::AtomicFile> file_;
};

}  // namespace kiln::files
