// Preparations for a device or for any target: what Function::prepare, prepare_all and the tool's
// manifests have in common.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kiln/prepare.hpp"

namespace kiln {

/// As a PrepareItem; a target in place of a device is compiled for and not loaded.
struct PrepareRequest {
  const Function* function = nullptr;
  const Specification* specification = nullptr;
  Device device;
  std::string target;  ///< empty: the device's
};

/// Starts them all. `done` is called once for each, with its index, from any thread and maybe
/// before this returns. What is wrong with a request is its preparation's error.
std::vector<Preparation> start_preparations(std::span<const PrepareRequest> requests,
                                            std::function<void(std::size_t)> done);

}  // namespace kiln
