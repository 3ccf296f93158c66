// Arithmetic of bools, on every device that is there: the sum and the larger of two are `or`, the
// product and the smaller are `and`, as in NumPy and PyTorch. What is expected is a table of truth,
// not the interpreter, and so it is for reductions and running results.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>

#include "ahead/compile_only.hpp"
#include "kiln/program.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using testing::HostArray;

bool truth_at(const HostArray& array, std::int64_t i) { return testing::get_bits(array, i) != 0; }

// Every `period`-th is true.
HostArray bools(const Dims& shape, std::int64_t period, std::int64_t phase = 0) {
  HostArray array = HostArray::contiguous(DType::boolean, shape);
  for (std::int64_t i = 0; i < array.size(); ++i)
    testing::set_bits(array, i, i % period == phase ? 1 : 0);
  return array;
}

class Bools : public testing::OnDevice {
 protected:
  std::vector<HostArray> run(const std::string& text, const std::vector<HostArray>& inputs) const {
    std::vector<HostArray> got = testing::reference_of(text, inputs);  // of those shapes
    const std::vector<DType> dtypes = testing::natural_dtypes(text, inputs);
    for (std::size_t i = 0; i < got.size(); ++i)
      got[i] = HostArray::contiguous(dtypes[i], got[i].shape);
    testing::run_on(device(), parse("bools", text), inputs, got);
    return got;
  }

  void expect_reference(const std::string& text, const std::vector<HostArray>& inputs) const {
    const std::vector<HostArray> want = testing::reference_of(text, inputs);
    const std::vector<HostArray> got = run(text, inputs);
    for (std::size_t i = 0; i < want.size(); ++i)
      testing::expect_close(got[i], want[i], testing::rounding_of(got[i].dtype) * 1.01, 0,
                            fmt::format("{}, output {}", text, i));
  }
};

constexpr auto kBoolFunctions =
    "x + y, maximum(x, y), fmax(x, y), x * y, minimum(x, y), fmin(x, y)";

// Whole vectors and a tail.
TEST_P(Bools, SumsAreOrAndProductsAreAnd) {
  const HostArray x = bools({331}, 2);
  const HostArray y = bools({331}, 4);
  HostArray z = y;
  for (std::int64_t i = 0; i < z.size(); ++i) testing::set_bits(z, i, i / 2 % 2);
  for (const HostArray& other : {y, z}) {
    const std::vector<HostArray> got = run(kBoolFunctions, {x, other});
    for (std::size_t op = 0; op < got.size(); ++op) {
      ASSERT_EQ(got[op].dtype, DType::boolean);
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const bool a = truth_at(x, i);
        const bool b = truth_at(other, i);
        ASSERT_EQ(testing::get_bits(got[op], i), (op < 3 ? a || b : a && b) ? 1U : 0U)
            << "op " << op << " of " << a << " and " << b;
      }
    }
    for (const HostArray& result : testing::reference_of(kBoolFunctions, {x, other}))
      EXPECT_EQ(result.dtype, DType::boolean);
  }
}

TEST_P(Bools, Broadcast) {
  for (const Dims& shape : {Dims{1, 67}, Dims{5, 1}, Dims{67}, Dims{1}})
    expect_reference(kBoolFunctions, {bools({5, 67}, 3), bools(shape, 2)});
}

TEST_P(Bools, LieWithAnyStrides) {
  HostArray x = HostArray::strided(DType::boolean, {6, 35}, {1, 13});
  HostArray y = HostArray::strided(DType::boolean, {6, 35}, {70, 2});
  for (std::size_t i = 0; i < x.bytes.size(); ++i) x.bytes[i] = std::byte{i % 3 == 0};
  for (std::size_t i = 0; i < y.bytes.size(); ++i) y.bytes[i] = std::byte{i % 4 < 2};
  expect_reference(kBoolFunctions, {x, y});
}

TEST_P(Bools, BesideNumbersAreNumbers) {
  const HostArray x = bools({77}, 3);
  for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::f16, DType::f32})
    expect_reference(kBoolFunctions, {x, testing::random_array(dtype, {77}, 5)});
  expect_reference("x + True, x * 3, maximum(x, 0), x + 0.5, sum(x), x / 2", {x});
}

TEST_P(Bools, HaveALargestAndASmallest) {
  for (const std::int64_t length : {1, 31, 1000}) {
    HostArray x = bools({4, length}, 1);
    for (std::int64_t i = 0; i < length; ++i) {
      testing::set_bits(x, length + i, 0);
      testing::set_bits(x, 2 * length + i, i + 1 == length ? 1 : 0);
      testing::set_bits(x, 3 * length + i, i + 1 == length ? 0 : 1);
    }
    const std::vector<HostArray> got = run("max(x, -1), min(x, -1)", {x});
    const bool largest[] = {true, false, true, length > 1};
    const bool smallest[] = {true, false, length == 1, false};
    for (std::int64_t row = 0; row < 4; ++row) {
      EXPECT_EQ(truth_at(got[0], row), largest[row]) << length << ", " << row;
      EXPECT_EQ(truth_at(got[1], row), smallest[row]) << length << ", " << row;
    }
  }
  const HostArray x = bools({4, 200}, 7);
  for (const char* text : {"max(x, 0) * min(x, 0)", "x + min(x, -1)", "max(x), min(x)"})
    expect_reference(text, {x});
}

// Once true, always true.
TEST_P(Bools, HaveARunningMaximum) {
  for (const std::int64_t length : {1, 5, 1000}) {
    HostArray x = bools({3, length}, 1);
    for (std::int64_t i = 0; i < 3 * length; ++i)
      testing::set_bits(x, i, i / length == 1 || i % length != length / 2 ? 0 : 1);
    const std::vector<HostArray> got = run("cummax(x, -1)", {x});
    for (std::int64_t i = 0; i < 3 * length; ++i)
      ASSERT_EQ(truth_at(got[0], i), i / length != 1 && i % length >= length / 2) << length;
  }
  expect_reference("cummax(x, 0)", {bools({100, 7}, 31)});
}

INSTANTIATE_TEST_SUITE_P(Devices, Bools,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

void compile_all_for(const std::string& target) {
  std::vector<std::future<void>> compiles;
  for (const std::string text : {kBoolFunctions, "x + max(x, -1), x * min(x, -1)", "max(x * y, 0)",
                                 "cummax(x, -1) * y", "cummax(x + y, 0)"}) {
    compiles.push_back(std::async(std::launch::async, [text, target] {
      const Function function = parse("bools", text);
      Specification specification;
      for (const std::string& name : argument_names(function))
        specification.arguments.push_back({name, DType::boolean, {64, 4096}, {}, false});
      EXPECT_FALSE(compile_for(function, specification, target).code.empty()) << text;
    }));
  }
  for (std::future<void>& compile : compiles) compile.get();
}

TEST(BoolsForTargets, CompileOnAmd) {
  KILN_NEED(hiprtc);
  compile_all_for("gfx90a");
}

TEST(BoolsForTargets, CompileOnNvidia) {
  KILN_NEED(nvrtc);
  compile_all_for("sm_80");
}

}  // namespace
}  // namespace kiln
