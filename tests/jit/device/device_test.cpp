// What every device promises through jit::Backend, tested on each one that is here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "tests/jit/device/saxpy_test.hpp"
#include "tests/support/message.hpp"

namespace kiln::jit {
namespace {

using kiln::testing::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceTest : public testing::SaxpyTest {
 protected:
  /// y = 2 * x + y over n elements, on `stream`; true if every element is right.
  bool saxpy_is_right(std::uint64_t n, LaunchShape shape, const Stream& stream) {
    std::vector<float> x(n), y(n);
    std::iota(x.begin(), x.end(), 0.0F);
    std::iota(y.begin(), y.end(), 5.0F);
    void* dx = device_->allocate(n * sizeof(float));
    void* dy = device_->allocate(n * sizeof(float));
    device_->copy_in(dx, x.data(), n * sizeof(float), stream);
    device_->copy_in(dy, y.data(), n * sizeof(float), stream);
    float a = 2;
    void* arguments[] = {&dx, &dy, &a, &n};
    shape.work_items = n;
    device_->launch(*kernel_, shape, arguments, stream);
    std::vector<float> result(n);
    device_->copy_out(result.data(), dy, n * sizeof(float), stream);
    device_->free(dx);
    device_->free(dy);
    for (std::uint64_t i = 0; i < n; ++i) {
      if (result[i] != std::fma(a, x[i], y[i])) {
        ADD_FAILURE() << "element " << i << " of " << n << ": " << result[i];
        return false;
      }
    }
    return true;
  }
};

TEST_P(DeviceTest, DescribesItself) {
  EXPECT_EQ(device_->device(), (Device{GetParam(), 0}));
  EXPECT_FALSE(device_->name().empty());
  EXPECT_FALSE(device_->target().empty());
  EXPECT_GE(device_->compute_units(), 1);
  EXPECT_GE(device_->wave_size(), 1);
  const char* family = GetParam() == DeviceType::cuda  ? "sm_"
                       : GetParam() == DeviceType::hip ? "gfx"
                                                       : "";
  EXPECT_THAT(device_->target(), ::testing::StartsWith(family));
  std::printf("%s: %s, %s, %d compute units\n", to_string(device_->device()).c_str(),
              device_->name().c_str(), device_->target().c_str(), device_->compute_units());
}

TEST_P(DeviceTest, ComputesEveryElementForAnyCountAndBlock) {
  for (std::uint64_t n : {1, 2, 255, 256, 257, 1000, 65'537, 1'000'003}) {
    for (std::uint32_t block : {32, 256, 1024}) {
      EXPECT_TRUE(saxpy_is_right(n, {.block = block}, stream_)) << n << " by " << block;
    }
  }
}

TEST_P(DeviceTest, FewerBlocksThanNeededStillComputeEverything) {
  EXPECT_TRUE(saxpy_is_right(100'001, {.block = 128, .max_blocks = 3}, stream_));
}

TEST_P(DeviceTest, RunsOnTheDefaultStream) {
  EXPECT_TRUE(saxpy_is_right(10'000, {}, Stream{device_->device(), nullptr}));
}

TEST_P(DeviceTest, LaunchOfNothingTouchesNothing) {
  // The arguments are null: a kernel that ran would fault.
  device_->launch(*kernel_, {.work_items = 0}, nullptr, stream_);
  device_->synchronize(stream_);
}

TEST_P(DeviceTest, LaunchesFromManyThreadsOnTheirOwnStreams) {
  std::vector<std::thread> threads;
  std::vector<int> right(8, 0);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Stream stream = device_->create_stream();
      for (int i = 0; i < 10; ++i) {
        right[t] += saxpy_is_right(static_cast<std::uint64_t>(40'000 + t), {.block = 1024}, stream);
      }
      device_->destroy_stream(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int count : right) EXPECT_EQ(count, 10);
}

TEST_P(DeviceTest, MeasuresTimeOnTheStream) {
  const double us = device_->time_us(stream_, [&] { saxpy_is_right(1'000'000, {}, stream_); });
  EXPECT_GT(us, 0.0);
  EXPECT_LT(us, 60e6);
}

TEST_P(DeviceTest, CopiesOnTheDevice) {
  const int value = 0x1234567;
  void* a = device_->allocate(sizeof value);
  void* b = device_->allocate(sizeof value);
  device_->copy_in(a, &value, sizeof value, stream_);
  device_->copy_on_device(b, a, sizeof value, stream_);
  int back = 0;
  device_->copy_out(&back, b, sizeof value, stream_);
  EXPECT_EQ(back, value);
  device_->free(a);
  device_->free(b);
}

TEST_P(DeviceTest, LoadOfGarbageIsAnErrorAndTheDeviceLivesOn) {
  const testing::Bytes empty;
  const testing::Bytes garbage(4096, std::byte{0x5A});
  for (const testing::Bytes& code : {empty, garbage}) {
    EXPECT_THAT(message_of([&] { device_->load(code, "some_kernel"); }, Code::device),
                AllOf(HasSubstr("some_kernel"), HasSubstr(to_string(device_->device())),
                      HasSubstr(std::to_string(code.size()))));
  }
  EXPECT_TRUE(saxpy_is_right(1000, {}, stream_));
}

TEST_P(DeviceTest, LoadNamesTheEntryThatIsMissing) {
  EXPECT_THAT(message_of([&] { device_->load(image_, "no_such_entry"); }, Code::device),
              HasSubstr("no_such_entry"));
}

TEST_P(DeviceTest, KernelOutlivesOthersOfItsModule) {
  auto second = device_->load(image_, "saxpy");
  second.reset();
  EXPECT_TRUE(saxpy_is_right(1000, {}, stream_));
}

TEST_P(DeviceTest, StreamOfAnotherDeviceIsRefused) {
  const Device other{GetParam(), 7};
  EXPECT_THAT(message_of([&] {
                device_->launch(*kernel_, {.work_items = 1}, nullptr, {other, nullptr});
              }),
              HasSubstr(to_string(other)));
}

TEST_P(DeviceTest, KernelOfAnotherDeviceIsRefused) {
  if (GetParam() == DeviceType::cpu) GTEST_SKIP() << "the CPU's own kernels are the others here";
  Backend& cpu = backend({DeviceType::cpu, 0});
  EXPECT_THAT(message_of([&] {
                cpu.launch(*kernel_, {.work_items = 1}, nullptr, {cpu.device(), nullptr});
              }),
              HasSubstr(to_string(device_->device())));
}

TEST_P(DeviceTest, OrdinaryStreamIsNotCapturing) {
  EXPECT_FALSE(device_->is_capturing(stream_));
  EXPECT_FALSE(device_->is_capturing({device_->device(), nullptr}));
}

INSTANTIATE_TEST_SUITE_P(Every, DeviceTest,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         [](const auto& info) {
                           std::string text = to_string(Device{info.param, 0});
                           return text.substr(0, text.find(':'));
                         });

}  // namespace
}  // namespace kiln::jit
