// The CPU's feature set as a compile target, "x86-64:avx,avx2,...": the same text on every machine
// with the same features, so that a cache directory may be shared between machines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::jit {

/// Whether `target` has the form "x86-64[:feature,...]" or "aarch64[:feature,...]".
bool is_host_target(std::string_view target);

/// The compiler options of such a target, in the order of its features. Throws
/// Error(invalid_argument) for a feature that kiln does not know.
std::vector<std::string> host_target_options(std::string_view target);

/// What follows a kernel's source on the command line. Stripped and without a build-id, the same
/// source gives the same bytes; the libraries hold the few functions that a compiler may call for a
/// kernel (fmodf, memcpy, __truncsfhf2).
const std::vector<std::string>& host_link_options();

}  // namespace kiln::jit
