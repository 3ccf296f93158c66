// For which other sizes a kernel's schedule is chosen too, in words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel_spec.hpp"

namespace kiln {

/// The conditions under which a call whose axes have other extents gets the same schedule, as far
/// as its arrays lie as those of `spec` do: what is in C order stays so, other strides and the
/// alignment stay as they are. "axis 0" is that of the kernel's space; axes of one element stay.
/// Empty where it holds for all, or where there is nothing to compute.
std::vector<std::string> schedule_ranges(const KernelSpec& spec, std::string_view target);

}  // namespace kiln
