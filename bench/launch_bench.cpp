// What a launch costs on the host: the driver's own, kiln's Backend::launch, graphs of 50 and 300
// launches, and on the CPU the call of a kernel and of the pool. Each figure is per launch (or per
// graph), taken in bursts that fit the driver's queue, with the wait for the device left out.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/raw_driver.hpp"
#include "jit/device/backend.hpp"
#include "jit/device/cpu/shared_object.hpp"
#include "jit/device/graph.hpp"
#include "tests/jit/device/fixtures.hpp"

namespace {

using kiln::DeviceType;
using kiln::Stream;
using kiln::bench::RawDriver;
using kiln::jit::Backend;

constexpr std::uint64_t kElements = 4096;
constexpr int kBurst = 200;

/// One kernel on one device, with everything that a launch needs.
struct Setup {
  explicit Setup(DeviceType type) : backend(kiln::jit::backend({type, 0})) {
    std::string reason;
    auto code = kiln::jit::testing::saxpy(backend, reason);
    if (!code) throw std::runtime_error(reason);
    image = *code;
    kernel = backend.load(*code, "saxpy");
    x = backend.allocate(kElements * sizeof(float));
    y = backend.allocate(kElements * sizeof(float));
  }

  Backend& backend;
  kiln::jit::testing::Bytes image;
  std::shared_ptr<kiln::jit::Kernel> kernel;
  void* x = nullptr;
  void* y = nullptr;
  float a = 1;
  std::uint64_t n = kElements;
  void* arguments[4] = {&x, &y, &a, &n};
  kiln::jit::LaunchShape shape{.work_items = kElements, .block = 256};
};

Setup& setup(DeviceType type) {
  // Kept: the device may be gone before statics are destroyed.
  static auto* all = new std::map<DeviceType, std::unique_ptr<Setup>>;
  auto& one = (*all)[type];
  if (!one) {
    one = std::make_unique<Setup>(type);
    if (type == DeviceType::cpu) one->shape.block = kiln::jit::kCpuBlock;
  }
  return *one;
}

RawDriver& raw_driver(DeviceType type) {
  static std::map<DeviceType, RawDriver> all;
  return all.try_emplace(type, type).first->second;
}

void launch_saxpy(const RawDriver& driver, Setup& s, void* stream) {
  driver.launch_saxpy(kElements / 256, 256, s.arguments, stream);
}

/// Times `count` calls of `launch(stream)` at a time on a stream of this thread; the wait for the
/// device comes after the clock is stopped.
template <class Launch>
void measure(benchmark::State& state, Backend& backend, int count, Launch launch) {
  const Stream stream = backend.create_stream();
  launch(stream);
  backend.synchronize(stream);
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) launch(stream);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(passed.count() / count);
    backend.synchronize(stream);
  }
  backend.destroy_stream(stream);
}

void raw_launch(benchmark::State& state, DeviceType type) {
  Setup& s = setup(type);
  const RawDriver& driver = raw_driver(type);
  driver.make_current();
  measure(state, s.backend, kBurst,
          [&](const Stream& stream) { launch_saxpy(driver, s, stream.native); });
}

/// `own_context`: whether the caller has the device's context current, as users of the runtime
/// have.
void backend_launch(benchmark::State& state, DeviceType type, bool own_context) {
  Setup& s = setup(type);
  if (type == DeviceType::cuda) {
    const RawDriver& driver = raw_driver(type);
    own_context ? driver.make_current() : driver.make_none_current();
  }
  measure(state, s.backend, kBurst,
          [&](const Stream& stream) { s.backend.launch(*s.kernel, s.shape, s.arguments, stream); });
}

void raw_graph(benchmark::State& state, DeviceType type) {
  Setup& s = setup(type);
  const RawDriver& driver = raw_driver(type);
  driver.make_current();
  const Stream stream = s.backend.create_stream();
  const kiln::bench::RawGraph graph(driver, stream.native, [&] {
    for (int i = 0; i < state.range(0); ++i) launch_saxpy(driver, s, stream.native);
  });
  measure(state, s.backend, 8, [&](const Stream& on) { graph.launch(on.native); });
  state.counters["device_us"] = s.backend.time_us(stream, [&] { graph.launch(stream.native); });
  s.backend.destroy_stream(stream);
}

std::unique_ptr<kiln::jit::PreparedGraph> chain(Setup& s, std::int64_t length) {
  std::vector<kiln::jit::GraphNode> nodes;
  for (std::uint32_t i = 0; i < length; ++i) {
    kiln::jit::Arguments arguments;
    arguments.add(s.x);
    arguments.add(s.y);
    arguments.add(s.a);
    arguments.add(s.n);
    nodes.push_back({kiln::jit::KernelNode{s.kernel, s.shape, std::move(arguments)}, {}});
    if (i > 0) nodes.back().after.push_back(i - 1);
  }
  return s.backend.prepare(std::move(nodes));
}

void backend_graph(benchmark::State& state, DeviceType type) {
  Setup& s = setup(type);
  if (type != DeviceType::cpu) raw_driver(type).make_current();
  auto graph = chain(s, state.range(0));
  measure(state, s.backend, 8, [&](const Stream& stream) { graph->launch(stream); });
  const Stream stream = s.backend.create_stream();
  state.counters["device_us"] = s.backend.time_us(stream, [&] { graph->launch(stream); });
  state.SetLabel(graph->is_replayed() ? "replayed" : "as a list");
  s.backend.destroy_stream(stream);
}

/// New pointers for every node of a graph.
void update_graph(benchmark::State& state, DeviceType type) {
  Setup& s = setup(type);
  if (type != DeviceType::cpu) raw_driver(type).make_current();
  auto graph = chain(s, state.range(0));
  kiln::jit::Arguments arguments[2];
  for (int i = 0; i < 2; ++i) {
    arguments[i].add(i == 0 ? s.y : s.x);
    arguments[i].add(i == 0 ? s.x : s.y);
    arguments[i].add(s.a);
    arguments[i].add(s.n);
  }
  int turn = 0;
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < state.range(0); ++i) graph->update(i, arguments[turn]);
    turn ^= 1;
  }
  state.SetLabel(graph->is_replayed() ? "replayed" : "as a list");
}

/// The kernel's entry, called without kiln.
void cpu_call(benchmark::State& state) {
  Setup& s = setup(DeviceType::cpu);
  const kiln::jit::cpu::SharedObject object(s.image, "saxpy");
  const auto entry =
      reinterpret_cast<void (*)(void* const*, unsigned long long, unsigned long long)>(
          object.symbol("saxpy"));
  std::uint64_t n = static_cast<std::uint64_t>(state.range(0));
  std::vector<float> x(n, 1.0F), y = x;
  void* px = x.data();
  void* py = y.data();
  void* arguments[] = {&px, &py, &s.a, &n};
  for (auto _ : state) entry(arguments, 0, n);
}

void cpu_launch(benchmark::State& state) {
  Setup& s = setup(DeviceType::cpu);
  std::uint64_t n = static_cast<std::uint64_t>(state.range(0));
  std::vector<float> x(n, 1.0F), y = x;
  void* px = x.data();
  void* py = y.data();
  void* arguments[] = {&px, &py, &s.a, &n};
  kiln::jit::LaunchShape shape{.work_items = n, .block = kiln::jit::kCpuBlock};
  for (auto _ : state) s.backend.launch(*s.kernel, shape, arguments, {});
}

void register_gpu(DeviceType type) {
  const std::string device = kiln::to_string(kiln::Device{type, 0});
  // The host's share is a part of each burst only: by its time alone far too many would be run.
  constexpr int kSamples = 60;
  const auto add = [&](const std::string& name, auto function, auto... more) {
    return benchmark::RegisterBenchmark((name + "/" + device).c_str(), function, type, more...)
        ->Iterations(kSamples)
        ->UseManualTime();
  };
  for (int threads : {1, 4, 16}) {
    add("raw_launch", raw_launch)->Threads(threads);
    add("launch", backend_launch, true)->Threads(threads);
  }
  add("launch_from_another_context", backend_launch, false);
  for (int length : {50, 300}) {
    add("raw_graph", raw_graph)->Arg(length);
    add("graph", backend_graph)->Arg(length);
    benchmark::RegisterBenchmark(("update_graph/" + device).c_str(), update_graph, type)
        ->Arg(length);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (kiln::Device device : kiln::jit::devices()) {
    if (device.index != 0) continue;
    try {
      setup(device.type);
    } catch (const std::exception& error) {
      fmt::print("{} is left out: {}\n", kiln::to_string(device), error.what());
      continue;
    }
    if (device.type != DeviceType::cpu) {
      raw_driver(device.type);
      register_gpu(device.type);
      continue;
    }
    for (int n : {1, 4096, 16384, 32768, 1 << 20}) {
      benchmark::RegisterBenchmark("raw_call/cpu", cpu_call)->Arg(n)->UseRealTime();
      benchmark::RegisterBenchmark("launch/cpu", cpu_launch)->Arg(n)->UseRealTime();
    }
    benchmark::RegisterBenchmark("graph/cpu", backend_graph, DeviceType::cpu)
        ->Arg(50)
        ->UseManualTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
