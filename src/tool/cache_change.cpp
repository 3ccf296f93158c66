// `kiln cache verify | trim | clear | export | import`: changing the cache, safely beside running
// programs: what is deleted under them is a miss.
#include <fmt/format.h>

#include "jit/compile.hpp"
#include "kiln/error.hpp"
#include "tool/cache_text.hpp"
#include "tool/commands.hpp"

namespace kiln::tool {
namespace {

/// What compiling every entry again has shown.
struct Recompilation {
  std::uint64_t same = 0;
  std::uint64_t skipped = 0;  ///< made by a compiler that is not here
  std::vector<cache::Problem> problems;
};

void recompile_entry(cache::Cache& cache, const cache::Listing& listing, Recompilation& result) {
  const std::optional<cache::Entry> entry = cache.read(listing.key);
  if (!entry) return;  // verify() has reported it, or it went meanwhile
  const cache::Metadata& metadata = entry->metadata;
  try {
    const jit::Toolchain toolchain = jit::toolchain(jit::toolchain_for(metadata.target));
    if (toolchain.identity != metadata.toolchain_identity) {
      ++result.skipped;
      return;
    }
    jit::CompileRequest request;
    request.function = metadata.function;
    request.entry = metadata.entry;
    request.source = entry->source;
    request.target = metadata.target;
    request.options = metadata.options;
    request.expression = metadata.expression;
    if (jit::compile(request).code == entry->code) {
      ++result.same;
    } else {
      result.problems.push_back({listing.path, "compiling it again gives other code", false});
    }
  } catch (const Error& error) {
    if (error.code() == Code::not_found) {
      ++result.skipped;
    } else {
      result.problems.push_back({listing.path, error.what(), false});
    }
  }
}

Recompilation recompile(cache::Cache& cache) {
  Recompilation result;
  for (const cache::Listing& listing : cache::list(cache)) {
    if (listing.problem.empty() && !listing.other_version) recompile_entry(cache, listing, result);
  }
  return result;
}

void print_problems(const std::vector<cache::Problem>& problems) {
  for (const cache::Problem& problem : problems) {
    fmt::print("{}: {}{}\n", problem.path, red(problem.reason),
               problem.repaired ? ", repaired" : "");
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
                 clip(entry.metadata.target, 24), human_bytes(entry.file_bytes)});
    }
    table.print();
  }
  fmt::print("{} {} entries, {}\n", dry_run ? "would remove" : "removed", removed.entries.size(),
             human_bytes(removed.bytes));
  return kSuccess;
}

int print_transfer(const cache::Transfer& transfer, const std::string& file, std::string_view verb,
                   bool json) {
  if (json) {
    print_json({{"file", file},
                {"entries", transfer.entries},
                {"bytes", transfer.bytes},
                {"present", transfer.present},
                {"problems", to_json(transfer.problems)}});
  } else {
    fmt::print("{} {} entries, {}{}\n", verb, transfer.entries, human_bytes(transfer.bytes),
               transfer.present ? fmt::format(", {} were already there", transfer.present) : "");
    print_problems(transfer.problems);
  }
  return transfer.problems.empty() ? kSuccess : kFailure;
}

}  // namespace

int run_cache_verify(const CacheVerifyOptions& options) {
  cache::Cache& cache = disk_cache();
  const cache::Verification verification = cache::verify(cache, options.repair);
  Recompilation again;
  if (options.recompile) again = recompile(cache);
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
  fmt::print("{} entries, {}: {}\n", verification.entries, human_bytes(verification.bytes),
             verification.problems.empty()
                 ? "all intact"
                 : red(fmt::format("{} problems", verification.problems.size())));
  print_problems(verification.problems);
  if (verification.other_versions) {
    fmt::print("{} of another entry format, left alone\n", verification.other_versions);
  }
  if (options.recompile) {
    fmt::print("{} compile to the same code, {} were made by a compiler that is not here\n",
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
    throw UsageError("trim: say what goes: --max-size, --older-than, --target or --function");
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
  return print_transfer(cache::export_bundle(cache, options.file, filter), options.file, "exported",
                        options.json);
}

int run_cache_import(const CacheTransferOptions& options) {
  return print_transfer(cache::import_bundle(disk_cache(), options.file), options.file, "imported",
                        options.json);
}

}  // namespace kiln::tool
