// What is known of compilers, for the next process: their identities, and which targets they know.
// One small JSON file, toolchains.json, in the cache directory; losing it costs time only.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace kiln::jit {

/// Reads the file when made and writes it, whole and by rename, on every change, both by the
/// cache's rules of trust (cache/trust.hpp). Ill-formed content is ignored, which is logged once,
/// and replaced by the next change. An empty directory, or one that is not trusted or cannot be
/// written, stores nothing.
class ToolchainCache {
 public:
  explicit ToolchainCache(std::string directory);

  struct Compiler {
    std::string version;
    std::string identity;
  };
  /// What is stored of the compiler that `name` stands for, if none of the files and directories
  /// has changed that it was derived from.
  std::optional<Compiler> compiler(const std::string& name) const;
  /// `evidence` is what file_stamp() gave for each path before it was looked at. Does nothing for
  /// an empty identity: why there is none may be over before any of the files changes.
  void remember_compiler(const std::string& name, const Compiler& compiler,
                         const std::map<std::string, std::string>& evidence);

  /// By target: whether the toolchain of that identity can compile for it.
  std::map<std::string, bool> targets(const std::string& identity) const;
  void remember_targets(const std::string& identity, const std::map<std::string, bool>& targets);

 private:
  struct Remembered {
    Compiler compiler;
    std::map<std::string, std::string> evidence;
  };
  struct Content {
    std::map<std::string, Remembered> compilers;
    std::map<std::string, std::map<std::string, bool>> targets;
  };
  Content read() const;
  static Content parse(const std::string& text);
  static std::string text_of(const Content& content);
  void write() const;

  std::string directory_;
  std::string path_;
  Content content_;
};

}  // namespace kiln::jit
