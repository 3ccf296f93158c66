// What numerics promises where other libraries are silent, as a table of calls and results written
// down by hand: on every device and in the reference interpreter, with both rounding modes and
// every accuracy, for every dtype that a row concerns.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "fusion/number.hpp"
#include "kiln/error.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/reference.hpp"

namespace kiln {
namespace {

using testing::HostArray;

const auto* const private_cache = ::testing::AddGlobalTestEnvironment(new testing::PrivateCache);

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- The table ---------------------------------------------------------------------------------

// A number, or one that every dtype has of its own.
struct Number {
  enum Kind { plain, largest, lowest, least, width } kind = plain;
  double value = 0;
  Number(double number) : value(number) {}  // NOLINT: implicit on purpose
  Number(Kind which) : kind(which) {}       // NOLINT: implicit on purpose
};
constexpr auto kLargest = Number::largest;  ///< the largest finite number
constexpr auto kLowest = Number::lowest;    ///< the smallest one: -kLargest of floats
constexpr auto kLeast = Number::least;      ///< the smallest above 0
constexpr auto kWidth = Number::width;      ///< the number of bits

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

std::uint64_t mask_of(DType dtype) {
  return bits(dtype) == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits(dtype)) - 1;
}

std::uint64_t bits_of(const Number& number, DType dtype) {
  if (number.kind == Number::width) return bits_of(double(bits(dtype)), dtype);
  if (is_floating(dtype)) {
    const std::uint64_t largest = fusion::encode(kInf, dtype) - 1;
    switch (number.kind) {
      case Number::largest: return largest;
      case Number::lowest: return largest | fusion::encode(-0.0, dtype);
      case Number::least: return 1;
      default: return fusion::encode(number.value, dtype);
    }
  }
  const std::uint64_t mask = mask_of(dtype);
  const bool is_signed = kind(dtype) == Kind::signed_integer;
  switch (number.kind) {
    case Number::largest: return is_signed ? mask >> 1 : mask;
    case Number::lowest: return is_signed ? (mask >> 1) + 1 : 0;
    case Number::least: return 1;
    default: return static_cast<std::uint64_t>(static_cast<std::int64_t>(number.value)) & mask;
  }
}

class Contract : public ::testing::TestWithParam<std::tuple<DeviceType, DType>> {
 protected:
  void SetUp() override {
    const DeviceType type = std::get<0>(GetParam());
    if (!testing::has_device(type)) GTEST_SKIP() << jit::why_absent(type);
  }
  Device device() const { return {std::get<0>(GetParam()), 0}; }
  DType dtype() const { return std::get<1>(GetParam()); }

  template <class Body>
  void for_each_mode(const Body& body) const {
    for (const Rounding rounding : {Rounding::once, Rounding::each}) {
      for (const Accuracy accuracy : {Accuracy::storage, Accuracy::fast, Accuracy::strict})
        body(Options{rounding, accuracy, OnMiss::compile});
    }
  }
  // Each mode once, for what knows neither.
  template <class Body>
  static void for_two_modes(const Body& body) {
    body(Options{Rounding::once, Accuracy::storage, OnMiss::compile});
    body(Options{Rounding::each, Accuracy::strict, OnMiss::compile});
  }
};

class RowContract : public Contract {};
class NanContract : public Contract {};
class ConstantContract : public Contract {};
class DivisorContract : public Contract {};
class EmptyContract : public Contract {};
class ComplexContract : public Contract {};

std::string mode_of(const Options& options) {
  static constexpr std::string_view kAccuracy[] = {"storage", "fast", "strict"};
  return fmt::format("rounded {}, {}", options.rounding == Rounding::once ? "once" : "each",
                     kAccuracy[static_cast<std::size_t>(options.accuracy)]);
}

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
      testing::set_bits(array, i, bits_of(first ? row.x : row.y, dtype()));
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
        const std::uint64_t wanted = bits_of(rows[i]->result, result);
        const bool nan = is_floating(result) && std::isnan(fusion::decode(wanted, result));
        for (const auto* arrays : {&outputs, &reference}) {
          const std::uint64_t got = testing::get_bits((*arrays)[k], static_cast<std::int64_t>(i));
          if (nan && std::isnan(fusion::decode(got, result))) continue;
          EXPECT_EQ(got, wanted) << rows[i]->call << " of " << name(dtype())
                                 << fmt::format(" {:#x} and {:#x}, ", bits_of(rows[i]->x, dtype()),
                                                bits_of(rows[i]->y, dtype()))
                                 << mode_of(options)
                                 << (arrays == &outputs ? ", " + to_string(device())
                                                        : ", reference")
                                 << fmt::format(": got {:#x}, expected {:#x}", got, wanted);
        }
      }
    }
  };
  if (is_floating(dtype())) {
    for_each_mode(check);
  } else {
    for_two_modes(check);
  }
}

// The payload of the first, where the dtype is computed in itself.
TEST_P(NanContract, OfMaximumAndMinimum) {
  const std::uint64_t nan = fusion::encode(kNan, dtype());
  const std::uint64_t one = fusion::encode(1, dtype());
  const std::uint64_t given[][3] = {
      {nan | 1, nan | 2, nan | 1}, {nan | 3, one, nan | 3}, {one, nan | 4, nan | 4}};
  HostArray x = HostArray::contiguous(dtype(), {3});
  HostArray y = x;
  for (std::int64_t i = 0; i < 3; ++i) {
    testing::set_bits(x, i, given[i][0]);
    testing::set_bits(y, i, given[i][1]);
  }
  for_each_mode([&](const Options& options) {
    std::vector<HostArray> outputs(2, x);
    testing::run_on(device(), parse("nan", "maximum(x, y), minimum(x, y)", options),
                    std::vector<HostArray>{x, y}, outputs);
    for (std::int64_t i = 0; i < 3; ++i) {
      for (const HostArray& output : outputs)
        EXPECT_EQ(testing::get_bits(output, i), given[i][2]) << i << ", " << mode_of(options);
    }
  });
}

// Many dividends of one divisor, for which a reciprocal computed once would be tempting: correctly
// rounded, with subnormals, infinities and the sign of zero.
TEST_P(DivisorContract, EveryQuotientIsCorrectlyRounded) {
  constexpr std::int64_t kDividends = 512;
  const double divisors[] = {0.9,  30,    127,  1.0 / 3, 1e-17, 1e17,   1e-19, 1e19, 1e-38, 1e38,
                             -0.9, 0x1p3, -0.0, 0,       kInf,  1e-320, kNan,  255,  3e-39, -1e-30};
  const auto rows = static_cast<std::int64_t>(std::size(divisors));
  const auto round = [](double number) { return static_cast<double>(static_cast<float>(number)); };
  std::vector<std::uint64_t> sample = testing::sample(DType::f32, kDividends, 3);
  sample.resize(kDividends, 0);
  HostArray x = HostArray::contiguous(DType::f32, {rows, kDividends});
  HostArray y = HostArray::contiguous(DType::f32, {rows, 1});
  for (std::int64_t i = 0; i < rows; ++i) {
    testing::set_bits(y, i, fusion::encode(round(divisors[i]), DType::f32));
    for (std::int64_t k = 0; k < kDividends; ++k)
      testing::set_bits(x, i * kDividends + k, sample[static_cast<std::size_t>(k)]);
  }
  for_two_modes([&](const Options& options) {
    std::vector<HostArray> outputs(3, x);
    // What is not NaN is what it is, but could be a zero by choice.
    const char* text = "x / y, x / 0.9, where(isnan(x), 0.0, x) / y";
    testing::run_on(device(), parse("quotients", text, options), std::vector<HostArray>{x, y},
                    outputs);
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const auto dividend = static_cast<float>(fusion::decode(testing::get_bits(x, i), DType::f32));
      const auto own = static_cast<float>(round(divisors[i / kDividends]));
      const float by[] = {own, 0.9F, own};
      for (std::size_t k = 0; k < 3; ++k) {
        const auto got =
            std::bit_cast<float>(static_cast<std::uint32_t>(testing::get_bits(outputs[k], i)));
        const float wanted = (k == 2 && std::isnan(dividend) ? 0.0F : dividend) / by[k];
        const bool same = std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(wanted);
        EXPECT_TRUE(same || (std::isnan(got) && std::isnan(wanted)))
            << dividend << " / " << by[k] << ": got " << got << ", expected " << wanted << ", "
            << mode_of(options);
      }
    }
  });
}

// A number that C++ code writes comes out of the kernel with the bits of its dtype.
TEST_P(ConstantContract, EveryBitSurvivesTheText) {
  std::mt19937_64 random(17);
  std::vector<std::uint64_t> wanted = testing::sample(dtype(), 64, 5);
  const std::uint64_t any[] = {bits_of(kLargest, dtype()), bits_of(kLowest, dtype()),
                               bits_of(kLeast, dtype())};
  if (dtype() != DType::boolean) wanted.insert(wanted.end(), std::begin(any), std::end(any));
  while (wanted.size() < 128) wanted.push_back(random() & mask_of(dtype()));
  if (dtype() == DType::boolean)
    for (std::uint64_t& bits : wanted) bits &= 1;
  const auto literal = [&](std::uint64_t bits) -> Value {
    if (is_floating(dtype())) return fusion::decode(bits, dtype());
    if (dtype() == DType::boolean) return bits != 0;
    if (dtype() == DType::u64) return bits;
    const int unused = 64 - kiln::bits(dtype());
    return kind(dtype()) == Kind::signed_integer
               ? static_cast<std::int64_t>(bits << unused) >> unused
               : static_cast<std::int64_t>(bits);
  };
  for_two_modes([&](const Options& options) {
    const Function function = fuse(
        "constants",
        [&](Value place) {
          Value chosen = cast(literal(wanted[0]), dtype());
          for (std::size_t i = 1; i < wanted.size(); ++i)
            chosen = where(place == static_cast<std::int64_t>(i), literal(wanted[i]), chosen);
          return chosen;
        },
        options);
    HostArray place = HostArray::contiguous(DType::i32, {std::int64_t(wanted.size())});
    for (std::size_t i = 0; i < wanted.size(); ++i)
      testing::set_bits(place, static_cast<std::int64_t>(i), i);
    std::vector<HostArray> outputs = {HostArray::contiguous(dtype(), place.shape)};
    testing::run_on(device(), function, std::vector<HostArray>{place}, outputs);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::uint64_t got = testing::get_bits(outputs[0], static_cast<std::int64_t>(i));
      const bool nan = is_floating(dtype()) && std::isnan(fusion::decode(wanted[i], dtype()));
      if (nan && std::isnan(fusion::decode(got, dtype()))) continue;
      EXPECT_EQ(got, wanted[i]) << name(dtype()) << ' ' << i << ", " << mode_of(options);
    }
  });
}

// A launch of nothing is a success and touches nothing, wherever its pointers point.
TEST_P(EmptyContract, ALaunchOfNothingTouchesNothing) {
  const Stream stream{device(), nullptr};
  const Function function = parse("empty", "x, where(isnan(x), y, x)");
  for (const Dims& shape : {Dims{0}, Dims{3, 0}, Dims{0, 5, 2}}) {
    const View nowhere(nullptr, dtype(), shape, device());
    EXPECT_NO_THROW(function(stream, {nowhere, nowhere}, {nowhere, nowhere})) << name(dtype());
    jit::backend(device()).synchronize(stream);
    HostArray array = HostArray::contiguous(dtype(), {16});
    const std::vector<std::byte> before = array.bytes;
    jit::Backend& backend = jit::backend(device());
    const testing::DeviceBuffer memory(backend, before);
    const View beside(memory.data(), dtype(), shape, device());
    function(stream, {beside, beside}, {beside, beside});
    EXPECT_EQ(memory.read(), before);
  }
}

// Complex numbers are numbers but for order and remainders.
TEST_P(ComplexContract, OfBoolAndSign) {
  struct Case {
    float re, im;
    bool truth;
  };
  const Case cases[] = {{0, 0, false}, {-0.0f, -0.0f, false}, {0, 1, true},
                        {1, 0, true},  {NAN, 0, true},        {0, NAN, true}};
  HostArray x = HostArray::contiguous(DType::c64, {6});
  for (std::int64_t i = 0; i < 6; ++i) {
    testing::set_bits(x, i,
                      std::bit_cast<std::uint32_t>(cases[i].re) |
                          std::uint64_t{std::bit_cast<std::uint32_t>(cases[i].im)} << 32);
  }
  for_each_mode([&](const Options& options) {
    const Function function = parse("complex", "bool(x), logical_not(x), sign(x)", options);
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::boolean, {6}),
                                      HostArray::contiguous(DType::boolean, {6}),
                                      HostArray::contiguous(DType::c64, {6})};
    testing::run_on(device(), function, std::vector<HostArray>{x}, outputs);
    for (std::int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(testing::get_bits(outputs[0], i), cases[i].truth) << i << mode_of(options);
      EXPECT_EQ(testing::get_bits(outputs[1], i), !cases[i].truth) << i << mode_of(options);
    }
    EXPECT_EQ(testing::get_bits(outputs[2], 0), 0u) << mode_of(options);
  });
}

using enum DType;
const auto kReal = ::testing::Values(u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64);
const auto kRealOrBool =
    ::testing::Values(boolean, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64);
const auto kAll =
    ::testing::Values(boolean, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64, c64,
                      f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, u4, i4, f4e2m1);
const auto kItself = ::testing::Values(f32, f64);
const auto kCpu = ::testing::Values(DeviceType::cpu);
const auto kGpu = ::testing::Values(DeviceType::hip, DeviceType::cuda);

std::string test_name(const ::testing::TestParamInfo<std::tuple<DeviceType, DType>>& test) {
  const DeviceType device = std::get<0>(test.param);
  return fmt::format("{}_{}",
                     device == DeviceType::cpu   ? "cpu"
                     : device == DeviceType::hip ? "hip"
                                                 : "cuda",
                     name(std::get<1>(test.param)));
}

INSTANTIATE_TEST_SUITE_P(Cpu, RowContract, ::testing::Combine(kCpu, kReal), test_name);
INSTANTIATE_TEST_SUITE_P(Gpu, RowContract, ::testing::Combine(kGpu, kReal), test_name);
INSTANTIATE_TEST_SUITE_P(Cpu, NanContract, ::testing::Combine(kCpu, kItself), test_name);
INSTANTIATE_TEST_SUITE_P(Gpu, NanContract, ::testing::Combine(kGpu, kItself), test_name);
const auto kSingle = ::testing::Values(f32);
INSTANTIATE_TEST_SUITE_P(Cpu, DivisorContract, ::testing::Combine(kCpu, kSingle), test_name);
INSTANTIATE_TEST_SUITE_P(Gpu, DivisorContract, ::testing::Combine(kGpu, kSingle), test_name);
INSTANTIATE_TEST_SUITE_P(Cpu, ConstantContract, ::testing::Combine(kCpu, kRealOrBool), test_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ConstantContract, ::testing::Combine(kGpu, kRealOrBool), test_name);
INSTANTIATE_TEST_SUITE_P(Cpu, EmptyContract, ::testing::Combine(kCpu, kAll), test_name);
INSTANTIATE_TEST_SUITE_P(Gpu, EmptyContract, ::testing::Combine(kGpu, kAll), test_name);
INSTANTIATE_TEST_SUITE_P(Cpu, ComplexContract, ::testing::Combine(kCpu, ::testing::Values(c64)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ComplexContract, ::testing::Combine(kGpu, ::testing::Values(c64)),
                         test_name);

}  // namespace
}  // namespace kiln
