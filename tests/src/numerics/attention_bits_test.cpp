// Bits of attention do not show heads, batches and queries beside, nor where keys and values lie,
// against the same alone. fusion/numerics.md names what differs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/src/numerics/beside_bits.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::part_of;

class AttentionBits : public testing::BesideBits {};

INSTANTIATE_TEST_SUITE_P(Devices, AttentionBits,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(AttentionBits, DoNotShowHeadsBatchesOrQueriesBeside) {
  const std::string text = "sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)";
  for (const std::int64_t keys : {100, 300}) {
    const std::vector<HostArray> inputs = {
        testing::random_array(DType::f16, {2, 3, 8, 1, 64}, 1),
        testing::random_array(DType::f16, {2, 3, 1, keys, 64}, 2),
        testing::random_array(DType::f16, {2, 3, 1, keys, 64}, 3)};
    const auto run = [&](const std::vector<HostArray>& own) {
      Dims shape = own[0].shape;
      HostArray result = HostArray::contiguous(DType::f32, shape);
      return ProgramsOnDevices::run(parse_program("beside", "f32(" + text + ")"), own, {result},
                                    false)[0];
    };
    const HostArray whole = run(inputs);
    for (const std::size_t axis : {0u, 1u, 2u}) {
      std::vector<HostArray> own = inputs;
      const std::int64_t last = inputs[0].shape[axis] - 1;
      own[0] = part_of(own[0], axis, last, 1);
      for (std::size_t i = 1; i < 3; ++i) {
        if (axis < 2) own[i] = part_of(own[i], axis, last, 1);
      }
      expect_same(run(own), part_of(whole, axis, last, 1),
                  fmt::format("attention to {} keys, axis {}", keys, axis));
    }
  }
}

// How rows of keys and values lie in memory: neighbours along the depth, along the keys, or none.
TEST_P(AttentionBits, DoNotShowWhereKeysAndValuesLie) {
  const auto placed = [](const HostArray& packed, bool by_keys, std::int64_t step) {
    const Dims& shape = packed.shape;
    const std::int64_t keys = shape[2];
    const std::int64_t depth = shape[3];
    const std::int64_t head = keys * depth * step + 3;
    const Dims strides = by_keys ? Dims{shape[1] * head, head, step, keys * step}
                                 : Dims{shape[1] * head, head, depth * step, step};
    HostArray array = HostArray::strided(packed.dtype, shape, strides, 1);
    for (std::int64_t i = 0; i < array.size(); ++i) {
      set_bits(array, testing::place_of(array, i), get_bits(packed, i));
    }
    return array;
  };
  testing::Share share(GetParam(), 6, testing::random_seed());
  const Function function =
      parse("attention", "f32(sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2))");
  for (const std::int64_t depth : {24, 64, 128}) {
    for (const DType dtype : {DType::f16, DType::f32}) {
      if (!share.next()) continue;
      const HostArray q = testing::random_array(dtype, {1, 2, 1, depth}, 1);
      const HostArray k = testing::random_array(dtype, {1, 2, 100, depth}, 2);
      const HostArray v = testing::random_array(dtype, {1, 2, 100, depth}, 3);
      const auto run = [&](const std::vector<HostArray>& inputs) {
        std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {1, 2, 1, depth})};
        run_on(device(), function, inputs, got);
        return got[0];
      };
      const HostArray want = run({q, k, v});
      for (const bool by_keys : {false, true}) {
        for (const std::int64_t step : {1, 2}) {
          const std::string what = fmt::format("{} {}, {}, step {}", depth, name(dtype),
                                               by_keys ? "by keys" : "by depth", step);
          expect_same(run({q, placed(k, by_keys, step), v}), want, "keys of " + what);
          expect_same(run({q, k, placed(v, by_keys, step)}), want, "values of " + what);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kiln
