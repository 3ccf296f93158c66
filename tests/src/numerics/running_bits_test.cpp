// Running sums and products against the order in which they are to be computed
// (fusion/reference/running.hpp), bit by bit: along rows and columns, whatever their number, where
// they lie in memory, and what is computed beside them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <random>

#include "fusion/reference/running.hpp"
#include "kiln/reduction.hpp"
#include "tests/src/numerics/forced_schedule.hpp"
#include "tests/src/numerics/placed_rows.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using fusion::reference::run_in_blocks;
using testing::HostArray;
using testing::RowPlace;

class RunningBits : public testing::ProgramsOnDevices {
 protected:
  template <class T>
  void compare(const HostArray& rows, const HostArray& got, bool products,
               const std::string& what) const {
    const std::int64_t length = rows.shape[1];
    for (std::int64_t row = 0; row < rows.shape[0]; ++row) {
      std::vector<T> x;
      for (std::int64_t i = 0; i < length; ++i) {
        const T value = static_cast<T>(testing::number_at(rows, row * length + i));
        x.push_back(products ? T(1) + value * T(0.03125) : value);
      }
      const std::vector<T> want = products ? run_in_blocks(x, T(1), std::multiplies<>())
                                           : run_in_blocks(x, T(0), std::plus<>());
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t at = row * got.strides[0] + i * got.strides[1];
        const auto value = static_cast<T>(testing::number_at(got, at));
        ASSERT_EQ(value, want[static_cast<std::size_t>(i)])
            << what << ": element " << i << " of row " << row;
      }
    }
  }

  // `to`: where the results lie.
  void check(const HostArray& rows, const RowPlace& place, bool products, bool as_program,
             const fusion::ForcedRows& forced = {}, const RowPlace& to = {}) {
    const bool wide = rows.dtype == DType::f64;
    const DType computed = wide ? DType::f64 : DType::f32;
    const std::string y = fmt::format("y = {}(x); ", name(computed));
    const std::string text = y + (products ? "cumprod(1 + y * 0.03125, -1)" : "cumsum(y, -1)");
    const std::int64_t pitch = std::abs(to.step) * rows.shape[1] + to.gap;
    const Dims strides = to.transposed ? Dims{1, rows.shape[0]} : Dims{pitch, to.step};
    std::vector<HostArray> outputs = {HostArray::strided(computed, rows.shape, strides, to.lead)};
    const Function function = testing::with_schedule(parse("rows", text), forced);
    if (as_program) {
      outputs = run(program(function), {rows}, std::move(outputs), false);
    } else {
      run_on(device(), function, {placed(rows, place)}, outputs);
    }
    const std::string what = fmt::format(
        "{} of {}[{}, {}]{}, step {}, gap {}, lead {}, to step {}, gap {}, lead {}{}{}{}", text,
        name(rows.dtype), rows.shape[0], rows.shape[1], place.transposed ? ", transposed" : "",
        place.step, place.gap, place.lead, to.step, to.gap, to.lead,
        to.transposed ? ", columns" : "", as_program ? ", a Program" : "",
        testing::describe(forced));
    if (wide) {
      compare<double>(rows, outputs[0], products, what);
    } else {
      compare<float>(rows, outputs[0], products, what);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, RunningBits,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(RunningBits, FollowFromTheLengthAround) {
  testing::Share share(GetParam(), 8, testing::random_seed());
  for (const std::int64_t length :
       {0,    1,    2,    3,    4,    7,     8,     9,      12,     16,     30,  31,   32,
        33,   62,   63,   64,   65,   66,    100,   127,    128,    129,    250, 255,  256,
        257,  258,  260,  264,  300,  511,   512,   513,    514,    520,    768, 1000, 1023,
        1024, 1025, 2047, 2048, 2049, 4'097, 5'000, 20'001, 65'536, 262'144}) {
    if (!share.next()) continue;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      check(testing::random_array(dtype, {2, length}, static_cast<std::uint64_t>(length)), {},
            false, false);
    }
  }
}

TEST_P(RunningBits, DoNotShowWhereRowsLieOrHowMany) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  const std::uint64_t draws = testing::draws_of(GetParam(), 8, 4);
  for (std::uint64_t i = 0; i < draws && !HasFatalFailure(); ++i) {
    const DType dtype = kTypes[draw(std::ssize(kTypes))];
    const std::int64_t near = std::int64_t{1} << (2 + draw(13));
    const std::int64_t length = std::max<std::int64_t>(1, near - 4 + draw(draw(2) == 0 ? 9 : near));
    const HostArray rows = testing::random_array(dtype, {1 + draw(9), length}, random());
    constexpr std::int64_t kSteps[] = {1, 1, 1, -1, 2, -3};
    check(rows,
          {kSteps[draw(std::ssize(kSteps))], draw(2) * draw(9), draw(2) * draw(9), draw(4) == 0},
          draw(3) == 0, false, {}, {.transposed = draw(3) == 0});
    if (draw(2) == 0) check(rows, {}, false, true, {}, {.transposed = draw(2) == 0});
  }
}

// How many threads share a row, and the width of vectors.
TEST_P(RunningBits, DoNotShowTheSchedule) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  testing::Share share(GetParam(), 20, seed);
  std::uint64_t next = seed;
  for (const std::int64_t length : {9, 120, 256, 1'000, 4'104}) {
    for (const int threads : {1, 8, 32, 128, 256}) {
      for (const int width : {0, 1, 2, 4}) {
        const DType dtype = ++next % 2 == 0 ? DType::bf16 : DType::f32;
        if (!share.next()) continue;
        const HostArray rows = testing::random_array(dtype, {5, length}, next);
        check(rows, {}, next % 3 == 0, next % 4 == 0, {.threads = threads, .width = width});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows that are no whole vectors, or begin within one: GPUs move them through shared memory, short
// ones several at a time, wherever they begin and in whichever direction they run.
TEST_P(RunningBits, OfRowsThatAreNoWholeVectors) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f8e4m3, DType::f16, DType::bf16, DType::f32, DType::f64};
  testing::Share share(GetParam(), 14, seed);
  for (const std::int64_t length :
       {3, 7, 12, 33, 49, 100, 129, 196, 255, 257, 1'001, 2'052, 4'099}) {
    for (const bool backwards : {false, true}) {
      const DType dtype = kTypes[draw(std::ssize(kTypes))];
      const HostArray rows = testing::random_array(dtype, {1 + draw(70), length}, random());
      const RowPlace from{draw(3) == 0 ? -1 : 1, draw(4) == 0 ? draw(9) : 0, draw(9), false};
      const RowPlace to{backwards ? -1 : 1, draw(4) == 0 ? draw(9) : 0, draw(9), false};
      const bool products = draw(3) == 0;
      const fusion::ForcedRows forced{.threads = draw(3) == 0 ? 1 << draw(9) : 0,
                                      .width = draw(3) == 0 ? 1 << draw(4) : 0};
      if (!share.next()) continue;
      check(rows, from, products, false, forced, to);
      if (HasFatalFailure()) return;
    }
  }
}

// The same of several operands and results, of other types, with what is computed before and after:
// as where threads side by side take elements one by one.
TEST_P(RunningBits, OfRowsThatAreNoWholeVectorsBesideOthers) {
  if (GetParam() == DeviceType::cpu) GTEST_SKIP() << "a CPU loads vectors from any address";
  struct Mixed {
    const char* text;
    DType x;
    std::vector<DType> results;
  };
  const Mixed kMixed[] = {
      {"y = x * w; s = cumsum(y, -1); s, s - y, f8e4m3(cummax(y, -1))",
       DType::bf16,
       {DType::f32, DType::f32, DType::f8e4m3}},
      {"cumsum(x > 0, -1), r - cummax(x, -1)", DType::i8, {DType::i32, DType::f32}},
      {"cumprod(1 + r * 0.01 * cumsum(x, -1), -1), i8(x)", DType::f64, {DType::f64, DType::i8}},
      {"z = x - r; cummax(cumsum(z * z, -1), -1) * w, -z", DType::f32, {DType::f32, DType::f32}},
  };
  testing::Share share(GetParam(), 12, testing::random_seed());
  for (const Mixed& mixed : kMixed) {
    for (const std::int64_t length : {5, 49, 196, 3'003}) {
      if (!share.next()) continue;
      const Dims shape{37, length};
      const Function function = parse("mixed", mixed.text);
      std::vector<HostArray> inputs;
      for (const std::string& name : argument_names(function)) {
        const DType other = mixed.x == DType::f64 ? DType::f64 : DType::f32;
        inputs.push_back(name == "x"   ? testing::random_array(mixed.x, shape, 1)
                         : name == "w" ? testing::random_array(other, {length}, 2)
                                       : testing::random_array(other, {37, 1}, 3));
      }
      std::vector<HostArray> got;
      for (const DType dtype : mixed.results) got.push_back(HostArray::contiguous(dtype, shape));
      std::vector<HostArray> want = got;
      run_on(device(), function, inputs, got);
      run_on(device(), testing::with_schedule(function, {.width = 1}), inputs, want);
      for (std::size_t k = 0; k < got.size(); ++k) {
        EXPECT_EQ(got[k].bytes, want[k].bytes)
            << mixed.text << ": result " << k << " of rows of " << length;
      }
    }
  }
}

// How many columns a thread has side by side, and how many of their elements it loads at a time.
TEST_P(RunningBits, OfColumnsDoNotShowTheSchedule) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  testing::Share share(GetParam(), 40, seed);
  std::uint64_t next = seed;
  for (const std::int64_t length : {1, 3, 8, 100, 257, 1'000}) {
    for (const std::int64_t columns : {1, 5, 6, 40}) {
      for (const int width : {0, 1, 2, 4}) {
        for (const int batch : {0, 1, 2, 4, 16}) {
          const DType dtype = ++next % 2 == 0 ? DType::bf16 : DType::f32;
          if (!share.next()) continue;
          const HostArray rows = testing::random_array(dtype, {columns, length}, next);
          check(rows, {.transposed = next % 3 != 0}, next % 4 == 0, false,
                {.width = width, .batch = batch}, {.transposed = true});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Along an axis between others.
TEST_P(RunningBits, OfAMiddleAxisFollowFromItsLength) {
  for (const Dims& shape : {Dims{3, 1, 8}, Dims{1, 200, 37}, Dims{2, 257, 3}, Dims{2, 530, 40}}) {
    const HostArray x = testing::random_array(DType::f32, shape, 4);
    std::vector<HostArray> got = {HostArray::contiguous(DType::f32, shape)};
    run_on(device(), parse("middle", "cumsum(x, -2)"), {x}, got);
    for (std::int64_t column = 0; column < shape[0] * shape[2]; ++column) {
      const std::int64_t first = column / shape[2] * shape[1] * shape[2] + column % shape[2];
      std::vector<float> elements;
      for (std::int64_t i = 0; i < shape[1]; ++i) {
        elements.push_back(static_cast<float>(testing::number_at(x, first + i * shape[2])));
      }
      const std::vector<float> want = run_in_blocks(elements, 0.0F, std::plus<>());
      for (std::int64_t i = 0; i < shape[1]; ++i) {
        ASSERT_EQ(static_cast<float>(testing::number_at(got[0], first + i * shape[2])),
                  want[static_cast<std::size_t>(i)])
            << "element " << i << " of column " << column << " of " << shape[1];
      }
    }
  }
}

}  // namespace
}  // namespace kiln
