#include "tool/bench_size.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace kiln::tool {
namespace {

// All of the caches of the third level, in KiB, as Linux lists them for each core; 0 if it does
// not.
std::uint64_t last_caches() {
  std::set<std::string> seen;  // by the cores that share one
  std::uint64_t total = 0;
  for (int core = 0;; ++core) {
    const std::filesystem::path cpu = "/sys/devices/system/cpu/cpu" + std::to_string(core);
    std::error_code ignored;
    if (!std::filesystem::exists(cpu, ignored)) return total;
    std::ifstream sharing(cpu / "cache/index3/shared_cpu_list");
    std::ifstream size(cpu / "cache/index3/size");
    std::string cores;
    std::uint64_t kibibytes = 0;
    if (sharing >> cores && size >> kibibytes && seen.insert(cores).second) total += kibibytes;
  }
}

}  // namespace

std::size_t bench_bytes(const BenchOptions& options, const Device& device) {
  constexpr std::uint64_t kLeast = 64;
  constexpr std::uint64_t kMost = 512;
  std::uint64_t mebibytes = options.mebibytes;
  if (mebibytes == 0) {
    mebibytes = device.type == DeviceType::cpu ? std::clamp(2 * last_caches() / 1024, kLeast, kMost)
                                               : kMost;
  }
  return static_cast<std::size_t>(mebibytes << 20);
}

}  // namespace kiln::tool
