#include "kernel/kernel_code.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "kernel/background_compile.hpp"
#include "kiln/error.hpp"
#include "kernel/named_kernel.hpp"

namespace kiln {
namespace {

// Code that somebody else's compiler has made of the same source with the same options: all that a
// machine without a compiler can use. The entry has a name and a key of its own.
std::optional<KernelCode> find_made_elsewhere(const KernelRequest& request) {
  cache::Cache& cache = process_cache();
  const auto key = cache.find_made_elsewhere(ingredients_of(request, {}));
  std::optional<cache::Entry> entry = key ? cache.find(*key) : std::nullopt;
  if (!entry) return std::nullopt;
  log_once(LogLevel::info, "made elsewhere " + entry->metadata.toolchain_identity,
           fmt::format("no compiler for {} here; using what {} has compiled", request.target,
                       entry->metadata.toolchain));
  KernelCode code;
  code.key = *key;
  code.key_text = key->hex();
  code.entry_name = std::move(entry->metadata.entry);
  code.code = std::move(entry->code);
  code.state = CacheState::disk;
  return code;
}

}  // namespace

void warn_unidentified(const jit::Toolchain& toolchain) {
  log_once(LogLevel::warning, "toolchain identity " + toolchain.path,
           fmt::format("cannot tell which compiler {} is, so what it makes is not kept on disk",
                       toolchain.path));
}

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

KernelCode name_kernel(const KernelRequest& request) {
  jit::Toolchain toolchain;
  try {
    toolchain = jit::toolchain(jit::toolchain_for(request.target));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
  return name_with(request, std::move(toolchain));
}

std::optional<KernelCode> find_code(const KernelRequest& request, KernelCode named) {
  if (named.toolchain.path.empty()) return find_made_elsewhere(request);
  if (named.toolchain.identity.empty()) return std::nullopt;
  std::optional<cache::Entry> found = process_cache().find(named.key);
  if (!found) return std::nullopt;
  named.code = std::move(found->code);
  named.state = CacheState::disk;
  return named;
}

KernelCode make_code(const KernelRequest& request) {
  return make_code(request, name_kernel(request));
}

KernelCode make_code(const KernelRequest& request, KernelCode named) {
  if (named.toolchain.path.empty()) {
    if (auto found = find_made_elsewhere(request)) return *std::move(found);
    // Says which compiler is missing, or finds one that has come meanwhile.
    named = name_with(request, jit::toolchain(jit::toolchain_for(request.target)));
  }
  const auto compile = [&] {
    jit::CompileRequest job = compile_request(request, named);
    const jit::CompileResult result = jit::compile(job);
    return make_entry(request, named, result, std::move(job.source));
  };
  if (named.toolchain.identity.empty()) {
    warn_unidentified(named.toolchain);
    named.code = compile().code;
    return named;
  }
  const Wait wait(named.key);
  for (int turn = 0;; ++turn) {
    try {
      cache::Fetched fetched = process_cache().get(named.key, compile);
      named.state = fetched.from == cache::From::disk ? CacheState::disk : CacheState::compiled;
      named.code = std::move(fetched.entry.code);
      return named;
    } catch (const Error& error) {
      // A background compile of this key was cancelled just before we began to wait for it.
      if (error.code() != Code::would_compile || turn == 2) throw;
    }
  }
}

KernelCode remake_code(const KernelRequest& request, const KernelCode& refused,
                       std::string_view reason) {
  if (!refused.key_text.empty()) process_cache().reject(refused.key, std::string(reason));
  return make_code(request);
}

}  // namespace kiln
