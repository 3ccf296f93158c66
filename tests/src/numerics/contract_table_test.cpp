// What numerics promises where other libraries are silent, as a table of calls and results written
// down by hand: on every device and in the reference interpreter, with both rounding modes and
// every accuracy, for every dtype that a row concerns.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "fusion/graph/number.hpp"
#include "fusion/infer/infer.hpp"
#include "kiln/error.hpp"
#include "tests/src/numerics/contract.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using namespace testing;  // NOLINT: the contract's own

// ---- The table ---------------------------------------------------------------------------------

enum Dtypes : unsigned { signed_ones = 1, unsigned_ones = 2, integers = 3, floats = 4, all = 7 };

struct Row {
  Dtypes dtypes;
  std::string_view call;
  Number x;
  Number y;
  Number result;  ///< an integer wraps to the result's dtype
};

const Row kRows[] = {
    // maximum, minimum: NaN if either is; -0 < +0
    {floats, "maximum(x, y)", kNan, 1, kNan},
    {floats, "maximum(x, y)", 1, kNan, kNan},
    {floats, "maximum(x, y)", -kInf, kNan, kNan},
    {floats, "maximum(x, y)", -0.0, 0, 0},
    {floats, "maximum(x, y)", 0, -0.0, 0},
    {floats, "maximum(x, y)", -0.0, -0.0, -0.0},
    // of numbers that compilers know too: in 16 and 32 bits -1e-300 is -0
    {floats, "copysign(x, maximum(-1e-300, 0)) + 0 * y", 1, 0, 1},
    {floats, "copysign(x, maximum(0, -1e-300)) + 0 * y", 1, 0, 1},
    {floats, "copysign(x, minimum(-1e-300, 0)) + 0 * y", 1, 0, -1},
    {floats, "copysign(x, minimum(0, -1e-300)) + 0 * y", 1, 0, -1},
    {floats, "copysign(x, fmax(-1e-300, 0)) + 0 * y", 1, 0, 1},
    {floats, "copysign(x, fmin(0, -1e-300)) + 0 * y", 1, 0, -1},
    {floats, "copysign(x, clip(-1e-300, 0, 1)) + 0 * y", 1, 0, 1},
    {floats, "minimum(x, y)", kNan, 1, kNan},
    {floats, "minimum(x, y)", 1, kNan, kNan},
    {floats, "minimum(x, y)", kInf, kNan, kNan},
    {floats, "minimum(x, y)", -0.0, 0, -0.0},
    {floats, "minimum(x, y)", 0, -0.0, -0.0},
    {all, "maximum(x, y)", kLowest, kLargest, kLargest},
    {all, "minimum(x, y)", kLargest, kLowest, kLowest},
    // fmax, fmin: the other operand
    {floats, "fmax(x, y)", kNan, 1, 1},
    {floats, "fmax(x, y)", 1, kNan, 1},
    {floats, "fmax(x, y)", kNan, -kInf, -kInf},
    {floats, "fmax(x, y)", kNan, kNan, kNan},
    {floats, "fmin(x, y)", kNan, 1, 1},
    {floats, "fmin(x, y)", 1, kNan, 1},
    {floats, "fmin(x, y)", kInf, kNan, kInf},
    {floats, "fmin(x, y)", kNan, kNan, kNan},
    {all, "fmax(x, y)", 3, 5, 5},
    {all, "fmin(x, y)", 3, 5, 3},
    // a // b: floor of the quotient
    {all, "x // y", 7, 2, 3},
    {floats, "x // y", 7.5, 2, 3},
    {floats, "x // y", -7, 2, -4},
    {floats, "x // y", 7, -2, -4},
    {floats, "x // y", -7.5, -2, 3},
    {floats, "x // y", 1, 0, kInf},
    {floats, "x // y", -1, 0, -kInf},
    {floats, "x // y", 0, 0, kNan},
    {signed_ones, "x // y", -7, 2, -4},
    {signed_ones, "x // y", 7, -2, -4},
    {signed_ones, "x // y", -7, -2, 3},
    {signed_ones, "x // y", kLowest, -1, kLowest},
    {integers, "x // y", 7, 0, 0},
    {integers, "x // y", kLargest, 0, 0},
    {integers, "x // y", kLowest, 0, 0},
    // a % b: the sign of the divisor
    {all, "x % y", 7, 2, 1},
    {floats, "x % y", -7, 2, 1},
    {floats, "x % y", 7, -2, -1},
    {floats, "x % y", -7, -2, -1},
    {floats, "x % y", -6, 2, 0},
    {floats, "x % y", 6, -2, -0.0},
    {floats, "x % y", 5.5, 2, 1.5},
    {floats, "x % y", 1, 0, kNan},
    {signed_ones, "x % y", -7, 2, 1},
    {signed_ones, "x % y", 7, -2, -1},
    {signed_ones, "x % y", kLowest, -1, 0},
    {integers, "x % y", 7, 0, 7},
    {integers, "x % y", kLowest, 0, kLowest},
    // fmod: the sign of the dividend
    {all, "fmod(x, y)", 7, 2, 1},
    {floats, "fmod(x, y)", -7, 2, -1},
    {floats, "fmod(x, y)", 7, -2, 1},
    {floats, "fmod(x, y)", -6, 2, -0.0},
    {floats, "fmod(x, y)", 1, 0, kNan},
    {signed_ones, "fmod(x, y)", -7, 2, -1},
    {signed_ones, "fmod(x, y)", 7, -2, 1},
    {signed_ones, "fmod(x, y)", kLowest, -1, 0},
    {integers, "fmod(x, y)", 7, 0, 7},
    // Shifts: a count of the width or more, or a negative one
    {integers, "x << y", 1, 3, 8},
    {integers, "x << y", kLargest, 1, -2},
    {integers, "x << y", 1, kWidth, 0},
    {integers, "x << y", kLargest, kLargest, 0},
    {signed_ones, "x << y", 1, -1, 0},
    {signed_ones, "x << y", -1, kLowest, 0},
    {integers, "x >> y", 100, 2, 25},
    {integers, "x >> y", kLargest, kWidth, 0},
    {unsigned_ones, "x >> y", kLargest, kLargest, 0},
    {signed_ones, "x >> y", -5, 1, -3},
    {signed_ones, "x >> y", -5, kWidth, -1},
    {signed_ones, "x >> y", kLowest, kLargest, -1},
    {signed_ones, "x >> y", -5, -1, -1},
    {signed_ones, "x >> y", 5, -1, 0},
    // Casts of floats to integers: truncate, saturate, NaN gives 0
    {floats, "i8(x)", 2.75, 0, 2},
    {floats, "i8(x)", -2.75, 0, -2},
    {floats, "i8(x)", 200, 0, 127},
    {floats, "i8(x)", -kInf, 0, -128},
    {floats, "i8(x)", kNan, 0, 0},
    {floats, "u8(x)", 2.75, 0, 2},
    {floats, "u8(x)", -2.75, 0, 0},
    {floats, "u8(x)", 300, 0, 255},
    {floats, "u8(x)", kNan, 0, 0},
    {floats, "i8(round(x))", 2.5, 0, 2},
    {floats, "i8(round(x))", -3.5, 0, -4},
    {floats, "i8(round(x))", 127.5, 0, 127},
    {floats, "i8(round(x))", -128.75, 0, -128},
    {floats, "i8(round(x))", kInf, 0, 127},
    {floats, "i8(round(x))", kLowest, 0, -128},
    {floats, "i8(round(x))", kNan, 0, 0},
    {floats, "u8(round(x))", -0.75, 0, 0},
    {floats, "u8(round(x))", 255.5, 0, 255},
    {floats, "i4(round(x))", -3.5, 0, -4},
    {floats, "i4(round(x))", 7.5, 0, 7},
    {floats, "i4(round(x))", -8.75, 0, -8},
    {floats, "i4(round(x))", kInf, 0, 7},
    {floats, "i4(round(x))", kNan, 0, 0},
    {floats, "u4(round(x))", -0.75, 0, 0},
    {floats, "u4(round(x))", 4.5, 0, 4},
    {floats, "u4(round(x))", 15.5, 0, 15},
    {floats, "u4(round(x))", kNan, 0, 0},
    {floats, "u16(round(x))", kInf, 0, 65535},
    {floats, "i16(round(x))", kNan, 0, 0},
    {floats, "i16(x)", -2.75, 0, -2},
    {floats, "i16(x)", 40000, 0, 32767},
    {floats, "i16(x)", -kInf, 0, -32768},
    {floats, "i16(x)", kNan, 0, 0},
    {floats, "u16(x)", -1, 0, 0},
    {floats, "u16(x)", kInf, 0, 65535},
    {floats, "u16(x)", kNan, 0, 0},
    {floats, "i32(x)", -2.75, 0, -2},
    {floats, "i32(x)", kInf, 0, 2147483647.0},
    {floats, "i32(x)", -kInf, 0, -2147483648.0},
    {floats, "i32(x)", kNan, 0, 0},
    {floats, "u32(x)", -2.75, 0, 0},
    {floats, "u32(x)", kInf, 0, 4294967295.0},
    {floats, "u32(x)", kNan, 0, 0},
    {floats, "i64(x)", -2.75, 0, -2},
    {floats, "i64(x)", kInf, 0, kLargest},
    {floats, "i64(x)", -kInf, 0, kLowest},
    {floats, "i64(x)", kNan, 0, 0},
    {floats, "u64(x)", -2.75, 0, 0},
    {floats, "u64(x)", kInf, 0, kLargest},
    {floats, "u64(x)", kNan, 0, 0},
    {floats, "i8(abs(x) / -0.0)", 2, 0, -128},
    {floats, "i8(abs(x) / -0.0)", kNan, 0, 0},
    // To bool: x != 0
    {floats, "bool(x)", kNan, 0, 1},
    {floats, "bool(x)", kLeast, 0, 1},
    {floats, "bool(x)", -0.0, 0, 0},
    {floats, "bool(x)", -kInf, 0, 1},
    {signed_ones, "bool(x)", kLowest, 0, 1},
    {unsigned_ones, "bool(x)", kLargest, 0, 1},
    {all, "bool(x)", 2, 0, 1},
    {all, "bool(x)", 0, 0, 0},
    // logaddexp
    {floats, "logaddexp(x, y)", -kInf, -kInf, -kInf},
    {floats, "logaddexp(x, y)", kInf, kInf, kInf},
    {floats, "logaddexp(x, y)", kInf, -kInf, kInf},
    {floats, "logaddexp(x, y)", -kInf, 3, 3},
    {floats, "logaddexp(x, y)", kLargest, kLowest, kLargest},
    {floats, "logaddexp(x, y)", kNan, -kInf, kNan},
    {floats, "logaddexp(x, y)", kInf, kNan, kNan},
    // sigmoid
    {floats, "sigmoid(x)", kInf, 0, 1},
    {floats, "sigmoid(x)", -kInf, 0, 0},
    {floats, "sigmoid(x)", kLargest, 0, 1},
    {floats, "sigmoid(x)", kLowest, 0, 0},
    {floats, "sigmoid(x)", kLeast, 0, 0.5},
    {floats, "sigmoid(x)", -0.0, 0, 0.5},
    // power of integers
    {integers, "x ** y", 3, 4, 81},
    {integers, "x ** y", 2, 7, 128},
    {integers, "x ** y", 3, 7, 2187},
    {integers, "x ** y", 2, kWidth, 0},
    {integers, "x ** y", 0, 0, 1},
    {integers, "x ** y", kLargest, 0, 1},
    {integers, "x ** y", 0, 5, 0},
    {signed_ones, "x ** y", -2, 3, -8},
    {signed_ones, "x ** y", 2, -1, 0},
    {signed_ones, "x ** y", 0, -1, 0},
    {signed_ones, "x ** y", 1, -5, 1},
    {signed_ones, "x ** y", -1, -5, -1},
    {signed_ones, "x ** y", -1, -4, 1},
    {signed_ones, "x ** y", -1, kLowest, 1},
    // round: half to even
    {floats, "round(x)", 0.5, 0, 0},
    {floats, "round(x)", 1.5, 0, 2},
    {floats, "round(x)", 2.5, 0, 2},
    {floats, "round(x)", -0.5, 0, -0.0},
    {floats, "round(x)", -3.5, 0, -4},
    {floats, "round(x)", kInf, 0, kInf},
    {all, "round(x)", kLargest, 0, kLargest},
    {all, "round(x)", kLowest, 0, kLowest},
    {all, "floor(x)", kLargest, 0, kLargest},
    {all, "ceil(x)", kLowest, 0, kLowest},
    {all, "trunc(x)", kLargest, 0, kLargest},
    // sign
    {floats, "sign(x)", kNan, 0, kNan},
    {floats, "sign(x)", -0.0, 0, -0.0},
    {floats, "sign(x)", kLeast, 0, 1},
    {floats, "sign(x)", -kInf, 0, -1},
    {all, "sign(x)", 5, 0, 1},
    {all, "sign(x)", 0, 0, 0},
    {signed_ones, "sign(x)", kLowest, 0, -1},
    // nan_to_num: the largest finite numbers are the dtype's own
    {floats, "nan_to_num(x)", kNan, 0, 0},
    {floats, "nan_to_num(x)", kInf, 0, kLargest},
    {floats, "nan_to_num(x)", -kInf, 0, kLowest},
    {floats, "nan_to_num(x)", kLeast, 0, kLeast},
    // Subnormals are kept.
    {floats, "x * y", kLeast, 1, kLeast},
    {floats, "x + y", kLeast, 0, kLeast},
    {floats, "abs(x)", kLeast, 0, kLeast},
    // The sign of a zero, which g++ would lose.
    {floats, "-fma(x, y, x)", 0, -1, -0.0},
    {floats, "fma(x, y, x) / -1", 0, -1, -0.0},
    {floats, "fma(x, y, x) / -square(y)", 0, -1, -0.0},
    {floats, "f32(i32(x)) * y", -0.25, 1, 0},
    // of a divisor that compilers know
    {integers, "fmod(x, maximum(y - y, 5))", 7, 3, 2},
    {integers, "remainder(x, maximum(y * 0, 5))", 8, 1, 3},
    {integers, "fmod(x, minimum(y - y + 5, 9))", 9, 2, 4},
    // Integers wrap in their own type.
    {all, "x + y", 2, 3, 5},
    {integers, "x + y", kLargest, 1, kLowest},
    {integers, "x - y", kLowest, 1, kLargest},
    {integers, "x * y", kLargest, 2, -2},
    {signed_ones, "abs(x)", kLowest, 0, kLowest},
    {signed_ones, "-x", kLowest, 0, kLowest},
};

// ---- Running it --------------------------------------------------------------------------------

Dtypes kind_of(DType dtype) {
  if (is_floating(dtype)) return floats;
  return kind(dtype) == Kind::signed_integer ? signed_ones : unsigned_ones;
}

class RowContract : public Contract {};

TEST_P(RowContract, OfTheTable) {
  std::vector<const Row*> rows;
  std::vector<std::string> calls;
  for (const Row& row : kRows) {
    if ((row.dtypes & kind_of(dtype())) == 0) continue;
    rows.push_back(&row);
    if (std::ranges::find(calls, row.call) == calls.end()) calls.emplace_back(row.call);
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<testing::TestInput> inputs;
  for (const bool first : {true, false}) {
    HostArray array = HostArray::contiguous(dtype(), {count});
    for (std::int64_t i = 0; i < count; ++i) {
      const Row& row = *rows[static_cast<std::size_t>(i)];
      testing::set_bits(array, i, number_bits(first ? row.x : row.y, dtype()));
    }
    inputs.emplace_back(std::move(array));
  }
  constexpr std::size_t kCalls = 16;  // of one kernel
  const auto check = [&](const Options& options) {
    for (std::size_t begin = 0; begin < calls.size(); begin += kCalls) {
      const std::size_t end = std::min(begin + kCalls, calls.size());
      const std::vector<std::string> arguments = {"x", "y"};
      const Function function =
          parse("contract",
                fmt::format("{}", fmt::join(calls.begin() + begin, calls.begin() + end, ", ")),
                options, arguments);
      const fusion::TypedGraph typed = fusion::infer(
          fusion::parse(function.expression()),
          std::vector<fusion::ArgumentType>(2, {dtype(), false, false}), {}, options.rounding, "");
      std::vector<HostArray> outputs;
      for (const fusion::NodeId output : typed.outputs)
        outputs.push_back(HostArray::contiguous(typed.nodes[output].dtype, {count}));
      std::vector<HostArray> reference = outputs;
      testing::run_on(device(), function, inputs, outputs);
      testing::run_on_reference(function, inputs, reference);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto call =
            std::ranges::find(calls.begin() + begin, calls.begin() + end, rows[i]->call);
        if (call == calls.begin() + end) continue;
        const auto k = static_cast<std::size_t>(call - calls.begin()) - begin;
        const DType result = outputs[k].dtype;
        const std::uint64_t wanted = number_bits(rows[i]->result, result);
        const bool nan = is_floating(result) && std::isnan(fusion::decode(wanted, result));
        for (const auto* arrays : {&outputs, &reference}) {
          const std::uint64_t got = testing::get_bits((*arrays)[k], static_cast<std::int64_t>(i));
          if (nan && std::isnan(fusion::decode(got, result))) continue;
          EXPECT_EQ(got, wanted) << rows[i]->call << " of " << name(dtype())
                                 << fmt::format(" {:#x} and {:#x}, ",
                                                number_bits(rows[i]->x, dtype()),
                                                number_bits(rows[i]->y, dtype()))
                                 << mode_of(options)
                                 << (arrays == &outputs ? ", " + to_string(device())
                                                        : ", reference")
                                 << fmt::format(": got {:#x}, expected {:#x}", got, wanted);
        }
      }
    }
  };
  if (!is_floating(dtype())) return for_two_modes(check);
  // Where not all run, f32, bf16 and f64 have every mode among them.
  testing::Share share(device().type, 3,
                       dtype() == DType::bf16  ? 2
                       : dtype() == DType::f64 ? 1
                                               : 0);
  for_each_mode([&](const Options& options) {
    if (share.next()) check(options);
  });
}

using enum DType;
const auto kReal = ::testing::Values(u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64);

INSTANTIATE_TEST_SUITE_P(Cpu, RowContract, ::testing::Combine(kCpu, kReal), device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, RowContract, ::testing::Combine(kGpu, kReal), device_and_dtype_name);

}  // namespace
}  // namespace kiln
