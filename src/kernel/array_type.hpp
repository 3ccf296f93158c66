// An array of a call without its memory, and what an output's has to be for what it stores.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fusion/schedule/layout.hpp"
#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln {

struct ArrayType {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;                 ///< in elements
  std::uint64_t address = 0;    ///< what alignment is taken from
  std::int64_t offset = 0;      ///< of the first element from the address
  fusion::MemoryPlace place{};  ///< in memory that operands share, if that is known for every call
  fusion::IndexedAxis indexed{};  ///< of an operand at places that data says: `shape` and `strides`
                                  ///< have those places' axes, and no stride along them
};

/// "output 1", "output 0 'y'", for messages.
std::string output_label(std::span<const std::string> names, std::size_t index);

/// Throws Error(invalid_argument) in the name of `function` unless `natural` broadcasts to the
/// output's shape and no two elements of it share memory.
void check_output(std::string_view function, const std::string& label, const ArrayType& output,
                  const Dims& natural);

/// A view over the shape of its value: axes of size one that the view leaves out are put back.
/// Throws Error(invalid_argument) for any other shape.
ArrayType with_kept_axes(std::string_view function, const std::string& label,
                         const ArrayType& output, const Dims& kept);

/// The array over `shape`, to which it broadcasts.
fusion::Operand operand_of(const ArrayType& array, const Dims& shape, bool output);

}  // namespace kiln
