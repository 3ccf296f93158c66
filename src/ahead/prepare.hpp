// Preparations for a device or for any target: what Function::prepare, prepare_all and the tool's
// manifests have in common.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kiln/cache.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel.hpp"
#include "kiln/prepare.hpp"
#include "kiln/program.hpp"

namespace kiln {

/// As a PrepareItem, or of a program or a kernel of the caller's own; a target in place of a device
/// is compiled for and not loaded.
struct PrepareRequest {
  std::variant<const Function*, const Program*, const Kernel*> of;
  const Specification* specification = nullptr;  ///< of a function's or a program's call
  Device device = {};
  std::string target = {};  ///< empty: the device's
};

/// Prepares them all as prepare_all() does. What is wrong with a request is its preparation's
/// error.
std::vector<Preparation> prepare_requests(
    std::span<const PrepareRequest> requests,
    const std::function<void(const PrepareProgress&)>& progress);

/// The keys under which the remote tier may have their kernels.
struct RequestedKeys {
  std::vector<cache::Key> keys;
  std::vector<std::optional<Error>> errors;  ///< of each request
};
RequestedKeys remote_keys(std::span<const PrepareRequest> requests);

}  // namespace kiln
