// Counting and random numbers: the same for every layout, device and way of writing them, equal to
// the reference, and fit for a dropout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fusion/reference/bound.hpp"
#include "kiln/error.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/reference.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::TestInput;

using RandomOnDevice = testing::OnDevice;

float value_at(const HostArray& array, std::int64_t n) {
  return std::bit_cast<float>(
      static_cast<std::uint32_t>(testing::get_bits(array, testing::place_of(array, n))));
}

// Every layout of a shape: in C order, padded, permuted, backwards, every other element.
std::vector<HostArray> layouts(DType dtype) {
  const Dims shape = {5, 7, 33};
  return {HostArray::contiguous(dtype, shape),
          HostArray::strided(dtype, shape, {7 * 40, 40, 1}, 3),
          HostArray::strided(dtype, shape, {1, 33 * 5, 5}),
          HostArray::strided(dtype, shape, {7 * 33, -33, 1}),
          HostArray::strided(dtype, shape, {7 * 33, 33, -1}),
          HostArray::strided(dtype, shape, {-7 * 33 * 2, -33 * 2, -2}),
          HostArray::strided(dtype, shape, {33, 5 * 33, 1})};
}

TEST_P(RandomOnDevice, CountsAreThoseOfTheReferenceForEveryLayout) {
  const Function function = parse(
      "counts", "iota(0) * 10000 + iota(1) * 100 + iota(-1), iota(), i32(f64(iota(i64)) * 2)");
  for (const HostArray& layout : layouts(DType::i32)) {
    std::vector<HostArray> outputs(3, layout);
    std::vector<HostArray> expected(3, layout);
    testing::run_on(device(), function, std::vector<TestInput>{}, outputs);
    testing::run_on_reference(function, {}, expected);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(outputs[i].bytes == expected[i].bytes) << "output " << i;
    }
  }
}

TEST_P(RandomOnDevice, NumbersDoNotDependOnTheLayout) {
  const Function function = parse("random", "uniform(seed, offset), normal(seed, offset)");
  const std::vector<TestInput> inputs = {Scalar(0x123456789abcdefll), Scalar(77)};
  std::vector<HostArray> plain(2, layouts(DType::f32).front());
  testing::run_on(device(), function, inputs, plain);
  for (const HostArray& layout : layouts(DType::f32)) {
    std::vector<HostArray> outputs(2, layout);
    testing::run_on(device(), function, inputs, outputs);
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::int64_t n = 0; n < layout.size(); ++n) {
        ASSERT_EQ(value_at(outputs[i], n), value_at(plain[i], n)) << "output " << i << ", " << n;
      }
    }
  }
}

TEST_P(RandomOnDevice, NumbersAreThoseOfTheReference) {
  const Function function = parse("random", "uniform(seed, offset), normal(seed, offset)");
  const std::vector<TestInput> inputs = {Scalar(42), Scalar(3)};
  std::vector<HostArray> outputs(2, HostArray::contiguous(DType::f32, {100, 1000}));
  std::vector<HostArray> exact(2, HostArray::contiguous(DType::f64, {100, 1000}));
  testing::run_on(device(), function, inputs, outputs);
  testing::run_on_reference(function, inputs, exact);
  const double bound = fusion::info(fusion::Op::normal).f32.own;
  double largest = 0;
  for (std::int64_t n = 0; n < outputs[0].size(); ++n) {
    const double wanted = std::bit_cast<double>(testing::get_bits(exact[0], n));
    ASSERT_EQ(static_cast<double>(value_at(outputs[0], n)), wanted) << n;
    const double error =
        fusion::ulp_error(static_cast<long double>(value_at(outputs[1], n)),
                          std::bit_cast<double>(testing::get_bits(exact[1], n)), DType::f32);
    ASSERT_LE(error, bound) << n;
    largest = std::max(largest, error);
  }
  EXPECT_GE(largest * 2, bound) << "the op table's bound is too loose";
}

// One hash for all devices, compilers and accuracies: what a seed gives is for ever.
TEST_P(RandomOnDevice, BitsAreTheSameEverywhere) {
  for (const Accuracy accuracy : {Accuracy::storage, Accuracy::fast, Accuracy::strict}) {
    Options options;
    options.accuracy = accuracy;
    const Function function = parse("bits", "uniform(7, 1), normal(7, 1)", options);
    std::vector<HostArray> outputs(2, HostArray::contiguous(DType::f32, {1 << 18}));
    testing::run_on(device(), function, std::vector<TestInput>{}, outputs);
    const auto hash = [](const HostArray& array) {
      std::uint64_t value = 0xcbf29ce484222325u;  // FNV-1a
      for (const std::byte byte : array.bytes) {
        value = (value ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
      }
      return value;
    };
    EXPECT_EQ(fmt::format("{:016x}", hash(outputs[0])), "5b653fdade2db909");
    EXPECT_EQ(fmt::format("{:016x}", hash(outputs[1])), "2eb640846b38eac4");
  }
}

TEST_P(RandomOnDevice, DropoutKeepsAShareAndScalesIt) {
  const Function dropout = parse("dropout", "where(uniform(seed, step) < keep, x / keep, 0)");
  constexpr std::int64_t kCount = 1 << 16;
  HostArray x = HostArray::contiguous(DType::f32, {256, 256});
  for (std::int64_t n = 0; n < kCount; ++n)
    testing::set_bits(x, n, std::bit_cast<std::uint32_t>(3.0f));
  const auto run = [&](int step) {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {256, 256})};
    testing::run_on(device(), dropout, {Scalar(1), Scalar(step), Scalar(0.75), x}, outputs);
    return outputs[0];
  };
  const HostArray first = run(0);
  const HostArray second = run(1);
  int kept = 0;
  int both = 0;
  for (std::int64_t n = 0; n < kCount; ++n) {
    const float value = value_at(first, n);
    ASSERT_TRUE(value == 0.0f || value == 4.0f) << value;
    kept += value != 0 ? 1 : 0;
    both += value != 0 && value_at(second, n) != 0 ? 1 : 0;
  }
  // Six standard deviations of a share; two steps are independent of each other.
  EXPECT_NEAR(kept / double(kCount), 0.75, 6 * std::sqrt(0.75 * 0.25 / kCount));
  EXPECT_NEAR(both / double(kCount), 0.5625, 6 * std::sqrt(0.5625 * 0.4375 / kCount));
  EXPECT_TRUE(run(0).bytes == first.bytes);
}

TEST_P(RandomOnDevice, AnIndexOfOnesOwnGivesOneNumberForEachRow) {
  const Function function = parse("rows", "uniform(1, 0, iota(0))");
  std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {4, 50})};
  testing::run_on(device(), function, std::vector<TestInput>{}, outputs);
  for (std::int64_t n = 0; n < 200; ++n) {
    EXPECT_EQ(value_at(outputs[0], n), value_at(outputs[0], n / 50 * 50));
  }
  EXPECT_NE(value_at(outputs[0], 0), value_at(outputs[0], 50));
}

INSTANTIATE_TEST_SUITE_P(Cpu, RandomOnDevice, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, RandomOnDevice, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST(Counting, ValuesAndTextAreTheSameFunction) {
  const Function traced = fuse("f", [](Value seed) {
    return where(uniform(seed, 0) < 0.5, cast(iota(-1, DType::i64), DType::f32),
                 normal(seed, 1, iota(0)) + iota(DType::f32));
  });
  const std::string text = traced.expression();
  EXPECT_EQ(
      text,
      "where(uniform(in0, 0) < 0.5, f32(iota(-1, i64)), normal(in0, 1, iota(0)) + iota(f32))");
  EXPECT_EQ(parse("f", text).expression(), text);
}

std::string error_of(const std::string& text, const Dims& shape, std::vector<TestInput> inputs) {
  try {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, shape)};
    testing::run_on(Device{}, parse("f", text), inputs, outputs);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Counting, SaysWhatIsWrong) {
  const auto contains = [](const std::string& message, std::string_view part) {
    return message.find(part) != std::string::npos;
  };
  std::string message = error_of("f32(iota(2))", {3, 4}, {});
  EXPECT_TRUE(contains(message, "iota(2): expected an axis of the outputs' shape [3,4]"))
      << message;
  message = error_of("f32(iota(0, u8))", {300}, {});
  EXPECT_TRUE(contains(message, "iota(0) counts to 299, which u8 cannot hold")) << message;
  message = error_of("f32(iota(0, bool))", {300}, {});
  EXPECT_TRUE(contains(message, "got bool")) << message;
  message = error_of("f32(iota(x))", {300}, {});
  EXPECT_TRUE(contains(message, "iota takes the number of an axis and a dtype")) << message;
  message = error_of("uniform(s, 0)", {300}, {Scalar(0.5)});
  EXPECT_TRUE(contains(message, "uniform: expected integers")) << message;
  EXPECT_THROW(iota(0), Error);
}

}  // namespace
}  // namespace kiln
