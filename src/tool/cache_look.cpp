// `kiln cache path | ls | show | stats | extract | explain`: looking at the cache.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cache/cache.hpp"
#include "files/file_io.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "jit/service/compile.hpp"
#include "kiln/error.hpp"
#include "tool/cache_text.hpp"
#include "tool/commands.hpp"

namespace kiln::tool {
namespace {

constexpr std::size_t kMostText = 200;  // characters of an expression; --json has all of them

// What `ls` keeps of every entry, a few bytes; the rest is read again for those that are shown.
struct Rank {
  cache::Key key;
  double number = 0;  ///< the larger comes first ...
  std::string name;   ///< ... or the smaller
};

// Newest, largest and slowest first: what a person looks for is at the top.
Rank rank_of(const cache::Listing& listing, std::string_view sort) {
  if (sort == "function") return {listing.key, 0, listing.metadata.function};
  const double number = sort == "created"   ? static_cast<double>(listing.metadata.created)
                        : sort == "size"    ? static_cast<double>(listing.file_bytes)
                        : sort == "compile" ? listing.metadata.compile_ms
                                            : static_cast<double>(listing.last_used);
  return {listing.key, std::isnan(number) ? 0 : number, {}};  // a NaN is in no order
}

bool comes_before(const Rank& a, const Rank& b) {
  return a.number != b.number ? a.number > b.number : a.name < b.name;
}

void add_row(Table& table, const cache::Listing& entry, std::int64_t now) {
  const std::string age = human_duration(now - entry.last_used) + " ago";
  if (!entry.problem.empty()) {
    table.row({short_key(entry.key), red("unusable"), "", human_bytes(entry.file_bytes), "", age,
               red(clip(entry.problem, kMostText))});
    return;
  }
  table.row({short_key(entry.key), clip(entry.metadata.function, 24),
             short_target(entry.metadata.target), human_bytes(entry.file_bytes),
             fmt::format("{:.0f} ms", entry.metadata.compile_ms), age,
             clip(entry.metadata.expression, kMostText)});
}

// Beside the output, which is of the rest.
int report_closed(const std::vector<cache::Problem>& closed) {
  for (const cache::Problem& problem : closed) {
    print(stderr, "kiln: {}: {}: what it has is left out\n", problem.path, problem.reason);
  }
  return closed.empty() ? kSuccess : kFailure;
}

std::string resources_of(const cache::Metadata& metadata) {
  std::vector<std::string> parts;
  const auto put = [&](std::string_view name, const std::optional<int>& value) {
    if (value) parts.push_back(fmt::format("{} {}", *value, name));
  };
  put("registers", metadata.registers);
  put("scalar registers", metadata.sgprs);
  put("spills", metadata.spills);
  put("bytes scratch", metadata.scratch);
  put("bytes LDS", metadata.lds);
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json entry_json(const NamedEntry& named) {
  Json json = {{"key", named.key.hex()}};
  json.update(to_json(named.entry.metadata));
  json["path"] = named.path;
  json["code_bytes"] = named.entry.code.size();
  json["source_bytes"] = named.entry.source.size();
  Json ingredients = Json::array();
  for (const cache::Ingredient& ingredient : named.entry.metadata.ingredients) {
    ingredients.push_back({{"tag", ingredient.tag}, {"value", ingredient.value}});
  }
  json["ingredients"] = std::move(ingredients);
  return json;
}

int show_remote_stats(bool json) {
  const auto remote = disk_cache().remote();
  if (!remote) {
    throw Error(Code::not_found,
                "cache stats --remote: there is no remote cache: set KILN_REMOTE_CACHE and "
                "KILN_CACHE_SECRET");
  }
  const auto limit = 2 * remote->settings().answer + std::chrono::seconds(1);
  const auto usage = remote->usage(std::chrono::steady_clock::now() + limit);
  const cache::RemoteHealth health = remote->health();
  const std::string server = remote->settings().display();
  if (!usage) {
    throw Error(Code::io,
                fmt::format("cache stats --remote: {}: the server {}", server,
                            health.problem.empty() ? "does not say what it has" : health.problem));
  }
  const double latency = static_cast<double>(health.latency.count()) / 1000;
  if (json) {
    print_json({{"server", server},
                {"version", usage->version},
                {"latency_ms", latency},
                {"entries", usage->entries},
                {"compiling", usage->compiling},
                {"memory_bytes", usage->memory},
                {"max_memory_bytes", usage->max_memory},
                {"evicted", usage->evicted}});
    return kSuccess;
  }
  Table table;
  table.row({"server", server});
  table.row({"version", usage->version});
  table.row({"latency", fmt::format("{:.2f} ms", latency)});
  table.row({"entries", fmt::format("{}", usage->entries)});
  table.row({"being compiled", fmt::format("{}", usage->compiling)});
  table.row({"memory in use",
             human_bytes(usage->memory) +
                 (usage->max_memory ? " of " + human_bytes(usage->max_memory) : ", no bound")});
  table.row({"evicted", fmt::format("{}", usage->evicted)});
  table.print();
  return kSuccess;
}

}  // namespace

int run_cache_path(const CacheOptions& options) {
  cache::Cache& cache = disk_cache();
  const std::string problem = cache::health_error(cache);
  if (options.json) {
    print_json({{"directory", cache::directory(cache)},
                {"usable", problem.empty()},
                {"problem", problem},
                {"readonly", cache.config().readonly}});
  } else {
    print("{}\n", cache::directory(cache));
    if (!problem.empty()) print(stderr, "kiln: {}\n", problem);
  }
  return problem.empty() ? kSuccess : kFailure;
}

int run_cache_ls(const CacheListOptions& options) {
  cache::Cache& cache = disk_cache();
  const cache::Filter filter = make_filter(cache, options.target, options.function);
  std::vector<Rank> ranks;
  const auto closed = cache::for_each(cache, filter, [&](const cache::Listing& listing) {
    ranks.push_back(rank_of(listing, options.sort));
    return true;
  });
  std::stable_sort(ranks.begin(), ranks.end(), comes_before);
  const std::size_t found = ranks.size();
  if (options.limit && ranks.size() > *options.limit) ranks.resize(*options.limit);
  const auto for_each_shown = [&](const auto& visit) {
    for (const Rank& rank : ranks) {
      // One that has gone meanwhile is left out.
      if (const auto listing = cache::find_listing(cache, rank.key)) visit(*listing);
    }
  };
  if (options.json) {
    JsonArrayPrinter array;
    for_each_shown([&](const cache::Listing& entry) { array.print(to_json(entry)); });
    return report_closed(closed);
  }
  if (found == 0) {
    const bool filtered = !options.target.empty() || !options.function.empty();
    const std::uint64_t all = filtered ? cache::usage(cache).entries : 0;
    print("{} {}{}\n", all ? "none of" : "no entries in", all ? counted(all) + " in " : "",
          cache::directory(cache));
    return report_closed(closed);
  }
  const std::int64_t now = seconds_since_1970();
  Table table({"KEY", "FUNCTION", "TARGET", "SIZE", "COMPILE", "USED", "EXPRESSION"});
  table.align_right(3);
  table.align_right(4);
  table.align_right(5);
  for_each_shown([&](const cache::Listing& entry) { add_row(table, entry, now); });
  table.print();
  if (ranks.size() < found) print("{} of {} entries\n", ranks.size(), found);
  return report_closed(closed);
}

int run_cache_show(const CacheShowOptions& options) {
  const NamedEntry named = find_entry(disk_cache(), options.key);
  if (options.json) {
    print_json(entry_json(named));
    return kSuccess;
  }
  const cache::Metadata& metadata = named.entry.metadata;
  const std::int64_t now = seconds_since_1970();
  Table table;
  table.row({"key", named.key.hex()});
  table.row({"function", metadata.function});
  table.row({"expression", clip(metadata.expression, SIZE_MAX)});
  table.row({"signature", metadata.signature});
  table.row({"target", metadata.target});
  table.row({"kernel", metadata.entry});
  table.row({"compiler", metadata.toolchain});
  table.row({"", clip(metadata.toolchain_identity, SIZE_MAX)});
  table.row({"options", fmt::format("{}", fmt::join(metadata.options, " "))});
  table.row({"launch", metadata.launch});
  table.row(
      {"compiled", fmt::format("in {:.0f} ms, {} ago by kiln {}", metadata.compile_ms,
                               human_duration(now - metadata.created), metadata.kiln_version)});
  table.row({"resources", resources_of(metadata)});
  table.row({"code", human_bytes(named.entry.code.size())});
  table.row({"source", human_bytes(named.entry.source.size())});
  table.row({"file", named.path});
  table.print();
  return kSuccess;
}

int run_cache_stats(const CacheStatsOptions& options) {
  if (options.remote && options.zero) {
    throw UsageError("cache stats: --zero is for the cache on disk and not for --remote");
  }
  if (options.remote) return show_remote_stats(options.json);
  cache::Cache& cache = disk_cache();
  const cache::Usage usage = cache::usage(cache);
  const cache::Stats stats = cache::stats(cache);
  if (options.zero) cache::zero_stats(cache);
  if (options.json) {
    Json json = {{"directory", cache::directory(cache)},
                 {"entries", usage.entries},
                 {"bytes", usage.bytes},
                 {"max_bytes", usage.max_size},
                 {"in_quarantine", usage.quarantined},
                 {"temporaries", usage.temporaries}};
    for (std::size_t i = 0; i < cache::kCounts; ++i) {
      const auto count = static_cast<cache::Count>(i);
      json[std::string(cache::name(count))] = stats[count];
    }
    print_json(json);
    return report_closed(usage.problems);
  }
  Table table;
  table.align_right(1);
  table.row({"entries", fmt::format("{}", usage.entries)});
  table.row({"size", human_bytes(usage.bytes),
             usage.max_size ? fmt::format("of {}", human_bytes(usage.max_size)) : ""});
  table.row({"in quarantine", fmt::format("{}", usage.quarantined)});
  table.row({"", ""});
  table.row({dim("counted so far"), ""});
  const std::uint64_t looked_up = stats[cache::Count::hits] + stats[cache::Count::misses];
  const auto row = [&](std::string_view name, cache::Count count, std::string note = {}) {
    table.row({std::string(name), fmt::format("{}", stats[count]), std::move(note)});
  };
  row("hits", cache::Count::hits,
      looked_up ? fmt::format("{} %", 100 * stats[cache::Count::hits] / looked_up) : "");
  row("misses", cache::Count::misses);
  row("compiled", cache::Count::compiled);
  row("waited for", cache::Count::waited, "compiled by another process meanwhile");
  row("published", cache::Count::published, human_bytes(stats[cache::Count::published_bytes]));
  row("evicted", cache::Count::evicted, human_bytes(stats[cache::Count::evicted_bytes]));
  row("quarantined", cache::Count::quarantined);
  const std::uint64_t asked = stats[cache::Count::remote_hits] + stats[cache::Count::remote_misses];
  row("remote hits", cache::Count::remote_hits,
      asked ? fmt::format("{} %", 100 * stats[cache::Count::remote_hits] / asked) : "");
  row("remote misses", cache::Count::remote_misses);
  row("remote published", cache::Count::remote_published);
  row("remote refused", cache::Count::remote_refused, "not signed with the secret, or damaged");
  row("remote failures", cache::Count::remote_failures, "not answered, or not in time");
  table.print();
  return report_closed(usage.problems);
}

int run_cache_extract(const CacheExtractOptions& options) {
  const NamedEntry named = find_entry(disk_cache(), options.key);
  std::string bytes;
  if (options.what == "source") {
    const cache::Metadata& metadata = named.entry.metadata;
    bytes = metadata.outputs.empty()
                ? named.entry.source
                : fusion::readable(named.entry.source, metadata.function, metadata.expression,
                                   metadata.arguments, metadata.outputs);
  } else if (options.what == "code") {
    bytes = named.entry.code;
  } else if (options.what == "isa") {
    bytes = jit::disassemble(named.entry.code, named.entry.metadata.target);
  } else {
    bytes = entry_json(named).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  if (!options.output.empty()) {
    files::OutputFile file(options.output);
    file.write(bytes);
    file.commit();
    if (options.json) {
      print_json({{"key", named.key.hex()},
                  {"what", options.what},
                  {"file", options.output},
                  {"bytes", bytes.size()}});
    }
    return kSuccess;
  }
  if (options.what == "code") {
    if (options.json)
      throw UsageError(
          "--what code --json: a code object is binary and cannot be part of JSON; give -o FILE as "
          "well");
    if (::isatty(STDOUT_FILENO)) {
      throw UsageError(
          "--what code: a code object is binary and is not written to a terminal; give -o FILE");
    }
  }
  if (options.json) {
    print_json({{"key", named.key.hex()}, {"what", options.what}, {"text", bytes}});
  } else if (::isatty(STDOUT_FILENO)) {
    print_text(stdout, bytes);
  } else {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  }
  return kSuccess;
}

int run_cache_explain(const CacheExplainOptions& options) {
  cache::Cache& cache = disk_cache();
  const NamedEntry a = find_entry(cache, options.a);
  const NamedEntry b = find_entry(cache, options.b);
  const std::vector<cache::Difference> differences = cache::explain(a.entry, b.entry);
  if (options.json) {
    Json list = Json::array();
    for (const cache::Difference& difference : differences) {
      list.push_back({{"tag", difference.tag},
                      {"a", difference.a},
                      {"b", difference.b},
                      {"words", difference.words}});
    }
    print_json({{"a", a.key.hex()}, {"b", b.key.hex()}, {"differences", list}});
    return kSuccess;
  }
  if (differences.empty()) print("the keys have the same ingredients\n");
  for (const cache::Difference& difference : differences) {
    print("{}: {}\n", bold(difference.tag), difference.words);
  }
  return kSuccess;
}

}  // namespace kiln::tool
