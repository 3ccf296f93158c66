// Toolchains: which compilers this machine has, what each is for, and what identifies its output.
// Finding them loads nothing into this process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::jit {

enum class ToolchainKind : std::uint8_t { hiprtc, nvrtc, host };
std::string_view name(ToolchainKind kind);

/// A compiler that was found on this machine.
struct Toolchain {
  ToolchainKind kind = ToolchainKind::host;
  std::string path;  ///< of the library or the compiler
  std::string
      version;  ///< for people: "HIP 5.2.21153", "NVRTC 13.0", "Debian clang version 14.0.6"
  std::string identity;  ///< changes whenever its output may; empty if it cannot be established
};

/// The toolchain kind that makes code for `target`: gfx* hiprtc, sm_* nvrtc, else host. Throws
/// Error(invalid_argument) for a target of no known family.
ToolchainKind toolchain_for(std::string_view target);

/// The options kiln passes for `target`, in order. `contract` allows FMA contraction (accuracy
/// fast).
std::vector<std::string> compile_options(std::string_view target, bool contract);

/// The options besides, where a kernel turns out to lack scalar registers and is compiled once
/// more; empty for a target whose compilers need nothing of the kind. LLVM reads some of them once
/// in a process.
std::vector<std::string> scarce_register_options(std::string_view target);

/// The options besides, where a kernel crashes the compiler and is compiled once more; empty for a
/// target where none is known to help. What they make is right like what is made without them.
std::vector<std::string> crash_options(std::string_view target);

/// This CPU as a target: "x86-64:avx,avx2,...", the same on every machine with the same features.
/// The target "cpu" stands for it.
std::string host_target();

/// What was found; the first of a kind is the one that is used. KILN_HIPRTC, KILN_NVRTC and
/// KILN_CXX (a path or name each) choose another. Nothing is loaded into this process.
std::vector<Toolchain> toolchains();
/// The one that is used. Found once; one without an identity is looked for again, not sooner than a
/// second later. Throws Error(not_found) that says which library or package is
/// missing.
Toolchain toolchain(ToolchainKind kind);
/// Whether that, whatever came of it, has been asked before: the first answer may take 100 ms.
bool was_looked_for(ToolchainKind kind);

/// Whether this machine's compilers are to be spared (KILN_COMPILE=remote): they are used for what
/// no compile server gives.
bool compiles_remotely();

/// The environment variables that are set and change what a compiler writes, by name: part of a
/// key. They are read once, and every compile of this process gets them as they were then.
std::vector<std::pair<std::string, std::string>> compiler_environment();

/// The toolchain at that path. Throws Error(not_found) when there is none.
Toolchain toolchain_at(ToolchainKind kind, const std::string& path);

}  // namespace kiln::jit
