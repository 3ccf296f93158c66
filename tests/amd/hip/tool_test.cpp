// `kiln-emulated`, the tool over emulated GPUs: its column of numerics says that it is of an
// emulated GPU, and holds what the table of bounds promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>
#undef __noinline__  // for kernels; the standard library of GCC 16 has an attribute of this name

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/amd/isa/disassembler.hpp"
#include "tests/src/tool/tool_process.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln::amd {
namespace {

using ::testing::StartsWith;

class EmulatedTool : public kiln::testing::ToolTest,
                     public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    KILN_NEED(hiprtc);
    int count = 0;
    const hipError_t error = hipGetDeviceCount(&count);
    if (error != hipSuccess && find_comgr().empty()) GTEST_SKIP() << hipGetErrorString(error);
    ASSERT_EQ(error, hipSuccess) << hipGetErrorString(error);
    environment_["KILN_TEST_AMD_TARGET"] = GetParam();
  }
};

// Functions that hardware computes, that the compiler's library computes and that kiln computes; of
// which each bound is another one.
TEST_P(EmulatedTool, NumericsAreWithinTheBoundsAndMarkedAsEmulated) {
  const std::vector<std::string> command = {
      "numerics", "--device", "hip",  "--op", "exp",     "--op", "sqrt",    "--op", "sin",
      "--op",     "silu",     "--op", "erf",  "--dtype", "f16",  "--dtype", "f32",  "--json"};
  const auto finished = run(command);
  ASSERT_EQ(finished.code, 0) << finished.err;
  const auto report = nlohmann::json::parse(finished.out);
  EXPECT_THAT(report["hardware"].get<std::string>(), StartsWith("emulated "));
  EXPECT_EQ(report["rows"].size(), 10U);
}

INSTANTIATE_TEST_SUITE_P(Targets, EmulatedTool, ::testing::Values("gfx1030", "gfx90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kiln::amd
