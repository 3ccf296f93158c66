// What the registry (jit/device/backend.cpp) needs from a GPU platform. `amd` is the GPU backend
// over libamdhip64, `nvidia` the same backend over the CUDA driver; neither loads a library before
// it is asked.
#pragma once

#include <memory>
#include <string>

#include "jit/device/backend.hpp"

namespace kiln::jit::amd {

/// 0 where there is no device, driver or library.
int device_count();
/// Why device_count() is 0, for people; empty if it is not.
std::string why_absent();
/// `index` must be below device_count(). Throws Error(device).
std::unique_ptr<Backend> open(int index);

}  // namespace kiln::jit::amd

namespace kiln::jit::nvidia {

int device_count();
std::string why_absent();
std::unique_ptr<Backend> open(int index);

}  // namespace kiln::jit::nvidia
