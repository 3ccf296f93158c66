// A kernel's graph as a list of general operations: what a call is served by until the fused kernel
// is there (OnMiss::fallback). Every value between two of them is stored, in the dtype in which the
// fused kernel computes it, so that what is exact has the same bits. Pure: which kernels do the
// operations, and where their values lie, is in run_unfused.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fusion/graph/op.hpp"
#include "kernel/kernel_spec.hpp"
#include "kiln/function.hpp"

namespace kiln {

/// Which axes a value has beside that of a block of rows, as bits, in C order from `values` to
/// `depth`. A kernel that works element by element has a row for each element. A row of an
/// attention is what its queries, heads and batches have one of; it goes along the keys.
enum class Extent : std::uint8_t {
  row = 0,     ///< none: one element for each row
  full = 1,    ///< along the row
  split = 2,   ///< one for each split of the row: partial results of a split reduction
  values = 4,  ///< of an attention: the elements of its values
  depth = 8,   ///< of an attention: what is summed for each score
};
constexpr Extent operator|(Extent a, Extent b) {
  return static_cast<Extent>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(Extent extent, Extent axis) {
  return (static_cast<unsigned>(extent) & static_cast<unsigned>(axis)) != 0;
}
constexpr Extent without(Extent extent, Extent axis) {
  return static_cast<Extent>(static_cast<unsigned>(extent) & ~static_cast<unsigned>(axis));
}

/// A value in C order. Elements of four bits have a byte each.
struct Register {
  int bytes = 4;  ///< of an element
  Extent extent = Extent::full;
  std::size_t slot = 0;  ///< registers that are not alive together share one
};

struct Instruction {
  enum class Kind : std::uint8_t {
    load,     ///< from an operand, where data says at the places in the second input
    store,    ///< to an operand, where data says at the places in the second input
    index,    ///< the values of an iota operand, in i64, or else places along an axis
    fill,     ///< every element is `bits`
    expand,   ///< a value with more axes, along which it repeats
    convert,  ///< from one dtype to another
    map,      ///< an op element by element
    reduce,   ///< of rows, or of the splits of rows
    scan,     ///< running results along rows
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  Kind kind = Kind::load;
  fusion::Op op = fusion::Op::input;  ///< of map, reduce and scan
  DType from = DType::f32;            ///< what is read: of map, what the op is computed in
  DType to = DType::f32;              ///< what is written
  std::array<std::size_t, 3> inputs = {kNone, kNone, kNone};  ///< registers
  std::size_t output = kNone;                                 ///< a register
  std::size_t operand = 0;       ///< of KernelSpec::operands: of load, store and index, kNone for
                                 ///< places along `axis`
  std::size_t axis = 0;          ///< of the kernel's space
  fusion::IndexedAxis places{};  ///< of load and store with a second input
  std::uint64_t bits = 0;        ///< of fill
};

struct Unfused {
  std::vector<Instruction> instructions;  ///< stores come last
  std::vector<Register> registers;
  std::vector<Register> slots;  ///< the memory of registers
  std::int64_t rows = 0;
  std::int64_t length = 1;            ///< of a row
  std::int64_t splits = 1;            ///< of a row
  std::int64_t values = 1;            ///< of a row: Extent::values
  std::int64_t depth = 1;             ///< of a row: Extent::depth
  std::vector<std::size_t> row_axes;  ///< of the kernel's space, in order
  std::vector<std::size_t> own_axes;  ///< along which rows go, in order
  std::size_t values_axis = 0;        ///< where there are `values`
  std::size_t depth_axis = 0;         ///< and a `depth`

  /// The elements of so many rows.
  std::int64_t count(Extent extent, std::int64_t of_rows) const {
    if (has(extent, Extent::full)) of_rows *= length;
    if (has(extent, Extent::split)) of_rows *= splits;
    if (has(extent, Extent::values)) of_rows *= values;
    return has(extent, Extent::depth) ? of_rows * depth : of_rows;
  }
};

/// The operations of a kernel. `scalars` has the call's number for each argument of the function
/// that is one. Throws Error(invalid_argument) for a number that does not fit.
Unfused unfuse(const KernelSpec& spec, std::span<const Scalar> scalars);

}  // namespace kiln
