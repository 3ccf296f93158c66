// The disassembly of code objects in this process, for those who have no compile service.
#pragma once

#include <string>

#include "jit/toolchain/find.hpp"
#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

/// The libamd_comgr that belongs to the hiprtc that kiln prefers; empty if there is none.
inline std::string find_comgr() {
  for (const std::string& compiler : jit::find_compilers(jit::ToolchainKind::hiprtc)) {
    if (auto found = jit::find_comgr(compiler)) return *found;
  }
  return {};
}

/// By that library; throws kiln::Error if there is none.
Disassembler comgr_disassembler();

}  // namespace kiln::amd
