// The three toolchains for real, through workers: what is compiled, what is reported, what is
// refused.
#include "jit/service/compile.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/temporary.hpp"
#include "tests/jit/service/kernels.hpp"
#include "tests/support/message.hpp"

namespace kiln::jit {
namespace {

using kiln::testing::code_of;
using test::scale_request;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A target that the toolchain of that kind surely knows, or the reason why there is none.
const char* sure_target(ToolchainKind kind) {
  switch (kind) {
    case ToolchainKind::hiprtc: return "gfx90a";
    case ToolchainKind::nvrtc: return "sm_80";
    case ToolchainKind::host: break;
  }
  return "cpu";
}

std::string absent(ToolchainKind kind) {
  try {
    toolchain(kind);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

class EachToolchain : public ::testing::TestWithParam<ToolchainKind> {
 protected:
  void SetUp() override {
    if (const std::string reason = absent(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(EachToolchain, has_a_path_a_version_and_an_identity) {
  const Toolchain found = toolchain(GetParam());
  EXPECT_TRUE(std::filesystem::exists(found.path)) << found.path;
  EXPECT_THAT(found.version, Not(IsEmpty()));
  EXPECT_THAT(found.identity, HasSubstr(std::string(name(GetParam()))));
}

TEST_P(EachToolchain, compiles_a_kernel_into_an_image_with_its_code) {
  const CompileResult result = compile(scale_request(sure_target(GetParam()), "kiln_scale"));
  EXPECT_EQ(result.code.substr(0, 4), "\177ELF");
  EXPECT_GT(resources(result.code, "kiln_scale").code_bytes, 16U);
  EXPECT_GT(result.milliseconds, 0);
}

TEST_P(EachToolchain, gives_the_same_bytes_for_the_same_request) {
  const CompileRequest request = scale_request(sure_target(GetParam()), "kiln_same");
  EXPECT_EQ(compile(request).code, compile(request).code);
}

TEST_P(EachToolchain, reports_function_module_target_and_the_generated_line_of_an_error) {
  CompileRequest request = scale_request(sure_target(GetParam()), "kiln_broken", "no_such_name");
  request.function = "my function";
  request.expression = "x * no_such_name";
  std::string message;
  EXPECT_EQ(code_of([&] { compile(request); }, &message), Code::compile_failed);
  EXPECT_THAT(message, HasSubstr("'my function'"));
  EXPECT_THAT(message, HasSubstr("kiln_broken"));
  EXPECT_THAT(message, HasSubstr(sure_target(GetParam())));
  EXPECT_THAT(message, HasSubstr("expression: x * no_such_name"));
  EXPECT_THAT(message, ::testing::ContainsRegex(
                           "generated line [23]: .*y\\[i\\] = x\\[i\\] \\* no_such_name"));
  EXPECT_THAT(message, HasSubstr("compiler log:"));
}

TEST_P(EachToolchain, puts_warnings_into_the_log) {
  CompileRequest request = scale_request(sure_target(GetParam()), "kiln_warned");
  request.source += "#warning a warning of this test\n";
  std::erase(request.options, "-w");
  EXPECT_THAT(compile(request).log, HasSubstr("a warning of this test"));
}

TEST_P(EachToolchain, lists_the_sure_target_as_known) {
  const std::string target = sure_target(GetParam());
  EXPECT_THAT(known_targets(GetParam()), Contains(target == "cpu" ? host_target() : target));
}

TEST_P(EachToolchain, disassembles_what_it_compiled_or_names_the_package) {
  const std::string target = sure_target(GetParam());
  const CompileResult result = compile(scale_request(target, "kiln_isa"));
  try {
    const std::string isa = disassemble(result.code, target);
    EXPECT_THAT(isa, HasSubstr(GetParam() == ToolchainKind::hiprtc  ? "v_add_f32"
                               : GetParam() == ToolchainKind::nvrtc ? "FADD"
                                                                    : "add"));
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Code::not_found) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("package"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachToolchain,
                         ::testing::Values(ToolchainKind::hiprtc, ToolchainKind::nvrtc,
                                           ToolchainKind::host),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace kiln::jit
