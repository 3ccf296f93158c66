// A kernel with the headers of the preamble that it needs is the kernel with all of them: no word
// of its text means something else for want of a header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "ahead/compile_only.hpp"
#include "fusion/emit/emit.hpp"
#include "kernel/named_kernel.hpp"
#include "kernel/target.hpp"
#include "preamble/preamble.hpp"
#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

void expect_same_code(const std::string& text, DType dtype, const std::string& target,
                      preamble::Device device) {
  const Function function = parse("same", text);
  Specification specification;
  for (const std::string& name : argument_names(function))
    specification.arguments.push_back({name, dtype, {64, 512}, {512, 1}, false});
  for (const EmittedKernel& kernel : emit_all(function, specification, target)) {
    jit::CompileRequest job = compile_request(kernel.request, name_kernel(kernel.request));
    const std::string code = jit::compile(job).code;
    const std::size_t needed = job.source.size();
    job.source = preamble::text(preamble::all(device), device) + '\n' +
                 fusion::with_entry(kernel.request.text, job.entry);
    EXPECT_LT(needed, job.source.size()) << text;
    EXPECT_EQ(code == jit::compile(job).code, true)
        << text << ", " << name(dtype) << ", " << target;
  }
}

// So a change in another header leaves the key as it was.
TEST(PreambleTargets, AKeyIsMadeOfTheHeadersThatTheKernelHas) {
  const Function function = parse("named", "silu(x) * y");
  Specification specification;
  for (const char* name : {"x", "y"})
    specification.arguments.push_back({name, DType::bf16, {64, 512}, {512, 1}, false});
  for (const char* target : {"gfx90a", "sm_90"}) {
    const KernelRequest request = emit_all(function, specification, target).front().request;
    const std::string source = complete_source({{{&request, "named"}}});
    std::vector<std::string> in_source, in_key;
    constexpr std::string_view kMark = "// ---- preamble/";
    for (std::size_t at = source.find(kMark); at != source.npos; at = source.find(kMark, at + 1)) {
      const std::size_t begin = at + kMark.size();
      in_source.push_back(source.substr(begin, source.find('\n', at) - begin));
    }
    for (const cache::Ingredient& one : ingredients_of(request, "compiler")) {
      if (one.tag == "preamble") in_key.push_back(one.value.substr(0, one.value.find(' ')));
    }
    EXPECT_EQ(in_key, in_source);
    EXPECT_THAT(in_key, ::testing::Contains("exp.h"));
    for (const char* other : {"integer.h", "arithmetic.h", "complex.h", "reduce.h", "products.h"})
      EXPECT_THAT(in_key, ::testing::Not(::testing::Contains(other)));
  }
}

// Code of a kiln that compiled such kernels once is not found again.
TEST(PreambleTargets, AKeyCoversTheOptionsForScarceRegisters) {
  const auto options = [](const char* target) {
    std::string in_key;
    const Function function = parse("named", "x + 1");
    Specification specification;
    specification.arguments.push_back({"x", DType::f32, {64}, {1}, false});
    for (const cache::Ingredient& one :
         ingredients_of(emit_all(function, specification, target).front().request, "compiler")) {
      if (one.tag == "option.scarce_registers") in_key += one.value + ' ';
    }
    return in_key;
  };
  EXPECT_EQ(options("gfx90a"), "-mllvm -vgpr-regalloc=basic ");
  EXPECT_EQ(options("sm_90"), "");
}

TEST(PreambleTargets, HeadersThatAreLeftOutDoNotChangeTheCode) {
  KILN_NEED(host)
  const std::string target = resolve_target("cpu");
  expect_same_code("silu(x) * y", DType::bf16, target, preamble::Device::host);
  expect_same_code("softmax(maximum(x, y), -1)", DType::f32, target, preamble::Device::host);
  expect_same_code("where(x > 0, abs(x) % y, x << 2)", DType::i16, target, preamble::Device::host);
}

TEST(TargetsLong, HeadersThatAreLeftOutDoNotChangeTheCode) {
  struct Target {
    std::string name;
    preamble::Device device;
  };
  std::vector<Target> targets;
  if (testing::has_toolchain(jit::ToolchainKind::host))
    targets.push_back({resolve_target("cpu"), preamble::Device::host});
  if (testing::has_toolchain(jit::ToolchainKind::hiprtc))
    targets.push_back({"gfx90a", preamble::Device::amd});
  if (testing::has_toolchain(jit::ToolchainKind::nvrtc))
    targets.push_back({"sm_90", preamble::Device::nvidia});
  if (targets.empty()) GTEST_SKIP() << "there is no compiler on this machine";
  for (const Target& target : targets) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::f8e4m3}) {
      for (const char* text :
           {"silu(x) * y", "gelu(x + y)", "exp(x) + log(abs(y)) - sqrt(x)", "x / y + x ** y",
            "sin(x) * atan2(x, y) + cosh(y)", "erf(x) - lgamma(y)", "floor(x) // y % 3.0",
            "softmax(x, -1) * y", "rms_norm(x, y, 1e-5)", "layer_norm(x, y, y, 1e-5)",
            "logsumexp(x, -1)", "argmax(x, -1)", "sum(x * y, 0)", "cumsum(x, -1)",
            "clip(x, -1.0, 1.0)", "bf16(x) + f8e5m2(y)"})
        expect_same_code(text, dtype, target.name, target.device);
    }
    for (const DType dtype : {DType::i32, DType::u8, DType::i64, DType::boolean}) {
      for (const char* text : {"x == y", "maximum(x, y)", "max(x, -1)", "f32(x) * 0.5", "bf16(x)"})
        expect_same_code(text, dtype, target.name, target.device);
    }
    for (const char* text : {"x * y + conj(x)", "exp(x) / y", "abs(x)", "sum(x, -1)"})
      expect_same_code(text, DType::c64, target.name, target.device);
    for (const DType dtype : {DType::u4, DType::i4, DType::f4e2m1}) {
      for (const char* text : {"f32(x) * 2.0", "f16(x) + f16(y)"})
        expect_same_code(text, dtype, target.name, target.device);
    }
  }
}

}  // namespace
}  // namespace kiln
