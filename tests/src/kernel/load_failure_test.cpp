// A module that cannot be loaded: only what the driver, or the image itself, calls invalid is taken
// for damage. Everything else is an error of that call, the entry stays where it is, and the next
// call loads it.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "ahead/compile_only.hpp"
#include "base/dynamic_library.hpp"
#include "cache/cache.hpp"
#include "tests/jit/device/hip_host_driver.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using ::testing::HasSubstr;
using testing::HostArray;

/// An intact entry of `function` on disk that this process has not loaded.
cache::Key put_on_disk(Device device, const Function& function) {
  Specification types;
  types.arguments = {{argument_names(function)[0], DType::f32, {64}, {}}};
  types.outputs = {DType::f32};
  const auto made = compile_for(function, types, jit::backend(device).target());
  return cache::Key::parse(made.info.key).value();
}

void call(Device device, const Function& function) {
  std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {64})};
  testing::run_on(device, function, {HostArray::contiguous(DType::f32, {64})}, outputs);
}

/// What a call fails with.
std::string failure_of(Device device, const Function& function) {
  try {
    call(device, function);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "it was loaded";
  return {};
}

/// What kiln logs while it lives: a compile is a line.
class Log {
 public:
  Log() {
    set_log([this](LogLevel, std::string_view line) { text_ += std::string(line) + "\n"; });
  }
  ~Log() { set_log({}); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  bool has_compile() const { return text_.find("compiled function") != std::string::npos; }

 private:
  std::string text_;
};

std::uint64_t quarantined() { return cache::usage(*cache::open()).quarantined; }

/// Files may not grow while it lives: no process can make a module's file then.
class NoFiles {
 public:
  NoFiles() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(LoadFailureOnTheCpu, LeavesTheEntryAndIsTriedAgain) {
  const Device cpu{DeviceType::cpu, 0};
  const Function function = parse("no_files", "x * 2 + 1");
  const cache::Key key = put_on_disk(cpu, function);
  {
    const NoFiles none;
    EXPECT_THAT(failure_of(cpu, function), HasSubstr("cannot be loaded"));
    EXPECT_THAT(failure_of(cpu, function), HasSubstr("cannot be loaded"));
  }
  EXPECT_EQ(quarantined(), 0U);
  EXPECT_NO_THROW(cache::read(*cache::open(), key));
  const Log log;
  call(cpu, function);
  EXPECT_FALSE(log.has_compile()) << "its entry is good";
}

class LoadFailureOfTheDriver : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const base::DynamicLibrary library("libcuda.so.1");
    fail_ = reinterpret_cast<decltype(fail_)>(library.symbol("kiln_host_driver_fail_with"));
    if (fail_ == nullptr) GTEST_SKIP() << "libcuda.so.1 is a real driver, or none";
  }
  void TearDown() override {
    if (fail_ != nullptr) fail_("", 0, 0);
  }
  static constexpr Device kDevice{DeviceType::cuda, 0};
  decltype(&kiln_host_driver_fail_with) fail_ = nullptr;
};

class OfNow : public LoadFailureOfTheDriver {};

TEST_P(OfNow, LeavesTheEntryAndIsTriedAgain) {
  for (const char* step : {"cuModuleLoadData", "cuModuleGetFunction"}) {
    const Function function =
        parse("of_now", "x * 2 + " + std::to_string(GetParam()) + (step[8] == 'L' ? "" : " + 0.5"));
    const cache::Key key = put_on_disk(kDevice, function);
    const std::uint64_t before = quarantined();
    fail_(step, 1, GetParam());
    const std::string message = failure_of(kDevice, function);
    EXPECT_THAT(message, HasSubstr(step[8] == 'L' ? "hipModuleLoadData" : "hipModuleGetFunction"));
    EXPECT_THAT(message, HasSubstr("(" + std::to_string(GetParam()) + ")"));
    EXPECT_EQ(quarantined(), before);
    EXPECT_NO_THROW(cache::read(*cache::open(), key));
    const Log log;
    call(kDevice, function);
    EXPECT_FALSE(log.has_compile()) << "its entry is good";
  }
}

// Invalid value, out of memory, not initialised, shutting down, lost device, ECC, operating system,
// illegal address, launch failure, system not ready, unknown.
INSTANTIATE_TEST_SUITE_P(Every, OfNow,
                         ::testing::Values(1, 2, 3, 4, 46, 214, 304, 700, 719, 802, 999));

class OfTheImage : public LoadFailureOfTheDriver {};

TEST_P(OfTheImage, QuarantinesTheEntryAndCompilesOnce) {
  const Function function = parse("of_image", "x * 3 + " + std::to_string(GetParam()));
  const cache::Key key = put_on_disk(kDevice, function);
  const std::uint64_t before = quarantined();
  fail_("cuModuleLoadData", 1, GetParam());
  const Log log;
  call(kDevice, function);
  EXPECT_TRUE(log.has_compile());
  EXPECT_EQ(quarantined(), before + 1);
  EXPECT_NO_THROW(cache::read(*cache::open(), key));
}

// Invalid image, no binary for the GPU, invalid PTX, invalid source.
INSTANTIATE_TEST_SUITE_P(Every, OfTheImage, ::testing::Values(200, 209, 218, 300));

}  // namespace
}  // namespace kiln
