// See targets.hpp. Compute units (of one die of an MI250X), wave sizes and LDS: the table "AMD GPU
// specifications" of ROCm's documentation. That HIP counts work-group processors, of two compute
// units each, from gfx10 on: its maintainers on ROCm/hip, "hipGetDeviceProperties returns half of
// actual compute unit count". Target features: the table of processors in LLVM's "User Guide for
// AMDGPU Backend".
#include "tests/amd/hip/targets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace kiln::amd {
namespace {

constexpr int kKiB = 1024;

constexpr std::array kTargets = {
    Target{"gfx90a", "gfx90a:sramecc+:xnack-", "MI250X", 64, 110, 64 * kKiB},
    Target{"gfx942", "gfx942:sramecc+:xnack-", "MI300X", 64, 304, 64 * kKiB},
    Target{"gfx950", "gfx950:sramecc+:xnack-", "MI355X", 64, 256, 160 * kKiB},
    Target{"gfx1030", "gfx1030", "RX 6900 XT", 32, 40, 64 * kKiB},
    Target{"gfx1100", "gfx1100", "RX 7900 XTX", 32, 48, 64 * kKiB},
    Target{"gfx1151", "gfx1151", "Ryzen AI Max+ 395", 32, 20, 64 * kKiB},
    Target{"gfx1201", "gfx1201", "RX 9070 XT", 32, 32, 64 * kKiB},
};

}  // namespace

const Target* find_target(std::string_view processor) {
  const auto* const found = std::ranges::find(kTargets, processor, &Target::processor);
  return found == kTargets.end() ? nullptr : found;
}

std::string known_targets() {
  std::vector<std::string_view> names;
  for (const Target& target : kTargets) names.push_back(target.processor);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace kiln::amd
