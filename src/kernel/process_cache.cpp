#include "kernel/process_cache.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "kiln/error.hpp"

namespace kiln {

cache::Cache& process_cache() {
  // Never destroyed: a thread of the caller may still launch while the process ends.
  static auto* const cache = [] {
    auto* const opened =
        new std::shared_ptr<cache::Cache>(cache::Cache::open(cache::Config::from_environment()));
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

void use_remote(const std::string& url, const std::string& secret) {
  if (url.empty()) {
    process_cache().use_remote(std::nullopt, {});
    return;
  }
  RemoteSettings settings = parse_remote_url(url);
  Secret shared(secret);
  if (const std::string problem = remote_problem(settings, shared); !problem.empty()) {
    throw Error(shared.is_strong() && shared ? Code::unsupported : Code::invalid_argument,
                fmt::format("use_remote: {}", problem));
  }
  process_cache().use_remote(std::move(settings), std::move(shared));
}

}  // namespace cache
}  // namespace kiln
