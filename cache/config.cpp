#include "cache/config.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "base/configuration.hpp"
#include "base/environment.hpp"
#include "base/text.hpp"
#include "cache/remote/remote.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path result = std::filesystem::absolute(path, error);
  return error ? path : result.lexically_normal().string();
}

/// Why nothing is to be kept on disk and no layer to be asked; empty otherwise.
std::string why_off(const Configuration& configured) {
  if (configured.cache_directory) {
    return configured.cache_directory->empty() ? "kiln::configure() has set an empty directory"
                                               : "";
  }
  const std::string choice = base::environment("KILN_CACHE");
  return choice == "off" || choice == "0" ? "KILN_CACHE=" + choice : "";
}

/// Sets `directory`, or `why_uncached`.
void choose_directory(Config& config, const Configuration& configured) {
  if (configured.cache_directory) {
    config.directory = absolute(*configured.cache_directory);
    return;
  }
  const std::string xdg = base::environment("XDG_CACHE_HOME");
  const std::string home = base::environment("HOME");
  if (const std::string directory = base::environment("KILN_CACHE_DIR"); !directory.empty()) {
    config.directory = absolute(directory);
  } else if (xdg.starts_with('/')) {  // the XDG specification: a relative one is to be ignored
    config.directory = xdg + "/kiln";
  } else if (home.starts_with('/')) {
    config.directory = home + "/.cache/kiln";
  } else {
    config.why_uncached = "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory";
  }
}

/// Sets `remote`, or logs why there is none.
void choose_remote(Config& config) {
  const std::string url = base::environment("KILN_REMOTE_CACHE");
  if (url.empty()) return;
  try {
    RemoteSettings settings = parse_remote_url(url);
    config.why_no_remote = remote_problem(settings, config.secret);
    if (config.why_no_remote.empty()) config.remote = std::move(settings);
  } catch (const Error& error) {
    config.why_no_remote = error.what();
  }
  if (config.why_no_remote.empty()) return;
  log_once(LogLevel::warning, "KILN_REMOTE_CACHE",
           fmt::format("KILN_REMOTE_CACHE: not used: {}", config.why_no_remote));
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (status != std::errc() || !(value >= 0)) return std::nullopt;
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  constexpr std::string_view units = "KMGT";
  if (!unit.empty() && unit != "B") {
    const std::size_t power = units.find(static_cast<char>(unit[0] & ~0x20));
    if (power == std::string_view::npos) return std::nullopt;
    for (std::size_t i = 0; i <= power; ++i) value *= 1024;
    unit.remove_prefix(1);
    if (unit != "" && unit != "B" && unit != "iB") return std::nullopt;
  }
  if (!(value < 9.2e18)) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

Config Config::from_environment(const std::string& directory) {
  const Configuration& configured = base::configuration("the cache");
  Config config;
  if (!directory.empty()) {
    config.directory = absolute(directory);
  } else {
    config.why_uncached = why_off(configured);
    if (!config.why_uncached.empty()) return config;
    choose_directory(config, configured);
  }
  if (configured.cache_max_size) {
    config.max_size = *configured.cache_max_size;
  } else if (const std::string size = base::environment("KILN_CACHE_MAX_SIZE"); !size.empty()) {
    if (const auto bytes = parse_size(size)) {
      config.max_size = *bytes;
    } else {
      log_once(
          LogLevel::warning, "cache.max_size",
          fmt::format("KILN_CACHE_MAX_SIZE: '{}': expected a size such as 512M or 2G; using {} "
                      "bytes",
                      size, config.max_size));
    }
  }
  config.readonly = configured.cache_readonly.value_or(
      base::split(base::environment("KILN_CACHE_READONLY_DIRS"), ':'));
  for (std::string& path : config.readonly) path = absolute(path);
  config.secret = Secret(base::environment("KILN_CACHE_SECRET"));
  choose_remote(config);
  return config;
}

}  // namespace kiln::cache
