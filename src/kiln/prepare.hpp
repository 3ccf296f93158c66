// Before the first call: which outputs it has, and preparing many of them, which is what an engine
// does while it loads its weights.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"
#include "kiln/function.hpp"
#include "kiln/specification.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// The dtypes and shapes of the outputs that such a call has if the caller does not choose others.
struct OutputTypes {
  std::vector<DType> dtypes;
  std::vector<Dims> shapes;
};
/// Of a call of the function, or of the Program of it where a Function cannot compute it. Compiles
/// nothing. Throws Error(invalid_argument) for types that do not fit.
OutputTypes output_types(const Function& function, const Specification& specification);

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
