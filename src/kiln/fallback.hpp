// Memory for calls that are served before their kernel is compiled (OnMiss::fallback).
#pragma once

#include "kiln/view.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// Lends memory of a device (`memory.device()`) to calls with OnMiss::fallback, for the values
/// between the operations by which they are served; it holds nothing between calls. A call takes a
/// part of its rows at a time, so that any size of a few megabytes serves most calls; one that has
/// not enough for one row throws would_compile. Used in place of Configuration::fallback_memory,
/// until other memory of the device is lent; a view of nothing takes it back, after waiting for the
/// device. Calls of several threads that need it wait for each other, and on a GPU those on several
/// streams for the device. A stream is known by its handle: one on which such calls ran is
/// destroyed when its work has ended. Throws Error: invalid_argument for a view that is not in C
/// order or not aligned to 16 bytes, device while a stream is being captured. Safe from any thread.
void lend_fallback_memory(const View& memory);

}  // namespace kiln

#pragma GCC visibility pop
