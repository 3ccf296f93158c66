// The disassembly of code objects in this process, for those who have no compile service.
#pragma once

#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

/// By the libamd_comgr that the loader finds, whatever its release; it throws kiln::Error if there
/// is none.
Disassembler comgr_disassembler();

}  // namespace kiln::amd
