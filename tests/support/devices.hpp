// Running a function on a device from host memory, for the tests: buffers are moved in and out,
// outputs are poisoned first, and every buffer has a canary on either side.
#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "jit/device/backend.hpp"
#include "kiln/error.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/settings.hpp"

namespace kiln::testing {

/// A device of that type, or why the test is skipped.
inline bool has_device(DeviceType type) {
  for (const Device& device : jit::devices()) {
    if (device.type == type) return true;
  }
  return false;
}

/// What the instances of tests over devices, or over devices and dtypes, are called.
inline std::string device_type_name(const ::testing::TestParamInfo<DeviceType>& info) {
  constexpr const char* kNames[] = {"cpu", "hip", "cuda"};
  return kNames[static_cast<std::size_t>(info.param)];
}
inline std::string device_and_dtype_name(
    const ::testing::TestParamInfo<std::tuple<DeviceType, DType>>& info) {
  const auto [device, dtype] = info.param;
  return device_type_name({device, 0}) + "_" + std::string(name(dtype));
}

/// A test of one kind of device, which skips where there is none.
class OnDevice : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam())) {
      GTEST_SKIP() << "no such device: " << jit::why_absent(GetParam());
    }
  }
  Device device() const { return {GetParam(), 0}; }
};

/// An array on the host with its layout. `bytes` spans everything that the strides reach; `first`
/// is the byte of element (0, 0, ...), and `offset` 1 where that is the upper half of the byte.
struct HostArray {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  std::vector<std::byte> bytes;
  std::size_t first = 0;
  std::int64_t offset = 0;

  /// Any strides, in elements, with `lead` elements in front of the first one reached.
  static HostArray strided(DType dtype, Dims shape, Dims strides, std::int64_t lead = 0) {
    HostArray array;
    array.dtype = dtype;
    std::int64_t low = 0;
    std::int64_t high = 0;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      if (shape[k] == 0) low = high = 0;
      if (shape[k] < 2) continue;
      (strides[k] < 0 ? low : high) += strides[k] * (shape[k] - 1);
    }
    const std::int64_t origin = lead - low;
    array.first = static_cast<std::size_t>(origin * bits(dtype) / 8);
    array.offset = is_packed(dtype) ? origin % 2 : 0;
    array.bytes.resize(static_cast<std::size_t>(((origin + high + 1) * bits(dtype) + 7) / 8));
    array.shape = std::move(shape);
    array.strides = std::move(strides);
    return array;
  }
  static HostArray contiguous(DType dtype, Dims shape) {
    HostArray array;
    array.dtype = dtype;
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    array.strides = contiguous_strides(shape);
    array.shape = std::move(shape);
    array.bytes.resize(static_cast<std::size_t>((size * bits(dtype) + 7) / 8));
    return array;
  }
  std::int64_t size() const {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    return size;
  }
};

/// Device memory with 64 canary bytes on either side.
class DeviceBuffer {
 public:
  DeviceBuffer(jit::Backend& backend, const std::vector<std::byte>& contents)
      : backend_(backend), size_(contents.size()), stream_{backend.device(), nullptr} {
    std::vector<std::byte> image(size_ + 2 * kGuard, kCanary);
    std::copy(contents.begin(), contents.end(), image.begin() + kGuard);
    memory_ = static_cast<char*>(backend.allocate(image.size()));
    backend.copy_in(memory_, image.data(), image.size(), stream_);
    backend.synchronize(stream_);
  }
  ~DeviceBuffer() { backend_.free(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return memory_ + kGuard; }

  /// The contents; fails the test if a canary was touched.
  std::vector<std::byte> read() const {
    std::vector<std::byte> image(size_ + 2 * kGuard);
    backend_.synchronize(stream_);
    backend_.copy_out(image.data(), memory_, image.size(), stream_);
    backend_.synchronize(stream_);
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(image[i], kCanary) << "a byte before the buffer was written";
      EXPECT_EQ(image[size_ + kGuard + i], kCanary) << "a byte after the buffer was written";
    }
    return {image.begin() + kGuard, image.end() - kGuard};
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kCanary{0xa5};
  jit::Backend& backend_;
  std::size_t size_;
  Stream stream_;
  char* memory_ = nullptr;
};

/// What a call passes for one argument.
using TestInput = std::variant<HostArray, Scalar>;

/// Runs `function` and fills the outputs' bytes; elements that a strided output does not cover keep
/// the bytes they had.
inline void run_on(Device device, const Function& function, const std::vector<TestInput>& inputs,
                   std::vector<HostArray>& outputs) {
  jit::Backend& backend = jit::backend(device);
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  const auto view = [&](const HostArray& array) {
    buffers.push_back(std::make_unique<DeviceBuffer>(backend, array.bytes));
    return View(static_cast<char*>(buffers.back()->data()) + array.first, array.dtype, array.shape,
                array.strides, device)
        .from(array.offset);
  };
  std::vector<View> results;
  for (const HostArray& output : outputs) results.push_back(view(output));
  std::vector<Argument> arguments;
  for (const TestInput& input : inputs) {
    if (const auto* scalar = std::get_if<Scalar>(&input)) {
      arguments.emplace_back(*scalar);
    } else {
      arguments.emplace_back(view(std::get<HostArray>(input)));
    }
  }
  const Stream stream{device, nullptr};
  function.call(stream, arguments, results);
  backend.synchronize(stream);
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].bytes = buffers[i]->read();
}

template <std::same_as<HostArray> Array>  // braces mean the other one
void run_on(Device device, const Function& function, const std::vector<Array>& inputs,
            std::vector<HostArray>& outputs) {
  run_on(device, function, std::vector<TestInput>(inputs.begin(), inputs.end()), outputs);
}

}  // namespace kiln::testing
