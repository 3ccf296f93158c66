// Kernels of the caller's own: both forms of source, on every device, alone and as a part of a
// graph; what is refused, and what the message says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "kiln/graph.hpp"
#include "kiln/kernel.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using ::testing::AllOf;
using testing::counting;
using testing::error_of;
using ::testing::HasSubstr;

constexpr std::string_view kScaleAdd = R"(
extern "C" __global__ void scale_add(const float* x, float* y, float a, unsigned int n) {
  const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
)";

Kernel scale_add(const Options& options = {}) {
  return kernel(
      "scale_add", kScaleAdd,
      {reads(DType::f32), reads_and_writes(DType::f32), scalar(DType::f32), scalar(DType::u32)},
      options);
}

class KernelOnDevice : public testing::DeviceTest {};

TEST_P(KernelOnDevice, PlainHipRuns) {
  float* const x = allocate(counting(1000));
  float* const y = allocate(std::vector<float>(1000, 1));
  const Kernel k = scale_add();
  k(stream, Grid::covering(999, 128), {view(x, 1000), view(y, 1000), 2.0, 999});
  const std::vector<float> result = read(y, 1000);
  for (std::size_t i = 0; i < 999; ++i) ASSERT_EQ(result[i], 2 * float(i + 1) + 1);
  EXPECT_EQ(result[999], 1) << "the kernel's bound was not respected";
}

TEST_P(KernelOnDevice, KilnsDeviceCodeIsThere) {
  const Kernel k =
      kernel("silu_kernel", R"(
namespace kiln {
KILN_KERNEL(256, silu_kernel, const f32* x, f32* y, f32 shift, u32 n) {
  KILN_FOR_EACH_WORK_ITEM(u32, 256, i, n) { y[i] = x[i] * sigmoid(x[i]) + shift; }
}
}  // namespace kiln
)",
             {reads(DType::f32), writes(DType::f32), scalar(DType::f32), scalar(DType::u32)});
  constexpr std::size_t kSize = 40'000;  // more than one core's share
  std::vector<float> values(kSize);
  for (std::size_t i = 0; i < kSize; ++i) values[i] = float(i) / 4000 - 5;
  float* const x = allocate(values);
  float* const y = allocate(std::vector<float>(kSize + 1, -1));
  k(stream, Grid::covering(kSize), {view(x, kSize), view(y, kSize), 0.5, kSize});
  const std::vector<float> result = read(y, kSize + 1);
  for (std::size_t i = 0; i < kSize; ++i) {
    ASSERT_NEAR(result[i], values[i] / (1 + std::exp(-values[i])) + 0.5f, 2e-6f);
  }
  EXPECT_EQ(result[kSize], -1) << "the kernel's bound was not respected";
}

TEST_P(KernelOnDevice, GridsAndBlocksHaveThreeAxes) {
  const Kernel k = kernel("where_am_i", R"(
extern "C" __global__ void where_am_i(unsigned int* out) {
  const unsigned int x = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned int y = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned int z = blockIdx.z * blockDim.z + threadIdx.z;
  const unsigned int width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
  out[(z * height + y) * width + x] = x + 100 * y + 10000 * z;
}
)",
                          {writes(DType::u32)});
  const Grid grid{{3, 2, 2}, {4, 5, 3}};
  const std::int64_t size = 12 * 10 * 6;
  auto* const out = allocate(std::vector<std::uint32_t>(std::size_t(size), 0));
  k(stream, grid, {View(out, DType::u32, {6, 10, 12}, device)});
  Graph graph = record(device, [&](Recorder& r) {
    r.fill(View(out, DType::u32, {size}, device), 0);
    r.call(k, grid, {View(out, DType::u32, {size}, device)});
  });
  for (int launch = 0; launch < 2; ++launch) {
    const std::vector<std::uint32_t> result = read(out, std::size_t(size));
    for (std::uint32_t i = 0; i < size; ++i) {
      ASSERT_EQ(result[i], i % 12 + 100 * (i / 12 % 10) + 10000 * (i / 120));
    }
    graph.launch(stream);
  }
}

// Whatever the loop around it on the CPU calls its own variables.
TEST_P(KernelOnDevice, MayBeCalledAnything) {
  auto* const out = allocate(std::vector<std::int32_t>(1, 0));
  for (const std::string name : {"grid", "block", "t", "arguments", "begin", "end"}) {
    const Kernel k = kernel(
        name, fmt::format("extern \"C\" __global__ void {}(int* out) {{ out[0] += 1; }}", name),
        {reads_and_writes(DType::i32)});
    k(stream, {}, {View(out, DType::i32, {1}, device)});
  }
  EXPECT_EQ(read(out, 1)[0], 6);
}

TEST_P(KernelOnDevice, EveryDtypeOfANumberArrives) {
  const Kernel k = kernel("take", R"(
extern "C" __global__ void take(double* out, bool b, signed char i8, unsigned short u16, int i32,
                                unsigned long long u64, long long i64, float f, double d) {
  const double values[] = {double(b), double(i8), double(u16), double(i32), double(u64), double(i64),
                           double(f), d};
  for (int i = 0; i < 8; ++i) out[i] = values[i];
}
)",
                          {writes(DType::f64), scalar(DType::boolean), scalar(DType::i8),
                           scalar(DType::u16), scalar(DType::i32), scalar(DType::u64),
                           scalar(DType::i64), scalar(DType::f32), scalar(DType::f64)});
  auto* const out = allocate(std::vector<double>(8, 0));
  k(stream, {},
    {View(out, DType::f64, {8}, device), true, -5, 65535, -70000, 1ull << 63, -(1ll << 40), 0.1,
     0.1});
  EXPECT_THAT(read(out, 8),
              ::testing::ElementsAre(1, -5, 65535, -70000, 0x1p63, -0x1p40, double(0.1f), 0.1));
}

TEST_P(KernelOnDevice, IsAPartOfAGraph) {
  const Kernel k = scale_add();
  const Function next = fuse("next", [](Value v) { return v + 1; });
  float* const x = allocate(counting(256));
  float* const y = zeros(256);
  float* const other = allocate(std::vector<float>(256, 100));
  std::size_t call = 0;
  Graph graph = record(device, [&](Recorder& r) {
    r.fill(view(y, 256), 0);
    call = r.call(k, Grid::covering(256), {view(x, 256), view(y, 256), 3.0, 256});
    r.call(next, {view(y, 256)}, {view(y, 256)});
  });
  ASSERT_EQ(graph.edges().size(), 2u);
  EXPECT_EQ(graph.edges()[0].reason, "read after write");
  EXPECT_EQ(graph.edges()[1].reason, "read after write");
  EXPECT_EQ(graph.operations()[1].name, "scale_add");
  EXPECT_THAT(graph.operations()[1].entry, HasSubstr("scale_add"));
  graph.launch(stream);
  EXPECT_EQ(read(y, 256)[255], 3 * 256 + 1);
  graph.set_scalar(call, 2, -1.0);
  graph.launch(stream);
  EXPECT_EQ(read(y, 256)[255], -256 + 1);
  EXPECT_EQ(graph.rebind(x, other), 1u);
  graph.launch(stream);
  EXPECT_EQ(read(y, 256)[255], -100 + 1);
  EXPECT_EQ(graph.is_replayed(), on_gpu());
  EXPECT_THAT(error_of([&] { graph.set_scalar(call, 3, std::int64_t{-1}); }),
              HasSubstr("the number -1 does not fit u32"));
  graph.launch(stream);
  EXPECT_EQ(read(y, 256)[255], -100 + 1) << "the refused number changed something";
}

TEST_P(KernelOnDevice, BeginsEarlyInAGraphIfItWaitsItself) {
  const Kernel k = kernel("halve_add", R"(
extern "C" __global__ void halve_add(const float* x, float* y, unsigned int n) {
  kiln::let_dependents_launch();
  kiln::await_prerequisites();
  for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = 0.5f * y[i] + x[n - 1 - i];
}
)",
                          {reads(DType::f32), reads_and_writes(DType::f32), scalar(DType::u32)});
  const std::int64_t count = on_real_gpu() ? 1 << 22 : 1 << 10;
  const auto size = static_cast<std::size_t>(count);
  float* const a = allocate(counting(size));
  float* const b = allocate(std::vector<float>(size, 3));
  float* const eager_a = allocate(counting(size));
  float* const eager_b = allocate(std::vector<float>(size, 3));
  const auto grid = Grid::covering(static_cast<std::uint64_t>(count) / 8);
  const auto steps = [&](float* x, float* y, const auto& call) {
    for (int i = 0; i < 10; ++i) {
      call({view(x, count), view(y, count), static_cast<std::uint32_t>(count)});
      call({view(y, count), view(x, count), static_cast<std::uint32_t>(count)});
    }
  };
  Graph graph = record(device, [&](Recorder& r) {
    steps(a, b, [&](std::initializer_list<Argument> arguments) { r.call(k, grid, arguments); });
  });
  for (int i = 0; i < 3; ++i) {
    graph.launch(stream);
    steps(eager_a, eager_b,
          [&](std::initializer_list<Argument> arguments) { k(stream, grid, arguments); });
  }
  EXPECT_EQ(read(a, size), read(eager_a, size));
}

TEST_P(KernelOnDevice, OnlyReadingOrdersNothing) {
  const Kernel k = scale_add();
  float* const x = allocate(counting(64));
  float* const y = zeros(64);
  float* const z = zeros(64);
  const Graph graph = record(device, [&](Recorder& r) {
    r.call(k, Grid::covering(64), {view(x, 64), view(y, 64), 1.0, 64});
    r.call(k, Grid::covering(64), {view(x, 64), view(z, 64), 1.0, 64});
  });
  EXPECT_TRUE(graph.edges().empty());
}

TEST_P(KernelOnDevice, IsCompiledOnceAndKept) {
  const Options fails{.on_miss = OnMiss::fail};
  const std::string source = std::string(kScaleAdd) + "// compiled once\n";
  const std::vector<KernelParameter> parameters = {reads(DType::f32), reads_and_writes(DType::f32),
                                                   scalar(DType::f32), scalar(DType::u32)};
  EXPECT_THAT(error_of([&] { kernel("scale_add", source, parameters, fails).prepare(stream); }),
              AllOf(HasSubstr("scale_add: no kernel for"), HasSubstr("on_miss forbids compiling")));
  const Kernel k = kernel("scale_add", source, parameters);
  const KernelInfo first = k.prepare(stream);
  EXPECT_EQ(first.cache, CacheState::compiled);
  EXPECT_EQ(first.key.size(), 32u);
  EXPECT_EQ(first.source, source);
  EXPECT_EQ(k.prepare(stream).cache, CacheState::memory);
  EXPECT_EQ(kernel("scale_add", source, parameters, fails).prepare(stream).cache,
            CacheState::memory);
}

TEST_P(KernelOnDevice, NothingIsLaunchedForAnEmptyGrid) {
  const Kernel k = scale_add();
  float* const y = zeros(4);
  k(stream, Grid::covering(0), {view(y, 4), view(y, 4), 1.0, 4});
  Graph graph = record(device, [&](Recorder& r) {
    r.call(k, Grid::covering(0), {view(y, 4), view(y, 4), 1.0, 4});
  });
  graph.launch(stream);
  EXPECT_EQ(read(y, 4)[0], 0);
}

TEST_P(KernelOnDevice, WhatCannotBeRightIsRefused) {
  const Kernel k = scale_add();
  float* const y = zeros(8);
  const auto message = [&](std::vector<Argument> arguments, Grid grid = {}) {
    return error_of([&] { k.call(stream, grid, arguments); });
  };
  EXPECT_EQ(message({view(y, 8)}), "scale_add: expected 4 arguments, got 1");
  EXPECT_EQ(message({view(y, 8), 1, 1.0, 8}),
            "scale_add: argument 1: expected an array of f32, got a number");
  EXPECT_EQ(message({view(y, 8), view(y, 8), view(y, 8), 8}),
            "scale_add: argument 2: expected a number (f32), got an array");
  EXPECT_EQ(message({View(y, DType::i32, {8}, device), view(y, 8), 1.0, 8}),
            "scale_add: argument 0: expected an array of f32, got one of i32");
  EXPECT_EQ(message({View(nullptr, DType::f32, {8}, device), view(y, 8), 1.0, 8}),
            "scale_add: argument 0: the data pointer is null");
  EXPECT_EQ(message({view(y, 8), view(y, 8), 1.0, -8}),
            "scale_add: argument 3: the number -8 does not fit u32");
  EXPECT_EQ(message({view(y, 8), view(y, 8), 1.0, 0.5}),
            "scale_add: argument 3: the number 0.5 does not fit u32");
  if (on_gpu()) {
    EXPECT_THAT(message({view(y, 8), view(y, 8), 1.0, 8}, {{}, {64, 64}}),
                HasSubstr("block must be from 1 to"));
    EXPECT_THAT(message({view(y, 8), view(y, 8), 1.0, 8}, {{1, 70'000}, {1}}),
                HasSubstr("a grid of 1 x 70000 x 1 blocks"));
  } else {
    EXPECT_THAT(message({view(y, 8), view(y, 8), 1.0, 8}, {{}, {}, 16}),
                HasSubstr("dynamic shared memory"));
  }
  EXPECT_EQ(read(y, 8)[0], 0);
}

TEST_P(KernelOnDevice, SourceThatDoesNotCompileIsShown) {
  const Kernel k = kernel(
      "broken", "extern \"C\" __global__ void broken(float* y) { y[0] = undeclared_thing; }\n",
      {writes(DType::f32)});
  EXPECT_THAT(error_of([&] { k.prepare(stream); }),
              AllOf(HasSubstr("function 'broken'"), HasSubstr("undeclared_thing")));
}

TEST_P(KernelOnDevice, ThreadsThatShareMemoryNeedAGpu) {
  const Kernel k = kernel("reversed", R"(
extern "C" __global__ void reversed(float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
)",
                          {reads_and_writes(DType::f32)});
  if (!on_gpu() || testing::is_host_driver(*backend)) {
    EXPECT_THAT(error_of([&] { k.prepare(stream); }),
                HasSubstr("this kernel does not run on the CPU device"));
    return;
  }
  float* const y = allocate(counting(64));
  k(stream, {{1}, {64}}, {view(y, 64)});
  EXPECT_EQ(read(y, 64)[0], 64);
}

TEST_P(KernelOnDevice, ManyThreadsUseOneKernel) {
  const Kernel k = scale_add();
  float* const x = allocate(counting(64));
  std::vector<float*> outputs;
  for (int t = 0; t < 8; ++t) outputs.push_back(zeros(64));
  std::vector<std::thread> threads;
  for (float* y : outputs) {
    threads.emplace_back([&, y] {
      const Stream own = backend->create_stream();
      for (int i = 0; i < 20; ++i) {
        k(own, Grid::covering(64, 32), {view(x, 64), view(y, 64), 1.0, 64});
      }
      backend->synchronize(own);
      backend->destroy_stream(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const float* y : outputs) EXPECT_EQ(read(y, 64)[63], 20 * 64);
}

KILN_ON_EVERY_DEVICE(KernelOnDevice);

TEST(Kernel, ADescriptionThatCannotBeRightIsRefused) {
  const auto message = [](std::string_view name, std::string_view source,
                          std::vector<KernelParameter> parameters = {}) {
    return error_of([&] { kernel(name, source, parameters); });
  };
  EXPECT_EQ(message("two words", kScaleAdd),
            "kernel: name: expected a C identifier, got 'two words'");
  EXPECT_EQ(message("scale", kScaleAdd), "scale: source: there is no kernel of that name in it");
  EXPECT_THAT(message("f", "void f() {}"),
              HasSubstr("f: source: expected extern \"C\" __global__"));
  EXPECT_EQ(message("scale_add", kScaleAdd, {scalar(DType::f16)}),
            "scale_add: parameter 0: a number is f32, f64, bool or an integer of 8 bits or more, "
            "got f16");
}

}  // namespace
}  // namespace kiln
