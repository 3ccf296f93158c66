// The machine code of kernels that data tells where to read, write and end, for GPUs that need not
// be here: rows move in 16 bytes as they do elsewhere, without scratch, in waves of 32 and of 64
// lanes.
#include <gtest/gtest.h>

#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::Machine;

class AmdIndexed : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> known = testing::targets_of(jit::ToolchainKind::hiprtc);
    if (std::ranges::find(known, GetParam()) == known.end()) {
      GTEST_SKIP() << "no hiprtc on this machine knows " << GetParam();
    }
  }

  static Machine machine_of(const char* text, const std::vector<ArgumentSpec>& arguments) {
    Machine machine = testing::machine_code(text, arguments, GetParam());
    EXPECT_EQ(machine.resources.scratch.value_or(-1), 0) << text;
    EXPECT_EQ(machine.resources.spills.value_or(-1), 0) << text;
    return machine;
  }

  /// Loads and stores of 16 bytes, and of less than four: one of each is in a loop over the
  /// elements of a vector that a row ends in.
  static int wide(const Machine& machine, const std::string& what) {
    return machine.count("global_" + what + "_(dwordx4|b128)");
  }
  static int narrow(const Machine& machine, const std::string& what) {
    return machine.count("global_" + what + "_(ushort|u16|d16|short|b16|ubyte|u8|byte|b8)");
  }
};

const ArgumentSpec kRows{"x", DType::bf16, {1024, 4096}, {}, false};
const ArgumentSpec kValues{"y", DType::bf16, {64, 4096}, {}, false};
const ArgumentSpec kPlaces{"i", DType::i32, {64}, {}, false};
const ArgumentSpec kEnd{"n", DType::i32, {1}, {}, false};

TEST_P(AmdIndexed, TakesAndPutsWholeVectors) {
  const Machine taken = machine_of("take(x, i) * 2", {kRows, kPlaces});
  EXPECT_GE(wide(taken, "load"), 1) << taken.assembly;
  EXPECT_EQ(wide(taken, "store"), wide(taken, "load"));
  EXPECT_LE(narrow(taken, "load"), 1) << taken.assembly;
  EXPECT_LE(narrow(taken, "store"), 1) << taken.assembly;
  const Machine put = machine_of("put(x, i, y * 2)", {kRows, kPlaces, kValues});
  EXPECT_GE(wide(put, "load"), 1) << put.assembly;
  EXPECT_EQ(wide(put, "store"), wide(put, "load"));
  EXPECT_LE(narrow(put, "load"), 1) << put.assembly;
  EXPECT_LE(narrow(put, "store"), 1) << put.assembly;
}

// A kernel of a norm reads its row as it does where the row's number is no data.
TEST_P(AmdIndexed, NormalisesTakenRowsInRegisters) {
  const Machine plain = machine_of("layer_norm(y, 1e-5)", {kValues});
  const Machine taken = machine_of("layer_norm(take(x, i), 1e-5)", {kRows, kPlaces});
  EXPECT_EQ(wide(taken, "load"), wide(plain, "load")) << taken.assembly;
  EXPECT_EQ(narrow(taken, "load"), 0) << taken.assembly;
}

TEST_P(AmdIndexed, EndsBetweenVectors) {
  const Machine ended = machine_of("y[:n] * 2", {kValues, kEnd});
  EXPECT_GE(wide(ended, "load"), 1) << ended.assembly;
  EXPECT_LE(narrow(ended, "load"), 1) << ended.assembly;
  EXPECT_LE(narrow(ended, "store"), 1) << ended.assembly;
  machine_of("sum(f32(y[:, :n]), -1)", {kValues, kEnd});
  for (const char* text : {"cumsum(f32(y[:, :n]), -1)", "cumsum(f32(y[:n]), 0)"}) {
    machine_of(text, {kValues, kEnd});
  }
}

INSTANTIATE_TEST_SUITE_P(Gfx, AmdIndexed,
                         ::testing::Values("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100",
                                           "gfx1201"),
                         testing::target_name);

TEST(NvidiaIndexed, Compiles) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty()) {
    GTEST_SKIP() << "there is no NVRTC on this machine";
  }
  for (const char* target : {"sm_80", "sm_90"}) {
    const auto scratch = [&](const char* text, const std::vector<ArgumentSpec>& arguments) {
      Specification specification;
      specification.arguments = arguments;
      return compile_for(parse("checked", text), specification, target)
          .resources.scratch.value_or(0);
    };
    EXPECT_EQ(scratch("take(x, i) * 2", {kRows, kPlaces}), 0) << target;
    EXPECT_EQ(scratch("put(x, i, y * 2)", {kRows, kPlaces, kValues}), 0) << target;
    EXPECT_EQ(scratch("sum(f32(y[:, :n]), -1)", {kValues, kEnd}), 0) << target;
    EXPECT_EQ(scratch("cumsum(f32(y[:, :n]), -1)", {kValues, kEnd}), 0) << target;
    EXPECT_EQ(scratch("cumsum(f32(y[:n]), 0)", {kValues, kEnd}), 0) << target;
  }
}

}  // namespace
}  // namespace kiln
