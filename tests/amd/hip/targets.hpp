// Which GPUs can be emulated, and what HIP says of them.
#pragma once

#include <string>
#include <string_view>

namespace kiln::amd {

struct Target {
  std::string_view processor;  ///< "gfx90a"
  std::string_view name;       ///< hipDeviceProp_t::gcnArchName
  std::string_view product;    ///< that has such a GPU
  int wave_size = 0;
  /// hipDeviceProp_t::multiProcessorCount: compute units, and from gfx10 on pairs of them.
  int multiprocessors = 0;
  int lds_bytes = 0;  ///< that a block may have
};

/// Null for a processor that cannot be emulated.
const Target* find_target(std::string_view processor);
/// All their processors, for messages.
std::string known_targets();

}  // namespace kiln::amd
