// A user may call an argument or a result anything that the language takes: what a keyword, a macro
// or the kernel itself is called, what begins with an underscore, or what is very long. Kernels of
// every kind compile with such names, and compute what they do with others.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <future>
#include <regex>

#include "ahead/compile_only.hpp"
#include "kiln/program.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using testing::HostArray;

// Two long ones differ in the end only.
std::vector<std::string> hostile_names() {
  std::vector<std::string> names = {
      // keywords and alternative tokens
      "int", "class", "bitand", "compl", "co_await", "char8_t", "asm", "typeof", "operator",
      // macros of compilers and of C
      "unix", "linux", "i386", "NULL", "INFINITY", "NAN", "min", "max", "assert", "errno",
      "__FILE__", "__cplusplus", "__CUDA_ARCH__", "__HIP__", "__launch_bounds__", "__x", "_", "_Z",
      // what every compiler or GPU has built in
      "__builtin_sqrtf", "threadIdx", "blockIdx", "warpSize", "__shared__", "main", "std",
      // macros, types and functions of the preamble
      "KILN_FN", "KILN_HOST", "KILN_KERNEL", "KILN_FOR_EACH_LANE", "kiln", "Sum", "Max", "Vec",
      "Lanes", "b8", "scan", "load", "store", "divide", "divisor", "least", "reduce", "fold",
      "carry", "total", "to", "narrow", "fast", "strict", "combine_lane", "kSimd", "kCodes",
      // what kernels call something
      "kiln_kernel_entry", "kiln_begin", "lane", "lanes", "first", "item", "size", "row", "rows",
      "column", "columns", "at_0", "v3", "part", "slot", "vector", "block", "r", "c", "Tiles",
      "tile_memory", "row_count", "length", "safe", "carried", "work_items", "piece", "index",
      // what kernels call the operands themselves, and names that differ in underscores alone
      "in0", "in1_in0", "out0", "in0_in0_data", "x", "x_data", "x_", "x__", "__x__", "x_lanes",
      "x_row", "x_row_row", "x_stride_0", "x_0", "x_value"};
  names.push_back(std::string(4000, 'a') + '1');
  names.push_back(std::string(4000, 'a') + '2');
  return names;
}

std::string sum_of(std::span<const std::string> names) {
  return fmt::format("{}", fmt::join(names, " + "));
}

// An i32 for each name, so that every sum is exact.
std::vector<HostArray> arrays_for(std::span<const std::string> names, const Dims& shape) {
  std::vector<HostArray> arrays;
  for (std::size_t i = 0; i < names.size(); ++i)
    arrays.push_back(testing::random_array(DType::i32, shape, i + 1));
  return arrays;
}

struct NamesCase {
  std::string form;
  std::string text;
};

// Every kind of kernel, of all names at once.
std::vector<NamesCase> cases() {
  const std::vector<std::string> names = hostile_names();
  const std::string sum = sum_of(names);
  return {{"elements", sum},
          {"rows", fmt::format("x - max({}, -1)", sum)},
          {"columns", fmt::format("sum({}, 0)", sum)},
          {"scan", fmt::format("cumsum({}, -1)", sum)},
          {"column_scan", fmt::format("cummax({}, 0)", sum)}};
}

class Names : public testing::OnDevice {
 protected:
  void check(const std::string& text, const std::vector<HostArray>& inputs) {
    const std::vector<HostArray> want = testing::reference_of(text, inputs);
    const std::vector<DType> dtypes = testing::natural_dtypes(text, inputs);
    std::vector<HostArray> got;
    for (std::size_t i = 0; i < want.size(); ++i)
      got.push_back(HostArray::contiguous(dtypes[i], want[i].shape));
    testing::run_on(device(), parse("class", text), inputs, got);
    for (std::size_t i = 0; i < want.size(); ++i)
      testing::expect_close(got[i], want[i], 0, 0, fmt::format("output {}", i));
  }
};

TEST_P(Names, OfArgumentsMayBeAnything) {
  const std::vector<std::string> names = hostile_names();
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const auto& [form, text] : cases()) {
    if (!share.next()) continue;
    SCOPED_TRACE(form);
    check(text, arrays_for(names, {5, 33}));
  }
}

TEST_P(Names, OfTransposedArgumentsMayBeAnything) {
  const std::vector<std::string> names = {"left", "top", "strip", "edge", "int", "Tile"};
  std::vector<HostArray> inputs = arrays_for(names, {70, 70});
  for (std::size_t i = 0; i < 3; ++i) inputs[i].strides = {1, 70};
  std::vector<HostArray> straight = inputs;
  std::vector<HostArray> got = {HostArray::contiguous(DType::i32, {70, 70})};
  testing::run_on(device(), parse("f", sum_of(names)), inputs, got);
  const std::vector<HostArray> want = testing::reference_of(sum_of(names), inputs);
  testing::expect_close(got[0], want[0], 0, 0, "transposed");
}

// Small integers, which 16 bits hold and f32 adds up exactly.
TEST_P(Names, OfWeightsMayBeAnything) {
  const std::vector<std::vector<std::string>> sets = {{"total", "carry", "KILN_FN", "Sum"},
                                                      {"r", "c", "Tiles", "part"},
                                                      {"int", "unix", "__x", "_"},
                                                      {"x_data", "x_row", "x", "x_lanes"},
                                                      {"lane", "Floats", "line", "kVectors"}};
  const auto small = [](DType dtype, const Dims& shape, std::uint64_t seed) {
    HostArray array = testing::random_array(DType::i8, shape, seed, 0.25);
    HostArray result = HostArray::contiguous(dtype, shape);
    for (std::int64_t i = 0; i < array.size(); ++i) {
      const double value = testing::number_at(array, i);
      testing::set_bits(result, i,
                        is_floating(dtype) ? testing::bits_of(value, dtype)
                                           : static_cast<std::uint64_t>(std::fabs(value)));
    }
    return result;
  };
  for (const std::vector<std::string>& set : sets) {
    const std::string text =
        fmt::format("sum(({} * {} + {}) * {}, -1, -2)", set[0], set[1], set[2], set[3]);
    SCOPED_TRACE(text);
    check(text, {small(DType::u4, {9, 2, 32}, 1), small(DType::bf16, {9, 2, 1}, 2),
                 small(DType::bf16, {9, 2, 1}, 3), small(DType::bf16, {2, 32}, 4)});
  }
}

TEST_P(Names, OfResultsMayBeAnything) {
  const std::vector<std::string> names = {"int",  "KILN_FN", "lane", "unix",   "__y",
                                          "out0", "x_data",  "x_",   "x_lanes"};
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}{} = x + {}", i == 0 ? "" : "; ", names[i], i);
  text += fmt::format("; {}", fmt::join(names, ", "));
  check(text, {testing::random_array(DType::i32, {3, 40}, 1)});
}

TEST_P(Names, OfNumbersMayBeAnything) {
  const std::vector<std::string> names = hostile_names();
  std::vector<testing::TestInput> inputs;
  std::int64_t want = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto value = static_cast<std::int32_t>(i * i);
    want += value;
    if (i != 0) {
      inputs.emplace_back(Scalar(value));
      continue;
    }
    HostArray array = HostArray::contiguous(DType::i32, {17});
    inputs.emplace_back(array);
  }
  std::vector<HostArray> got = {HostArray::contiguous(DType::i32, {17})};
  testing::run_on(device(), parse("union", sum_of(names)), inputs, got);
  for (std::int64_t i = 0; i < 17; ++i)
    EXPECT_EQ(testing::number_at(got[0], i), static_cast<double>(want));
}

INSTANTIATE_TEST_SUITE_P(Devices, Names,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

using NamesInPrograms = testing::ProgramsOnDevices;

TEST_P(NamesInPrograms, MayBeAnything) {
  const std::vector<std::string> names = hostile_names();
  const std::string text =
      fmt::format("double = sum({0}, -1); enum = cumsum(double + Sum[..., ::-1], 0); enum + total",
                  sum_of(names));
  check(text, arrays_for(names, {4, 12}), 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, NamesInPrograms,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

void compile_all_for(const std::string& target) {
  std::vector<std::future<void>> compiles;
  testing::Share share(DeviceType::cpu, 2);
  for (const auto& [form, text] : cases()) {
    if (!share.next()) continue;
    compiles.push_back(std::async(std::launch::async, [form, text, target] {
      Specification specification;
      for (const std::string& name : hostile_names())
        specification.arguments.push_back({name, DType::i32, {64, 4096}, {}, false});
      const CompiledKernel kernel = compile_for(parse("class", text), specification, target);
      EXPECT_FALSE(kernel.code.empty()) << form;
    }));
  }
  for (std::future<void>& compile : compiles) compile.get();
}

// What a kernel calls something of its own can be no operand's name.
TEST(NamesForTargets, BeginAsNothingElseInAKernel) {
  const std::vector<std::string> texts = {
      "qo = qa * qb + qc",    "qo = qa - max(qb * qc, -1)",
      "qo = sum(qa * qb, 0)", "qo = cumsum(qa, -1) * qb",
      "qo = cumsum(qa, 0)",   "qo = sum((qu * qa + qb) * qc, -1, -2)"};
  const std::regex operand(R"(\b(in|out)[0-9]\w*)");
  const std::regex user(R"((in|out)[0-9]+_q[a-z](_\w+)?)");
  for (const std::string target : {"cpu", "gfx90a", "sm_80", "sm_90"}) {
    for (const std::string& text : texts) {
      const Function function = parse("f", text);
      Specification specification;
      for (const std::string& name : argument_names(function)) {
        const bool weights = text.find("qu") != std::string::npos;
        const Dims shape = !weights       ? Dims{64, 512}
                           : name == "qu" ? Dims{64, 4, 128}
                           : name == "qc" ? Dims{4, 128}
                                          : Dims{64, 4, 1};
        specification.arguments.push_back(
            {name, name == "qu" ? DType::u4 : DType::bf16, shape, {}, false});
      }
      for (const EmittedKernel& call : emit_all(function, specification, target)) {
        const std::string source = readable_text(call.request, call.request.text);
        std::size_t found = 0;
        for (std::sregex_iterator at(source.begin(), source.end(), operand), end; at != end; ++at) {
          EXPECT_TRUE(std::regex_match(at->str(), user)) << at->str() << " in " << text;
          ++found;
        }
        EXPECT_GT(found, 4u) << source;
      }
    }
  }
}

TEST(NamesForTargets, MayBeAnythingOnAmd) {
  KILN_NEED(hiprtc);
  compile_all_for("gfx90a");
}

TEST(NamesForTargets, MayBeAnythingOnNvidia) {
  KILN_NEED(nvrtc);
  compile_all_for("sm_80");
}

}  // namespace
}  // namespace kiln
