// How much memory kiln keeps for what it could make again.
#pragma once

#include <cstdint>

namespace kiln {

/// Bytes for the plans of a device, and as many for the kernels that are loaded on it:
/// Configuration::memory_limit, else KILN_MEMORY_LIMIT, else 256 MiB.
std::uint64_t memory_limit();

}  // namespace kiln
