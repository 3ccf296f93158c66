// Attention whose keys end where data says, on every device that is there: every length of one
// number and of one for each sequence, against the reference interpreter. Beyond the end lie NaN,
// or pages that cannot be touched; one kernel and one recorded graph serve every length.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "program/plan.hpp"
#include "program/step_kernel.hpp"
#include "tests/src/program/indexed_run.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::integers;
using testing::random_array;

// Of queries [b, h, g, 1, d], keys and values [b, h, 1, n, d].
constexpr const char* kBounded =
    "s = sum(q * k[:, :, :, :n], -1) * 0.25; sum(softmax(s, -2) * v[:, :, :, :n], -2)";
// The same with the keys along the last axis, as matrices of scores have them.
constexpr const char* kBoundedScores =
    "s = squeeze(sum(q * k[:, :, :, :n], -1), -1) * 0.25;"
    "sum(softmax(s, -1)[..., None] * v[:, :, :, :n], -2)";

/// An array of NaN from element `end` of the last axis but one on, in each of the rows before it.
HostArray nan_beyond(HostArray array, const std::vector<std::int64_t>& ends) {
  const std::size_t rank = array.shape.size();
  const std::int64_t depth = array.shape[rank - 1];
  const std::int64_t keys = array.shape[rank - 2];
  const std::int64_t rows = array.size() / (depth * keys);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto sequence =
        static_cast<std::size_t>(row * static_cast<std::int64_t>(ends.size()) / rows);
    for (std::int64_t i = std::max<std::int64_t>(0, ends[sequence]) * depth; i < keys * depth;
         ++i) {
      testing::set_bits(array, row * keys * depth + i,
                        testing::bits_of(std::numeric_limits<double>::quiet_NaN(), array.dtype));
    }
  }
  return array;
}

class BoundedAttention : public testing::IndexedOps {
 protected:
  std::size_t kernels_of(const std::string& text, const std::vector<HostArray>& inputs) {
    const ProgramPlan plan = testing::plan_of(text, inputs);
    EXPECT_EQ(std::ranges::count_if(plan.info.kernels,
                                    [](const ProgramKernel& kernel) {
                                      return kernel.reason.starts_with("attention over");
                                    }),
              1)
        << text;
    return plan.info.kernels.size();
  }

  /// Of that many keys at most, by one kernel or two.
  void check_lengths(std::int64_t keys, DType dtype, How how) {
    const HostArray q = random_array(DType::f32, {2, 2, 4, 1, 32}, 1, 1);
    const HostArray k = random_array(dtype, {2, 2, 1, keys, 32}, 2, 1);
    const HostArray v = random_array(dtype, {2, 2, 1, keys, 48}, 3, 1);
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{64}, keys / 2 + 1,
                                 keys, keys + 3, std::int64_t{-2}}) {
      SCOPED_TRACE(n);
      const std::vector<HostArray> inputs = {q, nan_beyond(k, {n}), integers(DType::i32, {1}, {n}),
                                             nan_beyond(v, {n})};
      check(kBounded, inputs, 2e-5, how);
      if (how == How::function) continue;  // has no views
      for (const char* text : {kBounded, kBoundedScores}) {
        EXPECT_EQ(kernels_of(text, inputs), keys > 64 ? 2U : 1U);
      }
      check(kBoundedScores, inputs, 2e-5, how);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, BoundedAttention,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(BoundedAttention, OfFewKeysIsOneKernel) {
  check_lengths(60, DType::bf16, How::program);
  check_lengths(90, DType::f32, How::function);
}

TEST_P(BoundedAttention, OfManyKeysIsTwoKernels) {
  check_lengths(300, DType::bf16, How::program);
  check_lengths(300, DType::f16, How::recorded);
}

// Each sequence of a batch ends where its own number says, as do heads where theirs differ.
TEST_P(BoundedAttention, EndsElsewhereInEverySequence) {
  const HostArray q = random_array(DType::f32, {4, 2, 3, 1, 32}, 1, 1);
  for (const std::int64_t keys : {70, 200}) {
    const std::vector<std::int64_t> ends = {keys, 0, 1, keys / 2};
    const HostArray k = nan_beyond(random_array(DType::f16, {4, 2, 1, keys, 32}, 2, 1), ends);
    const HostArray v = nan_beyond(random_array(DType::f16, {4, 2, 1, keys, 32}, 3, 1), ends);
    const HostArray n = integers(DType::i64, {4, 1, 1, 1, 1}, ends);
    EXPECT_EQ(kernels_of(kBounded, {q, k, n, v}), keys > 64 ? 2U : 1U);
    check(kBounded, {q, k, n, v}, 2e-5, How::program);
    // The queries of a group share keys, and end where each of them does.
    const HostArray each = integers(DType::u8, {3, 1, 1}, {5, 0, 64});
    const HostArray whole = random_array(DType::f16, {4, 2, 1, keys, 32}, 2, 1);
    const std::string text = "s = sum(q * k, -1)[:, :, :, :n]; sum(softmax(s, -2) * v, -2)";
    check(text, {q, whole, each, random_array(DType::f16, {4, 2, 1, keys, 32}, 3, 1)}, 2e-5,
          How::program);
  }
}

// A cache as users have it: heads inside tokens, bounded once; masks and results besides.
TEST_P(BoundedAttention, OfCachesWithMasksAndOtherResults) {
  for (const std::int64_t keys : {60, 260}) {
    const HostArray q = random_array(DType::bf16, {2, 4 * 32}, 1, 1);
    const HostArray k = random_array(DType::bf16, {2, keys, 2 * 32}, 2, 1);
    const HostArray v = random_array(DType::bf16, {2, keys, 2 * 32}, 3, 1);
    const std::string cache =
        "queries = reshape(q, 2, 2, 2, 1, 32); "
        "keys = swapaxes(reshape(k[:, :n], 2, " +
        std::to_string(keys) +
        ", 2, 32), 1, 2)[:, :, None]; "
        "values = swapaxes(reshape(v[:, :n], 2, " +
        std::to_string(keys) + ", 2, 32), 1, 2)[:, :, None]; ";
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{7}, keys}) {
      const HostArray end = integers(DType::i32, {}, {n});
      check(cache +
                "s = where(iota(-2) != 3, sum(queries * keys, -1) * 0.2, -inf); "
                "reshape(sum(softmax(s, -2) * values, -2), 2, -1)",
            {q, k, end, v}, 2e-5, How::program);
      check(cache +
                "s = sum(queries * keys, -1) * 0.2; m = max(s, -2); e = exp(s - m); l = sum(e, -2);"
                " o = sum(e * values, -2); o, m, l",
            {q, k, end, v}, 2e-5, How::program);
    }
  }
}

// Rows of which every key is masked stay NaN, whether or not the keys end before their capacity.
TEST_P(BoundedAttention, IsNothingOnlyWhereThereIsNoKey) {
  for (const std::int64_t keys : {60, 260}) {
    const HostArray q = random_array(DType::f32, {1, 1, 2, 1, 32}, 1, 1);
    const HostArray k = random_array(DType::f32, {1, 1, 1, keys, 32}, 2, 1);
    for (const std::int64_t n : {0, 9}) {
      check(
          "s = where(iota(-2) < 0, sum(q * k[:, :, :, :n], -1), -inf); "
          "sum(softmax(s, -2) * k[:, :, :, :n], -2)",
          {q, k, integers(DType::i32, {1}, {n})}, 2e-5, How::program);
    }
  }
}

// One recorded graph serves every length, which is read on the device.
TEST_P(BoundedAttention, IsRecordedOnceForEveryLength) {
  jit::Backend& backend = jit::backend(device());
  const Stream stream{device(), nullptr};
  const HostArray q = random_array(DType::f32, {1, 2, 2, 1, 32}, 1, 1);
  const HostArray k = random_array(DType::f32, {1, 2, 1, 200, 32}, 2, 1);
  const testing::DeviceBuffer queries(backend, q.bytes);
  const testing::DeviceBuffer keys(backend, k.bytes);
  const testing::DeviceBuffer length(backend, std::vector<std::byte>(4));
  const testing::DeviceBuffer sums(backend, std::vector<std::byte>(q.bytes.size()));
  const std::string text = "t = k[:, :, :, :n]; sum(softmax(sum(q * t, -1) * 0.2, -2) * t, -2)";
  const Program program = parse_program("attention", text);
  const std::vector<Argument> arguments = {View(queries.data(), DType::f32, q.shape, device()),
                                           View(keys.data(), DType::f32, k.shape, device()),
                                           View(length.data(), DType::i32, {1}, device())};
  std::vector<Argument> ordered;
  for (const std::string& name : argument_names(program)) {
    ordered.push_back(arguments[name == "q" ? 0 : name == "k" ? 1 : 2]);
  }
  const std::vector<View> results = {View(sums.data(), DType::f32, {1, 2, 2, 1, 32}, device())};
  const std::size_t bytes = program.workspace_bytes(stream, ordered, results);
  const testing::DeviceBuffer memory(backend, std::vector<std::byte>(bytes));
  const View workspace(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device());
  Graph graph = kiln::record(device(), [&](Recorder& recorder) {
    program.record(recorder, device(), ordered, results, workspace);
  });
  for (const std::int32_t count : {0, 1, 63, 64, 65, 128, 199, 200, 5}) {
    backend.copy_in(length.data(), &count, sizeof count, stream);
    graph.launch(stream);
    HostArray got = HostArray::contiguous(DType::f32, q.shape);
    got.bytes = sums.read();
    std::vector<HostArray> inputs;
    for (const std::string& name : argument_names(program)) {
      inputs.push_back(name == "q" ? q : name == "k" ? k : integers(DType::i32, {1}, {count}));
    }
    testing::expect_close(got, testing::reference_of(text, inputs).front(), 2e-5, 1e-4,
                          fmt::format("{} keys", count));
  }
}

// On the CPU keys and values beyond the end are on pages that cannot be touched.
TEST(BoundedAttentionMemory, IsNotTouchedBeyondTheEnd) {
  const Device cpu{DeviceType::cpu, 0};
  const Stream stream{cpu, nullptr};
  jit::Backend& backend = jit::backend(cpu);
  const HostArray q = random_array(DType::f32, {1, 1, 2, 1, 16}, 1, 1);
  const testing::DeviceBuffer queries(backend, q.bytes);
  const Program program = parse_program(
      "attention", "s = sum(q * k[:, :, :, :n], -1); sum(softmax(s, -2) * v[:, :, :, :n], -2)");
  for (const std::int64_t capacity : {100, 400}) {
    for (const std::int64_t count : {0, 1, 64, 70}) {
      const auto bytes = static_cast<std::size_t>(count) * 16 * 4;
      const testing::GuardedMemory keys(backend, bytes + 64);
      const testing::GuardedMemory values(backend, bytes + 64);
      char* const k = keys.place(bytes, true, 0);
      char* const v = values.place(bytes, true, 0);
      keys.write(k, std::vector<std::byte>(bytes));
      values.write(v, std::vector<std::byte>(bytes));
      std::vector<float> result(32, 1);
      const std::vector<Argument> arguments = {View(queries.data(), DType::f32, q.shape, cpu),
                                               View(k, DType::f32, {1, 1, 1, capacity, 16}, cpu),
                                               Argument(count),
                                               View(v, DType::f32, {1, 1, 1, capacity, 16}, cpu)};
      const std::vector<View> results = {View(result.data(), DType::f32, {1, 1, 2, 1, 16}, cpu)};
      const std::size_t needed = program.workspace_bytes(stream, arguments, results);
      const testing::DeviceBuffer memory(backend, std::vector<std::byte>(needed));
      program.run(stream, arguments, results,
                  View(memory.data(), DType::u8, {static_cast<std::int64_t>(needed)}, cpu));
      backend.synchronize(stream);
      EXPECT_EQ(result, std::vector<float>(32, 0)) << count << " of " << capacity;
    }
  }
}

}  // namespace
}  // namespace kiln
