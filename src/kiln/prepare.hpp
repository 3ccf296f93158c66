// Preparing many calls before the first of them: what an engine does while it loads its weights.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kiln/function.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// One call to prepare.
struct PrepareItem {
  Function function;
  Device device;
  Specification specification;
};

/// One item is done.
struct PrepareProgress {
  std::size_t index = 0;  ///< of the item
  std::size_t done = 0;   ///< items so far, this one included
  std::size_t total = 0;
  const Preparation& preparation;  ///< of the item, ready
};

/// Prepares all items side by side, several kernels to a program where that is faster, and returns
/// when every one is done; what the remote cache has of them comes first, in one round trip; calls
/// that are made meanwhile overtake. `progress` is called once for each, from one thread at a time,
/// and what it throws is thrown here when all are done. An item that fails does not stop the others
/// and throws nothing: its preparation has the error.
std::vector<Preparation> prepare_all(
    std::span<const PrepareItem> items,
    const std::function<void(const PrepareProgress&)>& progress = {});

}  // namespace kiln

#pragma GCC visibility pop
