// The library call: results on real tensors, broadcasting, strides, scalars, several outputs, and
// what it says about a call that cannot be right.
#include "kiln/function.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kiln/dynamic.hpp"
#include "kiln/prepare.hpp"
#include "kiln/shape.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/message.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::message_of;

constexpr Device kCpu{DeviceType::cpu, 0};
const Stream kStream{kCpu, nullptr};

View view(std::vector<float>& values, Dims shape) {
  return {values.data(), DType::f32, std::move(shape)};
}

std::vector<float> counted_from_zero(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Function swiglu() {
  return fuse("swiglu", [](Value gate, Value up) { return silu(gate) * up; });
}

class OnDevice : public testing::OnDevice {
 protected:
  std::vector<float> run(const Function& function, const std::vector<HostArray>& inputs,
                         Dims shape) const {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, std::move(shape))};
    testing::run_on(device(), function, inputs, outputs);
    std::vector<float> values(static_cast<std::size_t>(outputs[0].size()));
    std::memcpy(values.data(), outputs[0].bytes.data(), outputs[0].bytes.size());
    return values;
  }
};

HostArray array_of(const std::vector<float>& values, Dims shape) {
  HostArray array = HostArray::contiguous(DType::f32, std::move(shape));
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

TEST_P(OnDevice, NarrowIntegersWrapBeforeTheyAreWidened) {
  HostArray lowest = HostArray::contiguous(DType::i16, {24});
  const std::vector<std::int16_t> numbers(24, std::numeric_limits<std::int16_t>::min());
  std::memcpy(lowest.bytes.data(), numbers.data(), lowest.bytes.size());
  const Function function =
      parse("widened", "f32(i32(-x)), f32(i32(x - x - x)), f32(i32(x * -1)), f32(i32(abs(x)))");
  std::vector<HostArray> outputs(4, HostArray::contiguous(DType::f32, {24}));
  testing::run_on(device(), function, {lowest}, outputs);
  for (const HostArray& output : outputs) {
    float first = 0;
    std::memcpy(&first, output.bytes.data(), sizeof first);
    EXPECT_EQ(first, -32768.0f);
  }
}

TEST_P(OnDevice, BroadcastsByNumPysRules) {
  const Function add = fuse("add", [](Value a, Value b) { return a + b; });
  const std::vector<float> out =
      run(add, {array_of({0, 10, 20}, {3, 1}), array_of({1, 2, 3, 4}, {4})}, {3, 4});
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(out[static_cast<std::size_t>(i)], float(i / 4 * 10 + i % 4 + 1));
}

TEST_P(OnDevice, WalksAnyStrides) {
  const Function twice = fuse("twice", [](Value a) { return a + a; });
  HostArray input = array_of(counted_from_zero(12), {3, 4});
  input.shape = {4, 3};
  input.strides = {1, 4};  // transposed
  HostArray output = HostArray::contiguous(DType::f32, {40});
  output.shape = {4, 3};
  output.strides = {-9, 2};  // backwards and with gaps
  output.first = 27 * 4;
  std::vector<HostArray> outputs = {output};
  testing::run_on(device(), twice, {input}, outputs);
  std::vector<float> memory(40);
  std::memcpy(memory.data(), outputs[0].bytes.data(), 160);
  std::vector<float> expected(40, 0.0f);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) expected[std::size_t(27 - 9 * i + 2 * j)] = 2.0f * float(i + 4 * j);
  }
  EXPECT_EQ(memory, expected);
}

TEST_P(OnDevice, HandlesTailsOfEveryLength) {
  const Function function = fuse("affine", [](Value a, Value b) { return a * 2 + b; });
  for (std::int64_t size : {1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 255, 257, 1023, 1025, 4099}) {
    const std::vector<float> a = counted_from_zero(std::size_t(size));
    const std::vector<float> out =
        run(function, {array_of(a, {size}), array_of(a, {size})}, {size});
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 3 * a[i]) << size;
  }
}

TEST_P(OnDevice, SeveralOutputsOfDifferentDtypes) {
  const Function function = fuse("both", [](Value a) { return std::tuple(a * 2, a > 1.5); });
  std::vector<HostArray> outputs = {HostArray::contiguous(DType::f64, {4}),
                                    HostArray::contiguous(DType::boolean, {4})};
  testing::run_on(device(), function, {array_of({0, 1, 2, 3}, {4})}, outputs);
  EXPECT_EQ(std::bit_cast<double>(testing::get_bits(outputs[0], 3)), 6.0);
  EXPECT_EQ(testing::get_bits(outputs[1], 1), 0u);
  EXPECT_EQ(testing::get_bits(outputs[1], 2), 1u);
}

TEST_P(OnDevice, ManyAxes) {
  const Function add = fuse("add", [](Value a, Value b) { return a + b; });
  Dims shape(32, 1);
  for (const std::size_t axis : {0u, 5u, 11u, 17u, 30u}) shape[axis] = 3;
  Dims column = shape;
  column[5] = 1;
  column[30] = 1;
  const std::vector<float> a = counted_from_zero(243);
  const std::vector<float> b = counted_from_zero(27);
  const std::vector<float> out = run(add, {array_of(a, shape), array_of(b, column)}, shape);
  for (std::size_t i = 0; i < 243; ++i) {
    const std::size_t repeated = i / 81 * 9 + i / 3 % 9;
    EXPECT_EQ(out[i], a[i] + b[repeated]);
  }
}

// Every second axis has two elements, and no two of those are one longer axis in both operands.
TEST_P(OnDevice, SixteenAxesOfThirtyTwoThatDoNotMerge) {
  const Function add = fuse("add", [](Value a, Value b) { return a + b; });
  Dims shape(32, 1);
  Dims repeated(32, 1);
  for (std::size_t axis = 0; axis < 32; axis += 2) shape[axis] = 2;
  for (std::size_t axis = 0; axis < 32; axis += 4) repeated[axis] = 2;
  const std::vector<float> a = counted_from_zero(65536);
  const std::vector<float> b = counted_from_zero(256);
  const std::vector<float> out = run(add, {array_of(a, shape), array_of(b, repeated)}, shape);
  for (std::size_t i = 0; i < 65536; ++i) {
    std::size_t from = 0;  // every second bit of i
    for (std::size_t bit = 0; bit < 8; ++bit) from |= (i >> (2 * bit + 1) & 1) << bit;
    ASSERT_EQ(out[i], a[i] + b[from]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, OnDevice, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, OnDevice, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST(Function, TakesNumbersByValue) {
  const Function axpy = fuse("axpy", [](Value alpha, Value x, Value y) { return alpha * x + y; });
  std::vector<float> x = {1, 2, 3};
  std::vector<float> y = {10, 20, 30};
  std::vector<float> out(3);
  for (const double alpha : {0.5, 2.0}) {
    axpy(kStream, {alpha, view(x, {3}), view(y, {3})}, {view(out, {3})});
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(out[i], float(alpha) * x[i] + y[i]);
  }
}

TEST(Function, AWeakNumberTakesItsPartnersDtype) {
  const Function add = fuse("add", [](Value x, Value n) { return x + n; });
  std::vector<std::uint8_t> x = {250, 1};
  std::vector<std::uint8_t> out(2);
  const View in(x.data(), DType::u8, {2});
  const View result(out.data(), DType::u8, {2});
  add(kStream, {in, 10}, {result});
  EXPECT_EQ(out[0], 4);  // wraps
  EXPECT_TRUE(contains(message_of([&] {
                         add(kStream, {in, 300}, {result});
                       }),
                       "the number 300 does not fit u8"));
}

TEST(Function, WritesOverItsInputWhenTheViewsAreTheSame) {
  std::vector<float> x = counted_from_zero(5000);
  std::vector<float> ones(5000, 1.0f);
  const Function add = fuse("add", [](Value a, Value b) { return a + b; });
  add(kStream, {view(x, {5000}), view(ones, {5000})}, {view(x, {5000})});
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], float(i) + 1);
}

TEST(Function, RefusesAPartialOverlapAndNamesBoth) {
  std::vector<float> memory = counted_from_zero(16);
  const Function twice = fuse("twice", [](Value a) { return a + a; });
  const View input(memory.data(), DType::f32, {8});
  const View output(memory.data() + 4, DType::f32, {8});
  const std::string message = message_of([&] { twice(kStream, {input}, {output}); });
  EXPECT_TRUE(contains(message, "twice: output 0 overlaps input 0 'in0'")) << message;
}

TEST(Function, AcceptsInterleavedViewsThatShareNoElement) {
  std::vector<float> memory = counted_from_zero(16);
  const Function twice = fuse("twice", [](Value a) { return a + a; });
  const View even(memory.data(), DType::f32, {8}, {2});
  const View odd(memory.data() + 1, DType::f32, {8}, {2});
  twice(kStream, {even}, {odd});
  for (std::size_t i = 0; i < 16; i += 2) EXPECT_EQ(memory[i + 1], 2 * memory[i]);
}

TEST(Function, ALaunchOfNothingTouchesNothing) {
  const Function twice = fuse("twice", [](Value a) { return a + a; });
  const View nothing(nullptr, DType::f32, {0, 7});
  twice(kStream, {nothing}, {nothing});
}

TEST(Function, SaysWhatIsWrongWithACall) {
  const Function f = swiglu();
  std::vector<float> a(6);
  std::vector<float> out(6);
  const auto call = [&](std::vector<Argument> inputs, std::vector<View> outputs) {
    return message_of([&] { f.call(kStream, inputs, outputs); });
  };
  EXPECT_EQ(call({view(a, {6})}, {view(out, {6})}), "swiglu: expected 2 inputs, got 1");
  EXPECT_EQ(call({view(a, {6}), view(a, {6})}, {}), "swiglu: expected 1 outputs, got 0");
  EXPECT_EQ(call({view(a, {6}), view(a, {5})}, {view(out, {6})}),
            "swiglu: input 1 'in1': shape [5] does not broadcast with [6], the shape of the inputs "
            "before it");
  EXPECT_EQ(call({view(a, {6}), view(a, {6})}, {view(out, {5})}),
            "swiglu: output 0: expected shape [6], or one that it broadcasts to, got [5]");
  EXPECT_TRUE(contains(call({View(nullptr, DType::f32, {6}), view(a, {6})}, {view(out, {6})}),
                       "swiglu: input 0 'in0': the data pointer is null"));
  EXPECT_TRUE(
      contains(call({View(reinterpret_cast<char*>(a.data()) + 1, DType::f32, {1}), view(a, {1})},
                    {view(out, {1})}),
               "is not a multiple of 4, the size of f32"));
  EXPECT_TRUE(
      contains(call({View(a.data(), DType::f32, {6}, Device{DeviceType::cuda, 0}), view(a, {6})},
                    {view(out, {6})}),
               "is on cuda:0, but the stream is on cpu"));
  EXPECT_TRUE(contains(call({view(a, {6}), view(a, {6})}, {View(out.data(), DType::i32, {6})}),
                       "write a cast to i32"));
  EXPECT_TRUE(contains(call({view(a, {6}), view(a, {6})}, {View(out.data(), DType::f32, {6}, {0})}),
                       "stride 0 along axis 0"));
}

TEST(Function, AnOutputWithoutElementsMayHaveAnyStrides) {
  float nothing = 7;
  const View empty(&nothing, DType::f32, {0, 4}, {0, 0});
  swiglu()(kStream, {empty, empty}, {empty});
  EXPECT_EQ(nothing, 7);
}

TEST(Function, IsTracedWithNamesThatAreKnownAtRunTimeOnly) {
  const std::vector<std::string> names = {"gate", "up"};
  const Function function = trace("swiglu", names, {}, [](std::span<const Value> values) {
    const Value silu = kiln::apply("silu", values.first(1));
    return std::vector<Value>{silu * values[1], kiln::apply("sum", {values[1], Value(-1)})};
  });
  EXPECT_EQ(argument_names(function), names);
  Specification call;
  call.arguments.resize(2);
  call.arguments[0].name = "up";
  call.arguments[0].shape = {3, 4};
  call.arguments[1].name = "gate";
  call.arguments[1].dtype = DType::bf16;
  call.arguments[1].shape = {4};
  const OutputTypes types = output_types(function, call);
  EXPECT_EQ(types.dtypes, (std::vector{DType::f32, DType::f32}));
  EXPECT_EQ(types.shapes, (std::vector<Dims>{{3, 4}, {3, 1}}));

  const auto same = [](std::span<const Value> values) {
    return std::vector<Value>{values.front()};
  };
  const std::vector<std::string> twice = {"x", "x"};
  const std::vector<std::string> no_name = {"1x"};
  EXPECT_TRUE(contains(message_of([&] { trace("f", twice, {}, same); }), "two arguments"));
  EXPECT_TRUE(contains(message_of([&] { trace("f", no_name, {}, same); }), "cannot name"));
}

TEST(Function, EveryNameIsAFunctionOfTheTextForm) {
  const std::vector<std::string> names = function_names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  for (const char* known : {"add", "silu", "softmax", "reshape", "stack"}) {
    EXPECT_TRUE(std::ranges::binary_search(names, known)) << known;
  }
  for (const std::string& name : names) {
    const std::string message = message_of([&] { parse("f", name + "()"); });
    EXPECT_FALSE(contains(message, "unknown function")) << name << ": " << message;
  }
}

TEST(Function, SaysWhatIsWrongWithADescription) {
  EXPECT_TRUE(contains(message_of([] { fuse("f", [](Value x) { return apply("sillu", {x}); }); }),
                       "unknown function 'sillu'; did you mean 'silu'?"));
  EXPECT_TRUE(contains(message_of([] { fuse("f", [](Value x) {
                                         return apply("exp", {x, x});
                                       }); }),
                       "exp: expected 1 argument, got 2"));
  EXPECT_TRUE(contains(message_of([] {
                         fuse("f", [](Value x) {
                           fuse("g", [&](Value y) { return x + y; });
                           return x;
                         });
                       }),
                       "two different functions"));
  EXPECT_TRUE(contains(message_of([] { View(nullptr, DType::f32, {-1}); }), "axis 0 is -1"));
  EXPECT_TRUE(contains(message_of([] {
                         View(nullptr, DType::f32, {1L << 40, 1L << 40});
                       }),
                       "63 bits"));
}

TEST(Function, ALongNameDoesNotReachAnyLimit) {
  const Function f = fuse(std::string(10'000, 'x') + "/../\"\n", [](Value x) { return x + 1; });
  std::vector<float> a = counted_from_zero(4);
  std::vector<float> out(4);
  const KernelInfo info =
      f.prepare(kStream, std::array{Argument(view(a, {4}))}, std::array{view(out, {4})});
  EXPECT_LE(info.entry.size(), 63u);
  f(kStream, {view(a, {4})}, {view(out, {4})});
  EXPECT_EQ(out[3], 4.0f);
}

TEST(Function, TenThousandOpsAreOneKernel) {
  std::string text = "x";
  for (int i = 0; i < 10'000; ++i) text += i % 2 == 0 ? " + 1" : " * 1";
  const Function f = parse("long", text);
  std::vector<float> a = counted_from_zero(4);
  std::vector<float> out(4);
  f(kStream, {view(a, {4})}, {view(out, {4})});
  EXPECT_EQ(out[3], 5003.0f);
}

TEST(Function, KnowsWhereItsKernelCameFrom) {
  const Function f = fuse("origin", [](Value x) { return x * 3 + 0.125; });
  std::vector<float> a = counted_from_zero(4);
  std::vector<float> out(4);
  const std::array<Argument, 1> inputs = {view(a, {4})};
  const std::array<View, 1> outputs = {view(out, {4})};
  const KernelInfo first = f.prepare(kStream, inputs, outputs);
  EXPECT_EQ(first.cache, CacheState::compiled);
  EXPECT_GT(first.compile_ms, 0);
  EXPECT_EQ(f.prepare(kStream, inputs, outputs).cache, CacheState::memory);
  const Function same = fuse("origin", [](Value x) { return x * 3 + 0.125; });
  EXPECT_EQ(same.prepare(kStream, inputs, outputs).cache, CacheState::memory);
}

TEST(Function, CanForbidCompilesInACall) {
  const Function f =
      fuse("never_compiled", [](Value x) { return x * 7 - 0.25; }, {.on_miss = OnMiss::fail});
  std::vector<float> a = counted_from_zero(4);
  std::vector<float> out(4);
  const std::string message =
      message_of([&] { f(kStream, {view(a, {4})}, {view(out, {4})}); }, Code::would_compile);
  EXPECT_TRUE(contains(message, "never_compiled")) << message;
}

TEST(Launch, RunsOnOtherMemoryAndNumbersOfTheSameLayout) {
  const Function axpy = fuse("axpy", [](Value alpha, Value x, Value y) { return alpha * x + y; });
  alignas(16) float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(16) float y[4] = {10, 20, 30, 40};
  alignas(16) float out[8] = {};
  Launch launch = axpy.bind(kStream, {2.0, View(x, DType::f32, {4}), View(y, DType::f32, {4})},
                            {View(out, DType::f32, {4})});
  launch(kStream);
  EXPECT_EQ(out[3], 48.0f);
  launch.set_input(1, x + 4);
  launch.set_scalar(0, 3.0);
  launch.set_output(0, out + 4);
  launch(kStream);
  EXPECT_EQ(out[7], 64.0f);
  EXPECT_EQ(out[3], 48.0f);
}

TEST(Launch, RefusesWhatItWasNotBoundFor) {
  const Function axpy = fuse("axpy", [](Value alpha, Value x) { return alpha * x; });
  alignas(16) float x[12] = {};
  Launch launch =
      axpy.bind(kStream, {2.0, View(x, DType::f32, {4})}, {View(x + 4, DType::f32, {4})});
  EXPECT_TRUE(contains(message_of([&] { launch.set_input(1, x + 1); }),
                       "axpy: set_input: input 1 'in1': expected an address"));
  EXPECT_TRUE(
      contains(message_of([&] { launch.set_input(0, x); }), "input 0 is not an array argument"));
  EXPECT_TRUE(contains(message_of([&] { launch.set_scalar(0, 1); }),
                       "expected a weak f64, got a weak i64"));
  launch.set_output(0, x);  // in place
  EXPECT_EQ(message_of([&] { launch.set_output(0, x + 8); }), "no error");
}

TEST(Function, TellsWhichArgumentsItUpdates) {
  using Updated = std::vector<std::optional<std::size_t>>;
  const Function both =
      fuse("both", [](Value y, Value x, Value i) { return std::tuple(y * 2, put(x, i, y)); });
  EXPECT_EQ(updated_arguments(both), (Updated{std::nullopt, 1}));
  EXPECT_EQ(updated_arguments(parse("f", "take(x, i)")), Updated{std::nullopt});
}

TEST(Function, ManyThreadsCallOneFunction) {
  const Function f = fuse("shared", [](Value x, Value y) { return x * y + 1; });
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int size = 1 + t % 3; size < 60; ++size) {
        std::vector<float> a = counted_from_zero(std::size_t(size));
        std::vector<float> out(a.size());
        f(kStream, {view(a, {size}), view(a, {size})}, {view(out, {size})});
        for (std::size_t i = 0; i < a.size(); ++i) wrong += out[i] == a[i] * a[i] + 1 ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace kiln
