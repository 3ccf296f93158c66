// The interpreter knows every instruction of kiln's kernels: those of every op on every dtype, of
// both corpora, of every form of kernel and of random programs are compiled and translated for each
// target, also what tests that execute them do not come to. KILN_TEST_DRAWS (60) random programs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ahead/compile_only.hpp"
#include "files/manifest.hpp"
#include "fusion/graph/op.hpp"
#include "fusion/text/text.hpp"
#include "tests/amd/isa/disassembler.hpp"
#include "tests/amd/isa/dispatch.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/random_program.hpp"
#include "tests/support/settings.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln::amd {
namespace {

// A function and the types of its arguments: "x=bf16[8,256] r=f32[256]".
struct Source {
  std::string text;
  std::string arguments;
  kiln::Options options;
};

std::vector<Source> ops() {
  constexpr std::size_t kOfKernel = 16;
  constexpr std::string_view kOperands[] = {"x", "x, y", "x, y, z"};
  constexpr std::string_view kArguments[] = {"x={0}[2048]", "x={0}[2048] y={0}[2048]",
                                             "x={0}[2048] y={0}[2048] z={0}[2048]"};
  std::vector<Source> sources;
  const auto add = [&](DType dtype, int arity, Accuracy accuracy) {
    kiln::Options options;
    options.accuracy = accuracy;
    std::vector<std::string> calls;
    const auto flush = [&] {
      if (calls.empty()) return;
      sources.push_back({fmt::format("{}", fmt::join(calls, ", ")),
                         fmt::format(fmt::runtime(kArguments[arity - 1]), name(dtype)), options});
      calls.clear();
    };
    for (const fusion::OpInfo& op : fusion::all_ops()) {
      if (op.arity != arity || op.rule == fusion::Rule::convert ||
          op.rule == fusion::Rule::component || !fusion::accepts(op, dtype)) {
        continue;
      }
      calls.push_back(fmt::format("{}({})", op.name, kOperands[arity - 1]));
      if (calls.size() == kOfKernel) flush();
    }
    flush();
  };
  for (const DTypeInfo& info : kDTypes) {
    for (const int arity : {1, 2, 3}) add(info.dtype, arity, Accuracy::storage);
  }
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const int arity : {1, 2, 3}) {
      add(dtype, arity, Accuracy::fast);
      add(dtype, arity, Accuracy::strict);
    }
  }
  return sources;
}

std::vector<Source> casts() {
  std::vector<Source> sources;
  for (const DTypeInfo& from : kDTypes) {
    std::vector<std::string> calls;
    for (const DTypeInfo& to : kDTypes) {
      if ((from.kind == Kind::complex) == (to.kind == Kind::complex)) {
        calls.push_back(fmt::format("{}(x)", to.name));
      }
    }
    sources.push_back(
        {fmt::format("{}", fmt::join(calls, ", ")), fmt::format("x={}[2048]", from.name), {}});
  }
  return sources;
}

// Both columns of arguments of a corpus: those of the test and of the benchmark.
std::vector<Source> corpus(const std::string& file) {
  std::vector<Source> sources;
  std::ifstream lines(fmt::format("{}/{}", KILN_TEST_CORPORA, file));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> parts;
    std::stringstream columns(line);
    for (std::string part; std::getline(columns, part, '|');) parts.push_back(part);
    for (std::size_t i = 2; i < parts.size(); ++i) {
      std::string arguments;
      std::stringstream words(parts[i]);
      for (std::string word; words >> word;) {
        if (word.find('@') != word.npos || word == "->") {
          arguments.clear();  // real tensors: the benchmark's column has the same dtypes
          break;
        }
        for (std::size_t at = word.find('N', word.find('[')); at != word.npos;
             at = word.find('N', at)) {
          word.replace(at, 1, "1024");
        }
        arguments += word.substr(0, word.find("in(")) + " ";
      }
      if (!arguments.empty()) sources.push_back({parts[1], arguments, {}});
    }
  }
  return sources;
}

// Every form of kernel, for dtypes of every size.
std::vector<Source> forms() {
  struct Form {
    const char* text;
    const char* shapes;  ///< {0} is the dtype
  };
  constexpr Form kForms[] = {
      {"x + y", "x={0}[96,160]@1,96 y={0}[96,160]"},                   // tiles
      {"swapaxes(x, 0, 1), x[::-1, 1::3], reshape(transpose(x), -1)",  // movement
       "x={0}[96,160]"},
      {"concat(0, x, y)", "x={0}[96,160] y={0}[7,160]"},
      {"sum(x, -1), max(x, -1)", "x={0}[7,5]"},            // rows of a thread
      {"sum(x, -1), min(x, -1)", "x={0}[64,100]"},         // of a wave
      {"sum(x, -1), argmax(x, -1)", "x={0}[16,9000]"},     // of a block
      {"sum(x, -1), prod(x, -1)", "x={0}[2,1000003]"},     // split
      {"sum(x, 0), max(x, 0)", "x={0}[900,640]"},          // columns
      {"cumsum(x, -1), cummax(x, -1)", "x={0}[16,5000]"},  // scans
      {"cumsum(x, 0)", "x={0}[900,70]"},
      {"sum(x * y, -1)", "x={0}[1,4096] y={0}[64,4096]"},  // products
      {"any(x > y, -1), all(x > y, -1), count_nonzero(x, -1)", "x={0}[8,200] y={0}[8,200]"},
  };
  constexpr Form kFloats[] = {
      {"softmax(x, -1), logsumexp(x, -1)", "x={0}[16,300]"},
      {"softmax(x, -1)", "x={0}[16,9000]"},
      {"softmax(x, 0)", "x={0}[900,64]"},
      {"layer_norm(x, w, b, 1e-5)", "x={0}[16,300] w={0}[300] b={0}[300]"},
      {"rms_norm(x, w, 1e-5)", "x={0}[16,5000] w={0}[5000]"},
      {"var(x, -1), mean(x, -1)", "x={0}[64,4100]"},
  };
  constexpr Form kPacked[] = {
      {"sum((q * s + z) * x, -1, -2)", "q={0}[33,8,64] s=bf16[33,8,1] z=bf16[33,8,1] x=bf16[8,64]"},
      {"sum((q * s + z) * x, -1, -2)",
       "q={0}[33,8,64] s=bf16[33,8,1] z=bf16[33,8,1] x=bf16[4,1,8,64]"},
      {"f32(q) * s", "q={0}[33,8,64] s=f32[33,8,1]"},
  };
  std::vector<Source> sources;
  const auto add = [&](std::span<const Form> some, std::initializer_list<DType> dtypes) {
    for (const Form& form : some) {
      for (const DType dtype : dtypes) {
        sources.push_back({form.text, fmt::format(fmt::runtime(form.shapes), name(dtype)), {}});
      }
    }
  };
  add(kForms, {DType::u8, DType::i16, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32,
               DType::f64});
  add(kFloats, {DType::f16, DType::bf16, DType::f32, DType::f64});
  add(kPacked, {DType::u4, DType::i4, DType::u8, DType::i8, DType::f8e4m3, DType::f8e5m2});
  return sources;
}

std::vector<Source> random_programs() {
  const std::uint64_t first = testing::random_seed();
  std::vector<Source> sources;
  for (std::uint64_t i = 0; i < testing::setting("KILN_TEST_DRAWS", 60); ++i) {
    testing::ProgramKind kind;
    kind.empty = false;
    kind.packed = i % 3 == 0;
    const testing::RandomProgram drawn = testing::random_program(first + i, kind);
    std::string arguments;
    for (std::size_t k = 0; k < drawn.dtypes.size(); ++k) {
      arguments += fmt::format("{}={}[{}] ", drawn.graph.arguments()[k], name(drawn.dtypes[k]),
                               fmt::join(drawn.shapes[k].begin(), drawn.shapes[k].end(), ","));
    }
    sources.push_back({fusion::to_text(drawn.graph), arguments, {}});
  }
  return sources;
}

class KnownInstructions : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    KILN_NEED(hiprtc)
    if (find_comgr().empty()) GTEST_SKIP() << "there is no libamd_comgr";
    if (!std::ranges::count(jit::known_targets(jit::ToolchainKind::hiprtc), GetParam())) {
      GTEST_SKIP() << "hiprtc does not know " << GetParam();
    }
  }
  void TearDown() override {
    for (const auto& [instruction, text] : unknown_) {
      ADD_FAILURE() << GetParam() << ": " << instruction << " in the kernel of " << text;
    }
    fmt::print("{}: {} kernels, {} mnemonics\n", GetParam(), kernels_, mnemonics_.size());
  }

  void expect_known(const std::vector<Source>& sources) {
    for (const Source& source : sources) {
      try {
        const Function function = parse("covered", source.text, source.options);
        Specification specification;
        std::stringstream words(source.arguments);
        for (std::string word; words >> word;) {
          const std::size_t equals = word.find('=');
          specification.arguments.push_back(
              files::parse_type(word.substr(0, equals), word.substr(equals + 1)));
        }
        for (const KernelSpec& spec : kernel_specs(function, specification)) {
          expect_known(compile_for(spec, GetParam()).code, source.text);
        }
      } catch (const Error& error) {
        ADD_FAILURE() << source.text << " of " << source.arguments << ": " << error.what();
      }
    }
  }

 private:
  void expect_known(const std::string& code, const std::string& text) {
    const auto object =
        CodeObject::load(std::as_bytes(std::span(code)), GetParam(), comgr_disassembler());
    for (const Kernel& kernel : object->kernels()) {
      ++kernels_;
      const Coverage coverage = coverage_of(kernel);
      mnemonics_.insert(coverage.mnemonics.begin(), coverage.mnemonics.end());
      for (const std::string& instruction : coverage.unknown) {
        unknown_.emplace(
            instruction.substr(0, instruction.find_first_of(" \t")) + ": " + instruction, text);
      }
    }
  }

  std::size_t kernels_ = 0;
  std::set<std::string> mnemonics_;
  std::map<std::string, std::string> unknown_;
};

TEST_P(KnownInstructions, AreThoseOfEveryOp) { expect_known(ops()); }
TEST_P(KnownInstructions, AreThoseOfEveryCast) { expect_known(casts()); }
TEST_P(KnownInstructions, AreThoseOfTheCorpora) {
  expect_known(corpus("functions.txt"));
  expect_known(corpus("rows.txt"));
}
TEST_P(KnownInstructions, AreThoseOfEveryForm) { expect_known(forms()); }
TEST_P(KnownInstructions, AreThoseOfRandomPrograms) { expect_known(random_programs()); }

INSTANTIATE_TEST_SUITE_P(Targets, KnownInstructions,
                         ::testing::Values("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100",
                                           "gfx1151", "gfx1201"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kiln::amd
