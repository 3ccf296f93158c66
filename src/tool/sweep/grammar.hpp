// The grammar's vocabulary: what a family of functions is written with. A family is a function that
// draws one function of its kind. Each draw is a statement of its own, since C++ does not say in
// which order a call's arguments are computed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tool/sweep/draw.hpp"

namespace kiln::tool {

/// Random numbers that are the same with every standard library: SplitMix64 (Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// From 0 to `count` - 1, as good as equally often.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }

 private:
  std::uint64_t state_;
};

/// A function while it is drawn: its arguments and statements.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::int64_t below(std::int64_t count) { return random_.below(count); }
  bool chance(int percent) { return below(100) < percent; }
  /// One of them; what is named twice comes twice as often.
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<std::int64_t>(choices.size()))];
  }

  /// A new argument; returns its name.
  std::string argument(std::string_view name, DType dtype, std::vector<std::int64_t> extents,
                       RandomFloats values = RandomFloats::around_zero);
  /// A statement; returns a name for the value of `expression`.
  std::string let(std::string_view name, const std::string& expression);
  /// The outputs: the last statement. Ends the function.
  DrawnFunction finish(const std::vector<std::string>& outputs);

  /// Of activations.
  DType dtype() { return pick({DType::bf16, DType::bf16, DType::bf16, DType::f16, DType::f32}); }
  /// Of weights beside such activations.
  DType weight_dtype(DType activations) { return chance(75) ? activations : DType::f32; }
  /// Of a row: from 64 to 262,144 elements.
  std::int64_t row_length();
  /// Of a row that is taken apart in `parts`.
  std::int64_t divisible_length(std::int64_t parts);

  /// Fewer rows than a GPU has multiprocessors, in some of the draws.
  void maybe_few() {
    if (chance(15)) function_.share = 16;
  }
  /// The free extent is innermost: most arrays have a round number of elements there.
  void free_innermost() {
    if (!chance(20)) function_.multiple = 64;
  }

 private:
  Random random_;
  DrawnFunction function_;
};

using Extents = std::vector<std::int64_t>;

/// An activation of the value of that name, as an expression.
std::string activation(Draw& draw, const std::string& x);

/// One of the steps that stand before or after a norm: a bias, a scale, a gate, a residual, a soft
/// cap, an activation. `x` is a value of the shape `extents`; returns the name of the new value,
/// which `label` numbers.
std::string step(Draw& draw, const std::string& x, DType dtype, const Extents& extents, int label);

/// A float value of that shape that a norm or a quantisation works on: an argument, or the sum of
/// two, or a gated one.
std::string norm_input(Draw& draw, DType dtype, const Extents& extents);

// The families.
DrawnFunction draw_elementwise(Draw& draw);
DrawnFunction draw_rows(Draw& draw);
DrawnFunction draw_columns(Draw& draw);
DrawnFunction draw_statistics(Draw& draw);
DrawnFunction draw_gradients(Draw& draw);
DrawnFunction draw_halves(Draw& draw);
DrawnFunction draw_permutations(Draw& draw);
DrawnFunction draw_quantise(Draw& draw);
DrawnFunction draw_dequantise(Draw& draw);
DrawnFunction draw_images(Draw& draw);
DrawnFunction draw_scans(Draw& draw);
DrawnFunction draw_selections(Draw& draw);

}  // namespace kiln::tool
