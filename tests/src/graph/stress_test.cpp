// Everything at once: threads, streams, functions, bound launches, own kernels and graphs, with
// results that come out exact however they interleave. Fit for compute-sanitizer: run it once with
// KILN_TEST_CACHE_DIR=DIR, then again under the sanitizer with the same directory, so that no
// compiler is started there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using ::testing::Each;
using testing::error_of;
using ::testing::HasSubstr;

constexpr std::int64_t kSize = 1000;
constexpr std::int64_t kStep = 1024;  ///< from one array to the next in a block of two

int rounds() {
  const char* wanted = std::getenv("KILN_TEST_ROUNDS");
  return wanted != nullptr ? std::atoi(wanted) : 12;
}

class Stress : public testing::DeviceTest {
 protected:
  const Function add = fuse("add", [](Value x, Value n) { return x + n; });
  const Kernel increment = kernel("increment", R"(
extern "C" __global__ void increment(float* x, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1.0f;
}
)",
                                  {reads_and_writes(DType::f32), scalar(DType::u32)});

  View of(float* data) const { return view(data, kSize); }
  Grid grid() const { return Grid::covering(kSize, 128); }
};

TEST_P(Stress, ThreadsStreamsAndGraphsAtOnce) {
  constexpr int kThreads = 16;
  float* const shared = zeros(kSize);
  Graph common = record(device, [&](Recorder& r) {
    r.call(add, {of(shared), 1.0}, {of(shared)});
    r.call(increment, grid(), {of(shared), kSize});
  });
  std::vector<float*> own;
  std::vector<float*> other;
  for (int t = 0; t < kThreads; ++t) {
    own.push_back(zeros(kSize));
    other.push_back(zeros(2 * kStep));
  }
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t, x = own[std::size_t(t)], y = other[std::size_t(t)],
                          z = other[std::size_t(t)] + kStep]() mutable {
      const Stream mine = backend->create_stream();
      failures[std::size_t(t)] = error_of([&] {
        const Launch bound = add.bind(mine, {of(x), 1.0}, {of(x)});
        Graph graph = record(device, [&](Recorder& r) {
          r.call(add, {of(x), 1.0}, {of(x)});
          r.copy({.from = of(x), .to = of(y)});
          r.call(increment, grid(), {of(y), kSize});
          r.call(add, {of(y), 0.0}, {of(x)});
        });
        for (int i = 0; i < rounds(); ++i) {
          common.launch(mine);
          graph.set_scalar(0, 1, double(i % 3));  // x += i % 3
          graph.launch(mine);                     // x += 1
          EXPECT_EQ(graph.rebind(y, z), 3u);
          std::swap(y, z);
          add(mine, {of(x), 2.0}, {of(x)});
          bound(mine);
          increment(mine, grid(), {of(x), kSize});
          const View front(x, DType::f32, {1 + t + i}, device);  // a plan of its own now and then
          add(mine, {front, 0.0}, {front});
        }
        backend->synchronize(mine);
      });
      backend->destroy_stream(mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(failures, Each("no error"));
  float expected = 0;
  for (int i = 0; i < rounds(); ++i) expected += float(i % 3) + 1 + 2 + 1 + 1;
  for (const float* x : own) EXPECT_THAT(read(x, kSize), Each(expected));
  EXPECT_THAT(read(shared, kSize), Each(float(2 * kThreads * rounds())));
}

// A sequence that fits into a minute under the slowest checker.
TEST_P(Stress, ALittleOfEverything) {
  float* const x = zeros(kSize);
  float* const y = zeros(kSize);
  Graph graph = record(device, [&](Recorder& r) {
    r.fill(of(y), 0);
    r.call(add, {of(x), 1.0}, {of(x)});
    r.call(increment, grid(), {of(y), kSize});
    const View touched = of(y);
    r.sequence("user", {&touched, 1}, {&touched, 1}, [&, touched](const Stream& on) {
      increment(on, grid(), {touched, kSize});
    });
    r.copy({.from = View(y, DType::f32, {10}, device), .to = View(x, DType::f32, {10}, device)});
  });
  for (int i = 0; i < 3; ++i) {
    graph.set_scalar(1, 1, double(i));
    graph.launch(stream);
  }
  const std::vector<float> result = read(x, kSize);
  EXPECT_EQ(result[9], 2);
  EXPECT_EQ(result[10], 0 + 1 + 2);
}

TEST_P(Stress, NoMemoryIsAnErrorAndTheDeviceAndItsGraphsLiveOn) {
  float* const x = zeros(kSize);
  Graph graph = record(device, [&](Recorder& r) { r.call(add, {of(x), 1.0}, {of(x)}); });
  graph.launch(stream);
  EXPECT_THAT(error_of([&] { backend->allocate(std::numeric_limits<std::size_t>::max() / 4); }),
              HasSubstr("failed on " + to_string(device)));
  graph.launch(stream);
  add(stream, {of(x), 1.0}, {of(x)});
  EXPECT_EQ(read(x, kSize)[kSize - 1], 3);
}

TEST_P(Stress, AGraphOutlivesTheFunctionsAndKernelsItWasMadeFrom) {
  float* const x = zeros(kSize);
  std::unique_ptr<Graph> graph;
  {
    const Function f = fuse("short_lived", [](Value v) { return v + 2; });
    const Kernel k = kernel("short_kernel", R"(
extern "C" __global__ void short_kernel(float* x) { x[threadIdx.x] += 1; }
)",
                            {reads_and_writes(DType::f32)});
    graph = std::make_unique<Graph>(record(device, [&](Recorder& r) {
      r.call(f, {of(x)}, {of(x)});
      r.call(k, {{1}, {64}}, {of(x)});
    }));
  }
  graph->launch(stream);
  graph->rebind(x, x);
  graph->launch(stream);
  EXPECT_EQ(read(x, kSize)[63], 6);
}

KILN_ON_EVERY_DEVICE(Stress);

// ---- Several devices ---------------------------------------------------------------------------

class SeveralDevices : public ::testing::TestWithParam<DeviceType> {};

TEST_P(SeveralDevices, EachHasItsModulesAndNeitherDisturbsTheOther) {
  std::vector<Device> two;
  for (const Device& device : jit::devices()) {
    if (device.type == GetParam() && two.size() < 2) two.push_back(device);
  }
  if (two.size() < 2) {
    GTEST_SKIP() << "needs two devices of this kind; there are " << two.size();
  }
  const Function next = fuse("next", [](Value x) { return x + 1; });
  std::vector<std::vector<float>> results;
  std::vector<Graph> graphs;
  std::vector<float*> memory;
  for (const Device& device : two) {
    jit::Backend& backend = jit::backend(device);
    memory.push_back(static_cast<float*>(backend.allocate(kSize * sizeof(float))));
    backend.fill(memory.back(), 0, kSize * sizeof(float), {device, nullptr});
    const View x(memory.back(), DType::f32, {kSize}, device);
    graphs.push_back(record(device, [&](Recorder& r) { r.call(next, {x}, {x}); }));
  }
  for (int i = 0; i < 10; ++i) {  // in turns, on one thread
    for (std::size_t d = 0; d < 2; ++d) {
      const View x(memory[d], DType::f32, {kSize}, two[d]);
      next({two[d], nullptr}, {x}, {x});
      graphs[d].launch({two[d], nullptr});
    }
  }
  for (std::size_t d = 0; d < 2; ++d) {
    jit::Backend& backend = jit::backend(two[d]);
    std::vector<float> values(kSize);
    backend.synchronize({two[d], nullptr});
    backend.copy_out(values.data(), memory[d], kSize * sizeof(float), {two[d], nullptr});
    EXPECT_THAT(values, Each(20.0f)) << to_string(two[d]);
    backend.free(memory[d]);
  }
  const View elsewhere(memory[1], DType::f32, {kSize}, two[1]);
  EXPECT_THAT(error_of([&] {
                next({two[0], nullptr}, {elsewhere}, {elsewhere});
              }),
              HasSubstr("but the stream is on"));
  EXPECT_THAT(error_of([&] {
                graphs[0].launch({two[1], nullptr});
              }),
              HasSubstr("stream is one of"));
}

INSTANTIATE_TEST_SUITE_P(Every, SeveralDevices,
                         ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_name);

// ---- Without a device --------------------------------------------------------------------------

class WithoutADevice : public ::testing::TestWithParam<DeviceType> {};

TEST_P(WithoutADevice, EveryEntryPointSaysWhatIsMissing) {
  if (testing::has_device(GetParam())) GTEST_SKIP() << "there is such a device here";
  const Device device{GetParam(), 0};
  const Stream stream{device, nullptr};
  const std::string reason = jit::why_absent(GetParam());
  ASSERT_FALSE(reason.empty());
  const Function f = fuse("f", [](Value x) { return x + 1; });
  const Kernel k =
      kernel("k", "extern \"C\" __global__ void k(float* x) { x[0] = 1; }", {writes(DType::f32)});
  alignas(16) float memory[4] = {};
  const View x(memory, DType::f32, {4}, device);
  const std::vector<std::function<void()>> entries = {
      [&] { f(stream, {x}, {x}); },
      [&] { f.prepare(stream, std::array{Argument(x)}, std::array{x}); },
      [&] { f.bind(stream, {x}, {x}); },
      [&] { k(stream, {}, {x}); },
      [&] { k.prepare(stream); },
      [&] {
        copy(stream, {.from = View(memory, DType::f32, {2}, device),
                      .to = View(memory + 2, DType::f32, {2}, device)});
      },
      [&] { record(device, [](Recorder&) {}); },
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_THAT(error_of(entries[i]), HasSubstr(reason)) << "entry point " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, WithoutADevice,
                         ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_name);

}  // namespace
}  // namespace kiln
