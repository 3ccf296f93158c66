// That host compilers turn loops over the device code's functions into vector instructions: this
// test compiles such loops with its own compiler and reads the assembly. One call, or one scalar
// function, would undo the speed of every chain it is in.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/temporary.hpp"
#include "tests/support/host_compiler.hpp"

namespace kiln::test {
namespace {

constexpr const char* kUnary[] = {
    "abs",   "neg",    "sign",   "square", "sqrt",  "rsqrt", "cbrt",  "reciprocal", "exp",  "exp2",
    "expm1", "log",    "log2",   "log10",  "log1p", "sin",   "cos",   "tan",        "asin", "acos",
    "atan",  "sinh",   "cosh",   "tanh",   "asinh", "acosh", "atanh", "sigmoid",    "erf",  "erfc",
    "ndtr",  "erfinv", "lgamma", "floor",  "ceil",  "round", "trunc"};
// What emit takes where it knows more of the operand, or where results have 16 bits.
constexpr const char* kChosen[] = {
    "exp_not_positive", "log1p_of_fraction", "narrow::exp_not_positive",
    "narrow::sigmoid",  "narrow::tanh",      "narrow::ndtr"};
constexpr const char* kBinary[] = {"add",       "div",      "floor_divide", "power", "maximum",
                                   "minimum",   "fmax",     "fmin",         "atan2", "hypot",
                                   "logaddexp", "copysign", "nextafter"};
// Lanes of rows; what is after the last whole vector of one becomes vector code too.
constexpr int kRows[] = {8, 16, 32, 64, 128, 256};
// Short rows, whose length the compiler knows.
constexpr int kShortRows[] = {16, 32, 64};
constexpr const char* kNarrow[] = {"f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"};

std::string source() {
  std::ostringstream text;
  for (const char* part : {"integer.h", "arithmetic.h", "complex.h", "exp.h", "hyperbolics.h",
                           "log.h", "logaddexp.h", "ndtr.h", "order.h", "power.h", "roots.h",
                           "signs.h", "special.h", "trigonometry.h", "host_rows.h"}) {
    text << "#include \"preamble/" << part << "\"\n";
  }
  text << "using namespace kiln;\n";
  const auto write_unary = [&](const std::string& name, const char* op) {
    text << "extern \"C\" void loop_" << name << "(const f32* __restrict x, f32* __restrict y) "
         << "{ for (int i = 0; i < 64; ++i) y[i] = kiln::" << op << "(x[i]); }\n";
  };
  for (const char* op : kUnary) write_unary(op, op);
  for (std::size_t i = 0; i < std::size(kChosen); ++i)
    write_unary("chosen_" + std::to_string(i), kChosen[i]);
  for (const char* op : kBinary) {
    text << "extern \"C\" void loop_" << op
         << "(const f32* __restrict x, const f32* __restrict z, f32* __restrict y) "
         << "{ for (int i = 0; i < 64; ++i) y[i] = kiln::" << op << "(x[i], z[i]); }\n";
  }
  for (const int lanes : kRows) {
    text << "extern \"C\" f32 loop_row_" << lanes << "(const f32* row, f32* to, u32 size) {\n"
         << "  auto sums = start_accumulators<Sum, f32, " << lanes << ">();\n"
         << "  for_each_part<" << lanes << ">(0u, size, [&](auto part, u32 first) KILN_INLINED {\n"
         << "    if constexpr (decltype(part)::last) {\n"
         << "      const auto x = load(part, row, first);\n"
         << "      auto y = results(part, to, first);\n"
         << "      KILN_FOR_EACH_LANE_OF(lane, part) {\n"
         << "        y[lane] = kiln::exp_not_positive(x[lane]);\n"
         << "        combine_lane<Sum>(part, sums, lane, y[lane]);\n"
         << "      }\n"
         << "      store(part, to, first, y);\n"
         << "    }\n"
         << "  });\n"
         << "  Slots<f32, 1> slots;\n"
         << "  return reduce<Sum>(sums, slots);\n"
         << "}\n";
  }
  for (const int lanes : kShortRows) {
    text << "extern \"C\" void loop_row_of_bf16_" << lanes << "(const bf16* row, bf16* out) {\n"
         << "  for_each_vector<" << lanes << ">(0u, " << lanes << "u,\n"
         << "                     [&](auto width, u32 first, auto lanes) KILN_INLINED {\n"
         << "    if constexpr (!is_same<decltype(lanes), int>()) {\n"
         << "      const auto x = load<width.size, 2>(row, first);\n"
         << "      auto y = results<width.size>(out, first);\n"
         << "      KILN_FOR_EACH_LANE(lane, width, lanes) {\n"
         << "        y[lane] = to_bf16_of_short_nan(to<f32>(x[lane]) * 0.25f);\n"
         << "      }\n"
         << "    }\n"
         << "  });\n"
         << "}\n";
  }
  for (const char* type : kNarrow) {
    text << "extern \"C\" void loop_from_" << type << "(const " << type
         << "* __restrict x, f32* __restrict y) "
         << "{ for (int i = 0; i < 64; ++i) y[i] = to<f32>(x[i]); }\n";
    text << "extern \"C\" void loop_to_" << type << "(const f32* __restrict x, " << type
         << "* __restrict y) "
         << "{ for (int i = 0; i < 64; ++i) y[i] = to<" << type << ">(x[i]); }\n";
  }
  return text.str();
}

// Loops that g++ from 13 on leaves scalar, though without a call: slower there, and known. From 14
// on those are among them that convert f16 by its own type.
bool is_scalar_with_this_compiler(const std::string& loop) {
#if !defined(__clang__) && __GNUC__ >= 14
  if (loop == "from_f16" || loop == "to_f16") return true;
#endif
#if !defined(__clang__) && __GNUC__ >= 13
  return loop == "log1p" || loop == "to_f8e4m3fnuz" || loop == "to_f8e5m2fnuz";
#else
  return loop.empty();
#endif
}

struct Function {
  int calls = 0;
  int vector_instructions = 0;
  int scalar_products = 0;
};

bool is_scalar_product(const std::string& line) {
  const bool product = line.find("\tvmulss") != std::string::npos ||
                       line.find("\tvfmadd") != std::string::npos ||
                       line.find("\tvfnmadd") != std::string::npos;
  return product && line.find("ss\t") != std::string::npos;
}

// Counts the calls, the 32-byte register operands and the products of single floats of every loop_
// function.
std::map<std::string, Function> read_assembly(const std::string& path) {
  std::map<std::string, Function> functions;
  std::ifstream file(path);
  Function* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("loop_", 0) == 0) current = &functions[line.substr(5, line.find(':') - 5)];
    if (line.find(".cfi_endproc") != std::string::npos) current = nullptr;
    if (current == nullptr) continue;
    if (line.find("\tcall") != std::string::npos) ++current->calls;
    if (line.find("%ymm") != std::string::npos) ++current->vector_instructions;
    if (is_scalar_product(line)) ++current->scalar_products;
  }
  return functions;
}

[[maybe_unused]] std::map<std::string, Function> compiled_functions() {
  const kiln::base::TemporaryDirectory directory("kiln-vector");
  const std::string code = directory.write("loops.cpp", source());
  const std::string assembly = directory.path() + "/loops.s";
  const base::CommandResult compiled = testing::run_compiler(
      {KILN_TEST_COMPILER, "-std=c++17", "-O3", "-march=x86-64-v3", "-ffp-contract=off",
       "-fno-trapping-math", "-fno-math-errno", "-S", "-I" KILN_TEST_SOURCE, "-o", assembly, code});
  EXPECT_TRUE(compiled.succeeded()) << compiled.errors;
  return compiled.succeeded() ? read_assembly(assembly) : std::map<std::string, Function>();
}

TEST(Vectorisation, EveryFunctionOfAChainBecomesVectorCodeWithoutACall) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "reads the assembly of x86-64";
#else
  const std::map<std::string, Function> functions = compiled_functions();
  ASSERT_EQ(functions.size(), std::size(kUnary) + std::size(kChosen) + std::size(kBinary) +
                                  std::size(kRows) + std::size(kShortRows) +
                                  2 * std::size(kNarrow));
  for (const auto& [loop, function] : functions) {
    if (loop.rfind("row_", 0) == 0) {
      EXPECT_EQ(function.scalar_products, 0) << loop << ": lanes are computed one by one";
      EXPECT_GT(function.vector_instructions, 0) << loop;
      continue;
    }
    EXPECT_EQ(function.calls, 0) << loop;
    if (is_scalar_with_this_compiler(loop)) {
      std::printf("%s: %d vector instructions, scalar is known here\n", loop.c_str(),
                  function.vector_instructions);
      continue;
    }
    EXPECT_GT(function.vector_instructions, 0) << loop;
  }
#endif
}

}  // namespace
}  // namespace kiln::test
