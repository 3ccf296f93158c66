// Storage types of 8 and 4 bits through whole kernels: every layout, odd lengths and odd places,
// against the reference bit for bit, with the neighbours of what is written left as they were.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "fusion/graph/number.hpp"
#include "fusion/reference/value.hpp"
#include "kiln/error.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::TestInput;

constexpr DType kStored[] = {DType::f8e4m3, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz,
                             DType::u4,     DType::i4,     DType::f4e2m1};

HostArray filled(HostArray array, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::byte& byte : array.bytes) byte = static_cast<std::byte>(random());
  return array;
}

bool is_nan(DType dtype, std::uint64_t pattern) {
  return std::isnan(fusion::reference::decode(dtype, pattern).real);
}

class PackedOnDevice : public testing::OnDevice {
 protected:
  // Every byte of the outputs, those beside the written elements too.
  void compare(const Function& function, const std::vector<TestInput>& inputs,
               std::vector<HostArray> outputs, const std::string& what) const {
    std::vector<HostArray> expected = outputs;
    testing::run_on({GetParam(), 0}, function, inputs, outputs);
    testing::run_on_reference(function, inputs, expected);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      int shown = 0;
      for (std::int64_t n = 0; n < outputs[i].size(); ++n) {
        const std::int64_t place = testing::place_of(outputs[i], n);
        const auto got = testing::get_bits(outputs[i], place);
        const auto wanted = testing::get_bits(expected[i], place);
        if (got == wanted) continue;
        if (is_nan(outputs[i].dtype, got) && is_nan(outputs[i].dtype, wanted)) {
          testing::set_bits(outputs[i], place, wanted);  // which NaN is nobody's promise
          continue;
        }
        if (++shown > 3) break;
        ADD_FAILURE() << what << ", output " << i << ", element " << n
                      << fmt::format(": got {:#x}, expected {:#x}", got, wanted);
      }
      if (shown == 0 && outputs[i].bytes != expected[i].bytes)
        ADD_FAILURE() << what << ", output " << i << ": a neighbour was changed";
    }
  }
};

struct Place {
  const char* name;
  Dims shape;
  Dims strides;
  std::int64_t lead;
};
// Whole bytes, an odd end, rows with padding, rows that begin in the middle of a byte, a row of an
// odd matrix, a column, backwards, transposed.
const Place kPlaces[] = {
    {"contiguous", {4096}, {1}, 0},
    {"odd length", {1237}, {1}, 0},
    {"one", {1}, {1}, 0},
    {"odd offset", {1237}, {1}, 1},
    {"short", {3}, {1}, 0},
    {"even rows", {9, 131}, {140, 1}, 0},
    {"odd rows", {9, 131}, {131, 1}, 0},
    {"odd rows from odd", {9, 130}, {135, 1}, 7},
    {"every other", {300}, {2}, 1},
    {"every third", {301}, {3}, 0},
    {"backwards", {1001}, {-1}, 0},
    {"backwards rows", {7, 65}, {-65, 1}, 0},
    {"transposed", {66, 70}, {1, 67}, 1},
    {"large and odd", {3, 2500}, {2501, 1}, 0},
};

TEST_P(PackedOnDevice, EveryCodeThroughEveryPlace) {
  testing::Share share(GetParam(), 9);
  for (const DType dtype : kStored) {
    const Function function = parse(fmt::format("copy_{}", name(dtype)), "x");
    for (const Place& place : kPlaces) {
      if (!share.next()) continue;
      const HostArray array = HostArray::strided(dtype, place.shape, place.strides, place.lead);
      compare(function, {filled(array, 1)}, {filled(array, 2)},
              fmt::format("{} {}", name(dtype), place.name));
    }
  }
}

// What is copied or reinterpreted keeps every bit: infinities, which a conversion would saturate,
// and each of the NaNs.
TEST_P(PackedOnDevice, CopiesAndBitcastsKeepEveryCode) {
  testing::Share share(GetParam(), 9);
  struct Pair {
    DType dtype;
    std::vector<DType> others;  // of the same width
  };
  const Pair pairs[] = {
      {DType::f8e4m3, {DType::u8, DType::f8e5m2, DType::i8}},
      {DType::f8e5m2, {DType::u8, DType::f8e5m2fnuz, DType::f8e4m3}},
      {DType::f8e4m3fnuz, {DType::i8, DType::f8e5m2}},
      {DType::f8e5m2fnuz, {DType::u8, DType::f8e4m3fnuz}},
      {DType::u4, {DType::i4, DType::f4e2m1}},
      {DType::i4, {DType::u4, DType::f4e2m1}},
      {DType::f4e2m1, {DType::u4, DType::i4}},
      {DType::u8, {DType::f8e5m2, DType::f8e4m3fnuz}},
      {DType::f16, {DType::u16, DType::bf16}},
      {DType::bf16, {DType::i16, DType::f16}},
      {DType::u16, {DType::f16, DType::bf16}},
      {DType::f32, {DType::u32, DType::i32}},
      {DType::f64, {DType::u64}},
  };
  for (const Rounding rounding : {Rounding::once, Rounding::each}) {
    Options options;
    options.rounding = rounding;
    for (const Pair& pair : pairs) {
      if (!share.next()) continue;
      HostArray x = filled(HostArray::contiguous(pair.dtype, {1 << 16}), 7);
      if (bits(pair.dtype) <= 16) {
        for (std::int64_t n = 0; n < x.size(); ++n)
          testing::set_bits(x, n, static_cast<std::uint64_t>(n));
      }
      std::string text = "x";
      std::vector<HostArray> outputs = {HostArray::contiguous(pair.dtype, x.shape)};
      for (const DType other : pair.others) {
        text += fmt::format(", bitcast(x, {0}), bitcast(bitcast(x, {0}), {1})", name(other),
                            name(pair.dtype));
        outputs.push_back(HostArray::contiguous(other, x.shape));
        outputs.push_back(HostArray::contiguous(pair.dtype, x.shape));
      }
      const Function function = parse("bits", text, options);
      std::vector<HostArray> reference = outputs;
      testing::run_on({GetParam(), 0}, function, std::vector<HostArray>{x}, outputs);
      testing::run_on_reference(function, {x}, reference);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto what = fmt::format("{}, output {} of {}", name(pair.dtype), i, text);
        EXPECT_TRUE(outputs[i].bytes == x.bytes) << what;
        EXPECT_TRUE(reference[i].bytes == x.bytes) << what << ", reference";
      }
    }
  }
}

TEST_P(PackedOnDevice, InputsAndOutputsOfDifferentPlaces) {
  std::mt19937_64 random(11);
  const Function function = parse("mixed", "x * 0.5 + y, x - y + 0.5");
  const int draws = GetParam() == DeviceType::cpu ? 8 : 40;
  for (int draw = 0; draw < draws; ++draw) {
    const Dims shape = {static_cast<std::int64_t>(1 + random() % 6),
                        static_cast<std::int64_t>(1 + random() % 90)};
    const auto array = [&](std::uint64_t seed) {
      const DType dtype = kStored[random() % std::size(kStored)];
      const std::int64_t row = shape[1] + static_cast<std::int64_t>(random() % 3);
      return filled(
          HostArray::strided(dtype, shape, {row, 1}, static_cast<std::int64_t>(random() % 3)),
          seed);
    };
    const HostArray x = array(1);
    const HostArray y = array(2);
    // An integer result must not go into a float's place, so the outputs are floats.
    HostArray a = array(3);
    while (!is_floating(a.dtype)) a = array(3);
    HostArray b = array(4);
    while (!is_floating(b.dtype)) b = array(4);
    compare(function, {x, y}, {a, b},
            fmt::format("draw {}: {} {} -> {} {}", draw, name(x.dtype), name(y.dtype),
                        name(a.dtype), name(b.dtype)));
  }
}

// Beside reductions too: rows and columns that begin with a byte and within one.
TEST_P(PackedOnDevice, ReducedRowsAtDifferentPlaces) {
  const Dims shapes[] = {{6, 64}, {7, 34}, {5, 33}, {40, 2}, {3, 1000}};
  int turn = 0;
  for (const char* text : {"i4(max(x, -1) - x)", "i4(max(x, 0) - x)"}) {
    const Function function = parse("reduced", text);
    for (const Dims& shape : shapes) {
      const HostArray x = filled(HostArray::contiguous(DType::i8, shape), 5);
      const std::int64_t row = shape[1] + turn % 3;
      const std::int64_t start = turn++ % 2;
      const HostArray before = filled(HostArray::strided(DType::i4, shape, {row, 1}, start), 6);
      SCOPED_TRACE(fmt::format("{} of {} rows of {}, {} apart, from {}", text, shape[0], shape[1],
                               row, start));
      const auto number = [&](std::int64_t k) {
        return static_cast<std::int8_t>(testing::get_bits(x, k));
      };
      const auto largest_of = [&](std::int64_t k) {
        const bool along_rows = turn <= std::ssize(shapes);
        const std::int64_t first = along_rows ? k - k % shape[1] : k % shape[1];
        int largest = number(first);
        for (std::int64_t i = 1; i < shape[along_rows ? 1 : 0]; ++i) {
          largest = std::max<int>(largest, number(first + i * (along_rows ? 1 : shape[1])));
        }
        return largest;
      };
      std::vector<HostArray> got = {before};
      testing::run_on({GetParam(), 0}, function, std::vector<HostArray>{x}, got);
      for (std::int64_t k = 0; k < got[0].size(); ++k) {
        const std::int64_t place = testing::place_of(before, k);
        ASSERT_EQ(testing::get_bits(got[0], place), (largest_of(k) - number(k)) & 15) << k;
        testing::set_bits(got[0], place, testing::get_bits(before, place));
      }
      EXPECT_EQ(got[0].bytes, before.bytes) << "what lies between";
    }
  }
}

TEST_P(PackedOnDevice, RowsOfAMatrixAsViews) {
  const Function function = parse("rows", "x + 1");
  HostArray matrix = filled(HostArray::contiguous(DType::u4, {5, 7}), 3);
  jit::Backend& backend = jit::backend({GetParam(), 0});
  const Stream stream{{GetParam(), 0}, nullptr};
  const testing::DeviceBuffer buffer(backend, matrix.bytes);
  const View row(buffer.data(), DType::u4, {7}, stream.device);
  for (int i = 0; i < 5; i += 2) function(stream, {row.from(7 * i)}, {row.from(7 * i)});
  HostArray result = matrix;
  result.bytes = buffer.read();
  for (std::int64_t n = 0; n < 35; ++n) {
    const std::uint64_t before = testing::get_bits(matrix, n);
    const std::uint64_t wanted = n / 7 % 2 == 0 ? (before + 1) % 16 : before;
    EXPECT_EQ(testing::get_bits(result, n), wanted) << n;
  }
}

TEST_P(PackedOnDevice, StoresRoundToNearestEvenAndSaturate) {
  HostArray x = HostArray::contiguous(DType::f32, {4096});
  const std::vector<std::uint64_t> values = testing::sample(DType::f32, 4096, 5);
  for (std::int64_t n = 0; n < 4096; ++n) {
    testing::set_bits(x, n, values[static_cast<std::size_t>(n)]);
  }
  for (const Rounding rounding : {Rounding::once, Rounding::each}) {
    Options options;
    options.rounding = rounding;
    std::string text;
    std::vector<HostArray> outputs;
    for (const DType dtype : kStored) {
      text += fmt::format("{}{}(x)", text.empty() ? "" : ", ", name(dtype));
      outputs.push_back(HostArray::contiguous(dtype, {4096}));
    }
    compare(parse("stores", text, options), {x}, outputs, "stores");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = HostArray::contiguous(DType::f32, {4096});
    }
    text.clear();
    for (const DType dtype : kStored) {
      text += fmt::format("{}f32({}(x)) * 1", text.empty() ? "" : ", ", name(dtype));
    }
    compare(parse("written_casts", text, options), {x}, outputs, "written casts");
  }
}

TEST_P(PackedOnDevice, OneElementForARowOrForAll) {
  const Function function = parse("broadcast", "x + row + column + one");
  const auto small = [](DType dtype, Dims shape, Dims strides, std::int64_t lead) {
    return filled(HostArray::strided(dtype, std::move(shape), std::move(strides), lead), 9);
  };
  for (const std::int64_t lead : {0, 1}) {
    compare(function,
            {small(DType::i4, {6, 41}, {41, 1}, lead), small(DType::f4e2m1, {41}, {1}, lead),
             small(DType::u4, {6, 1}, {3, 1}, lead), small(DType::f8e4m3, {1, 1}, {1, 1}, lead)},
            {HostArray::contiguous(DType::f32, {6, 41})}, fmt::format("lead {}", lead));
  }
}

// Rows of packed elements alone are looked up in a table, in vectors and one by one.
TEST_P(PackedOnDevice, FunctionsOfPackedElementsAlone) {
  for (const DType of_rows : {DType::bf16, DType::f16, DType::f32}) {
    const Function function =
        parse("of_packed",
              fmt::format("{}(f32(x) * f32(scale) + f32(bias)), f32(x) * 0.5", name(of_rows)));
    HostArray scale = HostArray::contiguous(of_rows, {5, 1});
    HostArray bias = HostArray::contiguous(of_rows, {5, 1});
    for (std::int64_t row = 0; row < 5; ++row) {
      const double number =
          0.375 * static_cast<double>(row) - 0.75;  // all that comes of it is exact
      testing::set_bits(scale, row, fusion::encode(number, of_rows));
      testing::set_bits(bias, row, fusion::encode(number / -2, of_rows));
    }
    for (const DType dtype : {DType::u4, DType::i4, DType::f4e2m1}) {
      for (const std::int64_t columns : {32, 34, 62, 64, 190, 256, 1026, 2100}) {
        compare(function, {filled(HostArray::contiguous(dtype, {5, columns}), 11), scale, bias},
                {HostArray::contiguous(of_rows, {5, columns}),
                 HostArray::contiguous(DType::f32, {5, columns})},
                fmt::format("{} and {}, {} columns", name(dtype), name(of_rows), columns));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, PackedOnDevice, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, PackedOnDevice, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST(Packed, OverlapIsDecidedInHalfBytes) {
  std::vector<std::uint8_t> memory(64);
  const Stream stream;
  const View all(memory.data(), DType::u4, {8, 4}, {8, 1}, stream.device);
  const Function copy = parse("copy", "x");
  EXPECT_NO_THROW(copy(stream, {all}, {all.from(4)}));  // the other half of each row
  EXPECT_THROW(copy(stream, {all}, {all.from(3)}), Error);
  EXPECT_THROW(copy(stream, {all}, {all.from(1)}), Error);
  EXPECT_NO_THROW(copy(stream, {all}, {all}));
}

}  // namespace
}  // namespace kiln
