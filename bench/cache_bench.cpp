// What a warm first call pays to the cache: find() among 10, 1,000 and 100,000 entries, beside the
// bare open, read and close of the same file; and what a compile pays to publish. The file is in
// the page cache, the code object is 16 KiB, the source with its preamble 48 KiB.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <memory>

#include "cache/cache.hpp"
#include "tests/cache/sample.hpp"

namespace kiln::cache {
namespace {

Entry typical_entry() {
  Entry entry = sample_entry(0, 16 << 10);
  while (entry.source.size() < 48 << 10) {
    entry.source += fmt::format("  const float v{0} = v{1} * 0.5f;\n", entry.source.size(), 7);
  }
  return entry;
}

// `entries` names; all but the first are links to a few files, because only their number counts
// here.
class Populated {
 public:
  explicit Populated(std::int64_t entries) : config_(config_for(temporary_.path("kiln"))) {
    const auto cache = Cache::open(config_);
    cache->publish(sample_key(0), typical_entry());
    for (unsigned shard = 0; shard < kShards; ++shard) {
      const std::string path = fmt::format("{}/{:02x}", config_.directory, shard);
      fs::create_directory(path);
      fs::permissions(path, fs::perms::owner_all);
    }
    std::string linked;
    for (std::uint64_t i = 1; i < static_cast<std::uint64_t>(entries); ++i) {
      const std::string path = path_of(config_.directory, sample_key(i));
      if (i % 10'000 == 1) {
        cache->publish(sample_key(i), typical_entry());
        linked = path;
      } else {
        fs::create_hard_link(linked, path);
      }
    }
  }
  const Config& config() const { return config_; }
  std::string path() const { return path_of(config_.directory, sample_key(0)); }

 private:
  TemporaryDirectory temporary_;
  Config config_;
};

Populated& populated(std::int64_t entries) {
  static std::map<std::int64_t, std::unique_ptr<Populated>> all;
  auto& one = all[entries];
  if (!one) one = std::make_unique<Populated>(entries);
  return *one;
}

void find(benchmark::State& state) {
  const auto cache = Cache::open(populated(state.range(0)).config());
  for (auto _ : state) {
    auto entry = cache->find(sample_key(0));
    if (!entry) state.SkipWithError("the entry is not there");
    benchmark::DoNotOptimize(entry);
  }
}
BENCHMARK(find)->Arg(10)->Arg(1'000)->Arg(100'000)->Unit(benchmark::kMicrosecond);

// With the first look at the directory: its owner, its mode, its parents.
void open_and_find(benchmark::State& state) {
  const Config& config = populated(state.range(0)).config();
  for (auto _ : state) {
    Cache cache(config);
    auto entry = cache.find(sample_key(0));
    if (!entry) state.SkipWithError("the entry is not there");
    benchmark::DoNotOptimize(entry);
  }
}
BENCHMARK(open_and_find)->Arg(10)->Arg(100'000)->Unit(benchmark::kMicrosecond);

void miss(benchmark::State& state) {
  const auto cache = Cache::open(populated(state.range(0)).config());
  for (auto _ : state) benchmark::DoNotOptimize(cache->find(sample_key(1'000'000)));
}
BENCHMARK(miss)->Arg(10)->Arg(100'000)->Unit(benchmark::kMicrosecond);

void bare_read(benchmark::State& state) {
  const std::string path = populated(10).path();
  std::vector<char> buffer(fs::file_size(path));
  for (auto _ : state) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (::read(fd, buffer.data(), buffer.size()) < 0) state.SkipWithError("read failed");
    ::close(fd);
    benchmark::DoNotOptimize(buffer.data());
  }
}
BENCHMARK(bare_read)->Unit(benchmark::kMicrosecond);

void publish(benchmark::State& state) {
  const auto cache = Cache::open(populated(state.range(0)).config());
  const Entry entry = typical_entry();
  for (auto _ : state) {
    if (!cache->publish(sample_key(0), entry)) state.SkipWithError("not published");
  }
}
BENCHMARK(publish)->Arg(10)->Arg(1'000)->Unit(benchmark::kMicrosecond);

void key(benchmark::State& state) {
  std::vector<Ingredient> ingredients = sample_ingredients();
  ingredients[0].value = typical_entry().source;
  for (auto _ : state) benchmark::DoNotOptimize(make_key(ingredients));
}
BENCHMARK(key)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kiln::cache

BENCHMARK_MAIN();
