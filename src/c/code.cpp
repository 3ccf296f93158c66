// Code without a device, and the cache, in C.
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ahead/compile_only.hpp"
#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/handles.hpp"
#include "kiln/cache.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel.hpp"

namespace c = kiln::c;

namespace {

/// One kernel, in memory of its own.
struct KeptCode {
  std::string code, source, log, function, expression, entry, key, target;
  double compile_ms = 0;
  int32_t cache = KILN_FROM_DISK;
  std::optional<int> registers, scalar_registers, lds, scratch, spills;
};

KeptCode keep(kiln::CompiledKernel kernel) {
  return {std::move(kernel.code),
          std::move(kernel.source),
          std::move(kernel.log),
          std::move(kernel.info.function),
          std::move(kernel.info.expression),
          std::move(kernel.info.entry),
          std::move(kernel.info.key),
          std::move(kernel.info.target),
          kernel.info.compile_ms,
          static_cast<int32_t>(kernel.info.cache),
          kernel.resources.vgprs,
          kernel.resources.sgprs,
          kernel.resources.lds,
          kernel.resources.scratch,
          kernel.resources.spills};
}

KeptCode keep(kiln::cache::Entry entry, std::string key) {
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

}  // namespace

struct kiln_code {
  std::vector<KeptCode> kernels;
};

struct kiln_cache {
  std::shared_ptr<kiln::cache::Cache> cache;
  std::string directory;
};

// ---- Code --------------------------------------------------------------------------------------

kiln_status kiln_function_compile(const kiln_function* function, const kiln_call* call,
                                  const char* target, kiln_code** code) {
  return c::guard(__func__, [&](const char* called) {
    c::require(code, called, "code");
    c::require(target, called, "target");
    const kiln_function& compiled = c::require(function, called, "function");
    const kiln::Specification specification =
        c::to_specification(call, compiled.description.arguments, called);
    auto result = std::make_unique<kiln_code>();
    for (const kiln::KernelSpec& kernel : kiln::kernel_specs(compiled.function, specification)) {
      result->kernels.push_back(keep(kiln::compile_for(kernel, target)));
    }
    *code = result.release();
  });
}

kiln_status kiln_compile_source(const char* name, const char* source,
                                const kiln_kernel_parameter* parameters, size_t parameter_count,
                                const kiln_options* options, const char* target, kiln_code** code) {
  return c::guard(__func__, [&](const char* called) {
    c::require(code, called, "code");
    c::require(target, called, "target");
    const kiln::Kernel kernel = kiln::kernel(
        c::require_text(name, called, "name"), c::require_text(source, called, "source"),
        c::to_parameters(parameters, parameter_count, called), c::to_options(options, called));
    auto result = std::make_unique<kiln_code>();
    result->kernels.push_back(keep(kiln::compile_for(kernel, target)));
    *code = result.release();
  });
}

size_t kiln_code_count(const kiln_code* code) { return code->kernels.size(); }

kiln_status kiln_code_describe(const kiln_code* code, size_t index, kiln_code_info* info) {
  return c::guard(__func__, [&](const char* called) {
    c::require_sized(info, called, "info");
    if (index >= c::require(code, called, "code").kernels.size()) {
      throw kiln::Error(kiln::Code::invalid_argument, std::string(called) +
                                                          ": index: expected one below " +
                                                          std::to_string(code->kernels.size()) +
                                                          ", got " + std::to_string(index));
    }
    const KeptCode& kept = code->kernels[index];
    kiln_code_info result{};
    result.code = kept.code.data();
    result.code_bytes = kept.code.size();
    result.source = kept.source.c_str();
    result.log = kept.log.c_str();
    result.function = kept.function.c_str();
    result.expression = kept.expression.c_str();
    result.entry = kept.entry.c_str();
    result.key = kept.key.c_str();
    result.target = kept.target.c_str();
    result.compile_ms = kept.compile_ms;
    result.cache = kept.cache;
    result.registers = kept.registers.value_or(-1);
    result.scalar_registers = kept.scalar_registers.value_or(-1);
    result.lds = kept.lds.value_or(-1);
    result.scratch = kept.scratch.value_or(-1);
    result.spills = kept.spills.value_or(-1);
    c::put_sized(info, result);
  });
}

void kiln_code_destroy(kiln_code* code) { delete code; }

// ---- The cache ---------------------------------------------------------------------------------

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
    for (const kiln::cache::Problem& problem : found.problems) {
      result.repaired += problem.repaired ? 1 : 0;
      if (visit == nullptr) continue;
      visit(context, problem.path.c_str(), problem.reason.c_str(), problem.repaired ? 1 : 0);
    }
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
