// The bounds of numerics on the worst GPU that AMD's documents allow: an emulated one whose v_exp,
// v_log, v_rcp, v_rsq, v_sqrt, v_sin and v_cos are wrong in the last place here and there, those of
// f64 in the last 29 bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "jit/device/backend.hpp"
#include "numerics/measure.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

// Before a device is asked for: that is when the emulated library reads them.
const bool is_chosen = [] {
  setenv("KILN_TEST_AMD", "emulated", 1);
  setenv("KILN_TEST_AMD_WORST", "1", 1);
  return true;
}();

constexpr Device kDevice{DeviceType::hip, 0};

class WorstHardware : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_NEED(hiprtc)
    ASSERT_TRUE(is_chosen);
    const std::string reason = jit::why_absent(DeviceType::hip);
    if (!reason.empty()) GTEST_SKIP() << reason;
    ASSERT_TRUE(testing::is_emulated_amd(jit::backend(kDevice)));
  }
};

std::vector<numerics::Measurement> expect_bounds(const numerics::Request& request) {
  const std::vector<numerics::Measurement> measured = numerics::measure(kDevice, request);
  for (const numerics::Measurement& one : measured) {
    std::string operands;
    for (const std::uint64_t bits : one.worst) operands += fmt::format(" {:#x}", bits);
    EXPECT_FALSE(one.exceeded()) << one.function << " of " << name(one.dtype) << operands << ": "
                                 << one.largest << " units in the last place, bound "
                                 << one.bound.value_or(0);
  }
  return measured;
}

TEST_F(WorstHardware, stays_within_the_bounds_of_a_sample) {
  numerics::Request request;
  request.functions = {"exp", "log", "tanh", "rsqrt", "sin", "div"};
  request.dtypes = {DType::f32};
  request.stride = 200'003;
  const std::vector<numerics::Measurement> measured = expect_bounds(request);
  ASSERT_EQ(measured.size(), request.functions.size());
  // Of an instruction's own result: it is as wrong as it may be.
  const auto rsqrt = std::ranges::find(measured, "rsqrt", &numerics::Measurement::function);
  ASSERT_NE(rsqrt, measured.end());
  EXPECT_GT(rsqrt->largest, 0.9);
  EXPECT_LT(rsqrt->largest, 1);
}

TEST_F(WorstHardware, rounds_quotients_and_roots_of_f64) {
  numerics::Request request;
  request.functions = {"sqrt", "reciprocal", "div"};
  request.dtypes = {DType::f64};
  for (const numerics::Measurement& one : expect_bounds(request)) {
    EXPECT_LE(one.largest, 0.5) << one.function;
  }
}

void expect_every_bound(Accuracy accuracy) {
  numerics::Request request;
  request.dtypes = {DType::f16, DType::bf16, DType::f32, DType::f64};
  request.accuracy = accuracy;
  request.pairs = 512;
  EXPECT_GT(expect_bounds(request).size(), 100U);
}
TEST_F(WorstHardware, stays_within_every_bound) { expect_every_bound(Accuracy::storage); }
TEST_F(WorstHardware, stays_within_every_bound_of_fast) { expect_every_bound(Accuracy::fast); }

}  // namespace
}  // namespace kiln
