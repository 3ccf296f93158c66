// The compile service: source and target in, code object out. The compilers run in worker processes
// (kiln-compile-worker), because hiprtc serialises compiles and aborts its process on a target that
// it does not know; see jit/compile/ for the pool, the protocol and the toolchains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/view.hpp"

namespace kiln::jit {

enum class ToolchainKind : std::uint8_t { hiprtc, nvrtc, host };
std::string_view name(ToolchainKind kind);

/// A compiler that was found on this machine.
struct Toolchain {
  ToolchainKind kind = ToolchainKind::host;
  std::string path;      ///< of the library or the compiler, resolved
  std::string version;   ///< for people: "HIP 5.2.21153", "NVRTC 13.0", "Debian clang 14.0.6"
  std::string identity;  ///< as cache.md defines it; empty if it cannot be established
};

struct CompileRequest {
  std::string function;  ///< for messages
  std::string entry;     ///< module and kernel name
  std::string source;    ///< complete, with the preamble
  std::string target;    ///< "gfx90a:sramecc+:xnack-", "sm_90", "cpu" or a CPU feature set
  std::vector<std::string> options;
  bool background = false;  ///< overtaken by requests that somebody waits for
};

struct CompileResult {
  std::string code;  ///< an ELF image: AMD code object, cubin or shared object
  std::string log;   ///< what the compiler said, warnings included
  double milliseconds = 0;
};

/// The toolchain kind that makes code for `target`: gfx* hiprtc, sm_* nvrtc, else host. Throws
/// Error(invalid_argument) for a target of no known family.
ToolchainKind toolchain_for(std::string_view target);

/// The options kiln passes for `target`, in order. `contract` allows FMA contraction (accuracy fast).
std::vector<std::string> compile_options(std::string_view target, bool contract);

/// What was found; the first of a kind is the one that is used. KILN_HIPRTC, KILN_NVRTC and KILN_CXX
/// (a path each) choose another.
std::vector<Toolchain> toolchains();
/// Throws Error(not_found) that says which library or package is missing.
Toolchain toolchain(ToolchainKind kind);

/// Compiles in a worker. Throws Error(compile_failed) with the function's name, the module's name, the
/// target and the last lines of the compiler's log; Error(unsupported) for a target that the toolchain
/// does not know, which is found out once.
CompileResult compile(const CompileRequest& request);

/// The targets of a list of well-known ones that the toolchain can compile, found by trying in a
/// worker and remembered with the toolchain's identity.
std::vector<std::string> known_targets(ToolchainKind kind);

/// What a code object says about its kernel, read without any tool.
struct Resources {
  std::optional<int> vgprs;    ///< vector registers (AMD), registers per thread (NVIDIA)
  std::optional<int> sgprs;    ///< AMD
  std::optional<int> spills;   ///< AMD: spilled vector and scalar registers
  std::optional<int> scratch;  ///< bytes per thread of private (local) memory
  std::optional<int> lds;      ///< bytes per block of LDS (shared memory)
  std::uint64_t code_bytes = 0;  ///< machine code of the kernel
};
/// Throws Error(invalid_argument) when `code` is not an ELF image; fields it cannot find stay empty.
Resources resources(std::string_view code, std::string_view entry);

/// Disassembles with comgr in a worker, llvm-objdump or objdump, or nvdisasm/cuobjdump. Throws
/// Error(not_found) that names the package that would provide it.
std::string disassemble(std::string_view code, std::string_view target);

}  // namespace kiln::jit
