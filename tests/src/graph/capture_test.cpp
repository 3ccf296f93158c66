// Calls on a stream that the caller captures: recorded, not run, and nothing in them waits,
// allocates or times, which the driver would refuse.
#include "tests/support/capture.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using ::testing::AllOf;
using testing::Capture;
using testing::counting;
using testing::error_of;
using ::testing::HasSubstr;

class Capturing : public testing::DeviceTest {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::cpu) GTEST_SKIP() << "the CPU has no streams to capture";
    testing::DeviceTest::SetUp();
  }
  /// What `work` submits, captured.
  std::unique_ptr<Capture> capture(const std::function<void()>& work) {
    auto result = std::make_unique<Capture>(stream);
    result->begin();
    work();
    result->end();
    return result;
  }
};

TEST_P(Capturing, CallsAreRecordedAndRunByTheReplay) {
  const Function next = fuse("next", [](Value x) { return x + 1; });
  const Kernel twice = kernel("twice", R"(
extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
)",
                              {reads_and_writes(DType::f32)});
  float* const x = allocate(counting(64));
  float* const y = zeros(64);
  float* const z = zeros(64);
  next.prepare(stream, std::array{Argument(view(x, 64))}, std::array{view(y, 64)});
  const Launch bound = next.bind(stream, {view(y, 64)}, {view(y, 64)});
  const auto replay = capture([&] {
    next(stream, {view(x, 64)}, {view(y, 64)});
    bound(stream);
    twice(stream, {{1}, {64}}, {view(y, 64)});
    copy(stream, {.from = view(y, 64), .to = view(z, 64)});
  });
  EXPECT_EQ(read(y, 64)[63], 0) << "a captured call ran";
  for (int i = 0; i < 2; ++i) {
    replay->replay();
    EXPECT_EQ(read(z, 64)[63], 2 * (64 + 2));
  }
}

// Where to read, to write and to end is read on the device, anew by each replay.
TEST_P(Capturing, PlacesAndEndsAreThoseOfTheReplay) {
  const Function twice = parse("twice_up_to", "x[:n] * 2");
  const Function store = parse("store_at", "put(z, n, take(x, n) + 1)");
  float* const x = allocate(counting(64));
  float* const y = zeros(64);
  float* const z = zeros(64);
  float* const n = zeros(1);
  const View end(n, DType::i32, {1}, device);
  const auto replay = capture([&] {
    twice(stream, {view(x, 64), end}, {view(y, 64)});
    store(stream, {view(z, 64), end, view(x, 64)}, {view(z, 64)});
  });
  EXPECT_EQ(read(z, 64)[0], 0) << "a captured call ran";
  for (const std::int32_t count : {0, 3, 63, 64}) {
    backend->copy_in(n, &count, sizeof count, stream);
    replay->replay();
    const auto at = static_cast<std::size_t>(count);
    if (count > 0) {
      EXPECT_EQ(read(y, 64)[at - 1], 2 * count);
    }
    if (count == 64) continue;  // which is no place
    EXPECT_EQ(read(y, 64)[at], 0) << "beyond the end";
    EXPECT_EQ(read(z, 64)[at], count + 2);
  }
}

TEST_P(Capturing, AMissCompilesOnTheHost) {
  const Function first = fuse("first_in_capture", [](Value x) { return x * 3 + 0.5; });
  float* const x = allocate(counting(64));
  float* const y = zeros(64);
  const auto replay = capture([&] { first(stream, {view(x, 64)}, {view(y, 64)}); });
  EXPECT_EQ(read(y, 64)[63], 0) << "a captured call ran";
  replay->replay();
  EXPECT_EQ(read(y, 64)[63], 3 * 64 + 0.5f);
}

TEST_P(Capturing, AMissFailsByNameWhereItMayNotCompile) {
  const Function f =
      fuse("not_ready", [](Value x) { return x * 5 - 0.25; }, {.on_miss = OnMiss::fail});
  const Function ready = fuse("ready", [](Value x) { return x + 1; });
  float* const x = allocate(counting(64));
  ready.prepare(stream, std::array{Argument(view(x, 64))}, std::array{view(x, 64)});
  const auto replay = capture([&] {
    ready(stream, {view(x, 64)}, {view(x, 64)});
    EXPECT_THAT(error_of([&] { f(stream, {view(x, 64)}, {view(x, 64)}); }),
                AllOf(HasSubstr("not_ready: no kernel for"), HasSubstr("forbids compiling")));
  });
  replay->replay();
  EXPECT_EQ(read(x, 64)[63], 65) << "the capture went on";
}

TEST_P(Capturing, AGraphBecomesAPartOfTheCapture) {
  const Function next = fuse("next", [](Value x) { return x + 1; });
  float* const x = allocate(counting(64));
  float* const y = zeros(64);
  Graph graph = record(device, [&](Recorder& r) {
    r.call(next, {view(x, 64)}, {view(x, 64)});
    r.copy({.from = view(x, 64), .to = view(y, 64)});
  });
  EXPECT_TRUE(graph.is_replayed());
  graph.launch(stream);
  backend->synchronize(stream);
  const auto replay = capture([&] { graph.launch(stream); });
  EXPECT_EQ(read(y, 64)[63], 65);
  replay->replay();
  replay->replay();
  EXPECT_EQ(read(y, 64)[63], 67);
}

TEST_P(Capturing, GraphsAreRecordedAndChangedWhileAnotherStreamIsCaptured) {
  const Function next = fuse("next", [](Value x) { return x + 1; });
  float* const x = allocate(counting(64));
  float* const y = zeros(64);
  std::unique_ptr<Graph> graph;
  const auto replay = capture([&] {
    graph = std::make_unique<Graph>(record(device, [&](Recorder& r) {
      r.call(next, {view(x, 64)}, {view(x, 64)});
      const View touched = view(x, 64);
      r.sequence("user", {&touched, 1}, {&touched, 1},
                 [&next, touched](const Stream& on) { next(on, {touched}, {touched}); });
    }));
    EXPECT_TRUE(graph->is_replayed());
    EXPECT_THROW(graph->rebind(x, y), Error);  // the sequence keeps its memory
    next(stream, {view(y, 64)}, {view(y, 64)});
  });
  graph->launch(stream);
  replay->replay();
  EXPECT_EQ(read(x, 64)[63], 66);
  EXPECT_EQ(read(y, 64)[63], 1);
}

KILN_ON_EVERY_DEVICE(Capturing);

}  // namespace
}  // namespace kiln
