#include "kernel/process_cache.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "kernel/kernel_table.hpp"
#include "kiln/error.hpp"

namespace kiln {

cache::Cache& process_cache() {
  // Never destroyed: a thread of the caller may still launch while the process ends.
  static auto* const cache = [] {
    cache::Config config = cache::Config::from_environment();
    config.later = [](std::function<void()> chore) {
      KernelTable::instance().do_later(std::move(chore));
    };
    auto* const opened = new std::shared_ptr<cache::Cache>(cache::Cache::open(std::move(config)));
    // When the process ends, what it compiled last goes to the remote tier if that takes no longer
    // than a look-up might, and what it counted since it last wrote the counts is added.
    std::atexit([] {
      process_cache().flush_remote(std::chrono::steady_clock::now() + std::chrono::seconds(1));
      process_cache().flush_stats();
    });
    return opened;
  }();
  return **cache;
}

namespace cache {
namespace {

/// What use_remote() has chosen, for what is opened after it.
struct ChosenRemote {
  std::mutex mutex;
  bool chosen = false;
  std::optional<RemoteSettings> settings;
  Secret secret;
};

ChosenRemote& chosen_remote() {
  static auto* const kept = new ChosenRemote;
  return *kept;
}

void choose_remote(const std::optional<RemoteSettings>& settings, const Secret& secret) {
  ChosenRemote& remote = chosen_remote();
  const std::lock_guard lock(remote.mutex);
  process_cache().use_remote(settings, secret);
  remote.chosen = true;
  remote.settings = settings;
  remote.secret = secret;
}

}  // namespace

std::shared_ptr<Cache> open(const std::string& directory) {
  Config config = Config::from_environment(directory);
  if (config.directory.empty()) {
    throw Error(Code::not_found, fmt::format("there is no cache on disk: {}", config.why_uncached));
  }
  std::shared_ptr<Cache> opened = Cache::open(std::move(config));
  ChosenRemote& remote = chosen_remote();
  const std::lock_guard lock(remote.mutex);
  if (remote.chosen) opened->use_remote(remote.settings, remote.secret);
  return opened;
}

void use_remote(const std::string& url, const std::string& secret) {
  if (url.empty()) return choose_remote(std::nullopt, {});
  const RemoteSettings settings = parse_remote_url(url);
  const Secret shared(secret);
  if (const std::string problem = remote_problem(settings, shared); !problem.empty()) {
    throw Error(shared.is_strong() && shared ? Code::unsupported : Code::invalid_argument,
                fmt::format("use_remote: {}", problem));
  }
  choose_remote(settings, shared);
}

}  // namespace cache
}  // namespace kiln
