// Attention over keys and values that lie where data says, token by token or page by page, on
// every device that is there: against the reference interpreter, with places that are not there,
// ends in the middle of a page and pages that several sequences share.
#include <gtest/gtest.h>

#include "tests/src/program/indexed_run.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::integers;
using testing::random_array;

class PagedAttention : public testing::IndexedOps {
 protected:
  /// Checks that all of it is one attention, joined by a second kernel where there are many keys.
  void check_attention(const std::string& text, const std::vector<HostArray>& inputs,
                       std::size_t kernels, How how = How::program) {
    const ProgramPlan plan = testing::plan_of(text, inputs);
    EXPECT_EQ(plan.info.kernels.size(), kernels) << text;
    EXPECT_TRUE(plan.info.kernels.front().reason.starts_with("attention over")) << text;
    check(text, inputs, 2e-5, how);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, PagedAttention,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

// Two heads of keys for three queries each, in a cache of 40 tokens of any sequence; -1 and 40 are
// places that are not there.
TEST_P(PagedAttention, TakesEachTokenFromItsPlace) {
  const HostArray q = random_array(DType::f32, {2, 2, 3, 1, 32}, 1, 1);
  for (const std::int64_t keys : {70, 200}) {
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < 2 * keys; ++i) places.push_back(i * 7 % 43 - 1);
    const HostArray at = integers(DType::i32, {2, keys}, places);
    for (const DType dtype : {DType::bf16, DType::f8e4m3}) {
      const HostArray k = random_array(dtype, {40, 2, 32}, 2, 1);
      const HostArray v = random_array(dtype, {40, 2, 32}, 3, 1);
      const std::string text =
          "keys = swapaxes(take(k, p), 1, 2)[:, :, None]; "
          "values = swapaxes(take(v, p), 1, 2)[:, :, None]; "
          "sum(softmax(sum(q * keys, -1) * 0.2, -2) * values, -2)";
      check_attention(text, {k, at, v, q}, keys > 64 ? 2 : 1);
    }
  }
}

// Pages of 16 tokens, in the order of a table for each sequence; some of them are shared, some are
// not there. Sequences end in the middle of a page, at its end, or before the first.
TEST_P(PagedAttention, TakesPagesByATable) {
  const HostArray q = random_array(DType::f32, {3, 2, 3, 1, 32}, 1, 1);
  for (const std::int64_t pages : {4, 13}) {
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < 3 * pages; ++i) places.push_back(i * 5 % 13 - 1);
    const std::string tokens = std::to_string(16 * pages);
    const HostArray table = integers(DType::i64, {3, pages}, places);
    const HostArray ends = integers(DType::i32, {3, 1, 1, 1, 1}, {16 * pages - 7, 0, 48});
    const HostArray k = random_array(DType::f16, {11, 16, 2, 32}, 2, 1);
    const HostArray v = random_array(DType::f16, {11, 16, 2, 32}, 3, 1);
    const std::string keys =
        "keys = swapaxes(reshape(take(k, t), 3, " + tokens + ", 2, 32), 1, 2)[:, :, None]; ";
    const std::string values =
        "values = swapaxes(reshape(take(v, t), 3, " + tokens + ", 2, 32), 1, 2)[:, :, None]; ";
    const std::size_t kernels = pages * 16 > 64 ? 2 : 1;
    check_attention(keys + values + "sum(softmax(sum(q * keys, -1) * 0.2, -2) * values, -2)",
                    {k, table, v, q}, kernels);
    check_attention(keys + values +
                        "s = sum(q * keys, -1)[:, :, :, :n] * 0.2; "
                        "sum(softmax(s, -2) * values, -2)",
                    {k, table, v, q, ends}, kernels);
  }
}

// Pages of each head by itself, with gaps between them; keys as 8-bit integers with scales, which
// lie in pages too.
TEST_P(PagedAttention, TakesPagesOfHeadsWithScales) {
  const HostArray q = random_array(DType::f32, {2, 2, 3, 1, 32}, 1, 1);
  const HostArray table = integers(DType::u8, {2, 6}, {0, 7, 2, 255, 4, 9, 1, 8, 8, 3, 9, 0});
  const HostArray k = random_array(DType::i8, {10, 2, 16, 32}, 2, 1);
  const HostArray scales = random_array(DType::f32, {10, 2, 16, 1}, 3, 1);
  const HostArray v = random_array(DType::bf16, {10, 2, 16, 32}, 4, 1);
  const auto seen = [](const std::string& name, int depth) {
    return "reshape(swapaxes(take(" + name + ", t), 1, 2), 2, 2, 1, 96, " + std::to_string(depth) +
           ")";
  };
  check_attention("keys = f32(" + seen("k", 32) + ") * " + seen("z", 1) +
                      "; sum(softmax(sum(q * keys, -1) * 0.02, -2) * " + seen("v", 32) + ", -2)",
                  {k, table, scales, q, v}, 2);
}

// The same views of pages where no attention reads them.
TEST_P(PagedAttention, SeesPagesElsewhereToo) {
  const HostArray x = random_array(DType::f32, {7, 16, 3, 8}, 1, 1);
  const HostArray table = integers(DType::i32, {2, 5}, {0, 6, -1, 3, 7, 2, 2, 5, 100, 1});
  const HostArray y = random_array(DType::f32, {2, 80, 3, 8}, 2, 1);
  const std::string seen = "p = reshape(take(x, t), 2, 80, 3, 8); ";
  for (const char* const text :
       {"p * 2 + y", "swapaxes(p, 1, 2) * 2", "sum(p, -1) * 2", "sum(p * y, 1)", "max(p, 1) + 1",
        "softmax(p + y, -1)", "cumsum(p, 1)", "reshape(p, 2, 80, 24) + 1", "p[:, 3:70] * 2"}) {
    const bool reads_y = std::string_view(text).find('y') != std::string_view::npos;
    std::vector<HostArray> inputs = {x, table};
    if (reads_y) inputs.push_back(y);
    check(seen + text, inputs, 1e-5, How::program);
  }
  check("swapaxes(take(x, t), 0, 2) + 1", {x, table}, 1e-5, How::program);
  check("sum(swapaxes(take(x, t), 1, 2), 2)", {x, table}, 1e-5, How::program);
}

}  // namespace
}  // namespace kiln
