// How many elements a second the interpreter of AMD kernels (tests/amd) executes in one thread, of
// processor time: silu(gate) * up in bf16, with its checks of races and waits (1) and without (0).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>

#include "ahead/compile_only.hpp"
#include "bench/rounds.hpp"
#include "tests/amd/isa/listing.hpp"

namespace kiln {
namespace {

void silu_mul(benchmark::State& state, const char* target) {
  const std::uint32_t kElements = bench::rounds(1U << 18, 1U << 12);
  const Function function = parse("silu_mul", "silu(gate) * up");
  Specification specification;
  for (const char* name : {"gate", "up"}) {
    specification.arguments.push_back({name, DType::bf16, {kElements}, {1}, false});
  }
  const std::string code = compile_for(function, specification, target).code;
  const auto object =
      amd::CodeObject::load(std::as_bytes(std::span(code)), target,
                            [](const std::string& image, const std::string& processor) {
                              return jit::disassemble(image, processor);
                            });
  amd::TestMemory memory;
  const std::vector<std::uint16_t> values(kElements, 0x3f80);
  struct {
    std::uint64_t data[3];
    std::uint32_t size;
    std::uint32_t work_items;
  } arguments{{memory.allocate(values), memory.allocate(values), memory.allocate(values)},
              kElements,
              kElements / 8};
  amd::Dispatch dispatch;
  dispatch.kernel = object->kernels().data();
  dispatch.blocks = {kElements / 8 / 256, 1, 1};
  dispatch.threads = {256, 1, 1};
  dispatch.arguments = std::as_bytes(std::span(&arguments, 1));
  amd::Options options;
  options.check_races = options.check_waits = state.range(0) != 0;
  for (auto run : state) benchmark::DoNotOptimize(amd::execute(dispatch, memory, options));
  state.SetItemsProcessed(state.iterations() * kElements);
}

BENCHMARK_CAPTURE(silu_mul, gfx90a, "gfx90a")->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(silu_mul, gfx1030, "gfx1030")->Arg(0)->Arg(1);

}  // namespace
}  // namespace kiln

int main(int count, char** arguments) {
  const auto is_hiprtc = [](const kiln::jit::Toolchain& found) {
    return found.kind == kiln::jit::ToolchainKind::hiprtc;
  };
  if (!std::ranges::any_of(kiln::jit::toolchains(), is_hiprtc)) {
    std::puts("nothing is measured: there is no hiprtc");
    return 0;
  }
  benchmark::Initialize(&count, arguments);
  benchmark::RunSpecifiedBenchmarks();
}
