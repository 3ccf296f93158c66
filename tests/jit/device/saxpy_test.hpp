// The frame of tests of a device: its saxpy kernel, loaded, and a stream. Skips where there is no
// such device, or nothing that makes the kernel.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/jit/device/fixtures.hpp"

namespace kiln::jit::testing {

class SaxpyTest : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (std::string reason = why_absent(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    Backend& device = backend({GetParam(), 0});
    std::string reason;
    auto image = saxpy(device, reason);
    if (!image) GTEST_SKIP() << reason;
    image_ = *std::move(image);
    kernel_ = device.load(image_, "saxpy");
    stream_ = device.create_stream();
    device_ = &device;
  }
  void TearDown() override {
    if (device_ != nullptr) device_->destroy_stream(stream_);
  }

  Backend* device_ = nullptr;  ///< null in a test that is skipped
  Bytes image_;
  std::shared_ptr<Kernel> kernel_;
  Stream stream_;
};

}  // namespace kiln::jit::testing
