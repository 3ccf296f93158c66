// What there is to run on, and to compile for.
#pragma once

#include <string>
#include <vector>

#include "kiln/view.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// Every device that can be used now: AMD GPUs, then NVIDIA GPUs, then the CPU, which is always
/// there. Safe from any thread, as everything here.
std::vector<Device> devices();

struct DeviceInfo {
  std::string name;       ///< for people, "NVIDIA H200"
  std::string target;     ///< what its kernels are compiled for: "gfx90a:sramecc+:xnack-", "sm_90"
  int compute_units = 0;  ///< on the CPU, threads
  int wave_size = 0;      ///< threads that run in step: a wave or warp; 1 on the CPU
};
/// Opens the device if nobody has. Throws Error: not_found for an index that no device has,
/// unsupported, with the library or package that is missing, where there are none of that type, and
/// device.
DeviceInfo device_info(Device device);

/// Why there are no devices of that type here, for people; empty if there are some.
std::string why_absent(DeviceType type);

/// A target that a compiler of this machine makes code for.
struct CompileTarget {
  std::string name;      ///< as tools and compile-only calls take it: "gfx90a", "sm_90"
  std::string compiler;  ///< for people, "HIP 5.2.21153"
};
/// Of AMD's targets those of a list of well-known ones that are found to compile, of NVIDIA's all
/// that NVRTC names, and the CPU of this machine. The first call on a machine takes seconds: it
/// starts compilers, and what they can do is remembered on disk. A compiler that is not there has
/// no targets. Throws Error: compile_failed for a compiler that cannot be asked.
std::vector<CompileTarget> compile_targets();

}  // namespace kiln

#pragma GCC visibility pop
