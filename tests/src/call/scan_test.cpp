// Running results along an axis, in one kernel on every device that is there, against the reference
// interpreter: every dtype, rows of all lengths and along any axis, with work before, between and
// after them, and in programs beside reductions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kiln/program.hpp"
#include "kiln/reduction.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::HostArray;

class Scan : public testing::OnDevice {
 protected:
  void check(const std::string& text, const std::vector<HostArray>& inputs, double slack,
             const Options& options = {}) {
    testing::check_on(device(), text, inputs, slack, options);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Scan,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(Scan, OfEveryDtype) {
  for (const DType dtype : {DType::u8, DType::i16, DType::i32, DType::u64, DType::i64, DType::f16,
                            DType::bf16, DType::f32, DType::f64}) {
    const HostArray x = testing::random_array(dtype, {5, 200}, 1);
    check("cumsum(x, -1), cummax(x, -1)", {x}, 256);
    check("cumsum(x, 0), cummax(x, 0)", {x}, 16);
  }
  check("cumsum(x, 1)", {testing::random_array(DType::boolean, {5, 200}, 2)}, 0);
}

// Products of many integers wrap, and those of floats near one neither vanish nor overflow.
TEST_P(Scan, OfProducts) {
  check("cumprod(x, -1)", {testing::random_array(DType::i32, {3, 70}, 3)}, 0);
  check("cumprod(x, 0)", {testing::random_array(DType::u8, {70, 3}, 3)}, 0);
  check("cumprod(1.0 + x * 0.001, -1)", {testing::random_array(DType::f32, {3, 5000}, 4)}, 1024);
}

TEST_P(Scan, OfRowsOfEveryLength) {
  for (const std::int64_t length : {1, 2, 3, 31, 64, 127, 256, 1000, 2048, 4100, 40000}) {
    const std::int64_t rows = length < 300 ? 77 : 3;
    check("cumsum(x, -1)", {testing::random_array(DType::i32, {rows, length}, 5)}, 0);
    check("cumsum(x, -1)", {testing::random_array(DType::bf16, {rows, length}, 6)}, 512);
    check("cummax(x, 0)", {testing::random_array(DType::f32, {length, rows}, 7)}, 0);
  }
}

TEST_P(Scan, AlongAnyAxis) {
  const HostArray x = testing::random_array(DType::f32, {4, 6, 5, 8}, 8);
  for (const int axis : {0, 1, 2, 3, -1, -2, -3, -4}) {
    check(fmt::format("cumsum(x, {0}), x - cummax(x, {0})", axis), {x}, 64);
  }
}

TEST_P(Scan, OfStridedAndBroadcastOperands) {
  HostArray transposed = testing::random_array(DType::f32, {40, 30}, 9);
  transposed.shape = {30, 40};
  transposed.strides = {1, 30};
  check("cumsum(x, -1)", {transposed}, 64);
  check("cumsum(x, 0)", {transposed}, 64);
  HostArray backwards = testing::random_array(DType::f32, {6, 64}, 10);
  backwards.first = (6 * 64 - 1) * 4;
  backwards.strides = {-64, -1};
  const HostArray weight = testing::random_array(DType::f32, {64}, 11);
  const HostArray bias = testing::random_array(DType::f32, {6, 1}, 12);
  check("cumsum(w * x, -1) + b * cumsum(w, -1)", {weight, backwards, bias}, 128);
  check("w + cumsum(b, -1)", {weight, bias}, 8);
}

TEST_P(Scan, WithWorkBeforeBetweenAndAfter) {
  const HostArray x = testing::random_array(DType::bf16, {7, 1030}, 13);
  check("s = cumsum(abs(x), -1); sqrt(cumsum(1.0 / (1.0 + s), -1)), s", {x}, 512);
  Options each;
  each.rounding = Rounding::each;
  check("cummax(x * 1.1, -1) * 1.1", {x}, 0, each);
}

// What passes through keeps every bit, also of a NaN.
TEST_P(Scan, BesideWhatPassesThrough) {
  HostArray x = testing::random_array(DType::bf16, {3, 64}, 16);
  for (std::int64_t i = 0; i < 8; ++i) testing::set_bits(x, i * 5, 0x7f81 + i);
  std::vector<HostArray> got = {HostArray::contiguous(DType::bf16, {3, 64}),
                                HostArray::contiguous(DType::u64, {3, 64})};
  const std::string text = "x, cumsum(bitcast(x, u16), -1)";
  testing::run_on(device(), parse("scan", text), {x}, got);
  EXPECT_EQ(got[0].bytes, x.bytes);
  testing::expect_close(got[1], testing::reference_of(text, {x})[1], 0, 0, text);
}

TEST_P(Scan, SpecialValues) {
  HostArray x = HostArray::contiguous(DType::f32, {3, 4});
  const double nan = std::nan("");
  const double rows[3][4] = {{1, nan, 3, 2}, {-0.0, 0.0, -0.0, 1}, {INFINITY, 1, -INFINITY, 2}};
  for (std::int64_t i = 0; i < 12; ++i) {
    testing::set_bits(x, i, fusion::encode(rows[i / 4][i % 4], DType::f32));
  }
  check("cumsum(x, -1), cummax(x, -1), cumprod(x, -1)", {x}, 4);
}

TEST_P(Scan, InPlaceAndOfNothing) {
  HostArray x = testing::random_array(DType::i64, {3, 1500}, 14);
  const std::vector<HostArray> want = testing::reference_of("cumsum(x, -1)", {x});
  jit::Backend& backend = jit::backend(device());
  const testing::DeviceBuffer memory(backend, x.bytes);
  const View view(memory.data(), DType::i64, x.shape, device());
  parse("scan", "cumsum(x, -1)")({device(), nullptr}, {view}, {view});
  x.bytes = memory.read();
  testing::expect_close(x, want[0], 0, 0, "cumsum in place");
  std::vector<HostArray> none = {HostArray::contiguous(DType::f32, {3, 0})};
  testing::run_on(device(), parse("scan", "cumsum(x, -1)"),
                  {HostArray::contiguous(DType::f32, {3, 0})}, none);
}

// The bound of preamble/scan.h, on numbers that all round the same way.
TEST_P(Scan, ErrorsOfLongRowsStayBounded) {
  constexpr std::int64_t kLength = 1 << 18;
  HostArray x = HostArray::contiguous(DType::f32, {1, kLength});
  for (std::int64_t i = 0; i < kLength; ++i)
    testing::set_bits(x, i, fusion::encode(0.1, DType::f32));
  for (const bool across : {false, true}) {
    x.shape = across ? Dims{kLength, 1} : Dims{1, kLength};
    x.strides = contiguous_strides(x.shape);
    std::vector<HostArray> got = {HostArray::contiguous(DType::f32, x.shape)};
    testing::run_on(device(), parse("scan", across ? "cumsum(x, 0)" : "cumsum(x, 1)"), {x}, got);
    for (std::int64_t i = 0; i < kLength; i += 4097) {
      const double exact = static_cast<double>(i + 1) * static_cast<double>(0.1f);
      ASSERT_NEAR(testing::number_at(got[0], i), exact, exact * 1400 * std::ldexp(1.0, -24)) << i;
    }
  }
}

TEST_P(Scan, InProgramsBesideReductions) {
  const std::string text = "p = softmax(x, -1); cumsum(p, -1), cumsum(cumsum(x, 0), 1) / sum(x, 1)";
  const std::vector<HostArray> inputs = {testing::random_array(DType::f32, {9, 70}, 15)};
  const std::vector<HostArray> want = testing::reference_of(text, inputs);
  jit::Backend& backend = jit::backend(device());
  const Stream stream{device(), nullptr};
  const testing::DeviceBuffer x(backend, inputs[0].bytes);
  std::vector<std::unique_ptr<testing::DeviceBuffer>> buffers;
  std::vector<HostArray> got;
  std::vector<View> results;
  for (const HostArray& output : want) {
    got.push_back(HostArray::contiguous(DType::f32, output.shape));
    buffers.push_back(std::make_unique<testing::DeviceBuffer>(backend, got.back().bytes));
    results.emplace_back(buffers.back()->data(), DType::f32, output.shape, device());
  }
  const Program fused = program(parse("scan", text));
  const std::vector<Argument> arguments = {View(x.data(), DType::f32, {9, 70}, device())};
  const std::size_t bytes = fused.workspace_bytes(stream, arguments, results);
  const testing::DeviceBuffer memory(backend, std::vector<std::byte>(bytes));
  fused.run(stream, arguments, results,
            View(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device()));
  for (std::size_t i = 0; i < got.size(); ++i) got[i].bytes = buffers[i]->read();
  testing::expect_within({got[0]}, {want[0]}, 256, text);
  // A row's sum may be near zero: compared before it is divided by.
  for (std::int64_t i = 0; i < 9 * 70; ++i) {
    const double expected = testing::number_at(want[1], i);
    ASSERT_NEAR(testing::number_at(got[1], i), expected, 1e-3 + 1e-3 * std::fabs(expected)) << i;
  }
}

TEST_P(Scan, IsTheSameInCppAndInText) {
  EXPECT_EQ(fuse("f", [](Value x) { return cumsum(x, -1) + cumprod(x, -1) * cummax(x, -1); })
                .expression(),
            parse("f", "cumsum(in0, -1) + cumprod(in0, -1) * cummax(in0, -1)").expression());
}

TEST(ScanErrors, NameWhatDoesNotFit) {
  const auto message = [](const std::string& text, const std::vector<HostArray>& inputs) {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {4, 4})};
    try {
      testing::run_on({}, parse("f", text), inputs, outputs);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const HostArray x = HostArray::contiguous(DType::f32, {4, 4});
  EXPECT_NE(message("cumsum(x)", {x}).find("cumsum: axis: expected one, got 0"), std::string::npos)
      << message("cumsum(x)", {x});
  EXPECT_NE(message("cumsum(x, 2)", {x}).find("expected one of an array with 2 axes, got 2"),
            std::string::npos);
  EXPECT_NE(message("cumsum(x, 0) + cumsum(x, 1)", {x}).find("along different axes"),
            std::string::npos);
  EXPECT_NE(message("cumsum(x, 0) / sum(x, 0)", {x}).find("reduces beside a running result"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
