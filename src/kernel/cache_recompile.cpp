// cache::recompile(): compiles entries again to check that the same code comes out.
#include "cache/cache.hpp"
#include "jit/service/compile.hpp"
#include "kiln/cache.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

void recompile_entry(Cache& cache, const Listing& listing, Recompilation& result) {
  const std::optional<Entry> entry = cache.read(listing.key);
  if (!entry) return;  // verify() reports it, or it went meanwhile
  const Metadata& metadata = entry->metadata;
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

}  // namespace

Recompilation recompile(Cache& cache, const Filter& filter) {
  Recompilation result;
  const std::vector<Problem> closed = for_each(cache, filter, [&](const Listing& listing) {
    const bool usable = listing.problem.empty() && !listing.other_version;
    if (usable) recompile_entry(cache, listing, result);
    return true;
  });
  result.problems.insert(result.problems.end(), closed.begin(), closed.end());
  return result;
}

}  // namespace kiln::cache
