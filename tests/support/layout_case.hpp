// Random calls for the property test of layouts: an expression, its operands' dtypes, shapes and
// strides. Drawn here, run and judged in the test. Everything about a case follows from one number.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/extract.hpp"
#include "fusion/text/text.hpp"
#include "kiln/view.hpp"

namespace kiln::testing {

/// A function to be called: its text, and the dtypes of its arguments in order of first use and of
/// its outputs. Values are small halves, which make all of its arithmetic exact, unless `ulps` is
/// not 0: then that many units in the last place are allowed. Integers have any bits.
struct Recipe {
  std::string expression;
  std::vector<DType> inputs;
  std::vector<DType> outputs;
  double ulps = 0;
};

inline std::vector<Recipe> chosen_recipes() {
  using enum DType;
  return {
      {"a", {u8}, {u8}},
      {"a + b", {f32, f32}, {f32}},
      {"a * b + c", {bf16, bf16, f32}, {f32}},
      {"a + b", {f16, bf16}, {f32}},
      {"where(m, a, b)", {boolean, f32, f32}, {f32}},
      {"a, b", {u16, i64}, {u16, i64}},
      {"a + b, a * 2", {f32, f32}, {f32, f32}},
      {"a > b", {f32, f32}, {boolean}},
      {"a & b | c", {u32, u32, u32}, {u32}},
      {"i8(a) + b", {f32, i8}, {i8}},
      {"a + b", {c64, c64}, {c64}},
      {"f64(a) + b", {f32, f64}, {f64}},
      {"maximum(a, b), minimum(a, b)", {i16, i16}, {i16, i32}},
      {"a + b - c + d - e", {f32, f32, f32, f32, f32}, {f32}},
      {"relu(a)", {f16}, {f16}},
      {"clip(a, -1, 1) + b", {bf16, bf16}, {bf16}},
      {"a - b", {i64, i64}, {i64}},
      {"a << 2 ^ b", {u64, u64}, {u64}},
      {"silu(a) * b", {bf16, bf16}, {bf16}, 1},
      {"silu(a) * b", {f32, f32}, {f32}, 16},
      {"a + b, b * 2, a > 1", {f32, f16}, {f32, f16, boolean}},
      {"a + b", {f8e4m3, bf16}, {bf16}},
      {"a", {f32}, {bf16}},
      {"round(a * 0.5)", {f32}, {f32}},
      {"a * 2", {u8}, {u16}},
      {"a, a", {f64}, {f64, f32}},
      {"q * s + z", {u4, bf16, bf16}, {bf16}},
      {"a", {i4}, {i8}},
  };
}

/// A few operations on numbers of any dtype, which are computed as f32 or i32, and results of any
/// dtype.
inline Recipe drawn_recipe(std::mt19937_64& random) {
  const auto below = [&](std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
  };
  const bool integers = below(3) == 0;
  const auto dtype_of = [&](bool result) {
    while (true) {
      const auto dtype = static_cast<DType>(below(kDTypes.size()));
      const bool whole = is_integer(dtype) || dtype == DType::boolean;
      // All bits of an integer are drawn, more than an f32 holds.
      if (integers ? whole : result || is_floating(dtype)) return dtype;
    }
  };
  Recipe recipe;
  std::vector<std::string> values;
  const std::size_t inputs = 1 + below(4);
  for (std::size_t i = 0; i < inputs; ++i) {
    recipe.inputs.push_back(dtype_of(false));
    values.push_back(fmt::format("{}({})", integers ? "i32" : "f32", static_cast<char>('a' + i)));
  }
  static constexpr std::array<std::string_view, 6> kOfNumbers = {
      "({} + {})", "({} - {})", "maximum({}, {})", "minimum({}, {})", "({} * 2 - {})", "({} * {})"};
  static constexpr std::array<std::string_view, 3> kOfBits = {"({} & {})", "({} ^ {})",
                                                              "({} | {})"};
  // In order, so that the arguments are named as they come.
  std::string value = values[0];
  for (std::size_t i = 1; i < std::max<std::size_t>(inputs, 2); ++i) {
    const std::size_t which = below(integers ? 9 : 6);
    const std::string_view form = which < 6 ? kOfNumbers[which] : kOfBits[which - 6];
    value = fmt::format(fmt::runtime(form), value, values[i % inputs]);
    if (below(4) == 0) value = fmt::format("where({} > {}, {}, 1)", value, values[0], values[0]);
  }
  const std::size_t outputs = 1 + below(2);
  for (std::size_t i = 0; i < outputs; ++i) {
    recipe.outputs.push_back(dtype_of(true));
    recipe.expression += fmt::format("{}{}({}{})", i == 0 ? "" : ", ", name(recipe.outputs[i]),
                                     value, i == 0 ? "" : " + 1");
  }
  return recipe;
}

/// Those, and as many again that follow from the seed.
inline std::vector<Recipe> recipes(std::uint64_t seed) {
  std::vector<Recipe> all = chosen_recipes();
  std::mt19937_64 random(seed);
  for (std::size_t i = all.size(); i > 0; --i) all.push_back(drawn_recipe(random));
  return all;
}

/// One array of a case: where its elements are, counted from the first one in memory.
struct CaseOperand {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  bool at_end = false;     ///< of its memory, else at the start
  std::int64_t shift = 0;  ///< elements between it and that end
  int same_as = -1;        ///< of an output: the input whose view it is

  std::int64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  /// The element (0, 0, ...), counted from the first one in memory; even where two share a byte.
  std::int64_t first() const {
    std::int64_t low = 0;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      if (shape[k] > 1 && strides[k] < 0) low -= strides[k] * (shape[k] - 1);
    }
    return bits(dtype) < 8 ? (low + 1) / 2 * 2 : low;
  }
  std::size_t bytes() const {
    if (elements() == 0) return 0;
    std::int64_t high = first();
    for (std::size_t k = 0; k < shape.size(); ++k) {
      if (strides[k] > 0) high += strides[k] * (shape[k] - 1);
    }
    return static_cast<std::size_t>(((high + 1) * bits(dtype) + 7) / 8);
  }
};

struct Case {
  Recipe recipe;
  std::vector<CaseOperand> inputs;
  std::vector<CaseOperand> outputs;
};

inline std::string describe(const Case& item) {
  std::string text = item.recipe.expression;
  const auto add = [&](const CaseOperand& operand, std::string_view what, std::size_t index) {
    text +=
        fmt::format("\n  {} {}: {}{} strides {}, {} from the {}", what, index, name(operand.dtype),
                    fusion::to_string(operand.shape), fusion::to_string(operand.strides),
                    operand.shift, operand.at_end ? "end" : "start");
    if (operand.same_as >= 0) text += fmt::format(", in place of input {}", operand.same_as);
  };
  for (std::size_t i = 0; i < item.inputs.size(); ++i) add(item.inputs[i], "input", i);
  for (std::size_t i = 0; i < item.outputs.size(); ++i) add(item.outputs[i], "output", i);
  return text;
}

/// Draws a case. Axes come in a few groups in which every operand is one longer axis, so that
/// layouts of any rank collapse onto few variants of a kernel; one case in eight has free strides.
class CaseDraw {
 public:
  CaseDraw(std::uint64_t seed, std::uint64_t number) {
    std::seed_seq sequence{seed, seed >> 32, number, number >> 32};
    random_.seed(sequence);
  }

  Case draw(const std::vector<Recipe>& recipes) {
    Case item;
    item.recipe = recipes[below(recipes.size())];
    const Recipe& recipe = item.recipe;
    draw_groups();
    const bool free = one_in(8);
    output_order_ = order(3);
    for (const DType dtype : recipe.inputs) {
      CaseOperand input = operand(dtype, kept_groups(), one_in(4) ? order(2) : output_order_);
      if (free) free_strides(input);
      if (one_in(4)) drop_leading(input, leading_ones(input));
      item.inputs.push_back(std::move(input));
    }
    const fusion::Graph graph = fusion::parse(recipe.expression);
    for (std::size_t i = 0; i < recipe.outputs.size(); ++i) {
      item.outputs.push_back(output(item, graph, i));
    }
    return item;
  }

 private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  bool one_in(std::size_t n) { return below(n) == 0; }

  // The axes of the call and to which group each belongs; as many elements as a test can afford.
  void draw_groups() {
    static constexpr std::array<std::int64_t, 32> kSizes = {
        1,  1,  2,  2,  3,  3,  4,  5,  7,  8,  9,   11,  13,  15,  16,   17,
        19, 23, 31, 32, 33, 61, 63, 64, 65, 67, 127, 128, 129, 257, 1021, 1025};
    const std::size_t rank = one_in(3) ? below(9) : below(5);
    const std::size_t groups = 1 + below(one_in(5) ? 4 : 3);
    const std::int64_t most = one_in(25) ? 40'000 : one_in(3) ? 4'000 : 600;
    shape_ = Dims(rank);
    group_.assign(rank, 0);
    std::int64_t total = 1;
    for (std::size_t k = 0; k < rank; ++k) {
      std::int64_t size = kSizes[below(kSizes.size())];
      while (total * size > most) size = size / 2;
      shape_[k] = one_in(120) ? 0 : std::max<std::int64_t>(size, 1);
      total *= std::max<std::int64_t>(shape_[k], 1);
      group_[k] = below(groups);
    }
    std::ranges::sort(group_);
    group_count_ = groups;
  }

  // Which groups an input moves along; along the others it repeats.
  std::vector<bool> kept_groups() {
    std::vector<bool> kept(group_count_);
    const bool whole = one_in(2);
    for (std::size_t g = 0; g < group_count_; ++g) kept[g] = whole || !one_in(3);
    return kept;
  }

  // The groups from the innermost in memory to the outermost: as in the shape, or in one of n - 1
  // cases any other way.
  std::vector<std::size_t> order(std::size_t n) {
    std::vector<std::size_t> result(group_count_);
    for (std::size_t g = 0; g < group_count_; ++g) result[g] = group_count_ - 1 - g;
    if (one_in(n)) std::ranges::shuffle(result, random_);
    return result;
  }

  // An array that is one longer axis in every group, with steps and gaps of its own between them.
  CaseOperand operand(DType dtype, const std::vector<bool>& kept,
                      const std::vector<std::size_t>& order) {
    CaseOperand result;
    result.dtype = dtype;
    result.shape = shape_;
    result.strides = Dims(shape_.size(), 0);
    result.at_end = one_in(2);
    static constexpr std::array<std::int64_t, 6> kShifts = {0, 0, 0, 1, 3, 8};
    result.shift = bits(dtype) < 8 ? 0 : kShifts[below(kShifts.size())];
    std::int64_t step = one_in(8) ? 1 + static_cast<std::int64_t>(below(3)) : 1;
    for (const std::size_t g : order) {
      const bool explicit_zero = one_in(3);
      const bool backwards = one_in(10);
      for (std::size_t k = shape_.size(); k-- > 0;) {
        if (group_[k] != g) continue;
        if (!kept[g]) {
          if (!explicit_zero) result.shape[k] = 1;
          // The stride of an axis of one element means nothing.
          if (result.shape[k] == 1) result.strides[k] = static_cast<std::int64_t>(below(9)) - 4;
          continue;
        }
        result.strides[k] = backwards ? -step : step;
        step *= std::max<std::int64_t>(shape_[k], 1);
      }
      static constexpr std::array<std::int64_t, 6> kGaps = {1, 2, 4, 8, 16, 32};
      if (kept[g] && one_in(4)) step += kGaps[below(kGaps.size())];
    }
    return result;
  }

  // Any strides at all, as windows that slide over a signal have.
  void free_strides(CaseOperand& operand) {
    for (std::int64_t& stride : operand.strides) stride = static_cast<std::int64_t>(below(12)) - 4;
  }

  static std::size_t leading_ones(const CaseOperand& operand) {
    std::size_t ones = 0;
    while (ones < operand.shape.size() && operand.shape[ones] == 1) ++ones;
    return ones;
  }

  static void drop_leading(CaseOperand& operand, std::size_t ones) {
    operand.shape = Dims(std::span<const std::int64_t>(operand.shape).subspan(ones));
    operand.strides = Dims(std::span<const std::int64_t>(operand.strides).subspan(ones));
  }

  CaseOperand output(const Case& item, const fusion::Graph& graph, std::size_t index) {
    const std::vector<bool> read = fusion::arguments_of(graph, {&graph.outputs()[index], 1});
    Dims natural;
    for (std::size_t i = 0; i < item.inputs.size(); ++i) {
      if (read[i]) natural = *fusion::broadcast(natural, item.inputs[i].shape);
    }
    const DType dtype = item.recipe.outputs[index];
    const int place = in_place(item, natural, dtype);
    if (place >= 0) {
      CaseOperand result = item.inputs[static_cast<std::size_t>(place)];
      result.dtype = dtype;
      result.same_as = place;
      return result;
    }
    CaseOperand result = operand(dtype, std::vector<bool>(group_count_, true), output_order_);
    if (one_in(6)) return result;  // which may be larger than what it repeats
    const std::size_t ones = shape_.size() - natural.size();
    for (std::size_t k = 0; k < shape_.size(); ++k) {
      result.shape[k] = k < ones ? 1 : natural[k - ones];
    }
    if (one_in(2)) drop_leading(result, ones);
    return result;
  }

  // An input of that shape and width whose elements lie apart, if the output is to be in its place;
  // no two outputs are.
  int in_place(const Case& item, const Dims& shape, DType dtype) {
    if (!one_in(6)) return -1;
    for (std::size_t i = 0; i < item.inputs.size(); ++i) {
      const CaseOperand& input = item.inputs[i];
      const bool taken = std::ranges::any_of(item.outputs, [&](const CaseOperand& output) {
        return output.same_as == static_cast<int>(i);
      });
      if (!taken && input.shape == shape && bits(input.dtype) == bits(dtype) && is_apart(input)) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  static bool is_apart(const CaseOperand& operand) {
    std::vector<std::pair<std::int64_t, std::int64_t>> axes;
    for (std::size_t k = 0; k < operand.shape.size(); ++k) {
      if (operand.shape[k] != 1) axes.emplace_back(std::abs(operand.strides[k]), operand.shape[k]);
    }
    std::ranges::sort(axes);
    std::int64_t reach = 1;
    for (const auto& [stride, size] : axes) {
      if (stride < reach) return false;
      reach = stride * size;
    }
    return true;
  }

  std::mt19937_64 random_;
  Dims shape_;
  std::vector<std::size_t> group_;  ///< of each axis
  std::size_t group_count_ = 1;
  std::vector<std::size_t> output_order_;
};

}  // namespace kiln::testing
