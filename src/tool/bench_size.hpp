// How much data benchmarks take.
#pragma once

#include <cstddef>

#include "kiln/view.hpp"
#include "tool/commands.hpp"

namespace kiln::tool {

/// The bytes of a case's largest operand: as the options say, or else more than caches hold from
/// one call to the next. On the CPU that is 64 MiB or twice its last caches, whichever is more, and
/// at most 512 MiB; on a GPU 512 MiB.
std::size_t bench_bytes(const BenchOptions& options, const Device& device);

}  // namespace kiln::tool
