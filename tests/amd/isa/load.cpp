// See load.hpp.
#include "tests/amd/isa/load.hpp"

#include <algorithm>

namespace kiln::amd {
namespace {

constexpr std::size_t at(Unit unit) { return static_cast<std::size_t>(unit); }

constexpr std::string_view kNames[kUnits] = {"vector", "transcendental", "matrix", "scalar",
                                             "lds",    "memory",         "other"};

// Of a unit, per compute unit and cycle: lanes, or scalar instructions.
double rate_of(Unit unit, const fusion::DeviceModel& gpu) {
  switch (unit) {
    case Unit::vector: return gpu.vector_lanes;
    case Unit::transcendental: return gpu.transcendental_lanes;
    case Unit::scalar: return gpu.scalar_instructions;
    case Unit::lds: return gpu.lds_lanes;
    case Unit::memory: return gpu.memory_lanes;
    default: return 0;
  }
}

}  // namespace

std::string_view name_of(Unit unit) { return kNames[at(unit)]; }

void Trace::add(const Trace& other) {
  for (std::size_t i = 0; i < kUnits; ++i) {
    units[i].instructions += other.units[i].instructions;
    units[i].lanes += other.units[i].lanes;
  }
  waves += other.waves;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
}

double Load::longest_ps() const {
  return std::max({vector_ps, issue_ps[at(Unit::transcendental)], issue_ps[at(Unit::scalar)],
                   issue_ps[at(Unit::lds)], issue_ps[at(Unit::memory)]});
}

Load load_of(const Trace& trace, std::uint32_t wave_size, double elements, double bytes,
             const fusion::DeviceModel& gpu) {
  constexpr double kPicosecondsOfNs = 1000;
  Load load;
  for (std::size_t i = 0; i < kUnits; ++i) {
    const auto unit = static_cast<Unit>(i);
    // A vector instruction takes as long whatever lanes are active.
    const double lanes = unit == Unit::scalar || unit == Unit::other ? 1 : wave_size;
    load.instructions[i] = static_cast<double>(trace.units[i].instructions) * lanes / elements;
    const double per_ns = rate_of(unit, gpu) * gpu.compute_units * gpu.clock_ghz;
    if (per_ns > 0) load.issue_ps[i] = kPicosecondsOfNs * load.instructions[i] / per_ns;
  }
  // A unit of its own takes but the cycles in which its instructions issue from the others.
  const double slots = load.instructions[at(Unit::transcendental)];
  const double transcendental = gpu.transcendental_is_apart
                                    ? kPicosecondsOfNs * slots / gpu.lanes_per_ns()
                                    : load.issue_ps[at(Unit::transcendental)];
  load.vector_ps = load.issue_ps[at(Unit::vector)] + transcendental;
  load.memory_ps =
      kPicosecondsOfNs * bytes / elements / (fusion::kCopiedFraction * gpu.bandwidth_gbs);
  return load;
}

}  // namespace kiln::amd
