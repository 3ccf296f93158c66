// Kernels that lack scalar registers: they are compiled once more, with options that LLVM reads
// once in a process. The compiler is fake_hiprtc.cpp, or the one of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "jit/service/service.hpp"
#include "tests/jit/service/fixtures.hpp"

namespace kiln::jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kOnce = 1;
constexpr int kAgain = 2;

class ScarceRegisters : public test::ServiceTest {
 protected:
  // The release is in a library's name.
  std::string release(const std::string& version) const {
    const std::string path = file("libhiprtc.so." + version);
    std::filesystem::copy_file(KILN_TEST_FAKE_HIPRTC, path,
                               std::filesystem::copy_options::skip_existing);
    return path;
  }

  CompileRequest kernel(const std::string& source, const std::string& version = "6.4.1") const {
    CompileRequest request;
    request.function = "f";
    request.entry = "k";
    request.source = source;
    request.target = "gfx1100";
    request.toolchain = release(version);
    return request;
  }

  // Which of its compiles a kernel's code is of.
  static int compile_of(Service& service, const CompileRequest& request) {
    return resources(service.compile_async(request).get().code, "k").vgprs.value_or(0);
  }
};

TEST_F(ScarceRegisters, are_a_reason_to_compile_again_in_a_process_of_its_own) {
  Service service(settings_);
  EXPECT_EQ(compile_of(service, kernel("plain")), kOnce);
  EXPECT_EQ(service.counters().workers_started, 1U);
  EXPECT_EQ(compile_of(service, kernel("spills")), kAgain);
  EXPECT_EQ(compile_of(service, kernel("scarce")), kAgain);
  EXPECT_EQ(service.counters().workers_started, 3U);
  // The workers with those options are gone.
  EXPECT_EQ(service.idle_workers(), 1U);
  EXPECT_EQ(compile_of(service, kernel("plain")), kOnce);
  EXPECT_EQ(service.counters().workers_started, 3U);
}

TEST_F(ScarceRegisters, need_a_process_of_their_own_where_compilers_run_in_this_one_too) {
  settings_.in_process = true;
  Service service(settings_);
  EXPECT_EQ(compile_of(service, kernel("plain")), kOnce);
  EXPECT_EQ(service.counters().workers_started, 0U);
  EXPECT_EQ(compile_of(service, kernel("spills")), kAgain);
  EXPECT_EQ(compile_of(service, kernel("plain")), kOnce);
  EXPECT_EQ(service.counters().workers_started, 1U);
}

TEST_F(ScarceRegisters, are_an_error_where_no_process_can_be_started) {
  settings_.in_process = true;
  settings_.worker = file("no-such-worker");
  Service service(settings_);
  EXPECT_EQ(compile_of(service, kernel("plain")), kOnce);
  const Error error = test::error_of([&] { compile_of(service, kernel("spills")); });
  EXPECT_EQ(error.code(), Code::not_found);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("lacks scalar registers"), HasSubstr("no-such-worker")));
}

TEST_F(ScarceRegisters, of_what_crashes_the_compiler_too) {
  Service service(settings_);
  EXPECT_EQ(compile_of(service, kernel("crashes")), kOnce);
  EXPECT_EQ(compile_of(service, kernel("crashes and spills")), kAgain);
  const Error error = test::error_of([&] { compile_of(service, kernel("always")); });
  EXPECT_EQ(error.code(), Code::compile_failed);
  EXPECT_THAT(error.what(), HasSubstr("the compile worker exited with status 1"));
}

TEST_F(ScarceRegisters, are_left_as_they_are_by_a_release_that_forgets_such_options) {
  Service service(settings_);
  EXPECT_EQ(compile_of(service, kernel("spills", "5.2.21153")), kOnce);
  EXPECT_EQ(service.counters().exchanges, 1U);
}

TEST_F(ScarceRegisters, show_in_the_command_that_a_dump_has) {
  settings_.dump = file("dump");
  Service service(settings_);
  const auto command = [&] { return base::read_whole_file(settings_.dump + "/k.gfx1100.command"); };
  EXPECT_EQ(compile_of(service, kernel("plain")), kOnce);
  EXPECT_THAT(command(), Not(HasSubstr("-mllvm")));
  EXPECT_EQ(compile_of(service, kernel("spills")), kAgain);
  EXPECT_THAT(command(), HasSubstr("'-mllvm' '-vgpr-regalloc=basic'"));
}

// With values in every scalar register; the option must be one that the release knows.
TEST_F(ScarceRegisters, of_a_real_compiler_are_compiled_again) {
  CompileRequest request;
  try {
    request.toolchain = toolchain(ToolchainKind::hiprtc).path;
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  request.function = request.entry = "k";
  request.target = "gfx1030";
  request.options = compile_options(request.target, false);
  std::string parameters = "float* y";
  std::string sum = "0";
  for (int i = 0; i < 80; ++i) {
    parameters += fmt::format(", const float* x{}", i);
    sum += fmt::format(" + x{}[t]", i);
  }
  // The loop needs all addresses at once.
  request.source = fmt::format(
      "extern \"C\" __global__ void k({}, unsigned n) {{\n"
      "  for (unsigned t = blockIdx.x * blockDim.x + threadIdx.x; t < n; t += blockDim.x)\n"
      "    y[t] = {};\n}}\n",
      parameters, sum);
  settings_.dump = file("dump");
  Service service(settings_);
  const Resources found = resources(service.compile_async(request).get().code, "k");
  EXPECT_GE(found.sgprs.value_or(0), 84);
  const bool forgets = toolchain(ToolchainKind::hiprtc).version.starts_with("HIP 5.2.");
  EXPECT_THAT(
      base::read_whole_file(settings_.dump + "/k.gfx1030.command"),
      forgets ? Not(HasSubstr("-mllvm")) : ::testing::Matcher<std::string>(HasSubstr("-mllvm")));
  EXPECT_EQ(service.counters().workers_started, forgets ? 1U : 2U);
}

}  // namespace
}  // namespace kiln::jit
