// The machine code of products of quantised matrices and of running results for GPUs that need not
// be here: 16 bytes of weights in a load, every load once, no scratch, waves of 32 and of 64 lanes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

std::vector<ArgumentSpec> matrix_vector(DType weights, std::int64_t columns,
                                        std::int64_t rows = 4096) {
  return {{"q", weights, {rows, 1, 64, 64}, {}, false},
          {"scale", DType::bf16, {rows, 1, 64, 1}, {}, false},
          {"bias", DType::bf16, {rows, 1, 64, 1}, {}, false},
          {"x", DType::bf16, {columns, 64, 64}, {}, false}};
}
constexpr const char* kMatrixVector = "sum((q * scale + bias) * x, -1, -2)";

Specification specification_of(const char* text, DType weights, std::int64_t columns) {
  Specification specification;
  for (ArgumentSpec& argument : matrix_vector(weights, columns)) {
    const bool used = std::string_view(text).find(argument.name) != std::string_view::npos;
    if (used) specification.arguments.push_back(std::move(argument));
  }
  return specification;
}

std::string source_of(const char* text, DType weights, std::int64_t columns, const char* target,
                      const Options& options) {
  return emit_for(parse("f", text, options), specification_of(text, weights, columns), target,
                  false);
}

class AmdProducts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> known = testing::targets_of(jit::ToolchainKind::hiprtc);
    if (std::ranges::find(known, GetParam()) == known.end()) {
      GTEST_SKIP() << "no hiprtc on this machine knows " << GetParam();
    }
  }
  static void expect_no_scratch(const testing::Machine& machine) {
    EXPECT_EQ(machine.resources.scratch.value_or(-1), 0);
    EXPECT_EQ(machine.resources.spills.value_or(-1), 0);
  }
};

TEST_P(AmdProducts, LoadSixteenBytesOfWeightsForEachOfFourRows) {
  const testing::Machine machine =
      testing::machine_code(kMatrixVector, matrix_vector(DType::u4, 1), GetParam());
  expect_no_scratch(machine);
  // One of weights for each row and four of the vector that the rows share.
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 4 + 4) << machine.assembly;
  EXPECT_EQ(machine.count("global_load_(ushort|u16|d16_b16|short_d16)"), 4 * 2) << machine.assembly;
  // One instruction makes a float of a weight, and one finds four weights in a word.
  EXPECT_EQ(machine.count("v_cvt_f32_ubyte"), 4 * 32) << machine.assembly;
  EXPECT_LE(machine.count("v_bfe_u32"), 16) << machine.assembly;
}

// Where results go is read once for each row, and adds to their stores alone.
TEST_P(AmdProducts, LoadAsMuchWhereDataSaysPlaces) {
  std::vector<ArgumentSpec> arguments = matrix_vector(DType::u4, 1);
  arguments.push_back({"c", DType::f16, {8192, 1, 1, 1}, {}, false});
  arguments.push_back({"i", DType::i32, {4096}, {}, false});
  const testing::Machine machine = testing::machine_code(
      "put(c, i, f16(sum((q * scale + bias) * x, -1, -2)))", arguments, GetParam());
  expect_no_scratch(machine);
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 4 + 4) << machine.assembly;
  EXPECT_EQ(machine.count("global_load_(ushort|u16|d16_b16|short_d16)"), 4 * 2) << machine.assembly;
  EXPECT_LE(machine.count("global_load_(dword|b32) "), 4) << machine.assembly;
  EXPECT_EQ(machine.count("global_store_(short|b16)"), 4) << machine.assembly;
}

// Vectors whose elements lie anywhere are gathered in registers, and weights loaded as ever.
TEST_P(AmdProducts, LoadWeightsInVectorsWhereOthersLieAnywhere) {
  for (const char* text : {kMatrixVector, "sum(f32(q) * scale * (x * 0.5), -1, -2)"}) {
    std::vector<ArgumentSpec> arguments = matrix_vector(DType::u4, 2);
    arguments[3].strides = {1, 128, 2};
    if (text != kMatrixVector) {
      arguments.erase(arguments.begin() + 2);
      arguments[2].dtype = DType::i8;
    }
    const testing::Machine machine = testing::machine_code(text, arguments, GetParam());
    expect_no_scratch(machine);
    EXPECT_GE(machine.count("global_load_(dwordx4|b128)"), 4) << machine.assembly;
  }
}

// One of them dequantises two weights, another multiplies and adds them.
TEST_P(AmdProducts, MultiplyAndAddPairsWhereThereIsAnInstruction) {
  const std::string& target = GetParam();
  const bool has_pairs = target == "gfx90a" || target == "gfx942";
  for (const std::int64_t columns : {1, 4}) {
    const testing::Machine machine =
        testing::machine_code(kMatrixVector, matrix_vector(DType::u4, columns), target);
    const int pairs = 4 * 16 * static_cast<int>(1 + columns);
    EXPECT_EQ(machine.count("v_pk_fma_f32"), has_pairs ? pairs : 0) << machine.assembly;
  }
}

TEST_P(AmdProducts, ReadWeightsOnceForAllColumns) {
  const testing::Machine machine =
      testing::machine_code(kMatrixVector, matrix_vector(DType::u4, 8), GetParam());
  expect_no_scratch(machine);
  // Two rows of weights; eight vectors in four parts.
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 2 + 8 * 4) << machine.assembly;
}

TEST_P(AmdProducts, TakeEveryWeight) {
  for (const DType dtype : {DType::i4, DType::u8, DType::i8, DType::f8e4m3, DType::f4e2m1}) {
    const testing::Machine machine =
        testing::machine_code(kMatrixVector, matrix_vector(dtype, 2), GetParam());
    expect_no_scratch(machine);
    EXPECT_GE(machine.count("global_load_(dwordx4|b128)"), 4) << machine.assembly;
  }
}

TEST_P(AmdProducts, RunAlongRowsWithinWaves) {
  const testing::Machine machine = testing::machine_code(
      "cumsum(x, -1)", {{"x", DType::f32, {64, 4096}, {}, false}}, GetParam());
  expect_no_scratch(machine);
  EXPECT_GE(machine.count("ds_bpermute"), 6) << machine.assembly;
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 1) << machine.assembly;
  EXPECT_EQ(machine.count("global_store_(dwordx4|b128)"), 1) << machine.assembly;
}

// Where columns are few, threads take fewer of them each.
TEST_P(AmdProducts, RunAcrossRowsInVectors) {
  const testing::Machine machine = testing::machine_code(
      "cumsum(x, 0)", {{"x", DType::f32, {64, 1 << 19}, {}, false}}, GetParam());
  expect_no_scratch(machine);
  EXPECT_GE(machine.count("global_load_(dwordx4|b128)"), 1) << machine.assembly;
  EXPECT_GE(machine.count("global_store_(dwordx4|b128)"), 1) << machine.assembly;
  EXPECT_EQ(machine.count("ds_"), 0) << machine.assembly;
}

// Of 4-bit weights eight products take five instructions, of 8-bit ones four products one.
TEST_P(AmdProducts, AddIntegerProductsByDotInstructions) {
  const std::string dot = "v_dot4c?_i32_i(8|u8)";
  for (const DType dtype : {DType::u4, DType::i4, DType::u8, DType::i8}) {
    const std::vector<ArgumentSpec> arguments = {{"q", dtype, {4096, 1, 64, 64}, {}, false},
                                                 {"x", DType::i8, {2, 64, 64}, {}, false},
                                                 {"scale", DType::f16, {4096, 1, 64, 1}, {}, false},
                                                 {"step", DType::f32, {2, 64, 1}, {}, false}};
    const testing::Machine machine = testing::machine_code(
        "sum((f32(q) - 8) * scale * (x * step), -1, -2)", arguments, GetParam());
    expect_no_scratch(machine);
    const int words = bits(dtype) == 4 ? 8 : 4;  // of x; four rows, two vectors and their sums
    EXPECT_EQ(machine.count(dot), words * 2 * (4 + 1)) << name(dtype) << machine.assembly;
    const testing::Machine whole = testing::machine_code("sum(i32(q) * i32(x), -1, -2)",
                                                         {arguments[0], arguments[1]}, GetParam());
    expect_no_scratch(whole);
    EXPECT_GE(whole.count(dot), words * 2 * 4) << name(dtype) << whole.assembly;
  }
}

INSTANTIATE_TEST_SUITE_P(Gfx, AmdProducts,
                         ::testing::Values("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"),
                         testing::target_name);

// Which sums are scaled once for each group, and which are added up in tiles: the text says it,
// without a compiler.
TEST(ScaledSums, AreThoseOfSmallIntegersOnGpus) {
  const auto is_scaled = [](const char* text, DType weights, std::int64_t columns,
                            const char* target, const Options& options = {}) {
    const std::string source = source_of(text, weights, columns, target, options);
    return source.find("carry_scaled") != std::string::npos;
  };
  for (const char* text :
       {kMatrixVector, "sum(x * (bias + scale * q), -1, -2)", "sum((q * scale - bias) * x, -1, -2)",
        "sum((f32(q) - bias) * scale * x, -1, -2)",
        "mean(silu(x) * ((q - bias) * scale), -1, -2)"}) {
    for (const DType dtype : {DType::u4, DType::i4, DType::u8, DType::i8}) {
      EXPECT_TRUE(is_scaled(text, dtype, 1, "sm_75")) << text;
    }
    EXPECT_FALSE(is_scaled(text, DType::f8e4m3, 1, "sm_75")) << text;
    EXPECT_TRUE(is_scaled(text, DType::u4, 5, "sm_75")) << text;  // as with one column
  }
  // AMD dequantises by one instruction, where that rounds no more often.
  EXPECT_FALSE(is_scaled(kMatrixVector, DType::u4, 1, "gfx90a"));
  EXPECT_TRUE(is_scaled("sum((q * scale - bias) * x, -1, -2)", DType::u4, 2, "gfx90a"));
  EXPECT_TRUE(is_scaled("sum((f32(q) - 8) * scale * x, -1, -2)", DType::u4, 5, "gfx90a"));
  Options each;
  each.rounding = Rounding::each;
  EXPECT_FALSE(is_scaled(kMatrixVector, DType::u4, 1, "sm_90", each));
  EXPECT_FALSE(is_scaled("max((q * scale + bias) * x, -1, -2)", DType::u4, 1, "sm_90"));
  EXPECT_FALSE(is_scaled("sum(abs(q * scale + bias) * x, -1, -2)", DType::u4, 1, "sm_90"));
  EXPECT_FALSE(is_scaled("sum((bf16(f32(q) * scale) + bias) * x, -1, -2)", DType::u4, 1, "sm_90"));
}

TEST(HostProducts, AreInVectorsWhereSmallNumbersAreAddedAndMultiplied) {
  const auto in_vectors = [](const char* text, DType weights, std::int64_t columns,
                             const char* target = "cpu", const Options& options = {}) {
    const std::string source = source_of(text, weights, columns, target, options);
    return source.find("VectorSums<") != std::string::npos;
  };
  for (const DType dtype :
       {DType::u4, DType::i4, DType::u8, DType::i8, DType::f4e2m1, DType::f8e4m3, DType::f8e5m2fnuz,
        DType::f16, DType::bf16, DType::f32}) {
    EXPECT_TRUE(in_vectors(kMatrixVector, dtype, 1));
    EXPECT_TRUE(in_vectors(kMatrixVector, dtype, 5));
    EXPECT_TRUE(in_vectors("mean((f32(q) - bias) * scale * x, -1, -2)", dtype, 1));
    EXPECT_FALSE(in_vectors("max(q * scale * x, -1, -2)", dtype, 1));
    EXPECT_FALSE(in_vectors("sum(exp(q * scale) * x, -1, -2)", dtype, 1));
    EXPECT_FALSE(in_vectors("sum((bf16(f32(q) * scale) + bias) * x, -1, -2)", dtype, 1));
    EXPECT_FALSE(in_vectors(kMatrixVector, dtype, 1, "sm_90"));
  }
  Options each;
  each.rounding = Rounding::each;
  EXPECT_FALSE(in_vectors(kMatrixVector, DType::u4, 1, "cpu", each));
}

TEST(TiledSums, AreThoseOfSmallWeightsTimesSixteenBitFloats) {
  const auto is_tiled = [](const char* text, DType weights, std::int64_t columns,
                           const char* target, const Options& options = {}) {
    const std::string source = source_of(text, weights, columns, target, options);
    return source.find("using Tiles = ") != std::string::npos;
  };
  for (const DType dtype : {DType::u4, DType::i4, DType::u8, DType::i8}) {
    for (const std::int64_t columns : {1, 2, 3, 8}) {
      EXPECT_TRUE(is_tiled(kMatrixVector, dtype, columns, "sm_90"));
      EXPECT_TRUE(is_tiled("sum((f32(q) - bias) * scale * x, -1, -2)", dtype, columns, "sm_80"));
      EXPECT_FALSE(is_tiled(kMatrixVector, dtype, columns, "sm_75"));
      EXPECT_FALSE(is_tiled(kMatrixVector, dtype, columns, "gfx942"));
    }
  }
  EXPECT_TRUE(is_tiled("sum(q * scale * x, -1, -2)", DType::f8e4m3, 1, "sm_90"));
  EXPECT_TRUE(is_tiled("sum(bf16(q) * scale * x, -1, -2)", DType::f8e5m2, 8, "sm_90"));
  EXPECT_FALSE(
      is_tiled(kMatrixVector, DType::f8e4m3, 1, "sm_90"));  // a float's bias has no zero point
  EXPECT_FALSE(is_tiled("sum(q * scale * silu(x), -1, -2)", DType::u4, 1, "sm_90"));
  EXPECT_FALSE(is_tiled("max(q * scale * x, -1, -2)", DType::u4, 1, "sm_90"));
  Options each;
  each.rounding = Rounding::each;
  EXPECT_FALSE(is_tiled(kMatrixVector, DType::u4, 1, "sm_90", each));
}

// There are 2^200 paths from the sum to the scale, and 200 values.
TEST(TiledSums, TakeAScaleThatIsSquaredAgainAndAgain) {
  std::string text = "s = scale; ";
  for (int i = 0; i < 200; ++i) text += "s = s * s; ";
  text += "sum((q * s + bias) * x, -1, -2)";
  const std::string source = source_of(text.c_str(), DType::u4, 1, "sm_90", {});
  EXPECT_NE(source.find("sum_tiles<"), std::string::npos);
}

// Neither how many rows there are shows, nor where elements lie.
TEST(TiledSums, AreThoseOfFewRowsAndOfElementsAnywhere) {
  const auto is_tiled = [](DType weights, std::int64_t columns, std::int64_t rows,
                           const Dims& of_weights, const Dims& of_vectors) {
    Specification specification;
    specification.arguments = matrix_vector(weights, columns, rows);
    specification.arguments[0].strides = of_weights;
    specification.arguments[3].strides = of_vectors;
    const std::string source = emit_for(parse("f", kMatrixVector), specification, "sm_90", false);
    return source.find("using Tiles = ") != std::string::npos;
  };
  for (const DType dtype : {DType::u4, DType::u8}) {
    for (const std::int64_t rows : {2, 5, 63}) {
      EXPECT_TRUE(is_tiled(dtype, 1, rows, {}, {}));
      EXPECT_TRUE(is_tiled(dtype, 8, rows, {}, {}));  // though activations have more bytes
      EXPECT_TRUE(is_tiled(dtype, 40, rows, {1, 0, 64 * rows, rows}, {}));
    }
    EXPECT_TRUE(is_tiled(dtype, 3, 1, {}, {}));
    EXPECT_EQ(is_tiled(dtype, 1, 1, {}, {}), dtype == DType::u4);
    EXPECT_TRUE(is_tiled(dtype, 3, 100, {4097, 0, 64, 1}, {}));
    EXPECT_TRUE(is_tiled(dtype, 3, 100, {}, {1, 192, 3}));
  }
}

// Of a matrix whose neighbours in memory are of neighbouring rows, whole lines are copied: 128
// bytes where there are many rows, and as few as 32 where there would be no blocks for all of a
// device.
TEST(TiledSums, CopyLinesOfNeighbouringRows) {
  const auto tiles_beside = [](DType weights, std::int64_t columns, std::int64_t rows) {
    Specification specification;
    specification.arguments = matrix_vector(weights, columns, rows);
    specification.arguments[0].strides = {1, 0, 64 * rows, rows};
    const std::string source = emit_for(parse("f", kMatrixVector), specification, "sm_90", false);
    if (source.find("sum_tiles<Tiles, StagedLines<Tiles>>") == std::string::npos) return 0;
    constexpr std::string_view kBeside = "beside = ";
    return std::stoi(source.substr(source.find(kBeside) + kBeside.size()));
  };
  EXPECT_EQ(tiles_beside(DType::u8, 1, 1 << 17), 8);
  EXPECT_EQ(tiles_beside(DType::u8, 1, 4096), 2);
  EXPECT_EQ(tiles_beside(DType::u8, 3, 100), 2);
  EXPECT_EQ(tiles_beside(DType::i8, 8, 1 << 17), 8);
  EXPECT_EQ(tiles_beside(DType::i8, 1, (1 << 17) + 1), 8);
  EXPECT_EQ(tiles_beside(DType::u4, 1, 1 << 17), 16);
  EXPECT_EQ(tiles_beside(DType::u4, 1, 4096), 4);
  EXPECT_EQ(tiles_beside(DType::u4, 1, 4095), 0);  // rows that begin with half a byte
}

TEST(TiledSums, KeepLinesOfNeighbouringRowsInRegisters) {
  const std::vector<std::string> known = testing::targets_of(jit::ToolchainKind::nvrtc);
  if (std::ranges::find(known, "sm_90") == known.end()) GTEST_SKIP() << "no NVRTC knows sm_90";
  for (const DType weights : {DType::u4, DType::i8}) {
    for (const std::int64_t columns : {1, 4, 8}) {
      for (const std::int64_t rows : {4096, 1 << 17}) {
        Specification specification;
        specification.arguments = matrix_vector(weights, columns, rows);
        specification.arguments[0].strides = {1, 0, 64 * rows, rows};
        const CompiledKernel kernel =
            compile_for(parse("f", kMatrixVector), specification, "sm_90");
        EXPECT_EQ(kernel.resources.scratch.value_or(0), 0)
            << name(weights) << ", " << columns << " columns, " << rows << " rows";
      }
    }
  }
}

// The results of all sums take more registers and shared memory than a few do.
TEST(ManySums, AreCompiledForEveryDevice) {
  std::string text;
  std::vector<ArgumentSpec> arguments = {{"x", DType::bf16, {8, 1, 1024}, {}, false}};
  for (int i = 0; i < 12; ++i) {
    text += fmt::format("{}sum(w{} * x, -1)", i == 0 ? "x = x; " : ", ", i);
    arguments.push_back({fmt::format("w{}", i), DType::bf16, {256, 1024}, {}, false});
  }
  for (const bool across : {false, true}) {
    for (std::size_t i = 1; across && i < arguments.size(); ++i) arguments[i].strides = {1, 256};
    for (const char* target : {"sm_90", "gfx90a"}) {
      const bool is_nvidia = target[0] == 's';
      const std::vector<std::string> known =
          testing::targets_of(is_nvidia ? jit::ToolchainKind::nvrtc : jit::ToolchainKind::hiprtc);
      if (std::ranges::find(known, target) == known.end()) continue;
      Specification specification;
      specification.arguments = arguments;
      const CompiledKernel kernel = compile_for(parse("f", text), specification, target);
      EXPECT_GT(kernel.resources.code_bytes, 0U) << target;
    }
  }
}

// Waves split rows where there is one vector x and the numbers of groups come in chunks of 16
// bytes.
TEST(TiledSums, SplitRowsOverWaves) {
  const auto splits_rows = [](const char* text, DType weights, std::int64_t columns) {
    return source_of(text, weights, columns, "sm_90", {}).find("sum_split_k_tiles<") !=
           std::string::npos;
  };
  EXPECT_TRUE(splits_rows(kMatrixVector, DType::u4, 1));
  EXPECT_TRUE(splits_rows("sum((q - bias) * scale * x, -1, -2)", DType::i4, 1));
  EXPECT_FALSE(splits_rows(kMatrixVector, DType::u4, 2));
  EXPECT_FALSE(splits_rows(kMatrixVector, DType::u8, 1));  // more than a block has room for
  EXPECT_FALSE(splits_rows("sum((q * silu(scale) + bias) * x, -1, -2)", DType::u4, 1));
}

// Weights are loaded before the PDL wait, if the launch says so.
TEST(TiledSums, LoadWeightsBeforeThePdlWait) {
  const auto loads_early = [](DType weights, std::int64_t columns, const char* target) {
    const std::string source = source_of(kMatrixVector, weights, columns, target, {});
    const std::string kernel = source.substr(source.find("using Tiles"));
    EXPECT_EQ(kernel.find("await_prerequisites"),
              std::string::npos);  // the preamble's functions do
    EXPECT_EQ(source.find("u32 launched_early") == std::string::npos,
              kernel.find("launched_early != 0") == std::string::npos);
    return kernel.find("launched_early != 0") != std::string::npos;
  };
  for (const std::int64_t columns : {1, 2, 8}) {
    EXPECT_TRUE(loads_early(DType::u4, columns, "sm_90"));
    EXPECT_TRUE(loads_early(DType::u8, columns, "sm_100"));
    EXPECT_FALSE(loads_early(DType::u4, columns, "sm_80"));
  }
}

// Waves keep their part of five to eight vectors in registers, if all waves of a block together
// have the whole row and its weights fit shared memory.
TEST(TiledSums, KeepVectorsInRegisters) {
  const auto keeps = [](const char* text, DType weights, std::int64_t columns) {
    const std::string source = source_of(text, weights, columns, "sm_90", {});
    return source.find("sum_register_tiles<Tiles>(") != std::string::npos;
  };
  for (const std::int64_t columns : {5, 8}) {
    EXPECT_TRUE(keeps(kMatrixVector, DType::u4, columns));
    EXPECT_TRUE(keeps("sum((f32(q) - bias) * scale * x, -1, -2)", DType::i4, columns));
    EXPECT_FALSE(keeps(kMatrixVector, DType::u8, columns));  // more than a block has room for
  }
  EXPECT_FALSE(keeps(kMatrixVector, DType::u4, 1));
  EXPECT_FALSE(keeps(kMatrixVector, DType::u4, 4));
}

// Of eight columns NVRTC 13 spills up to four registers.
int spill_bytes_allowed(std::int64_t columns) { return columns == 8 ? 16 : 0; }

// Rows times columns times the length of a row may be more than 32 bits count where no operand
// spans as much.
TEST(NvidiaProducts, CountWhatOperandsSpan) {
  const auto source = [](const Specification& specification) {
    return emit_for(parse("f", kMatrixVector), specification, "sm_90", false);
  };
  Specification large;
  large.arguments = matrix_vector(DType::u4, 8, 1 << 20);
  EXPECT_NE(source(large).find("u64 vectors"), std::string::npos);
  Specification smaller;
  smaller.arguments = matrix_vector(DType::u4, 8, 1 << 17);
  EXPECT_NE(source(smaller).find("u32 vectors"), std::string::npos);
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  const CompiledKernel kernel = compile_for(parse("checked", kMatrixVector), smaller, "sm_90");
  EXPECT_LE(kernel.resources.scratch.value_or(0), spill_bytes_allowed(8));
}

TEST(NvidiaProducts, Compile) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  struct Case {
    const char* target;
    std::int64_t columns;
  };
  testing::Share share(DeviceType::cpu, 4, testing::random_seed());
  for (const auto& [target, columns] : {Case{"sm_80", 3}, Case{"sm_90", 1}, Case{"sm_90", 8}}) {
    for (const DType dtype :
         {DType::u4, DType::i4, DType::u8, DType::i8, DType::f8e4m3, DType::f8e5m2}) {
      if (!share.next()) continue;
      const char* const text = is_floating(dtype) ? "sum(q * scale * x, -1, -2)" : kMatrixVector;
      const CompiledKernel kernel =
          compile_for(parse("checked", text), specification_of(text, dtype, columns), target);
      EXPECT_FALSE(kernel.code.empty());
      EXPECT_LE(kernel.resources.scratch.value_or(0), spill_bytes_allowed(columns))
          << target << ", " << name(dtype) << ", " << columns << " columns";
    }
    // Elements that lie anywhere are gathered.
    for (const bool weights : {false, true}) {
      Specification specification = specification_of(kMatrixVector, DType::u4, columns);
      specification.arguments[weights ? 0 : 3].strides =
          weights ? Dims{4100, 0, 64, 1} : Dims{1, 64 * columns, columns};
      const CompiledKernel kernel =
          compile_for(parse("checked", kMatrixVector), specification, target);
      EXPECT_EQ(kernel.resources.scratch.value_or(0), 0) << target << ", " << columns << " columns";
    }
    for (const char* text : {"cumsum(x, -1), cummax(x, -1)", "cumprod(x, 0), x"}) {
      Specification specification;
      specification.arguments = {{"x", DType::bf16, {64, 4096}, {}, false}};
      const CompiledKernel kernel = compile_for(parse("checked", text), specification, target);
      EXPECT_EQ(kernel.resources.scratch.value_or(0), 0) << text;
    }
    Specification specification;
    specification.arguments = {{"w", DType::bf16, {64, 4096}, {}, false},
                               {"x", DType::bf16, {4096}, {}, false}};
    EXPECT_FALSE(
        compile_for(parse("checked", "sum(f32(bitcast(w, u16)) * x, -1)"), specification, target)
            .code.empty());
  }
}

}  // namespace
}  // namespace kiln
