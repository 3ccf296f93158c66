// Which compilers this machine has: tests that need one skip without it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "jit/service/compile.hpp"

namespace kiln::testing {

inline bool has_toolchain(jit::ToolchainKind kind) {
  const auto toolchains = jit::toolchains();
  return std::ranges::any_of(toolchains,
                             [&](const jit::Toolchain& found) { return found.kind == kind; });
}

}  // namespace kiln::testing

/// In a test or its SetUp: skips where there is no toolchain of that kind (host, hiprtc, nvrtc).
#define KILN_NEED(kind)                                                          \
  if (!::kiln::testing::has_toolchain(::kiln::jit::ToolchainKind::kind)) {       \
    GTEST_SKIP() << "no " << ::kiln::jit::name(::kiln::jit::ToolchainKind::kind) \
                 << " on this machine";                                          \
  }
