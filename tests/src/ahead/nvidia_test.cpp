// What kernels for NVIDIA have that others have not, and what their modules must not have.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "ahead/compile_only.hpp"
#include "fusion/text/text.hpp"
#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

struct Case {
  std::string text;
  std::vector<ArgumentSpec> arguments;
  std::string target = "sm_90";
};

std::vector<Case> cases() {
  using enum DType;
  const auto array = [](std::string name, DType dtype, const Dims& shape) {
    return ArgumentSpec{std::move(name), dtype, shape, {}, false};
  };
  std::vector<Case> all = {
      {"silu(x) * y", {array("x", f32, {4096}), array("y", f32, {4096})}},
      {"i8(clip(round(x * 3), -128, 127))", {array("x", bf16, {4096})}},
      {"sqrt(x) + exp(x) * x", {array("x", c64, {512})}},
      {"where(uniform(x, 1) < 0.5, 0.0, normal(x, 2))", {array("x", u32, {4096})}},
      {"exp(x) + erfinv(x) + gelu(x) + nextafter(x, 2)", {array("x", f64, {512})}},
      {"popcount(x) // 3 + (x << 2) + clz(x) % 5", {array("x", i64, {512})}},
      {"x + y", {{"x", f32, {512, 512}, {1, 512}, false}, array("y", f32, {512, 512})}},
      {"softmax(x)", {array("x", bf16, {64, 4096})}},
      {"layer_norm(x, y, 1e-5)", {array("x", f16, {64, 1001}), array("y", f16, {1001})}},
      {"sum(x, 0)", {array("x", f32, {4096, 1024})}},
      {"argmax(x, 1)", {array("x", f16, {64, 4096})}},
      {"cumsum(x, 1)", {array("x", bf16, {64, 4096})}},
      {"sum(f32(w) * f32(x), -1)", {array("w", u4, {4096, 4096}), array("x", bf16, {4096})}},
  };
  for (const DType dtype : {f16, bf16, f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, u4, i4, f4e2m1}) {
    for (const std::string target : {"sm_80", "sm_90"}) {
      all.push_back({fmt::format("{}(f32(x) * 2 + y)", name(dtype)),
                     {array("x", dtype, {4096}), array("y", f32, {4096})},
                     target});
    }
  }
  return all;
}

int occurrences(std::string_view text, std::string_view what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// Every kernel, since those that wait for it rely on those before it having ended too.
TEST(ProgrammaticKernels, LetDependentsLaunchAndAwaitPrerequisites) {
  for (const Case& one : cases()) {
    Specification specification;
    specification.arguments = one.arguments;
    for (const std::string target : {"sm_80", "sm_90", "sm_120", "gfx942", "cpu"}) {
      const std::string text = emit_for(parse("checked", one.text), specification, target, false);
      const int expected = target == "sm_90" || target == "sm_120" ? 1 : 0;
      EXPECT_EQ(occurrences(text, "let_dependents_launch();"), expected) << text;
      const bool in_tiles = occurrences(text, "_tiles<Tiles") == 1;  // which wait themselves
      EXPECT_EQ(occurrences(text, "await_prerequisites();"), in_tiles ? 0 : expected) << text;
    }
  }
}

// Prefetches into the L2 cache come before the wait: of what all rows read, where there is a wait.
TEST(ProgrammaticKernels, PrefetchWhatAllRowsRead) {
  const auto text_for = [](const std::string& text, const std::string& target, Dims shape) {
    Specification specification;
    specification.arguments = {{"x", DType::f32, std::move(shape), {}, false},
                               {"w", DType::bf16, {4096}, {}, false}};
    return emit_for(parse("checked", text), specification, target, false);
  };
  const std::string norm = "x * rsqrt(mean(x * x, -1) + 1e-5) * w";
  for (const std::string target : {"sm_90", "sm_120"}) {
    const std::string text = text_for(norm, target, {64, 4096});
    EXPECT_EQ(occurrences(text, "prefetch_into_l2("), 1) << text;
    const std::size_t weights = text.find("prefetch_into_l2(in1_w_data, u64(size) * 2);");
    EXPECT_LT(weights, text.find("await_prerequisites();")) << text;
    EXPECT_EQ(occurrences(text_for(norm, target, {1, 4096}), "prefetch_into_l2("), 2);
    EXPECT_EQ(occurrences(text_for("sum(x * w, 0)", target, {64, 4096}), "prefetch_into_l2("), 0);
    EXPECT_EQ(occurrences(text_for("x * w", target, {64, 4096}), "prefetch_into_l2("), 0);
  }
  for (const std::string target : {"sm_80", "gfx942", "cpu"}) {
    EXPECT_EQ(occurrences(text_for(norm, target, {64, 4096}), "prefetch_into_l2("), 0) << target;
  }
}

// The compiler must not move what is read to where the kernel has not waited yet. What is read
// early on purpose is read so in products alone; a prefetch into the L2 cache (CCTL) reads nothing
// that the kernel sees.
TEST(ProgrammaticKernels, TouchNoMemoryBeforeTheyHaveWaited) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  const std::regex wait(R"(\bACQBULK\b)");
  const std::regex access(R"(\b(LD|LDG|LDGSTS|ST|STG|ATOM|ATOMG|RED|UBLKCP)(\.[A-Z0-9_.]+)? )");
  for (const Case& one : cases()) {
    if (one.target != "sm_90" || one.text.starts_with("sum(f32(w)")) continue;
    testing::Machine machine;
    try {
      machine = testing::machine_code(one.text, one.arguments, one.target);
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;
      GTEST_SKIP() << error.what();
    }
    std::smatch waited, accessed;
    ASSERT_TRUE(std::regex_search(machine.assembly, waited, wait)) << machine.assembly;
    ASSERT_TRUE(std::regex_search(machine.assembly, accessed, access)) << machine.assembly;
    EXPECT_LT(waited.position(), accessed.position()) << one.text << "\n" << machine.assembly;
  }
}

// Columns that threads keep leave registers for what is computed of them: of 16 bits too, which
// compilers would keep converted from one pass to the next.
TEST(NvidiaColumns, AreKeptWithoutScratch) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  struct Shape {
    DType dtype;
    Dims dims;
  };
  const Shape shapes[] = {
      {DType::bf16, {512, 64, 3136}},  {DType::bf16, {256, 256, 3136}},
      {DType::bf16, {64, 1000, 3136}}, {DType::f16, {32, 2048, 3136}},
      {DType::bf16, {1, 4096, 65536}}, {DType::f32, {1, 4096, 32768}},
      {DType::f16, {1, 16384, 16384}}, {DType::f32, {1, 16384, 8192}},
      {DType::f32, {1, 3001, 40001}},  {DType::bf16, {4096, 2048, 49}},
  };
  for (const Shape& shape : shapes) {
    Specification specification;
    specification.arguments = {{"x", shape.dtype, shape.dims, {}, false}};
    const CompiledKernel kernel =
        compile_for(parse("checked", "softmax(x, 1)"), specification, "sm_90");
    EXPECT_EQ(kernel.resources.scratch.value_or(0), 0)
        << name(shape.dtype) << ", " << shape.dims[1] << " rows of " << shape.dims[2];
  }
}

// Quantised rows are bound by arithmetic if each of their elements is converted alone.
TEST(NvidiaRows, ConvertSeveral8BitFloatsWhereAVectorIsStored) {
  const auto text_for = [](const std::string& text, const std::string& target, Dims shape) {
    Specification specification;
    specification.arguments = {{"x", DType::bf16, std::move(shape), {}, false}};
    return emit_for(parse("checked", text), specification, target, false);
  };
  const std::string rows = "s = max(abs(x), -1) / 448.0; f8e4m3(x / s), s";
  const std::string quantised = text_for(rows, "sm_90", {64, 4096});
  EXPECT_EQ(occurrences(quantised, "unrounded_results<"), 1) << quantised;
  EXPECT_EQ(occurrences(quantised, "to<f8e4m3>("), 0) << quantised;
  EXPECT_EQ(occurrences(text_for(rows, "gfx942", {64, 4096}), "unrounded_results<"), 0);
  const std::string columns = "s = max(abs(x), 0) / 448.0; f8e4m3(x / s), s";
  EXPECT_EQ(occurrences(text_for(columns, "sm_90", {64, 4096}), "unrounded_results<"), 1);
  const std::string both = "q = f8e4m3(x / max(abs(x), -1)); q, f32(q)";
  EXPECT_EQ(occurrences(text_for(both, "sm_90", {64, 4096}), "unrounded_results<"), 1);
  EXPECT_GT(occurrences(text_for(both, "sm_90", {64, 4096}), "to<f8e4m3>("), 0);
}

// NVRTC makes a variable in the GPU's memory of every constexpr outside of functions, and each
// takes the driver a few microseconds to load. CUDA's own functions bring a table at most.
// A value that a later pass needs is computed once, where it has the operands' places on chip.
TEST(NvidiaRows, LeaveValuesInThePlacesOfOperands) {
  const auto sigmoids_of = [](const std::string& text, const Dims& shape) {
    Specification specification;
    for (const std::string name : {"x", "y"}) {
      specification.arguments.push_back({name, DType::f16, shape, {}, false});
    }
    return occurrences(emit_for(parse("checked", text), specification, "sm_90", false),
                       " = sigmoid(");
  };
  const std::string rows = "h = silu(x) * y; d = h - mean(h, -1); max(h, -1), mean(d * d, -1)";
  EXPECT_EQ(sigmoids_of(rows, {4096, 12'288}), 1) << "in shared memory";
  EXPECT_EQ(
      sigmoids_of("h = silu(x) * y; d = h - mean(h, -1); mean(d * d * x, -1)", {4096, 12'288}), 2)
      << "x stays there while it is needed";
  const std::string columns = "h = silu(x) * y; d = h - mean(h, 1); max(h, 1), mean(d * d, 1)";
  EXPECT_EQ(sigmoids_of(columns, {64, 512, 256}), 1) << "in registers";
}

// Where a vector is one element of 16 bits, no place holds an f32.
TEST(NvidiaRows, LeaveNoValuesWhereAVectorIsTooSmall) {
  Specification specification;
  specification.arguments = {{"x", DType::bf16, {64, 16'383}, {32'766, 2}, false},
                             {"y", DType::bf16, {64, 16'383}, {}, false},
                             {"z", DType::bf16, {64, 16'383}, {}, false},
                             {"w", DType::f32, {16'383}, {}, false}};
  const std::string text = emit_for(parse("checked", "bf16(softmax(silu(x * y * z), -1) * w)"),
                                    specification, "sm_90", false);
  EXPECT_GT(occurrences(text, "_smem"), 0) << "rows are kept there";
  EXPECT_EQ(occurrences(text, "_kept"), 0);
}

TEST(NvidiaModule, HasNoVariablesOfKilns) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  for (const Case& one : cases()) {
    Specification specification;
    specification.arguments = one.arguments;
    const CompiledKernel kernel =
        compile_for(parse("checked", one.text), specification, one.target);
    // As names are mangled.
    EXPECT_EQ(kernel.code.find("4kiln"), std::string::npos) << one.text << " " << one.target;
  }
}

}  // namespace
}  // namespace kiln
