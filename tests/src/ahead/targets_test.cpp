// Kernels for devices that need not be here: a chain for every target that the compilers know, and
// what the machine code of the common kernels must and must not contain. All ops and dtypes are in
// every_op_targets_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::Machine;
using testing::targets_of;

// Every other element, so that a thread has one and the compiler little to unroll.
Specification on_vectors(const Function& function, DType dtype) {
  Specification specification;
  for (const std::string& argument : argument_names(function)) {
    specification.arguments.push_back({argument, dtype, {4096}, {2}, false});
  }
  return specification;
}

// Side by side, as an engine would fill its cache.
void compile_all(const std::vector<Function>& functions, DType dtype,
                 const std::vector<std::string>& targets) {
  std::vector<std::future<void>> compiles;
  for (const std::string& target : targets) {
    for (const Function& function : functions) {
      compiles.push_back(std::async(std::launch::async, [&function, target, dtype] {
        const CompiledKernel kernel = compile_for(function, on_vectors(function, dtype), target);
        EXPECT_FALSE(kernel.code.empty()) << function.name() << " for " << target;
        EXPECT_LT(kernel.info.entry.size(), 64u);
      }));
    }
  }
  for (std::future<void>& compile : compiles) compile.get();
}

TEST(Targets, HiprtcCompilesAFusedChainForEveryTargetItKnows) {
  const std::vector<std::string> targets = targets_of(jit::ToolchainKind::hiprtc);
  if (targets.empty()) GTEST_SKIP() << "there is no hiprtc on this machine";
  compile_all({parse("chain", "gelu_tanh(x) * y + where(z > 0, exp(z), tanh(y)), x < y")},
              DType::bf16, targets);
}

TEST(Targets, NvrtcCompilesAFusedChain) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  compile_all({parse("chain", "gelu_tanh(x) * y + where(z > 0, exp(z), tanh(y)), x < y")},
              DType::bf16, {"sm_80"});
}

TEST(Targets, AnUnknownTargetIsAnErrorThatNamesIt) {
  if (targets_of(jit::ToolchainKind::hiprtc).empty())
    GTEST_SKIP() << "there is no hiprtc on this machine";
  const Function function = parse("f", "x + 1");
  for (const std::string target : {"gfx9999", "pdp11"}) {
    try {
      compile_for(function, on_vectors(function, DType::f32), target);
      ADD_FAILURE() << target << ": no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(target), std::string::npos) << error.what();
    }
  }
}

Machine machine_code(const std::string& text, DType dtype, std::vector<ArgumentSpec> arguments,
                     const std::string& target) {
  for (ArgumentSpec& argument : arguments) argument.dtype = dtype;
  return testing::machine_code(text, arguments, target);
}

class AmdMachineCode : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> known = targets_of(jit::ToolchainKind::hiprtc);
    if (std::ranges::find(known, GetParam()) == known.end()) {
      GTEST_SKIP() << "no hiprtc on this machine knows " << GetParam();
    }
  }

  static void check(const Machine& machine, int loads, int stores) {
    const jit::Resources& resources = machine.resources;
    EXPECT_EQ(resources.scratch.value_or(-1), 0);
    EXPECT_EQ(resources.spills.value_or(-1), 0);
    EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), loads) << machine.assembly;
    EXPECT_EQ(machine.count("global_store_(dwordx4|b128)"), stores) << machine.assembly;
    EXPECT_EQ(machine.count("v_rcp_iflag"), 0) << "an integer division\n" << machine.assembly;
  }
};

TEST_P(AmdMachineCode, ContiguousOperandsMoveSixteenBytesAtATime) {
  check(machine_code("silu(a) * b", DType::bf16,
                     {{"a", {}, {4096}, {}, false}, {"b", {}, {4096}, {}, false}}, GetParam()),
        2, 1);
}

TEST_P(AmdMachineCode, ABroadcastRowToo) {
  check(machine_code("a + b", DType::bf16,
                     {{"a", {}, {64, 4096}, {}, false}, {"b", {}, {4096}, {}, false}}, GetParam()),
        2, 1);
}

TEST_P(AmdMachineCode, PaddedRowsToo) {
  check(machine_code("maximum(a, 0) + b", DType::f32,
                     {{"a", {}, {64, 4096}, {4100, 1}, false}, {"b", {}, {64, 4096}, {}, false}},
                     GetParam()),
        2, 1);
}

// Sixteen elements of four bits are eight bytes; the other accesses are for the end of the row.
TEST_P(AmdMachineCode, PackedOperandsMoveWholeWordsAndUnpackInRegisters) {
  for (const DType dtype : {DType::u4, DType::i4, DType::f4e2m1}) {
    const Machine machine = machine_code(fmt::format("{}(x)", name(dtype)), dtype,
                                         {{"x", {}, {4096}, {}, false}}, GetParam());
    EXPECT_EQ(machine.resources.scratch.value_or(-1), 0) << name(dtype);
    EXPECT_EQ(machine.count("global_load_(dwordx2|b64)"), 1) << machine.assembly;
    EXPECT_EQ(machine.count("global_store_(dwordx2|b64)"), 1) << machine.assembly;
    EXPECT_LE(machine.count("global_store_"), 2) << machine.assembly;
  }
}

TEST_P(AmdMachineCode, EightBitFloatsMoveSixteenBytesAtATime) {
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz}) {
    check(machine_code(fmt::format("{}(x + 1)", name(dtype)), dtype, {{"x", {}, {4096}, {}, false}},
                       GetParam()),
          1, 1);
  }
}

// Two rows may share a byte, so its halves are changed by compare and exchange.
TEST_P(AmdMachineCode, RowsThatBeginInTheMiddleOfAByteAreStoredAtomically) {
  const Function function = parse("odd_rows", "u4(x)");
  Specification specification;
  specification.arguments = {{"x", DType::u4, {8, 31}, {62, 1}, false}};
  const CompiledKernel kernel = compile_for(function, specification, GetParam());
  EXPECT_EQ(kernel.resources.scratch.value_or(-1), 0);
}

TEST_P(AmdMachineCode, AColumnIsLoadedOnceForEachRow) {
  check(machine_code("a + b", DType::f32,
                     {{"a", {}, {64, 4096}, {}, false}, {"b", {}, {64, 1}, {}, false}}, GetParam()),
        1, 1);
}

// A block of 256 threads computes a tile of 64 by 64, in which each thread has four vectors of the
// plain operand, four of the transposed one on its way through LDS, and four of the result.
TEST_P(AmdMachineCode, ATransposedOperandToo) {
  const Machine machine = machine_code(
      "a + b", DType::f32,
      {{"a", {}, {4096, 4096}, {}, false}, {"b", {}, {4096, 4096}, {1, 4096}, false}}, GetParam());
  check(machine, 8, 4);
  EXPECT_EQ(machine.resources.lds.value_or(0), 64 * 64 * 4);
}

TEST_P(AmdMachineCode, SeparateOperationsAreNotFusedIntoOneRounding) {
  const Machine machine =
      machine_code("a * b + a", DType::f32,
                   {{"a", {}, {4096}, {}, false}, {"b", {}, {4096}, {}, false}}, GetParam());
  EXPECT_EQ(machine.count("v_(pk_)?(fma|mac|fmac|mad)_f32"), 0) << machine.assembly;
}

INSTANTIATE_TEST_SUITE_P(Gfx, AmdMachineCode,
                         ::testing::Values("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"),
                         testing::target_name);

}  // namespace
}  // namespace kiln
