// The configuration of the process: set once, read from then on.
#include "base/configuration.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <utility>

#include "kiln/error.hpp"

namespace kiln {
namespace {

struct ConfigurationState {
  std::mutex mutex;
  Configuration configuration;
  std::string configured_at;  // "engine.cpp:42"; empty: not yet
  std::string first_reader;   // empty: nobody has read it
};

// Never destroyed: threads of the caller may still call kiln while the process ends.
ConfigurationState& configuration_state() {
  static auto* const instance = new ConfigurationState;
  return *instance;
}

[[noreturn]] void refuse_configuration(const std::string& message) {
  throw Error(Code::invalid_argument, "configure: " + message);
}

void check_range(const char* name, const std::optional<int>& value, int last) {
  if (!value || (*value >= 1 && *value <= last)) return;
  refuse_configuration(
      fmt::format("{}: expected a whole number from 1 to {}, got {}", name, last, *value));
}

void check_values(const Configuration& given) {
  check_range("jobs", given.jobs, 1024);
  check_range("threads", given.threads, 4096);
  if (given.on_miss && *given.on_miss >= OnMiss::configured) {
    refuse_configuration(
        "on_miss: expected compile, fail, background or fallback, got another value");
  }
  if (given.worker && given.worker->empty()) {
    refuse_configuration(
        "worker: expected the path of kiln-compile-worker, got an empty one; leave it out to have "
        "it found");
  }
}

template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "not set";
}

std::optional<std::string_view> on_miss_text(const std::optional<OnMiss>& value) {
  constexpr std::string_view kNames[] = {"compile", "fail", "background", "fallback"};
  if (!value) return std::nullopt;
  return kNames[static_cast<std::size_t>(*value)];
}

/// "jobs was 4 and is 8 now" for the first setting that is another one; empty if none is.
std::string difference(const Configuration& before, const Configuration& now) {
  std::string found;
  const auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (found.empty() && a != b) {
      found = fmt::format("{} was {} and is {} now", name, text_of(a), text_of(b));
    }
  };
  compare("cache_directory", before.cache_directory, now.cache_directory);
  compare("cache_max_size", before.cache_max_size, now.cache_max_size);
  compare("cache_readonly", before.cache_readonly, now.cache_readonly);
  compare("jobs", before.jobs, now.jobs);
  compare("worker", before.worker, now.worker);
  compare("threads", before.threads, now.threads);
  compare("memory_limit", before.memory_limit, now.memory_limit);
  compare("fallback_memory", before.fallback_memory, now.fallback_memory);
  compare("on_miss", on_miss_text(before.on_miss), on_miss_text(now.on_miss));
  if (found.empty() && now.executor) found = "executor cannot be set again";
  if (found.empty() && before.executor) found = "executor was set and is not now";
  if (found.empty() && now.log) found = "log cannot be set again (see set_log)";
  return found;
}

}  // namespace

void configure(Configuration configuration, const char* file, int line) {
  check_values(configuration);
  ConfigurationState& process = configuration_state();
  const std::lock_guard lock(process.mutex);
  if (!process.configured_at.empty()) {
    const std::string other = difference(process.configuration, configuration);
    if (other.empty()) return;
    refuse_configuration(
        fmt::format("kiln was configured at {} first, with other values: {}; configure a process "
                    "once",
                    process.configured_at, other));
  }
  if (!process.first_reader.empty()) {
    refuse_configuration(
        fmt::format("kiln is in use already: {} was the first to read the settings; call configure "
                    "before anything else of kiln",
                    process.first_reader));
  }
  if (configuration.log) set_log(std::exchange(configuration.log, {}));
  process.configuration = std::move(configuration);
  process.configured_at = line > 0 ? fmt::format("{}:{}", file, line) : file;
}

const Configuration& base::configuration(std::string_view reader) {
  ConfigurationState& process = configuration_state();
  const std::lock_guard lock(process.mutex);
  if (process.first_reader.empty()) process.first_reader = reader;
  return process.configuration;  // nobody writes to it any more
}

OnMiss base::on_miss_of(OnMiss own) {
  if (own != OnMiss::configured) return own;
  static const OnMiss configured = configuration("a call").on_miss.value_or(OnMiss::compile);
  return configured;
}

OnMiss base::on_miss_so_far(OnMiss own) {
  if (own != OnMiss::configured) return own;
  ConfigurationState& process = configuration_state();
  const std::lock_guard lock(process.mutex);
  return process.configuration.on_miss.value_or(OnMiss::compile);
}

}  // namespace kiln
