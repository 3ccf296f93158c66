// How much of a GPU a launch keeps busy: issued instructions by unit, and how long issuing them
// takes beside the time that memory takes. A lower bound of the time, as if every unit were always
// fed.
#pragma once

#include <array>
#include <string_view>

#include "fusion/schedule/device_model.hpp"
#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

std::string_view name_of(Unit unit);

struct Load {
  std::array<double, kUnits>
      instructions{};                     ///< for each element, of a lane; scalar ones of a wave
  std::array<double, kUnits> issue_ps{};  ///< for each element; waits and branches are free
  double vector_ps = 0;                   ///< of vector and transcendental instructions together
  double memory_ps = 0;                   ///< of the bytes of an element, at a copy's speed

  /// Of the unit that takes longest.
  double longest_ps() const;
  /// Above 1 memory is not what limits it.
  double ratio() const { return longest_ps() / memory_ps; }
};

/// `bytes` are those that a kernel cannot do without, whatever it loads again.
Load load_of(const Trace& trace, std::uint32_t wave_size, double elements, double bytes,
             const fusion::DeviceModel& gpu);

}  // namespace kiln::amd
