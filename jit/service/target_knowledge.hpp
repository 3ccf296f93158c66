// Which targets a toolchain can compile for: found by trying, at most once at a time, and stored in
// the toolchain cache under the toolchain's identity.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jit/service/compile.hpp"

namespace kiln::jit {

class TargetKnowledge {
 public:
  /// `directory` as ToolchainCache takes it.
  explicit TargetKnowledge(std::string directory) : directory_(std::move(directory)) {}

  /// Nothing if it has not been found out yet.
  std::optional<bool> lookup(const Toolchain& toolchain, const std::string& target);

  /// lookup(), or else what `probe` finds, which may be nothing; a second caller waits for the
  /// first. Only what was found is stored.
  std::optional<bool> find_out(const Toolchain& toolchain, const std::string& target,
                               const std::function<std::optional<bool>()>& probe);

  /// What a successful compile shows. Not written to the file at once: only refusals save time
  /// there.
  void learn(const Toolchain& toolchain, const std::string& target);
  /// Writes everything known of the toolchain to the file.
  void keep(const Toolchain& toolchain);

 private:
  using Known = std::map<std::string, bool>;
  Known& known(const Toolchain& toolchain);

  const std::string directory_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::map<std::string, Known> by_toolchain_;
  std::set<std::pair<std::string, std::string>> in_progress_;
};

/// A kernel that every compiler takes for every target that it knows.
CompileRequest probe_request(const Toolchain& toolchain, const std::string& target);

/// Targets of which every release of such a toolchain knows at least one.
std::vector<std::string> sure_targets(ToolchainKind kind);

/// Whether the toolchain knows `target`, by `probe`, which gives whether the smallest kernel
/// compiles for a target, or nothing where that is not known. Only a target that is refused before
/// and after one of `others` compiles is unknown: a compiler without a directory for its temporary
/// files, say, refuses all of them.
std::optional<bool> knows_target(
    const std::string& target, const std::vector<std::string>& others,
    const std::function<std::optional<bool>(const std::string&)>& probe);

/// The AMD processors that known_targets() tries, in the order in which it lists them.
const std::vector<std::string>& well_known_amd_targets();

}  // namespace kiln::jit
