// `kiln compile --base-pack`: the general kernels that serve calls until their own are compiled
// (OnMiss::fallback), as a bundle.
#include "ahead/base_pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cache/cache.hpp"
#include "tool/arguments.hpp"
#include "tool/cache_text.hpp"
#include "tool/commands.hpp"
#include "tool/print.hpp"
#include "tool/progress.hpp"

namespace kiln::tool {

int run_compile_base_pack(const std::vector<std::string>& targets, const std::string& file,
                          bool json) {
  const auto start = std::chrono::steady_clock::now();
  cache::Cache& cache = disk_cache();
  std::size_t compiled = 0;
  std::size_t failed = 0;
  cache::Filter filter;
  Counter counter("compiling", json);
  const cache::TransferProgress step = counter.step();
  for (const std::string& target : targets) {
    const auto done = [&](const BaseKernel& kernel, std::size_t count, std::size_t total) {
      const KernelResult& result = kernel.result;
      if (result.failure) {
        ++failed;
        print(stderr, "kiln: {} for {}: {}\n", kernel.name, target, result.failure->message);
      } else {
        compiled += result.info.cache == CacheState::compiled ? 1 : 0;
        if (const auto key = cache::Key::parse(result.info.key)) filter.keys.push_back(*key);
      }
      if (step) step(count, total);
    };
    compile_base_kernels(target, done);
  }
  counter.clear();
  if (failed != 0) return kFailure;
  const cache::Transfer transfer = cache::export_bundle(cache, file, filter);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const bool complete = transfer.entries == filter.keys.size();
  if (json) {
    print_json({{"file", file},
                {"targets", targets},
                {"kernels", transfer.entries},
                {"compiled", compiled},
                {"bytes", transfer.bytes},
                {"complete", complete},
                {"seconds", elapsed.count()}});
  } else {
    print("{}: {} for {} {}, {}; {} compiled; {:.1f} s\n", file, counted(transfer.entries),
          targets.size(), targets.size() == 1 ? "target" : "targets", human_bytes(transfer.bytes),
          compiled, elapsed.count());
    if (!complete) {
      print(stderr, "kiln: {} of {} kernels are not in the cache directory, but in another layer\n",
            filter.keys.size() - transfer.entries, filter.keys.size());
    }
  }
  return complete ? kSuccess : kFailure;
}

}  // namespace kiln::tool
