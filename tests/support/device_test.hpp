// The frame of tests that run on every device: memory, a stream, and what goes in and comes out.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/devices.hpp"
#include "tests/support/emulated.hpp"

namespace kiln::testing {

/// A device, a stream of its own, and memory that is given back at the end. Skips where there is no
/// such device.
class DeviceTest : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
    device = {GetParam(), 0};
    backend = &jit::backend(device);
    stream = backend->create_stream();
  }
  void TearDown() override {
    if (backend == nullptr) return;
    backend->synchronize(stream);
    for (void* pointer : memory) backend->free(pointer);
    backend->destroy_stream(stream);
  }

  template <class T = float>
  T* allocate(const std::vector<T>& values) {
    memory.push_back(backend->allocate(values.size() * sizeof(T)));
    write(static_cast<T*>(memory.back()), values);
    return static_cast<T*>(memory.back());
  }
  float* zeros(std::size_t count) { return allocate(std::vector<float>(count, 0)); }
  template <class T>
  void write(T* pointer, const std::vector<T>& values) {
    backend->copy_in(pointer, values.data(), values.size() * sizeof(T), stream);
    backend->synchronize(stream);
  }
  template <class T>
  std::vector<T> read(const T* pointer, std::size_t count) {
    std::vector<T> values(count);
    backend->synchronize(stream);
    backend->copy_out(values.data(), pointer, count * sizeof(T), stream);
    backend->synchronize(stream);
    return values;
  }
  View view(float* data, std::int64_t count) const { return {data, DType::f32, {count}, device}; }
  bool on_gpu() const { return GetParam() != DeviceType::cpu; }
  /// Not on one made of software, for which what keeps a GPU busy is too much.
  bool on_real_gpu() const { return on_gpu() && !is_emulated(*backend); }

  Device device;
  jit::Backend* backend = nullptr;
  Stream stream;
  std::vector<void*> memory;
};

inline std::vector<float> counting(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

template <class F>
std::string error_of(const F& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline std::string device_name(const ::testing::TestParamInfo<DeviceType>& info) {
  const std::string text = to_string(Device{info.param, 0});
  return text.substr(0, text.find(':'));
}

}  // namespace kiln::testing

/// Every test of the fixture on every kind of device.
#define KILN_ON_EVERY_DEVICE(fixture)                                                          \
  INSTANTIATE_TEST_SUITE_P(Every, fixture,                                                     \
                           ::testing::Values(::kiln::DeviceType::cpu, ::kiln::DeviceType::hip, \
                                             ::kiln::DeviceType::cuda),                        \
                           ::kiln::testing::device_name)
