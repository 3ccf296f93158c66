// Which variant a layout gets, and that walking a layout visits exactly the elements of the call.
#include "fusion/schedule/layout.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "fusion/graph/broadcast.hpp"
#include "tests/fusion/schedule/operand.hpp"
#include "tests/support/settings.hpp"

namespace kiln::fusion {
namespace {

TEST(Layout, ContiguousOperandsBecomeOneVector) {
  const std::vector<Operand> operands = {operand(DType::bf16, {512, 64, 1}),
                                         operand(DType::bf16, {512, 64, 1}, true)};
  const Layout layout = plan_layout({4, 8, 64}, operands, Backend::amd);
  EXPECT_EQ(layout.schedule.rank, 1);
  EXPECT_EQ(layout.schedule.width, 8);
  EXPECT_EQ(layout.schedule.operands[0].access, Access::contiguous);
  EXPECT_EQ(layout.schedule.operands[0].alignment, 16);
  EXPECT_EQ(layout.work_items, 4u * 8 * 64 / 8);
}

TEST(Layout, PermutedOperandsThatAgreeBecomeOneVectorToo) {
  const std::vector<Operand> operands = {operand(DType::f32, {1, 4}),
                                         operand(DType::f32, {1, 4}, true)};
  const Layout layout = plan_layout({4, 16}, operands, Backend::nvidia);
  EXPECT_EQ(layout.schedule.rank, 1);
  EXPECT_EQ(layout.schedule.operands[0].access, Access::contiguous);
}

TEST(Layout, ARowVectorIsContiguousAndAColumnIsOneElementPerRow) {
  const std::vector<Operand> operands = {operand(DType::f32, {128, 1}), operand(DType::f32, {0, 1}),
                                         operand(DType::f32, {1, 0}), operand(DType::f32, {0, 0}),
                                         operand(DType::f32, {128, 1}, true)};
  const Layout layout = plan_layout({64, 128}, operands, Backend::amd);
  ASSERT_EQ(layout.schedule.rank, 2);
  EXPECT_EQ(layout.schedule.operands[1].access, Access::contiguous);
  EXPECT_EQ(layout.schedule.operands[1].outer_axes, 0u);
  EXPECT_EQ(layout.schedule.operands[2].access, Access::broadcast);
  EXPECT_EQ(layout.schedule.operands[3].access, Access::scalar);
}

TEST(Layout, TheHostLooksUpLongRowsOfPackedElementsAlone) {
  const auto table = [](DType of_lanes, std::int64_t columns, DType output, Backend backend) {
    const std::vector<Operand> operands = {operand(of_lanes, {columns, 1}),
                                           operand(DType::bf16, {1, 0}),
                                           operand(output, {columns, 1}, true)};
    return plan_layout({8, columns}, operands, backend).schedule.table;
  };
  EXPECT_TRUE(table(DType::u4, 64, DType::bf16, Backend::host));
  EXPECT_TRUE(table(DType::i4, 64, DType::f32, Backend::host));
  EXPECT_FALSE(table(DType::u4, 64, DType::bf16, Backend::nvidia));
  EXPECT_FALSE(table(DType::u4, 16, DType::bf16, Backend::host));
  EXPECT_FALSE(table(DType::u4, 64, DType::f64, Backend::host));
  EXPECT_FALSE(table(DType::u8, 64, DType::bf16, Backend::host));
}

TEST(Layout, AlignmentComesFromTheAddressAndTheRows) {
  const auto alignment = [](std::uint64_t address, std::int64_t row) {
    const std::vector<Operand> operands = {operand(DType::bf16, {row, 1}, false, address),
                                           operand(DType::bf16, {64, 1}, true)};
    return plan_layout({8, 64}, operands, Backend::amd).schedule.operands[0].alignment;
  };
  EXPECT_EQ(alignment(4096, 72), 16);
  EXPECT_EQ(alignment(4096 + 2, 72), 2);
  EXPECT_EQ(alignment(4096, 66), 4);
  EXPECT_EQ(alignment(4096 + 8, 72), 8);
}

TEST(Layout, IndicesAreWideWhenAnOperandSpansMoreThan31Bits) {
  const std::int64_t far = std::int64_t{1} << 30;
  const std::vector<Operand> near_ones = {operand(DType::u8, {1}), operand(DType::u8, {1}, true)};
  EXPECT_FALSE(plan_layout({far}, near_ones, Backend::amd).schedule.wide_index);
  EXPECT_TRUE(plan_layout({2 * far}, near_ones, Backend::amd).schedule.wide_index);
  const std::vector<Operand> spread = {operand(DType::u8, {far, 1}),
                                       operand(DType::u8, {8, 1}, true)};
  EXPECT_TRUE(plan_layout({4, 8}, spread, Backend::amd).schedule.wide_index);
  const std::vector<Operand> backwards = {operand(DType::u8, {-far, 1}),
                                          operand(DType::u8, {8, 1}, true)};
  EXPECT_TRUE(plan_layout({4, 8}, backwards, Backend::amd).schedule.wide_index);
}

// An index goes up to the last element that is addressed, which may be a vector's beyond the end of
// a row: below 2^31 by that much, 32 bits are enough, and from there on they are not.
TEST(Layout, IndicesAreWideFromTwoToThePowerOf31On) {
  constexpr std::int64_t k31 = std::int64_t{1} << 31;
  constexpr std::int64_t k32 = std::int64_t{1} << 32;
  for (const Backend backend : {Backend::amd, Backend::nvidia, Backend::host}) {
    const auto is_wide = [&](Dims shape, Dims in, Dims out) {
      const std::vector<Operand> operands = {operand(DType::u8, std::move(in)),
                                             operand(DType::u8, std::move(out), true)};
      return plan_layout(shape, operands, backend).schedule.wide_index;
    };
    const std::int64_t slack = 2048;
    EXPECT_FALSE(is_wide({k31 - slack}, {1}, {1}));
    EXPECT_TRUE(is_wide({k31}, {1}, {1}));
    EXPECT_TRUE(is_wide({k32}, {1}, {1}));
    EXPECT_TRUE(is_wide({k32 + 5}, {1}, {1}));
    // Rows whose starts are that far apart, in either direction and in either operand.
    const std::int64_t near_row = (k31 - slack) / 3;
    EXPECT_FALSE(is_wide({4, 8}, {near_row, 1}, {8, 1}));
    for (const std::int64_t row : {k31 / 3 + 1, k31, k32 / 3 + 1, k32, -k31, -k32 - 7}) {
      EXPECT_TRUE(is_wide({4, 8}, {row, 1}, {8, 1})) << row;
      EXPECT_TRUE(is_wide({4, 8}, {8, 1}, {row, 1})) << row;
      EXPECT_TRUE(is_wide({4, 8}, {0, 0}, {row, 1})) << row;
    }
    // Neighbours that are far apart, and more elements than any operand has of its own.
    EXPECT_TRUE(is_wide({5}, {k31 / 4}, {1}));
    EXPECT_TRUE(is_wide({k31 / 4, 4}, {0, 1}, {4, 1}));
  }
}

// The largest numbers that a kernel meets are those that it gets as parameters.
TEST(Layout, CountsAndStridesBeyond32BitsAreKept) {
  constexpr std::int64_t k32 = std::int64_t{1} << 32;
  const std::vector<Operand> operands = {operand(DType::f16, {-3 * k32, 1}),
                                         operand(DType::f16, {2 * k32, 1}, true)};
  const Layout layout = plan_layout({3, k32 + 9}, operands, Backend::nvidia);
  ASSERT_EQ(layout.schedule.rank, 2);
  EXPECT_EQ(layout.schedule.width, 8);
  EXPECT_EQ(layout.shape, Dims({3, k32 + 9}));
  EXPECT_EQ(layout.strides.of(0), Dims({-3 * k32, 1}));
  EXPECT_EQ(layout.work_items, 3u * static_cast<std::uint64_t>(k32 / 8 + 2));
}

TEST(Layout, NothingToDoIsNoWorkItems) {
  const std::vector<Operand> operands = {operand(DType::f32, {8, 1}),
                                         operand(DType::f32, {8, 1}, true)};
  EXPECT_EQ(plan_layout({0, 8}, operands, Backend::amd).work_items, 0u);
  EXPECT_EQ(plan_layout({8, 0}, operands, Backend::amd).work_items, 0u);
  // What repeats along one axis and would be cut into parts along another.
  const std::vector<Operand> repeating = {operand(DType::f32, {0, 1}),
                                          operand(DType::f32, {0, 1}, true)};
  for (const Dims& shape : {Dims{16, 0}, Dims{0, 1 << 20}, Dims{0, 0}}) {
    for (const Backend backend : {Backend::amd, Backend::nvidia, Backend::host}) {
      EXPECT_EQ(plan_layout(shape, repeating, backend).work_items, 0u) << to_string(shape);
    }
  }
}

TEST(Layout, RankZeroIsOneElement) {
  const std::vector<Operand> operands = {operand(DType::f32, {}), operand(DType::f32, {}, true)};
  EXPECT_EQ(plan_layout({}, operands, Backend::host).work_items, 1u);
}

// A thread's stores are whole accesses side by side with its neighbours'; it takes several where a
// narrow input would otherwise leave it with few bytes under way.
TEST(Layout, WhatIsStoredIsOneAccessOfAThreadAtATime) {
  const auto of_row = [](std::int64_t size, DType from, DType to) {
    const std::vector<Operand> operands = {operand(from, {2 * size, 1}),
                                           operand(to, {size, 1}, true)};
    return plan_layout({8, size}, operands, Backend::nvidia);
  };
  const auto expect = [](const Layout& layout, int width, int vectors, int threads) {
    EXPECT_EQ(layout.schedule.width, width);
    EXPECT_EQ(layout.schedule.vectors, vectors);
    EXPECT_EQ(layout.schedule.threads, threads);
    EXPECT_EQ(layout.work_items, 8U * static_cast<std::uint64_t>(layout.row_items()));
  };
  expect(of_row(65536, DType::u8, DType::f32), 4, 4, 32);
  expect(of_row(65536, DType::bf16, DType::f32), 4, 2, 32);
  expect(of_row(65536, DType::f32, DType::bf16), 8, 1, 1);
  expect(of_row(65536, DType::f32, DType::f32), 4, 1, 1);
  // A short row is one vector of each of 8 threads, twice, or of 4.
  expect(of_row(64, DType::u8, DType::f32), 4, 2, 8);
  EXPECT_EQ(of_row(64, DType::u8, DType::f32).row_items(), 8);
  expect(of_row(32, DType::u8, DType::f32), 4, 2, 4);
  // A short row that does not come out even is handled vector by vector.
  expect(of_row(100, DType::u8, DType::f32), 4, 1, 1);
  EXPECT_EQ(of_row(100, DType::u8, DType::f32).row_items(), 25);
  // The end of a long one takes work items that have less to do.
  expect(of_row(8192 + 4, DType::u8, DType::f32), 4, 4, 32);
  EXPECT_EQ(of_row(8192 + 4, DType::u8, DType::f32).row_items(), 17 * 32);
}

TEST(Layout, ElementsBetweenEachOtherAreInterleaved) {
  const auto in_memory = [](Operand operand, std::uint32_t memory, std::int64_t element) {
    operand.place = {memory, element};
    return operand;
  };
  const auto halves = [&](std::uint32_t memory, std::int64_t second) {
    const std::vector<Operand> operands = {
        in_memory(operand(DType::bf16, {128, 2}), memory, second),
        in_memory(operand(DType::bf16, {128, 2}), memory, 0),
        in_memory(operand(DType::bf16, {64, 1}, true), 2, 0)};
    return plan_layout({8, 64}, operands, Backend::nvidia).schedule;
  };
  const Schedule pairs = halves(1, 1);
  EXPECT_EQ(pairs.operands[0].access, Access::interleaved);
  EXPECT_EQ(pairs.operands[1].access, Access::interleaved);
  EXPECT_EQ(pairs.operands[0].ways, 2);
  EXPECT_EQ(pairs.operands[0].way, 1);
  EXPECT_EQ(pairs.operands[1].way, 0);
  EXPECT_EQ(pairs.operands[0].first_way, 1U);
  EXPECT_EQ(pairs.operands[1].first_way, 1U);
  EXPECT_EQ(pairs.operands[1].alignment, 16);
  // What lies elsewhere, or is not known to be in one memory, is not.
  EXPECT_EQ(halves(1, 3).operands[0].access, Access::strided);
  EXPECT_EQ(halves(1, 0).operands[0].access, Access::strided);
  EXPECT_EQ(halves(0, 1).operands[0].access, Access::strided);
}

TEST(Layout, OnlyWholeGroupsAreInterleaved) {
  std::vector<Operand> operands;
  for (const std::int64_t element : {0, 1, 2}) {
    operands.push_back(operand(DType::f32, {3}));
    operands.back().place = {1, element};
  }
  operands.push_back(operand(DType::f32, {1}, true));
  const auto access = [&](std::size_t i) {
    return plan_layout({64}, operands, Backend::amd).schedule.operands[i].access;
  };
  EXPECT_EQ(access(0), Access::interleaved);
  EXPECT_EQ(access(2), Access::interleaved);
  operands[1].dtype = DType::i32;
  EXPECT_EQ(access(0), Access::strided);
  EXPECT_EQ(access(2), Access::strided);
}

// Walks a layout as a kernel does and records which output element meets which input element.
std::map<std::int64_t, std::int64_t> walk(const Layout& layout, std::size_t input,
                                          std::size_t output) {
  std::map<std::int64_t, std::int64_t> pairs;
  std::int64_t total = 1;
  for (const std::int64_t size : layout.shape) total *= size;
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i;
    std::int64_t in = layout.offsets[input];
    std::int64_t out = layout.offsets[output];
    for (std::size_t k = layout.shape.size(); k-- > 0;) {
      in += rest % layout.shape[k] * layout.strides(input, k);
      out += rest % layout.shape[k] * layout.strides(output, k);
      rest /= layout.shape[k];
    }
    EXPECT_TRUE(pairs.emplace(out, in).second) << "output element " << out << " visited twice";
  }
  return pairs;
}

std::map<std::int64_t, std::int64_t> expected_pairs(const Dims& shape, const Dims& in,
                                                    const Dims& out) {
  std::map<std::int64_t, std::int64_t> pairs;
  std::int64_t total = 1;
  for (const std::int64_t size : shape) total *= size;
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i;
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (std::size_t k = shape.size(); k-- > 0;) {
      from += rest % shape[k] * in[k];
      to += rest % shape[k] * out[k];
      rest /= shape[k];
    }
    pairs.emplace(to, from);
  }
  return pairs;
}

TEST(Layout, VisitsEveryElementOnceForRandomShapesAndStrides) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int draw = 0; draw < 2000; ++draw) {
    const std::size_t rank = random() % 6;
    Dims shape(rank);
    for (std::int64_t& size : shape) size = std::int64_t(random() % 5);
    // The output: a permuted, padded array, some axes backwards.
    std::vector<std::size_t> order(rank);
    for (std::size_t k = 0; k < rank; ++k) order[k] = k;
    std::shuffle(order.begin(), order.end(), random);
    Dims out(rank);
    std::int64_t step = 1;
    for (const std::size_t k : order) {
      out[k] = random() % 4 == 0 ? -step : step;
      step *= std::max<std::int64_t>(shape[k], 1) + std::int64_t(random() % 2);
    }
    Dims in(rank);
    for (std::int64_t& stride : in) stride = std::int64_t(random() % 7) - 2;
    const std::vector<Operand> operands = {operand(DType::f32, in), operand(DType::f32, out, true)};
    const Layout layout = plan_layout(shape, operands, Backend::amd);
    EXPECT_EQ(walk(layout, 0, 1), expected_pairs(shape, in, out)) << to_string(shape);
  }
}

TEST(Divisor, IsExactUpTo31Bits) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto divide = [](std::uint32_t n, const Divisor& by) {
    return (static_cast<std::uint32_t>(std::uint64_t{n} * by.multiplier >> 32) + n) >> by.shift;
  };
  constexpr std::uint32_t kMost = 0x7fffffff;
  for (int i = 0; i < 200'000; ++i) {
    const auto d = static_cast<std::uint32_t>((random() & kMost) >> random() % 31) + 1;
    const Divisor divisor = make_divisor(d);
    const auto n = static_cast<std::uint32_t>(random() & kMost);
    const std::uint32_t multiple = n / d * d;
    for (const std::uint32_t value : {n, multiple, multiple == 0 ? 0 : multiple - 1, kMost, 0u}) {
      ASSERT_EQ(divide(value, divisor), value / d) << value << " / " << d;
    }
  }
}

// Rows of a GPU whose vectors would not be aligned: long ones are shared by threads that lie side
// by side, short ones are no rows at all.
TEST(Layout, UnalignedRowsAreStoredByNeighbouringThreads) {
  const auto schedule = [](DType dtype, std::int64_t length, std::int64_t in, std::int64_t out) {
    const std::vector<Operand> operands = {operand(dtype, {in, 1}), operand(dtype, {out, 1}, true)};
    return plan_layout({1000, length}, operands, Backend::nvidia).schedule;
  };
  EXPECT_FALSE(schedule(DType::bf16, 64, 72, 64).flat) << "aligned";
  EXPECT_FALSE(schedule(DType::bf16, 64, 65, 64).flat) << "only loads are not";
  const Schedule longer = schedule(DType::bf16, 9001, 9001, 9003);
  EXPECT_EQ(longer.width, 1);
  EXPECT_EQ(longer.vectors, 8);
  EXPECT_EQ(longer.threads, 32);
  EXPECT_FALSE(longer.flat);
  const Schedule brief = schedule(DType::bf16, 50, 50, 54);
  EXPECT_EQ(brief.width, 2) << "pairs are aligned, and none is in two rows";
  EXPECT_EQ(brief.vectors, 4);
  EXPECT_TRUE(brief.flat);
  EXPECT_FALSE(brief.operands[0].addressed) << "one run over all axes";
  EXPECT_TRUE(brief.operands[1].addressed);
  const Schedule run = schedule(DType::bf16, 77, 80, 77);
  EXPECT_TRUE(run.flat);
  EXPECT_EQ(run.width, 8) << "results are one run";
  EXPECT_EQ(run.vectors, 1);
  EXPECT_EQ(run.operands[1].alignment, 16);
  EXPECT_GT(schedule(DType::f32, 77, 80, 77).vectors, 1) << "four bytes fill cache lines as it is";
}

TEST(Layout, TilesAreAsWideAsThereAreChannels) {
  const auto tile = [](DType dtype, std::int64_t pixels, std::int64_t channels) {
    const std::vector<Operand> operands = {operand(dtype, {pixels * channels, 1, pixels}),
                                           operand(dtype, {pixels * channels, channels, 1}, true)};
    const Schedule schedule =
        plan_layout({100, pixels, channels}, operands, Backend::nvidia).schedule;
    return std::pair(schedule.tile_rows, schedule.tile);
  };
  EXPECT_EQ(tile(DType::f32, 4096, 1024), std::pair(64, 64));
  EXPECT_EQ(tile(DType::bf16, 4096, 32), std::pair(256, 32));
  EXPECT_EQ(tile(DType::bf16, 64, 96), std::pair(64, 128));
  EXPECT_EQ(tile(DType::f64, 4096, 64), std::pair(32, 64));
}

TEST(Layout, TilesOfWholeRowsStoreRuns) {
  const auto schedule = [](DType dtype, std::int64_t pixels, std::int64_t step) {
    const std::vector<Operand> operands = {operand(dtype, {pixels * 64, 1, 64}),
                                           operand(dtype, {0, 1, 0}),
                                           operand(dtype, {step * 64, step, 1}, true)};
    return plan_layout({100, 64, pixels}, operands, Backend::nvidia).schedule;
  };
  const Schedule odd = schedule(DType::bf16, 49, 49);
  EXPECT_TRUE(odd.flat);
  EXPECT_EQ(odd.width, 8);
  EXPECT_EQ(odd.operands[2].alignment, 16);
  EXPECT_TRUE(odd.operands[1].addressed) << "one element for each row";
  EXPECT_FALSE(schedule(DType::bf16, 48, 48).flat) << "rows are aligned";
  EXPECT_FALSE(schedule(DType::bf16, 49, 51).flat) << "no run";
  EXPECT_EQ(schedule(DType::bf16, 49, 51).width, 1);
  EXPECT_FALSE(schedule(DType::bf16, 1001, 1001).flat) << "no tile is as wide";
}

// With a bias, so that rows stay rows.
TEST(Layout, TheHostKnowsHowLongShortRowsAre) {
  const auto width = [](std::int64_t length, Backend backend) {
    const std::vector<Operand> operands = {operand(DType::f32, {length, 1}),
                                           operand(DType::f32, {0, 1}),
                                           operand(DType::f32, {length, 1}, true)};
    return plan_layout({100, length}, operands, backend).schedule.width;
  };
  EXPECT_EQ(width(16, Backend::host), 16);
  EXPECT_EQ(width(33, Backend::host), 64);
  EXPECT_EQ(width(63, Backend::host), 64);
  EXPECT_EQ(width(129, Backend::host), 1024) << "one kernel for all that are longer";
  EXPECT_EQ(width(64, Backend::nvidia), 4);
  const std::vector<Operand> vector = {operand(DType::f32, {1}), operand(DType::f32, {1}, true)};
  EXPECT_EQ(plan_layout({63}, vector, Backend::host).schedule.width, 1024);
}

// Of heads that are taken apart, one after the other is read, and all are written side by side.
TEST(Layout, TheHostReadsWholeLinesOfAnInput) {
  const auto shape = [](std::int64_t heads, std::int64_t length) {
    constexpr std::int64_t kTokens = 1000;
    const std::vector<Operand> operands = {
        operand(DType::bf16, {length, 2 * heads * length, 1}),
        operand(DType::bf16, {kTokens * length, length, 1}, true)};
    return plan_layout({heads, kTokens, length}, operands, Backend::host).shape;
  };
  EXPECT_EQ(shape(4, 16), Dims({1000, 4, 16}));
  EXPECT_EQ(shape(64, 16), Dims({64, 1000, 16})) << "too many at once";
  EXPECT_EQ(shape(4, 32), Dims({4, 1000, 32})) << "rows are lines";
}

// Channels from first to last, of images or parts of them.
TEST(Layout, TheHostTakesShortAxesAsOneRow) {
  const auto plan = [](std::int64_t pixels, std::int64_t channels, std::int64_t gap = 0) {
    const std::int64_t stored = channels + gap;
    const std::vector<Operand> operands = {
        operand(DType::bf16, {channels * pixels, 1, pixels}), operand(DType::bf16, {0, 0, 1}),
        operand(DType::bf16, {0, 0, 0}), operand(DType::bf16, {pixels * stored, stored, 1}, true)};
    return plan_layout({1000, pixels, channels}, operands, Backend::host);
  };
  const Layout images = plan(1024, 3);
  EXPECT_EQ(images.schedule.row_axes, 2);
  EXPECT_EQ(images.row_part, 160) << "up to 512 elements, whole vectors";
  EXPECT_EQ(images.row_items(), 7);
  EXPECT_EQ(images.work_items, 7000u);
  EXPECT_EQ(images.schedule.operands[0].access, Access::offsets);
  EXPECT_EQ(images.schedule.operands[1].access, Access::offsets);
  EXPECT_EQ(images.schedule.operands[2].access, Access::scalar);
  EXPECT_EQ(images.schedule.operands[3].access, Access::contiguous);
  EXPECT_EQ(plan(49, 8).row_part, 49) << "an image";
  EXPECT_EQ(plan(20, 12).schedule.row_axes, 3);
  EXPECT_EQ(plan(20, 12).row_part, 2) << "images";
  EXPECT_EQ(plan(1024, 31).schedule.row_axes, 2);
  EXPECT_EQ(plan(1024, 16).schedule.row_axes, 1) << "rows are whole vectors";
  EXPECT_EQ(plan(1024, 33).schedule.row_axes, 1) << "they are long enough";
  EXPECT_EQ(plan(1024, 3, 1).schedule.row_axes, 2);
  EXPECT_EQ(plan(1024, 3, 1).schedule.operands[3].access, Access::offsets) << "no range";
  const std::vector<Operand> far = {operand(DType::bf16, {1, 1 << 22}),
                                    operand(DType::bf16, {3, 1}, true)};
  EXPECT_FALSE(plan_layout({1 << 22, 3}, far, Backend::host).schedule.wide_index);
}

TEST(Layout, TheHostPrefetchesRowsThatDoNotFollowEachOther) {
  const auto rows_ahead = [](Dims strides, std::int64_t length = 16) {
    const std::vector<Operand> operands = {operand(DType::f32, std::move(strides)),
                                           operand(DType::f32, {4 * length, length, 1}, true)};
    const Schedule schedule = plan_layout({1000, 4, length}, operands, Backend::host).schedule;
    EXPECT_FALSE(schedule.operands[1].prefetched) << "results are one range";
    EXPECT_EQ(schedule.operands[0].prefetched, schedule.rows_ahead != 0);
    return schedule.rows_ahead;
  };
  EXPECT_EQ(rows_ahead({128, 16, 1}), 8) << "half of each 128";
  EXPECT_EQ(rows_ahead({-128, 16, 1}), 8);
  EXPECT_EQ(rows_ahead({16, 16000, 1}), 16) << "one row here, one there";
  EXPECT_EQ(rows_ahead({512, 65536000, 1}, 512), 1) << "of 2048 bytes";
  EXPECT_EQ(rows_ahead({4096, 4096000, 1}, 4096), 0) << "such rows are expected";
  EXPECT_EQ(rows_ahead({64, 16, 1}), 0) << "one range";
  EXPECT_EQ(rows_ahead({0, 16, 1}), 0) << "the same again and again";
}

TEST(Broadcast, FollowsNumPy) {
  EXPECT_EQ(broadcast({3, 1}, {4}), Dims({3, 4}));
  EXPECT_EQ(broadcast({}, {2, 2}), Dims({2, 2}));
  EXPECT_EQ(broadcast({0, 1}, {1, 5}), Dims({0, 5}));
  EXPECT_FALSE(broadcast({3}, {4}));
  EXPECT_EQ(broadcast_strides({3, 1}, {7, 1}, {2, 3, 4}), Dims({0, 7, 0}));
}

}  // namespace
}  // namespace kiln::fusion
