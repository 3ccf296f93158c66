// What devices are made of, as far as schedules and costs follow from it: one table, for the
// schedules and estimates of this folder and for reports of how much of a GPU a kernel uses.
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln::fusion {

/// For which kind of device a kernel is written. jit::Backend drives such a device.
enum class Backend : std::uint8_t { amd, nvidia, host };

/// How much work one work item and one block do best.
struct WorkSizes {
  int vector_bytes;      ///< of the narrowest operand, for each work item; 0: always `max_lanes`
                         ///< elements, whatever their size
  int max_lane_bytes;    ///< of the widest operand, for each work item
  int max_stored_bytes;  ///< of the widest output; 0: `max_lane_bytes`
  int max_lanes;         ///< elements of a work item
  int block;             ///< work items (threads) per block
  int tile_block;        ///< the same in kernels that use tiles
  std::uint64_t stream_bytes;  ///< outputs from this size on bypass the caches; 0: none do
  int tile_bytes;              ///< shared memory for all tiles of one kernel
};

/// The figures of one product, which stands for all devices of the targets whose names begin so. A
/// `compute unit` is a multiprocessor of NVIDIA, and one core of a CPU. 0 is a figure that is not
/// known.
struct DeviceModel {
  std::string_view target;
  std::string_view product;
  WorkSizes work;  ///< the same for all targets of a backend
  int compute_units;
  double clock_ghz;      ///< boost
  double bandwidth_gbs;  ///< of memory, peak, in units of 1e9 bytes
  // What one compute unit does in a cycle.
  int vector_lanes;              ///< of instructions on 32 bits
  int transcendental_lanes;      ///< exp2, log2, rcp, rsqrt, sqrt, sin, cos
  int lds_lanes;                 ///< of 4 bytes each
  int memory_lanes;              ///< whose addresses it takes
  int scalar_instructions;       ///< for whole waves
  bool transcendental_is_apart;  ///< other vector instructions issue while one is at work

  double lanes_per_ns() const { return compute_units * clock_ghz * vector_lanes; }
};

/// The part of the peak bandwidth that copies reach.
inline constexpr double kCopiedFraction = 0.85;

/// A target that is no GPU's is a CPU's.
const DeviceModel& device_model(std::string_view target);

/// Of the devices of a backend, when the target is not known: `work` is what it is for all of them.
const DeviceModel& device_model(Backend backend);

}  // namespace kiln::fusion
