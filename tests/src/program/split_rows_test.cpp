// Few long rows and few columns of many rows, whose reductions are two kernels each, on every
// device that is there: against the reference interpreter, bit by bit from run to run, and within
// the bound that preamble/reduce.h or the tree of sums states.
#include <gtest/gtest.h>

#include "fusion/passes/split_reductions.hpp"
#include "fusion/reference/tree.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

class SplitRows : public testing::ProgramsOnDevices {};

INSTANTIATE_TEST_SUITE_P(Devices, SplitRows,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

constexpr const char* kAll =
    "sum(x, -1), mean(x, -1), max(x, -1), min(x, -1), argmax(x, -1), argmin(x, -1), "
    "any(x > 8, -1), all(x < 6, -1), count_nonzero(x, -1)";

TEST_P(SplitRows, OfEveryDtype) {
  testing::Share share(GetParam(), 5);
  for (const DType dtype : {DType::u8, DType::i64, DType::f16, DType::f32}) {
    if (!share.next()) continue;
    check(kAll, {testing::random_array(dtype, {1, 131101}, 1)}, 1e-5);
  }
  check(kAll, {testing::random_array(DType::f64, {1, 131072}, 2)}, 1e-12);
  check("argmax(x, -1), argmin(x, -1), sum(x, -1)",
        {testing::random_array(DType::boolean, {1, 140000}, 3)}, 0);
}

TEST_P(SplitRows, OfColumnsAndSeveralAxes) {
  check("sum(x, 0), argmax(x, 0), mean(x, 0)", {testing::random_array(DType::bf16, {9001, 20}, 4)},
        1e-4);
  check("sum(x, 0)", {testing::random_array(DType::f32, {30000, 3}, 5)}, 1e-4);
  const HostArray x = testing::random_array(DType::f32, {300, 3, 300}, 6);
  check("sum(x), argmin(x), max(x, 0, 2), argmax(x, 0, 2)", {x}, 1e-4);
  const HostArray few = testing::random_array(DType::f32, {3, 2, 70001}, 10);
  check("sum(few), argmin(few), max(few, 0, 2), argmax(few, 0, 2), mean(few)", {few}, 1e-4);
  const HostArray columns = testing::random_array(DType::f32, {3, 30000, 3}, 11);
  check("sum(columns, 0, 1), argmax(columns, 0, 1)", {columns}, 1e-4);
}

// A set of axes counts 32 from the front.
TEST_P(SplitRows, OfArraysOfManyAxes) {
  testing::Share share(GetParam(), 2, testing::random_seed());
  for (const std::size_t before : {31, 32, 40, 70}) {
    if (!share.next()) continue;
    Dims shape(before + 3, 1);
    shape[before] = 140'001;
    const HostArray x = testing::random_array(DType::f32, shape, 12);
    check("sum(x, -3), mean(x, -3), argmax(x, -3), max(x)", {x}, 1e-4);
  }
}

TEST_P(SplitRows, WithWhatComesBeforeAndAfter) {
  const HostArray x = testing::random_array(DType::f32, {2, 140000}, 7);
  const HostArray w = testing::random_array(DType::bf16, {140000}, 8);
  check("softmax(x, -1), logsumexp(x, -1)", {x}, 1e-5);
  check("layer_norm(x, w, 1e-5)", {x, w}, 1e-5);
  check("h = x + w; h, h * rsqrt(mean(h * h, -1) + 1e-5)", {x, w}, 1e-5, true);
  check("var(x, -1), std(x, -1), norm2(x, -1)", {x}, 1e-5);
}

TEST_P(SplitRows, WhereTheIndexIsInOneOfTheSplits) {
  HostArray x = HostArray::contiguous(DType::f32, {4, 1 << 17});
  const auto set = [&](std::int64_t row, std::int64_t column, double value) {
    testing::set_bits(x, row * (1 << 17) + column, fusion::encode(value, DType::f32));
  };
  for (std::int64_t column = 0; column < 1 << 17; ++column) set(3, column, -INFINITY);
  set(0, 100000, 1);
  set(0, 120000, 1);
  set(1, 70000, std::nan(""));
  set(1, 90000, std::nan(""));
  set(1, 5, 8);
  set(2, 0, -0.0);
  check("argmax(x, -1), argmin(x, -1), max(x, -1), min(x, -1)", {x}, 0);
}

TEST_P(SplitRows, GiveTheSameBitsOnEveryRun) {
  const std::string text = "sum(x, -1), mean(x * x, -1), sum(exp(x), -1)";
  const std::vector<HostArray> x = {testing::random_array(DType::f32, {4, 140000}, 9)};
  const Program program = parse_program("bits", text);
  const std::vector<HostArray> first = run(program, text, x, false);
  for (int again = 0; again < 3; ++again) {
    const std::vector<HostArray> got = run(program, text, x, again == 2);
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(got[i].bytes, first[i].bytes);
  }
}

// Reductions over one space share its kernels; each has the bits that it has alone.
TEST_P(SplitRows, GiveTheSameBitsBesideOthers) {
  struct Case {
    const char* axes;
    HostArray x;
  };
  const Case cases[] = {{", 0", testing::random_array(DType::f32, {30000, 8}, 13)},
                        {", -1", testing::random_array(DType::bf16, {3, 140001}, 14)},
                        {"", testing::random_array(DType::f32, {400, 401}, 15)}};
  constexpr const char* kReductions[] = {"mean(x{})", "max(x{})",       "std(x{})",
                                         "sum(h{})",  "logsumexp(h{})", "argmin(h{})"};
  testing::Share share(GetParam(), 3);
  for (const Case& own : cases) {
    if (!share.next()) continue;
    const auto text_of = [&](const char* reduction) {
      return fmt::format(fmt::runtime(reduction), own.axes);
    };
    std::string all = "h = x * 0.5 + 1.0; ";
    for (const char* reduction : kReductions) {
      all += (reduction == kReductions[0] ? "" : ", ") + text_of(reduction);
    }
    const std::vector<HostArray> together = run(parse_program("beside", all), all, {own.x}, false);
    for (std::size_t i = 0; i < std::size(kReductions); ++i) {
      const std::string text = "h = x * 0.5 + 1.0; " + text_of(kReductions[i]);
      const std::vector<HostArray> alone = run(parse_program("beside", text), text, {own.x}, false);
      EXPECT_EQ(together[i].bytes, alone[0].bytes) << text;
    }
    check(all, {own.x}, 1e-4);
  }
}

// Numbers that all round the same way, in 128 splits of 2^15.
TEST_P(SplitRows, ErrorsOfLongSumsStayBounded) {
  constexpr std::int64_t kLength = 1 << 22;
  HostArray x = HostArray::contiguous(DType::f32, {1, kLength});
  for (std::int64_t i = 0; i < kLength; ++i)
    testing::set_bits(x, i, fusion::encode(0.1, DType::f32));
  const double exact = kLength * static_cast<double>(0.1f);
  std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {1, 1})};
  jit::Backend& backend = jit::backend(device());
  const Stream stream{device(), nullptr};
  const testing::DeviceBuffer from(backend, x.bytes);
  const testing::DeviceBuffer to(backend, got[0].bytes);
  const View in(from.data(), DType::f32, x.shape, device());
  const View out(to.data(), DType::f32, {1, 1}, device());
  const Program program = parse_program("long", "sum(x, -1)");
  const std::size_t bytes =
      program.workspace_bytes(stream, std::vector<Argument>{in}, std::vector{out});
  EXPECT_GE(bytes, 128u * 4) << "split";
  const testing::DeviceBuffer memory(backend, std::vector<std::byte>(bytes));
  const View workspace(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device());
  program.run(stream, {in}, {out}, workspace);
  got[0].bytes = to.read();
  EXPECT_NEAR(testing::number_at(got[0], 0), exact,
              exact * fusion::reference::tree_depth(kLength) * std::ldexp(1.0, -24));
}

TEST(SplitModel, CutsWhatLeavesADeviceIdle) {
  using fusion::splits_of;
  EXPECT_EQ(splits_of({1, 1 << 28}, {1, 1}, false), 512);
  EXPECT_EQ(splits_of({80, 1 << 20}, {1, 1}, false), 512)
      << "along the longer axis, as a power of two";
  EXPECT_EQ(splits_of({8, 1 << 20, 80}, {8, 1, 1}, false), 512);
  EXPECT_EQ(splits_of({65536, 4096}, {1, 4096}, false), 64);
  EXPECT_EQ(splits_of({4096, 4096}, {4096, 1}, false), 1) << "many rows";
  EXPECT_EQ(splits_of({1, 40000}, {1, 1}, false), 1) << "a short row";
  EXPECT_EQ(splits_of({100, 1 << 20}, {100, 1}, false), 32);
  EXPECT_EQ(splits_of({100, 1 << 20}, {100, 1}, true), 1) << "its block reads it again";
  EXPECT_EQ(splits_of({0, 1 << 20}, {0, 1}, false), 1);
}

}  // namespace
}  // namespace kiln
