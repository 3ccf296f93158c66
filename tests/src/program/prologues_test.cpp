// Norms that the products which read them compute themselves, on GPUs: their results have the bits
// of two kernels one after the other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ahead/compile_only.hpp"
#include "kiln/program.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

constexpr const char* kRmsNorm = "bf16(x * rsqrt(mean(x * x, -1) + 1e-5) * n)";
constexpr const char* kLayerNorm = "f16((x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * n)";
constexpr const char* kScaled = "x / max(abs(x), -1) * n";
constexpr const char* kSoftmax = "bf16(softmax(x, -1) * n)";

class ProloguePrograms : public testing::ProgramsOnDevices {
 protected:
  static std::size_t kernels_of(const std::string& text, const std::vector<HostArray>& inputs,
                                std::string_view target) {
    const Function function = parse("f", text);
    Specification types;
    for (const std::string& name : argument_names(function)) {
      const HostArray& array = inputs[types.arguments.size()];
      types.arguments.push_back({name, array.dtype, array.shape, {}, false});
    }
    return program_specs(function, types, target).size();
  }

  // `product` reads h, which `norm` is. Where h is an output too, it has a kernel of its own.
  void check(const std::string& norm, const std::string& product,
             const std::vector<HostArray>& inputs, bool recorded = false) {
    const std::string joined = fmt::format("h = {}; {}", norm, product);
    const std::string apart = fmt::format("{}, h", joined);
    SCOPED_TRACE(joined);
    for (const std::string_view target : {"gfx90a", "sm_90"}) {
      EXPECT_EQ(kernels_of(joined, inputs, target), 1u) << target;
      EXPECT_EQ(kernels_of(apart, inputs, target), 2u) << target;
    }
    EXPECT_EQ(kernels_of(joined, inputs, "cpu"), 2u);
    const auto one = run(parse_program("joined", joined), joined, inputs, recorded);
    const auto two = run(parse_program("apart", apart), apart, inputs, recorded);
    ASSERT_EQ(one[0].bytes.size(), two[0].bytes.size());
    EXPECT_TRUE(one[0].bytes == two[0].bytes);
  }

  // Of weights [rows, groups, group] with scales and biases, times `columns` vectors.
  void check_quantised(const std::string& norm, DType x, DType weights, std::int64_t rows,
                       std::int64_t groups, std::int64_t group, std::int64_t columns) {
    const std::int64_t length = groups * group;
    ++seed_;
    check(norm,
          fmt::format("reshape(sum((w * s + b) * reshape(h, -1, 1, {}, {}), -1, -2), -1, {})",
                      groups, group, rows),
          {testing::random_array(x, {columns, length}, seed_),
           testing::random_array(DType::bf16, {length}, seed_ + 1),
           testing::random_array(weights, {rows, groups, group}, seed_ + 2, 2),
           testing::random_array(DType::bf16, {rows, groups, 1}, seed_ + 3),
           testing::random_array(DType::bf16, {rows, groups, 1}, seed_ + 4)});
  }

  std::uint64_t seed_ = 1;
};

INSTANTIATE_TEST_SUITE_P(Devices, ProloguePrograms,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(ProloguePrograms, OfEveryNorm) {
  testing::Share share(GetParam(), 4, testing::random_seed());
  std::int64_t columns = 1;
  for (const char* norm : {kRmsNorm, kLayerNorm, kScaled, kSoftmax}) {
    for (const DType x : {DType::f32, DType::bf16, DType::f16}) {
      if (share.next()) check_quantised(norm, x, DType::u4, 50, 6, 64, columns);
      columns = columns % 3 + 1;
    }
  }
}

TEST_P(ProloguePrograms, OfEveryNumberOfColumns) {
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const std::int64_t columns : {1, 2, 3, 4, 5, 6, 7, 8}) {
    if (!share.next()) continue;
    check_quantised(kRmsNorm, DType::f32, columns % 2 == 0 ? DType::u4 : DType::i8, 75, 5,
                    std::int64_t{32} << columns % 3, columns);
  }
}

// Those of tiles, also where the waves of a block share rows, and where sums are of pairs.
TEST_P(ProloguePrograms, InTiles) {
  check_quantised(kRmsNorm, DType::f32, DType::u4, 70, 32, 64, 1);
  check_quantised(kLayerNorm, DType::f32, DType::u4, 70, 32, 128, 1);
  check_quantised(kRmsNorm, DType::bf16, DType::u8, 70, 9, 32, 3);
  check_quantised(kRmsNorm, DType::f32, DType::u4, 70, 16, 64, 8);
}

TEST_P(ProloguePrograms, OfEveryLength) {
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const std::int64_t length : {8, 40, 264, 1000, 1032, 2056, 4096}) {
    if (!share.next()) continue;
    ++seed_;
    check(kRmsNorm, "reshape(sum(w * h[:, None], -1), -1, 9)",
          {testing::random_array(DType::f32, {2, length}, seed_),
           testing::random_array(DType::bf16, {length}, seed_ + 1),
           testing::random_array(DType::f8e4m3, {9, length}, seed_ + 2)});
  }
}

// Plans would be for the shapes of what is joined, which those of a model are: a matrix that is not
// quantised may be an activation that grows.
TEST_P(ProloguePrograms, StayApartBeforeWideWeights) {
  const std::string text = fmt::format("h = {}; reshape(sum(w * h[:, None], -1), -1, 9)", kRmsNorm);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const std::vector<HostArray> inputs = {testing::random_array(DType::f32, {1, 520}, 60),
                                           testing::random_array(DType::f32, {520}, 61),
                                           testing::random_array(dtype, {9, 520}, 62)};
    for (const std::string_view target : {"gfx90a", "sm_90"}) {
      EXPECT_EQ(kernels_of(text, inputs, target), 2u) << target;
    }
  }
}

// A layer's queries, keys and values of matrices of their own, and a gated product.
TEST_P(ProloguePrograms, OfSeveralProducts) {
  const HostArray x = testing::random_array(DType::f32, {2, 256}, 70);
  const HostArray n = testing::random_array(DType::bf16, {256}, 71);
  const HostArray w = testing::random_array(DType::f8e4m3, {24, 256}, 72);
  const HostArray v = testing::random_array(DType::f8e4m3, {24, 256}, 73);
  check(kRmsNorm, "silu(sum(w * h[:, None], -1)) * sum(v * h[:, None], -1)", {x, n, w, v});
}

// Results that are not finite are recomputed term by term.
TEST_P(ProloguePrograms, OfNumbersThatAreNotFinite) {
  HostArray x = testing::random_array(DType::f32, {1, 2048}, 80);
  set_bits(x, 5, testing::bits_of(std::numeric_limits<double>::infinity(), DType::f32));
  check(kScaled, "reshape(sum((w * s) * reshape(h, -1, 1, 32, 64), -1, -2), -1, 70)",
        {x, testing::random_array(DType::bf16, {2048}, 81),
         testing::random_array(DType::u4, {70, 32, 64}, 82, 2),
         testing::random_array(DType::bf16, {70, 32, 1}, 83)});
}

}  // namespace
}  // namespace kiln
