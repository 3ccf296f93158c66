// See launch_geometry.hpp.
#include "jit/launch_geometry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::jit {

std::uint32_t grid_blocks(const LaunchShape& shape, const GridLimits& limits) {
  if (shape.block == 0 || shape.block > limits.max_block) {
    throw Error(Code::invalid_argument,
                fmt::format("launch: block must be from 1 to {} threads on this device, got {}",
                            limits.max_block, shape.block));
  }
  std::uint64_t blocks = shape.work_items / shape.block + (shape.work_items % shape.block != 0);
  blocks = std::min({blocks, limits.max_blocks, limits.max_threads / shape.block});
  if (shape.max_blocks != 0) blocks = std::min(blocks, shape.max_blocks);
  return static_cast<std::uint32_t>(blocks);
}

}  // namespace kiln::jit
