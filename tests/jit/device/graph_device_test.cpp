// Graphs give on every device what their operations give one by one, through updates, streams,
// threads and failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "jit/device/dependencies.hpp"
#include "jit/device/graph.hpp"
#include "kiln/error.hpp"
#include "tests/jit/device/saxpy_test.hpp"
#include "tests/support/driver_functions.hpp"

namespace kiln::jit {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class GraphTest : public testing::SaxpyTest {
 protected:
  void SetUp() override {
    SaxpyTest::SetUp();
    if (device_ == nullptr) return;
    memory_ = static_cast<float*>(device_->allocate(kFloats * sizeof(float)));
    write(std::vector<float>(kFloats, 1.0F));
  }
  void TearDown() override {
    if (memory_ != nullptr) device_->free(memory_);
    SaxpyTest::TearDown();
  }

  void write(const std::vector<float>& values) {
    device_->copy_in(memory_, values.data(), values.size() * sizeof(float), stream_);
  }
  std::vector<float> read() {
    std::vector<float> values(kFloats);
    device_->copy_out(values.data(), memory_, kFloats * sizeof(float), stream_);
    return values;
  }
  bool on_gpu() const { return GetParam() != DeviceType::cpu; }

  /// y[0, n) += a * x[0, n), where x and y are positions in the memory.
  Arguments arguments(std::size_t x, std::size_t y, float a, std::uint64_t n) {
    Arguments result;
    result.add(memory_ + x);
    result.add(memory_ + y);
    result.add(a);
    result.add(n);
    return result;
  }
  GraphNode saxpy(std::size_t x, std::size_t y, float a, std::uint64_t n,
                  std::vector<std::uint32_t> after = {}) {
    return {KernelNode{kernel_, {.work_items = n, .block = 128}, arguments(x, y, a, n)},
            std::move(after)};
  }

  static constexpr std::size_t kFloats = 4096;
  float* memory_ = nullptr;
};

TEST_P(GraphTest, IsReplayedByADriver) {
  EXPECT_EQ(device_->prepare({saxpy(0, 100, 1, 100)})->is_replayed(), on_gpu());
}

TEST_P(GraphTest, RunsInTheOrderOfItsEdges) {
  auto graph = device_->prepare(
      {saxpy(0, 1000, 2, 100), saxpy(1000, 2000, 3, 100, {0}), saxpy(2000, 3000, 4, 100, {1})});
  graph->launch(stream_);
  const std::vector<float> result = read();
  EXPECT_EQ(result[1000], 3);
  EXPECT_EQ(result[2000], 10);
  EXPECT_EQ(result[3099], 41);
  EXPECT_EQ(result[3100], 1);
}

TEST_P(GraphTest, OfNothingIsFine) {
  auto empty = device_->prepare({});
  empty->launch(stream_);
  auto idle = device_->prepare({saxpy(0, 0, 1, 0), GraphNode{CopyNode{memory_, memory_, 0}, {0}},
                                GraphNode{FillNode{memory_, 9, 0}, {1}}, saxpy(0, 50, 1, 50, {2})});
  idle->launch(stream_);
  EXPECT_EQ(read()[50], 2);
}

TEST_P(GraphTest, UpdatesReachTheNextLaunchOnly) {
  auto graph = device_->prepare({saxpy(0, 1000, 1, 10),
                                 GraphNode{CopyNode{memory_ + 2000, memory_ + 1000, 40}, {0}},
                                 GraphNode{FillNode{memory_ + 3000, 0, 40}, {}}});
  graph->launch(stream_);
  graph->update(0, arguments(0, 1500, 7, 10));
  graph->update(1, CopyNode{memory_ + 2500, memory_ + 1500, 20});
  graph->update(2, FillNode{memory_ + 3500, 0xFF, 8});
  graph->launch(stream_);
  const std::vector<float> result = read();
  EXPECT_EQ(result[1000], 2);
  EXPECT_EQ(result[2009], 2);
  EXPECT_EQ(result[3000], 0);
  EXPECT_EQ(result[1500], 8);
  EXPECT_EQ(result[2504], 8);
  EXPECT_EQ(result[2505], 1);
  EXPECT_TRUE(std::isnan(result[3501]));
  EXPECT_EQ(result[3502], 1);
  EXPECT_EQ(graph->is_replayed(), on_gpu());
}

TEST_P(GraphTest, UpdatesWaitForNoOtherWorkOfTheDevice) {
  if (!on_gpu()) GTEST_SKIP() << "the CPU replays nothing";
  std::uint64_t (*device_waits)() = nullptr;
  try {
    kiln::testing::DriverFunctions(GetParam())
        .find(device_waits, "kiln_host_driver_device_waits", "kiln_amd_device_waits");
  } catch (const std::runtime_error& error) {
    GTEST_SKIP() << "only drivers made for tests count what is waited for: " << error.what();
  }
  auto graph = device_->prepare({saxpy(0, 1000, 1, 10),
                                 GraphNode{CopyNode{memory_ + 2000, memory_ + 1000, 40}, {0}},
                                 GraphNode{FillNode{memory_ + 3000, 0, 40}, {1}}});
  const Stream other = device_->create_stream();
  // A graph that runs, on one stream or another, has to be waited for.
  const std::uint64_t before = device_waits();
  for (int i = 1; i <= 8; ++i) {
    graph->launch(i % 2 == 0 ? stream_ : other);
    graph->update(0, arguments(0, 1000, static_cast<float>(i + 1), 10));
    graph->update(1, CopyNode{memory_ + 2000 + i, memory_ + 1000, 4});
    // Where the driver orders launches by itself, nothing but the device tells when a graph that is
    // built again, as one in which a fill ends, is no longer in use.
    const bool is_built_again = GetParam() == DeviceType::hip && i % 4 == 0;
    graph->update(2, FillNode{memory_ + 3000, 0, is_built_again ? 0u : 36u});
  }
  EXPECT_EQ(device_waits(), before);
  device_->synchronize(other);
  const std::vector<float> result = read();
  EXPECT_EQ(result[1000], 1 + 36);
  EXPECT_EQ(result[2007], 1 + 36);
  EXPECT_TRUE(graph->is_replayed());
  device_->destroy_stream(other);
}

TEST_P(GraphTest, UpdateFromAndToNothing) {
  auto graph = device_->prepare({GraphNode{FillNode{memory_, 0, 0}, {}}});
  graph->update(0, FillNode{memory_, 0, 4});
  graph->launch(stream_);
  EXPECT_EQ(read()[0], 0);
  graph->update(0, FillNode{memory_ + 1, 0, 0});
  graph->launch(stream_);
  EXPECT_EQ(read()[1], 1);
  EXPECT_EQ(graph->is_replayed(), on_gpu());
}

TEST_P(GraphTest, KeepsItsKernelsLoaded) {
  std::unique_ptr<PreparedGraph> graph;
  {
    auto own = device_->load(image_, "saxpy");
    graph = device_->prepare(
        {GraphNode{KernelNode{own, {.work_items = 10}, arguments(0, 1000, 5, 10)}, {}}});
  }
  graph->launch(stream_);
  EXPECT_EQ(read()[1009], 6);
}

TEST_P(GraphTest, MayBeDestroyedWhileItRuns) {
  for (int i = 0; i < 20; ++i) {
    auto own = device_->load(image_, "saxpy");
    auto graph = device_->prepare(
        {GraphNode{KernelNode{own, {.work_items = 100}, arguments(0, 1000, 1, 100)}, {}}});
    own.reset();
    graph->launch(stream_);
  }
  EXPECT_EQ(read()[1099], 21);
}

TEST_P(GraphTest, SequencesOfTheCallerAreRecorded) {
  int calls = 0;
  const auto library_call = [&](const Stream& stream) {
    ++calls;
    EXPECT_EQ(device_->is_capturing(stream), on_gpu());
    for (int i = 0; i < 3; ++i) {
      void* x = memory_;
      void* y = memory_ + 1000;
      float a = 1;
      std::uint64_t n = 100;
      void* values[] = {&x, &y, &a, &n};
      device_->launch(*kernel_, {.work_items = n}, values, stream);
    }
    device_->fill(memory_ + 1050, 0, 4, stream);
  };
  auto graph = device_->prepare({saxpy(0, 0, 1, 100), GraphNode{SequenceNode{library_call}, {0}},
                                 saxpy(1000, 2000, 1, 100, {1})});
  graph->launch(stream_);
  graph->launch(stream_);
  const std::vector<float> result = read();
  EXPECT_EQ(result[0], 4);
  EXPECT_EQ(result[1000], 1 + 3 * 2 + 3 * 4);
  EXPECT_EQ(result[1050], 0);
  EXPECT_EQ(result[2000], 1 + 7 + 19);
  EXPECT_EQ(calls, on_gpu() ? 1 : 2);
  EXPECT_EQ(graph->is_replayed(), on_gpu());
}

TEST_P(GraphTest, SequenceThatCopiesIsRecordedToo) {
  const auto copy = [&](const Stream& stream) {
    device_->copy_on_device(memory_ + 1000, memory_, 400, stream);
  };
  auto graph = device_->prepare(
      {saxpy(0, 0, 1, 100), GraphNode{SequenceNode{copy}, {0}}, saxpy(1000, 2000, 1, 100, {1})});
  graph->launch(stream_);
  EXPECT_EQ(read()[2099], 3);
  EXPECT_EQ(graph->is_replayed(), on_gpu());
}

TEST_P(GraphTest, SequenceOfNothingStillOrders) {
  auto graph =
      device_->prepare({saxpy(0, 1000, 1, 100), GraphNode{SequenceNode{[](const Stream&) {}}, {0}},
                        saxpy(1000, 2000, 1, 100, {1})});
  graph->launch(stream_);
  EXPECT_EQ(read()[2000], 3);
}

TEST_P(GraphTest, InsideAnotherCaptureBecomesPartOfIt) {
  auto inner = device_->prepare({saxpy(0, 1000, 1, 100), saxpy(1000, 2000, 1, 100, {0})});
  auto outer = device_->prepare(
      {GraphNode{SequenceNode{[&](const Stream& stream) { inner->launch(stream); }}, {}}});
  outer->launch(stream_);
  outer->launch(stream_);
  EXPECT_EQ(read()[2099], 1 + 2 + 3);
  EXPECT_EQ(outer->is_replayed(), on_gpu());
}

TEST_P(GraphTest, WhatCannotBeRecordedRunsAsAListWithTheSameResult) {
  std::vector<std::string> logged;
  set_log([&](LogLevel, std::string_view line) { logged.emplace_back(line); });
  const auto waits = [&](const Stream& stream) { device_->synchronize(stream); };
  auto graph = device_->prepare({saxpy(0, 1000, 1, 100), GraphNode{SequenceNode{waits}, {0}},
                                 saxpy(1000, 2000, 1, 100, {1})});
  EXPECT_FALSE(graph->is_replayed());
  graph->launch(stream_);
  graph->update(0, arguments(0, 1000, 10, 100));
  graph->launch(stream_);
  set_log({});
  const std::vector<float> result = read();
  EXPECT_EQ(result[1000], 12);
  EXPECT_EQ(result[2000], 1 + 2 + 12);
  if (on_gpu()) {
    ASSERT_EQ(logged.size(), 1U);
    EXPECT_THAT(logged[0], HasSubstr("runs as separate launches"));
  }
}

TEST_P(GraphTest, ExceptionOfASequenceReachesTheCaller) {
  set_log({});
  const auto fails = [](const Stream&) { throw std::runtime_error("the library says no"); };
  auto graph = device_->prepare({GraphNode{SequenceNode{fails}, {}}});
  try {
    graph->launch(stream_);
    ADD_FAILURE() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the library says no"));
  }
  EXPECT_EQ(read()[0], 1) << "the stream still works";
}

TEST_P(GraphTest, LaunchesOnDifferentStreamsDoNotOverlap) {
  auto graph = device_->prepare({saxpy(0, 1000, 1, 1000)});
  const Stream other = device_->create_stream();
  for (int i = 0; i < 200; ++i) graph->launch(i % 2 == 0 ? stream_ : other);
  device_->synchronize(other);
  device_->synchronize(stream_);
  device_->destroy_stream(other);
  // 1000 steps of the same float: each launch adds x once, in any order, but never loses one.
  EXPECT_EQ(read()[1000], 201);
}

TEST_P(GraphTest, LaunchesFromManyThreadsLoseNothing) {
  auto graph = device_->prepare({saxpy(0, 1000, 1, 1000), saxpy(0, 2000, 1, 1000)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const Stream stream = device_->create_stream();
      for (int i = 0; i < 25; ++i) graph->launch(stream);
      device_->synchronize(stream);
      device_->destroy_stream(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<float> result = read();
  EXPECT_EQ(result[1999], 201);
  EXPECT_EQ(result[2999], 201);
}

TEST_P(GraphTest, WrongListsAreRefused) {
  const auto message = [&](std::vector<GraphNode> nodes) -> std::string {
    try {
      device_->prepare(std::move(nodes));
    } catch (const Error& error) {
      EXPECT_EQ(name(error.code()), name(Code::invalid_argument));
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({saxpy(0, 1, 1, 1, {0})}), HasSubstr("node 0 of 1: it waits for node 0"));
  EXPECT_THAT(message({saxpy(0, 1, 1, 1), saxpy(0, 1, 1, 1, {0, 0})}), HasSubstr("node 0 twice"));
  EXPECT_THAT(message({GraphNode{KernelNode{}, {}}}), HasSubstr("no kernel"));
  EXPECT_THAT(message({GraphNode{SequenceNode{}, {}}}), HasSubstr("nothing to run"));
}

TEST_P(GraphTest, WrongUpdatesAreRefused) {
  auto graph =
      device_->prepare({saxpy(0, 1000, 1, 10), GraphNode{FillNode{memory_ + 50, 0, 4}, {}}});
  Arguments few;
  few.add(memory_);
  EXPECT_THROW(graph->update(0, few), Error);
  EXPECT_THROW(graph->update(1, few), Error);
  EXPECT_THROW(graph->update(0, CopyNode{}), Error);
  EXPECT_THROW(graph->update(2, FillNode{}), Error);
  graph->launch(stream_);
  EXPECT_EQ(read()[1009], 2) << "the refused updates changed something";
}

/// One random operation, as a node and as what it does to memory of the host.
struct Operation {
  GraphNode node;
  Access access;
  std::function<void(std::vector<float>&)> reference;
};

TEST_P(GraphTest, RandomProgramsOverOverlappingMemoryGiveTheSameBits) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto range = [&](std::size_t begin, std::size_t count) {
      const auto at = reinterpret_cast<std::uintptr_t>(memory_ + begin);
      return ByteRange{at, at + count * sizeof(float)};
    };
    std::vector<Operation> program;
    for (unsigned i = 2 + random() % 60; i > 0; --i) {
      const std::size_t n = random() % 500;
      const std::size_t x = random() % 1000;
      // A kernel that reads where another thread of it writes would have no defined result.
      std::size_t y = random() % 1000;
      if (y < x + n && x < y + n) y = x;
      switch (random() % 4) {
        case 0:
          if (y == x) y = x + n;  // a copy onto itself is not one
          program.push_back({{CopyNode{memory_ + y, memory_ + x, n * sizeof(float)}, {}},
                             {{range(x, n)}, {range(y, n)}},
                             [=](std::vector<float>& m) {
                               std::memcpy(m.data() + y, m.data() + x, n * sizeof(float));
                             }});
          break;
        case 1:
          program.push_back(
              {{FillNode{memory_ + y, 0x3C, n * sizeof(float)}, {}},
               {{}, {range(y, n)}},
               [=](std::vector<float>& m) { std::memset(m.data() + y, 0x3C, n * sizeof(float)); }});
          break;
        default: {
          const float a = static_cast<float>(random() % 100) / 128.0F - 0.4F;
          program.push_back({saxpy(x, y, a, n),
                             {{range(x, n), range(y, n)}, {range(y, n)}},
                             [=](std::vector<float>& m) {
                               for (std::size_t k = 0; k < n; ++k) {
                                 m[y + k] = std::fma(a, m[x + k], m[y + k]);
                               }
                             }});
        }
      }
    }
    std::vector<Access> accesses;
    std::vector<GraphNode> nodes;
    for (const Operation& operation : program) {
      accesses.push_back(operation.access);
      nodes.push_back(operation.node);
    }
    for (const Dependency& edge : dependencies(accesses)) nodes[edge.to].after.push_back(edge.from);

    std::vector<float> expected(kFloats);
    for (float& value : expected) value = static_cast<float>(random() % 1000) / 500.0F;
    write(expected);
    auto graph = device_->prepare(std::move(nodes));
    EXPECT_EQ(graph->is_replayed(), on_gpu());
    for (int launch = 0; launch < 3; ++launch) {
      graph->launch(stream_);
      for (const Operation& operation : program) operation.reference(expected);
    }
    const std::vector<float> result = read();
    ASSERT_EQ(std::memcmp(result.data(), expected.data(), kFloats * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GraphTest,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         [](const auto& info) {
                           const std::string text = to_string(Device{info.param, 0});
                           return text.substr(0, text.find(':'));
                         });

}  // namespace
}  // namespace kiln::jit
