// What a user waits for: the first call of a function that nobody has compiled, the first call in a
// process when the kernel is on disk, and every call after it. All through the public API, on the
// best device there is; every figure is host time except where a row says otherwise.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "compile_only.hpp"
#include "jit/backend.hpp"
#include "kiln/kiln.hpp"

namespace {

constexpr std::int64_t kElements = 4096;
constexpr int kColdCalls = 8;  // a host compiler takes a good part of a second for each
constexpr int kWarmCalls = 16;

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
  kiln::View view(int i) const {
    return {pointers_[i], kiln::DType::f32, {kElements}, backend_.device()};
  }

  /// The same chain with another constant: a kernel of its own, of the same size.
  static kiln::Function function(int constant) {
    return kiln::parse("swiglu", fmt::format("silu(gate) * up + {}.0", constant));
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

  /// Puts the kernel on disk without loading it into this process.
  kiln::CompiledKernel put_on_disk(const kiln::Function& function) const {
    kiln::Specification types;
    for (const std::string& name : kiln::argument_names(function)) {
      types.arguments.push_back({name, kiln::DType::f32, {kElements}, {}, false});
    }
    types.outputs = {kiln::DType::f32};
    return kiln::compile_for(function, types, backend_.target());
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

void warm_from_disk(benchmark::State& state) {
  Fixture fixture;
  std::vector<kiln::Function> functions;
  for (int i = 0; i <= kWarmCalls; ++i) {
    functions.push_back(Fixture::function(Fixture::fresh_constant()));
    fixture.put_on_disk(functions.back());
  }
  if (fixture.prepare(functions.back()).cache != kiln::CacheState::disk) {
    state.SkipWithError("a kernel that was put on disk is not the one that a call looks for");
    return;
  }
  std::size_t next = 0;
  for (auto _ : state) {
    fixture.call(functions[next++]);
  }
  state.SetLabel(fixture.backend().name());
}
BENCHMARK(warm_from_disk)->Unit(benchmark::kMicrosecond)->UseRealTime()->Iterations(kWarmCalls);

// The floor of warm_from_disk: the driver's part alone, on bytes that are in memory.
void module_load(benchmark::State& state) {
  Fixture fixture;
  const kiln::CompiledKernel compiled =
      fixture.put_on_disk(Fixture::function(Fixture::fresh_constant()));
  const auto code = std::as_bytes(std::span(compiled.code.data(), compiled.code.size()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(fixture.backend().load(code, compiled.info.entry));
  }
  state.SetLabel(fixture.backend().name());
}
BENCHMARK(module_load)->Unit(benchmark::kMicrosecond)->UseRealTime();

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
  // A cache of this run's own, and no second one under the compiler: cold is cold.
  std::string directory = (std::filesystem::temp_directory_path() / "kiln-bench-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    fmt::print(stderr, "cannot make {}\n", directory);
    return 1;
  }
  setenv("KILN_CACHE_DIR", directory.c_str(), 1);
  setenv("AMD_COMGR_CACHE", "0", 1);
  benchmark::Initialize(&argc, argv);
  if (!benchmark::ReportUnrecognizedArguments(argc, argv)) benchmark::RunSpecifiedBenchmarks();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return 0;
}
