// Integer operations against the reference's: all pairs of 8-bit values, and pairs of boundaries
// and random values for the wider types.
#include <gtest/gtest.h>

#include <string>

#include "fusion/graph/op.hpp"
#include "fusion/reference/operation.hpp"
#include "tests/preamble/host_preamble.hpp"

namespace kiln::test {
namespace {

using fusion::Op;
namespace reference = fusion::reference;

template <class T>
class Integers : public ::testing::Test {};
using IntegerTypes = ::testing::Types<u8, u16, u32, u64, i8, i16, i32, i64>;
TYPED_TEST_SUITE(Integers, IntegerTypes, TypeName);

template <class T>
std::vector<T> operands(int random) {
  std::vector<T> values;
  const std::vector<std::uint64_t> all = patterns(int(sizeof(T)) * 8, random);
  const std::size_t step = sizeof(T) == 1 ? 1 : all.size() / 300 + 1;
  for (std::size_t i = 0; i < all.size(); i += step) values.push_back(from_pattern<T>(all[i]));
  for (const int small : {0, 1, 2, 3, 7, 31, 32, 63, 64, -1, -2, -3, -64})
    values.push_back(static_cast<T>(small));
  values.push_back(std::numeric_limits<T>::min());
  values.push_back(std::numeric_limits<T>::max());
  return values;
}

template <class T>
T expected(Op op, DType result, std::initializer_list<T> operands) {
  fusion::TypedNode node;
  node.op = op;
  node.dtype = result;
  node.arity = static_cast<std::uint8_t>(operands.size());
  std::vector<reference::Value> values;
  for (const T x : operands) values.push_back(reference::decode(kDTypeOf<T>, to_pattern(x)));
  return from_pattern<T>(reference::encode(reference::operate(node, values, Rounding::once)));
}

#define KILN_EXPECT_UNARY(op) \
  ASSERT_EQ(kiln::op(a), expected(Op::op, kDTypeOf<T>, {a})) << #op << " " << +a
#define KILN_EXPECT_BINARY(op) \
  ASSERT_EQ(kiln::op(a, b), expected(Op::op, kDTypeOf<T>, {a, b})) << #op << " " << +a << " " << +b
#define KILN_EXPECT_COMPARE(op)                                                 \
  ASSERT_EQ(T(kiln::op(a, b)), expected(Op::op, DType::boolean, {a, b}) & T(1)) \
      << #op << " " << +a << " " << +b

TYPED_TEST(Integers, UnaryOpsAreTheReferences) {
  using T = TypeParam;
  for (const T a : operands<T>(20000)) {
    KILN_EXPECT_UNARY(abs);
    KILN_EXPECT_UNARY(neg);
    KILN_EXPECT_UNARY(sign);
    KILN_EXPECT_UNARY(square);
    KILN_EXPECT_UNARY(bitwise_not);
    KILN_EXPECT_UNARY(popcount);
    KILN_EXPECT_UNARY(clz);
    KILN_EXPECT_UNARY(floor);
    KILN_EXPECT_UNARY(round);
    KILN_EXPECT_UNARY(conj);
    KILN_EXPECT_UNARY(imag);
  }
}

TYPED_TEST(Integers, BinaryOpsAreTheReferences) {
  using T = TypeParam;
  const std::vector<T> values = operands<T>(100);
  for (const T a : values) {
    for (const T b : values) {
      KILN_EXPECT_BINARY(add);
      KILN_EXPECT_BINARY(sub);
      KILN_EXPECT_BINARY(mul);
      KILN_EXPECT_BINARY(floor_divide);
      KILN_EXPECT_BINARY(remainder);
      KILN_EXPECT_BINARY(fmod);
      KILN_EXPECT_BINARY(power);
      KILN_EXPECT_BINARY(maximum);
      KILN_EXPECT_BINARY(minimum);
      KILN_EXPECT_BINARY(fmax);
      KILN_EXPECT_BINARY(fmin);
      KILN_EXPECT_BINARY(bitwise_and);
      KILN_EXPECT_BINARY(bitwise_or);
      KILN_EXPECT_BINARY(bitwise_xor);
      KILN_EXPECT_BINARY(left_shift);
      KILN_EXPECT_BINARY(right_shift);
      KILN_EXPECT_COMPARE(equal);
      KILN_EXPECT_COMPARE(not_equal);
      KILN_EXPECT_COMPARE(less);
      KILN_EXPECT_COMPARE(less_equal);
      KILN_EXPECT_COMPARE(greater);
      KILN_EXPECT_COMPARE(greater_equal);
    }
  }
}

// The rows of the table "Defined where others are silent".
TEST(Integer, DivisionByZeroAndOfTheSmallestIsDefined) {
  constexpr i32 kMin = std::numeric_limits<i32>::min();
  EXPECT_EQ(kiln::floor_divide(7, 0), 0);
  EXPECT_EQ(kiln::remainder(7, 0), 7);
  EXPECT_EQ(kiln::floor_divide(kMin, -1), kMin);
  EXPECT_EQ(kiln::remainder(kMin, -1), 0);
  EXPECT_EQ(kiln::floor_divide(-7, 2), -4);
  EXPECT_EQ(kiln::remainder(-7, 2), 1);
  EXPECT_EQ(kiln::remainder(7, -2), -1);
  EXPECT_EQ(kiln::fmod(-7, 2), -1);
}

TEST(Integer, PowersAndShiftsAreDefinedEverywhere) {
  EXPECT_EQ(kiln::power(0, 0), 1);
  EXPECT_EQ(kiln::power(3, -1), 0);
  EXPECT_EQ(kiln::power(-1, -3), -1);
  EXPECT_EQ(kiln::power(-1, -4), 1);
  EXPECT_EQ(kiln::power(1, -5), 1);
  EXPECT_EQ(kiln::power(2, 32), 0);
  EXPECT_EQ(kiln::left_shift(1, 32), 0);
  EXPECT_EQ(kiln::left_shift(1, -1), 0);
  EXPECT_EQ(kiln::right_shift(-8, 40), -1);
  EXPECT_EQ(kiln::right_shift(8, -1), 0);
  EXPECT_EQ(kiln::right_shift(u8{255}, u8{8}), 0);
  EXPECT_EQ(kiln::left_shift(i64{1}, i8{63}), std::numeric_limits<i64>::min());
}

TEST(Boolean, BitwiseAndLogicalOpsAreOnOneBit) {
  for (const bool a : {false, true}) {
    EXPECT_EQ(kiln::bitwise_not(a), !a);
    EXPECT_EQ(kiln::popcount(a), a);
    EXPECT_EQ(kiln::clz(a), !a);
    for (const bool b : {false, true}) {
      EXPECT_EQ(kiln::bitwise_and(a, b), a && b);
      EXPECT_EQ(kiln::bitwise_xor(a, b), a != b);
      EXPECT_EQ(kiln::logical_or(a, b), a || b);
    }
  }
}

}  // namespace
}  // namespace kiln::test
