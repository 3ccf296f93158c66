// From a launch's shape to a grid, as a function on values so that it is tested without a device.
#pragma once

#include <cstdint>

#include "jit/device/backend.hpp"

namespace kiln::jit {

struct GridLimits {
  std::uint64_t max_blocks = 0;       ///< the driver's limit on gridDim.x
  std::uint64_t max_threads = 0;      ///< the limit on gridDim.x * blockDim.x; 2^32 - 1 on HIP
  std::uint32_t max_block = 0;        ///< the driver's limit on threads per block
  std::uint32_t max_grid_yz = 65535;  ///< on gridDim.y and gridDim.z; the same on every GPU
};

/// The number of blocks of `shape.block` threads: enough for every work item, or as many as the
/// limits and `shape.max_blocks` allow, in which case the kernel strides. At least 1; `work_items`
/// must not be 0. Throws Error(invalid_argument) for a block that the device does not have, and for
/// an exact grid that it cannot launch.
std::uint32_t grid_blocks(const LaunchShape& shape, const GridLimits& limits);

}  // namespace kiln::jit
