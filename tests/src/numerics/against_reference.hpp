// Results of kernels on special values and random numbers, and what the reference interpreter gives
// for them.
#pragma once

#include <cstdint>
#include <vector>

#include "fusion/graph/op.hpp"
#include "kiln/function.hpp"
#include "tests/support/devices.hpp"

namespace kiln::testing {

/// So many elements pair each of 30 special values (zeros, infinities, NaN, subnormals, extremes)
/// of one operand with each of the others.
inline constexpr std::int64_t kSpecialPairs = 900;

/// Operands of that many elements: special pairs, then random numbers.
std::vector<HostArray> special_inputs(DType dtype, std::size_t arity, std::int64_t elements);

/// What the function gives exactly: floats unrounded in f64, everything else in its own dtype.
std::vector<HostArray> reference_results(const Function& function,
                                         const std::vector<HostArray>& inputs,
                                         const std::vector<DType>& dtypes, Rounding rounding);

/// Of one op, from the element `first` on. Reports a few.
void expect_results(const fusion::OpInfo& op, const std::vector<HostArray>& inputs,
                    const HostArray& got, const HostArray& exact, std::int64_t first,
                    Accuracy accuracy, Device device);

}  // namespace kiln::testing
