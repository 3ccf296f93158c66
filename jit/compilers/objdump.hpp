// Disassembly by the programs of binutils, LLVM and CUDA: for code objects whose compiler's own
// library cannot do it, or is not on this machine.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "jit/compilers/compiler.hpp"

namespace kiln::jit {

/// What llvm-objdump or objdump (host), llvm-objdump (AMD), nvdisasm or cuobjdump (NVIDIA) print;
/// looked for on PATH, in `directories`, and where ROCm, CUDA and LLVM put them. Throws
/// CompilerError: not_found names the package that has one. `deadline` as run_scrubbed() takes it.
std::string disassemble_with_program(
    const DisassembleTask& task, const std::vector<std::string>& directories = {},
    std::chrono::milliseconds deadline = std::chrono::milliseconds::max());

}  // namespace kiln::jit
