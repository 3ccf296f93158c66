// Memory and streams of a device, owned: for the commands that run something.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "jit/device/backend.hpp"

namespace kiln::tool {

/// Memory of a device for as long as the object lives.
class DeviceMemory {
 public:
  DeviceMemory(jit::Backend& backend, std::size_t bytes)
      : backend_(&backend), data_(backend.allocate(std::max<std::size_t>(bytes, 1))) {}
  DeviceMemory(DeviceMemory&& other) noexcept
      : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory() {
    if (data_ != nullptr) backend_->free(data_);
  }
  void* data() const { return data_; }

 private:
  jit::Backend* backend_;
  void* data_;
};

/// A stream of a device for as long as the object lives.
class OwnedStream {
 public:
  explicit OwnedStream(jit::Backend& backend)
      : backend_(backend), stream_(backend.create_stream()) {}
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() { backend_.destroy_stream(stream_); }
  const Stream& get() const { return stream_; }

 private:
  jit::Backend& backend_;
  Stream stream_;
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace kiln::tool
