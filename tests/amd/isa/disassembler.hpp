// The disassembly of code objects in this process, for those who have no compile service.
#pragma once

#include <string>

#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

/// The libamd_comgr that belongs to the hiprtc that kiln prefers; empty if there is none.
std::string find_comgr();

/// By that library; throws kiln::Error if there is none.
Disassembler comgr_disassembler();

}  // namespace kiln::amd
