// Devices of tests that are GPUs made of software: they promise what a GPU does, at the speed of a
// CPU.
#pragma once

#include "jit/device/backend.hpp"

namespace kiln::testing {

/// The CUDA driver made for tests, which runs kernels on the host.
inline bool is_host_driver(const jit::Backend& backend) {
  return backend.name() == "host driver of the tests";
}

/// A GPU of tests/amd, which executes a kernel's instructions.
inline bool is_emulated_amd(const jit::Backend& backend) {
  return backend.name().starts_with("emulated ");
}

inline bool is_emulated(const jit::Backend& backend) {
  return is_host_driver(backend) || is_emulated_amd(backend);
}

}  // namespace kiln::testing
