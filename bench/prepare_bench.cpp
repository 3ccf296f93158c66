// What preparing many kernels together saves: 32 functions through prepare_all, which puts several
// into a program, against each as a compile of its own, as many at a time as there are cores.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <future>

#include "ahead/compile_only.hpp"
#include "ahead/prepare.hpp"
#include "base/temporary.hpp"
#include "bench/rounds.hpp"
#include "kiln/kiln.hpp"

namespace {

using namespace kiln;

const int kKernels = bench::rounds(32, 2);

// Functions that differ from every other, so that nothing has them ready.
std::vector<Function> distinct_functions() {
  static int count = 0;
  constexpr const char* kBodies[] = {"silu(x) * y",
                                     "gelu(x) + y",
                                     "tanh(x * y)",
                                     "exp(x - y) * 0.5",
                                     "where(x > y, x, y) * 2",
                                     "sqrt(abs(x)) * y",
                                     "sigmoid(x) + y",
                                     "maximum(x, y) - x"};
  std::vector<Function> functions;
  for (int i = 0; i < kKernels; ++i) {
    functions.push_back(parse("prepared", fmt::format("({}) * {}.25", kBodies[i % 8], ++count)));
  }
  return functions;
}

Specification vectors() {
  Specification specification;
  for (const char* name : {"x", "y"}) {
    ArgumentSpec argument;
    argument.name = name;
    argument.dtype = DType::bf16;
    argument.shape = {64, 172};
    specification.arguments.push_back(argument);
  }
  return specification;
}

void together(benchmark::State& state, const std::string& target) {
  const Specification specification = vectors();
  for (auto _ : state) {
    const std::vector<Function> functions = distinct_functions();
    std::vector<PrepareRequest> requests;
    for (const Function& function : functions) {
      requests.push_back({&function, &specification, {}, target});
    }
    for (const Preparation& one : prepare_requests(requests, {})) {
      if (const auto error = one.error()) state.SkipWithError(error->what());
    }
  }
}

void each_alone(benchmark::State& state, const std::string& target) {
  const Specification specification = vectors();
  for (auto _ : state) {
    std::vector<std::future<CompiledKernel>> compiles;
    for (const Function& function : distinct_functions()) {
      compiles.push_back(std::async(std::launch::async, [function, &specification, &target] {
        return compile_for(function, specification, target);
      }));
    }
    for (auto& compile : compiles) compile.get();
  }
}

void add(const std::string& target) {
  try {
    jit::toolchain(jit::toolchain_for(target));
  } catch (const Error& error) {
    fmt::print(stderr, "Not measured: {}: {}\n", target, error.what());
    return;
  }
  for (const auto& [name, run] : {std::pair("together", &together), {"each_alone", &each_alone}}) {
    benchmark::RegisterBenchmark(
        fmt::format("{}/{}", name, target).c_str(),
        [run = run, target](benchmark::State& state) { run(state, target); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

}  // namespace

int main(int count, char** arguments) {
  setenv("AMD_COMGR_CACHE", "0", 1);
  const kiln::base::TemporaryDirectory cache("kiln-bench");
  setenv("KILN_CACHE_DIR", cache.path().c_str(), 1);
  for (const char* target : {"gfx906", "sm_80", "cpu"}) add(target);
  benchmark::Initialize(&count, arguments);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
