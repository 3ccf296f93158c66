// A call without its memory: the dtypes and layouts that decide which kernel it needs. What
// Function::prepare and manifests take in place of views.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// What a call would pass for one argument.
struct ArgumentSpec {
  std::string name;  ///< the function's (`argument_names`): in0, in1, ... of a fused callable
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;         ///< in elements; empty: C order
  bool scalar = false;  ///< a number; shape and strides are empty
  bool weak = false;    ///< a number that takes its partner's dtype, as an untyped Scalar does
  std::uint32_t misalignment = 0;  ///< bytes of its address past a multiple of 16; 0 to 15
  std::uint32_t memory = 0;        ///< operands of one number begin in one memory, 0: in any
  std::int64_t element = 0;        ///< then: so many elements into it
};

/// Where an output would be stored.
struct OutputSpec {
  Dims shape;
  Dims strides;
  std::uint32_t misalignment = 0;
  std::uint32_t memory = 0;
  std::int64_t element = 0;
};

struct Specification {
  std::vector<ArgumentSpec>
      arguments;                    ///< in any order; every argument of the function by its name
  std::vector<DType> outputs;       ///< empty: the natural ones
  std::vector<OutputSpec> layouts;  ///< of the outputs; empty: broadcast, C order and aligned
  Dims shape;  ///< without layouts: what the outputs are broadcast with besides the arguments
};

}  // namespace kiln

#pragma GCC visibility pop
