// Columns against the tree by which they are to be added up (fusion/reference/tree.hpp), bit by bit
// and on every device: whatever their number and length, where they lie in memory, how many axes
// are reduced, and whether threads keep them on chip. All NaN count as one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>

#include "fusion/reference/tree.hpp"
#include "kiln/reduction.hpp"
#include "tests/src/numerics/forced_schedule.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using fusion::reference::reduce_in_tree;
using testing::HostArray;

/// What is computed of columns: sums and a maximum in one pass; a variance, which takes two passes;
/// that of a value which the second pass has from the first; and columns divided by what they have
/// in common.
enum class Form { sums, variance, variance_of_value, normalised };

/// Columns of an array [batch, length, groups, joined] in which all but `batch` and `groups` are
/// reduced, with elements between those in memory.
struct Columns {
  std::int64_t batch = 1;
  std::int64_t length = 1;
  std::int64_t groups = 1;
  std::int64_t joined = 1;
  std::int64_t gap = 0;   ///< after each row of groups
  std::int64_t lead = 0;  ///< before the first element
  std::int64_t reduced() const { return length * joined; }
};

template <class T>
T sum(const std::vector<T>& column) {
  return reduce_in_tree(column, T(0), std::plus<>());
}
template <class T>
std::vector<T> squares(std::vector<T> column, T centre) {
  for (T& x : column) x = (x - centre) * (x - centre);
  return column;
}

class ColumnBits : public testing::ProgramsOnDevices {
 protected:
  static std::string text_of(Form form, DType computed) {
    const std::string y = fmt::format("y = {}(x); ", name(computed));
    switch (form) {
      case Form::sums: return y + "sum(y, 1, 3), max(y, 1, 3), prod(1 + y * 0.03125, 1, 3)";
      case Form::variance: return y + "d = y - mean(y, 1, 3); mean(d * d, 1, 3)";
      case Form::variance_of_value:
        return y + "h = (y * 0.5 + 1) * y; d = h - mean(h, 1, 3); mean(d * d, 1, 3)";
      default: return y + "y / sqrt(mean(y * y, 1, 3) + 0.5)";
    }
  }

  template <class T>
  static std::vector<std::vector<T>> expected(Form form, const std::vector<T>& y) {
    const auto count = static_cast<T>(y.size());
    switch (form) {
      case Form::sums: {
        std::vector<T> factors;
        T largest = -std::numeric_limits<T>::infinity();
        for (const T x : y) {
          factors.push_back(1 + x * T(0.03125));
          largest = std::isnan(x) || x > largest ? x : largest;
        }
        return {{sum(y)}, {largest}, {reduce_in_tree(factors, T(1), std::multiplies<>())}};
      }
      case Form::variance: return {{sum(squares(y, sum(y) / count)) / count}};
      case Form::variance_of_value: {
        std::vector<T> values;
        for (const T x : y) values.push_back((x * T(0.5) + 1) * x);
        return expected(Form::variance, values);
      }
      default: {
        const T scale = std::sqrt(sum(squares(y, T(0))) / count + T(0.5));
        std::vector<T> result;
        for (const T x : y) result.push_back(x / scale);
        return {result};
      }
    }
  }

  static HostArray placed(const HostArray& packed, const Columns& columns) {
    const std::int64_t row = columns.groups * columns.joined;
    const std::int64_t pitch = row + columns.gap;
    HostArray array =
        HostArray::strided(packed.dtype, packed.shape,
                           {columns.length * pitch, pitch, columns.joined, 1}, columns.lead);
    std::ranges::fill(array.bytes, std::byte{0xff});  // NaN between rows
    const auto width = static_cast<std::size_t>(bits(packed.dtype)) / 8;
    for (std::int64_t i = 0; i < columns.batch * columns.length; ++i) {
      std::copy_n(packed.bytes.begin() + static_cast<std::ptrdiff_t>(width) * i * row,
                  width * static_cast<std::size_t>(row),
                  array.bytes.begin() + static_cast<std::ptrdiff_t>(array.first) +
                      static_cast<std::ptrdiff_t>(width) * i * pitch);
    }
    return array;
  }

  template <class T>
  static void compare(Form form, const Columns& columns, const HostArray& x,
                      const std::vector<HostArray>& got, const std::string& what) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    for (std::int64_t column = 0; column < columns.batch * columns.groups; ++column) {
      const std::int64_t batch = column / columns.groups;
      const std::int64_t group = column % columns.groups;
      const auto place = [&](std::int64_t i) {
        const std::int64_t row = batch * columns.length + i / columns.joined;
        return (row * columns.groups + group) * columns.joined + i % columns.joined;
      };
      std::vector<T> y;
      for (std::int64_t i = 0; i < columns.reduced(); ++i) {
        y.push_back(static_cast<T>(testing::number_at(x, place(i))));
      }
      const std::vector<std::vector<T>> want = expected(form, y);
      for (std::size_t k = 0; k < want.size(); ++k) {
        for (std::size_t i = 0; i < want[k].size(); ++i) {
          const bool whole = form == Form::normalised;
          const std::int64_t at = whole ? place(static_cast<std::int64_t>(i)) : column;
          const auto bits = static_cast<Bits>(get_bits(got[k], at));
          const T value = std::bit_cast<T>(bits);
          const bool same = std::isnan(value) && std::isnan(want[k][i]);
          ASSERT_TRUE(same || bits == std::bit_cast<Bits>(want[k][i]))
              << what << ": output " << k << " of column " << column << ", element " << i << " is "
              << value << ", expected " << want[k][i];
        }
      }
    }
  }

  void check(Form form, const Columns& columns, DType dtype, std::uint64_t seed, bool as_program,
             const fusion::ForcedRows& forced = {}) {
    const bool wide = dtype == DType::f64;
    const DType computed = wide ? DType::f64 : DType::f32;
    const HostArray x = testing::random_array(
        dtype, {columns.batch, columns.length, columns.groups, columns.joined}, seed);
    const std::string text = text_of(form, computed);
    std::vector<HostArray> outputs;
    for (int i = 0; i < (form == Form::sums ? 3 : 1); ++i) {
      outputs.push_back(HostArray::contiguous(
          computed,
          form == Form::normalised ? x.shape : Dims{columns.batch, 1, columns.groups, 1}));
    }
    const Function function = testing::with_schedule(parse("columns", text), forced);
    if (as_program) {
      outputs = run(program(function), {x}, std::move(outputs), false);
    } else {
      run_on(device(), function, {placed(x, columns)}, outputs);
    }
    const std::string what =
        fmt::format("{} of {}[{}, {}, {}, {}], gap {}, lead {}{}{}", text, name(dtype),
                    columns.batch, columns.length, columns.groups, columns.joined, columns.gap,
                    columns.lead, as_program ? ", a Program" : "", testing::describe(forced));
    if (wide) {
      compare<double>(form, columns, x, outputs, what);
    } else {
      compare<float>(form, columns, x, outputs, what);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ColumnBits,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(ColumnBits, FollowFromTheLengthAround) {
  std::vector<std::int64_t> lengths = {1, 2, 3, 4, 5, 7, 8, 9, 12, 31};
  for (std::int64_t n = 64; n <= 131'072; n *= 2) {
    for (const std::int64_t length : {n - 1, n, n + 1}) lengths.push_back(length);
  }
  testing::Share share(GetParam(), 12, testing::random_seed());
  for (const std::int64_t length : lengths) {
    if (!share.next()) continue;
    const Columns columns{.length = length, .groups = 8};
    check(Form::sums, columns, DType::bf16, static_cast<std::uint64_t>(length), false);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ColumnBits, DoNotShowWhereColumnsLieOrHowMany) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  constexpr Form kForms[] = {Form::sums, Form::variance, Form::variance_of_value, Form::normalised};
  const std::uint64_t draws = testing::draws_of(GetParam(), 12, 4);
  constexpr std::int64_t kMost = 1 << 17;  // elements of an array
  for (std::uint64_t i = 0; i < draws && !HasFatalFailure(); ++i) {
    const std::int64_t near = std::int64_t{1} << (1 + draw(15));
    Columns columns;
    const DType dtype = kTypes[draw(std::ssize(kTypes))];
    const Form form = kForms[draw(std::ssize(kForms))];
    // Neighbours that are one row are columns on GPUs, if all of them are stored and a power of
    // two.
    const bool joined = GetParam() != DeviceType::cpu && dtype != DType::f64 &&
                        form == Form::normalised && draw(2) == 0;
    constexpr std::int64_t kJoined[] = {2, 3, 4, 6};
    columns.joined = joined ? kJoined[draw(std::ssize(kJoined))] : 1;
    columns.length = std::max<std::int64_t>(1, near - 2 + draw(draw(2) == 0 ? 5 : near));
    const std::int64_t room = std::max<std::int64_t>(2, kMost / columns.reduced());
    columns.groups = 2 + draw(std::min<std::int64_t>(room, 600));
    columns.batch = 1 + draw(std::clamp<std::int64_t>(room / columns.groups, 1, 4));
    columns.gap = draw(2) * draw(9);
    columns.lead = draw(2) * draw(9);
    check(form, columns, dtype, random(), draw(2) == 0);
  }
}

// Threads keep short columns on chip, of which there are many.
TEST_P(ColumnBits, OfColumnsThatAreReadTwice) {
  testing::Share share(GetParam(), 12, testing::random_seed());
  for (const std::int64_t length : {6, 17, 48, 100, 129, 200, 320, 500, 513, 700, 1000, 1025}) {
    if (!share.next()) continue;
    const auto seed = static_cast<std::uint64_t>(length);
    check(Form::normalised, {.batch = 2, .length = length, .groups = 64}, DType::bf16, seed, false);
    check(Form::variance, {.length = length, .groups = 37}, DType::f32, seed, false);
    check(Form::variance_of_value, {.length = length, .groups = 64}, DType::f32, seed, false);
    if (HasFatalFailure()) return;
  }
  // Two chunks, for which two blocks of a cluster have room.
  if (GetParam() == DeviceType::cpu) return;
  check(Form::normalised, {.length = 16'384, .groups = 2, .joined = 4}, DType::bf16, 1, false);
}

// How many threads share a column, the width of vectors, and whether columns are kept on chip.
TEST_P(ColumnBits, DoNotShowTheSchedule) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  constexpr Form kForms[] = {Form::sums, Form::variance, Form::normalised};
  testing::Share share(GetParam(), 20, seed);
  for (const std::int64_t length : {40, 300, 1025, 33'000}) {
    for (const int threads : {1, 4, 16, 64}) {
      for (const bool read_again : {false, true}) {
        const fusion::ForcedRows forced{threads, draw(2) == 0 ? 0 : 1 << draw(4), read_again};
        const Columns columns{.length = length, .groups = 9 + draw(8), .lead = draw(2) * draw(9)};
        const Form form = kForms[draw(std::ssize(kForms))];
        const DType dtype = kTypes[draw(std::ssize(kTypes))];
        const std::uint64_t values = random();
        if (share.next()) check(form, columns, dtype, values, false, forced);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Whether few threads keep columns, where more of them would fill the device, and how many vectors
// of columns are side by side.
TEST_P(ColumnBits, DoNotShowWhatIsKeptOrSideBySide) {
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  constexpr Form kForms[] = {Form::variance, Form::normalised, Form::variance_of_value};
  testing::Share share(GetParam(), 16, testing::random_seed());
  std::size_t next = 0;
  for (const std::int64_t length : {6, 40, 64, 300, 1'025}) {
    for (const int columns : {0, 1, 4, 16}) {
      for (const bool keeps : {false, true}) {
        ++next;
        if (!share.next()) continue;
        check(kForms[next % std::size(kForms)], {.length = length, .groups = 70},
              kTypes[next / 2 % std::size(kTypes)], next, false,
              {.keeps_columns = keeps, .columns = columns});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// How many blocks of a cluster share columns that they keep in shared memory, where there are any.
TEST_P(ColumnBits, DoNotShowTheBlocks) {
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  constexpr Form kForms[] = {Form::variance, Form::normalised, Form::variance_of_value};
  testing::Share share(GetParam(), 8, testing::random_seed());
  std::size_t next = 0;
  for (const std::int64_t length : {1'025, 2'100, 4'096, 8'191, 16'384}) {
    for (const int blocks : {0, 1, 2, 4, 8}) {
      ++next;
      if (!share.next()) continue;
      const Form form = kForms[next % std::size(kForms)];
      const bool joined = form == Form::normalised && next % 2 == 0;
      const Columns columns{.length = joined ? length / 2 : length,
                            .groups = joined ? 24 : 70 + static_cast<int>(next % 3) * 29,
                            .joined = joined ? 2 : 1};
      check(form, columns, kTypes[next / 2 % (joined ? 3 : 4)], next, false,
            {.cluster_blocks = blocks});
      if (HasFatalFailure()) return;
    }
  }
}

// A Program splits few columns of many elements: their residues, or their chunks.
TEST_P(ColumnBits, OfFewColumnsInParts) {
  constexpr DType kTypes[] = {DType::bf16, DType::f32, DType::f64};
  testing::Share share(GetParam(), 16, testing::random_seed());
  std::size_t next = 0;
  for (const std::int64_t length : {2'100, 8'192, 30'001, 32'769, 70'000, 140'001}) {
    for (const std::int64_t groups : {2, 8, 33}) {
      const DType dtype = kTypes[next++ % std::size(kTypes)];
      if (!share.next()) continue;
      check(Form::sums, {.length = length, .groups = groups}, dtype, next, true);
      if (HasFatalFailure()) return;
    }
  }
}

// In how many parts a Program cuts columns: chunks, residues, or none.
TEST_P(ColumnBits, DoNotShowParts) {
  testing::Share share(GetParam(), 6, testing::random_seed());
  std::uint64_t next = 0;
  for (const std::int64_t length : {2'100, 33'000, 170'001}) {
    for (const int parts : {1, 2, 16, 64}) {
      // Emulated, others take long.
      if (GetParam() == DeviceType::hip && (parts == 16 || length > 100'000)) continue;
      const Columns columns{.length = length, .groups = ++next % 2 == 0 ? 3 : 40};
      if (!share.next()) continue;
      check(Form::sums, columns, DType::bf16, next, true, {.parts = parts});
      if (HasFatalFailure()) return;
    }
  }
}

// Several axes are counted as one.
TEST_P(ColumnBits, OfSeveralAxes) {
  for (const Dims& shape : {Dims{5, 3, 40, 7}, Dims{60, 2, 33, 16}}) {
    const HostArray x = testing::random_array(DType::f32, shape, 3);
    std::vector<HostArray> sums = {HostArray::contiguous(DType::f32, {1, shape[1], 1, shape[3]})};
    run_on(device(), parse("columns", "sum(x, 0, 2)"), {x}, sums);
    for (std::int64_t column = 0; column < shape[1] * shape[3]; ++column) {
      std::vector<float> y;
      for (std::int64_t i = 0; i < shape[0] * shape[2]; ++i) {
        const std::int64_t row =
            (i / shape[2] * shape[1] + column / shape[3]) * shape[2] + i % shape[2];
        y.push_back(static_cast<float>(testing::number_at(x, row * shape[3] + column % shape[3])));
      }
      ASSERT_EQ(get_bits(sums[0], column), std::bit_cast<std::uint32_t>(sum(y))) << column;
    }
  }
}

}  // namespace
}  // namespace kiln
