// Random programs over overlapping memory: what a graph gives, what the same operations give one by
// one, and what plain C++ gives are the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

constexpr std::int64_t kFloats = 1024;

/// A strided part of the memory.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::int64_t stride = 1;
  std::int64_t at(std::int64_t i) const { return first + i * stride; }
  std::int64_t low() const { return std::min(at(0), at(count - 1)); }
  std::int64_t high() const { return std::max(at(0), at(count - 1)) + 1; }
  bool same(const Range& o) const {
    return first == o.first && count == o.count && stride == o.stride;
  }
};

bool apart(const Range& a, const Range& b) { return a.high() <= b.low() || b.high() <= a.low(); }

struct Step {
  enum class Kind { mix, own_kernel, copy, fill, sequence } kind = Kind::mix;
  Range x, y, out;
  float a = 0;
  std::uint8_t byte = 0;
};

class Programs : public testing::DeviceTest {
 protected:
  Range random_range(std::int64_t count, bool strided) {
    Range range{0, count, 1};
    if (strided && random() % 3 == 0) range.stride = random() % 2 == 0 ? 2 : -1;
    const std::int64_t reach = (count - 1) * std::abs(range.stride);
    range.first = static_cast<std::int64_t>(random() % std::uint64_t(kFloats - reach));
    if (range.stride < 0) range.first += reach;
    return range;
  }

  Step random_step() {
    Step step;
    step.kind = static_cast<Step::Kind>(random() % 5);
    step.a = float(random() % 64) / 64 - 0.5f;
    step.byte = static_cast<std::uint8_t>(random() % 2 * 0x3c);
    const bool strided = step.kind == Step::Kind::mix;
    for (;;) {
      const auto count = static_cast<std::int64_t>(1 + random() % 96);
      step.x = random_range(count, strided);
      step.y = random_range(count, strided);
      step.out = random() % 4 == 0 && strided ? step.x : random_range(count, strided);
      const bool in_place = strided;
      if ((apart(step.x, step.out) || (in_place && step.x.same(step.out))) &&
          (apart(step.y, step.out) || (in_place && step.y.same(step.out)))) {
        return step;
      }
    }
  }

  View of(float* memory, const Range& p) const {
    return {memory + p.first, DType::f32, {p.count}, {p.stride}, device};
  }

  void record_step(Recorder& r, float* memory, const Step& s) {
    const View x = of(memory, s.x);
    const View y = of(memory, s.y);
    const View out = of(memory, s.out);
    switch (s.kind) {
      case Step::Kind::mix: r.call(mix, {s.a, x, y}, {out}); break;
      case Step::Kind::own_kernel: r.call(own, grid(s), {x, out, s.a, s.x.count}); break;
      case Step::Kind::copy: r.copy({.from = x, .to = out}); break;
      case Step::Kind::fill: r.fill(out, s.byte); break;
      case Step::Kind::sequence: {
        r.sequence("user", {&x, 1}, {&out, 1}, [this, x, out, s](const Stream& on) {
          own(on, grid(s), {x, out, s.a, s.x.count});
          mix(on, {s.a, out, x}, {out});
        });
      }
    }
  }

  void run_step(float* memory, const Step& s) {
    const View x = of(memory, s.x);
    const View y = of(memory, s.y);
    const View out = of(memory, s.out);
    switch (s.kind) {
      case Step::Kind::mix: mix(stream, {s.a, x, y}, {out}); break;
      case Step::Kind::sequence:
      case Step::Kind::own_kernel:
        own(stream, grid(s), {x, out, s.a, s.x.count});
        if (s.kind == Step::Kind::sequence) mix(stream, {s.a, out, x}, {out});
        break;
      case Step::Kind::copy: copy(stream, {.from = x, .to = out}); break;
      case Step::Kind::fill:
        backend->fill(out.data(), s.byte, std::size_t(s.out.count) * sizeof(float), stream);
        break;
    }
  }

  static void reference(std::vector<float>& m, const Step& s) {
    const auto f = [&](const Range& p, std::int64_t i) -> float& {
      return m[std::size_t(p.at(i))];
    };
    const auto own_step = [&](std::int64_t i) {
      f(s.out, i) = s.a * f(s.x, i) + f(s.out, i) * 0.5f;
    };
    for (std::int64_t i = 0; i < s.out.count; ++i) {
      switch (s.kind) {
        case Step::Kind::mix: f(s.out, i) = s.a * f(s.x, i) + f(s.y, i) * 0.5f; break;
        case Step::Kind::own_kernel: own_step(i); break;
        case Step::Kind::sequence:
          own_step(i);
          f(s.out, i) = s.a * f(s.out, i) + f(s.x, i) * 0.5f;
          break;
        case Step::Kind::copy: f(s.out, i) = f(s.x, i); break;
        case Step::Kind::fill: std::memset(&f(s.out, i), s.byte, sizeof(float)); break;
      }
    }
  }

  static Grid grid(const Step& s) { return Grid::covering(std::uint64_t(s.x.count), 32); }

  const Function mix = fuse("mix", [](Value a, Value x, Value y) { return a * x + y * 0.5; });
  const Kernel own = kernel(
      "own", R"(
extern "C" __global__ void own(const float* x, float* y, float a, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i] * 0.5f;
}
)",
      {reads(DType::f32), reads_and_writes(DType::f32), scalar(DType::f32), scalar(DType::u32)});
  std::mt19937_64 random;
};

TEST_P(Programs, GraphCallsAndReferenceAgreeInEveryBit) {
  if (testing::is_host_driver(*backend)) {
    GTEST_SKIP() << "the driver made for tests compiles no kernels of several vectors";
  }
  const std::uint64_t seed = testing::random_seed();
  std::printf("KILN_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  random.seed(seed);
  float* const graph_memory = zeros(kFloats);
  float* const eager_memory = zeros(kFloats);
  for (int draw = 0; draw < (on_real_gpu() ? 30 : 8); ++draw) {
    SCOPED_TRACE(fmt::format("KILN_TEST_SEED={} draw {}", seed, draw));
    // From two calls to two hundred.
    const std::size_t length = 2 + random() % (draw % 3 == 0 ? 199 : 40);
    std::vector<Step> program;
    while (program.size() < length) program.push_back(random_step());
    std::vector<float> expected(kFloats);
    for (float& value : expected) value = float(random() % 1000) / 500 - 1;
    write(graph_memory, expected);
    write(eager_memory, expected);
    Graph graph = record(device, [&](Recorder& r) {
      for (const Step& step : program) record_step(r, graph_memory, step);
    });
    EXPECT_EQ(graph.is_replayed(), on_gpu());
    for (int replay = 0; replay < 3; ++replay) {
      graph.launch(stream);
      for (const Step& step : program) run_step(eager_memory, step);
      for (const Step& step : program) reference(expected, step);
    }
    const std::vector<float> from_graph = read(graph_memory, kFloats);
    const std::vector<float> from_calls = read(eager_memory, kFloats);
    ASSERT_EQ(std::memcmp(from_graph.data(), from_calls.data(), kFloats * 4), 0);
    ASSERT_EQ(std::memcmp(from_graph.data(), expected.data(), kFloats * 4), 0);
  }
}

KILN_ON_EVERY_DEVICE(Programs);

}  // namespace
}  // namespace kiln
