// The error of every unary function: on all 65,536 inputs of the 16-bit types, over a stride of all
// f32 and over random f64. What is found must be within the op table's bounds, and near them.
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <string>

#include "tests/preamble/functions.hpp"

namespace kiln::test {
namespace {

using fusion::Op;

template <class T>
long double widened(T x) {
  return fusion::reference::decode(kDTypeOf<T>, to_pattern(x)).real;
}

// The error of a 16-bit result, computed in f32 from a 16-bit input, stored once.
template <class T>
Errors stored_errors(Op op, f32 (*function)(f32)) {
  Errors errors;
  for (std::uint64_t code = 0; code < 65536; ++code) {
    const T x = from_pattern<T>(code);
    const long double operand[] = {widened(x)};
    const long double exact = exact_value(op, kDTypeOf<T>, operand);
    const long double stored = widened(to<T>(function(to<f32>(x))));
    errors.add(counted_error(op, stored, exact, operand, kDTypeOf<T>), operand[0]);
  }
  return errors;
}

template <class T>
class SixteenBits : public ::testing::Test {};
using SixteenBitTypes = ::testing::Types<f16, bf16>;
TYPED_TEST_SUITE(SixteenBits, SixteenBitTypes, TypeName);

TYPED_TEST(SixteenBits, EveryInputOfEveryFunctionIsStoredWithin51HundredthsOfAnUlp) {
  for (const UnaryFunction<f32>& function : unary_functions<f32>()) {
    const std::string op(info(function.op).name);
    for (const auto f : {function.standard, function.narrow, function.strict}) {
      const Errors errors = stored_errors<TypeParam>(function.op, f);
      EXPECT_LE(errors.largest, fusion::kStorageBound)
          << op << " of " << static_cast<double>(errors.at);
      if (f != function.standard) continue;
      std::printf("%-10s %-5s %.4f ULP, %.4f %% misrounded\n", op.c_str(),
                  std::string(name(kDTypeOf<TypeParam>)).c_str(), errors.largest, errors.share());
    }
  }
}

// Inputs in which a sweep of every 97th f32 found the largest errors: exp (and of what is not
// positive), exp2, expm1, log, log1p (and of fractions), tanh, sigmoid, erf, rsqrt, sin, tan, erfc.
constexpr f32 kWorstCases[] = {-0x1.458c6ep+6f,  -0x1.df6e9ep+5f, 0x1.40880ep+1f,  0x1.8ca916p-2f,
                               0x1.68fa0ap-1f,   0x1.9d7428p-2f,  0x1.f3cc84p-1f,  -0x1.f8819p-5f,
                               -0x1.b7fa08p+1f,  0x1.1e05dap+0f,  0x1.019566p-38f, 0x1.2ab152p+8f,
                               0x1.c8b74ap+116f, 0x1.b40608p-19f};

template <class Function>
Errors errors_over(Op op, Function function, std::uint64_t stride) {
  Errors errors;
  const auto try_one = [&](f32 x) {
    const long double operand[] = {x};
    const long double exact = exact_value(op, DType::f32, operand);
    errors.add(counted_error(op, function(x), exact, operand, DType::f32), x);
  };
  for (std::uint64_t p = 0; p < std::uint64_t{1} << 32; p += stride) try_one(from_pattern<f32>(p));
  for (const std::uint64_t p : patterns(32, 0)) try_one(from_pattern<f32>(p));
  for (const f32 x : kWorstCases) try_one(x);
  return errors;
}

// What takes an operation's place where emit knows that its operand is between two numbers.
struct Part {
  Op op;
  f32 (*function)(f32);
  f32 least, most;
};
constexpr f32 kInfinity = std::numeric_limits<f32>::infinity();
const Part kParts[] = {
    {Op::exp, [](f32 x) -> f32 { return exp_not_positive(x); }, -kInfinity, 0},
    {Op::log1p, [](f32 x) -> f32 { return log1p_of_fraction(x); }, 0, 1},
};

// Of the operation by whichever method is worse.
Errors errors_of_all_methods(const UnaryFunction<f32>& function, std::uint64_t stride) {
  Errors errors = errors_over(function.op, function.standard, stride);
  for (const Part& part : kParts) {
    if (part.op != function.op) continue;
    const auto method = [&](f32 x) {
      return x < part.least || x > part.most ? function.standard(x) : part.function(x);
    };
    const Errors others = errors_over(function.op, method, stride);
    if (others.largest > errors.largest) errors = others;
  }
  return errors;
}

void print(const fusion::OpInfo& op, const char* what, const Errors& errors) {
  std::printf("%-10s %-10s %.4f ULP, %.4f %% misrounded\n", std::string(op.name).c_str(), what,
              errors.largest, errors.share());
}

TEST(Unary, F32IsWithinTheTablesBoundAndTheBoundIsNotLoose) {
  for (const UnaryFunction<f32>& function : unary_functions<f32>()) {
    const fusion::OpInfo& op = info(function.op);
    const Errors errors = errors_of_all_methods(function, 20011);
    print(op, "f32", errors);
    EXPECT_LE(errors.largest, op.f32.own) << op.name << " of " << static_cast<double>(errors.at);
    expect_not_loose(op, op.f32.own, errors.largest);
  }
}

TEST(Unary, StrictF32IsWithinTheTablesBoundAndTheBoundIsNotLoose) {
  for (const UnaryFunction<f32>& function : unary_functions<f32>()) {
    const fusion::OpInfo& op = info(function.op);
    const Errors errors = errors_over(function.op, function.strict, 20011);
    print(op, "f32 strict", errors);
    EXPECT_LE(errors.largest, op.f32.libm) << op.name << " of " << static_cast<double>(errors.at);
    if (is_library_of_the_table()) expect_not_loose(op, op.f32.libm, errors.largest);
  }
}

TEST(Unary, F64IsWithinTheTablesBoundAndTheBoundIsNotLoose) {
  for (const UnaryFunction<f64>& function : unary_functions<f64>()) {
    const fusion::OpInfo& op = info(function.op);
    Errors errors;
    const auto try_one = [&](f64 x) {
      const long double operand[] = {x};
      const long double exact = exact_value(op.op, DType::f64, operand);
      errors.add(counted_error(op.op, function.standard(x), exact, operand, DType::f64), x);
    };
    for (const std::uint64_t p : patterns(64, 50000)) try_one(from_pattern<f64>(p));
    for (int i = -20000; i <= 20000; ++i) {
      try_one(std::ldexp(i * 1.0000001, -13));
      try_one(i * 0.0100123);
    }
    print(op, "f64", errors);
    EXPECT_LE(errors.largest, op.f64.libm) << op.name << " of " << static_cast<double>(errors.at);
    if (is_library_of_the_table()) expect_not_loose(op, op.f64.libm, errors.largest);
  }
}

}  // namespace
}  // namespace kiln::test
