// Matrices of quantised weights times a few vectors, in one kernel on every device that is there,
// against the reference interpreter: every dtype, size of group and number of columns, and shapes
// that do not fit the vectors of a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "ahead/compile_only.hpp"
#include "kiln/program.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

class Products : public testing::OnDevice {
 protected:
  // Many terms of both signs have added up to the numbers.
  void check(const std::string& text, const std::vector<HostArray>& inputs,
             const Options& options = {}) {
    testing::check_on(device(), text, inputs, 64, options);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Products,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

constexpr DType kWeights[] = {DType::u4,         DType::i4,        DType::u8,     DType::i8,
                              DType::f8e4m3,     DType::f8e5m2,    DType::f4e2m1, DType::bf16,
                              DType::f8e4m3fnuz, DType::f8e5m2fnuz};

// An 8-bit float that is no number would make every result one.
HostArray weights(DType dtype, const Dims& shape, std::uint64_t seed) {
  return testing::random_array(dtype, shape, seed, is_floating(dtype) ? 1 : 2);
}

TEST_P(Products, OfEveryWeightAndGroup) {
  testing::Share share(GetParam(), 5);
  constexpr std::int64_t kGroups[] = {32, 64, 128};
  std::uint64_t seed = 1;
  for (const DType dtype : kWeights) {
    if (!share.next()) continue;
    const std::int64_t group = kGroups[seed % 3];
    const DType activation = seed % 2 == 0 ? DType::f16 : DType::bf16;
    const HostArray q = weights(dtype, {37, 6, group}, ++seed);
    const HostArray scale = testing::random_array(activation, {37, 6, 1}, ++seed);
    const HostArray bias = testing::random_array(activation, {37, 6, 1}, ++seed);
    const HostArray x = testing::random_array(activation, {6, group}, ++seed);
    check("sum((q * scale + bias) * x, -1, -2)", {q, scale, bias, x});
    check("sum((f32(q) - zero) * scale * x, -1, -2)", {q, bias, scale, x});
  }
}

// The CPU computes values of sixteen groups at a time, where they lie side by side and where not.
TEST_P(Products, OfFewAndManyGroups) {
  testing::Share share(GetParam(), 5);
  std::uint64_t seed = 400;
  for (const std::int64_t groups : {15, 16, 17, 35}) {
    if (!share.next()) continue;
    const DType dtype = kWeights[groups % 2];
    const HostArray q = weights(dtype, {9, groups, 32}, ++seed);
    const HostArray scale = testing::random_array(DType::f16, {9, groups, 1}, ++seed);
    HostArray turned = testing::random_array(DType::bf16, {groups, 9, 1}, ++seed);
    turned.shape = {9, groups, 1};
    turned.strides = {1, 9, 1};
    const HostArray x = testing::random_array(DType::f32, {groups, 32}, ++seed);
    check("sum((q * scale + bias) * x, -1, -2)", {q, turned, scale, x});
    const HostArray zero = testing::random_array(DType::u4, {9, groups, 1}, ++seed);
    check("sum((f32(q) - zero) * scale * x, -1, -2)", {q, zero, scale, x});
    const HostArray whole = testing::random_array(DType::i8, {groups, 32}, ++seed);
    const HostArray step = testing::random_array(DType::f32, {groups, 1}, ++seed, 0.01);
    check("sum((q * scale + bias) * (x * step), -1, -2)", {q, scale, turned, whole, step});
  }
  // Groups along two axes.
  const HostArray q = weights(DType::u4, {5, 3, 7, 32}, ++seed);
  const HostArray scale = testing::random_array(DType::bf16, {5, 1, 7, 1}, ++seed);
  const HostArray bias = testing::random_array(DType::f16, {5, 3, 7, 1}, ++seed);
  const HostArray x = testing::random_array(DType::f32, {3, 7, 32}, ++seed);
  check("sum((q * scale + bias) * x, -1, -2, -3)", {q, scale, bias, x});
}

TEST_P(Products, OfSeveralColumns) {
  testing::Share share(GetParam(), 5);
  for (const std::int64_t columns : {1, 2, 3, 5, 8, 11, 16}) {
    if (!share.next()) continue;
    const HostArray q = weights(DType::u4, {18, 1, 4, 64}, 10);
    const HostArray scale = testing::random_array(DType::bf16, {18, 1, 4, 1}, 11);
    const HostArray x = testing::random_array(DType::bf16, {columns, 4, 64}, 12);
    check("sum(q * scale * x, -1, -2)", {q, scale, x});  // [rows, columns]
    HostArray turned = x;
    turned.shape = {columns, 1, 4, 64};
    turned.strides = contiguous_strides(turned.shape);
    HostArray rows = q;
    rows.shape = {18, 4, 64};
    rows.strides = contiguous_strides(rows.shape);
    HostArray row_scale = scale;
    row_scale.shape = {18, 4, 1};
    row_scale.strides = contiguous_strides(row_scale.shape);
    check("sum(q * scale * x, -1, -2)", {rows, row_scale, turned});  // [columns, rows]
  }
}

// Enough rows for the tiles of NVIDIA GPUs, the last of them a part; sets of vectors that are
// parts; more tiles than blocks; more columns than a block keeps.
TEST_P(Products, InTilesOfEveryWeightAndGroup) {
  testing::Share share(GetParam(), 9);
  std::uint64_t seed = 100;
  for (const DType dtype :
       {DType::u4, DType::i4, DType::u8, DType::i8, DType::f8e4m3, DType::f8e5m2}) {
    for (const std::int64_t group : {32, 64, 128}) {
      if (!share.next()) continue;
      const DType activation = seed / 4 % 2 == 0 ? DType::f16 : DType::bf16;
      const auto columns = static_cast<std::int64_t>(1 + seed / 4 % 8);
      const HostArray q = weights(dtype, {70, 1, 5, group}, ++seed);
      const HostArray scale = testing::random_array(activation, {70, 1, 5, 1}, ++seed);
      const HostArray bias = testing::random_array(activation, {70, 1, 5, 1}, ++seed);
      const HostArray x = testing::random_array(activation, {columns, 5, group}, ++seed);
      if (is_floating(dtype)) {
        check("sum(q * scale * x, -1, -2)", {q, scale, x});
      } else if (group == 64) {
        check("mean((f32(q) - zero) * scale * x, -1, -2)", {q, bias, scale, x});
      } else {
        check("sum((q * scale + bias) * x, -1, -2)", {q, scale, bias, x});
      }
    }
  }
}

// Five to eight vectors of which every wave of a block keeps a part: four waves, and sixteen.
TEST_P(Products, InTilesOfVectorsThatWavesHold) {
  testing::Share share(GetParam(), 7);
  std::uint64_t seed = 150;
  for (const DType dtype :
       {DType::u4, DType::i4, DType::u8, DType::i8, DType::f8e4m3, DType::f8e5m2}) {
    if (!share.next()) continue;
    const DType activation = seed % 2 == 0 ? DType::f16 : DType::bf16;
    const auto columns = static_cast<std::int64_t>(5 + seed % 4);
    const std::int64_t groups = dtype == DType::u4 ? 64 : 16;
    const HostArray q = weights(dtype, {70, 1, groups, 64}, ++seed);
    const HostArray scale = testing::random_array(activation, {70, 1, groups, 1}, ++seed);
    const HostArray bias = testing::random_array(activation, {70, 1, groups, 1}, ++seed);
    const HostArray x = testing::random_array(activation, {columns, groups, 64}, ++seed);
    if (is_floating(dtype)) {
      check("sum(q * scale * x, -1, -2)", {q, scale, x});
    } else {
      check("sum((q * scale + bias) * x, -1, -2)", {q, scale, bias, x});
      check("sum((f32(q) - zero) * scale * x, -1, -2)", {q, bias, scale, x});
    }
  }
  // More tiles than blocks, which take the interpreter a while: for the devices that have tiles.
  if (GetParam() != DeviceType::cuda) return;
  const HostArray q = weights(DType::u4, {8500, 1, 1, 1024}, 160);
  const HostArray scale = testing::random_array(DType::bf16, {8500, 1, 1, 1}, 161);
  check("sum(q * scale * x, -1, -2)",
        {q, scale, testing::random_array(DType::bf16, {5, 1, 1024}, 162)});
}

// Rows that waves have for themselves, two at a time, an odd number of them: of one quad of chains
// and of two; lines of one step and of several; a row that is added up again beside one that is
// not.
TEST_P(Products, InPairsOfRows) {
  testing::Share share(GetParam(), 9);
  std::uint64_t seed = 300;
  for (const DType dtype :
       {DType::u4, DType::i4, DType::u8, DType::i8, DType::f8e4m3, DType::f8e5m2}) {
    for (const std::int64_t group : {64, 128}) {
      if (!share.next()) continue;
      const DType activation = seed % 2 == 0 ? DType::f16 : DType::bf16;
      const std::int64_t groups = (group == 64 ? 4096 : 2048) / (bits(dtype) == 4 ? 1 : 2) / group;
      const HostArray q = weights(dtype, {71, 1, groups, group}, ++seed);
      HostArray scale = testing::random_array(DType::bf16, {71, 1, groups, 1}, ++seed);
      const HostArray bias = testing::random_array(DType::bf16, {71, 1, groups, 1}, ++seed);
      const HostArray x = testing::random_array(activation, {1, groups, group}, ++seed);
      if (is_floating(dtype)) {
        check("sum(q * scale * x, -1, -2)", {q, scale, x});
      } else {
        testing::set_bits(scale, 8 * groups + 3, fusion::encode(0, DType::bf16));
        check("sum((q * scale + bias) * x, -1, -2)", {q, scale, bias, x});
        check("silu(mean((q * scale - bias) * x, -1, -2))", {q, scale, bias, x});
        check("sum((q - zero) * scale * x, -1, -2)", {q, bias, scale, x});
      }
    }
  }
}

// More pairs than waves, and matrices that each have their vector: they take the interpreter a
// while, and only these devices have pairs.
TEST_P(Products, InMorePairsThanWaves) {
  if (GetParam() != DeviceType::cuda) GTEST_SKIP() << "for devices whose waves have pairs of rows";
  const HostArray q = weights(DType::u4, {2, 2200, 16, 128}, 350);
  const HostArray scale = testing::random_array(DType::bf16, {2, 2200, 16, 1}, 351);
  const HostArray bias = testing::random_array(DType::bf16, {2, 2200, 16, 1}, 352);
  check("sum((q * scale + bias) * x, -1, -2)",
        {q, scale, bias, testing::random_array(DType::bf16, {2, 1, 16, 128}, 353)});
}

// Rows whose parts are no power of two, are as many as a block has waves, and leave waves over.
TEST_P(Products, OfRowsInManyParts) {
  testing::Share share(GetParam(), 3);
  for (const std::int64_t groups : {96, 160, 224, 256}) {
    if (!share.next()) continue;
    const std::int64_t rows = GetParam() == DeviceType::cpu ? 40 : 2120;
    const HostArray q = weights(DType::u4, {rows, groups, 64}, 360);
    const HostArray scale = testing::random_array(DType::f16, {rows, groups, 1}, 361);
    const HostArray bias = testing::random_array(DType::f16, {rows, groups, 1}, 362);
    check("sum((q * scale + bias) * x, -1, -2)",
          {q, scale, bias, testing::random_array(DType::bf16, {groups, 64}, 363)});
  }
}

TEST_P(Products, InTilesOfOneGroupAndWithWorkAfter) {
  for (const DType dtype : {DType::u4, DType::i8, DType::f8e4m3}) {
    const HostArray q = weights(dtype, {64, 2048}, 200);
    const HostArray x = testing::random_array(DType::bf16, {2048}, 201);
    const HostArray scale = testing::random_array(DType::f32, {64, 1}, 202);
    check("silu(sum(f32(q) * x, -1) * scale), max(scale, -1)", {q, x, scale});
  }
}

TEST_P(Products, InMoreTilesThanBlocks) {
  const std::int64_t rows = GetParam() == DeviceType::cpu ? 656 : 65640;  // where there are tiles
  const HostArray q = weights(DType::u4, {rows, 1, 32}, 210);
  const HostArray scale = testing::random_array(DType::bf16, {rows, 1, 1}, 211);
  const HostArray bias = testing::random_array(DType::bf16, {rows, 1, 1}, 212);
  check("sum((q * scale - bias) * x, -1, -2)",
        {q, scale, bias, testing::random_array(DType::bf16, {1, 32}, 213)});
}

TEST_P(Products, InTilesOfVectorsThatABlockDoesNotKeep) {
  const HostArray q = weights(DType::u4, {66, 1, 66, 64}, 220);
  const HostArray scale = testing::random_array(DType::bf16, {66, 1, 66, 1}, 221);
  const HostArray bias = testing::random_array(DType::bf16, {66, 1, 66, 1}, 222);
  const HostArray x = testing::random_array(DType::bf16, {8, 66, 64}, 223);
  check("sum((q * scale + bias) * x, -1, -2)", {q, scale, bias, x});
}

TEST_P(Products, InTilesOfBatches) {
  const HostArray q = weights(DType::i4, {3, 100, 4, 32}, 230);
  const HostArray scale = testing::random_array(DType::f32, {3, 100, 4, 1}, 231);
  const HostArray x = testing::random_array(DType::f16, {3, 1, 4, 32}, 232);
  check("sum(q * scale * x, -1, -2)", {q, scale, x});  // each matrix its vector
}

// Weights that their bias cancels give 0, whatever the vector: the sums are kept from cancelling.
TEST_P(Products, InTilesOfWeightsThatAreNothing) {
  HostArray q = HostArray::contiguous(DType::u8, {64, 1, 2, 64});
  for (std::int64_t i = 0; i < q.size(); ++i)
    testing::set_bits(q, i, static_cast<std::uint64_t>(i / 128 % 64 * 4));
  HostArray scale = HostArray::contiguous(DType::f32, {64, 1, 2, 1});
  HostArray bias = HostArray::contiguous(DType::f32, {64, 1, 2, 1});
  for (std::int64_t i = 0; i < scale.size(); ++i) {
    testing::set_bits(scale, i, fusion::encode(0.25, DType::f32));
    testing::set_bits(bias, i, fusion::encode(-static_cast<double>(i / 2), DType::f32));
  }
  const HostArray x = testing::random_array(DType::bf16, {1, 2, 64}, 240);
  std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {64, 1, 1, 1})};
  testing::run_on({GetParam(), 0}, parse("product", "sum((q * scale + bias) * x, -1, -2)"),
                  {q, scale, bias, x}, got);
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(testing::number_at(got[0], i), 0) << i;
}

// One number of a row that is not finite is that row's affair: in tiles, and in pairs of rows.
TEST_P(Products, InTilesOfWhatIsNotFinite) {
  for (const std::int64_t groups : {2, 32}) {
    const HostArray q = weights(DType::u4, {80, 1, groups, 64}, 250);
    HostArray scale = testing::random_array(DType::bf16, {80, 1, groups, 1}, 251);
    const HostArray bias = testing::random_array(DType::bf16, {80, 1, groups, 1}, 252);
    testing::set_bits(scale, 3 * groups, fusion::encode(INFINITY, DType::bf16));
    testing::set_bits(scale, 18 * groups + 1, fusion::encode(NAN, DType::bf16));
    testing::set_bits(scale, 32 * groups, fusion::encode(0, DType::bf16));
    testing::set_bits(scale, 51 * groups - 1, fusion::encode(1e36, DType::bf16));
    const HostArray x = testing::random_array(DType::bf16, {1, groups, 64}, 253);
    const std::string text = "sum((q * scale + bias) * x, -1, -2)";
    const HostArray want = testing::reference_of(text, {q, scale, bias, x})[0];
    std::vector<HostArray> got = {HostArray::contiguous(DType::bf16, want.shape)};
    testing::run_on({GetParam(), 0}, parse("product", text), {q, scale, bias, x}, got);
    for (std::int64_t i = 0; i < 80; ++i) {
      const double expected = testing::number_at(want, i);
      const double result = testing::number_at(got[0], i);
      if (std::isfinite(expected)) {
        EXPECT_NEAR(result, expected, std::fabs(expected) * 0.005 + 5e-4 * std::sqrt(groups)) << i;
      } else {
        EXPECT_FALSE(std::isfinite(result)) << i;
      }
    }
  }
}

// What is added may be where the result goes, also where a row is added up again.
TEST_P(Products, InTilesOverWhatIsAdded) {
  const HostArray q = weights(DType::u4, {80, 1, 2, 64}, 260);
  HostArray scale = testing::random_array(DType::f32, {80, 1, 2, 1}, 261);
  testing::set_bits(scale, 9, fusion::encode(INFINITY, DType::f32));
  const HostArray x = testing::random_array(DType::bf16, {1, 2, 64}, 262);
  const HostArray b = testing::random_array(DType::f32, {80, 1, 1, 1}, 263);
  const std::string text = "sum(q * scale * x, -1, -2) + b";
  const HostArray want = testing::reference_of(text, {q, scale, x, b})[0];
  const Device device{GetParam(), 0};
  jit::Backend& backend = jit::backend(device);
  const testing::DeviceBuffer q_memory(backend, q.bytes);
  const testing::DeviceBuffer scale_memory(backend, scale.bytes);
  const testing::DeviceBuffer x_memory(backend, x.bytes);
  const testing::DeviceBuffer b_memory(backend, b.bytes);
  const View both(b_memory.data(), DType::f32, b.shape, device);
  parse("product", text)({device, nullptr},
                         {View(q_memory.data(), DType::u4, q.shape, device),
                          View(scale_memory.data(), DType::f32, scale.shape, device),
                          View(x_memory.data(), DType::bf16, x.shape, device), both},
                         {both});
  HostArray got = HostArray::contiguous(DType::f32, b.shape);
  got.bytes = b_memory.read();
  for (std::int64_t i = 0; i < 80; ++i) {
    const double expected = testing::number_at(want, i);
    if (i == 4) {
      EXPECT_FALSE(std::isfinite(testing::number_at(got, i)));
    } else {
      EXPECT_NEAR(testing::number_at(got, i), expected, 0.02) << i;
    }
  }
}

TEST_P(Products, OfManyAndFewRowsAndLongAndShortOnes) {
  testing::Share share(GetParam(), 9);
  for (const std::int64_t rows : {1, 3, 4, 130}) {
    for (const std::int64_t length : {1, 7, 36, 96, 2048, 40960}) {
      if (!share.next()) continue;
      check("sum(q * x, -1)", {weights(DType::i4, {rows, length}, 13),
                               testing::random_array(DType::f32, {length}, 14)});
    }
  }
}

TEST_P(Products, OfBatches) {
  const HostArray q = weights(DType::u4, {3, 10, 4, 32}, 15);
  const HostArray scale = testing::random_array(DType::f32, {3, 10, 4, 1}, 16);
  const HostArray x = testing::random_array(DType::bf16, {3, 1, 4, 32}, 17);
  check("sum(q * scale * x, -1, -2)", {q, scale, x});  // each matrix its vector
  const HostArray several = testing::random_array(DType::bf16, {4, 3, 1, 4, 32}, 18);
  check("sum(q * scale * x, -1, -2)", {q, scale, several});
}

TEST_P(Products, OfPackedPointsAndOfRowsThatBeginWithinAByte) {
  const HostArray q = weights(DType::u4, {9, 5, 32}, 19);
  const HostArray zero = weights(DType::u4, {9, 5, 1}, 20);
  const HostArray scale = testing::random_array(DType::f16, {9, 5, 1}, 21);
  check("sum((i32(q) - i32(zero)) * scale * x, -1, -2)",
        {q, zero, scale, testing::random_array(DType::f16, {5, 32}, 22)});
  check("max(q, -1), min(f32(q) * 2.0, -1), any(q > 14, -1), sum(q, -1), mean(f32(q) * x, -1)",
        {weights(DType::u4, {9, 33}, 23), testing::random_array(DType::f32, {33}, 24)});
}

TEST_P(Products, WithWorkBeforeAndAfter) {
  const HostArray w = testing::random_array(DType::bf16, {40, 256}, 25);
  const HostArray x = testing::random_array(DType::bf16, {256}, 26);
  const HostArray bias = testing::random_array(DType::f32, {40, 1}, 27);
  check("silu(sum(w * silu(x), -1) + b), max(w * x * b, -1)", {w, x, bias});
  Options each;
  each.rounding = Rounding::each;
  check("max((q * scale + b) * x, -1)",
        {weights(DType::u4, {40, 64}, 28), testing::random_array(DType::bf16, {40, 1}, 29),
         testing::random_array(DType::bf16, {40, 1}, 30),
         testing::random_array(DType::bf16, {64}, 31)},
        each);
}

TEST_P(Products, OfWeightsReadAsTheyLieInMemory) {
  const HostArray w = testing::random_array(DType::bf16, {9, 64}, 33);
  const HostArray x = testing::random_array(DType::f32, {64}, 34);
  check("sum(f32(bitcast(w, u16) >> 8) * x, -1)", {w, x});
  check("sum(f32(bitcast(bitcast(w, u8), f8e5m2)) * x, -1)",
        {testing::random_array(DType::i8, {9, 64}, 35), x});
}

// Rows whose reductions would be split if they were not packed.
TEST_P(Products, InProgramsOfFewLongRows) {
  constexpr std::int64_t kLength = 1 << 18;
  const HostArray q = weights(DType::u4, {1, kLength}, 36);
  const HostArray x = testing::random_array(DType::f32, {kLength}, 37);
  const HostArray want = testing::reference_of("sum(f32(q) * x, -1)", {q, x})[0];
  const Device device{GetParam(), 0};
  jit::Backend& backend = jit::backend(device);
  const testing::DeviceBuffer q_memory(backend, q.bytes);
  const testing::DeviceBuffer x_memory(backend, x.bytes);
  const testing::DeviceBuffer sum(backend, std::vector<std::byte>(4));
  const Program fused = program(parse("product", "sum(f32(q) * x, -1)"));
  fused.run({device, nullptr},
            {View(q_memory.data(), DType::u4, {1, kLength}, device),
             View(x_memory.data(), DType::f32, {kLength}, device)},
            {View(sum.data(), DType::f32, {1, 1}, device)}, View());
  HostArray got = HostArray::contiguous(DType::f32, {1, 1});
  got.bytes = sum.read();
  // Of a quarter of a million terms of some ten, of both signs.
  EXPECT_NEAR(testing::number_at(got, 0), testing::number_at(want, 0), 0.5);
}

// Scales so large that a GPU's way of making floats of small integers would overflow.
TEST_P(Products, WithScalesOfEverySize) {
  const HostArray q = weights(DType::u4, {6, 1, 64}, 32);
  HostArray scale = HostArray::contiguous(DType::f32, {6, 1, 1});
  const double scales[] = {1e36, -3e32, 1e-40, INFINITY, 0, 1};
  for (std::int64_t i = 0; i < 6; ++i)
    testing::set_bits(scale, i, fusion::encode(scales[i], DType::f32));
  HostArray x = HostArray::contiguous(DType::f32, {64});
  for (std::int64_t i = 0; i < 64; ++i)
    testing::set_bits(x, i, fusion::encode(i % 2 == 0 ? 0.125 : 0.0625, DType::f32));
  std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {6, 1, 1})};
  const std::string text = "sum(q * scale * x, -1, -2)";
  const std::vector<HostArray> want = testing::reference_of(text, {q, scale, x});
  testing::run_on({GetParam(), 0}, parse("product", text), {q, scale, x}, got);
  for (std::int64_t i = 0; i < 6; ++i) {
    const double expected = testing::number_at(want[0], i);
    const double result = testing::number_at(got[0], i);
    if (std::isfinite(expected)) {
      EXPECT_NEAR(result, expected, std::fabs(expected) * 1e-5 + 64 * std::ldexp(1.0, -149)) << i;
    } else {
      EXPECT_EQ(std::isnan(result), std::isnan(expected)) << i;
    }
  }
}

class TwoSums : public testing::ProgramsOnDevices {};

INSTANTIATE_TEST_SUITE_P(Devices, TwoSums,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

// Gates and what they are multiplied with, and rotated pairs: one kernel has both sums of a row.
// Rows of few groups, those that waves of a block share, and several vectors.
TEST_P(TwoSums, OfPartsOfOneMatrix) {
  testing::Share share(GetParam(), 5);
  for (const auto& [rows, groups, group, vectors] :
       {std::tuple{70, 4, 64, 1}, std::tuple{70, 2, 32, 1}, std::tuple{66, 32, 64, 1},
        std::tuple{2111, 64, 64, 1}, std::tuple{140, 64, 64, 3}, std::tuple{140, 64, 64, 8}}) {
    if (!share.next()) continue;
    const HostArray q = weights(DType::u4, {2 * rows, groups, group}, 270);
    const HostArray scale = testing::random_array(DType::bf16, {2 * rows, groups, 1}, 271);
    const HostArray bias = testing::random_array(DType::bf16, {2 * rows, groups, 1}, 272);
    const HostArray x = testing::random_array(DType::bf16, {vectors, 1, groups, group}, 273);
    const std::string product = "y = sum((q * scale + bias) * x, -1, -2);";
    const std::string halves = fmt::format("{0} y[:, :{1}] + 0.5 * y[:, {1}:]", product, rows);
    const std::string pairs = product + " y[:, 0::2] - 0.5 * y[:, 1::2]";
    for (const std::string& text : {halves, pairs}) {
      const std::vector<HostArray> inputs{q, scale, bias, x};
      testing::expect_within(run(parse_program("sums", text), text, inputs, false),
                             testing::reference_of(text, inputs), 64, text);
    }
  }
}

TEST_P(TwoSums, OfTwoMatrices) {
  const std::vector<HostArray> inputs{
      weights(DType::i4, {80, 32, 64}, 290), testing::random_array(DType::f16, {80, 32, 1}, 291),
      testing::random_array(DType::f16, {32, 64}, 292), weights(DType::i4, {80, 32, 64}, 293),
      testing::random_array(DType::f16, {80, 32, 1}, 294)};
  const std::string text = "sum(q * scale * x, -1, -2) + 0.25 * sum(p * other * x, -1, -2)";
  testing::expect_within(run(parse_program("sums", text), text, inputs, false),
                         testing::reference_of(text, inputs), 64, text);
}

// One number of a row that is not finite is that row's affair.
TEST_P(TwoSums, OfWhatIsNotFinite) {
  for (const std::int64_t groups : {2, 32}) {
    const HostArray q = weights(DType::u4, {160, groups, 64}, 280);
    HostArray scale = testing::random_array(DType::bf16, {160, groups, 1}, 281);
    testing::set_bits(scale, 3 * groups, fusion::encode(INFINITY, DType::bf16));
    testing::set_bits(scale, 98 * groups + 1, fusion::encode(NAN, DType::bf16));
    const HostArray x = testing::random_array(DType::bf16, {groups, 64}, 283);
    const std::string text = "y = sum(q * scale * x, -1, -2); y[:80] + y[80:]";
    const std::vector<HostArray> inputs{q, scale, x};
    const HostArray want = testing::reference_of(text, inputs)[0];
    const HostArray got = run(parse_program("sums", text), text, inputs, false)[0];
    for (std::int64_t i = 0; i < 80; ++i) {
      const double expected = testing::number_at(want, i);
      const double result = testing::number_at(got, i);
      EXPECT_EQ(std::isfinite(result), std::isfinite(expected)) << i;
      if (!std::isfinite(expected)) continue;
      EXPECT_NEAR(result, expected, std::fabs(expected) * 0.005 + 1e-3 * std::sqrt(groups)) << i;
    }
  }
}

// The order that fusion/numerics.md promises, whatever the number of columns. Products of factors
// of eight bits are exact, so that processors that round them add the same.
TEST(HostProducts, AddInTheOrderOfTheirElements) {
  constexpr std::int64_t kRows = 5;
  const auto in_order = [](const HostArray& a, std::int64_t row, const HostArray& x,
                           std::int64_t column, std::int64_t length) {
    float total[16] = {};
    float block[16] = {};
    for (std::int64_t i = 0; i < length; ++i) {
      const double product =
          testing::number_at(a, row * length + i) * testing::number_at(x, column * length + i);
      block[i % 16] += static_cast<float>(product);
      if (i % 1024 != 1023 && i + 1 != length) continue;
      for (int r = 0; r < 16; ++r) {
        total[r] += block[r];
        block[r] = 0;
      }
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int r = 0; r < half; ++r) total[r] += total[r + half];
    }
    return total[0];
  };
  std::uint64_t seed = 500;
  for (const DType dtype : {DType::u4, DType::f8e4m3, DType::i8}) {
    for (const std::int64_t length : {16, 96, 1024, 2048 + 64, 3 * 1024 + 32}) {
      for (const std::int64_t columns : {1, 2, 5, 8}) {
        SCOPED_TRACE(fmt::format("{}, {} elements, {} columns", name(dtype), length, columns));
        const HostArray q = weights(dtype, {kRows, 1, length}, ++seed);
        const HostArray x = testing::random_array(DType::bf16, {columns, length}, ++seed);
        const auto got =
            testing::outputs_of({DeviceType::cpu, 0}, "f32(sum(f32(q) * f32(x), -1))", {q, x})[0];
        for (std::int64_t i = 0; i < kRows * columns; ++i) {
          ASSERT_EQ(static_cast<float>(testing::number_at(got, i)),
                    in_order(q, i / columns, x, i % columns, length))
              << i;
        }
      }
    }
  }
}

// The rows that come next are prefetched, what all rows share is not.
TEST(HostProducts, PrefetchTheirWeights) {
  const auto prefetches = [](const std::string& text, DType weights, DType x) {
    Specification types;
    types.arguments = {{"w", weights, {512, 1024}, {}, false}, {"x", x, {1024}, {}, false}};
    const std::string source = emit_for(parse("f", text), types, "cpu", false);
    std::size_t count = 0;
    for (std::size_t at = 0; (at = source.find("prefetch_lanes<", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  for (const DType dtype : {DType::u4, DType::f4e2m1, DType::f8e4m3, DType::i8, DType::bf16}) {
    EXPECT_EQ(prefetches("sum(w * x, -1)", dtype, DType::f32), 1U) << name(dtype);
  }
  EXPECT_EQ(prefetches("sum(i32(w) * i32(x), -1)", DType::u4, DType::i8), 1U);
}

}  // namespace
}  // namespace kiln
