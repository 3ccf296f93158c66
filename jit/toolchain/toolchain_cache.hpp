// What the service has found out about compilers and wants to keep: which targets they know, and
// what a host compiler calls itself. One small JSON file in the cache directory; losing it costs
// time only.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace kiln::jit {

/// Reads the file when made and writes it, whole and by rename, on every change. An empty
/// directory, or one that cannot be written, remembers nothing, which is logged once.
class Memory {
 public:
  explicit Memory(const std::string& directory);

  std::optional<std::string> compiler_version(const std::string& stamp) const;
  void remember_compiler_version(const std::string& stamp, const std::string& version);

  /// By target: whether the toolchain of that identity can compile for it.
  std::map<std::string, bool> targets(const std::string& identity) const;
  void remember_targets(const std::string& identity, const std::map<std::string, bool>& targets);

 private:
  struct Content {
    std::map<std::string, std::string> versions;
    std::map<std::string, std::map<std::string, bool>> targets;
  };
  static Content read(const std::string& path);
  void write() const;

  std::string directory_;
  std::string path_;
  Content content_;
};

}  // namespace kiln::jit
