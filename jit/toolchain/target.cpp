// Targets: which toolchain makes code for one, the options it is compiled with, and the host's own
// feature set as a target. No compiler is run here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "jit/toolchain/host_features.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

std::string contraction(bool contract, const char* on, const char* off) {
  return contract ? on : off;
}

// -ffp-contract=fast of HIP 6 and later contracts the compiler's library too, whose functions of
// f64 rely on every rounding: KILN_CONTRACT asks the source to do it for its own code.
std::vector<std::string> hiprtc_options(std::string_view target, bool contract) {
  std::vector<std::string> options = {
      fmt::format("--offload-arch={}", target), "-O3", "-std=c++17",
      contraction(contract, "-ffp-contract=on", "-ffp-contract=off")};
  if (contract) options.emplace_back("-DKILN_CONTRACT=1");
  // gfx11: a load of 16 bits into one half of a register may change the other half while it is on
  // its way. LLVM 21, which uses halves as registers of their own, does not wait for it, and later
  // ones wait for two loads where one would do. LLVM before 18 warns of the name and ignores it.
  if (target.starts_with("gfx11")) {
    for (const char* option : {"-Xclang", "-target-feature", "-Xclang", "-real-true16"}) {
      options.emplace_back(option);
    }
  }
  return options;
}

std::vector<std::string> nvrtc_options(std::string_view target, bool contract) {
  return {fmt::format("--gpu-architecture={}", target),
          "-std=c++17",
          contraction(contract, "--fmad=true", "--fmad=false"),
          "--prec-div=true",
          "--prec-sqrt=true",
          "--ftz=false",
          "-default-device"};
}

// No -ffast-math and nothing of its family that changes a value: NaN, -0 and subnormals are kept.
// -fno-trapping-math only says that nobody reads the exception flags.
std::vector<std::string> host_options(std::string_view target, bool contract) {
  std::vector<std::string> options = {"-x", "c++", "-std=c++17", "-O3"};
  for (std::string& option : host_target_options(target)) options.push_back(std::move(option));
  for (const char* option :
       {"-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fno-exceptions", "-fno-rtti",
        "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fPIC", "-shared",
        "-nostartfiles", "-nodefaultlibs", "-w"}) {
    options.emplace_back(option);
  }
  options.push_back(contraction(contract, "-ffp-contract=fast", "-ffp-contract=off"));
  return options;
}

}  // namespace

std::string_view name(ToolchainKind kind) {
  switch (kind) {
    case ToolchainKind::hiprtc: return "hiprtc";
    case ToolchainKind::nvrtc: return "nvrtc";
    case ToolchainKind::host: return "host";
  }
  return "unknown";
}

ToolchainKind toolchain_for(std::string_view target) {
  // Targets end up in command lines and file names.
  const bool clean = std::all_of(target.begin(), target.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_.:,+-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (clean && target.starts_with("gfx") && target.size() > 3) return ToolchainKind::hiprtc;
  if (clean && target.starts_with("sm_") && target.size() > 3) return ToolchainKind::nvrtc;
  if (clean && (target == "cpu" || is_host_target(target))) return ToolchainKind::host;
  throw Error(
      Code::invalid_argument,
      fmt::format("target '{}': expected an AMD processor (gfx90a, gfx1100:xnack-), an NVIDIA "
                  "architecture (sm_90), cpu, or a feature set such as {}",
                  target, host_target()));
}

std::vector<std::string> compile_options(std::string_view target, bool contract) {
  switch (toolchain_for(target)) {
    case ToolchainKind::hiprtc: return hiprtc_options(target, contract);
    case ToolchainKind::nvrtc: return nvrtc_options(target, contract);
    case ToolchainKind::host: break;
  }
  return host_options(target == "cpu" ? std::string_view(host_target()) : target, contract);
}

// LLVM allocates scalar registers before vector registers. Where the first run short, copies of
// them can come to stand at the head of a block in which divergent control flow joins, before the
// lanes that took another path are enabled again; the allocator of vector registers then does not
// know the head for what it is (llvm-project#117544) and may put its own copies there, which reach
// some of the lanes only. The basic allocator moves no live range to the head of a block: it puts
// nothing but spills and reloads into the code, each next to the instruction that needs it.
std::vector<std::string> scarce_register_options(std::string_view target) {
  if (toolchain_for(target) != ToolchainKind::hiprtc) return {};
  return {"-mllvm", "-vgpr-regalloc=basic"};
}

// LLVM 22 (HIP 7.2) crashes while it selects instructions for some pairs of floats on gfx90a,
// gfx942 and gfx950. Where instructions are not packed into pairs before, there are none.
std::vector<std::string> crash_options(std::string_view target) {
  if (toolchain_for(target) != ToolchainKind::hiprtc) return {};
  return {"-fno-slp-vectorize"};
}

}  // namespace kiln::jit
