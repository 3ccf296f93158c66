// See launch_geometry.hpp.
#include "jit/device/launch_geometry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::jit {

namespace {

[[noreturn]] void throw_grid_too_large(const LaunchShape& shape, const GridLimits& limits) {
  throw Error(
      Code::invalid_argument,
      fmt::format("launch: a grid of {} x {} x {} blocks of {} threads along x: this device "
                  "takes at most {} x {} x {} blocks, and {} threads along x",
                  shape.work_items / shape.block, shape.grid_y, shape.grid_z, shape.block,
                  limits.max_blocks, limits.max_grid_yz, limits.max_grid_yz, limits.max_threads));
}

}  // namespace

std::uint32_t grid_blocks(const LaunchShape& shape, const GridLimits& limits) {
  const std::uint64_t threads = std::uint64_t{shape.block} * shape.block_y * shape.block_z;
  if (threads == 0 || threads > limits.max_block) [[unlikely]] {
    throw Error(Code::invalid_argument,
                fmt::format("launch: block must be from 1 to {} threads on this device, got {}",
                            limits.max_block, threads));
  }
  if (shape.exact) {
    const std::uint64_t blocks = shape.work_items / shape.block;
    if (blocks > limits.max_blocks || blocks * shape.block > limits.max_threads ||
        shape.grid_y > limits.max_grid_yz || shape.grid_z > limits.max_grid_yz) {
      throw_grid_too_large(shape, limits);
    }
    return static_cast<std::uint32_t>(blocks);
  }
  std::uint64_t blocks = shape.work_items / shape.block + (shape.work_items % shape.block != 0);
  blocks = std::min({blocks, limits.max_blocks, limits.max_threads / shape.block});
  if (shape.max_blocks != 0) blocks = std::min(blocks, shape.max_blocks);
  return static_cast<std::uint32_t>(blocks);
}

}  // namespace kiln::jit
