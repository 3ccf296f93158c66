#include "kernel/target.hpp"

#include <charconv>

#include "jit/toolchain/toolchain.hpp"

namespace kiln {
namespace {

// 0: not NVIDIA's.
int compute_capability(std::string_view target) {
  constexpr std::string_view kPrefix = "sm_";
  int number = 0;
  if (target.starts_with(kPrefix)) {
    std::from_chars(target.data() + kPrefix.size(), target.data() + target.size(), number);
  }
  return number;
}

}  // namespace

std::string resolve_target(std::string_view target) {
  return target == "cpu" ? jit::host_target() : std::string(target);
}

fusion::Backend backend_of(std::string_view target) {
  switch (jit::toolchain_for(target)) {
    case jit::ToolchainKind::hiprtc: return fusion::Backend::amd;
    case jit::ToolchainKind::nvrtc: return fusion::Backend::nvidia;
    case jit::ToolchainKind::host: return fusion::Backend::host;
  }
  return fusion::Backend::host;
}

// From 9.0 to 10.3 multiprocessors have 228 KiB of shared memory; the others that have clusters
// have 100 KiB.
TargetFeatures features_of(std::string_view target) {
  const int capability = compute_capability(target);
  return {backend_of(target),
          capability >= 80,
          capability >= 90,
          {capability >= 90, capability >= 90 && capability < 110}};
}

}  // namespace kiln
