// What kiln's own calls cost on the host beside the driver's launch in the same run: a Function, a
// bound Launch, graphs of 50 and 300 calls and their changes, and the memory that plans and graphs
// take. host_us is for one call (or graph) of one thread, taken in bursts that fit the driver's
// queue with the wait for the device left out (the column Time is that by the number of threads);
// device_us is the device's own time for one graph.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/raw_driver.hpp"
#include "bench/rounds.hpp"
#include "jit/device/backend.hpp"
#include "kiln/kiln.hpp"

namespace {

using kiln::DeviceType;
using kiln::DType;
using kiln::Function;
using kiln::Graph;
using kiln::Recorder;
using kiln::Stream;
using kiln::Value;
using kiln::View;
using kiln::jit::Backend;

constexpr std::int64_t kElements = 4096;
constexpr int kBurst = 200;
const int kSamples = kiln::bench::rounds(60, 1);

const Function& axpy() {
  static const Function* const function =
      new Function(kiln::fuse("axpy", [](Value a, Value x, Value y) { return a * x + y; }));
  return *function;
}

/// One thread's memory and stream.
struct Lane {
  explicit Lane(DeviceType type)
      : device{type, 0}, backend(kiln::jit::backend(device)), stream(backend.create_stream()) {
    for (void*& pointer : memory) {
      pointer = backend.allocate(kElements * sizeof(float));
      backend.fill(pointer, 0, kElements * sizeof(float), stream);
    }
    backend.synchronize(stream);
  }
  ~Lane() {
    backend.synchronize(stream);
    for (void* pointer : memory) backend.free(pointer);
    backend.destroy_stream(stream);
  }
  View view(int which, std::int64_t count = kElements) const {
    return {memory[which], DType::f32, {count}, device};
  }

  kiln::Device device;
  Backend& backend;
  Stream stream;
  void* memory[3] = {};
};

template <class Call>
void measure(benchmark::State& state, const Lane& lane, int count, const Call& call) {
  call();
  lane.backend.synchronize(lane.stream);
  double total = 0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) call();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(passed.count() / count);
    total += passed.count() / count;
    lane.backend.synchronize(lane.stream);
  }
  state.counters["host_us"] = benchmark::Counter(total * 1e6 / static_cast<double>(kSamples),
                                                 benchmark::Counter::kAvgThreads);
}

/// The driver without kiln, launching the kernel that kiln made for the same call.
void raw_launch(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  const kiln::bench::RawDriver driver(type);
  driver.make_current();
  void* x = lane.memory[0];
  void* y = lane.memory[1];
  float a = 2;
  std::uint64_t n = kElements;
  void* arguments[] = {&x, &y, &a, &n};
  measure(state, lane, kBurst,
          [&] { driver.launch_saxpy(kElements / 256, 256, arguments, lane.stream.native); });
}

void launch(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  if (type != DeviceType::cpu) kiln::bench::RawDriver(type).make_current();
  const kiln::Launch bound =
      axpy().bind(lane.stream, {2.0, lane.view(0), lane.view(1)}, {lane.view(2)});
  measure(state, lane, kBurst, [&] { bound(lane.stream); });
}

void function_call(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  if (type != DeviceType::cpu) kiln::bench::RawDriver(type).make_current();
  const Function& f = axpy();
  const View x = lane.view(0);
  const View y = lane.view(1);
  const View out = lane.view(2);
  measure(state, lane, kBurst, [&] { f(lane.stream, {2.0, x, y}, {out}); });
}

/// The launch with other memory and another number each time.
void launch_rebound(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  if (type != DeviceType::cpu) kiln::bench::RawDriver(type).make_current();
  kiln::Launch bound = axpy().bind(lane.stream, {2.0, lane.view(0), lane.view(1)}, {lane.view(2)});
  int turn = 0;
  measure(state, lane, kBurst, [&] {
    bound.set_input(1, lane.memory[++turn % 2]);
    bound.set_scalar(0, double(turn));
    bound(lane.stream);
  });
}

// ---- Graphs ------------------------------------------------------------------------------------

Graph chain(const Lane& lane, std::int64_t length) {
  return kiln::record(lane.device, [&](Recorder& r) {
    for (std::int64_t i = 0; i < length; ++i) {
      r.call(axpy(), {0.5, lane.view(0), lane.view(1)}, {lane.view(1)});
    }
  });
}

void raw_graph(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  const kiln::bench::RawDriver driver(type);
  driver.make_current();
  void* x = lane.memory[0];
  void* y = lane.memory[1];
  float a = 0.5F;
  std::uint64_t n = kElements;
  void* arguments[] = {&x, &y, &a, &n};
  const kiln::bench::RawGraph graph(driver, lane.stream.native, [&] {
    for (int i = 0; i < state.range(0); ++i) {
      driver.launch_saxpy(kElements / 256, 256, arguments, lane.stream.native);
    }
  });
  measure(state, lane, 8, [&] { graph.launch(lane.stream.native); });
  state.counters["device_us"] =
      lane.backend.time_us(lane.stream, [&] { graph.launch(lane.stream.native); });
}

void graph(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  if (type != DeviceType::cpu) kiln::bench::RawDriver(type).make_current();
  Graph recorded = chain(lane, state.range(0));
  measure(state, lane, 8, [&] { recorded.launch(lane.stream); });
  state.counters["device_us"] =
      lane.backend.time_us(lane.stream, [&] { recorded.launch(lane.stream); });
  state.SetLabel(recorded.is_replayed() ? "replayed" : "as a list");
}

/// The calls of graph() one by one, without a graph.
void eager(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  if (type != DeviceType::cpu) kiln::bench::RawDriver(type).make_current();
  const auto run = [&] {
    for (int i = 0; i < state.range(0); ++i) {
      axpy()(lane.stream, {0.5, lane.view(0), lane.view(1)}, {lane.view(1)});
    }
  };
  measure(state, lane, 1, run);
  state.counters["device_us"] = lane.backend.time_us(lane.stream, run);
}

/// All nodes get other memory.
void rebind(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  if (type != DeviceType::cpu) kiln::bench::RawDriver(type).make_current();
  Graph recorded = chain(lane, state.range(0));
  int turn = 0;
  measure(state, lane, 1, [&] {
    const int from = turn++ % 2 == 0 ? 0 : 2;
    recorded.rebind(lane.memory[from], lane.memory[2 - from]);
  });
  state.SetLabel(recorded.is_replayed() ? "replayed" : "as a list");
}

/// Every node gets another number.
void set_scalars(benchmark::State& state, DeviceType type) {
  const Lane lane(type);
  if (type != DeviceType::cpu) kiln::bench::RawDriver(type).make_current();
  Graph recorded = chain(lane, state.range(0));
  double value = 0;
  measure(state, lane, 1, [&] {
    value += 0.25;
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      recorded.set_scalar(static_cast<std::size_t>(i), 0, value);
    }
  });
}

// ---- Memory ------------------------------------------------------------------------------------

double allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

/// What a plan takes: the kernel is one and the same.
void memory(benchmark::State& state, DeviceType type) {
  constexpr int kPlans = 256;
  const Lane lane(type);
  for (auto _ : state) {
    const Function f = kiln::fuse("axpy", [](Value a, Value x, Value y) { return a * x + y; });
    const auto prepare = [&](std::int64_t size) {
      f(lane.stream, {2.0, lane.view(0, size), lane.view(1, size)}, {lane.view(2, size)});
    };
    prepare(4 * (kPlans + 1));
    const double before = allocated_bytes();
    for (int i = 1; i <= kPlans; ++i) prepare(4 * i);
    state.counters["bytes_per_plan"] = (allocated_bytes() - before) / kPlans;
    const double without = allocated_bytes();
    const Graph recorded = chain(lane, 300);
    state.counters["graph_bytes_per_node"] = (allocated_bytes() - without) / 300;
  }
}

void register_device(DeviceType type) {
  const std::string device = kiln::to_string(kiln::Device{type, 0});
  const auto add = [&](const std::string& name, auto function) {
    return benchmark::RegisterBenchmark((name + "/" + device).c_str(), function, type)
        ->UseManualTime()
        ->Iterations(kSamples)
        ->Repetitions(kiln::bench::rounds(5, 1))
        ->ReportAggregatesOnly()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const int threads : {1, 4, 16}) {
    if (type != DeviceType::cpu) add("raw_launch", raw_launch)->Threads(threads);
    add("launch", launch)->Threads(threads);
    add("function", function_call)->Threads(threads);
  }
  add("launch_rebound", launch_rebound);
  for (const int length : {50, 300}) {
    if (type != DeviceType::cpu) add("raw_graph", raw_graph)->Arg(length);
    add("graph", graph)->Arg(length);
    add("eager", eager)->Arg(length);
    add("rebind", rebind)->Arg(length);
    add("set_scalars", set_scalars)->Arg(length);
  }
  benchmark::RegisterBenchmark(("memory/" + device).c_str(), memory, type)->Iterations(1);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const kiln::Device device : kiln::jit::devices()) {
    if (device.index != 0) continue;
    try {
      const Lane lane(device.type);
      axpy().prepare(lane.stream, std::vector<kiln::Argument>{2.0, lane.view(0), lane.view(1)},
                     std::vector<View>{lane.view(2)});
      register_device(device.type);
    } catch (const std::exception& error) {
      fmt::print("{} is left out: {}\n", kiln::to_string(device), error.what());
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
