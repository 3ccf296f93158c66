// The reference interpreter: evaluates a typed graph one element at a time, floats in f64 or
// better, integers in their own type. It shares no code with emit and the preamble, so that they
// can be compared with it. Slow on purpose.
#pragma once

#include <span>

#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// One operand of a reference evaluation: host memory, strides in elements (of packed u4, i4 and
/// f4e2m1 in half bytes), shape already broadcast against the others by stride 0.
struct ReferenceOperand {
  void* data = nullptr;
  DType dtype = DType::f32;
  Dims strides;
  std::int64_t offset = 0;  ///< in elements, for packed types that start in the middle of a byte
};

/// Evaluates `graph` over `shape`. `arguments` are in the graph's order; a scalar argument's data
/// points to one value of its dtype. Under Rounding::once the chain is exact f64 up to the store.
void evaluate(const TypedGraph& graph, const Dims& shape,
              std::span<const ReferenceOperand> arguments,
              std::span<const ReferenceOperand> outputs);

}  // namespace kiln::fusion
