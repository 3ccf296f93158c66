// AMD's disassembler: the part of libamd_comgr whose interface is the same from release 2.0 on.
#pragma once

#include <string>

#include "jit/compilers/protocol.hpp"

namespace kiln::jit {

/// The instructions of every function in an AMD code object, one a line after its address, under
/// the function's name. Throws Error(not_found) when the library cannot be loaded, CompilerError
/// otherwise.
std::string disassemble_with_comgr(const std::string& comgr, const DisassembleTask& task);

}  // namespace kiln::jit
