// How benchmarks take times, and what they compare them with.
#pragma once

#include <vector>

#include "tool/device_memory.hpp"

namespace kiln::tool {

/// Microseconds of one call, one number per sample. A sample is several calls, since what the clock
/// adds to one would show.
template <class Body>
std::vector<double> sample_times(jit::Backend& backend, const Stream& stream, int samples,
                                 const Body& body) {
  constexpr int kCalls = 10;
  for (int i = 0; i < 3; ++i) body();
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) {
    times.push_back(backend.time_us(stream, [&] {
      for (int i = 0; i < kCalls; ++i) body();
    }) / kCalls);
  }
  return times;
}

/// GB/s of the device's own copy of `bytes`, read and written.
inline double copy_speed(jit::Backend& backend, const Stream& stream, std::size_t bytes,
                         int samples) {
  const DeviceMemory from(backend, bytes);
  const DeviceMemory to(backend, bytes);
  const std::vector<double> times = sample_times(backend, stream, samples, [&] {
    backend.copy_on_device(to.data(), from.data(), bytes, stream);
  });
  return 2.0 * static_cast<double>(bytes) / median(times) / 1e3;
}

}  // namespace kiln::tool
