// That host compilers turn loops over the device code's functions into vector instructions: this
// test compiles such loops with its own compiler and reads the assembly. One call, or one scalar
// function, would undo the speed of every chain it is in.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace kiln::test {
namespace {

constexpr const char* kUnary[] = {
    "abs",     "neg",   "sign", "square", "sqrt",   "rsqrt", "cbrt",  "reciprocal", "exp",
    "exp2",    "expm1", "log",  "log2",   "log10",  "log1p", "sin",   "cos",        "tan",
    "asin",    "acos",  "atan", "sinh",   "cosh",   "tanh",  "asinh", "acosh",      "atanh",
    "sigmoid", "erf",   "erfc", "ndtr", "erfinv", "lgamma", "floor", "ceil",  "round",      "trunc"};
// What emit takes where it knows more of the operand, or where results have 16 bits.
constexpr const char* kChosen[] = {
    "exp_not_positive", "log1p_of_fraction", "narrow::exp_not_positive",
    "narrow::sigmoid",  "narrow::tanh",      "narrow::ndtr"};
constexpr const char* kBinary[] = {"add",       "div",      "floor_divide", "power", "maximum",
                                   "minimum",   "fmax",     "fmin",         "atan2", "hypot",
                                   "logaddexp", "copysign", "nextafter"};
constexpr const char* kNarrow[] = {"f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"};

std::string source() {
  std::ostringstream text;
  for (const char* part : {"types.h", "convert.h", "integer.h", "math_host.h", "math_host_narrow.h",
                           "math_host_wide.h", "math.h", "complex.h", "accuracy.h"}) {
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

// Loops that g++ 14 leaves scalar, though without a call: slower there, and known.
bool is_scalar_with_this_compiler(const std::string& loop) {
#if !defined(__clang__) && __GNUC__ >= 13
  return loop == "log1p" || loop == "to_f8e4m3fnuz" || loop == "to_f8e5m2fnuz";
#else
  return loop.empty();
#endif
}

struct Function {
  int calls = 0;
  int vector_instructions = 0;
};

// Counts the calls and the 32-byte register operands of every loop_ function.
std::map<std::string, Function> read_assembly(const std::filesystem::path& path) {
  std::map<std::string, Function> functions;
  std::ifstream file(path);
  Function* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("loop_", 0) == 0) current = &functions[line.substr(5, line.find(':') - 5)];
    if (line.find(".cfi_endproc") != std::string::npos) current = nullptr;
    if (current == nullptr) continue;
    if (line.find("\tcall") != std::string::npos) ++current->calls;
    if (line.find("%ymm") != std::string::npos) ++current->vector_instructions;
  }
  return functions;
}

TEST(Vectorisation, EveryFunctionOfAChainBecomesVectorCodeWithoutACall) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "reads the assembly of x86-64";
#else
  std::string name = (std::filesystem::temp_directory_path() / "kiln-vector-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path directory = name;
  const std::filesystem::path code = directory / "loops.cpp";
  const std::filesystem::path assembly = directory / "loops.s";
  std::ofstream(code) << source();
  const std::string command = "'" KILN_TEST_COMPILER
                              "' -std=c++17 -O3 -march=x86-64-v3 -ffp-contract=off "
                              "-fno-trapping-math -fno-math-errno -S -I'" KILN_TEST_SOURCE
                              "' -o '" +
                              assembly.string() + "' '" + code.string() + "'";
  const int status = std::system(command.c_str());
  const std::map<std::string, Function> functions =
      status == 0 ? read_assembly(assembly) : decltype(read_assembly(assembly)){};
  std::filesystem::remove_all(directory);
  ASSERT_EQ(status, 0) << command;
  ASSERT_EQ(functions.size(), std::size(kUnary) + std::size(kChosen) + std::size(kBinary) +
                                  2 * std::size(kNarrow));
  for (const auto& [loop, function] : functions) {
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
