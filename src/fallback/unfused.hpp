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

/// How many elements a value has in a block of rows. A kernel that works element by element has a
/// row for each element.
enum class Extent : std::uint8_t {
  full,   ///< whole rows
  row,    ///< one for each row
  split,  ///< one for each split of each row: partial results of a split reduction
};

/// A value in C order. Elements of four bits have a byte each.
struct Register {
  int bytes = 4;  ///< of an element
  Extent extent = Extent::full;
  std::size_t slot = 0;  ///< registers that are not alive together share one
};

struct Instruction {
  enum class Kind : std::uint8_t {
    load,     ///< from an operand
    store,    ///< to an operand
    index,    ///< the values of an iota operand, in i64
    fill,     ///< every element is `bits`
    expand,   ///< one element for each row becomes one for each of the row's
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
  std::size_t operand = 0;  ///< of KernelSpec::operands: of load, store and index
  std::uint64_t bits = 0;   ///< of fill
};

struct Unfused {
  std::vector<Instruction> instructions;  ///< stores come last
  std::vector<Register> registers;
  std::vector<Register> slots;  ///< the memory of registers
  std::int64_t rows = 0;
  std::int64_t length = 1;            ///< of a row
  std::int64_t splits = 1;            ///< of a row
  std::vector<std::size_t> row_axes;  ///< of the kernel's space, in order
  std::vector<std::size_t> own_axes;  ///< along which rows go, in order

  /// The elements of so many rows.
  std::int64_t count(Extent extent, std::int64_t of_rows) const {
    return extent == Extent::full ? of_rows * length
                                  : of_rows * (extent == Extent::split ? splits : 1);
  }
};

/// The operations of a kernel. `scalars` has the call's number for each argument of the function
/// that is one. Throws Error(invalid_argument) for a number that does not fit.
Unfused unfuse(const KernelSpec& spec, std::span<const Scalar> scalars);

}  // namespace kiln
