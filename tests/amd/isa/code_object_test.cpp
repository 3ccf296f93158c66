// What CodeObject::load reads of real code objects, and what it refuses.
#include "tests/support/code_object.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/service/compile.hpp"
#include "kiln/error.hpp"
#include "tests/amd/isa/dispatch.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln::amd {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const CodeObject> load(const std::string& image, const std::string& target) {
  return CodeObject::load(std::as_bytes(std::span(image)), target, {});
}

std::string refusal(const std::string& image) {
  try {
    load(image, "gfx90a");
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

class LoadedCodeObject : public ::testing::TestWithParam<std::string> {};

TEST_P(LoadedCodeObject, says_what_a_launch_needs) {
  KILN_NEED(hiprtc)
  constexpr const char* kSource = R"(
    extern "C" __attribute__((global)) void reverse(const float* x, float* y, short n, double z) {
      __attribute__((shared)) static float tile[64];
      const unsigned lane = __builtin_amdgcn_workitem_id_x();
      tile[lane] = x[lane];
      __builtin_amdgcn_s_barrier();
      y[lane] = n * (float)z * tile[63 - lane];
    })";
  jit::CompileRequest request;
  request.entry = request.function = "reverse";
  request.source = kSource;
  request.target = GetParam();
  request.options = {"--offload-arch=" + GetParam(), "-O3"};
  const std::string code = jit::compile(request).code;
  const auto object = load(code, GetParam());
  ASSERT_EQ(object->kernels().size(), 1U);
  EXPECT_EQ(object->kernel("inverse"), nullptr);
  const Kernel* kernel = object->kernel("reverse");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->target, GetParam());
  EXPECT_EQ(kernel->argument_bytes, 32U);
  ASSERT_GE(kernel->arguments.size(), 4U);
  EXPECT_EQ(kernel->arguments[0].kind, "global_buffer");
  EXPECT_EQ(kernel->arguments[2].offset, 16U);
  EXPECT_EQ(kernel->arguments[2].bytes, 2U);
  EXPECT_EQ(kernel->arguments[3].offset, 24U);
  EXPECT_FALSE(kernel->arguments[3].hidden());
  EXPECT_EQ(kernel->lds_bytes, 256U);
  EXPECT_EQ(kernel->scratch_bytes, 0U);
  EXPECT_EQ(kernel->wave_size, GetParam() == "gfx1030" ? 32U : 64U);
  const jit::Resources resources = jit::resources(code, "reverse");
  EXPECT_GE(kernel->vgprs, static_cast<std::uint32_t>(*resources.vgprs));
  EXPECT_LT(kernel->vgprs, static_cast<std::uint32_t>(*resources.vgprs) + 8U);
  EXPECT_GE(kernel->sgprs, static_cast<std::uint32_t>(*resources.sgprs));
}

INSTANTIATE_TEST_SUITE_P(Targets, LoadedCodeObject, ::testing::Values("gfx90a", "gfx1030"),
                         [](const auto& info) { return info.param; });

TEST(CodeObjectImage, that_is_none_is_refused) {
  EXPECT_THAT(refusal("no image"), HasSubstr("is not ELF"));
  EXPECT_THAT(refusal(testing::elf_image(EM_X86_64, {})), HasSubstr("is not of an AMD GPU"));
  EXPECT_THAT(refusal(testing::amd_code_object("\xc1")), HasSubstr("metadata that cannot be read"));
  EXPECT_THAT(refusal(testing::elf_image(224, {})), HasSubstr("has no metadata"));
  EXPECT_THAT(refusal(testing::amd_code_object("\x81\xad"
                                               "amdhsa.target\xba"
                                               "amdgcn-amd-amdhsa--gfx1030")),
              HasSubstr("is for amdgcn-amd-amdhsa--gfx1030 and not for gfx90a"));
  const std::string kernels =
      "\x81\xae"
      "amdhsa.kernels\x91\x81\xa5.name\xa3one";
  EXPECT_THAT(refusal(testing::amd_code_object(kernels)), HasSubstr("no descriptor one.kd"));
}

}  // namespace
}  // namespace kiln::amd
