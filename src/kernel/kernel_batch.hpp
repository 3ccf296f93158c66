// Several kernels for one target compiled as one program: most of a compile is the same for one
// kernel and for several. Measured with one kernel and with eight in a program, in milliseconds per
// kernel: HIP 5.2 347 and 82, NVRTC 13 104 and 52, clang 14 for the host 155 and 41; with sixteen
// little is gained on that.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernel/background_compile.hpp"
#include "kernel/kernel_code.hpp"

namespace kiln {

inline constexpr std::size_t kMaxKernelsOfProgram = 8;

bool may_share_program(const KernelRequest& a, const KernelRequest& b);

struct CodeOutcome {
  KernelCode code;
  std::optional<std::pair<Code, std::string>> error;
};

/// As make_code() for each, in the background. What is not on disk is compiled as one program and
/// published under each kernel's own key, with the program as its source. When the program does not
/// compile, each is compiled alone, so that nobody fails with another's error. All requests have
/// different keys and may share a program; the outcomes are in their order. Throws nothing but
/// std::bad_alloc.
std::vector<CodeOutcome> make_codes(std::span<const KernelRequest> requests,
                                    BackgroundCompile& compile);

}  // namespace kiln
