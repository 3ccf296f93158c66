// Arguments of random programs: numbers in arrays with random layouts. The programs themselves are
// drawn in random_program.hpp.
#pragma once

#include <random>
#include <vector>

#include "tests/support/devices.hpp"
#include "tests/support/random_program.hpp"

namespace kiln::testing {

/// In C order, or with its axes in another order, or with room between rows; of zeros.
HostArray with_random_layout(DType dtype, const Dims& shape, std::mt19937_64& random);

/// Arguments of those dtypes and shapes with random layouts and the numbers that the program was
/// drawn for: from -4 to 4, some of them equal; of integers from -9 to 9.
std::vector<HostArray> random_arguments(const RandomProgram& program, std::uint64_t seed);

}  // namespace kiln::testing
