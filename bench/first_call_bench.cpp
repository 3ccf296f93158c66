// What a user waits for: the first call of a function that nobody has compiled, the first call in a
// process when the kernel is on disk, and every call after it; and the first call of a function
// that nobody has compiled when general kernels serve it (OnMiss::fallback). All through the public
// API, on the best device there is; every figure is host time except where a row says otherwise.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ahead/base_pack.hpp"
#include "ahead/compile_only.hpp"
#include "base/subprocess.hpp"
#include "base/temporary.hpp"
#include "bench/rounds.hpp"
#include "fallback/run_unfused.hpp"
#include "jit/device/backend.hpp"
#include "kernel/kernel_build.hpp"
#include "kiln/kiln.hpp"

namespace {

constexpr std::int64_t kElements = 4096;
constexpr const char* kServe = "--serve";
// A host compiler takes a good part of a second for each.
const int kColdCalls = kiln::bench::rounds(8, 1);
const int kWarmCalls = kiln::bench::rounds(24, 1);
// Loads first: the driver's and the process' memory grow with them.
const int kUncounted = kiln::bench::rounds(16, 1);

/// Three arrays on the best device and the function that the rows call.
class Fixture {
 public:
  Fixture() : backend_(kiln::jit::backend(kiln::jit::devices().front())) {
    for (void*& pointer : pointers_) pointer = backend_.allocate(kElements * sizeof(float));
    const std::vector<float> ones(kElements, 1.0F);
    for (void* pointer : pointers_) {
      backend_.copy_in(pointer, ones.data(), kElements * sizeof(float), stream());
    }
    backend_.synchronize(stream());
  }
  ~Fixture() {
    for (void* pointer : pointers_) backend_.free(pointer);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  kiln::jit::Backend& backend() { return backend_; }
  kiln::Stream stream() const { return {backend_.device(), nullptr}; }
  kiln::View view(int i, std::int64_t elements = kElements) const {
    return {pointers_[i], kiln::DType::f32, {elements}, backend_.device()};
  }

  /// A chain of operations with that constant: each constant's is a kernel of its own, all of one
  /// size.
  static kiln::Function function(int constant, const kiln::Options& options = {}) {
    return kiln::parse("swiglu", fmt::format("silu(gate) * up + {}.0", constant), options);
  }
  void call(const kiln::Function& function) {
    function(stream(), {view(0), view(1)}, {view(2)});
    backend_.synchronize(stream());
  }
  kiln::KernelInfo prepare(const kiln::Function& function) const {
    const std::vector<kiln::Argument> inputs = {view(0), view(1)};
    const std::vector<kiln::View> outputs = {view(2)};
    return function.prepare(stream(), inputs, outputs);
  }

  static kiln::Specification types_of(const kiln::Function& function) {
    kiln::Specification types;
    for (const std::string& name : kiln::argument_names(function)) {
      types.arguments.push_back({name, kiln::DType::f32, {kElements}, {}, false});
    }
    types.outputs = {kiln::DType::f32};
    return types;
  }

  /// Puts the kernel on disk without loading it into this process.
  kiln::CompiledKernel put_on_disk(const kiln::Function& function) const {
    return kiln::compile_for(function, types_of(function), backend_.target());
  }

  /// The same of the general kernels that serve it, of which a base pack has all.
  void put_general_on_disk(const kiln::Function& function) const {
    for (const kiln::KernelSpec& spec : kiln::kernel_specs(function, types_of(function))) {
      const std::vector<kiln::Scalar> none(spec.function.graph.arguments.size(), kiln::Scalar(0));
      for (const kiln::Instruction& one : kiln::unfuse(spec, none).instructions) {
        const auto kernel = kiln::general_kernel_of(one, kiln::Accuracy::storage);
        kiln::build_kernel(kiln::general_request(kernel.value(), backend_.target()));
      }
    }
  }

  static int fresh_constant() {
    static int next = 1;
    return next++;
  }

 private:
  kiln::jit::Backend& backend_;
  void* pointers_[3] = {};
};

void cold_compile(benchmark::State& state) {
  Fixture fixture;
  for (auto _ : state) {
    fixture.call(Fixture::function(Fixture::fresh_constant()));
  }
  state.SetLabel(fixture.backend().name());
}
BENCHMARK(cold_compile)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(kColdCalls);

double microseconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Makes the cache's directory hold so many entries: names of a few files, since only their number
/// counts.
void fill_cache(std::int64_t entries) {
  namespace fs = std::filesystem;
  const std::string directory = std::getenv("KILN_CACHE_DIR");
  static std::int64_t made = 0;
  const auto cache = kiln::cache::open(directory);
  const std::string first = kiln::cache::list(*cache).at(0).path;
  static std::string linked;
  for (int shard = 0; shard < 256; ++shard) {
    const std::string path = fmt::format("{}/{:02x}", directory, shard);
    if (fs::create_directory(path)) fs::permissions(path, fs::perms::owner_all);
  }
  for (; made < entries; ++made) {
    const auto number = static_cast<std::uint64_t>(made);
    const kiln::cache::Key key{number * 0x9e3779b97f4a7c15U, number};
    const std::string path = kiln::cache::path_of(*cache, key);
    if (made % 10'000 == 0) {  // file systems bound the names of one file
      fs::copy_file(first, linked = path);
    } else {
      fs::create_hard_link(linked, path);
    }
  }
}

// The first call in a process when the kernel is on disk, among so many entries. `over` is what it
// costs above `load`, the driver's part alone on bytes that are in memory: a look-up, a read, a
// checksum, and writing the kernel's text to know its key. Half of the kernels are called, the
// others loaded, in turns: a driver takes less time over what it has loaded before.
void warm_first_call(benchmark::State& state) {
  Fixture fixture;
  std::vector<kiln::Function> functions;
  std::vector<kiln::CompiledKernel> kernels;
  for (int i = 0; i <= 2 * kWarmCalls + kUncounted; ++i) {
    functions.push_back(Fixture::function(Fixture::fresh_constant()));
    kernels.push_back(fixture.put_on_disk(functions.back()));
  }
  fill_cache(state.range(0));
  if (fixture.prepare(functions.back()).cache != kiln::CacheState::disk) {
    state.SkipWithError("a kernel that was put on disk is not the one that a call looks for");
    return;
  }
  std::vector<double> loads, calls;
  std::vector<std::shared_ptr<kiln::jit::Kernel>> loaded;  // and kept, as a call keeps its own
  loaded.reserve(kWarmCalls + kUncounted);
  const auto call = [&](const kiln::Function& function) {
    calls.push_back(microseconds_of([&] { fixture.prepare(function); }));
  };
  const auto load = [&](const kiln::CompiledKernel& kernel) {
    const auto bytes = std::as_bytes(std::span(kernel.code.data(), kernel.code.size()));
    loads.push_back(microseconds_of(
        [&] { loaded.push_back(fixture.backend().load(bytes, kernel.info.entry)); }));
  };
  for (int i = 0; i < kUncounted; ++i) load(kernels[2 * kWarmCalls + i]);
  loads.clear();
  for (auto _ : state) {
    const std::size_t i = 2 * calls.size();
    if (i % 4 == 0) load(kernels[i + 1]);
    call(functions[i]);
    if (i % 4 != 0) load(kernels[i + 1]);
    state.SetIterationTime(calls.back() / 1e6);
  }
  state.counters["call_us"] = median(calls);
  state.counters["load_us"] = median(loads);
  state.counters["over_us"] = median(calls) - median(loads);
  state.SetLabel(fixture.backend().name());
}
BENCHMARK(warm_first_call)
    ->Arg(10)
    ->Arg(1'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMicrosecond)
    ->UseManualTime()
    ->Iterations(kWarmCalls);

// The first call of functions that nobody has compiled, served by general kernels that are on disk:
// `first_us` is that of the process, which loads them. Nothing compiles beside it.
void served_first_call(benchmark::State& state) {
  Fixture fixture;
  const kiln::Options fallback{.on_miss = kiln::OnMiss::fallback};
  fixture.put_general_on_disk(Fixture::function(0));
  std::vector<double> calls;
  for (auto _ : state) {
    const kiln::Function function = Fixture::function(Fixture::fresh_constant(), fallback);
    const std::uint64_t before = kiln::statistics(fixture.backend().device()).fallbacks;
    calls.push_back(microseconds_of([&] { fixture.call(function); }));
    if (kiln::statistics(fixture.backend().device()).fallbacks != before + 1) {
      state.SkipWithError("the call was not served before its kernel was there");
      return;
    }
    state.SetIterationTime(calls.back() / 1e6);
    fixture.prepare(function);
  }
  state.counters["first_us"] = calls.front();
  state.counters["call_us"] = median(calls);
  state.SetLabel(fixture.backend().name());
}
BENCHMARK(served_first_call)
    ->Unit(benchmark::kMicrosecond)
    ->UseManualTime()
    ->Iterations(kColdCalls);

// The first calls of a process that has a base pack, an empty cache and nothing else, each of a
// function that nobody has compiled, whose compiling begins with the call. `first_us` is the first
// of all, `next_us` the first of a second function of the same operations; medians of processes.
struct Served {
  const char* name;
  const char* text;  ///< with the number of the function in it
};
constexpr Served kServed[] = {
    {"elements", "silu(gate) * up + {}.0"},
    {"softmax", "softmax(gate * {}.0 + up, -1)"},
    {"norm", "rms_norm(gate + {}.0, 1e-5) * up"},
    {"statistics", "sqrt(var(gate, -1) + {}.0) * mean(up, -1)"},
};
const int kProcesses = kiln::bench::rounds(7, 1);

/// In a process of its own: the two times, on standard output.
int serve(const Served& served) {
  Fixture fixture;
  const auto time_of = [&](int number) {
    const kiln::Function function =
        kiln::parse(served.name, fmt::format(fmt::runtime(served.text), number),
                    {.on_miss = kiln::OnMiss::fallback});
    const bool reduced = std::string_view(served.name) == "statistics";
    const kiln::View out = reduced ? fixture.view(2, 1) : fixture.view(2);
    return microseconds_of([&] {
      function(fixture.stream(), {fixture.view(0), fixture.view(1)}, {out});
      fixture.backend().synchronize(fixture.stream());
    });
  };
  const double first = time_of(2);
  const double next = time_of(3);
  const bool both = kiln::statistics(fixture.backend().device()).fallbacks == 2;
  fmt::print("{} {} {}\n", first, next, both);
  std::fflush(stdout);
  _exit(0);  // what compiles is not waited for
}

/// The pack of this device, made by the first that asks; empty if it could not be.
const std::string& base_pack() {
  static const std::string path = [] {
    const kiln::jit::Backend& backend = kiln::jit::backend(kiln::jit::devices().front());
    const std::string file = std::string(std::getenv("KILN_CACHE_DIR")) + ".kilnpack";
    kiln::cache::Filter filter;
    bool complete = true;
    const auto done = [&](const kiln::BaseKernel& kernel, std::size_t, std::size_t) {
      complete = complete && !kernel.result.failure;
      if (const auto key = kiln::cache::Key::parse(kernel.result.info.key)) {
        filter.keys.push_back(*key);
      }
    };
    kiln::compile_base_kernels(backend.target(), done);
    if (!complete) return std::string();
    kiln::cache::export_bundle(*kiln::cache::open(std::getenv("KILN_CACHE_DIR")), file, filter);
    return file;
  }();
  return path;
}

void served_process(benchmark::State& state, const Served& served) {
  std::vector<double> firsts, nexts;
  for (auto _ : state) {
    const kiln::base::TemporaryDirectory cache("kiln-bench");
    std::vector<std::string> environment;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!std::string_view(*variable).starts_with("KILN_CACHE_")) environment.push_back(*variable);
    }
    environment.push_back("KILN_CACHE_DIR=" + cache.path());
    environment.push_back("KILN_CACHE_READONLY_DIRS=" + base_pack());
    const auto result =
        kiln::base::run_command({"/proc/self/exe", kServe, served.name}, environment);
    double first = 0;
    double next = 0;
    std::string both;
    if (!(std::istringstream(result.output) >> first >> next >> both) || both != "true") {
      state.SkipWithError(("a process was not served: " + result.output + result.errors).c_str());
      return;
    }
    firsts.push_back(first);
    nexts.push_back(next);
    state.SetIterationTime(first / 1e6);
  }
  state.counters["first_us"] = median(firsts);
  state.counters["next_us"] = median(nexts);
}

// A full queue, as an engine keeps it: the host's share of one more call.
void repeated_call(benchmark::State& state) {
  Fixture fixture;
  const kiln::Function function = Fixture::function(0);
  fixture.call(function);
  const kiln::Stream stream = fixture.stream();
  const kiln::View gate = fixture.view(0), up = fixture.view(1), out = fixture.view(2);
  for (auto _ : state) function(stream, {gate, up}, {out});
  fixture.backend().synchronize(stream);
  state.SetLabel(fixture.backend().name());
}
BENCHMARK(repeated_call)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kServe) {
    return serve(*std::ranges::find(kServed, std::string_view(argv[2]), &Served::name));
  }
  // A cache of this run's own, and no second one under the compiler: cold is cold.
  const kiln::base::TemporaryDirectory cache("kiln-bench");
  setenv("KILN_CACHE_DIR", (cache.path() + "/cache").c_str(),
         1);  // beside which the base pack lies
  setenv("AMD_COMGR_CACHE", "0", 1);
  setenv("KILN_FALLBACK_MEMORY", "1M", 1);
  for (const Served& served : kServed) {
    const std::string name = std::string("served_process/") + served.name;
    benchmark::RegisterBenchmark(name.c_str(), served_process, served)
        ->Unit(benchmark::kMicrosecond)
        ->UseManualTime()
        ->Iterations(kProcesses);
  }
  benchmark::Initialize(&argc, argv);
  if (!benchmark::ReportUnrecognizedArguments(argc, argv)) benchmark::RunSpecifiedBenchmarks();
  return 0;
}
