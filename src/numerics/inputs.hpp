// What a function is tried on: every number of a dtype where there are few enough, else a stride
// through them with the boundaries, or all pairs and triples of a set. Numbers are bits of the
// dtype.
#pragma once

#include <cstdint>
#include <vector>

#include "kiln/dtype.hpp"

namespace kiln::numerics {

/// Operands by index: a sequence for functions of one argument, all tuples of a set for others.
class Inputs {
 public:
  /// Every number of a 16-bit or 32-bit dtype.
  static Inputs all(DType dtype);
  /// Every `stride`-th number of a 16-bit or 32-bit dtype, then `others`.
  static Inputs every(DType dtype, std::uint64_t stride, std::vector<std::uint64_t> others);
  /// Just these.
  static Inputs list(std::vector<std::uint64_t> values);
  /// Every tuple of `arity` numbers of the set.
  static Inputs tuples(std::vector<std::uint64_t> set, int arity);

  std::uint64_t count() const { return count_; }
  std::uint64_t operand(int position, std::uint64_t index) const;
  /// Whether there is no number that it leaves out.
  bool complete() const { return complete_; }

 private:
  std::vector<std::uint64_t> values_;
  std::uint64_t stride_ = 1;
  std::uint64_t swept_ = 0;  ///< indices that stand for a stride's numbers; the rest for values_
  std::uint64_t count_ = 0;
  int arity_ = 1;
  bool complete_ = false;
};

/// Exactly `count` different numbers: zeros, infinities and NaN, small integers and halves, powers
/// of two with both neighbours (thinned where they are too many), the ends of the ranges, then
/// random ones, of which half are of moderate size. Of c64: all pairs of the first of such f32,
/// then numbers around the unit circle and random pairs.
std::vector<std::uint64_t> sample(DType dtype, std::size_t count);

}  // namespace kiln::numerics
