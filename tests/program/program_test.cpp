// Programs of several kernels on every device that is there, against the reference interpreter.
#include "kiln/program.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fusion/text.hpp"
#include "tests/program/random_graph.hpp"
#include "tests/support/arrays.hpp"

namespace kiln {
namespace {

using testing::HostArray;

const auto* const private_cache = ::testing::AddGlobalTestEnvironment(new testing::PrivateCache);

class Programs : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!testing::has_device(GetParam())) {
      GTEST_SKIP() << "no such device: " << jit::why_absent(GetParam());
    }
  }
  Device device() const { return {GetParam(), 0}; }

  std::vector<HostArray> run(const std::string& text, const std::vector<HostArray>& inputs,
                             bool recorded = false) {
    jit::Backend& backend = jit::backend(device());
    const Stream stream{device(), nullptr};
    std::vector<std::unique_ptr<testing::DeviceBuffer>> buffers;
    const auto view = [&](const HostArray& array) {
      buffers.push_back(std::make_unique<testing::DeviceBuffer>(backend, array.bytes));
      return View(buffers.back()->data(), array.dtype, array.shape, array.strides, device());
    };
    std::vector<Argument> arguments;
    for (const HostArray& input : inputs) arguments.emplace_back(view(input));
    std::vector<HostArray> got;
    const std::vector<HostArray> want = testing::reference_of(text, inputs);
    const std::vector<DType> dtypes = testing::natural_dtypes(text, inputs);
    std::vector<View> results;
    for (std::size_t i = 0; i < want.size(); ++i) {
      got.push_back(HostArray::contiguous(dtypes[i], want[i].shape));
      results.push_back(view(got.back()));
    }
    const Program program = parse_program("program", text);
    const std::size_t bytes = program.workspace_bytes(stream, arguments, results);
    const testing::DeviceBuffer memory(backend, std::vector<std::byte>(bytes, std::byte{0xff}));
    const View workspace(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device());
    if (recorded) {
      Graph graph = kiln::record(device(), [&](Recorder& recorder) {
        program.record(recorder, device(), arguments, results, workspace);
      });
      graph.launch(stream);
    } else {
      program.run(stream, arguments, results, workspace);
    }
    backend.synchronize(stream);
    memory.read();
    for (std::size_t i = 0; i < got.size(); ++i) got[i].bytes = buffers[inputs.size() + i]->read();
    return got;
  }

  void check(const std::string& text, const std::vector<HostArray>& inputs, double relative,
             bool recorded = false) {
    const std::vector<HostArray> got = run(text, inputs, recorded);
    const std::vector<HostArray> want = testing::reference_of(text, inputs);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double rounding = testing::rounding_of(got[i].dtype) * 1.01;
      testing::expect_close(got[i], want[i], relative + rounding, relative * 10,
                            fmt::format("{}, output {}", text, i));
    }
  }
};

std::string device_type_name(const ::testing::TestParamInfo<DeviceType>& info) {
  constexpr const char* kNames[] = {"cpu", "hip", "cuda"};
  return kNames[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Devices, Programs,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         device_type_name);

TEST_P(Programs, OfReductionsOverDifferentAxes) {
  const HostArray x = testing::random_array(DType::f32, {40, 60}, 1);
  check("x / (1.0 + sum(abs(x), -1)) + max(x, 0), mean(x)", {x}, 1e-5);
  check("x / (1.0 + sum(abs(x), -1)) + max(x, 0), mean(x)", {x}, 1e-5, true);
}

TEST_P(Programs, OfOneKernelNeedNoWorkspace) {
  check("softmax(x * 0.5, -1)", {testing::random_array(DType::bf16, {8, 256}, 2)}, 1e-5);
}

// A value that crosses between kernels keeps all of its digits.
TEST_P(Programs, RoundOnceAlsoAcrossKernels) {
  const HostArray x = testing::random_array(DType::bf16, {16, 32}, 3);
  check("h = exp(x * 0.1); h / sum(h, 0) / sum(h, 1)", {x}, 1e-5);
}

TEST_P(Programs, WithOutputsThatAreArgumentsOrTheSame) {
  const HostArray x = testing::random_array(DType::f32, {8, 16}, 4);
  check("y = x * 2.0; (x), (y), (y), sum(y, 0)", {x}, 1e-5);
}

TEST_P(Programs, FewLongRows) {
  check("x / sum(abs(x), -1)", {testing::random_array(DType::f32, {2, 70000}, 5)}, 1e-5);
}

TEST_P(Programs, OfRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const bool integers = seed % 2 == 0;
    const auto random = testing::random_graph(seed, 24, integers);
    std::vector<HostArray> inputs;
    for (std::size_t i = 0; i < random.arguments.size(); ++i) {
      inputs.push_back(testing::random_array(integers ? DType::i64 : DType::f32,
                                             random.arguments[i], seed * 10 + i, 0.4));
    }
    check(fusion::to_text(random.graph), inputs, integers ? 0 : 2e-4);
  }
}

TEST(ProgramErrors, NameWhatDoesNotFit) {
  std::vector<float> x(12), y(12);
  const Stream stream;
  const View input(x.data(), DType::f32, {3, 4});
  const Program two = parse_program("two", "x / sum(x, 0) / sum(x, 1)");
  const auto message = [&](const View& output, const View& workspace) {
    try {
      two.run(stream, {input}, {output}, workspace);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const View output(y.data(), DType::f32, {3, 4});
  EXPECT_NE(message(output, View()).find("workspace: expected at least"), std::string::npos);
  std::vector<double> room(1000);
  const View workspace(room.data(), DType::f64, {1000});
  EXPECT_NE(message(View(y.data(), DType::f32, {4, 3}), workspace).find("expected shape [3,4]"),
            std::string::npos);
  EXPECT_NE(message(View(x.data() + 1, DType::f32, {2, 4}), workspace), "");
  EXPECT_NE(
      message(View(room.data(), DType::f32, {3, 4}), workspace).find("overlaps the workspace"),
      std::string::npos);
}

TEST(ProgramInfo, SaysWhatMovesAndWhy) {
  std::vector<float> x(6400), y(6400);
  const Program two = parse_program("two", "x / sum(x, 0) / sum(x, 1)");
  const std::vector<Argument> inputs{View(x.data(), DType::f32, {64, 100})};
  const std::vector<View> outputs{View(y.data(), DType::f32, {64, 100})};
  const ProgramInfo info = two.explain({}, inputs, outputs);
  ASSERT_GE(info.kernels.size(), 2u);
  EXPECT_LT(info.bytes, info.op_by_op_bytes);
  EXPECT_GE(info.bytes, info.lower_bound);
  EXPECT_EQ(info.lower_bound, 2u * 6400 * 4);
  EXPECT_FALSE(info.kernels.back().after.empty());
  EXPECT_EQ(info.workspace_bytes, two.workspace_bytes({}, inputs, outputs));
}

}  // namespace
}  // namespace kiln
