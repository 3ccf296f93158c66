// Where compilers lie on this machine: the search for the libraries of HIP and CUDA and for host
// compilers. Files are looked at, nothing is loaded and nothing is started.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/toolchain/toolchain.hpp"

namespace kiln::jit {

/// The compilers of that kind, resolved (no symlinks) and without duplicates, the preferred one
/// first. For HIP that is the one beside the HIP runtime that this process has loaded, if any, then
/// the newest. With KILN_HIPRTC, KILN_NVRTC or KILN_CXX set, only that one; it may be a name to
/// search for.
std::vector<std::string> find_compilers(ToolchainKind kind);

/// The files, resolved, that a compile with the library `path` loads and that decide what comes
/// out: `path` itself, comgr, LLVM, the builtins of hiprtc and NVRTC. Nothing if one of them cannot
/// be found.
std::optional<std::vector<std::string>> libraries_behind(const std::string& path);

/// The comgr library that goes with the hiprtc library `path`, resolved, or nothing.
std::optional<std::string> find_comgr(const std::string& path);

/// `name` on PATH, or `name` itself if it holds a slash and can be executed; not resolved.
std::optional<std::string> find_program(std::string_view name);

/// The release in a library's file name: "5.2.21153" of libamdhip64.so.5.2.21153.
std::string version_in_name(std::string_view path);

/// What to install, for messages.
std::string missing_compiler(ToolchainKind kind);

}  // namespace kiln::jit
