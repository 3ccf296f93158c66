#include "kernel/process_cache.hpp"

#include <cstdlib>
#include <memory>

namespace kiln {

cache::Cache& process_cache() {
  // Never destroyed: a thread of the caller may still launch while the process ends.
  static auto* const cache = [] {
    auto* const opened =
        new std::shared_ptr<cache::Cache>(cache::Cache::open(cache::Config::from_environment()));
    // What it counted since it last wrote the counts is added when the process ends.
    std::atexit([] { process_cache().flush_stats(); });
    return opened;
  }();
  return **cache;
}

}  // namespace kiln
