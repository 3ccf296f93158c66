// Rows of several axes that are not one in memory, against the tree by which they are to be added
// up (fusion/reference/tree.hpp), bit by bit: elements are counted along these axes in C order,
// whatever lies between them, in whatever order these axes lie in memory, and however often
// operands repeat. All NaN count as one.
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

/// Of one pass over the elements, and of two.
enum class Form { sums, variance, normalised };
constexpr Form kForms[] = {Form::sums, Form::variance, Form::normalised};

/// An array of four axes of which some are reduced. `gaps` are elements behind each step along an
/// axis, in memory; a negative one of the whole: the axis runs backwards. `repeats`: x has one
/// element along these axes, `weights` the same of w. `order` is that of the axes in memory;
/// `stored_alike`: also of results that have all of them.
struct Segmented {
  Dims shape;
  std::array<bool, 4> reduced{};
  std::array<std::int64_t, 4> gaps{};
  std::array<bool, 4> backwards{};
  std::array<bool, 4> repeats{};
  std::array<bool, 4> weights{};
  std::int64_t lead = 0;
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  bool stored_alike = false;

  std::string axes() const {
    std::string text;
    for (std::size_t k = 0; k < 4; ++k) {
      if (reduced[k]) text += fmt::format(", {}", k);
    }
    return text;
  }
  Dims kept() const {
    Dims dims = shape;
    for (std::size_t k = 0; k < 4; ++k) {
      if (reduced[k]) dims[k] = 1;
    }
    return dims;
  }
  std::string description() const {
    std::string text = fmt::format("[{}, {}, {}, {}] reduced along{}", shape[0], shape[1], shape[2],
                                   shape[3], axes().substr(1));
    for (std::size_t k = 0; k < 4; ++k) {
      text += fmt::format("; {}{}{}{}", gaps[k], backwards[k] ? " backwards" : "",
                          repeats[k] ? " repeated" : "", weights[k] ? " weights repeated" : "");
    }
    return text + fmt::format("; lead {}; in memory {}, {}, {}, {}{}", lead, order[0], order[1],
                              order[2], order[3], stored_alike ? ", results too" : "");
  }
};

class SegmentBits : public testing::ProgramsOnDevices {
 protected:
  static std::string text_of(Form form, const std::string& axes, DType computed) {
    const std::string y = fmt::format("y = {0}(x) + {0}(w); ", name(computed));
    switch (form) {
      case Form::sums:
        return y + fmt::format("sum(y{0}), max(y{0}), prod(1 + y * 0.03125{0})", axes);
      case Form::variance: return y + fmt::format("d = y - mean(y{0}); mean(d * d{0})", axes);
      default: return y + fmt::format("y / sqrt(mean(y * y{0}) + 0.5)", axes);
    }
  }

  template <class T>
  static std::vector<std::vector<T>> expected(Form form, const std::vector<T>& y) {
    const auto count = static_cast<T>(y.size());
    const auto sum = [](const std::vector<T>& row) {
      return reduce_in_tree(row, T(0), std::plus<>());
    };
    const auto squares = [](std::vector<T> row, T centre) {
      for (T& x : row) x = (x - centre) * (x - centre);
      return row;
    };
    switch (form) {
      case Form::sums: {
        std::vector<T> factors;
        T largest = -std::numeric_limits<T>::infinity();
        for (const T x : y) {
          factors.push_back(1 + x * T(0.03125));
          largest = std::max(largest, x);
        }
        return {{sum(y)}, {largest}, {reduce_in_tree(factors, T(1), std::multiplies<>())}};
      }
      case Form::variance: return {{sum(squares(y, sum(y) / count)) / count}};
      default: {
        const T scale = std::sqrt(sum(squares(y, T(0))) / count + T(0.5));
        std::vector<T> result;
        for (const T x : y) result.push_back(x / scale);
        return {result};
      }
    }
  }

  /// An array of which not all elements along the axes that repeat are there.
  static HostArray empty(DType dtype, const Segmented& rows, const std::array<bool, 4>& repeats) {
    Dims strides(4, 0);
    std::int64_t step = 1;
    for (std::size_t i = 4; i-- > 0;) {
      const std::size_t k = rows.order[i];
      step += i == 3 ? 0 : rows.gaps[k];
      strides[k] = repeats[k] ? 0 : rows.backwards[k] ? -step : step;
      if (!repeats[k]) step *= rows.shape[k];
      if (i == 3) step += rows.gaps[k];
    }
    HostArray array = HostArray::strided(dtype, rows.shape, strides, rows.lead);
    std::ranges::fill(array.bytes, std::byte{0xff});
    return array;
  }

  /// The same elements, with others between them.
  static HostArray placed(const HostArray& packed, const Segmented& rows) {
    HostArray array = empty(packed.dtype, rows, rows.repeats);
    for (std::int64_t i = 0; i < array.size(); ++i) {
      set_bits(array, testing::place_of(array, i),
               get_bits(packed, place(rows.shape, rows.repeats, i)));
    }
    return array;
  }

  /// Which element of an array that repeats along some axes is number `i` of the shape.
  static std::int64_t place(const Dims& shape, const std::array<bool, 4>& repeats, std::int64_t i) {
    std::int64_t at = 0;
    std::int64_t step = 1;
    for (std::size_t k = 4; k-- > 0;) {
      if (!repeats[k]) {
        at += i % shape[k] * step;
        step *= shape[k];
      }
      i /= shape[k];
    }
    return at;
  }
  static Dims shape_of(const Dims& shape, const std::array<bool, 4>& repeats) {
    Dims dims = shape;
    for (std::size_t k = 0; k < 4; ++k) {
      if (repeats[k]) dims[k] = 1;
    }
    return dims;
  }

  template <class T>
  static void compare(Form form, const Segmented& rows, const HostArray& x, const HostArray& w,
                      const std::vector<HostArray>& got, const std::string& what) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const std::int64_t all = rows.shape[0] * rows.shape[1] * rows.shape[2] * rows.shape[3];
    const auto row_of = [&](std::int64_t i) { return place(rows.shape, rows.reduced, i); };
    std::vector<std::vector<T>> elements;
    std::vector<std::vector<std::int64_t>> places;
    for (std::int64_t i = 0; i < all; ++i) {
      const auto row = static_cast<std::size_t>(row_of(i));
      if (elements.size() <= row) {
        elements.resize(row + 1);
        places.resize(row + 1);
      }
      elements[row].push_back(
          static_cast<T>(testing::number_at(x, place(rows.shape, rows.repeats, i))) +
          static_cast<T>(testing::number_at(w, place(rows.shape, rows.weights, i))));
      places[row].push_back(i);
    }
    for (std::size_t row = 0; row < elements.size(); ++row) {
      const std::vector<std::vector<T>> want = expected(form, elements[row]);
      for (std::size_t k = 0; k < want.size(); ++k) {
        for (std::size_t i = 0; i < want[k].size(); ++i) {
          const std::int64_t at =
              form == Form::normalised ? places[row][i] : static_cast<std::int64_t>(row);
          const auto bits = static_cast<Bits>(get_bits(got[k], testing::place_of(got[k], at)));
          ASSERT_EQ(bits, std::bit_cast<Bits>(want[k][i]))
              << what << ": output " << k << " of row " << row << ", element " << i << " is "
              << std::bit_cast<T>(bits) << ", expected " << want[k][i];
        }
      }
    }
  }

  void check(Form form, const Segmented& rows, DType dtype, std::uint64_t seed, bool as_program,
             const fusion::ForcedRows& forced = {}) {
    const DType computed = dtype == DType::f64 ? DType::f64 : DType::f32;
    const HostArray x = testing::random_array(dtype, shape_of(rows.shape, rows.repeats), seed);
    const HostArray w =
        testing::random_array(computed, shape_of(rows.shape, rows.weights), seed + 1);
    const std::string text = text_of(form, rows.axes(), computed);
    std::vector<HostArray> outputs;
    for (int i = 0; i < (form == Form::sums ? 3 : 1); ++i) {
      outputs.push_back(form == Form::normalised && rows.stored_alike
                            ? empty(computed, rows, {})
                            : HostArray::contiguous(
                                  computed, form == Form::normalised ? rows.shape : rows.kept()));
    }
    const Function function = testing::with_schedule(parse("segments", text), forced);

    if (as_program) {
      outputs = run(program(function), {placed(x, rows), w}, std::move(outputs), false);
    } else {
      run_on(device(), function, {placed(x, rows), w}, outputs);
    }
    const std::string what =
        fmt::format("{} of {}{}{}{}", text, name(dtype), rows.description(),
                    as_program ? ", a Program" : "", testing::describe(forced));
    if (computed == DType::f64) {
      compare<double>(form, rows, x, w, outputs, what);
    } else {
      compare<float>(form, rows, x, w, outputs, what);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, SegmentBits,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(SegmentBits, FollowFromTheNumberOfElements) {
  testing::Share share(GetParam(), 10, testing::random_seed());
  for (const Dims& shape :
       {Dims{2, 1, 3, 5}, Dims{3, 1, 16, 16}, Dims{2, 1, 9, 49}, Dims{2, 3, 5, 7},
        Dims{2, 1, 31, 33}, Dims{2, 8, 64, 8}, Dims{1, 3, 100, 110}, Dims{1, 1, 129, 256},
        Dims{1, 2, 130, 257}, Dims{1, 4'097, 4, 5}, Dims{2, 1, 3, 32'768}}) {
    for (const Form form : kForms) {
      if (!share.next()) continue;
      const Segmented rows{.shape = shape, .reduced = {false, true, true, true}, .gaps = {0, 8, 8}};
      check(form, rows, DType::bf16, static_cast<std::uint64_t>(shape[2]), false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SegmentBits, DoNotShowWhereRowsLie) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  const std::uint64_t draws = testing::draws_of(GetParam(), 12, 4);
  for (std::uint64_t i = 0; i < draws && !HasFatalFailure(); ++i) {
    Segmented rows{.shape = Dims(4, 1)};
    std::int64_t room = std::int64_t{1} << (2 + draw(15));
    for (const std::size_t k : {3u, 2u, 1u, 0u}) {
      const std::int64_t near = std::int64_t{1} << draw(std::bit_width(
                                    static_cast<std::uint64_t>(std::max<std::int64_t>(1, room))));
      rows.shape[k] = std::max<std::int64_t>(1, near - draw(2) + draw(draw(2) == 0 ? 2 : near));
      room /= rows.shape[k];
      rows.gaps[k] = draw(2) * draw(9);
      rows.backwards[k] = draw(6) == 0;
      rows.repeats[k] = draw(6) == 0;
      rows.weights[k] = draw(2) == 0 && !rows.repeats[k];
    }
    // Mostly the last axis and another one.
    rows.reduced = {draw(4) == 0, draw(2) == 0, draw(2) == 0, draw(8) != 0};
    if (std::ranges::count(rows.reduced, true) == 0) rows.reduced[3] = true;
    rows.lead = draw(2) * draw(9);
    if (draw(2) == 0) std::ranges::shuffle(rows.order, random);
    rows.stored_alike = draw(2) == 0;
    const Form form = kForms[draw(std::ssize(kForms))];
    if (form == Form::sums) {  // of operands that repeat, that would be a kernel of products
      rows.repeats = {};
      rows.weights = {};
    }
    const std::uint64_t values = random();
    check(form, rows, kTypes[draw(std::ssize(kTypes))], values, !rows.stored_alike && draw(4) == 0);
  }
}

// Rows of which some axis is innermost in memory that is not the last one: those that are folded
// (RowFold, schedule/rows/row_layout.cpp), side by side and not, of one chunk and of several, and
// others. A Program cuts some in parts.
TEST_P(SegmentBits, DoNotShowTheOrderInMemory) {
  using Order = std::array<std::size_t, 4>;
  struct Case {
    Dims shape;
    std::array<bool, 4> reduced;
    Order order;
    bool as_program = false;
  };
  constexpr std::array<bool, 4> kGroups{false, false, true, true};
  constexpr std::array<bool, 4> kAll{true, true, true, true};
  constexpr std::array<bool, 4> kEnds{false, true, false, true};
  constexpr Order kChannelsLast{0, 3, 1, 2};
  const std::vector<Case> cases = {
      {{2, 4, 8, 64}, kGroups, kChannelsLast},
      {{2, 4, 4, 1'024}, kGroups, kChannelsLast},
      {{2, 3, 8, 4'096}, kGroups, kChannelsLast},
      {{1, 5, 2, 8'192}, kGroups, kChannelsLast},
      {{1, 2, 16, 256}, kGroups, kChannelsLast},
      {{2, 2, 10, 256}, kGroups, kChannelsLast},
      {{1, 2, 32, 2'048}, kGroups, kChannelsLast},
      {{1, 2, 8, 16'384}, kGroups, kChannelsLast},
      {{2, 3, 8, 49}, kGroups, kChannelsLast},
      {{2, 3, 10, 196}, kGroups, kChannelsLast},
      {{1, 1, 3, 12'544}, kGroups, kChannelsLast},
      {{3, 4, 32, 64}, {true, true, false, true}, {0, 3, 1, 2}},
      {{2, 8, 3, 512}, kEnds, {0, 2, 3, 1}},
      {{2, 8, 3, 512}, kEnds, {2, 3, 0, 1}},
      {{2, 7, 3, 100}, kEnds, {2, 3, 0, 1}},
      {{1, 1, 64, 64}, kAll, {3, 2, 1, 0}},
      {{1, 1, 37, 91}, kAll, {3, 2, 1, 0}},
      {{2, 4, 16, 32}, kAll, {2, 3, 0, 1}},
      {{3, 5, 7, 11}, kAll, {1, 3, 2, 0}},
      {{1, 1, 128, 1'024}, kAll, {0, 1, 3, 2}, true},
      {{1, 1, 32, 8'192}, kAll, {0, 1, 3, 2}, true},
      {{1, 2, 8, 16'384}, kAll, {0, 3, 1, 2}, true},
      {{1, 1, 512, 512}, kAll, {0, 1, 3, 2}, true},
      {{1, 1, 4, 65'536}, kAll, {0, 1, 3, 2}, true},
      {{1, 1, 8, 32'768}, kAll, {0, 1, 3, 2}, true},
      {{1, 4, 4, 8'192}, kAll, {0, 1, 3, 2}, true},
      {{1, 2, 2, 65'536}, kAll, {0, 1, 3, 2}, true},
      {{1, 1, 300, 1'000}, kAll, {0, 1, 3, 2}, true},
      {{1, 1, 7, 20'011}, kAll, {0, 1, 3, 2}, true},
      {{1, 3, 70, 1'000}, kGroups, kChannelsLast},
      {{2, 9, 17, 40}, kEnds, {3, 2, 1, 0}},
      {{2, 1, 24, 4'096}, {false, true, true, true}, {0, 1, 3, 2}, true},
      {{1, 1, 4, 32'768}, kGroups, kChannelsLast},
      {{1, 1, 4, 65'536}, kGroups, kChannelsLast},
      {{1, 1, 16, 32'768}, kGroups, kChannelsLast},
  };
  testing::Share share(GetParam(), 48, testing::random_seed());
  for (const Case& one : cases) {
    for (const Form form : kForms) {
      for (const DType dtype : {DType::bf16, DType::f32, DType::f64, DType::f8e5m2}) {
        const bool moves_alike = dtype == DType::f64 || dtype == DType::f8e5m2;
        if (moves_alike && GetParam() != DeviceType::cpu) continue;
        if (!share.next()) continue;
        Segmented rows{.shape = one.shape, .reduced = one.reduced, .order = one.order};
        rows.stored_alike = !one.as_program;
        // Parts that a Program would not choose have several chunks.
        const int parts = one.as_program && dtype == DType::bf16 ? 2 : 0;
        check(form, rows, dtype, static_cast<std::uint64_t>(one.shape[3]), one.as_program,
              {.parts = parts});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// How many threads share a row, the width of vectors, and whether rows are kept on chip.
TEST_P(SegmentBits, DoNotShowTheSchedule) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  testing::Share share(GetParam(), 20, seed);
  std::uint64_t next = seed;
  for (const Dims& shape : {Dims{3, 1, 5, 24}, Dims{2, 1, 33, 64}, Dims{2, 3, 40, 120},
                            Dims{1, 2, 300, 72}, Dims{1, 1, 70, 1'001}}) {
    for (const int threads : {4, 32, 256}) {
      for (const bool read_again : {false, true}) {
        const Form form = kForms[++next % std::size(kForms)];
        if (!share.next()) continue;
        const Segmented rows{
            .shape = shape, .reduced = {false, true, true, true}, .gaps = {0, 8, 16}};
        check(form, rows, DType::bf16, next, false,
              {threads, next % 2 == 0 ? 0 : 1 << next % 4, read_again});
        if (HasFatalFailure()) return;
        const Segmented channels_last{.shape = {2, 3, 8, 256 << next % 3},
                                      .reduced = {false, false, true, true},
                                      .order = {0, 3, 1, 2}};
        check(form, channels_last, DType::bf16, next, false,
              {threads, next % 2 == 0 ? 0 : 1 << next % 4, read_again});
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
