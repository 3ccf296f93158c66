// See threads.hpp.
#include "jit/device/cpu/threads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/configuration.hpp"
#include "base/environment.hpp"
#include "base/usable_cores.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::cpu {
namespace {

int count() {
  if (const std::optional<int> configured = base::configuration("the CPU device").threads) {
    return *configured;
  }
  const std::string text = base::environment("KILN_CPU_THREADS");
  return text.empty() ? base::usable_cores() : parse_thread_count(text);
}

}  // namespace

int thread_count() {
  static const int threads = count();
  return threads;
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
  std::uint64_t parts = std::min(blocks, static_cast<std::uint64_t>(std::max(threads, 1)));
  if (parts == 1) return {1, items};
  std::uint64_t length = items / parts + (items % parts != 0);
  // Parts end where a cache line or a vector does, unless that would leave cores without work.
  constexpr std::uint64_t kAlign = 64;
  if (length >= 16 * kAlign) length = (length + kAlign - 1) / kAlign * kAlign;
  parts = items / length + (items % length != 0);
  return {parts, length};
}

}  // namespace kiln::jit::cpu
