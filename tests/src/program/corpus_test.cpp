// The corpus of real fused functions (bench/corpus/functions.txt, or what KILN_TEST_CORPUS names),
// each on every device that is there against the reference interpreter.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "files/tensor_file.hpp"
#include "kiln/program.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

struct CorpusFunction {
  std::string name;
  std::string text;
  std::vector<std::pair<std::string, HostArray>> arguments;
  std::optional<HostArray> answer;  ///< of somebody else, for real tensors
};

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') + 1 - from);
}

// A tensor of a trained model.
HostArray real_tensor(const std::string& name) {
  const files::HostTensor tensor =
      files::read_tensor(KILN_TEST_DATA "/tinystories-f32.safetensors:" + name);
  HostArray array = HostArray::contiguous(tensor.dtype, tensor.shape);
  std::memcpy(array.bytes.data(), tensor.data(), array.bytes.size());
  return array;
}

// "x=@gate0", or "x=bf16[8,256]" of normally distributed numbers, or with a range behind it,
// "x=bf16[8,256]in(0,1)", of numbers from there, as scales and variances need.
std::pair<std::string, HostArray> argument_of(const std::string& spec, std::uint64_t seed) {
  const std::size_t equals = spec.find('=');
  if (spec[equals + 1] == '@') {
    return {spec.substr(0, equals), real_tensor(spec.substr(equals + 2))};
  }
  const std::size_t bracket = spec.find('[');
  const std::size_t end = spec.find(']', bracket);
  std::vector<std::int64_t> extents;
  std::stringstream list(spec.substr(bracket + 1, end - bracket - 1));
  for (std::string extent; std::getline(list, extent, ',');) extents.push_back(std::stoll(extent));
  const Dims shape{std::span<const std::int64_t>(extents)};
  const DType dtype = parse_dtype(spec.substr(equals + 1, bracket - equals - 1)).value();
  HostArray array = testing::random_array(dtype, shape, seed, 1);
  if (end + 1 < spec.size()) {
    double low = 0;
    double high = 0;
    if (std::sscanf(spec.c_str() + end, "]in(%lf,%lf)", &low, &high) != 2) {
      throw std::runtime_error(spec + ": expected a range, in(low,high)");
    }
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> number(low, high);
    for (std::int64_t i = 0; i < array.size(); ++i) {
      testing::set_bits(array, i, testing::bits_of(number(random), dtype));
    }
  }
  return {spec.substr(0, equals), std::move(array)};
}

std::vector<CorpusFunction> corpus() {
  const char* const chosen = std::getenv("KILN_TEST_CORPUS");
  std::ifstream file(chosen != nullptr ? chosen : KILN_TEST_CORPUS);
  std::vector<CorpusFunction> functions;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::stringstream parts(line);
    CorpusFunction function;
    std::string arguments;
    std::getline(parts, function.name, '|');
    std::getline(parts, function.text, '|');
    std::getline(parts, arguments, '|');
    function.name = trimmed(function.name);
    function.text = trimmed(function.text);
    std::stringstream specs(arguments);
    for (std::string spec; specs >> spec;) {
      if (spec == "->") {
        specs >> spec;
        function.answer = real_tensor(spec.substr(1));
        break;
      }
      function.arguments.push_back(argument_of(spec, function.arguments.size() + 1));
    }
    functions.push_back(std::move(function));
  }
  return functions;
}

double largest_of(const HostArray& array) {
  double largest = 0;
  for (std::int64_t i = 0; i < array.size(); ++i) {
    largest = std::max(largest, std::fabs(testing::number_at(array, i)));
  }
  return largest;
}

// Functions that cannot read every argument and write every output just once: elements wait for
// what all of a row or of the array gives, of which some is stored, or a kernel that reduces needs
// what one that counts gives; or which reads two views of one array.
bool reads_again(const std::string& name) {
  static const std::set<std::string> names{"dropout_norm",
                                           "moe_layer",
                                           "gated_delta_rule",
                                           "nucleus_mass",
                                           "decode_attention",
                                           "decode_attention_long",
                                           "decode_attention_masked",
                                           "decode_attention_i8",
                                           "neighbour_differences"};
  return names.contains(name);
}

void run(const CorpusFunction& corpus_function, Device device) {
  SCOPED_TRACE(corpus_function.name);
  const Function function = parse(corpus_function.name, corpus_function.text);
  std::vector<HostArray> inputs;
  for (const std::string& name : argument_names(function)) {
    for (const auto& [own, array] : corpus_function.arguments) {
      if (own == name) inputs.push_back(array);
    }
  }
  ASSERT_EQ(inputs.size(), corpus_function.arguments.size());
  const std::vector<HostArray> want = testing::reference_of(corpus_function.text, inputs);
  const std::vector<DType> dtypes = testing::natural_dtypes(corpus_function.text, inputs);
  jit::Backend& backend = jit::backend(device);
  const Stream stream{device, nullptr};
  std::vector<std::unique_ptr<testing::DeviceBuffer>> buffers;
  const auto view = [&](const HostArray& array) {
    buffers.push_back(std::make_unique<testing::DeviceBuffer>(backend, array.bytes));
    return View(buffers.back()->data(), array.dtype, array.shape, array.strides, device);
  };
  std::vector<Argument> arguments;
  for (const HostArray& input : inputs) arguments.emplace_back(view(input));
  std::vector<HostArray> got;
  std::vector<View> results;
  for (std::size_t i = 0; i < want.size(); ++i) {
    got.push_back(HostArray::contiguous(dtypes[i], want[i].shape));
    results.push_back(view(got.back()));
  }
  const Program fused = program(function);
  const std::size_t bytes = fused.workspace_bytes(stream, arguments, results);
  const testing::DeviceBuffer memory(backend, std::vector<std::byte>(bytes));
  fused.run(stream, arguments, results,
            View(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device));
  std::string kernels;
  const ProgramInfo info = fused.explain(stream, arguments, results);
  for (const ProgramKernel& kernel : info.kernels) {
    kernels += kernel.expression + " because " + kernel.reason + "\n";
  }
  EXPECT_LE(info.kernels.size(), 3u) << kernels;
  EXPECT_LE(info.bytes, info.op_by_op_bytes) << kernels;
  EXPECT_EQ(info.bytes != info.lower_bound, reads_again(corpus_function.name)) << kernels;
  for (std::size_t i = 0; i < want.size(); ++i) {
    got[i].bytes = buffers[inputs.size() + i]->read();
    const bool whole = !is_floating(dtypes[i]);  // a quotient may round to either side
    const double rounding = dtypes[i] == DType::f8e4m3 ? 1.0 / 16 : testing::rounding_of(dtypes[i]);
    // Terms of both signs leave some roundings of the largest number.
    const double absolute = 1e-5 + 16 * std::ldexp(1.0, -24) * largest_of(want[i]);
    testing::expect_close(got[i], want[i], whole ? 0 : rounding * 1.02 + 2e-6, whole ? 1 : absolute,
                          corpus_function.name);
  }
  if (!corpus_function.answer) return;
  ASSERT_EQ(got[0].shape, corpus_function.answer->shape);
  testing::expect_close(got[0], *corpus_function.answer, 1e-5, 2e-5,
                        corpus_function.name + ", known answer");
}

class Corpus : public ::testing::TestWithParam<DeviceType> {};

INSTANTIATE_TEST_SUITE_P(Devices, Corpus,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(Corpus, GivesTheReferencesNumbers) {
  if (!testing::has_device(GetParam())) {
    GTEST_SKIP() << "no such device: " << jit::why_absent(GetParam());
  }
  const std::vector<CorpusFunction> functions = corpus();
  ASSERT_GE(functions.size(), 35u);
  testing::Share share(GetParam(), 6, testing::random_seed());
  for (const CorpusFunction& function : functions) {
    if (share.next()) run(function, {GetParam(), 0});
  }
}

}  // namespace
}  // namespace kiln
