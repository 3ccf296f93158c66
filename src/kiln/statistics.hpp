// What kiln keeps in memory of the calls of this process, and has dropped.
//
// A Function or Program keeps a plan for each layout that it is prepared for, or called with often;
// of calls that differ in nothing but sizes, strides and alignment it keeps what their kernels have
// in common. What a Program plans shape by shape leaves plans too. They keep their kernels loaded.
// When those of a device take more than a limit (Configuration::memory_limit), the least recently
// used go, of whatever function, and when the loaded kernels do, those that no plan has used for
// longest are unloaded. Nothing is dropped that a Launch, a Graph, a running kernel or, of custom
// kernels, a Kernel holds; what is dropped is made again, from the cache, by the next call that
// needs it. On GPUs, a Function or Program keeps all kernels that it has launched, for a stream may
// have been captured meanwhile: like a Graph's, a capture needs it to live while it is replayed.
#pragma once

#include <cstdint>

#include "kiln/view.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// Of one device.
struct Statistics {
  std::uint64_t memory_limit = 0;      ///< bytes for plans, and as many for kernels
  std::uint64_t plans = 0;             ///< that functions and programs keep
  std::uint64_t plan_bytes = 0;        ///< about
  std::uint64_t plans_dropped = 0;     ///< since the process began, above the limit
  std::uint64_t kernels = 0;           ///< that are loaded
  std::uint64_t kernel_bytes = 0;      ///< their code, counted as 64 KiB at least
  std::uint64_t kernels_unloaded = 0;  ///< since the process began
  std::uint64_t fallbacks = 0;  ///< calls, and kernels of programs, that were served before their
                                ///< kernel was there (OnMiss::fallback), since the process began
};
/// Opens no device. Safe from any thread.
Statistics statistics(Device device);

}  // namespace kiln

#pragma GCC visibility pop
