// See threads.hpp.
#include "jit/device/cpu/threads.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "kiln/error.hpp"

namespace kiln::jit::cpu {
namespace {

int cores_of_affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  // More cores than a cpu_set_t holds.
  return static_cast<int>(std::thread::hardware_concurrency());
}

/// The tightest quota from this process's cgroup up to the root, or 0.
int cores_of_cgroup() {
  std::ifstream membership("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(membership, line);) {
    if (line.starts_with("0::")) path = line.substr(3);  // the line of cgroup v2
  }
  int cores = 0;
  while (true) {
    std::ifstream file("/sys/fs/cgroup" + path + "/cpu.max");
    std::string text;
    if (std::getline(file, text)) {
      const int here = cores_of_quota(text);
      if (here > 0) cores = cores == 0 ? here : std::min(cores, here);
    }
    if (path.empty()) return cores;
    path.resize(std::min(path.rfind('/'), path.size() - 1));
  }
}

int count() {
  if (const char* text = std::getenv("KILN_CPU_THREADS"); text != nullptr && *text != '\0') {
    return parse_thread_count(text);
  }
  const int quota = cores_of_cgroup();
  const int affinity = std::max(cores_of_affinity(), 1);
  return quota > 0 ? std::min(quota, affinity) : affinity;
}

}  // namespace

int thread_count() {
  static const int threads = count();
  return threads;
}

int cores_of_quota(std::string_view cpu_max) {
  std::uint64_t quota = 0;
  std::uint64_t period = 0;
  const char* end = cpu_max.data() + cpu_max.size();
  auto first = std::from_chars(cpu_max.data(), end, quota);
  if (first.ec != std::errc{} || first.ptr == end) return 0;
  auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc{} || period == 0 || quota == 0) return 0;
  return static_cast<int>(std::min<std::uint64_t>((quota + period - 1) / period, 4096));
}

int parse_thread_count(const std::string& text) {
  int threads = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, threads);
  if (error != std::errc{} || rest != end || threads < 1 || threads > 4096) {
    throw Error(
        Code::invalid_argument,
        fmt::format("KILN_CPU_THREADS must be a whole number from 1 to 4096, got \"{}\"", text));
  }
  return threads;
}

Cut cut(std::uint64_t items, std::uint64_t block, int threads) {
  if (items == 0) return {};
  block = std::max<std::uint64_t>(block, 1);
  const std::uint64_t blocks = items / block + (items % block != 0);
  std::uint64_t pieces = std::min(blocks, static_cast<std::uint64_t>(std::max(threads, 1)));
  if (pieces == 1) return {1, items};
  std::uint64_t length = items / pieces + (items % pieces != 0);
  // Pieces end where a cache line or a vector does, unless that would leave cores without work.
  constexpr std::uint64_t kAlign = 64;
  if (length >= 16 * kAlign) length = (length + kAlign - 1) / kAlign * kAlign;
  pieces = items / length + (items % length != 0);
  return {pieces, length};
}

}  // namespace kiln::jit::cpu
