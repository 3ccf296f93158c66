// The kernel of a function with places that data says (take and put): its views are placed as those
// of a Program are, and what is left has to fit one kernel.
#pragma once

#include "call/call_types.hpp"
#include "kernel/kernel_spec.hpp"

namespace kiln {

/// The kernel of such a call. Throws Error: invalid_argument for operands that do not fit,
/// unsupported where one kernel cannot compute it.
KernelSpec indexed_spec(const Definition& definition, const CallTypes& types);

}  // namespace kiln
