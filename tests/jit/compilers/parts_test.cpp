// The parts of the compile service that need no process: the protocol, targets and their options,
// the reading of logs, offload bundles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/text.hpp"
#include "jit/compilers/offload_bundle.hpp"
#include "jit/compilers/protocol.hpp"
#include "jit/service/compile.hpp"
#include "jit/service/diagnostics.hpp"
#include "jit/toolchain/host_features.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CompileProtocol, bodies_survive_the_way) {
  const CompileTask task =
      decode_compile_task(encode(CompileTask{"e", std::string("s\0s", 3), "t", {"a", ""}}));
  EXPECT_EQ(task.entry, "e");
  EXPECT_EQ(task.source, std::string("s\0s", 3));
  EXPECT_EQ(task.target, "t");
  EXPECT_EQ(task.options, (std::vector<std::string>{"a", ""}));
  const CompileOutput output = decode_compile_output(encode(CompileOutput{"code", "log", 1.5}));
  EXPECT_EQ(output.code, "code");
  EXPECT_EQ(output.milliseconds, 1.5);
  const Failure failure = decode_failure(encode(Failure{Code::unsupported, "m", "l"}));
  EXPECT_EQ(failure.code, Code::unsupported);
  EXPECT_EQ(failure.log, "l");
}

TEST(CompileProtocol, a_body_cut_at_any_byte_or_with_one_more_is_refused) {
  const std::string body = encode(CompileTask{"entry", "source", "target", {"one", "two"}});
  for (std::size_t size = 0; size < body.size(); ++size) {
    EXPECT_THROW(decode_compile_task(std::string_view(body).substr(0, size)), Error) << size;
  }
  EXPECT_THROW(decode_compile_task(body + "x"), Error);
  EXPECT_THROW(decode_failure(encode(Failure{static_cast<Code>(99), "", ""})), Error);
}

TEST(CompileProtocol, frames_arrive_whole_however_they_are_cut) {
  const std::string bytes =
      encode_frame({MessageType::compile, 7, "body"}) + encode_frame({MessageType::done, 8, ""});
  FrameReader reader;
  std::vector<Message> messages;
  for (const char byte : bytes) {
    reader.feed({&byte, 1});
    while (auto message = reader.next()) messages.push_back(std::move(*message));
  }
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0].body, "body");
  EXPECT_EQ(messages[0].id, 7U);
  EXPECT_EQ(messages[1].type, MessageType::done);
}

TEST(CompileTarget, families_are_told_apart_and_others_refused) {
  EXPECT_EQ(toolchain_for("gfx90a:sramecc+:xnack-"), ToolchainKind::hiprtc);
  EXPECT_EQ(toolchain_for("sm_90a"), ToolchainKind::nvrtc);
  EXPECT_EQ(toolchain_for("cpu"), ToolchainKind::host);
  EXPECT_EQ(toolchain_for(host_target()), ToolchainKind::host);
  for (const char* target :
       {"", "gfx", "sm_", "vulkan", "gfx90a -o /etc/passwd", "gfx90a\n", "cpus"}) {
    EXPECT_THROW(toolchain_for(target), Error) << target;
  }
}

TEST(CompileTarget, options_carry_the_full_target_and_the_contraction) {
  const auto mi200 = compile_options("gfx90a:sramecc+:xnack-", false);
  EXPECT_THAT(mi200, Contains("--offload-arch=gfx90a:sramecc+:xnack-"));
  EXPECT_THAT(mi200, Contains("-ffp-contract=off"));
  EXPECT_THAT(compile_options("gfx942", true), Contains("-DKILN_CONTRACT=1"));
  EXPECT_THAT(compile_options("gfx942", true), Not(Contains("-ffp-contract=fast")))
      << "contracts the compiler's library too";
  EXPECT_THAT(compile_options("gfx1100", false), Contains("-real-true16"))
      << "halves of registers that loads fill apart";
  EXPECT_THAT(compile_options("gfx1201", false), Not(Contains("-real-true16")));
  EXPECT_THAT(compile_options("sm_90", false), Contains("--fmad=false"));
  EXPECT_THAT(compile_options("sm_90", true), Contains("--fmad=true"));
}

TEST(CompileTarget, only_amd_kernels_have_options_for_scarce_registers) {
  EXPECT_THAT(scarce_register_options("gfx90a"), Contains("-vgpr-regalloc=basic"));
  EXPECT_TRUE(scarce_register_options("sm_90").empty());
  EXPECT_TRUE(scarce_register_options("cpu").empty());
}

TEST(CompileTarget, the_host_is_compiled_for_its_features_and_keeps_special_values) {
  const auto options = compile_options("cpu", false);
  EXPECT_EQ(options, compile_options(host_target(), false));
  EXPECT_THAT(options, Contains("-ffp-contract=off"));
  EXPECT_THAT(options, Not(Contains(HasSubstr("fast-math"))));
  EXPECT_THAT(options, Not(Contains(HasSubstr("finite"))));
  EXPECT_THAT(options, Not(Contains(HasSubstr("signed-zeros"))));
  EXPECT_THAT(compile_options("x86-64:avx2,fma", false), Contains("-mfma"));
  EXPECT_THAT(compile_options("x86-64", false), Not(Contains(HasSubstr("avx"))));
  EXPECT_THROW(compile_options("x86-64:avx2,-o", false), Error);
}

TEST(CompileLog, the_first_errors_line_is_found_in_every_compilers_style) {
  EXPECT_EQ(first_error_line("k.hip:3:5: warning: w\nk.hip:12:7: error: undeclared\n"), 12);
  EXPECT_EQ(first_error_line("k.cu(42): error: identifier \"x\" is undefined"), 42);
  EXPECT_EQ(first_error_line("kernel.cpp:7:1: fatal error: no such file"), 7);
  EXPECT_EQ(first_error_line("lld: error: undefined symbol: f"), 0);
  EXPECT_EQ(first_error_line("2 errors generated"), 0);
  EXPECT_EQ(first_error_line(""), 0);
}

TEST(CompileLog, an_error_in_the_source_is_a_verdict_and_a_fatal_one_is_not) {
  EXPECT_TRUE(is_verdict("k.hip:12:7: error: undeclared\n"));
  EXPECT_TRUE(is_verdict("k.cu(42): error: identifier \"x\" is undefined"));
  EXPECT_FALSE(is_verdict("k.cpp:3:1: fatal error: error writing to /tmp/a.s: No space left"));
  EXPECT_FALSE(is_verdict("k.cu(1): catastrophic error: out of memory"));
  EXPECT_FALSE(is_verdict("g++: fatal error: Killed signal terminated program cc1plus"));
  EXPECT_FALSE(is_verdict("clang: error: unable to execute command: Killed"));
  EXPECT_FALSE(is_verdict(""));
}

TEST(CompileLog, only_the_last_lines_are_shown_and_the_cut_is_said) {
  EXPECT_EQ(base::last_lines("a\nb\nc\n\n", 3), "a\nb\nc");
  EXPECT_EQ(base::last_lines("a\nb\nc", 2), "(1 lines before)\nb\nc");
  EXPECT_EQ(base::last_lines("", 2), "");
}

// The layout of clang's "Clang Offload Bundler": magic, count, then offset, size and id of each
// entry.
std::string bundle(const std::vector<std::pair<std::string, std::string>>& entries) {
  const auto number = [](std::uint64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::uint64_t header = 24 + 8;
  for (const auto& [id, code] : entries) header += 24 + id.size();
  std::string text = "__CLANG_OFFLOAD_BUNDLE__" + number(entries.size());
  std::string codes;
  for (const auto& [id, code] : entries) {
    text += number(header + codes.size()) + number(code.size()) + number(id.size()) + id;
    codes += code;
  }
  return text + codes;
}

TEST(OffloadBundle, gives_the_targets_code_and_leaves_other_bytes_alone) {
  const std::string bytes = bundle({{"host-x86_64-unknown-linux", ""},
                                    {"hipv4-amdgcn-amd-amdhsa--gfx90a", "first"},
                                    {"hipv4-amdgcn-amd-amdhsa--gfx1100", "second"}});
  EXPECT_EQ(unbundle(bytes, "gfx1100"), "second");
  EXPECT_EQ(unbundle(bytes, "gfx90a"), "first");
  EXPECT_EQ(unbundle("\177ELF...", "gfx90a"), "\177ELF...");
  EXPECT_THROW(unbundle(bytes, "gfx908"), Error);
  for (std::size_t size = 24; size < bytes.size() - 6; ++size) {
    EXPECT_THROW(unbundle(bytes.substr(0, size), "gfx1100"), Error) << size;
  }
}

}  // namespace
}  // namespace kiln::jit
