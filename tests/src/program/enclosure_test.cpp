// What encloses the results of random programs is narrow, and sees a result that is a little off.
#include "tests/src/program/enclosure.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "fusion/infer/infer.hpp"
#include "fusion/text/text.hpp"
#include "tests/support/arrays.hpp"

namespace kiln {
namespace {

using testing::HostArray;

std::vector<testing::Range> range_of(const std::string& text, const std::vector<HostArray>& inputs,
                                     Rounding rounding = Rounding::once) {
  std::vector<fusion::ArgumentType> types;
  std::vector<Dims> shapes;
  for (const HostArray& input : inputs) {
    types.push_back({input.dtype, false, false});
    shapes.push_back(input.shape);
  }
  Options options;
  options.rounding = rounding;
  const fusion::ShapedGraph graph = fusion::shape_graph(
      fusion::infer(fusion::parse(text), types, {}, rounding, "f"), shapes, "f");
  return testing::enclose(graph, inputs, options, DeviceType::cpu)[0];
}

HostArray numbers(DType dtype, const std::vector<double>& values) {
  HostArray array = HostArray::contiguous(dtype, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t pattern =
        is_floating(dtype) ? testing::bits_of(values[i], dtype)
                           : static_cast<std::uint64_t>(static_cast<std::int64_t>(values[i]));
    testing::set_bits(array, static_cast<std::int64_t>(i), pattern);
  }
  return array;
}

TEST(Enclosure, HoldsTheReferenceAndNothingAPartInTenThousandAway) {
  const HostArray x = testing::random_array(DType::f32, {6, 40}, 1);
  for (const char* text : {"softmax(x, -1)", "sin(x) * 2.0 - tanh(x)", "sum(x * x, -1)",
                           "layer_norm(x, 0.01)", "logsumexp(x, 0)", "std(x, -1)",
                           "cumsum(abs(x), 1)[:, ::-1]", "where(x > 0.5, exp(x), x)"}) {
    const std::vector<testing::Range> ranges = range_of(text, {x});
    const HostArray want = testing::reference_of(text, {x})[0];
    testing::Compared compared;
    EXPECT_EQ(testing::outside(ranges, want, compared), "") << text;
    EXPECT_EQ(compared.unknown + compared.wide, 0u) << text;
    EXPECT_EQ(compared.elements, static_cast<std::size_t>(want.size()));
    for (std::int64_t i = 0; i < want.size(); i += 7) {
      HostArray moved = want;
      const double value = testing::number_at(want, i);
      testing::set_bits(moved, i,
                        testing::bits_of(value * 1.0001 + std::copysign(1e-5, value), want.dtype));
      EXPECT_NE(testing::outside(ranges, moved, compared), "") << text << ", element " << i;
    }
  }
}

TEST(Enclosure, IsOneNumberForIntegersAndRoundedArithmetic) {
  const HostArray i = numbers(DType::i8, {100, -3, 7});
  const auto sums = range_of("cumsum(a, 0) + argmax(a, 0)", {i});
  const int expected[] = {100, 97, 104};
  for (std::size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(static_cast<int>(sums[n].low.integer), expected[n]);
    EXPECT_EQ(static_cast<int>(sums[n].high.integer), expected[n]);
  }
  const auto wrapped = range_of("a + a", {i});
  EXPECT_EQ(static_cast<int>(wrapped[0].low.integer), -56);
  const HostArray b = numbers(DType::bf16, {1, 3});
  for (const testing::Range& range : range_of("a / 3.0 + 256.0", {b}, Rounding::each)) {
    EXPECT_EQ(range.low.real, range.high.real);
    EXPECT_FALSE(range.unknown);
  }
}

TEST(Enclosure, SaysWhatCannotBeKnown) {
  const HostArray x = numbers(DType::f32, {0.7});
  EXPECT_TRUE(range_of("1.0 / (sin(x) - sin(x))", {x})[0].unknown) << "zero divides";
  const auto either = range_of("sin(x) > f32(sin(x))", {x});
  EXPECT_EQ(static_cast<int>(either[0].low.integer), 0);
  EXPECT_EQ(static_cast<int>(either[0].high.integer), 1);
  const auto places = range_of("argmax(sin(x) * y, 0)", {x, numbers(DType::f32, {1, 1, 0.5})});
  EXPECT_EQ(static_cast<int>(places[0].low.integer), 0);
  EXPECT_EQ(static_cast<int>(places[0].high.integer), 1);
}

}  // namespace
}  // namespace kiln
