// Recorded graphs: the same bits as the calls one after the other, also after rebinding; order from
// what operations touch; and what is refused.
#include "kiln/graph.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "tests/support/device_test.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::counting;

class GraphOnDevice : public testing::DeviceTest {};

TEST_P(GraphOnDevice, ReplaysAChainWithOtherNumbersAndMemory) {
  const Function axpy = fuse("axpy", [](Value a, Value x, Value y) { return a * x + y; });
  float* const x = allocate(counting(64));
  float* const y = allocate(std::vector<float>(64, 10));
  float* const t = allocate(std::vector<float>(64, 0));
  float* const out = allocate(std::vector<float>(64, 0));
  float* const other = allocate(std::vector<float>(64, -1));
  Graph graph = record(device, [&](Recorder& r) {
    r.call(axpy, {2.0, view(x, 64), view(y, 64)}, {view(t, 64)});
    r.call(axpy, {1.0, view(t, 64), view(t, 64)}, {view(out, 64)});
  });
  graph.launch(stream);
  EXPECT_EQ(read(out, 64)[63], 2 * (2 * 64 + 10));
  graph.set_scalar(0, 0, 3.0);
  graph.launch(stream);
  EXPECT_EQ(read(out, 64)[63], 2 * (3 * 64 + 10));
  EXPECT_EQ(graph.rebind(y, other), 1u);
  graph.launch(stream);
  EXPECT_EQ(read(out, 64)[63], 2 * (3 * 64 - 1));
  EXPECT_EQ(graph.rebind(y, other), 0u);
  ASSERT_EQ(graph.edges().size(), 1u);
  EXPECT_EQ(graph.edges()[0].reason, "read after write");
}

TEST_P(GraphOnDevice, RebindingThatMakesOperationsMeetOrdersThem) {
  const Function next = fuse("next", [](Value x) { return x + 1; });
  float* const a = allocate(std::vector<float>(256, 0));
  float* const b = allocate(std::vector<float>(256, 100));
  float* const c = allocate(std::vector<float>(256, 0));
  Graph graph = record(device, [&](Recorder& r) {
    r.call(next, {view(a, 256)}, {view(b, 256)});
    r.call(next, {view(c, 256)}, {view(c, 256)});
  });
  EXPECT_TRUE(graph.edges().empty());
  graph.rebind(c, b);
  EXPECT_EQ(graph.edges().size(), 1u);
  graph.launch(stream);
  EXPECT_EQ(read(b, 256)[255], 2.0f);
}

TEST_P(GraphOnDevice, CopiesFillsAndSequencesKeepTheirPlace) {
  const Function next = fuse("next", [](Value x) { return x + 1; });
  float* const a = allocate(counting(128));
  float* const b = allocate(std::vector<float>(128, 0));
  const View va = view(a, 128);
  const View vb = view(b, 128);
  Graph graph = record(device, [&](Recorder& r) {
    r.fill(vb, 0);
    r.call(next, {vb}, {vb});
    r.sequence("user", std::span(&vb, 1), std::span(&va, 1),
               [&](const Stream& on) { next(on, {vb}, {va}); });
    r.copy({.from = va, .to = vb});
  });
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  EXPECT_EQ(read(b, 128)[7], 2.0f);
  EXPECT_EQ(graph.operations()[2].name, "user");
  EXPECT_THROW(graph.rebind(a, b), Error);
}

TEST_P(GraphOnDevice, RandomProgramsOverOverlappingViewsGiveTheSameBits) {
  if (testing::is_host_driver(*backend)) {
    GTEST_SKIP() << "the driver made for tests compiles no kernels of several vectors";
  }
  const Function mix = fuse("mix", [](Value x, Value y) { return x * 0.5 + y; });
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(static_cast<unsigned>(seed));
  constexpr std::size_t kSize = 512;
  for (int draw = 0; draw < 20; ++draw) {
    float* const graph_memory = allocate(counting(kSize));
    float* const eager_memory = allocate(counting(kSize));
    struct Step {
      std::int64_t x, y, out, count;
    };
    std::vector<Step> steps;
    const int length = 2 + static_cast<int>(random() % 40);
    while (static_cast<int>(steps.size()) < length) {
      const auto count = static_cast<std::int64_t>(1 + random() % 64);
      const auto place = [&] { return static_cast<std::int64_t>(random() % (kSize - 64)); };
      const Step step{place(), place(), place(), count};
      const auto apart = [&](std::int64_t other) {
        return other == step.out || other + count <= step.out || step.out + count <= other;
      };
      if (apart(step.x) && apart(step.y)) steps.push_back(step);
    }
    Graph graph = record(device, [&](Recorder& r) {
      for (const Step& s : steps) {
        r.call(mix, {view(graph_memory + s.x, s.count), view(graph_memory + s.y, s.count)},
               {view(graph_memory + s.out, s.count)});
      }
    });
    for (int replay = 0; replay < 3; ++replay) {
      graph.launch(stream);
      for (const Step& s : steps) {
        mix(stream, {view(eager_memory + s.x, s.count), view(eager_memory + s.y, s.count)},
            {view(eager_memory + s.out, s.count)});
      }
    }
    ASSERT_EQ(read(graph_memory, kSize), read(eager_memory, kSize)) << "draw " << draw;
  }
}

// Small operations after large ones: those that begin before others have ended would find old
// numbers if they did not wait.
TEST_P(GraphOnDevice, SmallOperationsWaitForLargeOnes) {
  if (testing::is_host_driver(*backend)) GTEST_SKIP() << "no reductions on " << backend->name();
  const std::int64_t rows = 64;
  const std::int64_t length = on_real_gpu() ? 1 << 17 : 64;
  const auto count = static_cast<std::size_t>(rows * length);
  const Function mix = fuse("mix", [](Value x, Value y) { return x * 0.5 + y * 0.25; });
  const Function middle = parse("middle", "mean(x, -1)");
  const Function shift = parse("shift", "x - s * 0.25");
  const auto run = [&](float* memory, const auto& call) {
    float* const a = memory;
    float* const b = memory + count;
    float* const means = memory + 2 * count;
    const auto large = [&](float* data) { return View(data, DType::f32, {rows, length}, device); };
    for (int round = 0; round < 6; ++round) {
      call(mix, {large(a), large(b)}, {large(b)});
      call(middle, {large(b)}, {View(means, DType::f32, {rows}, device)});
      call(mix, {view(means, rows), view(means, rows)}, {view(means, rows)});
      call(shift, {large(a), View(means, DType::f32, {rows, 1}, device)}, {large(a)});
    }
  };
  float* const recorded = allocate(counting(2 * count + 64));
  float* const eager = allocate(counting(2 * count + 64));
  Graph graph = record(device, [&](Recorder& r) {
    run(recorded, [&](const Function& function, std::initializer_list<Argument> inputs,
                      std::initializer_list<View> outputs) { r.call(function, inputs, outputs); });
  });
  for (int replay = 0; replay < 3; ++replay) {
    graph.launch(stream);
    run(eager, [&](const Function& function, std::initializer_list<Argument> inputs,
                   std::initializer_list<View> outputs) { function(stream, inputs, outputs); });
  }
  EXPECT_EQ(read(recorded, 2 * count + 64), read(eager, 2 * count + 64));
}

// A kernel may read weights before the kernels ahead of it have ended, but not those that one of
// them writes.
TEST_P(GraphOnDevice, WeightsThatTheGraphWritesAreReadAfterwards) {
  if (testing::is_host_driver(*backend)) GTEST_SKIP() << "no reductions on " << backend->name();
  const std::int64_t rows = on_real_gpu() ? 4096 : 16;
  const std::int64_t groups = 64;
  const std::int64_t length = 64;
  const auto bytes = static_cast<std::size_t>(rows * groups * length / 2);
  const Function product = parse("product", "sum((q * scale + bias) * x, -1, -2)");
  const Function next = parse("next", "x + 1");
  auto* const q = allocate(std::vector<std::uint8_t>(bytes, 0));
  auto* const other = allocate(std::vector<std::uint8_t>(bytes, 0));
  const auto shape = static_cast<std::size_t>(rows * groups);
  auto* const scale = allocate(std::vector<std::uint16_t>(shape, 0x3f80));  // 1 as bf16
  auto* const bias = allocate(std::vector<std::uint16_t>(shape, 0));
  auto* const x = allocate(std::vector<std::uint16_t>(4096, 0x3f80));
  float* const out = zeros(static_cast<std::size_t>(rows));
  float* const small = zeros(64);
  const View of_groups_scale(scale, DType::bf16, {rows, groups, 1}, device);
  const View of_groups_bias(bias, DType::bf16, {rows, groups, 1}, device);
  const View vector(x, DType::bf16, {groups, length}, device);
  const View result(out, DType::f32, {rows}, device);
  const View weights(q, DType::u4, {rows, groups, length}, device);
  const View now(q, DType::u8, {static_cast<std::int64_t>(bytes)}, device);
  const View from(other, DType::u8, {static_cast<std::int64_t>(bytes)}, device);
  const Function invert = parse("invert", "x ^ 17");
  Graph graph = record(device, [&](Recorder& r) {
    r.call(invert, {from}, {now});
    r.call(next, {view(small, 64)}, {view(small, 64)});
    r.call(product, {weights, of_groups_scale, of_groups_bias, vector}, {result});
  });
  for (const std::uint8_t value : {0x00, 0x11, 0x33}) {
    write(other, std::vector<std::uint8_t>(bytes, value));
    graph.launch(stream);
    const float expected = static_cast<float>((value ^ 17) & 15) * 4096;
    const std::vector<float> sums = read(out, static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], expected) << "row " << i;
  }
}

// The weights of each may be there before its vector is, which is what the one before gives.
TEST_P(GraphOnDevice, ProductsWaitForTheirVectors) {
  if (testing::is_host_driver(*backend)) GTEST_SKIP() << "no reductions on " << backend->name();
  const Function product = parse("product", "bf16(sum((q * scale + bias) * x, -1, -2))");
  for (const std::int64_t rows : {256, 4096, 8192}) {  // of one tile for each team, and of several
    if (!on_real_gpu() && rows > 256) break;
    const std::int64_t groups = std::min<std::int64_t>(rows, 4096) / 64;
    const auto length = static_cast<std::size_t>(rows);
    const std::size_t lines = length * static_cast<std::size_t>(groups);
    std::mt19937 random(static_cast<unsigned>(rows));
    std::vector<std::uint8_t> bytes(lines * 32);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    std::vector<std::uint16_t> scales(lines);
    for (std::uint16_t& scale : scales)
      scale = random() % 2 == 0 ? 0x3b80 : 0xbb80;  // 2^-8 as bf16
    std::vector<std::uint16_t> biases = scales;     // -8 times as much
    for (std::uint16_t& bias : biases) bias = static_cast<std::uint16_t>((bias + 0x0180) ^ 0x8000);
    const View q(allocate(bytes), DType::u4, {rows, groups, 64}, device);
    const View scale(allocate(scales), DType::bf16, {rows, groups, 1}, device);
    const View bias(allocate(biases), DType::bf16, {rows, groups, 1}, device);
    std::vector<std::uint16_t> start(2 * length, 0);
    for (std::size_t i = 0; i < length; ++i) start[i] = i % 3 == 0 ? 0x3f80 : 0xbf00;
    const auto run = [&](std::uint16_t* memory, const auto& call) {
      for (int step = 0; step < 12; ++step) {
        std::uint16_t* const from = memory + (step % 2 == 0 ? 0 : length);
        std::uint16_t* const to = memory + (step % 2 == 0 ? length : 0);
        call({q, scale, bias, View(from, DType::bf16, {groups, 64}, device)},
             {View(to, DType::bf16, {rows}, device)});
      }
    };
    std::uint16_t* const recorded = allocate(start);
    std::uint16_t* const eager = allocate(start);
    using Inputs = std::initializer_list<Argument>;
    using Outputs = std::initializer_list<View>;
    Graph graph = record(device, [&](Recorder& r) {
      run(recorded, [&](Inputs inputs, Outputs outputs) { r.call(product, inputs, outputs); });
    });
    for (int replay = 0; replay < 3; ++replay) {
      graph.launch(stream);
      run(eager, [&](Inputs inputs, Outputs outputs) { product(stream, inputs, outputs); });
    }
    const std::vector<std::uint16_t> sums = read(recorded, 2 * length);
    EXPECT_EQ(sums, read(eager, 2 * length)) << rows;
    EXPECT_GT(std::set<std::uint16_t>(sums.begin(), sums.end()).size(), length / 8) << rows;
  }
}

TEST_P(GraphOnDevice, RefusesWhatCannotBeRight) {
  const Function next = fuse("next", [](Value x) { return x + 1; });
  float* const a = allocate(counting(64));
  const auto message = [&](const std::function<void(Recorder&)>& body) {
    try {
      record(device, body);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message([&](Recorder& r) {
              r.call(next, {view(a, 32)}, {view(a + 8, 32)});
            }).find("output 0 overlaps input 0"),
            std::string::npos);
  EXPECT_NE(message([&](Recorder& r) {
              r.copy({.from = view(a + 16, 32), .to = view(a, 32)});
            }).find("the two views overlap"),
            std::string::npos);
  EXPECT_NE(message([&](Recorder& r) {
              r.fill(View(a, DType::f32, {4}, {2}, device), 0);
            }).find("C order"),
            std::string::npos);
  Graph graph = record(device, [&](Recorder& r) { r.call(next, {view(a, 32)}, {view(a, 32)}); });
  EXPECT_THROW(graph.set_scalar(0, 0, 1.0), Error);
  EXPECT_THROW(graph.set_scalar(7, 0, 1.0), Error);
}

KILN_ON_EVERY_DEVICE(GraphOnDevice);

}  // namespace
}  // namespace kiln
