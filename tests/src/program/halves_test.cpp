// Norms whose halves are recombined, as rotated queries and keys are, take one kernel, and what
// they reduce has the bits that it has alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kiln/program.hpp"
#include "tests/src/program/indexed_run.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::random_array;

class HalvesPrograms : public testing::ProgramsOnDevices {
 protected:
  void check_kernels(const std::string& text, const std::vector<HostArray>& inputs,
                     std::size_t kernels, double relative) {
    EXPECT_EQ(testing::plan_of(text, inputs).info.kernels.size(), kernels) << text;
    check(text, inputs, relative);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, HalvesPrograms,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

// The rotation in the forms that models write.
TEST_P(HalvesPrograms, OfRotatedNorms) {
  for (const std::int64_t length : {8, 64, 128, 512}) {
    const std::int64_t half = length / 2;
    const HostArray x = random_array(DType::bf16, {9, 3, length}, 1);
    const HostArray w = random_array(DType::bf16, {length}, 2);
    const HostArray c = random_array(DType::f32, {9, 1, half}, 3);
    const HostArray s = random_array(DType::f32, {9, 1, half}, 4);
    check_kernels(fmt::format("h = rms_norm(x, w, 1e-6); a = h[..., :{0}]; b = h[..., {0}:]; "
                              "concat(-1, a * c - b * s, b * c + a * s)",
                              half),
                  {x, w, c, s}, 1, 1e-4);
    const HostArray cos = random_array(DType::f32, {9, 1, length}, 5);
    const HostArray sin = random_array(DType::f32, {9, 1, length}, 6);
    check_kernels(fmt::format("h = layer_norm(x, w, 0.5, 1e-5); "
                              "h * c + concat(-1, -h[..., {0}:], h[..., :{0}]) * s",
                              half),
                  {x, w, cos, sin}, 1, 1e-4);
  }
}

TEST_P(HalvesPrograms, OfRotatedPairs) {
  for (const std::int64_t length : {8, 128, 512}) {
    const std::int64_t half = length / 2;
    const HostArray x = random_array(DType::bf16, {9, 3, length}, 1);
    const HostArray w = random_array(DType::bf16, {length}, 2);
    const HostArray c = random_array(DType::f32, {9, 1, half}, 3);
    const HostArray s = random_array(DType::f32, {9, 1, half}, 4);
    check_kernels(
        "h = rms_norm(x, w, 1e-6); a = h[..., 0::2]; b = h[..., 1::2]; "
        "reshape(stack(-1, a * c - b * s, b * c + a * s), 9, 3, -1)",
        {x, w, c, s}, 1, 1e-4);
    check_kernels(
        "p = reshape(layer_norm(x, w, 0.5, 1e-5) * 0.5, 9, 3, -1, 2); "
        "p[..., 0] * c - p[..., 1] * s, p[..., 1] * c + p[..., 0] * s",
        {x, w, c, s}, 1, 1e-4);
  }
}

TEST_P(HalvesPrograms, OfQueriesAndKeys) {
  const HostArray x = random_array(DType::f16, {7, 768}, 7);
  const HostArray w = random_array(DType::f16, {128}, 8);
  const HostArray c = random_array(DType::f32, {7, 1, 128}, 9);
  const HostArray s = random_array(DType::f32, {7, 1, 128}, 10);
  check_kernels(
      "q = reshape(x[:, :512], 0, 4, 128); k = reshape(x[:, 512:], 0, 2, 128); "
      "h = rms_norm(q, w, 1e-6); g = rms_norm(k, w, 1e-6); "
      "h * c + concat(-1, -h[..., 64:], h[..., :64]) * s, "
      "g * c + concat(-1, -g[..., 64:], g[..., :64]) * s",
      {x, w, c, s}, 2, 1e-4);
}

TEST_P(HalvesPrograms, OfWeightsAndLargestElements) {
  const HostArray x = random_array(DType::f32, {33, 256}, 11);
  check_kernels("y = softmax(x, -1); concat(-1, -y[:, 128:], y[:, :128])", {x}, 1, 2e-5);
  const HostArray gated = random_array(DType::bf16, {5, 2404}, 12);
  check_kernels("s = max(abs(x), -1); silu(x[:, :1202] / s) * (x[:, 1202:] / s), s", {gated}, 1,
                2e-5);
}

// Both halves have the bits of a program that needs the whole row, be they of neighbours or of
// every second element.
TEST_P(HalvesPrograms, HaveTheBitsOfWholeRows) {
  testing::Share share(GetParam(), 3, testing::random_seed());
  const auto compare = [&](Rounding rounding, std::int64_t length, bool alternate,
                           const std::string& reduction) {
    if (!share.next()) return;
    const HostArray x = random_array(DType::bf16, {17, length}, 13);
    const std::int64_t half = length / 2;
    const std::string whole = fmt::format("s = {}; s, x * 1.5 - s", reduction);
    const std::string halves = fmt::format(
        "s = {0}; y = x * 1.5; s, y[:, {1}] - s, y[:, {2}] - s, y[:, {1}] + y[:, {2}] * s",
        reduction, alternate ? "0::2" : fmt::format(":{}", half),
        alternate ? "1::2" : fmt::format("{}:", half));
    const auto results = [&](const std::string& text) {
      return run(parse_program("f", text, {.rounding = rounding}), text, {x}, false);
    };
    const std::vector<HostArray> want = results(whole);
    const std::vector<HostArray> got = results(halves);
    EXPECT_EQ(testing::plan_of(halves, {x}).info.kernels.size(), 1U) << halves;
    EXPECT_EQ(got[0].bytes, want[0].bytes) << halves;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const std::int64_t at = i % length;
      const HostArray& part = got[(alternate ? at % 2 == 0 : at < half) ? 1 : 2];
      const std::int64_t in_part = i / length * half + (alternate ? at / 2 : at % half);
      ASSERT_EQ(testing::get_bits(part, in_part), testing::get_bits(want[1], i))
          << halves << ", element " << i;
    }
  };
  for (const Rounding rounding : {Rounding::once, Rounding::each}) {
    for (const bool alternate : {false, true}) {
      for (const std::int64_t length : {4, 512}) {
        for (const char* reduction :
             {"mean(x, -1)", "sum(abs(x - mean(x, -1)), -1)", "min(x * 3.0, -1)"}) {
          compare(rounding, length, alternate, reduction);
        }
      }
    }
    for (const std::int64_t length : {6, 250, 386}) {
      compare(rounding, length, true, "sum(abs(x - 0.25), -1)");
    }
  }
}

}  // namespace
}  // namespace kiln
