// Whether this process sees emulated AMD GPUs in place of real ones.
#pragma once

#include <string>

#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

/// By KILN_TEST_AMD: `emulated` or `real`. Without it, whether KILN_TEST_AMD_TARGET chooses what to
/// emulate or there is no real one.
bool is_emulating();
/// What went wrong on the emulated GPUs since the last time; empty for nothing.
std::string new_faults();
/// What the launches on them that have run since the last time executed.
Trace take_trace();
/// How many kernels ran and how often; empty if none did.
std::string executed();

}  // namespace kiln::amd
