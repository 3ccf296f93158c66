// What the machine code of AMD kernels must hold for the contract about numbers to be true: no
// contraction, subnormals kept, correctly rounded division and square root. Each check is shown to
// tell the difference by what `fast` does instead.
#include <elf.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <regex>
#include <set>
#include <string>

#include "base/elf.hpp"
#include "jit/service/compile.hpp"
#include "preamble/preamble.hpp"
#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

struct ContractMachine {
  CompiledKernel kernel;
  std::string assembly;

  int count(const std::string& pattern) const {
    const std::regex regex(pattern);
    return static_cast<int>(
        std::distance(std::sregex_iterator(assembly.begin(), assembly.end(), regex), {}));
  }
};

ContractMachine machine_code(const std::string& text, DType dtype, Accuracy accuracy,
                             const std::string& target) {
  Options options;
  options.accuracy = accuracy;
  const Function function = parse("contract", text, options);
  Specification specification;
  for (const std::string& argument : argument_names(function))
    specification.arguments.push_back({argument, dtype, {4096}, {2}, false});
  ContractMachine machine{compile_for(function, specification, target), {}};
  machine.assembly = jit::disassemble(machine.kernel.code, target);
  return machine;
}

// The float mode that a kernel starts in, from its descriptor: LLVM's "User Guide for AMDGPU
// Backend", Kernel Descriptor and COMPUTE_PGM_RSRC1.
struct FloatMode {
  unsigned round_32;
  unsigned round_16_64;
  unsigned denormals_32;     ///< 3 keeps all of them
  unsigned denormals_16_64;  ///< 3 keeps all of them
};

FloatMode mode_of_word(std::uint32_t resources) {
  return {resources >> 12 & 3, resources >> 14 & 3, resources >> 16 & 3, resources >> 18 & 3};
}

std::optional<FloatMode> float_mode(std::string_view code, std::string_view entry) {
  constexpr std::size_t kResources1 = 48;  // the offset of COMPUTE_PGM_RSRC1
  const std::optional<base::Elf> elf = base::Elf::parse(code);
  if (!elf) return std::nullopt;
  const std::string descriptor = std::string(entry) + ".kd";
  for (const base::ElfSymbol& symbol : elf->symbols()) {
    if (symbol.name != descriptor || symbol.section >= elf->sections().size()) continue;
    const base::ElfSection& section = elf->sections()[symbol.section];
    const std::size_t at = symbol.value - section.address + kResources1;
    if (at + sizeof(std::uint32_t) > section.bytes.size()) return std::nullopt;
    std::uint32_t resources = 0;
    std::memcpy(&resources, section.bytes.data() + at, sizeof resources);
    return mode_of_word(resources);
  }
  return std::nullopt;
}

constexpr Accuracy kExact[] = {Accuracy::storage, Accuracy::strict};

class IsaContract : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> known = testing::targets_of(jit::ToolchainKind::hiprtc);
    if (std::ranges::find(known, GetParam()) == known.end())
      GTEST_SKIP() << "no hiprtc on this machine knows " << GetParam();
  }
};

TEST_P(IsaContract, SeparateOperationsAreRoundedSeparately) {
  constexpr auto kFused32 = "v_(pk_)?(dual_)?(fma|fmac|mac|mad)[a-z_]*_f32";
  constexpr auto kFused64 = "v_(fma|fmac)_f64";
  for (const Accuracy accuracy : kExact) {
    const ContractMachine f32 = machine_code("a * b + c", DType::f32, accuracy, GetParam());
    EXPECT_EQ(f32.count(kFused32), 0) << f32.assembly;
    const ContractMachine f64 = machine_code("a * b - c", DType::f64, accuracy, GetParam());
    EXPECT_EQ(f64.count(kFused64), 0) << f64.assembly;
  }
  EXPECT_GT(machine_code("a * b + c", DType::f32, Accuracy::fast, GetParam()).count(kFused32), 0);
  EXPECT_GT(machine_code("a * b - c", DType::f64, Accuracy::fast, GetParam()).count(kFused64), 0);
}

TEST_P(IsaContract, AWrittenFmaIsOne) {
  const ContractMachine machine =
      machine_code("fma(a, b, c)", DType::f32, Accuracy::strict, GetParam());
  EXPECT_GT(machine.count("v_(pk_)?(fma|fmac)_f32"), 0) << machine.assembly;
}

TEST_P(IsaContract, NothingIsFlushedToZeroAndRoundingIsToNearest) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const Accuracy accuracy : {Accuracy::storage, Accuracy::strict}) {
      const ContractMachine machine = machine_code("a * b + exp(a)", dtype, accuracy, GetParam());
      const auto mode = float_mode(machine.kernel.code, machine.kernel.info.entry);
      ASSERT_TRUE(mode.has_value()) << machine.kernel.info.entry;
      EXPECT_EQ(mode->denormals_32, 3U) << name(dtype);
      EXPECT_EQ(mode->denormals_16_64, 3U) << name(dtype);
      EXPECT_EQ(mode->round_32, 0U);
      EXPECT_EQ(mode->round_16_64, 0U);
    }
  }
  // A kernel whose f32 is flushed has these bits instead: 0xc0000 of 0xf0000.
  EXPECT_EQ(mode_of_word(0x000c0000).denormals_32, 0U);
  EXPECT_EQ(mode_of_word(0x000c0000).denormals_16_64, 3U);
}

TEST_P(IsaContract, DivisionIsTheCorrectlyRoundedSequence) {
  const auto holds = [&](const ContractMachine& machine, const std::string& type) {
    return machine.count("v_div_scale_" + type) >= 2 && machine.count("v_div_fmas_" + type) >= 1 &&
           machine.count("v_div_fixup_" + type) >= 1;
  };
  for (const Accuracy accuracy : kExact) {
    const ContractMachine f32 = machine_code("a / b", DType::f32, accuracy, GetParam());
    EXPECT_TRUE(holds(f32, "f32")) << f32.assembly;
    const ContractMachine f64 = machine_code("a / b", DType::f64, accuracy, GetParam());
    EXPECT_TRUE(holds(f64, "f64")) << f64.assembly;
  }
  EXPECT_FALSE(holds(machine_code("reciprocal(a)", DType::f32, Accuracy::fast, GetParam()), "f32"));
  const ContractMachine fast = machine_code("a / b", DType::f32, Accuracy::fast, GetParam());
  EXPECT_EQ(fast.count("v_div_"), 0) << fast.assembly;
  EXPECT_GT(fast.count("v_rcp_f32"), 0) << fast.assembly;
}

// The instruction's result is 1 ULP off at most; two exact residuals decide which number is
// nearest.
TEST_P(IsaContract, SquareRootIsRefined) {
  const auto refinements = [&](Accuracy accuracy) {
    return machine_code("sqrt(a)", DType::f32, accuracy, GetParam())
        .count("v_(dual_)?(fma|fmac)[a-z_0-9]*_f32");
  };
  for (const Accuracy accuracy : kExact) EXPECT_GE(refinements(accuracy), 2);
  EXPECT_EQ(refinements(Accuracy::fast), 0);
}

// ---- the sign of zero ---------------------------------------------------------------------------

// How often +0 is added to a product, which makes +0 of -0.
int zeros_added(const std::string& assembly) {
  const std::regex added(
      "v_(fma|mad)_mix(lo|hi)?_[a-z0-9_]+ [^,\n]+, [^,\n]+, [^,\n]+, 0(?=[ \n]|$)");
  return static_cast<int>(
      std::distance(std::sregex_iterator(assembly.begin(), assembly.end(), added), {}));
}

TEST(ZerosAdded, AreFoundInAssembly) {
  EXPECT_EQ(zeros_added("v_fma_mixlo_f16 v1, v8, v1, 0 op_sel_hi:[0,1,0]\n"
                        "v_fma_mixhi_f16 v1, |v8|, s1, 0\nv_mad_mixlo_f16 v0, v0, v1, 0\n"
                        "v_fma_mix_f32 v0, v0, v1, 0 op_sel_hi:[1,0,0]"),
            4);
  EXPECT_EQ(zeros_added("v_fma_mixlo_f16 v1, v8, v1, neg(0) op_sel_hi:[0,1,0]\n"
                        "v_fma_mixlo_f16 v1, v8, v1, v2\nv_fma_mix_f32 v0, v0, 1.0, v1\n"
                        "v_pk_mul_f16 v0, v0, v1\nv_fma_f32 v0, v0, v1, 0\n"),
            0);
}

TEST_P(IsaContract, ProductsKeepTheSignOfZero) {
  struct Case {
    const char* text;
    ArgumentSpec layout;
    Options options;
  };
  // Vectors with the elements after the last one; short rows; elements that lie apart.
  const ArgumentSpec vectors{"", DType::f16, {4099}, {}, false};
  const ArgumentSpec rows{"", DType::f16, {8, 31}, {}, false};
  const ArgumentSpec elements{"", DType::f16, {4096}, {2}, false};
  const Case cases[] = {{"x * y * y", vectors, {}},
                        {"x * y * y", rows, {}},
                        {"x * y * y", elements, {}},
                        {"silu(x) * y", vectors, {}},
                        {"where(x > y, x, x * y * 0.1)", vectors, {}},
                        {"f16(f32(x) * 0.1) + y", vectors, {}},
                        {"f16(f32(x) * 0.1) + y", vectors, {Rounding::each, Accuracy::storage}},
                        {"x * y * y", vectors, {Rounding::once, Accuracy::strict}},
                        {"x * y * y", vectors, {Rounding::once, Accuracy::fast}}};
  for (const Case& tried : cases) {
    const Function function = parse("products", tried.text, tried.options);
    Specification specification;
    specification.arguments = {tried.layout, tried.layout};
    specification.arguments[0].name = "x";
    specification.arguments[1].name = "y";
    const CompiledKernel kernel = compile_for(function, specification, GetParam());
    const std::string assembly = jit::disassemble(kernel.code, GetParam());
    EXPECT_EQ(zeros_added(assembly), 0) << tried.text << '\n' << assembly;
    EXPECT_EQ(kernel.resources.scratch.value_or(-1), 0) << tried.text;
    EXPECT_EQ(kernel.resources.spills.value_or(-1), 0) << tried.text;
  }
}

// Vectors are copied by words whatever their elements are. A compiler that takes the two for things
// that cannot overlap leaves out words that it believes nobody reads.
TEST_P(IsaContract, EveryElementOfAVectorIsLoaded) {
  const testing::Machine machine = testing::machine_code(
      "x + y", {{"x", DType::f32, {7, 4}, {6, 1}, false}, {"y", DType::f32, {7, 1}, {1, 1}, false}},
      GetParam());
  // A vector of four, of two aligned parts; the element after the vectors; and what is one for the
  // row.
  const int words = machine.count("global_load_(dword|b32) ") +
                    2 * machine.count("global_load_(dwordx2|b64) ") +
                    4 * machine.count("global_load_(dwordx4|b128) ");
  EXPECT_EQ(words, 6) << machine.assembly;
}

// What a compiler finds out about checks while it compiles: their numbers.
struct Findings {
  std::set<std::size_t> proven;
  std::set<std::size_t> refuted;
  std::set<std::size_t> unknown;
};

// `checks` are C++ expressions of type bool. What they call of the device library is computed for
// them as it would be on the device; what the compiler cannot compute of it, such as ldexp with
// LLVM 17, leaves a check unknown. Each way that the machine code can take holds a mark, of
// registers so high that the rest of the code does not use them.
Findings examine(const std::vector<std::string>& checks, const std::string& target) {
  std::string source = "\nextern \"C\" __global__ void proof() {\n  using namespace kiln;\n";
  for (std::size_t i = 0; i < checks.size(); ++i) {
    source += fmt::format(
        "  if ({0}) asm volatile(\"s_movk_i32 s98, {1}\" ::: \"s98\");\n"
        "  else asm volatile(\"s_movk_i32 s99, {1}\" ::: \"s99\");\n",
        checks[i], i);
  }
  source += "}\n";
  source.insert(
      0, preamble::text(preamble::needed_by(source, preamble::Device::amd), preamble::Device::amd));
  jit::CompileRequest request;
  request.function = request.entry = "proof";
  request.source = source;
  request.target = target;
  request.options = jit::compile_options(target, false);
  const std::string assembly = jit::disassemble(jit::compile(request).code, target);
  std::set<std::size_t> can_be_true;
  std::set<std::size_t> can_be_false;
  const std::regex mark("s_movk_i32 s9([89]), (0x[0-9a-f]+|[0-9]+)");
  for (std::sregex_iterator at(assembly.begin(), assembly.end(), mark), end; at != end; ++at)
    ((*at)[1] == "8" ? can_be_true : can_be_false).insert(std::stoul((*at)[2].str(), nullptr, 0));
  Findings findings;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    const bool can_hold = can_be_true.contains(i);
    const bool can_fail = can_be_false.contains(i);
    EXPECT_TRUE(can_hold || can_fail) << "no mark is left of " << checks[i];
    if (can_hold && can_fail) findings.unknown.insert(i);
    if (can_hold && !can_fail) findings.proven.insert(i);
    if (!can_hold && can_fail) findings.refuted.insert(i);
  }
  return findings;
}

TEST_P(IsaContract, ProofsTellTrueFalseAndUnknownApart) {
  const Findings findings = examine({"bit_cast<u32>(kiln::abs(-0.0f)) == bit_cast<u32>(0.0f)",
                                     "bit_cast<u32>(kiln::abs(-0.0f)) == bit_cast<u32>(-0.0f)",
                                     "kiln::sin(f32(threadIdx.x)) == 0.0f"},
                                    GetParam());
  EXPECT_EQ(findings.proven, std::set<std::size_t>{0});
  EXPECT_EQ(findings.refuted, std::set<std::size_t>{1});
  EXPECT_EQ(findings.unknown, std::set<std::size_t>{2});
}

// The functions of ROCm's device library too, which left to themselves may give +0 for -0. The sign
// is a check of its own, since it can be known of a number that is not.
TEST_P(IsaContract, FunctionsThatKeepTheSignOfZeroDo) {
  for (const char* accuracy : {"kiln", "strict", "narrow"}) {
    std::vector<std::string> checks;
    for (const char* op : {"expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh",
                           "atanh", "erf", "erfinv", "cbrt", "sqrt"}) {
      for (const char* zero : {"0.0f", "-0.0f", "0.0", "-0.0"}) {
        const int bits = std::string_view(zero).ends_with('f') ? 32 : 64;
        const std::string value = fmt::format("{}::{}({})", accuracy, op, zero);
        checks.push_back(fmt::format("bit_cast<u{0}>({1}) >> {2} == bit_cast<u{0}>({3}) >> {2}",
                                     bits, value, bits - 1, zero));
        checks.push_back(fmt::format("{} == 0", value));
      }
    }
    const Findings findings = examine(checks, GetParam());
    for (const std::size_t i : findings.refuted) ADD_FAILURE() << checks[i];
    std::string unknown;
    for (const std::size_t i : findings.unknown) unknown += checks[i] + '\n';
    EXPECT_LE(findings.unknown.size(), checks.size() / 8) << "too little is known:\n" << unknown;
    const std::string counted = fmt::format("unknown_{}", accuracy);
    RecordProperty(counted, static_cast<int>(findings.unknown.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Gfx, IsaContract,
                         ::testing::Values("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100",
                                           "gfx1201"),
                         testing::target_name);

}  // namespace
}  // namespace kiln
