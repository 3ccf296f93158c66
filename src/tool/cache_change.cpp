// `kiln cache verify | trim | clear | export | import | push | pull`: changing the cache, safely
// beside running programs: what is deleted under them is a miss.
#include <fmt/format.h>

#include <algorithm>

#include "cache/cache.hpp"
#include "cache/config.hpp"
#include "kiln/error.hpp"
#include "tool/arguments.hpp"
#include "tool/cache_text.hpp"
#include "tool/commands.hpp"
#include "tool/progress.hpp"

namespace kiln::tool {
namespace {

void print_problems(const std::vector<cache::Problem>& problems) {
  for (const cache::Problem& problem : problems) {
    print("{}: {}{}\n", problem.path, red(problem.reason), problem.repaired ? ", repaired" : "");
  }
}

int print_removed(const cache::Removed& removed, bool dry_run, bool json) {
  if (json) {
    Json entries = Json::array();
    for (const cache::Listing& entry : removed.entries) entries.push_back(to_json(entry));
    print_json({{"dry_run", dry_run},
                {"removed", removed.entries.size()},
                {"bytes", removed.bytes},
                {"entries", entries}});
    return kSuccess;
  }
  if (dry_run) {
    Table table;
    for (const cache::Listing& entry : removed.entries) {
      table.row({short_key(entry.key), clip(entry.metadata.function, 24),
                 short_target(entry.metadata.target), human_bytes(entry.file_bytes)});
    }
    table.align_right(3);
    table.print();
  }
  print("{} {}, {}\n", dry_run ? "would remove" : "removed", counted(removed.entries.size()),
        human_bytes(removed.bytes));
  return kSuccess;
}

std::string_view signature_word(cache::Signature signature) {
  switch (signature) {
    case cache::Signature::good: return "good";
    case cache::Signature::unchecked: return "unchecked";
    case cache::Signature::none: break;
  }
  return "none";
}

std::string_view signature_words(cache::Signature signature) {
  switch (signature) {
    case cache::Signature::good: return "signed";
    case cache::Signature::unchecked: return "signed, not checked: KILN_CACHE_SECRET is not set";
    case cache::Signature::none: break;
  }
  return "not signed: KILN_CACHE_SECRET is not set";
}

int print_transfer(const cache::Transfer& transfer, const std::string& file, std::string_view verb,
                   bool json) {
  if (json) {
    Json report = {{"entries", transfer.entries},
                   {"bytes", transfer.bytes},
                   {"present", transfer.present},
                   {"vanished", transfer.vanished},
                   {"signature", signature_word(transfer.signature)},
                   {"problems", to_json(transfer.problems)}};
    if (!file.empty()) report["file"] = file;
    print_json(report);
  } else {
    print("{} {}, {}{}{}; {}\n", verb, counted(transfer.entries), human_bytes(transfer.bytes),
          transfer.present ? fmt::format(", {} were already there", transfer.present) : "",
          transfer.vanished
              ? fmt::format(", {} went meanwhile and {} left out", counted(transfer.vanished),
                            transfer.vanished == 1 ? "is" : "are")
              : "",
          signature_words(transfer.signature));
    print_problems(transfer.problems);
  }
  return transfer.problems.empty() ? kSuccess : kFailure;
}

/// Whole ones: what is not here cannot be found by its first digits.
std::vector<cache::Key> parse_keys(const std::vector<std::string>& texts) {
  std::vector<cache::Key> keys;
  for (const std::string& text : texts) {
    const auto key = cache::Key::parse(text);
    if (!key) throw UsageError(fmt::format("--key {}: expected 32 hexadecimal digits", text));
    keys.push_back(*key);
  }
  return keys;
}

}  // namespace

int run_cache_verify(const CacheVerifyOptions& options) {
  cache::Cache& cache = disk_cache();
  const cache::Verification verification = cache::verify(cache, options.repair);
  cache::Recompilation again;
  if (options.recompile) again = cache::recompile(cache);
  // Neither can look into a closed sub-directory.
  std::erase_if(again.problems, [&](const cache::Problem& problem) {
    return std::ranges::find(verification.problems, problem.path, &cache::Problem::path) !=
           verification.problems.end();
  });
  bool good = again.problems.empty();
  for (const cache::Problem& problem : verification.problems) good &= problem.repaired;
  if (options.json) {
    Json json = {{"entries", verification.entries},
                 {"bytes", verification.bytes},
                 {"other_versions", verification.other_versions},
                 {"problems", to_json(verification.problems)}};
    if (options.recompile) {
      json["recompiled"] = {
          {"same", again.same}, {"skipped", again.skipped}, {"problems", to_json(again.problems)}};
    }
    print_json(json);
    return good ? kSuccess : kFailure;
  }
  const std::size_t problems = verification.problems.size();
  print("{}, {}: {}\n", counted(verification.entries), human_bytes(verification.bytes),
        problems == 0 ? "all intact"
                      : red(fmt::format("{} problem{}", problems, problems == 1 ? "" : "s")));
  print_problems(verification.problems);
  if (verification.other_versions) {
    print("{} in another entry format, not checked\n", verification.other_versions);
  }
  if (options.recompile) {
    print(
        "{} compile to the same code, {} were not compiled again, since their compiler is "
        "missing\n",
        again.same, again.skipped);
    print_problems(again.problems);
  }
  return good ? kSuccess : kFailure;
}

int run_cache_trim(const CacheTrimOptions& options) {
  cache::TrimPolicy policy;
  policy.dry_run = options.dry_run;
  if (!options.max_size.empty()) {
    policy.max_size = cache::parse_size(options.max_size);
    if (!policy.max_size) {
      throw UsageError(
          fmt::format("--max-size {}: expected a size such as 4096, 512M or 2G", options.max_size));
    }
  }
  if (!options.older_than.empty()) {
    policy.unused_for = parse_duration("--older-than", options.older_than);
  }
  const bool says_nothing =
      !policy.max_size && !policy.unused_for && options.target.empty() && options.function.empty();
  if (says_nothing) {
    throw UsageError(
        "trim: expected at least one of --max-size, --older-than, --target and --function");
  }
  cache::Cache& cache = disk_cache();
  policy.filter = make_filter(cache, options.target, options.function);
  return print_removed(cache::trim(cache, policy), options.dry_run, options.json);
}

int run_cache_clear(const CacheOptions& options) {
  return print_removed(cache::clear(disk_cache()), false, options.json);
}

int run_cache_export(const CacheTransferOptions& options) {
  cache::Cache& cache = disk_cache();
  const cache::Filter filter = make_filter(cache, options.target, options.function, options.keys);
  Counter counter("exporting", options.json);
  const cache::Transfer transfer =
      cache::export_bundle(cache, options.file, filter, counter.step());
  counter.clear();
  return print_transfer(transfer, options.file, "exported", options.json);
}

int run_cache_import(const CacheTransferOptions& options) {
  Counter counter("importing", options.json);
  const cache::Transfer transfer = cache::import_bundle(disk_cache(), options.file, counter.step());
  counter.clear();
  return print_transfer(transfer, options.file, "imported", options.json);
}

int run_cache_push(const CacheTransferOptions& options) {
  cache::Cache& cache = disk_cache();
  const cache::Filter filter = make_filter(cache, options.target, options.function, options.keys);
  Counter counter("pushing", options.json);
  const cache::Transfer transfer = cache::push(cache, filter, counter.step());
  counter.clear();
  return print_transfer(transfer, {}, "pushed", options.json);
}

int run_cache_pull(const CacheTransferOptions& options) {
  cache::Cache& cache = disk_cache();
  cache::Filter filter;
  filter.function = options.function;
  std::vector<std::string> problems;
  if (options.manifest.empty()) {
    filter.target = options.target;
    filter.keys = parse_keys(options.keys);
  } else {
    if (options.target.empty() || !options.keys.empty()) {
      throw UsageError("cache pull --manifest: expected --target and no --key");
    }
    ManifestKeys manifest = keys_of_manifest(options.manifest, parse_targets({options.target}));
    filter.keys = std::move(manifest.keys);
    problems = std::move(manifest.problems);
  }
  for (const std::string& problem : problems) print(stderr, "{}\n", problem);
  // No keys would be all of them.
  if (!options.manifest.empty() && filter.keys.empty() && cache.remote()) {
    throw Error(Code::not_found,
                fmt::format("cache pull: the server has no kernel of {}", options.manifest));
  }
  Counter counter("pulling", options.json);
  const cache::Transfer transfer = cache::pull(cache, filter, counter.step());
  counter.clear();
  const int status = print_transfer(transfer, {}, "pulled", options.json);
  return problems.empty() ? status : kFailure;
}

}  // namespace kiln::tool
