// Several outputs: of different dtypes, of different shapes, strided, larger than what they repeat,
// in place; alone and in a recorded graph; and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "kiln/graph.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/message.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::counting;
using testing::message_of;

class Outputs : public testing::DeviceTest {
 protected:
  View view(float* data, Dims shape) const { return {data, DType::f32, std::move(shape), device}; }
  View view(float* data, Dims shape, Dims strides) const {
    return {data, DType::f32, std::move(shape), std::move(strides), device};
  }
};

constexpr float kPoison = -777;

TEST_P(Outputs, MayHaveTheShapeOfWhatTheyDependOn) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kColumns = 53;
  const Function f = fuse("f", [](Value x, Value row, Value column) {
    return std::tuple(x + row * column, row * 2, column > 2);
  });
  float* const x = allocate(counting(kRows * kColumns));
  float* const row = allocate(counting(kColumns));
  float* const column = allocate(counting(kRows));
  float* const sum = allocate(std::vector<float>(kRows * kColumns, kPoison));
  float* const twice = allocate(std::vector<float>(kColumns, kPoison));
  std::uint8_t* const positive = allocate(std::vector<std::uint8_t>(kRows, 0xee));
  const std::array<Argument, 3> inputs = {view(x, {kRows, kColumns}), view(row, {kColumns}),
                                          view(column, {kRows, 1})};
  const std::array<View, 3> outputs = {view(sum, {kRows, kColumns}), view(twice, {kColumns}),
                                       View(positive, DType::boolean, {kRows, 1}, device)};
  f.call(stream, inputs, outputs);
  const KernelInfo info = f.prepare(stream, inputs, outputs);
  EXPECT_EQ(info.kernels, 3);
  EXPECT_EQ(info.bytes, std::uint64_t(4 * (2 * kRows * kColumns + kColumns + kRows) + 8 * kColumns +
                                      5 * kRows));
  const std::vector<float> sums = read(sum, kRows * kColumns);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    ASSERT_EQ(sums[std::size_t(i)], float(i + 1 + (i % kColumns + 1) * (i / kColumns + 1)));
  }
  const std::vector<float> rows = read(twice, kColumns);
  for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], 2 * float(i + 1));
  const std::vector<std::uint8_t> columns = read(positive, kRows);
  for (std::size_t i = 0; i < columns.size(); ++i) ASSERT_EQ(columns[i], i + 1 > 2 ? 1 : 0);
}

TEST_P(Outputs, OfOneShapeAreOneKernelWhateverTheirDtypes) {
  const Function f =
      fuse("f", [](Value x) { return std::tuple(x * 2, x > 1.5, cast(x, DType::i32)); });
  float* const x = allocate(counting(100));
  double* const wide = allocate(std::vector<double>(100, kPoison));
  std::uint8_t* const flags = allocate(std::vector<std::uint8_t>(100, 0xee));
  std::int32_t* const integers = allocate(std::vector<std::int32_t>(100, -1));
  const std::array<Argument, 1> inputs = {view(x, {100})};
  const std::array<View, 3> outputs = {View(wide, DType::f64, {100}, device),
                                       View(flags, DType::boolean, {100}, device),
                                       View(integers, DType::i32, {1, 100}, device)};
  f.call(stream, inputs, outputs);
  EXPECT_EQ(f.prepare(stream, inputs, outputs).kernels, 1);
  EXPECT_EQ(read(wide, 100)[99], 200.0);
  EXPECT_EQ(read(flags, 100)[0], 0);
  EXPECT_EQ(read(flags, 100)[1], 1);
  EXPECT_EQ(read(integers, 100)[42], 43);
}

TEST_P(Outputs, MayBeLargerThanWhatTheyRepeat) {
  const Function f = fuse("f", [](Value row) { return std::tuple(row + 1, row * 2); });
  float* const row = allocate(counting(5));
  float* const repeated = allocate(std::vector<float>(15, kPoison));
  float* const once = allocate(std::vector<float>(5, kPoison));
  f(stream, {view(row, {5})}, {view(repeated, {3, 5}), view(once, {5})});
  const std::vector<float> out = read(repeated, 15);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(out[i], float(i % 5 + 2));
  EXPECT_EQ(read(once, 5)[4], 10.0f);
}

TEST_P(Outputs, LeaveTheGapsOfTheirStridesAlone) {
  const Function f = fuse("f", [](Value x) { return std::tuple(x + 1, -x); });
  float* const x = allocate(counting(12));
  float* const gaps = allocate(std::vector<float>(60, kPoison));
  float* const backwards = allocate(std::vector<float>(24, kPoison));
  f(stream, {view(x, {3, 4})},
    {view(gaps, {3, 4}, {20, 3}), view(backwards + 23, {3, 4}, {-8, -2})});
  std::vector<float> expected(60, kPoison);
  std::vector<float> reversed(24, kPoison);
  for (std::size_t i = 0; i < 12; ++i) {
    expected[i / 4 * 20 + i % 4 * 3] = float(i + 2);
    reversed[23 - i / 4 * 8 - i % 4 * 2] = -float(i + 1);
  }
  EXPECT_EQ(read(gaps, 60), expected);
  EXPECT_EQ(read(backwards, 24), reversed);
}

// The smaller outputs are written last, so what they overwrite has been read.
TEST_P(Outputs, OfEveryShapeMayBeInPlace) {
  const Function f = fuse("f", [](Value x, Value row, Value column) {
    return std::tuple(row + 100, x + row + column, column * 3);
  });
  constexpr std::int64_t kRows = 65;
  constexpr std::int64_t kColumns = 300;
  float* const x = allocate(counting(kRows * kColumns));
  float* const row = allocate(counting(kColumns));
  float* const column = allocate(counting(kRows));
  f(stream, {view(x, {kRows, kColumns}), view(row, {kColumns}), view(column, {kRows, 1})},
    {view(row, {kColumns}), view(x, {kRows, kColumns}), view(column, {kRows, 1})});
  const std::vector<float> sums = read(x, kRows * kColumns);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    ASSERT_EQ(sums[std::size_t(i)], float(i + 1 + i % kColumns + 1 + i / kColumns + 1));
  }
  EXPECT_EQ(read(row, kColumns)[299], 400.0f);
  EXPECT_EQ(read(column, kRows)[64], 195.0f);
}

TEST_P(Outputs, OfSeveralShapesCanBeBoundAndRecorded) {
  const Function f =
      fuse("f", [](Value x, Value row, Value factor) { return std::tuple(x + row, row * factor); });
  float* const x = allocate(counting(20));
  float* const row = allocate(counting(5));
  float* const sum = allocate(std::vector<float>(20, kPoison));
  float* const scaled = allocate(std::vector<float>(5, kPoison));
  float* const other = allocate(std::vector<float>(5, kPoison));
  const std::array<Argument, 3> inputs = {view(x, {4, 5}), view(row, {5}), Argument(2.0)};
  const std::array<View, 2> outputs = {view(sum, {4, 5}), view(scaled, {5})};
  Launch launch = f.bind(stream, inputs, outputs);
  launch(stream);
  EXPECT_EQ(read(sum, 20)[19], 25.0f);
  EXPECT_EQ(read(scaled, 5)[4], 10.0f);
  launch.set_scalar(2, 3.0);
  launch.set_output(1, other);
  launch(stream);
  EXPECT_EQ(read(other, 5)[4], 15.0f);
  EXPECT_EQ(read(scaled, 5)[4], 10.0f);

  const Function next = fuse("next", [](Value v) { return v + 1; });
  std::size_t first = 99;
  std::size_t second = 99;
  Graph graph = record(device, [&](Recorder& r) {
    first = r.call(f, inputs, outputs);
    second = r.call(next, {view(scaled, {5})}, {view(scaled, {5})});
  });
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(second, 1u);
  ASSERT_EQ(graph.operations().size(), 2u);
  graph.set_scalar(first, 2, 10.0);
  graph.launch(stream);
  EXPECT_EQ(read(scaled, 5)[4], 51.0f);
  EXPECT_EQ(graph.rebind(scaled, other), 3u);
  graph.launch(stream);
  EXPECT_EQ(read(other, 5)[4], 51.0f);
}

TEST_P(Outputs, ThatOverlapSomethingElseAreRefusedByName) {
  const Function g = parse("g", "sum = x + y");
  float* const data = allocate(counting(64));
  const auto pair = [&](const Function& function, View x, View y, std::vector<View> outputs) {
    return message_of([&] {
      const std::array<Argument, 2> inputs = {std::move(x), std::move(y)};
      function.call(stream, inputs, outputs);
    });
  };
  EXPECT_EQ(pair(g, view(data, {8}), view(data + 16, {8}), {view(data + 12, {8})}),
            "g: output 0 'sum' overlaps input 1 'y': an output must be exactly the view of an "
            "input, or lie apart from every other operand");
  // By their true extents: every second element, and those between.
  EXPECT_EQ(pair(g, view(data, {8}, {2}), view(data + 32, {8}), {view(data + 1, {8}, {2})}),
            "no error");
  EXPECT_NE(pair(g, view(data, {8}, {2}), view(data + 32, {8}), {view(data + 3, {8}, {3})})
                .find("overlaps input 0 'x'"),
            std::string::npos);
  // A view of the same memory in another order is not the same view.
  EXPECT_NE(pair(g, view(data, {4, 4}), view(data + 32, {4, 4}), {view(data, {4, 4}, {1, 4})})
                .find("overlaps input 0 'x'"),
            std::string::npos);
}

TEST_P(Outputs, ThatOverlapEachOtherOrThemselvesAreRefused) {
  const Function f = fuse("f", [](Value x) { return std::tuple(x + 1, x * 2); });
  float* const x = allocate(counting(8));
  float* const out = allocate(counting(32));
  EXPECT_NE(message_of([&] {
              f(stream, {view(x, {8})}, {view(out, {8}), view(out + 7, {8})});
            }).find("f: output 0 overlaps output 1"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              f(stream, {view(x, {8})}, {view(out, {8}), view(out, {8})});
            }).find("f: output 0 overlaps output 1"),
            std::string::npos);
  EXPECT_EQ(message_of([&] {
              f(stream, {view(x, {2, 4})}, {view(out, {2, 4}, {3, 1}), view(out + 16, {2, 4})});
            }),
            "f: output 0: strides [3,1] of shape [2,4] put two elements into one place");
}

TEST_P(Outputs, OfShapesThatCannotBeAreRefused) {
  const Function f = fuse("f", [](Value x, Value row) { return std::tuple(x + row, row * 2); });
  float* const x = allocate(counting(20));
  const auto call = [&](Dims first, Dims second) {
    return message_of([&] {
      f(stream, {view(x, {4, 5}), view(x, {5})},
        {view(x, std::move(first)), view(x, std::move(second))});
    });
  };
  EXPECT_EQ(call({5}, {5}),
            "f: output 0: expected shape [4,5], or one that it broadcasts to, got [5]");
  EXPECT_EQ(call({4, 5}, {1}),
            "f: output 1: expected shape [5], or one that it broadcasts to, got [1]");
}

TEST_P(Outputs, WithoutElementsAreNothingToDo) {
  const Function f = fuse("f", [](Value x, Value row) { return std::tuple(x + row, row * 2); });
  float* const row = allocate(counting(5));
  float* const twice = allocate(std::vector<float>(5, kPoison));
  f(stream, {View(nullptr, DType::f32, {0, 5}, device), view(row, {5})},
    {View(nullptr, DType::f32, {0, 5}, device), view(twice, {5})});
  EXPECT_EQ(read(twice, 5)[4], 10.0f);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Outputs, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Outputs, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
