// What kiln's device code costs a compile: silu(gate) * up in bf16, of any number of elements, as
// kiln writes it and by hand as an engine would, by the same compiler in this process. Also what it
// costs to find out which headers a kernel needs, which every first call does. comgr's own cache is
// off.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <string>

#include "ahead/compile_only.hpp"
#include "fusion/emit/emit.hpp"
#include "jit/compilers/compiler.hpp"
#include "kernel/named_kernel.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"
#include "preamble/preamble.hpp"

namespace {

using namespace kiln;

constexpr const char* kByHand = R"(
struct alignas(16) Eight {
  unsigned short bits[8];
};
static __device__ __forceinline__ float widen(unsigned short bits) {
  union {
    unsigned word;
    float number;
  } both;
  both.word = unsigned(bits) << 16;
  return both.number;
}
static __device__ __forceinline__ unsigned short round_to_bf16(float number) {
  union {
    float number;
    unsigned word;
  } both;
  both.number = number;
  const unsigned rounded = both.word + 0x7fffu + ((both.word >> 16) & 1u);
  return (unsigned short)((number != number ? both.word | 0x400000u : rounded) >> 16);
}
static __device__ __forceinline__ unsigned short silu_mul(unsigned short gate, unsigned short up) {
  const float x = widen(gate);
  return round_to_bf16(x / (1.0f + expf(-x)) * widen(up));
}
extern "C" __global__ void __launch_bounds__(256)
by_hand(const unsigned short* gate, const unsigned short* up, unsigned short* out, unsigned count) {
  unsigned first = (blockIdx.x * 256 + threadIdx.x) * 8;
  if (first + 8 <= count) {
    const Eight g = *(const Eight*)(gate + first);
    const Eight u = *(const Eight*)(up + first);
    Eight result;
#pragma unroll
    for (int k = 0; k < 8; ++k) result.bits[k] = silu_mul(g.bits[k], u.bits[k]);
    *(Eight*)(out + first) = result;
  } else {
    for (; first < count; ++first) out[first] = silu_mul(gate[first], up[first]);
  }
}
)";

EmittedKernel silu_mul(const std::string& target) {
  Specification specification;
  for (const char* name : {"gate", "up"})
    specification.arguments.push_back({name, DType::bf16, {4096, 11008}, {11008, 1}, false});
  return std::move(emit_all(parse("silu_mul", "silu(gate) * up"), specification, target).front());
}

struct Source {
  std::string entry;
  std::string text;
};

enum class Side { by_hand, kiln, whole_preamble };

Source source_of(Side side, const std::string& target) {
  if (side == Side::by_hand) return {"by_hand", kByHand};
  const KernelRequest request = silu_mul(target).request;
  if (side == Side::kiln) return {"by_kiln", complete_source({{{&request, "by_kiln"}}})};
  const auto device = target.starts_with("sm_") ? preamble::Device::nvidia : preamble::Device::amd;
  return {"by_kiln", preamble::text(preamble::all(device), device) +
                         fusion::with_entry(request.text, "by_kiln")};
}

void compile(benchmark::State& state, Side side, jit::ToolchainKind kind,
             const std::string& target) {
  std::string path;
  try {
    path = jit::toolchain(kind).path;
  } catch (const Error& error) {
    state.SetLabel(std::string("not measured: ") + error.what());
    for (auto _ : state) {
    }
    return;
  }
  const auto compiler = jit::open_compiler(kind, path);
  const std::vector<std::string> options = jit::compile_options(target, false);
  const Source source = source_of(side, target);
  int count = 0;
  const auto once = [&] {
    // Differs from every other, so that nothing below kiln can have it ready.
    const std::string text = source.text + fmt::format("// {}\n", ++count);
    benchmark::DoNotOptimize(compiler->compile({source.entry, text, target, options}));
  };
  once();  // loads the compiler
  for (auto _ : state) once();
  state.counters["source_bytes"] = static_cast<double>(source.text.size());
}

void name(benchmark::State& state, const std::string& target) {
  const KernelRequest request = silu_mul(target).request;
  for (auto _ : state) benchmark::DoNotOptimize(name_with(request, {}));
}

void add(const char* row, const std::string& compiler, Side side, jit::ToolchainKind kind,
         const char* target) {
  benchmark::RegisterBenchmark(fmt::format("{}/{}", compiler, row).c_str(),
                               [=](benchmark::State& state) { compile(state, side, kind, target); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

int main(int count, char** arguments) {
  setenv("AMD_COMGR_CACHE", "0", 1);
  struct Compiler {
    const char* name;
    jit::ToolchainKind kind;
    const char* target;
  };
  for (const auto& [compiler, kind, target] :
       {Compiler{"hiprtc", jit::ToolchainKind::hiprtc, "gfx90a"},
        Compiler{"nvrtc", jit::ToolchainKind::nvrtc, "sm_90"}}) {
    add("by_hand", compiler, Side::by_hand, kind, target);
    add("kiln", compiler, Side::kiln, kind, target);
    add("kiln_with_every_header", compiler, Side::whole_preamble, kind, target);
  }
  benchmark::RegisterBenchmark("name_kernel",
                               [](benchmark::State& state) { name(state, "gfx90a"); });
  benchmark::Initialize(&count, arguments);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
