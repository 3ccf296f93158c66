// How benchmarks take times, and what they compare them with.
#pragma once

#include <vector>

#include "core/device_memory.hpp"

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

/// What a device's own copy of `bytes` takes. Measured once on a GPU; on a CPU, whose memory others
/// use too, again beside every sample of what is compared with it.
class Copy {
 public:
  Copy(jit::Backend& backend, const Stream& stream, std::size_t bytes, int samples)
      : backend_(backend),
        stream_(stream),
        bytes_(bytes),
        samples_(samples),
        from_(backend, bytes),
        to_(backend, bytes) {
    // Pages that were never written are all the same one on a CPU, which takes no time to read.
    backend_.fill(from_.data(), 1, bytes_, stream_);
    speed_ = speed_of(sample_times(backend_, stream_, samples_, [&] { copy(); }));
  }

  /// GB/s, read and written, at the time of the latest samples.
  double speed() const { return speed_; }

  /// Microseconds of one call, one number per sample; on a CPU, the copy is measured again beside
  /// every sample, and speed() tells of those.
  template <class Body>
  std::vector<double> sample_times_beside(const Body& body) {
    if (backend_.device().type != DeviceType::cpu) {
      return sample_times(backend_, stream_, samples_, body);
    }
    std::vector<double> times;
    std::vector<double> copies;
    for (int sample = 0; sample < samples_; ++sample) {
      times.push_back(sample_times(backend_, stream_, 1, body)[0]);
      copies.push_back(sample_times(backend_, stream_, 1, [&] { copy(); })[0]);
    }
    speed_ = speed_of(copies);
    return times;
  }

 private:
  void copy() { backend_.copy_on_device(to_.data(), from_.data(), bytes_, stream_); }
  double speed_of(const std::vector<double>& times) const {
    return 2.0 * static_cast<double>(bytes_) / median(times) / 1e3;
  }

  jit::Backend& backend_;
  const Stream& stream_;
  std::size_t bytes_;
  int samples_;
  DeviceMemory from_;
  DeviceMemory to_;
  double speed_ = 0;
};

}  // namespace kiln::tool
