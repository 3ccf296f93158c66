// Indices that meet reductions are counted by the kernel that reduces, in every form of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ahead/compile_only.hpp"
#include "kiln/program.hpp"
#include "tests/src/program/indexed_run.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::random_array;

class IndexPrograms : public testing::ProgramsOnDevices {
 protected:
  void check_one_kernel(const std::string& text, const std::vector<HostArray>& inputs,
                        double relative) {
    EXPECT_EQ(testing::plan_of(text, inputs).info.kernels.size(), 1u) << text;
    check(text, inputs, relative);
  }

  // One for each row along an axis: below, at and beyond its ends.
  HostArray ends(const Dims& shape, std::int64_t most) {
    HostArray array = HostArray::contiguous(DType::i32, shape);
    for (std::int64_t i = 0; i < array.size(); ++i) {
      testing::set_bits(array, i, static_cast<std::uint64_t>(i * 7 % (most + 2)));
    }
    return array;
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, IndexPrograms,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(IndexPrograms, CountElementsOfRows) {
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const std::int64_t length : {2, 7, 64, 257, 1000, 5003}) {
    if (!share.next()) continue;
    const HostArray n = ends({6, 1}, length);
    const HostArray x = random_array(DType::bf16, {6, length}, 3);
    check_one_kernel("softmax(where(iota(-1) <= n, x * 0.5, -1e4), -1)", {n, x}, 2e-5);
    check_one_kernel("softmax(x, -1) - f32(iota(-1) == n)", {x, n}, 2e-5);
    check_one_kernel("sum(where(iota(-1) == n, x, 0.0), -1), x + f32(iota(-2))", {n, x}, 2e-5);
  }
}

// Of unaligned rows some elements are computed one by one; long ones are read in several chunks.
TEST_P(IndexPrograms, CountElementsOfLongRows) {
  testing::Share share(GetParam(), 2, testing::random_seed());
  for (const std::int64_t length : {32768, 40001, 66000}) {
    if (!share.next()) continue;
    const HostArray n = ends({2, 1}, length);
    const HostArray x = random_array(DType::f16, {2, length}, 4);
    check_one_kernel("y = where(iota(-1) < n, x, 0.0); y - mean(y, -1) * f32(iota(-1) & 7)", {n, x},
                     1e-4);
  }
}

TEST_P(IndexPrograms, CountRowsAndColumns) {
  const HostArray x = random_array(DType::f32, {3, 48, 48}, 5);
  check_one_kernel("softmax(where(iota(-1) <= iota(-2), x, -inf), -1)", {x}, 1e-5);
  check_one_kernel("softmax(where(iota(-1) <= iota(-2) + iota(-3), x, -inf), -2)", {x}, 1e-5);
  check_one_kernel("max(x * f32(iota(-2)), -2) * f32(iota(-1)), sum(x * f32(iota(0)), -2)", {x},
                   1e-5);
  const HostArray tall = random_array(DType::bf16, {700, 20}, 6);
  check_one_kernel("sum(where((iota(0) & 3) == 1, x, 0.0), 0), norm2(x * f32(iota(1)), 0)", {tall},
                   1e-4);
}

TEST_P(IndexPrograms, CountAlongSeveralAxes) {
  const HostArray x = random_array(DType::f32, {4, 6, 10, 24}, 7);
  check_one_kernel("y = where(iota(-1) <= iota(-3), x, 0.5); y - mean(y, -1, -3)", {x}, 1e-5);
  check_one_kernel("softmax(where(iota(-2) != (iota(-1) & 3), x, -inf), -1, -2)", {x}, 1e-5);
  check_one_kernel("sum(where(iota(-4) == 2, x, 1.0) * x, -2, -4)", {x}, 1e-5);
}

TEST_P(IndexPrograms, CountRowsInMemoryOfAnyOrder) {
  HostArray x = random_array(DType::f32, {36, 5, 40}, 8);
  std::swap(x.shape[0], x.shape[2]);
  std::swap(x.strides[0], x.strides[2]);
  check_one_kernel("softmax(where(iota(-1) <= iota(0), x, -inf), -1)", {x}, 1e-5);
  check_one_kernel("softmax(where(iota(-1) <= iota(0), x, -inf), 0)", {x}, 1e-5);
}

// What an index says of the elements of rows is of narrow types too.
TEST_P(IndexPrograms, CountInEveryType) {
  const HostArray x = random_array(DType::f32, {9, 100}, 9);
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const char* dtype : {"i8", "u8", "i16", "u32", "i64", "f16", "bf16", "f32", "f64"}) {
    if (!share.next()) continue;
    check_one_kernel(fmt::format("sum(x * f32(iota(-1, {0})), -1), f32(iota(-2, {0})) * x", dtype),
                     {x}, 1e-5);
  }
}

// A Function counts as a Program does, so that tools make no Program of it.
TEST(IndexFunctions, AreOneKernelWhereOneCan) {
  const auto takes_several = [](const std::string& text, const Dims& shape) {
    Specification types;
    types.arguments = {
        {.name = "x", .dtype = DType::f32, .shape = shape, .strides = contiguous_strides(shape)}};
    return takes_program(parse("f", text), types);
  };
  EXPECT_FALSE(takes_several("softmax(where(iota(-1) <= iota(-2), x, -inf), -1)", {8, 64, 64}));
  EXPECT_FALSE(takes_several("x - f32(iota(1)) * sum(x, 1)", {8, 64}));
  EXPECT_TRUE(takes_several("sum(x * uniform(7, 3), -1)", {8, 64})) << "all elements are counted";
  EXPECT_TRUE(takes_several("cumsum(x * f32(iota(-1)), -1)", {8, 64}));
  EXPECT_TRUE(takes_several("sum(x * f32(iota(-1)), -1), sum(x, -2)", {8, 64}));
}

}  // namespace
}  // namespace kiln
