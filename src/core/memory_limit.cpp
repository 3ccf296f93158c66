#include "core/memory_limit.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "base/configuration.hpp"
#include "base/environment.hpp"
#include "cache/config.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

std::uint64_t configured_limit() {
  constexpr std::uint64_t kDefault = std::uint64_t{256} << 20;
  if (const auto configured = base::configuration("the memory limit").memory_limit) {
    return *configured;
  }
  const std::string text = base::environment("KILN_MEMORY_LIMIT");
  if (text.empty()) return kDefault;
  if (const auto bytes = cache::parse_size(text)) return *bytes;
  log_once(
      LogLevel::warning, "memory.limit",
      fmt::format("KILN_MEMORY_LIMIT: '{}': expected a size such as 512M or 2G; using {} bytes",
                  text, kDefault));
  return kDefault;
}

}  // namespace

std::uint64_t memory_limit() {
  static const std::uint64_t limit = [] {
    const std::uint64_t configured = configured_limit();
    return configured == 0 ? std::numeric_limits<std::uint64_t>::max() : configured;
  }();
  return limit;
}

}  // namespace kiln
