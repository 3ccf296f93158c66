// A driver that refuses a module whose file is intact: the entry goes to quarantine, the kernel is
// compiled once more, the results are right, and it is said once.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ahead/compile_only.hpp"
#include "cache/cache.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using ::testing::HasSubstr;
using testing::HostArray;

class RefusedModule : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
    set_log([this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  void TearDown() override { set_log({}); }
  Device device() const { return {GetParam(), 0}; }

  /// Compiles it into the cache without loading it.
  CompiledKernel put_on_disk(const Function& function) const {
    Specification types;
    types.arguments = {{argument_names(function)[0], DType::f32, {64}, {}}};
    types.outputs = {DType::f32};
    return compile_for(function, types, jit::backend(device()).target());
  }

  /// The intact entry of `function` with other code in it; then what a call gives.
  void expect_healed(const Function& function, float expected, const std::string& code) {
    const CompiledKernel good = put_on_disk(function);
    const auto cache = cache::open();
    const cache::Key key = cache::Key::parse(good.info.key).value();
    cache::Entry entry = cache::read(*cache, key);
    entry.code = code;
    ASSERT_TRUE(cache->publish(key, entry));
    const std::uint64_t quarantined = cache::usage(*cache).quarantined;
    ASSERT_TRUE(cache::verify(*cache).problems.empty()) << "the file itself must be good";
    log_.clear();

    HostArray input = HostArray::contiguous(DType::f32, {64});
    for (int i = 0; i < 64; ++i) {
      const auto value = static_cast<float>(i);
      std::memcpy(input.bytes.data() + 4 * i, &value, 4);
    }
    for (int call = 0; call < 3; ++call) {
      std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {64})};
      testing::run_on(device(), function, {input}, outputs);
      float last = 0;
      std::memcpy(&last, outputs[0].bytes.data() + 4 * 63, 4);
      EXPECT_EQ(last, expected);
    }
    EXPECT_EQ(cache::usage(*cache).quarantined, quarantined + 1);
    EXPECT_EQ(cache::read(*cache, key).code, good.code);
    EXPECT_THAT(log_, HasSubstr(key.hex()));
    const std::size_t refused = log_.find("was refused");
    EXPECT_NE(refused, std::string::npos) << log_;
    EXPECT_EQ(log_.find("was refused", refused + 1), std::string::npos) << "said twice: " << log_;
  }
  std::string log_;
};

TEST_P(RefusedModule, OfNoiseBehindAnElfHeader) {
  const Function function = parse("noise", "x * 2 + 1");
  std::string code = put_on_disk(function).code.substr(0, 64) + std::string(4000, '\x5a');
  std::fill(code.begin() + 32, code.end(), '\x00');  // no tables that could lie outside
  expect_healed(function, 127, code);
}

TEST_P(RefusedModule, WithoutTheKernelInIt) {
  const Function function = parse("missing", "x * 3 + 1");
  expect_healed(function, 190, put_on_disk(parse("another", "x * 4 + 1")).code);
}

INSTANTIATE_TEST_SUITE_P(Cpu, RefusedModule, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, RefusedModule, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
