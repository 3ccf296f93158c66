// What only a GPU can promise: the caller's device and context stay as they were, impossible
// launches are refused, running out of memory leaves the device usable.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kiln/error.hpp"
#include "tests/jit/device/saxpy_test.hpp"
#include "tests/support/emulated.hpp"

namespace kiln::jit {
namespace {

using ::testing::HasSubstr;

class GpuTest : public testing::SaxpyTest {};

TEST_P(GpuTest, BlockThatTheDeviceDoesNotHaveIsRefused) {
  for (std::uint32_t block : {0U, 1'000'000U}) {
    try {
      device_->launch(*kernel_, {.work_items = 1, .block = block}, nullptr,
                      {device_->device(), nullptr});
      ADD_FAILURE() << "block " << block << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("block must be from 1 to"));
    }
  }
}

TEST_P(GpuTest, RunningOutOfMemoryIsAnErrorAndTheDeviceLivesOn) {
  try {
    device_->allocate(std::numeric_limits<std::size_t>::max() / 2);
    ADD_FAILURE() << "half of the address space was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(Code::device));
    EXPECT_THAT(error.what(), HasSubstr("hipMalloc failed on"));
  }
  void* pointer = device_->allocate(1024);
  EXPECT_NE(pointer, nullptr);
  device_->free(pointer);
}

TEST_P(GpuTest, MoreWorkThanTheGridHoldsIsStrided) {
  if (kiln::testing::is_emulated_amd(*device_)) {
    GTEST_SKIP() << "a grid of 2^32 threads takes hours on " << device_->name();
  }
  // 2^40 work items cannot be one grid on any device; the kernel's own bound ends it at n.
  std::uint64_t n = 1000;
  std::vector<float> ones(n, 1.0F);
  void* x = device_->allocate(n * sizeof(float));
  void* y = device_->allocate(n * sizeof(float));
  const Stream stream = device_->create_stream();
  device_->copy_in(x, ones.data(), n * sizeof(float), stream);
  device_->copy_in(y, ones.data(), n * sizeof(float), stream);
  float a = 3;
  void* arguments[] = {&x, &y, &a, &n};
  device_->launch(*kernel_, {.work_items = 1ULL << 40, .block = 1024}, arguments, stream);
  device_->copy_out(ones.data(), y, n * sizeof(float), stream);
  EXPECT_THAT(ones, ::testing::Each(4.0F));
  device_->destroy_stream(stream);
  device_->free(x);
  device_->free(y);
}

INSTANTIATE_TEST_SUITE_P(Every, GpuTest, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         [](const auto& info) {
                           return info.param == DeviceType::hip ? "hip" : "cuda";
                         });

/// The driver's own view of which context is current, beside kiln's.
class CudaContextTest : public ::testing::Test {
 protected:
  using Context = void*;
  void SetUp() override {
    if (std::string reason = why_absent(DeviceType::cuda); !reason.empty()) GTEST_SKIP() << reason;
    library_ = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT_NE(library_, nullptr);
    resolve(get_current_, "cuCtxGetCurrent");
    resolve(create_, "cuCtxCreate_v2");
    resolve(destroy_, "cuCtxDestroy_v2");
  }
  void TearDown() override {
    if (library_ != nullptr) dlclose(library_);
  }
  template <class Function>
  void resolve(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    ASSERT_NE(function, nullptr) << name;
  }
  Context current() {
    Context context = nullptr;
    EXPECT_EQ(get_current_(&context), 0);
    return context;
  }

  void* library_ = nullptr;
  int (*get_current_)(Context*) = nullptr;
  int (*create_)(Context*, unsigned, int) = nullptr;
  int (*destroy_)(Context) = nullptr;
};

TEST_F(CudaContextTest, CallsLeaveTheCallersContextCurrent) {
  Context own = nullptr;
  ASSERT_EQ(create_(&own, 0, 0), 0);
  ASSERT_EQ(current(), own);
  Backend& device = backend({DeviceType::cuda, 0});
  std::string reason;
  {
    auto kernel = device.load(testing::saxpy(device, reason).value(), "saxpy");
    EXPECT_EQ(current(), own);
    void* memory = device.allocate(4096);
    float a = 0;
    std::uint64_t n = 1024;
    void* arguments[] = {&memory, &memory, &a, &n};
    const Stream stream = device.create_stream();
    device.launch(*kernel, {.work_items = n}, arguments, stream);
    device.synchronize(stream);
    device.destroy_stream(stream);
    device.free(memory);
    EXPECT_EQ(current(), own);
    EXPECT_THROW(device.load(testing::Bytes(100), "broken"), Error);
    EXPECT_EQ(current(), own);
  }
  EXPECT_EQ(current(), own) << "after the kernel was unloaded";
  EXPECT_EQ(destroy_(own), 0);
}

}  // namespace
}  // namespace kiln::jit
