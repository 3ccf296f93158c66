// The cache, bundles and the remote tier, in C.
#include "kiln/cache.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c/boundary.hpp"
#include "c/handles.hpp"
#include "kiln/error.hpp"

namespace c = kiln::c;

namespace {

static_assert(static_cast<int>(kiln::cache::Signature::good) == KILN_SIGNATURE_GOOD);

c::KeptCode keep(kiln::cache::Entry entry, std::string key) {
  kiln::cache::Metadata& metadata = entry.metadata;
  return {std::move(entry.code),
          std::move(entry.source),
          {},
          std::move(metadata.function),
          std::move(metadata.expression),
          std::move(metadata.entry),
          std::move(key),
          std::move(metadata.target),
          metadata.compile_ms,
          KILN_FROM_DISK,
          metadata.registers,
          metadata.sgprs,
          metadata.lds,
          metadata.scratch,
          metadata.spills};
}

kiln::cache::Filter to_filter(const kiln_cache_filter* filter, const char* function) {
  const kiln_cache_filter given = c::sized(filter, function, "filter");
  kiln::cache::Filter result;
  if (given.target != nullptr) result.target = given.target;
  if (given.function != nullptr) result.function = given.function;
  if (given.key_count != 0) c::require(given.keys, function, "filter: keys");
  for (size_t i = 0; i < given.key_count; ++i) {
    const char* const text = c::require_text(given.keys[i], function, "filter: keys");
    const auto key = kiln::cache::Key::parse(text);
    if (!key) {
      throw kiln::Error(
          kiln::Code::invalid_argument,
          std::string(function) + ": filter: expected a key of 32 hex digits, got '" + text + "'");
    }
    result.keys.push_back(*key);
  }
  return result;
}

void visit_problems(const std::vector<kiln::cache::Problem>& problems, kiln_problem_visitor visit,
                    void* context) {
  if (visit == nullptr) return;
  for (const kiln::cache::Problem& problem : problems) {
    visit(context, problem.path.c_str(), problem.reason.c_str(), problem.repaired ? 1 : 0);
  }
}

/// What four functions have in common: options as C++ takes them, and the report of what was done.
/// copy(filter, progress) is the C++ one.
template <class Copy>
void transfer_entries(const kiln_transfer_options* options, kiln_transfer* transfer,
                      const char* called, const Copy& copy) {
  if (transfer != nullptr) c::require_sized(transfer, called, "transfer");
  const kiln_transfer_options given = c::sized(options, called, "options");
  kiln::cache::TransferProgress progress;
  if (given.progress != nullptr) {
    progress = [&given](std::uint64_t done, std::uint64_t total) {
      c::check_callback(given.progress(given.progress_context, done, total));
    };
  }
  const kiln::cache::Transfer made = copy(to_filter(given.filter, called), progress);
  visit_problems(made.problems, given.visit, given.visit_context);
  if (transfer == nullptr) return;
  kiln_transfer result{};
  result.entries = made.entries;
  result.bytes = made.bytes;
  result.present = made.present;
  result.vanished = made.vanished;
  result.problems = made.problems.size();
  result.signature = static_cast<int32_t>(made.signature);
  c::put_sized(transfer, result);
}

}  // namespace

struct kiln_cache {
  std::shared_ptr<kiln::cache::Cache> cache;
  std::string directory;
};

kiln_status kiln_cache_open(const char* directory, kiln_cache** cache) {
  return c::guard(__func__, [&](const char* called) {
    c::require(cache, called, "cache");
    auto opened = kiln::cache::open(directory != nullptr ? directory : "");
    std::string path = kiln::cache::directory(*opened);
    *cache = new kiln_cache{std::move(opened), std::move(path)};
  });
}

const char* kiln_cache_directory(const kiln_cache* cache) { return cache->directory.c_str(); }

void kiln_cache_destroy(kiln_cache* cache) { delete cache; }

kiln_status kiln_cache_list(kiln_cache* cache, const kiln_cache_filter* filter,
                            kiln_cache_visitor visit, void* context) {
  return c::guard(__func__, [&](const char* called) {
    c::require(visit, called, "visit");
    const auto show = [&](const kiln::cache::Listing& listing) {
      const std::string key = listing.key.hex();
      const kiln::cache::Metadata& metadata = listing.metadata;
      kiln_cache_entry entry{};
      entry.size = sizeof entry;
      entry.key = key.c_str();
      entry.function = metadata.function.c_str();
      entry.expression = metadata.expression.c_str();
      entry.signature = metadata.signature.c_str();
      entry.target = metadata.target.c_str();
      entry.toolchain = metadata.toolchain.c_str();
      entry.path = listing.path.c_str();
      entry.problem = listing.problem.c_str();
      entry.file_bytes = listing.file_bytes;
      entry.code_bytes = listing.code_bytes;
      entry.created = metadata.created;
      entry.last_used = listing.last_used;
      entry.compile_ms = metadata.compile_ms;
      c::check_callback(visit(context, &entry));
      return true;
    };
    const std::vector<kiln::cache::Problem> closed = kiln::cache::for_each(
        *c::require(cache, called, "cache").cache, to_filter(filter, called), show);
    if (closed.empty()) return;
    throw kiln::Error(kiln::Code::io, std::string(called) + ": " + closed[0].path + " (" +
                                          closed[0].reason + ") was not looked at");
  });
}

kiln_status kiln_cache_read(kiln_cache* cache, const char* key, kiln_code** code) {
  return c::guard(__func__, [&](const char* called) {
    c::require(code, called, "code");
    kiln::cache::Cache& opened = *c::require(cache, called, "cache").cache;
    const kiln::cache::Key whole =
        kiln::cache::resolve(opened, c::require_text(key, called, "key"));
    auto result = std::make_unique<kiln_code>();
    result->kernels.push_back(keep(kiln::cache::read(opened, whole), whole.hex()));
    *code = result.release();
  });
}

kiln_status kiln_cache_verify(kiln_cache* cache, int32_t repair, kiln_problem_visitor visit,
                              void* context, kiln_verification* verification) {
  return c::guard(__func__, [&](const char* called) {
    if (verification != nullptr) c::require_sized(verification, called, "verification");
    const kiln::cache::Verification found =
        kiln::cache::verify(*c::require(cache, called, "cache").cache, repair != 0);
    kiln_verification result{};
    result.entries = found.entries;
    result.bytes = found.bytes;
    result.problems = found.problems.size();
    result.repaired = static_cast<std::uint64_t>(
        std::ranges::count_if(found.problems, &kiln::cache::Problem::repaired));
    visit_problems(found.problems, visit, context);
    if (verification != nullptr) c::put_sized(verification, result);
  });
}

kiln_status kiln_cache_trim(kiln_cache* cache, const kiln_trim_policy* policy,
                            kiln_removed* removed) {
  return c::guard(__func__, [&](const char* called) {
    c::require(policy, called, "policy");
    if (removed != nullptr) c::require_sized(removed, called, "removed");
    const kiln_trim_policy given = c::sized(policy, called, "policy");
    if (given.reserved != 0) c::fail_reserved(called, "policy");
    kiln::cache::TrimPolicy chosen;
    if (given.max_size != nullptr) chosen.max_size = *given.max_size;
    if (given.unused_seconds != nullptr) {
      chosen.unused_for = std::chrono::seconds(*given.unused_seconds);
    }
    chosen.filter = to_filter(given.filter, called);
    chosen.dry_run = given.dry_run != 0;
    const kiln::cache::Removed gone =
        kiln::cache::trim(*c::require(cache, called, "cache").cache, chosen);
    kiln_removed result{};
    result.entries = gone.entries.size();
    result.bytes = gone.bytes;
    if (removed != nullptr) c::put_sized(removed, result);
  });
}

// ---- Bundles and the remote tier ---------------------------------------------------------------

kiln_status kiln_cache_export(kiln_cache* cache, const char* path,
                              const kiln_transfer_options* options, kiln_transfer* transfer) {
  return c::guard(__func__, [&](const char* called) {
    kiln::cache::Cache& from = *c::require(cache, called, "cache").cache;
    c::require_text(path, called, "path");
    transfer_entries(options, transfer, called, [&](const auto& filter, const auto& progress) {
      return kiln::cache::export_bundle(from, path, filter, progress);
    });
  });
}

kiln_status kiln_cache_import(kiln_cache* cache, const char* path,
                              const kiln_transfer_options* options, kiln_transfer* transfer) {
  return c::guard(__func__, [&](const char* called) {
    kiln::cache::Cache& to = *c::require(cache, called, "cache").cache;
    c::require_text(path, called, "path");
    if (c::sized(options, called, "options").filter != nullptr) {
      throw kiln::Error(
          kiln::Code::invalid_argument,
          std::string(called) + ": options: filter: expected NULL, a bundle is imported whole");
    }
    transfer_entries(options, transfer, called, [&](const auto&, const auto& progress) {
      return kiln::cache::import_bundle(to, path, progress);
    });
  });
}

kiln_status kiln_cache_push(kiln_cache* cache, const kiln_transfer_options* options,
                            kiln_transfer* transfer) {
  return c::guard(__func__, [&](const char* called) {
    kiln::cache::Cache& from = *c::require(cache, called, "cache").cache;
    transfer_entries(options, transfer, called, [&](const auto& filter, const auto& progress) {
      return kiln::cache::push(from, filter, progress);
    });
  });
}

kiln_status kiln_cache_pull(kiln_cache* cache, const kiln_transfer_options* options,
                            kiln_transfer* transfer) {
  return c::guard(__func__, [&](const char* called) {
    kiln::cache::Cache& to = *c::require(cache, called, "cache").cache;
    transfer_entries(options, transfer, called, [&](const auto& filter, const auto& progress) {
      return kiln::cache::pull(to, filter, progress);
    });
  });
}

kiln_status kiln_cache_use_remote(const char* url, const char* secret) {
  return c::guard(__func__, [&](const char* called) {
    kiln::cache::use_remote(c::require_text(url, called, "url"), secret != nullptr ? secret : "");
  });
}
