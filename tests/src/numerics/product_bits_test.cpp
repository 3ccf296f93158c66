// Bits of products with weights do not show columns and rows beside, nor where elements lie,
// against the same alone. fusion/numerics.md names what differs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "fusion/reference/tree.hpp"
#include "kiln/reduction.hpp"
#include "tests/src/numerics/beside_bits.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::part_of;

/// What makes a number of a weight.
enum class Dequantised { plain, scaled, whole_zero_point, zero_point, bias, subtracted_bias };
constexpr Dequantised kDequantised[] = {
    Dequantised::plain,      Dequantised::scaled, Dequantised::whole_zero_point,
    Dequantised::zero_point, Dequantised::bias,   Dequantised::subtracted_bias};

/// Products of rows of weights, in groups, with vectors.
struct Products {
  DType weights;
  Dequantised how;
  DType parts;  ///< scales and biases or zero points
  DType activations;
  std::int64_t groups;
  std::int64_t size;  ///< elements of a group
  bool has_scale() const { return how != Dequantised::plain; }
  bool has_offset() const { return has_scale() && how > Dequantised::whole_zero_point; }
  // Arguments are in the order in which the text has them.
  std::string text() const {
    constexpr const char* kTexts[] = {"q = q; x = x; q",
                                      "q = q; x = x; a = a; f32(q) * a",
                                      "q = q; x = x; a = a; (f32(q) - 8) * a",
                                      "q = q; x = x; a = a; b = b; (f32(q) - b) * a",
                                      "q = q; x = x; a = a; b = b; (f32(q) * a + b)",
                                      "q = q; x = x; a = a; b = b; (f32(q) * a - b)"};
    const std::string whole = kTexts[static_cast<int>(how)];
    const std::size_t last = whole.rfind(';') + 2;
    return fmt::format("{}sum({} * f32(x), -1, -2)", whole.substr(0, last), whole.substr(last));
  }
  std::string description() const {
    return fmt::format("{} of {}[{}, {}], {} and {}", text(), name(weights), groups, size,
                       name(parts), name(activations));
  }
};

class ProductBits : public testing::BesideBits {
 protected:
  std::vector<HostArray> draw_inputs(const Products& products, std::int64_t rows,
                                     std::int64_t columns) const {
    std::vector<HostArray> inputs = {
        testing::random_array(products.weights, {rows, products.groups, products.size}, 1),
        testing::random_array(products.activations, {columns, 1, products.groups, products.size},
                              2)};
    for (int i = 0; i < (products.has_offset() ? 2 : products.has_scale() ? 1 : 0); ++i) {
      inputs.push_back(
          testing::random_array(products.parts, {rows, products.groups, 1}, inputs.size()));
    }
    return inputs;
  }

  /// Some rows and columns, computed by themselves.
  HostArray part(const Products& products, const std::vector<HostArray>& inputs, std::int64_t row,
                 std::int64_t rows, std::int64_t column, std::int64_t columns) const {
    std::vector<HostArray> own = inputs;
    own[1] = part_of(own[1], 0, column, columns);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (i != 1) own[i] = part_of(own[i], 0, row, rows);
    }
    return run_alone(products.text(), own, {columns, rows, 1, 1});
  }

  /// The last of many rows, a few and a quarter of them.
  void check_last_rows(const Products& products, std::int64_t all_rows,
                       std::int64_t columns) const {
    const std::vector<HostArray> inputs = draw_inputs(products, all_rows, columns);
    const HostArray whole = part(products, inputs, 0, all_rows, 0, columns);
    for (const std::int64_t rows : {std::int64_t{40}, all_rows / 4}) {
      expect_same(part(products, inputs, all_rows - rows, rows, 0, columns),
                  part_of(whole, 1, all_rows - rows, rows),
                  fmt::format("{}: {} rows, {} columns", products.description(), rows, columns));
    }
  }

  void check(const Products& products, std::initializer_list<std::int64_t> columns,
             std::initializer_list<std::int64_t> rows, std::int64_t all_rows = 40) const {
    constexpr std::int64_t kColumns = 8;
    const std::vector<HostArray> inputs = draw_inputs(products, all_rows, kColumns);
    const HostArray whole = part(products, inputs, 0, all_rows, 0, kColumns);
    for (const std::int64_t count : columns) {
      const std::int64_t column = kColumns - count;
      expect_same(part(products, inputs, 0, all_rows, column, count),
                  part_of(whole, 0, column, count),
                  fmt::format("{}: {} columns", products.description(), count));
    }
    for (const std::int64_t count : rows) {
      const std::int64_t row = all_rows - count;
      expect_same(part(products, inputs, row, count, 0, kColumns), part_of(whole, 1, row, count),
                  fmt::format("{}: {} rows", products.description(), count));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ProductBits,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

// With fewer bytes of weights than of activations, GPUs take those for the weights.
TEST_P(ProductBits, DoNotShowColumnsOrRowsBeside) {
  testing::Share share(GetParam(), 6, testing::random_seed());
  for (const Products& products : {
           Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 4, 64},
           Products{DType::u4, Dequantised::zero_point, DType::f16, DType::f32, 9, 128},
           Products{DType::i4, Dequantised::scaled, DType::f16, DType::bf16, 2, 128},
           Products{DType::i8, Dequantised::subtracted_bias, DType::f32, DType::f16, 6, 32},
           Products{DType::f8e4m3, Dequantised::scaled, DType::f32, DType::bf16, 8, 32},
           Products{DType::bf16, Dequantised::plain, DType::f32, DType::bf16, 1, 300},
       }) {
    if (share.next()) check(products, {1, 2, 3, 5}, {1, 7, 33});
  }
}

TEST_P(ProductBits, DoNotShowWhatIsDrawn) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  constexpr DType kWeights[] = {DType::u4,     DType::i4,  DType::u8,  DType::i8,
                                DType::f8e4m3, DType::f16, DType::bf16};
  constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32};
  constexpr DType kActivations[] = {DType::f16, DType::bf16, DType::f32, DType::i8};
  const std::uint64_t draws =
      testing::draws_of(GetParam(), GetParam() == DeviceType::cuda ? 48 : 8, 8);
  for (std::uint64_t i = 0; i < draws && !HasFailure(); ++i) {
    const Products products{
        kWeights[draw(std::ssize(kWeights))], kDequantised[draw(std::ssize(kDequantised))],
        kFloats[draw(std::ssize(kFloats))],   kActivations[draw(std::ssize(kActivations))],
        1 + draw(draw(2) == 0 ? 6 : 48),      32 << draw(3)};
    check(products, {1 + draw(3), 4 + draw(4)}, {1 + draw(39)});
  }
}

// Rows that waves share and that they have for themselves, vectors in registers, in shared memory
// and in neither; rows of more than sixteen parts of sixteen steps, of parts of one, and with a
// part of a step at the end (preamble/tiling.h).
TEST_P(ProductBits, DoNotShowRowsOrColumnsOfMatrixInstructions) {
  if (GetParam() != DeviceType::cuda) GTEST_SKIP() << "only NVIDIA GPUs have such instructions";
  for (const Products& products : {
           Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 64, 64},
           Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 224, 64},
           Products{DType::i4, Dequantised::zero_point, DType::f16, DType::f16, 32, 64},
           Products{DType::u4, Dequantised::subtracted_bias, DType::f32, DType::bf16, 64, 64},
           Products{DType::u4, Dequantised::scaled, DType::bf16, DType::bf16, 300, 64},
           Products{DType::u4, Dequantised::bias, DType::bf16, DType::f16, 67, 32},
           Products{DType::i4, Dequantised::plain, DType::f32, DType::bf16, 1, 1'016},
           Products{DType::u8, Dequantised::bias, DType::bf16, DType::bf16, 32, 64},
           Products{DType::i8, Dequantised::scaled, DType::f32, DType::f16, 17, 128},
           Products{DType::i8, Dequantised::bias, DType::f32, DType::bf16, 9, 32},
           Products{DType::f8e4m3, Dequantised::scaled, DType::bf16, DType::bf16, 32, 64},
           Products{DType::f8e5m2, Dequantised::plain, DType::f32, DType::f16, 1, 3'000},
       }) {
    check(products, {1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 512}, 520);
  }
  for (const Products& products :
       {Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 64, 64},
        Products{DType::u8, Dequantised::scaled, DType::bf16, DType::f16, 48, 64},
        Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 80, 32}}) {
    check(products, {1, 2, 3}, {1, 65, 4'096}, 9'000);
  }
}

// Of many rows blocks take several tiles.
TEST_P(ProductBits, DoNotShowManyRowsOfMatrixInstructions) {
  if (GetParam() != DeviceType::cuda) GTEST_SKIP() << "only NVIDIA GPUs have such instructions";
  constexpr std::int64_t kRows = 70'000;
  for (const Products& products :
       {Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 16, 64},
        Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 32, 64},
        Products{DType::i8, Dequantised::scaled, DType::f32, DType::bf16, 7, 32}}) {
    for (const std::int64_t columns : {1, 3, 8}) check_last_rows(products, kRows, columns);
  }
}

// Matrices side by side, each with vectors of its own, and more vectors than a block takes.
TEST_P(ProductBits, DoNotShowBatchesBeside) {
  const std::string text = "q = q; x = x; a = a; b = b; sum((f32(q) * a + b) * f32(x), -1, -2)";
  testing::Share share(GetParam(), 4, testing::random_seed());
  for (const DType dtype : {DType::u4, DType::i8}) {
    for (const std::int64_t columns : {1, 3, 24}) {
      if (!share.next()) continue;
      const std::int64_t groups = GetParam() == DeviceType::cuda ? 32 : 3;
      const std::vector<HostArray> inputs = {
          testing::random_array(dtype, {3, 1, 20, groups, 64}, 1),
          testing::random_array(DType::bf16, {3, columns, 1, groups, 64}, 2),
          testing::random_array(DType::bf16, {3, 1, 20, groups, 1}, 3),
          testing::random_array(DType::bf16, {3, 1, 20, groups, 1}, 4)};
      const HostArray whole = run_alone(text, inputs, {3, columns, 20, 1, 1});
      for (const std::int64_t batch : {0, 2}) {
        std::vector<HostArray> own = inputs;
        for (HostArray& input : own) input = part_of(input, 0, batch, 1);
        const HostArray of_batch = part_of(whole, 0, batch, 1);
        expect_same(run_alone(text, own, {1, columns, 20, 1, 1}), of_batch,
                    fmt::format("{}, {} columns: a batch", name(dtype), columns));
        own[1] = part_of(own[1], 1, columns - 1, 1);
        expect_same(run_alone(text, own, {1, 1, 20, 1, 1}), part_of(of_batch, 1, columns - 1, 1),
                    fmt::format("{}, one of {} columns", name(dtype), columns));
      }
    }
  }
}

// There fewer threads share a row.
TEST_P(ProductBits, DoNotShowManyRows) {
  constexpr std::int64_t kRows = 18'000;
  std::vector<Products> all = {
      Products{DType::f32, Dequantised::plain, DType::f32, DType::f32, 1, 260}};
  if (GetParam() == DeviceType::cuda) {  // others take long
    all.push_back({DType::u4, Dequantised::bias, DType::bf16, DType::f32, 36, 64});
    all.push_back({DType::bf16, Dequantised::plain, DType::f32, DType::bf16, 1, 4'104});
  }
  for (const Products& products : all) {
    for (const std::int64_t columns : {1, 3}) {
      if (columns > 1 && GetParam() == DeviceType::hip) continue;
      check_last_rows(products, kRows, columns);
    }
  }
}

// Where rows begin, of weights and of activations.
TEST_P(ProductBits, DoNotShowGapsBetweenRows) {
  const auto with_gaps = [](const HostArray& packed, std::int64_t gap) {
    const Dims& shape = packed.shape;
    Dims strides(shape.size(), 1);
    for (std::size_t k = shape.size() - 1; k-- > 0;) {
      const bool rows = k + 3 == shape.size();
      strides[k] = strides[k + 1] * shape[k + 1] + (rows ? gap : 0);
    }
    HostArray array = HostArray::strided(packed.dtype, shape, strides, gap);
    for (std::int64_t i = 0; i < packed.size(); ++i) {
      set_bits(array, testing::place_of(array, i), get_bits(packed, i));
    }
    return array;
  };
  testing::Share share(GetParam(), 4, testing::random_seed());
  for (const Products& products :
       {Products{DType::i8, Dequantised::scaled, DType::f32, DType::i8, 6, 32},
        Products{DType::f16, Dequantised::scaled, DType::f32, DType::bf16, 3, 40},
        Products{DType::bf16, Dequantised::plain, DType::f32, DType::bf16, 1, 300},
        Products{DType::f32, Dequantised::plain, DType::f32, DType::f32, 1, 512}}) {
    if (!share.next()) continue;
    const std::vector<HostArray> inputs = draw_inputs(products, 40, 2);
    const HostArray want = run_alone(products.text(), inputs, {2, 40, 1, 1});
    for (const std::int64_t gap : {1, 8}) {
      std::vector<HostArray> own = inputs;
      own[0] = with_gaps(inputs[0], gap);
      own[1] = with_gaps(inputs[1], gap);
      expect_same(run_alone(products.text(), own, {2, 40, 1, 1}), want,
                  fmt::format("{}: {} elements between rows", products.description(), gap));
    }
  }
}

// Where scales and biases lie: rows of them, columns, or every other one.
TEST_P(ProductBits, DoNotShowWhereScalesLie) {
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const Products& products :
       {Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 32, 64},
        Products{DType::i8, Dequantised::zero_point, DType::bf16, DType::f16, 8, 32},
        Products{DType::u4, Dequantised::bias, DType::f16, DType::f32, 8, 64}}) {
    if (!share.next()) continue;
    for (const std::int64_t columns : {1, 3}) {
      const std::vector<HostArray> inputs = draw_inputs(products, 40, columns);
      const HostArray want = run_alone(products.text(), inputs, {columns, 40, 1, 1});
      for (const Dims& strides :
           {Dims{1, 40, 1}, Dims{2 * products.groups, 2, 1}, Dims{products.groups + 1, 1, 1}}) {
        std::vector<HostArray> own = inputs;
        for (const std::size_t i : {2u, 3u}) {
          own[i] = HostArray::strided(products.parts, inputs[i].shape, strides, 1);
          for (std::int64_t k = 0; k < inputs[i].size(); ++k) {
            set_bits(own[i], testing::place_of(own[i], k), get_bits(inputs[i], k));
          }
        }
        expect_same(run_alone(products.text(), own, {columns, 40, 1, 1}), want,
                    fmt::format("{}, {} columns, scales {} apart", products.description(), columns,
                                fmt::join(strides, " ")));
      }
    }
  }
}

/// The elements of an array at other places: its axes in memory in that order, the outermost one
/// first, with so many elements behind each step along an axis, and `lead` before the first.
struct ElementPlaces {
  std::vector<std::size_t> order;
  Dims gaps;
  std::int64_t lead = 0;
  std::vector<bool> backwards = {};
};

HostArray at_places(const HostArray& packed, const ElementPlaces& places) {
  const Dims& shape = packed.shape;
  Dims strides(shape.size(), 1);
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    const std::size_t k = places.order[i];
    strides[k] = step + places.gaps[k];
    step = strides[k] * shape[k];
    if (!places.backwards.empty() && places.backwards[k]) strides[k] = -strides[k];
  }
  HostArray array = HostArray::strided(packed.dtype, shape, strides, places.lead);
  for (std::int64_t i = 0; i < packed.size(); ++i) {
    set_bits(array, testing::place_of(array, i), get_bits(packed, i));
  }
  return array;
}

std::string describe(const ElementPlaces& places) {
  return fmt::format("order {}, gaps {}, lead {}{}", fmt::join(places.order, " "),
                     fmt::join(places.gaps, " "), places.lead,
                     places.backwards.empty() ? "" : ", backwards");
}

// Axes of activations are columns, one, groups and elements; those of weights rows, groups and
// elements, which lie anywhere: apart, or next to other rows or groups, with gaps between them, of
// half a byte too.
TEST_P(ProductBits, DoNotShowWhereElementsLie) {
  struct Places {
    std::vector<ElementPlaces> larger;
    std::vector<ElementPlaces> smaller;
  };
  const Places kWeights = {
      {{{0, 1, 2}, {0, 1, 0}, 1},
       {{0, 1, 2}, {1, 0, 0}, 1},
       {{1, 0, 2}, {1, 8, 0}},
       {{2, 1, 0}, {0, 0, 0}, 1},
       {{2, 1, 0}, {0, 4, 0}},
       {{0, 2, 1}, {0, 0, 0}},
       {{1, 2, 0}, {0, 0, 0}}},
      {{{0, 1, 2}, {0, 0, 1}}, {{2, 1, 0}, {0, 0, 0}, 1}, {{0, 2, 1}, {0, 0, 0}}}};
  const Places kActivations = {{{{0, 1, 2, 3}, {1, 0, 3, 0}, 1},
                                {{2, 0, 1, 3}, {1, 0, 0, 0}},
                                {{3, 2, 1, 0}, {0, 0, 0, 0}},
                                {{2, 3, 1, 0}, {0, 0, 0, 2}}},
                               {{{0, 1, 2, 3}, {0, 0, 0, 1}},
                                {{3, 2, 1, 0}, {0, 0, 0, 0}, 1},
                                {{0, 1, 3, 2}, {0, 0, 0, 0}},
                                {{0, 1, 2, 3}, {1, 0, 3, 0}, 1},
                                {{0, 1, 2, 3}, {0, 0, 0, 0}, 0, {false, false, true, true}}}};
  testing::Share share(GetParam(), 14, testing::random_seed());
  for (const Products& products : {
           Products{DType::u4, Dequantised::bias, DType::bf16, DType::bf16, 4, 64},
           Products{DType::u4, Dequantised::zero_point, DType::f16, DType::bf16, 32, 64},
           Products{DType::i8, Dequantised::bias, DType::f32, DType::f16, 5, 32},
           Products{DType::u4, Dequantised::plain, DType::f32, DType::bf16, 3, 40},
           Products{DType::i4, Dequantised::scaled, DType::f16, DType::u4, 3, 64},
           Products{DType::i8, Dequantised::scaled, DType::f32, DType::i8, 6, 32},
           Products{DType::u4, Dequantised::zero_point, DType::f32, DType::i8, 5, 64},
           Products{DType::i8, Dequantised::plain, DType::f32, DType::i8, 4, 48},
           Products{DType::f8e4m3, Dequantised::plain, DType::f32, DType::f16, 3, 72},
           Products{DType::f8e4m3, Dequantised::plain, DType::f32, DType::f32, 4, 32},
           Products{DType::f16, Dequantised::scaled, DType::f32, DType::bf16, 3, 40},
           Products{DType::bf16, Dequantised::plain, DType::f32, DType::bf16, 2, 300},
           Products{DType::f32, Dequantised::plain, DType::f32, DType::f32, 4, 12},
           Products{DType::f32, Dequantised::plain, DType::f32, DType::bf16, 3, 5},
       }) {
    for (const bool many_columns : {false, true}) {
      if (!share.next()) continue;
      const std::int64_t rows = many_columns ? 3 : 40;
      const std::int64_t columns = many_columns ? 40 : 3;
      const std::vector<HostArray> inputs = draw_inputs(products, rows, columns);
      const HostArray want = run_alone(products.text(), inputs, {columns, rows, 1, 1});
      const auto check = [&](const HostArray& weights, const HostArray& activations,
                             const std::string& what) {
        std::vector<HostArray> own = inputs;
        own[0] = weights;
        own[1] = activations;
        expect_same(run_alone(products.text(), own, {columns, rows, 1, 1}), want,
                    fmt::format("{}, {} rows, {} columns: {}", products.description(), rows,
                                columns, what));
      };
      const auto& of_weights = many_columns ? kWeights.smaller : kWeights.larger;
      const auto& of_activations = many_columns ? kActivations.larger : kActivations.smaller;
      for (const ElementPlaces& places : of_weights) {
        check(at_places(inputs[0], places), inputs[1], "weights in " + describe(places));
      }
      for (const ElementPlaces& places : of_activations) {
        const HostArray activations = at_places(inputs[1], places);
        check(inputs[0], activations, "activations in " + describe(places));
        for (const ElementPlaces& other : {of_weights.front(), of_weights.back()}) {
          check(at_places(inputs[0], other), activations,
                fmt::format("activations in {}, weights in {}", describe(places), describe(other)));
        }
      }
    }
  }
}

TEST_P(ProductBits, DoNotShowPlacesThatAreDrawn) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  // Half of all larger ones have neighbours along their last axis.
  const auto draw_places = [&](std::size_t axes, bool larger) {
    const bool anywhere = !larger || draw(2) == 0;
    ElementPlaces places;
    places.gaps = Dims(axes, 0);
    places.lead = draw(3);
    for (std::size_t k = 0; k < axes; ++k) {
      const bool is_free = anywhere || k + 1 < axes;
      places.order.push_back(k);
      places.gaps[k] = is_free && draw(2) == 0 ? draw(3) : 0;
      places.backwards.push_back(is_free && draw(4) == 0);
    }
    std::shuffle(places.order.begin(), places.order.end() - (anywhere ? 0 : 1), random);
    return places;
  };
  constexpr DType kWeights[] = {DType::u4,     DType::i4,  DType::u8,   DType::i8,
                                DType::f8e4m3, DType::f16, DType::bf16, DType::f32};
  constexpr DType kActivations[] = {DType::f16, DType::bf16, DType::f32, DType::i8, DType::i4};
  const std::int64_t many = 40 + draw(3);
  const std::uint64_t draws =
      testing::draws_of(GetParam(), GetParam() == DeviceType::cuda ? 48 : 8, 8);
  for (std::uint64_t i = 0; i < draws && !HasFailure(); ++i) {
    const Products products{kWeights[draw(std::ssize(kWeights))],
                            kDequantised[draw(std::ssize(kDequantised))],
                            DType::f32,
                            kActivations[draw(std::ssize(kActivations))],
                            1 + draw(6),
                            draw(2) == 0 ? 32 << draw(2) : 2 + draw(150)};
    const std::int64_t rows = draw(2) == 0 ? many : 1 + draw(4);
    const std::int64_t columns = rows == many ? 1 + draw(4) : many;
    const std::vector<HostArray> inputs = draw_inputs(products, rows, columns);
    const bool more_weights = rows * bits(products.weights) >= columns * bits(products.activations);
    const ElementPlaces weights = draw_places(3, more_weights);
    const ElementPlaces activations = draw_places(4, !more_weights);
    std::vector<HostArray> own = inputs;
    own[0] = at_places(inputs[0], weights);
    own[1] = at_places(inputs[1], activations);
    const Dims shape = {columns, rows, 1, 1};
    expect_same(run_alone(products.text(), own, shape), run_alone(products.text(), inputs, shape),
                fmt::format("{}, {} rows, {} columns: weights in {}, activations in {}",
                            products.description(), rows, columns, describe(weights),
                            describe(activations)));
  }
}

// Long rows, of which a thread has several turns, and such as fill a device with fewer threads.
TEST_P(ProductBits, DoNotShowThatAMatrixIsTransposed) {
  const bool emulated = GetParam() == DeviceType::hip;
  testing::Share share(GetParam(), 8, testing::random_seed());
  for (const Products& products :
       {Products{DType::bf16, Dequantised::plain, DType::f32, DType::bf16, 1, 4'104},
        Products{DType::f32, Dequantised::plain, DType::f32, DType::bf16, 1, 1'032},
        Products{DType::f8e4m3, Dequantised::scaled, DType::f32, DType::f16, 40, 128},
        Products{DType::i8, Dequantised::bias, DType::bf16, DType::bf16, 20, 64},
        Products{DType::u4, Dequantised::zero_point, DType::bf16, DType::f32, 36, 64}}) {
    for (const std::int64_t rows :
         {63, 20, 64, emulated ? 62 : 9'000, GetParam() == DeviceType::cuda ? 9'216 : 80}) {
      if (!share.next()) continue;
      const std::int64_t columns = rows == 20 ? 6 : rows == 64 ? 3 : 1;
      const std::vector<HostArray> inputs = draw_inputs(products, rows, columns);
      std::vector<HostArray> own = inputs;
      own[0] = at_places(inputs[0], {{1, 2, 0}, {0, 0, 0}});
      const HostArray want = run_alone(products.text(), inputs, {columns, rows, 1, 1});
      expect_same(run_alone(products.text(), own, {columns, rows, 1, 1}), want,
                  fmt::format("{}: {} rows, {} columns", products.description(), rows, columns));
    }
  }
}

// Few rows of more elements than a Program leaves whole otherwise.
TEST_P(ProductBits, DoNotShowThatAProgramComputesThem) {
  if (GetParam() == DeviceType::hip) GTEST_SKIP() << "too many elements to emulate";
  for (const auto& [weights, activations] : {std::pair(DType::i8, DType::bf16),
                                             {DType::f8e4m3, DType::bf16},
                                             {DType::i8, DType::f32},
                                             {DType::bf16, DType::bf16}}) {
    const Products products{weights, Dequantised::plain, DType::f32, activations, 1, 140'000};
    for (const bool across : {false, true}) {
      std::vector<HostArray> inputs = draw_inputs(products, 6, 2);
      if (across) inputs[0] = at_places(inputs[0], {{1, 2, 0}, {0, 0, 0}});
      const HostArray want = run_alone(products.text(), inputs, {2, 6, 1, 1});
      const HostArray got = run(parse_program("beside", products.text()), inputs,
                                {HostArray::contiguous(DType::f32, {2, 6, 1, 1})}, false)[0];
      expect_same(got, want, products.description());
    }
  }
}

template <class T>
std::vector<T> terms_of(const HostArray& w, const HostArray& x, std::int64_t row,
                        std::int64_t column) {
  const std::int64_t length = w.shape[1];
  std::vector<T> terms;
  for (std::int64_t i = 0; i < length; ++i) {
    terms.push_back(static_cast<T>(testing::number_at(w, row * length + i)) *
                    static_cast<T>(testing::number_at(x, column * length + i)));
  }
  return terms;
}

// Weights of more than 8 bits: whatever the number of rows and columns, so that a row by itself has
// the same bits, and on every device.
TEST_P(ProductBits, OfWideWeightsFollowTheTree) {
  struct Case {
    DType dtype;
    std::int64_t length;
    std::int64_t rows;
    std::initializer_list<std::int64_t> columns;
  };
  const bool emulated = GetParam() == DeviceType::hip;
  testing::Share share(GetParam(), 6, testing::random_seed());
  for (const auto& [dtype, length, rows, columns] :
       {Case{DType::bf16, 1'001, 5, {1, 3}}, Case{DType::f32, 4'097, 5, {1, 3}},
        Case{DType::bf16, 2'018, 5, {1, 3}}, Case{DType::f32, 1'004, 5, {1, 3}},
        Case{DType::f64, 1'000, 5, {1, 3}}, Case{DType::bf16, 4'096, 40, {1, 2, 4, 8}},
        Case{DType::f16, 576, 64, {1, 3, 5}}, Case{DType::f16, 14'336, 9, {1, 2, 7}},
        Case{DType::f32, 32'768, 4, {1, 4}}, Case{DType::bf16, 64, 200, {1, 8}},
        Case{DType::f32, 48, 33, {2, 6}}, Case{DType::f32, 4, 100, {1, 2}},
        Case{DType::bf16, 40'960, 6, {1, 3}}, Case{DType::f32, 2'304, 3'000, {1, 2, 8}}}) {
    for (const std::int64_t count : columns) {
      for (const bool across : {false, true}) {
        if (!share.next() || (emulated && rows * length * count > 400'000)) continue;
        const HostArray w = testing::random_array(dtype, {rows, length}, 1);
        const HostArray x = testing::random_array(dtype, {count, 1, length}, 2);
        std::vector<HostArray> outputs = {
            HostArray::contiguous(dtype == DType::f64 ? dtype : DType::f32, {count, rows, 1})};
        run_on(device(), parse("beside", "w = w; x = x; sum(w * x, -1)"),
               {across ? at_places(w, {{1, 0}, {0, 0}}) : w, x}, outputs);
        std::int64_t different = 0;
        for (std::int64_t at = 0; at<rows * count; at += rows> 1'000 ? 97 : 1) {
          const auto same = [&]<class T>(T zero) {
            const T want = fusion::reference::reduce_in_tree(
                terms_of<T>(w, x, at % rows, at / rows), zero, std::plus<>());
            different += testing::number_at(outputs[0], at) == static_cast<double>(want) ? 0 : 1;
          };
          if (dtype == DType::f64) {
            same(0.0);
          } else {
            same(0.0f);
          }
        }
        EXPECT_EQ(different, 0) << name(dtype) << "[" << rows << "," << length << "], " << count
                                << " columns" << (across ? ", transposed" : "");
      }
    }
  }
}

// Terms that add products, which are exact, to each other: a row among others and by itself.
TEST_P(ProductBits, OfTermsThatAddProducts) {
  for (const DType weights : {DType::f16, DType::i8}) {
    const DType vectors = weights == DType::f16 ? DType::f16 : DType::bf16;
    std::vector<HostArray> inputs;
    for (const unsigned i : {0u, 1u}) {
      inputs.push_back(testing::random_array(weights, {40, 512}, 10 + i));
      inputs.push_back(testing::random_array(vectors, {512}, 20 + i));
    }
    const std::string text =
        "w = w; x = x; v = v; y = y; sum(f32(w) * f32(x) + f32(v) * f32(y), -1)";
    const HostArray whole = run_alone(text, inputs, {40, 1});
    std::vector<HostArray> own = inputs;
    for (const std::size_t i : {0u, 2u}) own[i] = part_of(own[i], 0, 30, 10);
    expect_same(run_alone(text, own, {10, 1}), part_of(whole, 0, 30, 10),
                std::string(name(weights)));
    const HostArray want = testing::reference_of(text, inputs)[0];
    for (std::int64_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(testing::number_at(whole, i), testing::number_at(want, i), 0.05) << name(weights);
    }
  }
}

// Packed numbers that all of a row share, of rows that are no products of the tree for their
// length.
TEST_P(ProductBits, OfLongRowsWithOnePackedScale) {
  for (const std::int64_t length : {10'240, 40'960}) {
    if (GetParam() == DeviceType::hip && length > 16'384) continue;
    const std::vector<HostArray> inputs = {testing::random_array(DType::bf16, {6, length}, 1),
                                           testing::random_array(DType::u4, {6, 1}, 2),
                                           testing::random_array(DType::bf16, {length}, 3)};
    const HostArray got = run_alone("w = w; s = s; x = x; sum(w * f32(s) * x, -1)", inputs, {6, 1});
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isfinite(testing::number_at(got, i)));
  }
}

// As many sums as one kernel has.
TEST_P(ProductBits, DoNotShowOtherSums) {
  constexpr int kSums = 12;
  const std::int64_t columns = GetParam() == DeviceType::hip ? 3 : 8;
  for (const bool across : {false, true}) {
    std::string text = "x = x; ";
    std::vector<HostArray> inputs = {testing::random_array(DType::bf16, {columns, 1, 600}, 1)};
    for (int i = 0; i < kSums; ++i) {
      text += fmt::format("{}sum(w{} * x, -1)", i == 0 ? "" : ", ", i);
      inputs.push_back(testing::random_array(DType::f32, {40, 600}, static_cast<unsigned>(i + 2)));
      if (across) inputs.back() = at_places(inputs.back(), {{1, 0}, {0, 0}});
    }
    std::vector<HostArray> outputs(kSums, HostArray::contiguous(DType::f32, {columns, 40, 1}));
    run_on(device(), parse("beside", text), inputs, outputs);
    for (const std::size_t i : {0u, 5u, 11u}) {
      expect_same(outputs[i],
                  run_alone("x = x; sum(w * x, -1)", {inputs[0], inputs[i + 1]}, {columns, 40, 1}),
                  fmt::format("sum {} of {}{}", i, kSums, across ? ", transposed" : ""));
    }
  }
}

// Sums of two dtypes have shared memory of their own each, for which there must be room.
TEST_P(ProductBits, DoNotShowSumsOfOtherDtypes) {
  const std::int64_t rows = GetParam() == DeviceType::hip ? 512 : 32'768;
  const HostArray w =
      at_places(testing::random_array(DType::bf16, {rows, 64}, 1), {{1, 0}, {0, 0}});
  const HostArray x = testing::random_array(DType::bf16, {8, 1, 64}, 2);
  std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {8, rows, 1}),
                                    HostArray::contiguous(DType::f64, {8, rows, 1})};
  run_on(device(), parse("beside", "sum(w * x, -1), sum(f64(w) * f64(x), -1)"), {w, x}, outputs);
  expect_same(outputs[0], run_alone("sum(w * x, -1)", {w, x}, {8, rows, 1}), "f32 beside f64");
}

// What is computed of products in f64, and where each operation rounds.
TEST_P(ProductBits, DoNotShowWhereElementsLieInOtherProducts) {
  struct Other {
    std::string text;
    DType dtype;
    Rounding rounding;
    std::int64_t groups;
    std::int64_t size;
  };
  testing::Share share(GetParam(), 4, testing::random_seed());
  for (const Other& other :
       {Other{"sum(w * x, -1, -2)", DType::f64, Rounding::once, 2, 300},
        Other{"sum(w * x, -1, -2)", DType::f32, Rounding::each, 3, 12},
        Other{"sum(w * x, -1, -2)", DType::f16, Rounding::each, 2, 48},
        Other{"max(w + x, -1, -2), sum(w * x, -1, -2)", DType::f32, Rounding::once, 4, 20},
        Other{"sum(w * w * x, -1, -2)", DType::f32, Rounding::once, 7, 9}}) {
    if (!share.next()) continue;
    const auto run = [&](const HostArray& w, const HostArray& x) {
      Options options;
      options.rounding = other.rounding;
      const Function function = parse("beside", "w = w; x = x; " + other.text, options);
      std::vector<HostArray> outputs(other.text.starts_with("max") ? 2 : 1,
                                     HostArray::contiguous(other.dtype, {3, 40, 1, 1}));
      run_on(device(), function, {w, x}, outputs);
      return outputs.back();
    };
    const HostArray w = testing::random_array(other.dtype, {40, other.groups, other.size}, 1);
    const HostArray x = testing::random_array(other.dtype, {3, 1, other.groups, other.size}, 2);
    const HostArray want = run(w, x);
    for (const ElementPlaces& places :
         {ElementPlaces{{0, 1, 2, 3}, {0, 0, 0, 2}}, ElementPlaces{{3, 2, 1, 0}, {0, 0, 0, 0}, 1},
          ElementPlaces{{0, 1, 2, 3}, {1, 0, 3, 0}, 1}}) {
      expect_same(run(w, at_places(x, places)), want,
                  fmt::format("{}, x in {}", other.text, describe(places)));
    }
    for (const ElementPlaces& places :
         {ElementPlaces{{0, 1, 2}, {0, 1, 0}, 1}, ElementPlaces{{1, 0, 2}, {1, 8, 0}},
          ElementPlaces{{1, 2, 0}, {0, 0, 0}}}) {
      expect_same(run(at_places(w, places), x), want,
                  fmt::format("{}, w in {}", other.text, describe(places)));
    }
  }
}

// A result that is not finite is computed again, others beside it are not.
TEST_P(ProductBits, DoNotShowInfinitiesBeside) {
  for (const DType activations : {DType::f32, DType::bf16}) {
    const Products products{DType::u4, Dequantised::zero_point, DType::f32, activations, 4, 64};
    std::vector<HostArray> inputs = draw_inputs(products, 40, 8);
    const HostArray whole = part(products, inputs, 0, 40, 0, 8);
    for (const auto& [columns, transposed] :
         {std::pair(1, false), {4, false}, {1, true}, {4, true}}) {
      std::vector<HostArray> own = inputs;
      own[1] = part_of(own[1], 0, 0, columns);
      if (transposed) own[0] = at_places(own[0], {{1, 2, 0}, {0, 0, 0}});
      set_bits(own[1], 5, testing::bits_of(INFINITY, activations));         // of column 0
      set_bits(own[2], 4 * 6 + 1, testing::bits_of(INFINITY, DType::f32));  // of row 6
      HostArray got = run_alone(products.text(), own, {columns, 40, 1, 1});
      HostArray want = part_of(whole, 0, 0, columns);
      for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t row = 0; row < 40; ++row) {
          const std::int64_t at = column * 40 + row;
          if (column != 0 && row != 6) continue;
          EXPECT_FALSE(std::isfinite(testing::number_at(got, at)));
          set_bits(got, at, 0);
          set_bits(want, at, 0);
        }
      }
      expect_same(got, want,
                  fmt::format("{}, {} columns{}", name(activations), columns,
                              transposed ? ", transposed" : ""));
    }
  }
}

// Rows whose sums of groups are not finite, but which are: they are added up again in one order.
TEST_P(ProductBits, DoNotShowRowsBesideWhatIsAddedAgain) {
  for (const std::int64_t groups : {4, 32}) {
    const Products products{DType::u8, Dequantised::bias, DType::f32, DType::bf16, groups, 64};
    std::vector<HostArray> inputs = draw_inputs(products, 100, 8);
    // A scale for which a zero point's term overflows.
    for (std::int64_t row = 0; row < 100; ++row) {
      set_bits(inputs[2], row * groups + 1, testing::bits_of(3e36, DType::f32));
      set_bits(inputs[3], row * groups + 1, testing::bits_of(-3e38, DType::f32));
    }
    const HostArray whole = part(products, inputs, 0, 100, 0, 8);
    for (const std::int64_t count : {1, 3, 40}) {
      expect_same(part(products, inputs, 100 - count, count, 0, 8),
                  part_of(whole, 1, 100 - count, count), fmt::format("{} rows", count));
    }
    for (const std::int64_t count : {1, 2, 4}) {
      expect_same(part(products, inputs, 0, 100, 0, count), part_of(whole, 0, 0, count),
                  fmt::format("{} columns", count));
    }
  }
}

}  // namespace
}  // namespace kiln
