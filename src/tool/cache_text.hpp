// Entries of the cache as JSON and as text, and what the cache commands' options mean.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache.hpp"
#include "kiln/function.hpp"
#include "tool/print.hpp"

namespace kiln::tool {

Json to_json(const cache::Metadata& metadata);
Json to_json(const cache::Listing& listing);
Json to_json(const std::vector<cache::Problem>& problems);

/// "disk", "compiled": in JSON, and after "from" for people.
std::string_view name_of(CacheState state);

/// The first digits of a key, enough to type.
std::string short_key(const cache::Key& key);

/// A target in a column: a long list of features is only counted.
std::string short_target(std::string_view target);

/// "1 entry", "13 entries".
std::string counted(std::uint64_t entries);

/// "90s", "10m", "12h", "30d". Anything else is a UsageError.
std::chrono::seconds parse_duration(std::string_view option, std::string_view text);

std::int64_t seconds_since_1970();

/// The process's cache. Throws Error(not_found) that says why if there is none on disk.
cache::Cache& disk_cache();

/// The entry whose key starts with those digits, with its source.
struct NamedEntry {
  cache::Key key;
  cache::Entry entry;
  std::string path;  ///< of its file
};
NamedEntry find_entry(cache::Cache& cache, std::string_view prefix);

cache::Filter make_filter(cache::Cache& cache, const std::string& target,
                          const std::string& function, const std::vector<std::string>& keys = {});

}  // namespace kiln::tool
