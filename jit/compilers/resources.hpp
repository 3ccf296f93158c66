// Registers, memory and code size of a kernel, read from its code object without any tool or
// driver.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln::jit {

struct Resources {
  std::optional<int> vgprs;          ///< vector registers (AMD), registers per thread (NVIDIA)
  std::optional<int> sgprs;          ///< AMD
  std::optional<int> spills;         ///< AMD: spilled vector and scalar registers
  std::optional<int> scalar_spills;  ///< AMD: the scalar ones of them
  std::optional<int> scratch;        ///< bytes per thread of private (local) memory
  std::optional<int> lds;  ///< bytes per block of LDS (shared memory) that is known statically
  std::uint64_t code_bytes = 0;  ///< machine code of the kernel
};

/// Throws Error(invalid_argument) when `code` is not a well-formed ELF image (an AMD code object, a
/// cubin or a shared object), or when its AMDGPU metadata cannot be read; fields it cannot find,
/// and all of them if there is no kernel `entry`, stay empty.
Resources resources(std::string_view code, std::string_view entry);

}  // namespace kiln::jit
