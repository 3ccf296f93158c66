// Random programs for the property tests: elementwise ops over mixed dtypes, broadcasts, reductions
// and what is composed of them, running results, counts, random numbers, shape ops, several
// outputs. Numbers stay moderate, so that a float result has an error bound (enclosure.hpp).
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "fusion/graph.hpp"
#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"
#include "tests/support/devices.hpp"

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
};

/// Equal seeds give equal programs.
RandomProgram random_program(std::uint64_t seed, const ProgramKind& kind);

/// In C order, or with its axes in another order, or with room between rows; of zeros.
HostArray with_random_layout(DType dtype, const Dims& shape, std::mt19937_64& random);

/// Arguments of those dtypes and shapes with random layouts and the numbers that the program was
/// drawn for: from -4 to 4, some of them equal; of integers from -9 to 9.
std::vector<HostArray> random_arguments(const RandomProgram& program, std::uint64_t seed);

}  // namespace kiln::testing
