// What the compile service adds to a compile: against hiprtc called directly in this process, on
// one and on two workers, and for many requests of one key. comgr's own cache is off on both sides.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <stdlib.h>

#include "bench/rounds.hpp"
#include "jit/compilers/compiler.hpp"
#include "jit/service/service.hpp"

namespace {

using namespace kiln::jit;

const int kMany = kiln::bench::rounds(32, 2);
const int kSeveral = kiln::bench::rounds(8, 2);

// A kernel that differs from every other, so that nothing below kiln can have it ready.
CompileRequest distinct_kernel() {
  static int count = 0;
  CompileRequest request;
  request.entry = fmt::format("kernel{}", ++count);
  request.function = request.entry;
  request.target = "gfx906";
  request.options = compile_options(request.target, false);
  request.source = fmt::format(
      "extern \"C\" __global__ void {}(const float* x, float* y) {{\n"
      "  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  float a = x[i];\n  y[i] = a / (1.0f + __builtin_expf(-a)) * {}.0f;\n}}\n",
      request.entry, count);
  return request;
}

Settings settings_for(int jobs) {
  Settings settings = settings_from_environment();
  settings.jobs = jobs;
  settings.in_process = false;
  return settings;
}

// The floor: no worker, no queue, a library that is loaded and warm.
void raw_hiprtc(benchmark::State& state) {
  const auto compiler = open_compiler(ToolchainKind::hiprtc, toolchain(ToolchainKind::hiprtc).path);
  for (auto _ : state) {
    const CompileRequest request = distinct_kernel();
    benchmark::DoNotOptimize(
        compiler->compile({request.entry, request.source, request.target, request.options}));
  }
}
BENCHMARK(raw_hiprtc)->Unit(benchmark::kMillisecond)->UseRealTime();

void service_warm_worker(benchmark::State& state) {
  Service service(settings_for(1));
  service.compile_async(distinct_kernel()).wait();
  for (auto _ : state) benchmark::DoNotOptimize(service.compile_async(distinct_kernel()).get());
}
BENCHMARK(service_warm_worker)->Unit(benchmark::kMillisecond)->UseRealTime();

// A service that has started nothing: the process, the loading of hiprtc and the first compile.
void service_first_compile(benchmark::State& state) {
  for (auto _ : state) {
    Service service(settings_for(1));
    benchmark::DoNotOptimize(service.compile_async(distinct_kernel()).get());
  }
}
BENCHMARK(service_first_compile)->Unit(benchmark::kMillisecond)->UseRealTime();

void service_many_kernels(benchmark::State& state) {
  Service service(settings_for(static_cast<int>(state.range(0))));
  for (auto _ : state) {
    std::vector<CompileHandle> handles;
    for (int i = 0; i < kMany; ++i) handles.push_back(service.compile_async(distinct_kernel()));
    for (const CompileHandle& handle : handles) handle.wait();
  }
}
BENCHMARK(service_many_kernels)
    ->ArgName("workers")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Several kernels as as many programs on one worker, or as one program: what sharing a program
// would save.
void several_kernels(benchmark::State& state) {
  const bool shared = state.range(0) != 0;
  Service service(settings_for(1));
  service.compile_async(distinct_kernel()).wait();
  for (auto _ : state) {
    std::vector<CompileHandle> handles;
    CompileRequest all;
    for (int i = 0; i < kSeveral; ++i) {
      CompileRequest one = distinct_kernel();
      if (!shared) handles.push_back(service.compile_async(one));
      one.source.insert(0, all.source);
      all = one;
    }
    if (shared) handles.push_back(service.compile_async(all));
    for (const CompileHandle& handle : handles) handle.wait();
  }
}
BENCHMARK(several_kernels)
    ->ArgName("one_program")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace

int main(int count, char** arguments) {
  setenv("AMD_COMGR_CACHE", "0", 1);
  try {
    toolchain(ToolchainKind::hiprtc);
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "Not measured: {}\n", error.what());
    return 0;
  }
  benchmark::Initialize(&count, arguments);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
