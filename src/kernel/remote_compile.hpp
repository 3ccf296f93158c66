// Kernels that compile servers (`kiln serve`) compile, for machines that cannot or are not to. What
// is asked for and answered on the server is cache/remote/queue.hpp's; the other end is
// src/tool/compile_server.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/remote/message.hpp"
#include "kernel/kernel_build.hpp"
#include "kernel/kernel_request.hpp"

namespace kiln {

/// What a compile server must be for that target: the part before its features ("gfx90a", "sm_90",
/// "x86-64"), and after an @ the preamble_digits() of the version of kiln.
std::string kind_of(std::string_view target);

/// The request of a kernel, for people and for who compiles it.
cache::RemoteRequest remote_request(const KernelRequest& request);

/// The kernel that was asked for. Throws Error(invalid_argument) for one that this kiln would not
/// ask for: a target of no family, other options, a text without a name to fill in.
KernelRequest kernel_request(cache::RemoteRequest remote);

/// Asks compile servers for kernels that are neither here nor on the server of the remote tier, and
/// waits until each is there or has failed, at most as long as one compile may take, and no longer
/// than a lease where no compile server is. All requests have one target. A failure is not_found if
/// nobody answered, without a message where there is no remote tier; would_compile after
/// control.cancel(); else what the compile server gives.
std::vector<BuildResult> compile_remotely(std::span<const KernelRequest* const> requests,
                                          BuildControl& control);

}  // namespace kiln
