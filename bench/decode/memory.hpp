// Memory of a device, which the decoder asks its caller for.
#pragma once

#include <cstddef>
#include <functional>
#include <kiln/kiln.hpp>

namespace decode {

/// A device's memory, which is the caller's. What is allocated stays for as long as the process.
struct Memory {
  kiln::Stream stream;
  std::function<void*(std::size_t bytes)> allocate;
  std::function<void()> wait;  ///< for what the stream has to do; both below do so too
  std::function<void(void* to, const void* from, std::size_t bytes)> to_device;
  std::function<void(void* to, const void* from, std::size_t bytes)> to_host;

  /// An array in C order, which holds anything.
  kiln::View array(kiln::DType dtype, const kiln::Dims& shape) const {
    const kiln::View view(nullptr, dtype, shape, stream.device);
    return view.with_data(allocate(static_cast<std::size_t>(view.size() * bits(dtype) / 8)));
  }
};

}  // namespace decode
