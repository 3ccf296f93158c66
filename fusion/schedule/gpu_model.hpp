// What GPUs are made of, as far as costs follow from it: one table, for the estimates
// of this folder and for reports of how much of a GPU a kernel uses.
#pragma once

#include <string_view>

namespace kiln::fusion {

/// The figures of one product, which stands for all GPUs of the targets whose names begin so. A
/// `compute unit` is a multiprocessor of NVIDIA. 0 is a figure that is not known.
struct GpuModel {
  std::string_view target;
  std::string_view product;
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

/// Null for a target that is no GPU.
const GpuModel* find_gpu_model(std::string_view target);

}  // namespace kiln::fusion
