// What the tests of the devices share: a kernel in the form that each device loads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "jit/device/backend.hpp"

namespace kiln::jit::testing {

using Bytes = std::vector<std::byte>;

/// `source` (C++) as a shared object, made by the host compiler. Empty with a reason if there is
/// none.
std::optional<Bytes> compile_shared_object(const std::string& source, std::string& reason);

/// Entry "saxpy", parameters (const float* x, float* y, float a, unsigned long long n): y = a * x +
/// y for every element, with a loop over the grid. In the form that the device loads.
std::optional<Bytes> saxpy(Backend& backend, std::string& reason);

}  // namespace kiln::jit::testing
