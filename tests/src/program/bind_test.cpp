// Programs that are prepared, bound, and called by the names of their arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using ::testing::AllOf;
using testing::counting;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

class BoundPrograms : public testing::DeviceTest {
 protected:
  static constexpr std::int64_t kRows = 4;
  static constexpr std::int64_t kColumns = 8;
  static constexpr std::size_t kSize = kRows * kColumns;

  void SetUp() override {
    DeviceTest::SetUp();
    if (backend == nullptr) return;
    x = allocate(counting(kSize));
    y = zeros(kSize);
    z = zeros(kSize);
    workspace = View(zeros(256), DType::u8, {1024}, device);
  }

  Argument matrix(float* data) const { return View(data, DType::f32, {kRows, kColumns}, device); }
  std::array<View, 1> results(float* data) const {
    return {View(data, DType::f32, {kRows, kColumns}, device)};
  }

  /// What the program gives at [row, column] for x that counts from `first`.
  static float expected(double scale, double first, int row, int column) {
    double sum = 0;
    for (int r = 0; r < kRows; ++r) sum += first + r * kColumns + column;
    const double d = scale * (first + row * kColumns + column) - sum / kRows;
    double of_row = 0;
    for (int c = 0; c < kColumns; ++c) {
      double column_sum = 0;
      for (int r = 0; r < kRows; ++r) column_sum += first + r * kColumns + c;
      of_row += scale * (first + row * kColumns + c) - column_sum / kRows;
    }
    return static_cast<float>(d + of_row);
  }
  void expect_result(const float* data, double scale, double first) {
    const std::vector<float> got = read(data, kSize);
    for (int i = 0; i < static_cast<int>(kSize); ++i) {
      EXPECT_FLOAT_EQ(got[static_cast<std::size_t>(i)],
                      expected(scale, first, i / kColumns, i % kColumns))
          << i;
    }
  }

  /// Reductions of columns and of rows, of which one waits for the other: several kernels.
  const Program program =
      parse_program("centred", "d = scale * x - mean(x, 0); result = d + sum(d, 1); result");
  float* x = nullptr;
  float* y = nullptr;
  float* z = nullptr;
  View workspace;
};

TEST_P(BoundPrograms, AreCalledByNames) {
  EXPECT_THAT(argument_names(program), ElementsAre("scale", "x"));
  ASSERT_EQ(output_names(program).size(), 1u);
  const std::string output = output_names(program)[0].empty() ? "out0" : output_names(program)[0];
  program.run(stream, {{"x", matrix(x)}, {"scale", 2.0}}, {{output, results(y)[0]}}, workspace);
  expect_result(y, 2, 1);
  const auto run = [&](std::vector<NamedArgument> inputs, std::string_view name) {
    const NamedView result{name, results(y)[0]};
    return error_of([&] { program.run(stream, inputs, {&result, 1}, workspace); });
  };
  EXPECT_THAT(run({{"x", matrix(x)}}, output),
              AllOf(HasSubstr("centred: expected the argument 'scale', which is missing"),
                    HasSubstr("the arguments are scale, x")));
  EXPECT_THAT(run({{"x", matrix(x)}, {"x", matrix(x)}, {"scale", 2.0}}, output),
              HasSubstr("expected the argument 'x' once, got it 2 times"));
  EXPECT_THAT(run({{"x", matrix(x)}, {"w", matrix(x)}, {"scale", 2.0}}, output),
              HasSubstr("there is no argument 'w'"));
  EXPECT_THAT(run({{"x", matrix(x)}, {"scale", 2.0}}, "other"), HasSubstr("the output"));
}

TEST_P(BoundPrograms, FollowTheirPointersAndNumbers) {
  Launch launch = program.bind(stream, {2.0, matrix(x)}, {results(y)[0]}, workspace);
  EXPECT_EQ(read(y, kSize)[3], 0) << "binding launches nothing";
  EXPECT_GT(launch.info().kernels, 1);
  EXPECT_EQ(launch.info().function, "centred");
  launch(stream);
  expect_result(y, 2, 1);
  std::vector<float> from_five = counting(kSize);
  for (float& value : from_five) value += 4;
  float* const other = allocate(from_five);
  launch.set_input(1, other);
  launch.set_output(0, z);
  launch.set_scalar(0, 3.0);
  launch(stream);
  launch(stream);
  expect_result(z, 3, 5);
  expect_result(y, 2, 1);
}

TEST_P(BoundPrograms, NameTheOperandThatIsWrong) {
  Launch launch = program.bind(stream, {2.0, matrix(x)}, {results(y)[0]}, workspace);
  EXPECT_THAT(error_of([&] { launch.set_input(1, x + 1); }),
              AllOf(HasSubstr("centred"), HasSubstr("input 1 'x'"), HasSubstr("modulo 16")));
  EXPECT_THAT(error_of([&] { launch.set_scalar(1, 2.0); }), HasSubstr("input 1"));
  EXPECT_THAT(error_of([&] { launch.set_output(1, y); }), HasSubstr("no output 1"));
  EXPECT_THAT(error_of([&] { launch.set_scalar(0, 2); }), HasSubstr("input 0 'scale'"));
  EXPECT_THAT(error_of([&] { launch.set_output(0, x + 16); }), HasSubstr("overlaps input 1 'x'"));
  EXPECT_THAT(error_of([&] { launch.set_output(0, workspace.data()); }),
              HasSubstr("overlaps the workspace"));
  const std::array<Argument, 2> inputs = {2.0, matrix(x)};
  const std::optional<Error> error = program.try_run(stream, inputs, results(x + 16), workspace);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("overlaps input 1 'x'"));
  const std::optional<Error> unlike = launch.try_launch({{DeviceType::cpu, 7}, nullptr});
  ASSERT_TRUE(unlike);
  EXPECT_THAT(unlike->what(), HasSubstr("stream"));
  EXPECT_FALSE(launch.try_launch(stream));  // nothing has changed
  expect_result(y, 2, 1);
}

TEST_P(BoundPrograms, ThatArePreparedCompileNothing) {
  const auto prepared = [&](const char* text, bool with_memory) {
    const Program made = parse_program("prepared", text, {.on_miss = OnMiss::fail});
    const std::array<Argument, 1> inputs = {matrix(x)};
    EXPECT_THAT(error_of([&] { made.run(stream, inputs, results(y), workspace); }),
                HasSubstr("forbids compiling"));
    if (with_memory) {
      EXPECT_GT(made.prepare(stream, inputs, results(y)).kernels, 1);
    } else {
      Specification types;
      types.arguments = {{"x", DType::f32, {kRows, kColumns}, {}}};
      types.outputs = {DType::f32};
      EXPECT_GT(made.prepare(device, types).get().kernels, 1);
    }
    made.run(stream, inputs, results(y), workspace);
  };
  prepared("d = x - max(x, 0); d * 0.5 + sum(d, 1)", true);
  prepared("d = x - min(x, 0); d * 0.25 + sum(d, 1)", false);
  Specification wrong;
  EXPECT_THAT(error_of([&] { program.prepare(device, wrong); }),
              HasSubstr("no type was given for the argument"));
}

KILN_ON_EVERY_DEVICE(BoundPrograms);

}  // namespace
}  // namespace kiln
