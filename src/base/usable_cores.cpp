// See usable_cores.hpp. The files are those of proc(5) and cgroups(7).
#include "base/usable_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace kiln::base {
namespace {

int cores_of_affinity() {
  constexpr int kMost = 1 << 16;
  for (int count = CPU_SETSIZE; count <= kMost; count *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(count), [](cpu_set_t* own) { CPU_FREE(own); });
    const std::size_t size = CPU_ALLOC_SIZE(count);
    if (set && sched_getaffinity(0, size, set.get()) == 0) return CPU_COUNT_S(size, set.get());
    if (errno != EINVAL) break;  // EINVAL: this machine has more
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

bool lists(const std::string& names, std::string_view wanted) {
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

/// A path of mountinfo, in which white space and backslashes are three octal digits.
std::string unescaped(std::string_view text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '\\' && text.size() - i > 3 &&
        std::from_chars(digits, digits + 3, byte, 8).ptr == digits + 3) {
      path += static_cast<char>(byte);
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

/// Where a hierarchy with the CPU controller is mounted, and which part of it.
struct Mount {
  bool v2 = false;
  std::string root;
  std::string point;
};

std::vector<Mount> cpu_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (v2 || (dash[1] == "cgroup" && lists(dash[3], "cpu"))) {
      mounts.push_back({v2, unescaped(fields[3]), unescaped(fields[4])});
    }
  }
  return mounts;
}

/// The path of this process's group in its hierarchy.
std::optional<std::string> group_path(const std::string& root, bool v2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? line.starts_with("0::") : lists(controllers, "cpu")) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// `path` below the mount; a group that it does not show is taken for the mount's own.
std::string below(const Mount& mount, std::string path) {
  if (mount.root != "/") {
    const bool inside = path == mount.root || path.starts_with(mount.root + "/");
    path = inside ? path.substr(mount.root.size()) : "";
  }
  if (path.find("/..") != std::string::npos) return {};
  while (path.ends_with('/')) path.pop_back();
  return path;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int quota_of(const std::string& group, bool v2) {
  if (v2) return cores_of_quota(first_line(group + "/cpu.max"));
  return cores_of_quota(first_line(group + "/cpu.cfs_quota_us") + " " +
                        first_line(group + "/cpu.cfs_period_us"));
}

}  // namespace

int cores_of_quota(std::string_view cpu_max) {
  std::uint64_t quota = 0;
  std::uint64_t period = 0;
  const char* end = cpu_max.data() + cpu_max.size();
  auto first = std::from_chars(cpu_max.data(), end, quota);
  if (first.ec != std::errc{} || first.ptr == end) return 0;
  auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc{} || period == 0 || quota == 0) return 0;
  return static_cast<int>(std::min<std::uint64_t>(quota / period + (quota % period != 0), 4096));
}

int cores_of_cgroups(const std::string& root) {
  int cores = 0;
  for (const Mount& mount : cpu_mounts(root)) {
    const auto path = group_path(root, mount.v2);
    if (!path) continue;
    for (std::string group = below(mount, *path);; group.resize(group.rfind('/'))) {
      const int here = quota_of(root + mount.point + group, mount.v2);
      if (here > 0) cores = cores == 0 ? here : std::min(cores, here);
      if (group.empty()) break;
    }
  }
  return cores;
}

int usable_cores() {
  static const int cores = [] {
    const int affinity = std::max(cores_of_affinity(), 1);
    const int quota = cores_of_cgroups();
    return quota > 0 ? std::min(quota, affinity) : affinity;
  }();
  return cores;
}

}  // namespace kiln::base
