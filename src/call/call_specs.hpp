// From a function and the types of a call to the kernels that compute it: types are inferred and
// shapes checked, and a call whose outputs have several shapes is taken apart, into one kernel for
// each.
#pragma once

#include <span>
#include <vector>

#include "call/call_types.hpp"
#include "kernel/kernel_spec.hpp"

namespace kiln {

/// The kernels of such a call. An output may have its natural shape, which is that of the arguments
/// it depends on broadcast against each other, or any shape that this broadcasts to; axes that are
/// reduced have size one, or are left out. The kernels are in the order in which they must run:
/// larger shapes first, so that an output that is the view of an input is written when nothing
/// reads it any more. Throws Error that names the function and the operand: invalid_argument, or
/// unsupported where one kernel is not enough for outputs of one shape.
std::vector<KernelSpec> call_specs(const Definition& definition, const CallTypes& types);

/// The outputs that such a call would fill, in C order: of their natural shapes broadcast with
/// `at_least`, and of `dtypes`, or of their natural dtypes if there are none.
std::vector<ArrayType> natural_outputs(const Definition& definition, const CallTypes& types,
                                       std::span<const DType> dtypes, const Dims& at_least);

/// Whether one kernel can compute a function that reduces or has running results, and several would
/// not be faster since its passes compute much again.
bool is_one_kernel(const Definition& definition, const CallTypes& types);

}  // namespace kiln
