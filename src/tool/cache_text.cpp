#include "tool/cache_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kiln/error.hpp"
#include "tool/commands.hpp"

namespace kiln::tool {

std::string_view name_of(CacheState state) {
  switch (state) {
    case CacheState::memory: return "memory";
    case CacheState::disk: return "disk";
    case CacheState::remote: return "remote";
    case CacheState::compiled: return "compiled";
  }
  return "";
}

Json to_json(const cache::Metadata& metadata) {
  Json json = {{"function", metadata.function},
               {"expression", metadata.expression},
               {"signature", metadata.signature},
               {"arguments", metadata.arguments},
               {"outputs", metadata.outputs},
               {"target", metadata.target},
               {"entry", metadata.entry},
               {"toolchain", metadata.toolchain},
               {"toolchain_identity", metadata.toolchain_identity},
               {"options", metadata.options},
               {"launch", metadata.launch},
               {"compile_ms", metadata.compile_ms},
               {"created", iso_time(metadata.created)},
               {"kiln_version", metadata.kiln_version}};
  const auto put = [&](const char* name, const std::optional<int>& value) {
    if (value) json[name] = *value;
  };
  put("registers", metadata.registers);
  put("sgprs", metadata.sgprs);
  put("lds", metadata.lds);
  put("scratch", metadata.scratch);
  put("spills", metadata.spills);
  return json;
}

Json to_json(const cache::Listing& listing) {
  Json json = {{"key", listing.key.hex()}};
  json.update(to_json(listing.metadata));
  json["bytes"] = listing.file_bytes;
  json["code_bytes"] = listing.code_bytes;
  json["source_bytes"] = listing.source_bytes;
  json["last_used"] = iso_time(listing.last_used);
  json["path"] = listing.path;
  if (!listing.problem.empty()) json["problem"] = listing.problem;
  if (listing.other_version) json["other_version"] = true;
  return json;
}

Json to_json(const std::vector<cache::Problem>& problems) {
  Json json = Json::array();
  for (const cache::Problem& problem : problems) {
    json.push_back(
        {{"path", problem.path}, {"reason", problem.reason}, {"repaired", problem.repaired}});
  }
  return json;
}

std::string short_key(const cache::Key& key) { return key.hex().substr(0, 12); }

std::string short_target(std::string_view target) {
  constexpr std::size_t kWidest = 24;
  const std::size_t colon = target.find(':');
  if (target.size() <= kWidest || colon == target.npos) return clip(target, kWidest);
  const auto features = std::count(target.begin(), target.end(), ',') + 1;
  return clip(fmt::format("{} +{} features", target.substr(0, colon), features), kWidest);
}

std::string counted(std::uint64_t entries) {
  return fmt::format("{} {}", entries, entries == 1 ? "entry" : "entries");
}

std::chrono::seconds parse_duration(std::string_view option, std::string_view text) {
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const std::int64_t seconds = unit == "s"   ? 1
                               : unit == "m" ? 60
                               : unit == "h" ? 3600
                               : unit == "d" ? 86400
                                             : 0;
  std::int64_t total = 0;
  if (error != std::errc() || count < 0 || seconds == 0 ||
      __builtin_mul_overflow(count, seconds, &total)) {
    throw UsageError(
        fmt::format("{} {}: expected a time such as 90s, 10m, 12h or 30d", option, text));
  }
  return std::chrono::seconds(total);
}

std::int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

cache::Cache& disk_cache() {
  static const std::shared_ptr<cache::Cache> cache = cache::open();
  return *cache;
}

NamedEntry find_entry(cache::Cache& cache, std::string_view prefix) {
  const cache::Key key = cache::resolve(cache, prefix);
  return {key, cache::read(cache, key), cache::path_of(cache, key)};
}

cache::Filter make_filter(cache::Cache& cache, const std::string& target,
                          const std::string& function, const std::vector<std::string>& keys) {
  cache::Filter filter;
  filter.target = target;
  filter.function = function;
  for (const std::string& key : keys) filter.keys.push_back(cache::resolve(cache, key));
  return filter;
}

}  // namespace kiln::tool
