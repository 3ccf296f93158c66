// Rows against the tree by which they are to be added up (fusion/reference/tree.hpp), bit by bit:
// whatever their number, where they lie in memory, and what is computed beside them. All NaN count
// as one. What does not follow the tree, fusion/numerics.md names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <type_traits>
#include <utility>

#include "fusion/reference/tree.hpp"
#include "kiln/reduction.hpp"
#include "tests/src/numerics/forced_schedule.hpp"
#include "tests/src/numerics/placed_rows.hpp"
#include "tests/src/program/indexed_run.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using fusion::reference::reduce_in_tree;
using testing::HostArray;
using testing::RowPlace;

template <class T>
using Row = std::vector<T>;

template <class T>
T sum(const Row<T>& row) {
  return reduce_in_tree(row, T(0), std::plus<>());
}
template <class T>
T product(const Row<T>& row) {
  return reduce_in_tree(row, T(1), std::multiplies<>());
}
template <class T>
T mean(const Row<T>& row) {
  return sum(row) / static_cast<T>(row.size());
}
template <class T, class Function>
Row<T> each(const Row<T>& row, const Function& function) {
  Row<T> result;
  for (const T x : row) result.push_back(function(x));
  return result;
}

/// A function of rows whose operations are exactly rounded: `text` of y, and what it gives for one
/// row, as many numbers as it has or one.
enum class Case { sum, two_reductions, variance, normalised };
constexpr Case kCases[] = {Case::sum, Case::two_reductions, Case::variance, Case::normalised};

std::string text_of(Case which, DType computed) {
  const std::string y = fmt::format("y = {}(x); ", name(computed));
  switch (which) {
    case Case::sum: return y + "sum(y, -1)";
    case Case::two_reductions: return y + "sum(y * y, -1), prod(1 + y * 0.03125, -1), max(y, -1)";
    case Case::variance: return y + "d = y - mean(y, -1); mean(y, -1), mean(d * d, -1)";
    default: return y + "y / sqrt(mean(y * y, -1) + 0.5)";
  }
}

template <class T>
std::vector<Row<T>> expected(Case which, const Row<T>& y) {
  const auto square = [](T a) { return a * a; };
  switch (which) {
    case Case::sum: return {{sum(y)}};
    case Case::two_reductions: {
      T largest = -std::numeric_limits<T>::infinity();
      for (const T x : y) largest = std::isnan(x) || x > largest ? x : largest;
      return {{sum(each(y, square))},
              {product(each(y, [](T a) { return 1 + a * T(0.03125); }))},
              {largest}};
    }
    case Case::variance: {
      const T centre = mean(y);
      return {{centre}, {mean(each(each(y, [&](T a) { return a - centre; }), square))}};
    }
    default: {
      const T scale = std::sqrt(mean(each(y, square)) + T(0.5));
      return {each(y, [&](T a) { return a / scale; })};
    }
  }
}

class RowBits : public testing::ProgramsOnDevices {
 protected:
  std::vector<HostArray> outputs_of(Case which, DType computed, const Dims& shape) const {
    const std::size_t count = which == Case::two_reductions ? 3 : which == Case::variance ? 2 : 1;
    std::vector<HostArray> outputs;
    for (std::size_t i = 0; i < count; ++i) {
      const bool whole = which == Case::normalised;
      outputs.push_back(HostArray::contiguous(computed, {shape[0], whole ? shape[1] : 1}));
    }
    return outputs;
  }

  template <class T>
  static void compare(Case which, const HostArray& rows, const std::vector<HostArray>& got,
                      const std::string& what) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const std::int64_t length = rows.shape[1];
    for (std::int64_t row = 0; row < rows.shape[0]; ++row) {
      Row<T> y;
      for (std::int64_t i = 0; i < length; ++i) {
        y.push_back(static_cast<T>(testing::number_at(rows, row * length + i)));
      }
      const std::vector<Row<T>> want = expected(which, y);
      for (std::size_t k = 0; k < want.size(); ++k) {
        const auto count = static_cast<std::int64_t>(want[k].size());
        for (std::int64_t i = 0; i < count; ++i) {
          const auto bits = static_cast<Bits>(get_bits(got[k], row * count + i));
          const T value = std::bit_cast<T>(bits);
          const T wanted = want[k][static_cast<std::size_t>(i)];
          const bool same = std::isnan(value) && std::isnan(wanted);
          ASSERT_TRUE(same || bits == std::bit_cast<Bits>(wanted))
              << what << ": output " << k << " of row " << row << ", element " << i << " is "
              << value << ", expected " << wanted;
        }
      }
    }
  }

  void check(Case which, const HostArray& rows, const RowPlace& place, bool as_program,
             const fusion::ForcedRows& forced = {}) {
    const bool wide = rows.dtype == DType::f64;
    const DType computed = wide ? DType::f64 : DType::f32;
    const std::string text = text_of(which, computed);
    const Function function = testing::with_schedule(parse("rows", text), forced);
    std::vector<HostArray> outputs = outputs_of(which, computed, rows.shape);
    if (as_program) {
      outputs = run(program(function), {rows}, std::move(outputs), false);
    } else {
      run_on(device(), function, {placed(rows, place)}, outputs);
    }
    const std::string what = fmt::format(
        "{} of {}[{}, {}]{}, step {}, gap {}, lead {}{}{}", text, name(rows.dtype), rows.shape[0],
        rows.shape[1], place.transposed ? ", transposed" : "", place.step, place.gap, place.lead,
        as_program ? ", a Program" : "", testing::describe(forced));
    if (wide) {
      compare<double>(which, rows, outputs, what);
    } else {
      compare<float>(which, rows, outputs, what);
    }
  }

  /// The largest value, mean and variance of the sum of two operands.
  template <class T>
  void check_two_operands(std::int64_t length, const fusion::ForcedRows& forced = {}) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const DType dtype = sizeof(T) == 4 ? DType::f32 : DType::f64;
    const Function function = testing::with_schedule(
        parse("two", "h = x + z; d = h - mean(h, -1); max(h, -1), mean(h, -1), mean(d * d, -1)"),
        forced);
    const HostArray x = testing::random_array(dtype, {3, length}, 1);
    const HostArray z = testing::random_array(dtype, {3, length}, 2);
    std::vector<HostArray> got(3, HostArray::contiguous(dtype, {3, 1}));
    run_on(device(), function, {x, z}, got);
    for (std::int64_t row = 0; row < 3; ++row) {
      Row<T> h;
      for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
        h.push_back(static_cast<T>(testing::number_at(x, i)) +
                    static_cast<T>(testing::number_at(z, i)));
      }
      const std::vector<Row<T>> want = expected(Case::variance, h);
      const T results[] = {*std::ranges::max_element(h), want[0][0], want[1][0]};
      for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(get_bits(got[k], row), std::bit_cast<Bits>(results[k]))
            << "output " << k << " of row " << row << " of " << length << " " << name(dtype)
            << testing::describe(forced);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, RowBits,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(RowBits, FollowFromTheLengthAround) {
  std::vector<std::int64_t> lengths = {0, 1, 2, 3, 7, 8, 9, 100};
  for (std::int64_t n = 256; n <= 262'144; n *= 2) {
    for (const std::int64_t length : {n - 1, n, n + 1}) lengths.push_back(length);
  }
  testing::Share share(GetParam(), 10, testing::random_seed());
  for (const std::int64_t length : lengths) {
    if (!share.next()) continue;
    const auto seed = static_cast<std::uint64_t>(length);
    const HostArray rows = testing::random_array(DType::bf16, {2, length}, seed);
    check(Case::sum, rows, {}, false);
    check(Case::variance, rows, {}, true);
  }
}

TEST_P(RowBits, DoNotShowWhereRowsLieOrHowMany) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  const std::uint64_t draws = testing::draws_of(GetParam(), 12, 4);
  for (std::uint64_t i = 0; i < draws && !HasFatalFailure(); ++i) {
    const Case which = kCases[draw(std::ssize(kCases))];
    const DType dtype = kTypes[draw(std::ssize(kTypes))];
    const std::int64_t near = std::int64_t{1} << (2 + draw(16));
    const std::int64_t length = std::max<std::int64_t>(1, near - 4 + draw(draw(2) == 0 ? 9 : near));
    const std::int64_t rows = length > 20'000 ? 1 + draw(2) : 1 + draw(20);
    const HostArray array = testing::random_array(dtype, {rows, length}, random());
    constexpr std::int64_t kSteps[] = {1, 1, 1, -1, 2};
    const RowPlace place{kSteps[draw(std::ssize(kSteps))], draw(2) * draw(9), draw(2) * draw(9),
                         draw(3) == 0};
    check(which, array, place, false);
    if (draw(2) == 0) check(which, array, {}, true);
  }
}

// Threads, the width of vectors, and whether a row is kept on chip.
TEST_P(RowBits, DoNotShowTheSchedule) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  testing::Share share(GetParam(), 28, seed);
  for (const std::int64_t length : {100, 1000, 4097, 16'384, 70'001}) {
    for (const int threads : {1, 4, 16, 32, 64, 256, 512}) {
      for (const bool read_again : {false, true}) {
        const Case which = kCases[draw(std::ssize(kCases))];
        const fusion::ForcedRows forced{threads, draw(2) == 0 ? 0 : 1 << draw(4), read_again};
        const RowPlace place{.lead = draw(2) * draw(9)};
        const HostArray rows =
            testing::random_array(kTypes[draw(std::ssize(kTypes))], {3, length}, random());
        const bool as_program = draw(4) == 0;
        if (share.next()) check(which, rows, place, as_program, forced);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Short rows that are no whole vectors, of which GPUs move several at a time through shared memory.
TEST_P(RowBits, OfShortRowsThatAreNoWholeVectors) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f8e5m2, DType::f16, DType::bf16, DType::f32, DType::f64};
  testing::Share share(GetParam(), 24, seed);
  for (const std::int64_t length : {1, 2, 3, 7, 12, 33, 49, 63, 100, 129, 196, 257, 385, 511}) {
    for (const int threads : {0, 1, 16}) {
      const Case which = kCases[draw(std::ssize(kCases))];
      const HostArray rows = testing::random_array(kTypes[draw(std::ssize(kTypes))],
                                                   {1 + draw(150), length}, random());
      const RowPlace place{.lead = draw(9)};
      if (!share.next()) continue;
      check(which, rows, place, false, {.threads = threads});
      if (HasFatalFailure()) return;
    }
  }
}

// The same beside weights and with results of several types, as where each pass reads the rows.
TEST_P(RowBits, OfShortRowsThatAreNoWholeVectorsBesideOthers) {
  if (GetParam() == DeviceType::cpu) GTEST_SKIP() << "a CPU loads vectors from any address";
  const Function function = parse("beside",
                                  "h = x + z; y = (h - mean(h, -1)) * w + b; "
                                  "y, max(y, -1), i8(clip(round(y * 8), -127, 127)), "
                                  "argmax(h, -1)");
  testing::Share share(GetParam(), 6, testing::random_seed());
  for (const std::int64_t length : {5, 27, 49, 98, 196, 259, 347}) {
    if (!share.next()) continue;
    const Dims shape{75, length};
    const std::vector<HostArray> inputs = {testing::random_array(DType::bf16, shape, 1),
                                           testing::random_array(DType::f32, shape, 2),
                                           testing::random_array(DType::f16, {length}, 3),
                                           testing::random_array(DType::f32, {length}, 4)};
    std::vector<HostArray> got = {
        HostArray::contiguous(DType::f32, shape), HostArray::contiguous(DType::f32, {75, 1}),
        HostArray::contiguous(DType::i8, shape), HostArray::contiguous(DType::i64, {75, 1})};
    std::vector<HostArray> want = got;
    run_on(device(), function, inputs, got);
    run_on(device(), testing::with_schedule(function, {.read_again = true}), inputs, want);
    for (std::size_t k = 0; k < got.size(); ++k) {
      EXPECT_EQ(got[k].bytes, want[k].bytes) << "result " << k << " of rows of " << length;
    }
  }
}

// How many parts a Program cuts a row in: fewer than it has chunks too, or none.
TEST_P(RowBits, DoNotShowParts) {
  constexpr DType kTypes[] = {DType::bf16, DType::f32};
  testing::Share share(GetParam(), 6, testing::random_seed());
  std::uint64_t next = 0;
  for (const std::int64_t length : {70'001, 163'841, 360'449}) {
    for (const int parts : {1, 2, 4, 8, 16}) {
      ++next;
      // Emulated, others take long.
      if (GetParam() == DeviceType::hip && (parts != 2 || length > 200'000)) continue;
      if (!share.next()) continue;
      const HostArray rows = testing::random_array(kTypes[next % 2], {2, length}, next);
      check(next % 3 == 0 ? Case::two_reductions : Case::sum, rows, {}, true, {.parts = parts});
      if (HasFatalFailure()) return;
    }
  }
}

// How many blocks share a row, of which some may have nothing.
TEST_P(RowBits, DoNotShowClusters) {
  if (GetParam() != DeviceType::cuda) GTEST_SKIP() << "blocks of other devices form no clusters";
  for (const std::int64_t length : {32'769, 50'257, 65'536, 100'003, 131'072}) {
    for (const int blocks : {2, 3, 4, 5, 8}) {
      const DType dtype = blocks % 2 == 0 ? DType::bf16 : DType::f64;
      const HostArray rows = testing::random_array(dtype, {3, length}, 7);
      for (const Case which : {Case::variance, Case::normalised}) {
        check(which, rows, {}, false, {.cluster_blocks = blocks});
        check(which, rows, {.gap = 3, .lead = 1}, false, {.cluster_blocks = blocks});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows of two operands for which threads have no room: blocks of an NVIDIA GPU share chunks, whose
// elements are copied to shared memory.
TEST_P(RowBits, OfTwoLongOperands) {
  testing::Share share(GetParam(), 8, testing::random_seed());
  for (const std::int64_t length :
       {32'800, 53'001, 60'002, 65'533, 65'536, 95'000, 131'072, 163'837}) {
    if (!share.next()) continue;
    check_two_operands<float>(length);
    check_two_operands<double>(length);
    if (HasFatalFailure()) return;
  }
}

// Of rows that one block keeps in shared memory or in registers, or reads again.
TEST_P(RowBits, OfTwoOperandsInF64) {
  testing::Share share(GetParam(), 6, testing::random_seed());
  for (const std::int64_t length : {100, 1'001, 4'096, 8'192, 16'384, 30'001}) {
    if (!share.next()) continue;
    check_two_operands<double>(length);
    check_two_operands<double>(length, {.read_again = true});
    if (HasFatalFailure()) return;
  }
}

// A value of two operands that three passes need: GPUs with rows in shared memory leave it there.
TEST_P(RowBits, OfValuesInThePlacesOfOperands) {
  const Function function = parse(
      "values", "h = (f32(x) * 0.5 + 1) * f32(z); d = h - mean(h, -1); h / sqrt(mean(d * d, -1))");
  for (const std::int64_t length : {700, 9'000, 11'008, 16'383, 32'768, 40'003}) {
    const HostArray x = testing::random_array(DType::bf16, {2, length}, 1);
    const HostArray z = testing::random_array(DType::bf16, {2, length}, 2);
    std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {2, length})};
    run_on(device(), function, {x, z}, got);
    for (std::int64_t row = 0; row < 2; ++row) {
      Row<float> h;
      for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
        const auto factor = static_cast<float>(testing::number_at(z, i));
        h.push_back((static_cast<float>(testing::number_at(x, i)) * 0.5F + 1) * factor);
      }
      const float scale = std::sqrt(expected(Case::variance, h)[1][0]);
      for (std::int64_t i = 0; i < length; ++i) {
        ASSERT_EQ(get_bits(got[0], row * length + i),
                  std::bit_cast<std::uint32_t>(h[static_cast<std::size_t>(i)] / scale))
            << "row " << row << " of " << length << ", element " << i;
      }
    }
  }
}

// Of a short last chunk fewer threads have elements, and others those before its first vector.
TEST_P(RowBits, OfUnalignedRowsWhoseLastChunkIsShort) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  testing::Share share(GetParam(), 24, seed);
  for (const std::int64_t length : {32'773, 33'469, 35'769, 38'001, 70'539, 102'003}) {
    for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
      for (const bool read_again : {false, true}) {
        if (!share.next()) continue;
        const auto own = seed + static_cast<std::uint64_t>(length);
        const HostArray rows = testing::random_array(dtype, {5, length}, own);
        check(length % 2 == 0 ? Case::sum : Case::variance, rows, {}, false,
              {.read_again = read_again});
        check(Case::two_reductions, rows, {.lead = 3}, false, {.threads = 256});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(RowBits, OfRowsThatEndAsDataSays) {
  constexpr std::pair<std::int64_t, std::int64_t> kEnds[] = {{5'000, 3'767},   {40'000, 38'767},
                                                             {40'000, 300},    {70'001, 32'768},
                                                             {70'001, 32'769}, {70'001, 68'768}};
  for (const auto& [length, end] : kEnds) {
    const HostArray whole = testing::random_array(DType::bf16, {2, length}, 3);
    HostArray rows = HostArray::contiguous(DType::bf16, {2, end});
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      set_bits(rows, i, testing::get_bits(whole, i / end * length + i % end));
    }
    std::vector<HostArray> outputs = outputs_of(Case::sum, DType::f32, rows.shape);
    const HostArray count = testing::integers(DType::i64, {}, {end});
    run_on(device(), parse("rows", "y = f32(x); sum(y[:, :n], -1)"), {whole, count}, outputs);
    compare<float>(Case::sum, rows, outputs, fmt::format("{} of {} elements", end, length));
    if (HasFatalFailure()) return;
  }
}

TEST_P(RowBits, OfInfinitiesZerosAndNaN) {
  for (const std::int64_t length : {5, 300, 40'000}) {
    HostArray rows = testing::random_array(DType::f32, {4, length}, 5);
    for (std::int64_t i = 0; i < length; ++i) set_bits(rows, i, 0x80000000);  // -0 alone gives +0
    set_bits(rows, length + 1, testing::bits_of(INFINITY, DType::f32));
    set_bits(rows, 2 * length + 1, testing::bits_of(INFINITY, DType::f32));
    set_bits(rows, 2 * length + 3, testing::bits_of(-INFINITY, DType::f32));
    set_bits(rows, 3 * length + 4, testing::bits_of(NAN, DType::f32));
    check(Case::sum, rows, {}, false);
    check(Case::two_reductions, rows, {}, false);
  }
}

}  // namespace
}  // namespace kiln
