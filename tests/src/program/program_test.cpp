// Programs of several kernels on every device that is there, against the reference interpreter.
#include "kiln/program.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

class Programs : public testing::ProgramsOnDevices {};

INSTANTIATE_TEST_SUITE_P(Devices, Programs,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

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

// The place of the only element of a row is 0, and has the shape of the rows.
TEST_P(Programs, OfPlacesAmongOneElement) {
  check("cumsum(argmin(x, 0), 1)", {testing::random_array(DType::f32, {1, 10}, 6)}, 0);
  const HostArray x = testing::random_array(DType::f32, {6, 1}, 7);
  const HostArray y = testing::random_array(DType::f32, {6, 10}, 8);
  check("sum(argmax(x, 1), 0) + sum(y, 1)", {x, y}, 1e-5);
  check("argmax(x, 1), max(x, 1), argmin(x > 0.0, 1) + argmax(x, 0)", {x}, 0);
}

// One kernel stores values that only differ by axes of one element in front.
TEST_P(Programs, OfRunningResultsBesideValuesWithMoreAxes) {
  const HostArray x = testing::random_array(DType::f32, {6, 10}, 9);
  for (const char* text : {"cumsum(x, 1), expand_dims(x, 0) * 2.0",
                           "expand_dims(cumsum(x, 1), 0) + cummax(x[None], 2)",
                           "cumsum(x, 0)[None] * 2.0, cummax(x, 0), x + 1.0"}) {
    check(text, {x}, 1e-5);
    check(text, {x}, 1e-5, true);
  }
}

// Axes of few elements in another order, which the CPU takes as one row: all of them, or parts.
TEST_P(Programs, OfShortAxes) {
  for (const auto& [channels, height] : {std::pair{3, 5}, {12, 70}}) {
    const std::vector<HostArray> inputs = {
        testing::random_array(DType::f16, {3, channels, height, 2}, 10),
        testing::random_array(DType::f32, {channels}, 11)};
    check("transpose(x, 0, 2, 3, 1) * w, f16(transpose(x, 0, 2, 3, 1))", inputs, 1e-5);
    check("concat(-1, transpose(x, 0, 2, 3, 1) * w, expand_dims(x[:, 0] * 2.0, 3))", inputs, 1e-5);
  }
}

TEST_P(Programs, FewLongRows) {
  check("x / sum(abs(x), -1)", {testing::random_array(DType::f32, {2, 70000}, 5)}, 1e-5);
}

// A written cast is honoured where its result is stored, and where something is computed of it too.
TEST_P(Programs, StoreWhatTheyRoundInRowsAndColumns) {
  const HostArray x = testing::random_array(DType::f32, {9, 70}, 3);
  for (const std::string dtype : {"f16", "bf16", "f8e4m3", "f8e5m2"}) {
    for (const int axis : {-1, 0}) {
      check(fmt::format("q = {0}(x / max(abs(x), {1})); q, f32(q) * 2.0, {0}(max(f32(q), {1}))",
                        dtype, axis),
            {x}, 1e-5);
      check(fmt::format("s = {0}(max(abs(x), {1})); s, {0}(x / s)", dtype, axis), {x}, 1e-5);
    }
  }
}

// Compilers join products with sums, or go on with a value from before it was rounded, most of all
// where neighbours in memory take turns.
TEST_P(Programs, RoundEveryResultBeforeItIsUsed) {
  const auto result = [&](const std::string& text, const std::vector<HostArray>& inputs) {
    return run(parse_program("rounding", text), text, inputs, false);
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::c64}) {
    std::vector<HostArray> x;
    for (std::uint64_t i = 0; i < 4; ++i) {
      const bool complex = dtype == DType::c64;
      x.push_back(
          testing::random_array(complex ? DType::f32 : dtype, {complex ? 134 : 67}, 20 + i));
      x.back().dtype = dtype;
      x.back().shape = {67};
    }
    const HostArray ac = result("a * c", {x[0], x[2]})[0];
    const HostArray bd = result("b * d", {x[1], x[3]})[0];
    const HostArray ad = result("a * d", {x[0], x[3]})[0];
    const HostArray bc = result("b * c", {x[1], x[2]})[0];
    EXPECT_EQ(result("stack(-1, a * c - b * d, a * d + b * c)", {x[0], x[2], x[1], x[3]})[0].bytes,
              result("stack(-1, p - q, r + s)", {ac, bd, ad, bc})[0].bytes)
        << name(dtype);

    const std::vector<HostArray> both = result("t = sigmoid(a); (t), a * t", {x[0]});
    EXPECT_EQ(result("a * t", {x[0], both[0]})[0].bytes, both[1].bytes) << name(dtype);
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
  std::vector<double> memory(1000);
  const View workspace(memory.data(), DType::f64, {1000});
  EXPECT_NE(message(View(y.data(), DType::f32, {4, 3}), workspace).find("expected shape [3,4]"),
            std::string::npos);
  EXPECT_NE(message(View(x.data() + 1, DType::f32, {2, 4}), workspace), "");
  EXPECT_NE(
      message(View(memory.data(), DType::f32, {3, 4}), workspace).find("overlaps the workspace"),
      std::string::npos);
  EXPECT_EQ(message(output, View(x.data() + 4, DType::f32, {1000})),
            "two: input 0 'x' overlaps the workspace");
}

// Kernels that reduce take packed numbers of rows in order, and give none: a program does the rest
// in two.
TEST_P(Programs, ReducePackedNumbersAndGiveThem) {
  const HostArray bf16 = testing::random_array(DType::bf16, {6, 40}, 62);
  testing::Share share(GetParam(), 3);
  for (const auto& [dtype, text] :
       {std::pair(DType::u4, "softmax(f32(q), -1) * x, sum(q, 0)"),
        std::pair(DType::i4, "argmax(q, -1) + x, cumsum(f32(q), -1)"),
        std::pair(DType::u4, "sum(q[:, 1::2], -1), x - mean(q, -1), sum(q * x, -1)"),
        std::pair(DType::f4e2m1, "q * x + max(swapaxes(q, 0, 1)[3:])"),
        std::pair(DType::u4, "sum(q[:0], 0) + x, sum(q[:, :0], -1)")}) {
    if (share.next()) check(text, {testing::random_array(dtype, {6, 40}, 61, 0.5), bf16}, 1e-4);
  }
  const HostArray x = testing::random_array(DType::f32, {6, 40}, 63);
  check("s = max(abs(x), -1) / 7.0; i4(round(x / s)), (s)", {x}, 1e-6);
  check("s = max(abs(x), -1) / 7.0; q = i4(round(x / s)); q, softmax(f32(q) * s, -1)", {x}, 1e-5);
  check("u4(cummax(abs(x), -1)), i4(min(x, -1)), sum(f32(i4(x)), -1)", {x}, 1e-6);
}

// What is rounded in one pass and stored as an integer by a later one, which no longer knows of
// what.
TEST_P(Programs, RoundOnceForSeveralPasses) {
  const char* const text = "y = round(gelu_tanh(x) * 20.0); i8(y), i4(y), y - max(y, {})";
  for (const auto& [shape, axis] : {std::pair(Dims{3, 700, 24}, -2), std::pair(Dims{3, 70'000}, -1),
                                    std::pair(Dims{3, 16'384}, -1)}) {
    const HostArray x = testing::random_array(DType::f32, shape, 64);
    check(fmt::format(fmt::runtime(text), axis), {x}, 1e-6);
  }
}

// Before anything has run, and by the program's names and not by a kernel's.
TEST(ProgramErrors, NameThePartsOfTheCall) {
  std::vector<float> x(12), y(12), z(24);
  std::vector<double> memory(1000);
  const View input(x.data(), DType::f32, {3, 4});
  const View workspace(memory.data(), DType::f64, {1000});
  const Program two = parse_program("two", "a = x / sum(x, 0); b = y * a / sum(x, 1); a, b");
  const auto message = [&](const View& second, const View& first_output) {
    try {
      two.run({}, {input, second}, {first_output, View(z.data(), DType::f32, {3, 4})}, workspace);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const View output(y.data(), DType::f32, {3, 4});
  EXPECT_EQ(message(View(nullptr, DType::f32, {3, 4}), output),
            "two: input 1 'y': the data pointer is null");
  EXPECT_EQ(message(View(x.data(), DType::f32, {3, 4}, Device{DeviceType::cuda, 0}), output),
            "two: input 1 'y': is on cuda:0, but the stream is on cpu");
  EXPECT_EQ(message(input, View(nullptr, DType::f32, {3, 4})),
            "two: output 0 'a': the data pointer is null");
  EXPECT_EQ(message(input, View(z.data() + 5, DType::f32, {3, 4})),
            "two: output 1 'b' overlaps output 0 'a'");
  EXPECT_NE(message(input, View(x.data() + 1, DType::f32, {2, 4})), "");
  EXPECT_EQ(message(input, input),
            "two: output 0 'a' overlaps input 0 'x', which a later kernel "
            "reads");

  // Of packed elements, two in each byte.
  std::vector<std::uint8_t> packed(64);
  const Program halves = parse_program("halves", "f32(q)[::-1], f32(q)");
  const View q(packed.data(), DType::u4, {64});
  try {
    halves.run({}, {q},
               {View(z.data(), DType::f32, {64}), View(packed.data() + 28, DType::f32, {64})},
               View());
    FAIL() << "an output that lies where packed elements are read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("halves: output 1 overlaps input 0 'q'"),
              std::string::npos)
        << error.what();
  }
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
