// Reductions in one kernel, on every device that is there, against the reference interpreter: every
// reduction, dtype and kind of axis, rows of all lengths, and what is composed of them.
#include "kiln/reduction.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/arrays.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

class Reduction : public testing::OnDevice {
 protected:
  void check(const std::string& text, const std::vector<HostArray>& inputs, double slack,
             const Options& options = {}) {
    testing::check_on(device(), text, inputs, slack, options);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Reduction,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

constexpr const char* kOfNumbers =
    "sum(x, -1), mean(x, -1), max(x, -1), min(x, -1), argmax(x, -1), argmin(x, -1), any(x > 1, "
    "-1), "
    "all(x < 6, -1), count_nonzero(x, -1), norm2(x, -1), var(x, -1), std(x, -1)";

TEST_P(Reduction, OfEveryDtype) {
  testing::Share share(GetParam(), 5);
  for (const DType dtype :
       {DType::u8, DType::u16, DType::u32, DType::u64, DType::i8, DType::i16, DType::i32,
        DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64}) {
    if (!share.next()) continue;
    check(kOfNumbers, {testing::random_array(dtype, {5, 200}, 1)}, 64);
  }
  check("sum(x, -1), any(x, -1), all(x, -1), count_nonzero(x, -1), mean(x, -1), argmax(x, -1)",
        {testing::random_array(DType::boolean, {5, 200}, 2)}, 4);
}

// Of numbers around one and of both signs, so that products neither vanish nor overflow.
TEST_P(Reduction, OfProducts) {
  testing::Share share(GetParam(), 9);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const Dims& shape : {Dims{3, 7}, Dims{5, 200}, Dims{2, 3000}}) {
      if (!share.next()) continue;
      HostArray x = testing::random_array(dtype, shape, 21, 1);
      const double spread = shape[1] > 1000 ? 0.01 : 0.1;
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const double drawn = testing::number_at(x, i);
        const double number = std::copysign(1 + spread * std::clamp(drawn, -2.0, 2.0), drawn + 1);
        testing::set_bits(x, i, testing::bits_of(number, dtype));
      }
      const auto length = static_cast<double>(shape[1]);
      check("prod(x, -1)", {x}, length);
      check("prod(x, 0)", {x}, 4);
      check("x * prod(x, -1)", {x}, length + 1);
    }
  }
  for (const DType dtype : {DType::i8, DType::u16, DType::u32, DType::i64}) {
    const HostArray x = testing::random_array(dtype, {5, 200}, 22);
    check("prod(x, -1)", {x}, 0);
    check("prod(x, 0)", {x}, 0);
  }
}

TEST_P(Reduction, OfComplexNumbers) {
  const HostArray parts = testing::random_array(DType::f32, {5, 200, 2}, 23);
  HostArray x = HostArray::contiguous(DType::c64, {5, 200});
  x.bytes = parts.bytes;
  check("real(sum(x, -1)), imag(sum(x, -1)), real(mean(x, -1)), imag(mean(x, -1))", {x}, 64);
  check("real(sum(x, 0)), imag(sum(x, 0))", {x}, 64);
  check("any(x != 0.0, -1), count_nonzero(x, -1), all(x, -1)", {x}, 0);
  HostArray few = HostArray::contiguous(DType::c64, {5, 8});
  std::copy_n(parts.bytes.begin(), few.bytes.size(), few.bytes.begin());
  check("real(prod(x, -1)), imag(prod(x, -1))", {few}, 64);
  check("real(prod(x, 0)), imag(prod(x, 0))", {few}, 64);
}

// Whether or not the axes can be merged into one in memory.
TEST_P(Reduction, OfNothingThatLiesAnyhow) {
  for (const Dims& strides : {Dims{5, 5, 1}, Dims{1, 1, 2}, Dims{7, 40, 1}, Dims{30, 1, 6}}) {
    const HostArray x = HostArray::strided(DType::f32, {3, 0, 5}, strides);
    check("sum(x, 1, 2), max(x, 1, 2), all(x > 0, 1, 2)", {x}, 0);
    check("sum(x), prod(x)", {x}, 0);
    check("x + sum(x, -1)", {x}, 0);
    check("any(x > 0, 1)", {x}, 0);
  }
}

TEST_P(Reduction, OfRowsOfEveryLength) {
  testing::Share share(GetParam(), 7);
  for (const std::int64_t length :
       {1, 2, 3, 31, 64, 127, 256, 1000, 1024, 4096, 12289, 20001, 32768, 40000, 70001}) {
    if (!share.next()) continue;
    const std::int64_t rows = length < 100 ? 77 : 3;
    check("sum(x, -1), max(x, -1), argmin(x, -1)",
          {testing::random_array(DType::f32, {rows, length}, 3)}, 64);
    check("x - mean(x, -1)", {testing::random_array(DType::bf16, {rows, length}, 4)}, 64);
  }
}

TEST_P(Reduction, OfRowsThatBeginAnywhere) {
  testing::Share share(GetParam(), 9);
  for (const std::int64_t length : {130, 1001, 5003, 70001}) {
    for (const std::int64_t start : {0, 1, 5}) {
      if (!share.next()) continue;
      HostArray x = testing::random_array(DType::bf16, {5, length + start}, 28);
      x.shape = {5, length};
      x.strides = {length + start, 1};
      x.first = start * 2;
      const HostArray w = testing::random_array(DType::f32, {length}, 29);
      check("argmax(x, -1), argmin(x, -1), sum(x, -1), x * max(x, -1) * w", {x, w}, 64);
    }
  }
}

TEST_P(Reduction, OfAnyAxes) {
  testing::Share share(GetParam(), 7);
  const HostArray x = testing::random_array(DType::f32, {4, 6, 5, 8}, 5);
  for (const char* axes :
       {"0", "1", "2", "-1", "0, 1", "1, 3", "0, 2, 3", "-1, -3", "0, 1, 2, 3"}) {
    if (!share.next()) continue;
    check(fmt::format("sum(x, {0}), argmax(x, {0}), x * max(x, {0})", axes), {x}, 64);
  }
  check("sum(x)", {x}, 64);
}

TEST_P(Reduction, OfColumns) {
  testing::Share share(GetParam(), 3);
  for (const Dims& shape : {Dims{2, 2}, {3, 1000}, {1000, 3}, {777, 130}, {5000, 64}}) {
    if (!share.next()) continue;
    check("sum(x, 0), max(x, 0), argmin(x, 0), mean(x * x, 0)",
          {testing::random_array(DType::f32, shape, 20)}, 64);
    check("y = x - mean(x, 0); y * rsqrt(mean(y * y, 0) + 1.0) * w + b",
          {testing::random_array(DType::bf16, shape, 21),
           testing::random_array(DType::bf16, {1, shape[1]}, 22),
           testing::random_array(DType::f32, {shape[0], 1}, 23)},
          64);
  }
  const HostArray x = testing::random_array(DType::f16, {6, 40, 5, 8}, 24);
  check("softmax(x, 1)", {x}, 32);
  check("sum(x * g, -2), argmax(x, -2)", {x, testing::random_array(DType::f32, {6, 40, 5, 1}, 25)},
        64);
  check("sum(x, 0, 2), argmax(x, 0, 2), x - max(x, 0, 2)", {x}, 64);
  check("count_nonzero(x, 1), any(x > 5, 1), prod(x, 1)",
        {testing::random_array(DType::i8, {3, 70, 40}, 26)}, 0);
  check("sum(x, 0), argmax(x, 0)", {testing::random_array(DType::f64, {90, 33}, 27)}, 64);
}

TEST_P(Reduction, OfStridedAndBroadcastOperands) {
  HostArray transposed = testing::random_array(DType::f32, {40, 30}, 6);
  transposed.shape = {30, 40};
  transposed.strides = {1, 30};
  check("x - max(x, -1)", {transposed}, 8);
  HostArray repeated = testing::random_array(DType::f32, {1, 40}, 7);
  repeated.shape = {9, 40};
  repeated.strides = {0, 1};
  check("sum(x, -1), sum(x * 2.0, -1)", {repeated}, 64);
  HostArray backwards = testing::random_array(DType::f32, {6, 64}, 8);
  backwards.first = (6 * 64 - 1) * 4;
  backwards.strides = {-64, -1};
  const HostArray weight = testing::random_array(DType::f32, {64}, 9);
  const HostArray bias = testing::random_array(DType::f32, {6, 1}, 10);
  check("w * x / sum(abs(x) + 0.5, -1) + b", {weight, backwards, bias}, 64);
}

TEST_P(Reduction, NormsAndSoftmax) {
  testing::Share share(GetParam(), 3);
  for (const std::int64_t length : {64, 172, 4096}) {
    if (!share.next()) continue;
    const HostArray x = testing::random_array(DType::bf16, {6, length}, 11);
    const HostArray w = testing::random_array(DType::bf16, {length}, 12);
    const HostArray b = testing::random_array(DType::f32, {length}, 13);
    check("x * rsqrt(mean(x * x, -1) + 1e-5) * w", {x, w}, 16);
    check("rms_norm(x, w, 1e-5)", {x, w}, 16);
    check("layer_norm(x, w, b, 1e-5)", {x, w, b}, 64);
    check("softmax(x, -1), logsumexp(x, -1)", {x}, 32);
    check("log_softmax(x, -1)", {testing::random_array(DType::f32, {6, length}, 14)}, 64);
  }
}

// Rows of a block begin alike within vectors, and share weights that lie in memory as theirs do;
// the last blocks have fewer rows, or none.
TEST_P(Reduction, RowsThatBeginWithinVectorsShareWeights) {
  testing::Share share(GetParam(), 11);
  for (const std::int64_t rows : {1, 7, 75, 130}) {
    for (const std::int64_t length : {300, 501, 1001}) {
      for (const DType dtype : {DType::bf16, DType::f32}) {
        if (!share.next()) continue;
        const HostArray x = testing::random_array(dtype, {rows, length}, 24);
        const HostArray w = testing::random_array(dtype, {length}, 25);
        const HostArray b = testing::random_array(dtype, {length}, 26);
        check("layer_norm(x, w, b, 1e-5)", {x, w, b}, 64);
        check("x * rsqrt(mean(x * x, -1) + 1e-5) * w, max(x, -1)", {x, w}, 16);
      }
    }
  }
}

// A difference or a square of small integers would wrap: they are floats before.
TEST_P(Reduction, NormsAndSoftmaxOfIntegers) {
  for (const DType dtype : {DType::u8, DType::i8, DType::i16, DType::u32}) {
    HostArray x = testing::random_array(dtype, {3, 6}, 32);
    testing::set_bits(x, 0, 0);
    testing::set_bits(x, 1, 127);
    testing::set_bits(x, 2, static_cast<std::uint64_t>(-100) & ((1ull << bits(dtype)) - 1));
    const auto run = [&](const std::string& argument) {
      std::vector<HostArray> got(3, HostArray::contiguous(DType::f32, x.shape));
      testing::run_on(device(),
                      parse("of_integers", fmt::format("softmax({0}, -1), log_softmax({0}, -1), "
                                                       "rms_norm({0}, 1e-5)",
                                                       argument)),
                      {x}, got);
      return got;
    };
    const std::vector<HostArray> got = run("x");
    const std::vector<HostArray> want = run("f32(x)");
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].bytes, want[i].bytes) << i;
  }
}

// Shared memory has all of such rows on some GPUs, and registers the weights that come next.
TEST_P(Reduction, LongRowsWithTwoWeights) {
  testing::Share share(GetParam(), 5);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t length : {28680, 32768}) {
      if (!share.next()) continue;
      const HostArray x = testing::random_array(dtype, {5, length}, 21);
      const HostArray w = testing::random_array(dtype, {length}, 22);
      const HostArray b = testing::random_array(dtype, {length}, 23);
      check("layer_norm(x, w, b, 1e-5)", {x, w, b}, 64);
      check("x * rsqrt(mean(x * x, -1) + 1e-5) * w + b, max(x, -1)", {x, w, b}, 64);
    }
  }
}

// In 16 bits they are powers of two of one product, whose scale depends on the largest element.
TEST_P(Reduction, ExponentialsBelowTheLargest) {
  testing::Share share(GetParam(), 5);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t length : {64, 100, 512, 4096}) {
      if (!share.next()) continue;
      const HostArray x = testing::random_array(dtype, {5, length}, 31);
      const double most = dtype == DType::f16 ? 6e4 : 3e38;
      for (const double offset : {0.0, 30.0, -1000.0, 5e4, -1e36, 1e37, -3e38}) {
        if (std::fabs(offset) > most) continue;
        HostArray moved = x;
        for (std::int64_t i = 0; i < x.size(); ++i) {
          const double number = testing::number_at(x, i) + offset;
          testing::set_bits(moved, i, fusion::encode(number, dtype));
        }
        check("logsumexp(x, -1)", {moved}, 8);
        check("log_softmax(x, -1), log(sum(exp(x - max(x, -1)), -1))", {moved}, 16);
      }
      HostArray special = x;
      const double first[] = {INFINITY, -INFINITY, std::nan(""), most, -most};
      for (std::int64_t row = 0; row < 5; ++row) {
        testing::set_bits(special, row * length + 7, fusion::encode(first[row], dtype));
      }
      for (std::int64_t i = length; i < 2 * length; ++i) {
        testing::set_bits(special, i, fusion::encode(-INFINITY, dtype));
      }
      check("logsumexp(x, -1), log(sum(exp(x - max(x, -1)), -1))", {special}, 8);
    }
  }
}

// Three passes: the mean, the variance, the sum of what is normalised.
TEST_P(Reduction, SeveralPassesOverOneRow) {
  check("y = layer_norm(x, 1e-5); y / (1.0 + sum(abs(y), -1)), max(y, -1)",
        {testing::random_array(DType::f32, {5, 999}, 15)}, 64);
}

TEST_P(Reduction, RoundsAfterEachOperationWhereAsked) {
  Options each;
  each.rounding = Rounding::each;
  check("max(x * 1.1, -1), x - max(x * 1.1, -1)", {testing::random_array(DType::bf16, {5, 77}, 16)},
        0, each);
}

// The first of equal values, wherever vectors of lanes end; every NaN is equal, and so are zeros.
TEST_P(Reduction, PositionsAmongEqualValues) {
  testing::Share share(GetParam(), 9);
  const double special[] = {std::nan(""), -std::nan(""), INFINITY, -INFINITY, 0.0, -0.0};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i8}) {
    for (const std::int64_t length : {1, 7, 17, 33, 96, 128, 129, 256, 257, 1000}) {
      if (!share.next()) continue;
      // Of each row only the last values of the list are drawn: the first rows have NaN, the last
      // one has zeros alone.
      HostArray x = HostArray::contiguous(dtype, {6, length});
      const HostArray drawn = testing::random_array(DType::f32, {6, length}, 31);
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const std::int64_t first = std::min<std::int64_t>(i / length, 4);
        const auto number =
            static_cast<std::int64_t>(std::abs(testing::number_at(drawn, i)) * 1000);
        const double value = special[first + number % (6 - first)];
        const std::uint64_t whole = (number % 3 + 127) % 256;  // 127, -128, -127
        testing::set_bits(x, i, dtype == DType::i8 ? whole : fusion::encode(value, dtype));
      }
      SCOPED_TRACE(fmt::format("{} elements", length));
      check("argmax(x, -1), argmin(x, -1)", {x}, 0);
      check("argmax(x, -2), argmin(x, -2)", {x}, 0);
    }
  }
}

TEST_P(Reduction, SpecialValues) {
  HostArray x = HostArray::contiguous(DType::f32, {6, 4});
  const double nan = std::nan("");
  const double inf = INFINITY;
  const double rows[6][4] = {{1, nan, 3, nan},  {-0.0, 0.0, -0.0, 0.0}, {-inf, -inf, -inf, -inf},
                             {inf, 1, -inf, 2}, {5, 7, 7, 5},           {inf, inf, 1, 1}};
  for (std::int64_t i = 0; i < 24; ++i) {
    testing::set_bits(x, i, fusion::encode(rows[i / 4][i % 4], DType::f32));
  }
  check("max(x, -1), min(x, -1), argmax(x, -1), argmin(x, -1), sum(x, -1), logsumexp(x, -1)", {x},
        8);
  // The sign of zero, which comparing numbers does not see.
  std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {6, 1}),
                                HostArray::contiguous(DType::f32, {6, 1})};
  testing::run_on(device(), parse("zeros", "max(x, -1), min(x, -1)"), {x}, got);
  EXPECT_EQ(testing::get_bits(got[0], 1), 0u);
  EXPECT_EQ(testing::get_bits(got[1], 1), 0x80000000u);
}

TEST_P(Reduction, OfNothing) {
  std::vector<HostArray> got;
  for (int i = 0; i < 4; ++i) got.push_back(HostArray::contiguous(DType::f32, {3, 1}));
  testing::run_on(device(), parse("nothing", "sum(x, -1), prod(x, -1), max(x, -1), mean(x, -1)"),
                  {HostArray::contiguous(DType::f32, {3, 0})}, got);
  EXPECT_EQ(testing::number_at(got[0], 2), 0);
  EXPECT_EQ(testing::number_at(got[1], 2), 1);
  EXPECT_EQ(testing::number_at(got[2], 2), -INFINITY);
  EXPECT_TRUE(std::isnan(testing::number_at(got[3], 2)));
  std::vector<HostArray> none = {HostArray::contiguous(DType::f32, {0, 1})};
  testing::run_on(device(), parse("nothing", "sum(x, -1)"),
                  {HostArray::contiguous(DType::f32, {0, 5})}, none);
}

// The bound of preamble/reduce.h, on numbers that all round the same way: 256 lanes or more.
TEST_P(Reduction, ErrorsOfLongSumsStayBounded) {
  constexpr std::int64_t kLength = 1 << 20;
  HostArray x = HostArray::contiguous(DType::f32, {1, kLength});
  for (std::int64_t i = 0; i < kLength; ++i)
    testing::set_bits(x, i, fusion::encode(0.1, DType::f32));
  std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {1, 1})};
  testing::run_on(device(), parse("long", "sum(x, -1)"), {x}, got);
  const double exact = kLength * static_cast<double>(0.1f);
  EXPECT_NEAR(testing::number_at(got[0], 0), exact, exact * 160 * std::ldexp(1.0, -24));
}

TEST_P(Reduction, InPlaceAndWithoutTheReducedAxis) {
  const HostArray x = testing::random_array(DType::f32, {7, 300}, 17);
  const std::vector<HostArray> want = testing::reference_of("softmax(x, -1)", {x});
  jit::Backend& backend = jit::backend(device());
  const Stream stream{device(), nullptr};
  const testing::DeviceBuffer memory(backend, x.bytes);
  const View view(memory.data(), DType::f32, x.shape, device());
  parse("softmax", "softmax(x, -1)")(stream, {view}, {view});
  HostArray got = x;
  got.bytes = memory.read();
  testing::expect_close(got, want[0], 1e-6, 0, "softmax in place");

  const testing::DeviceBuffer sums(backend, std::vector<std::byte>(7 * 4));
  parse("sum", "sum(x, 1)")(stream, {view}, {View(sums.data(), DType::f32, {7}, device())});
  HostArray ones = HostArray::contiguous(DType::f32, {7});
  ones.bytes = sums.read();
  for (std::int64_t i = 0; i < 7; ++i) EXPECT_NEAR(testing::number_at(ones, i), 1, 1e-5);
  EXPECT_THROW(
      parse("sum", "sum(x, 1)")(stream, {view}, {View(sums.data(), DType::f32, {3}, device())}),
      Error);
}

// What is stored takes the place of what it is computed from, of which the CPU's parts of a row
// read some elements twice.
TEST_P(Reduction, AddsUpWhatItStoresInPlace) {
  const std::string text = "y = exp(x); y, sum(y, -1), max(y, -1)";
  jit::Backend& backend = jit::backend(device());
  const Stream stream{device(), nullptr};
  for (const std::int64_t length : {7, 9, 17, 24, 31, 33, 45, 63, 65, 300, 1000}) {
    const HostArray x = testing::random_array(DType::f32, {3, length}, 18);
    const std::vector<HostArray> want = testing::reference_of(text, {x});
    const testing::DeviceBuffer memory(backend, x.bytes);
    const testing::DeviceBuffer sums(backend, std::vector<std::byte>(3 * 4));
    const testing::DeviceBuffer largest(backend, std::vector<std::byte>(3 * 4));
    const View view(memory.data(), DType::f32, x.shape, device());
    parse("sums", text)(stream, {view},
                        {view, View(sums.data(), DType::f32, {3, 1}, device()),
                         View(largest.data(), DType::f32, {3, 1}, device())});
    std::vector<HostArray> got(3, HostArray::contiguous(DType::f32, {3, 1}));
    got[0] = x;
    got[0].bytes = memory.read();
    got[1].bytes = sums.read();
    got[2].bytes = largest.read();
    for (std::size_t i = 0; i < 3; ++i) {
      testing::expect_close(got[i], want[i], 1e-5, 0, fmt::format("{} of {}", i, length));
    }
  }
}

TEST_P(Reduction, IsTheSameInCppAndInText) {
  const Function traced =
      fuse("rmsnorm", [](Value x, Value w) { return x * rsqrt(mean(x * x, -1) + 1e-5) * w; });
  EXPECT_EQ(traced.expression(),
            parse("rmsnorm", "in0 * rsqrt(mean(in0 * in0, -1) + 1e-5) * in1").expression());
  EXPECT_EQ(fuse("f", [](Value x) { return sum(x, {0, -1}); }).expression(), "sum(in0, 0, -1)");
  EXPECT_EQ(fuse("f", [](Value x) { return max(x); }).expression(), "max(in0)");
}

TEST(ReductionErrors, NameWhatDoesNotFit) {
  const auto message = [](const std::string& text, const std::vector<HostArray>& inputs) {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {4, 1})};
    try {
      testing::run_on({}, parse("f", text), inputs, outputs);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const HostArray x = HostArray::contiguous(DType::f32, {4, 4});
  EXPECT_NE(message("sum(x, 2)", {x}).find("expected one of an array with 2 axes, got 2"),
            std::string::npos);
  EXPECT_NE(message("sum(x, 0) + sum(x, 1)", {x}).find("reduce different axes"), std::string::npos);
  EXPECT_NE(message("argmax(x, 1)", {HostArray::contiguous(DType::f32, {4, 0})})
                .find("nothing to choose"),
            std::string::npos);
  EXPECT_NE(message("max(-(x > 0), 1)", {x}).find("- (neg): expected numbers, got bool"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
