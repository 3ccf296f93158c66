// See target_knowledge.hpp.
#include "jit/service/target_knowledge.hpp"

#include "jit/toolchain/toolchain_cache.hpp"

namespace kiln::jit {

// A toolchain without an identity is known by its path, for this process only.
TargetKnowledge::Known& TargetKnowledge::known(const Toolchain& toolchain) {
  const std::string& key = toolchain.identity.empty() ? toolchain.path : toolchain.identity;
  const auto found = by_toolchain_.find(key);
  if (found != by_toolchain_.end()) return found->second;
  Known remembered;
  if (!toolchain.identity.empty())
    remembered = ToolchainCache(directory_).targets(toolchain.identity);
  return by_toolchain_.emplace(key, std::move(remembered)).first->second;
}

std::optional<bool> TargetKnowledge::lookup(const Toolchain& toolchain, const std::string& target) {
  const std::lock_guard lock(mutex_);
  const Known& targets = known(toolchain);
  const auto found = targets.find(target);
  return found != targets.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<bool> TargetKnowledge::find_out(const Toolchain& toolchain, const std::string& target,
                                              const std::function<std::optional<bool>()>& probe) {
  const std::pair key(toolchain.path, target);
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return !in_progress_.contains(key); });
    const Known& targets = known(toolchain);
    if (const auto found = targets.find(target); found != targets.end()) return found->second;
    in_progress_.insert(key);
  }
  std::optional<bool> found;
  try {
    found = probe();
  } catch (...) {  // whoever waits tries it too
    const std::lock_guard lock(mutex_);
    in_progress_.erase(key);
    done_.notify_all();
    throw;
  }
  const std::lock_guard lock(mutex_);
  in_progress_.erase(key);
  done_.notify_all();
  if (found) {
    known(toolchain)[target] = *found;
    if (!toolchain.identity.empty())
      ToolchainCache(directory_).remember_targets(toolchain.identity, {{target, *found}});
  }
  return found;
}

void TargetKnowledge::learn(const Toolchain& toolchain, const std::string& target) {
  const std::lock_guard lock(mutex_);
  known(toolchain)[target] = true;
}

void TargetKnowledge::keep(const Toolchain& toolchain) {
  const std::lock_guard lock(mutex_);
  if (!toolchain.identity.empty()) {
    ToolchainCache(directory_).remember_targets(toolchain.identity, known(toolchain));
  }
}

CompileRequest probe_request(const Toolchain& toolchain, const std::string& target) {
  CompileRequest request;
  request.function = "probe";
  request.entry = "kiln_probe";
  request.source = "extern \"C\" __global__ void kiln_probe(int* out) { *out = 1; }\n";
  request.target = target;
  request.options = compile_options(target, false);
  request.toolchain = toolchain.path;
  return request;
}

std::vector<std::string> sure_targets(ToolchainKind kind) {
  switch (kind) {
    case ToolchainKind::hiprtc: return {"gfx906", "gfx1030"};
    case ToolchainKind::nvrtc: return {"sm_80", "sm_90"};
    case ToolchainKind::host: break;
  }
  return {host_target()};
}

std::optional<bool> knows_target(
    const std::string& target, const std::vector<std::string>& others,
    const std::function<std::optional<bool>(const std::string&)>& probe) {
  const auto found = probe(target);
  if (found != false) return found;
  for (const std::string& other : others) {
    if (other != target && probe(other) == true) return probe(target);
  }
  return std::nullopt;
}

const std::vector<std::string>& well_known_amd_targets() {
  static const auto* const targets = new std::vector<std::string>{
      "gfx900",  "gfx906",  "gfx908",  "gfx90a",  "gfx90c",  "gfx940",  "gfx941",
      "gfx942",  "gfx950",  "gfx1010", "gfx1012", "gfx1030", "gfx1031", "gfx1032",
      "gfx1033", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102",
      "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1200", "gfx1201"};
  return *targets;
}

}  // namespace kiln::jit
