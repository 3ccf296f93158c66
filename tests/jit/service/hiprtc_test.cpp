// hiprtc for real, on whatever release is installed: every target it knows, and targets it does not
// know, on which releases 5 and 6 abort their process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "jit/service/service.hpp"
#include "tests/jit/service/fixtures.hpp"
#include "tests/jit/service/kernels.hpp"

namespace kiln::jit {
namespace {

using test::error_of;
using test::scale_request;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class CompileHiprtc : public ::testing::Test {
 protected:
  CompileHiprtc() : directory_("kiln-test") {
    settings_ = settings_from_environment();
    settings_.cache_directory = directory_.path();
  }
  void SetUp() override {
    try {
      toolchain_ = toolchain(ToolchainKind::hiprtc);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  base::TemporaryDirectory directory_;
  Settings settings_;
  Toolchain toolchain_;
};

TEST_F(CompileHiprtc, compiles_for_every_target_that_it_knows_and_remembers_them) {
  Service service(settings_);
  const std::vector<std::string> targets = service.known_targets(toolchain_);
  ASSERT_FALSE(targets.empty());
  std::vector<CompileHandle> handles;
  for (const std::string& target : targets)
    handles.push_back(service.compile_async(scale_request(target, "kiln_scale")));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Resources found = resources(handles[i].get().code, "kiln_scale");
    EXPECT_GT(found.code_bytes, 16U) << targets[i];
    EXPECT_GT(found.vgprs.value_or(0), 0) << targets[i];
    EXPECT_GT(found.sgprs.value_or(0), 0) << targets[i];
    EXPECT_EQ(found.spills, 0) << targets[i];
    EXPECT_EQ(found.scratch, 0) << targets[i];
    EXPECT_EQ(found.lds, 0) << targets[i];
  }
  Service next_process(settings_);
  EXPECT_EQ(next_process.known_targets(toolchain_), targets);
  EXPECT_EQ(next_process.counters().workers_started, 0U);
  std::cout << toolchain_.version << ": " << targets.size() << " targets\n";
}

TEST_F(CompileHiprtc, an_unknown_target_is_an_error_that_costs_nothing_the_second_time) {
  Service service(settings_);
  // gfx9999 is nobody's; releases before 6.4 do not know gfx1201 either.
  for (const char* target : {"gfx9999", "gfx1201"}) {
    const CompileRequest request = scale_request(target, "kiln_unknown");
    try {
      service.compile_async(request).get();
      EXPECT_STREQ(target, "gfx1201");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("does not know this target"));
      const std::uint64_t before = service.counters().exchanges;
      EXPECT_EQ(error_of([&] { service.compile_async(request).get(); }).code(), Code::unsupported);
      EXPECT_EQ(service.counters().exchanges, before);
    }
  }
  EXPECT_NO_THROW(service.compile_async(scale_request("gfx906", "kiln_after")).get());
}

TEST_F(CompileHiprtc, a_worker_without_a_temporary_directory_is_not_blamed_on_the_target) {
  const std::string temporary = directory_.path() + "/tmp";
  std::filesystem::create_directory(temporary);
  const char* const value = std::getenv("TMPDIR");
  const std::string before = value != nullptr ? value : "/tmp";
  setenv("TMPDIR", temporary.c_str(), 1);
  settings_.jobs = 1;
  {
    Service service(settings_);
    EXPECT_NO_THROW(service.compile_async(scale_request("gfx906", "kiln_before")).get());
    for (const auto& made : std::filesystem::directory_iterator(temporary)) {
      std::filesystem::remove_all(made.path());  // as a cleaner of /tmp does it
    }
    try {
      service.compile_async(scale_request("gfx908", "kiln_without")).get();
    } catch (const Error& error) {
      EXPECT_NE(error.code(), Code::unsupported) << error.what();
    }
  }
  Service next_process(settings_);
  EXPECT_NO_THROW(next_process.compile_async(scale_request("gfx908", "kiln_after")).get());
  setenv("TMPDIR", before.c_str(), 1);
}

TEST_F(CompileHiprtc, a_source_that_is_wrong_is_not_blamed_on_the_target) {
  Service service(settings_);
  const CompileRequest wrong = scale_request("gfx906", "kiln_wrong", "no_such_name");
  EXPECT_EQ(error_of([&] { service.compile_async(wrong).get(); }).code(), Code::compile_failed);
  EXPECT_NO_THROW(service.compile_async(scale_request("gfx906", "kiln_right")).get());
}

TEST_F(CompileHiprtc, a_dump_holds_the_isa_and_a_command_that_gives_the_same_code) {
  settings_.dump = directory_.path() + "/dump";
  Service service(settings_);
  const std::string code = service.compile_async(scale_request("gfx906", "kiln_dumped")).get().code;
  const std::string stem = settings_.dump + "/kiln_dumped.gfx906";
  EXPECT_THAT(base::read_whole_file(stem + ".isa"), HasSubstr("v_add_f32"));
  EXPECT_THAT(base::read_whole_file(stem + ".hip"), HasSubstr("kiln_dumped"));
  EXPECT_EQ(base::read_whole_file(stem + ".hsaco"), code);
  std::filesystem::remove(stem + ".hsaco");
  EXPECT_EQ(std::system(("sh '" + stem + ".command' 2>/dev/null").c_str()), 0);
  EXPECT_EQ(base::read_whole_file(stem + ".hsaco"), code);
}

TEST_F(CompileHiprtc, a_whole_vector_is_one_load_in_the_disassembly) {
  CompileRequest request = scale_request("gfx906", "kiln_vector");
  request.source = R"(struct alignas(16) Four { float v[4]; };
extern "C" __global__ void kiln_vector(const Four* x, Four* y) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  Four a = x[i];
  for (int k = 0; k < 4; ++k) a.v[k] += 1.0f;
  y[i] = a;
})";
  Service service(settings_);
  const std::string isa = service.disassemble(service.compile_async(request).get().code, "gfx906");
  EXPECT_THAT(isa, HasSubstr("kiln_vector:"));
  EXPECT_THAT(isa, AnyOf(HasSubstr("global_load_dwordx4"), HasSubstr("global_load_b128")));
  EXPECT_THAT(isa, HasSubstr("s_endpgm"));
}

TEST_F(CompileHiprtc, resources_show_lds_and_scratch) {
  Service service(settings_);
  const Resources found =
      resources(service.compile_async(test::tile_request("gfx906")).get().code, "kiln_tile");
  EXPECT_EQ(found.lds, 1024);
  EXPECT_GE(found.scratch.value_or(0), 512);
}

}  // namespace
}  // namespace kiln::jit
