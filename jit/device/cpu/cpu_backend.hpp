// The CPU as a device: kernels are shared objects made by the host compiler, run over every core.
#pragma once

#include <memory>

#include "jit/device/backend.hpp"

namespace kiln::jit::cpu {

std::unique_ptr<Backend> open();

}  // namespace kiln::jit::cpu
