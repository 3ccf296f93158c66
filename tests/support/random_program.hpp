// Random programs for the property tests: elementwise ops over mixed dtypes, broadcasts, reductions
// and what is composed of them, running results, counts, random numbers, shape ops, several
// outputs. Numbers stay moderate, so that a float result has an error bound (enclosure.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "fusion/graph/graph.hpp"
#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln::testing {

struct RandomProgram {
  fusion::Graph graph;
  std::vector<DType> dtypes;  ///< of the arguments
  std::vector<Dims> shapes;
};

/// What may be drawn.
struct ProgramKind {
  std::size_t nodes = 20;      ///< operations, or some more
  bool floats = true;          ///< else integers and bools alone: every result is exact
  bool views = true;           ///< shape ops
  std::size_t elements = 400;  ///< of the arguments; results have up to twice as many
  bool empty = true;           ///< there may be axes without elements
  bool whole = false;          ///< what nobody reads is an output too: nothing is dead
  bool packed = false;         ///< mostly arguments of four bits, and more running results
};

/// Equal seeds give equal programs.
RandomProgram random_program(std::uint64_t seed, const ProgramKind& kind);

}  // namespace kiln::testing
