// Attention as one kernel, or as two where the keys are many, on every device that is there:
// against the reference interpreter, bit by bit from run to run and from batch to batch. What is
// not quite attention is computed as before.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernel/emit_kernel.hpp"
#include "program/plan.hpp"
#include "program/step_kernel.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

// Of queries [b, h, g, 1, d], keys [b, h, 1, n, d] and values [b, h, 1, n, e].
constexpr const char* kPlain = "sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)";

struct Sizes {
  std::int64_t batch = 1;
  std::int64_t heads = 2;
  std::int64_t group = 4;
  std::int64_t keys = 70;
  std::int64_t depth = 64;
  std::int64_t values = 64;
};

std::vector<HostArray> arrays(const Sizes& s, DType dtype, DType of_keys, std::uint64_t seed = 1) {
  return {testing::random_array(dtype, {s.batch, s.heads, s.group, 1, s.depth}, seed, 1),
          testing::random_array(of_keys, {s.batch, s.heads, 1, s.keys, s.depth}, seed + 1, 1),
          testing::random_array(of_keys, {s.batch, s.heads, 1, s.keys, s.values}, seed + 2, 1)};
}

// The arrays q, k, v and then those of `names` in the order in which `text` has them.
std::vector<HostArray> in_order(const std::string& text, const std::vector<HostArray>& arrays,
                                const std::vector<std::string>& names = {}) {
  std::vector<std::string> all = {"q", "k", "v"};
  all.insert(all.end(), names.begin(), names.end());
  std::vector<HostArray> ordered;
  const fusion::Graph graph = fusion::parse(text);
  for (const std::string& name : graph.arguments()) {
    const auto found = std::ranges::find(all, name) - all.begin();
    ordered.push_back(arrays.at(static_cast<std::size_t>(found)));
  }
  return ordered;
}

// Why each kernel of `text` begins.
std::vector<std::string> reasons_of(const std::string& text, const std::vector<HostArray>& inputs) {
  CallTypes call;
  for (const HostArray& input : inputs) {
    call.arguments.push_back({input.dtype, false, false});
    call.arrays.push_back({input.dtype, input.shape, input.strides});
  }
  const Definition definition{"attention", fusion::parse(text), Options(), text};
  std::vector<std::string> reasons;
  for (const ProgramKernel& kernel : plan_program(definition, call).info.kernels) {
    reasons.push_back(kernel.reason);
  }
  return reasons;
}

std::size_t attentions_of(const std::string& text, const std::vector<HostArray>& inputs) {
  const std::vector<std::string> reasons = reasons_of(text, inputs);
  return static_cast<std::size_t>(std::ranges::count_if(
      reasons, [](const std::string& reason) { return reason.starts_with("attention over"); }));
}

class AttentionPrograms : public testing::ProgramsOnDevices {
 protected:
  /// One kernel computes `text`, or two of which the second joins parts.
  void check_attention(const std::string& text, const std::vector<HostArray>& arrays,
                       std::size_t kernels = 2, const std::vector<std::string>& names = {}) {
    const std::vector<HostArray> inputs = in_order(text, arrays, names);
    EXPECT_EQ(attentions_of(text, inputs), 1U) << text;
    EXPECT_EQ(reasons_of(text, inputs).size(), kernels) << text;
    check(text, inputs, 2e-5);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, AttentionPrograms,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(AttentionPrograms, OfEveryDtypeAndHeadSize) {
  testing::Share share(GetParam(), 3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t depth : {32, 64, 80, 128, 256}) {
      if (!share.next()) continue;
      Sizes sizes;
      sizes.depth = sizes.values = depth;
      check_attention(kPlain, arrays(sizes, dtype, dtype));
    }
  }
}

TEST_P(AttentionPrograms, OfGroupsOfHeads) {
  testing::Share share(GetParam(), 2, testing::random_seed());
  for (const std::int64_t group : {1, 3, 7, 16}) {
    if (!share.next()) continue;
    Sizes sizes;
    sizes.group = group;
    sizes.batch = 2;
    sizes.keys = 64;
    check_attention(kPlain, arrays(sizes, DType::f32, DType::bf16), 1);
  }
}

TEST_P(AttentionPrograms, OfKeysAndValuesOfDifferentLengthsAndDtypes) {
  Sizes sizes;
  sizes.depth = 96;
  sizes.values = 40;
  check_attention(kPlain, arrays(sizes, DType::bf16, DType::f16));
  sizes.depth = 33;
  sizes.values = 7;
  check_attention(kPlain, arrays(sizes, DType::f32, DType::f32));
}

// Eight bits with a scale for each key, and one for each element of the values.
TEST_P(AttentionPrograms, OfQuantisedKeysAndValues) {
  Sizes sizes;
  for (const DType dtype : {DType::i8, DType::f8e4m3}) {
    std::vector<HostArray> inputs = arrays(sizes, DType::f32, dtype);
    inputs.push_back(testing::random_array(DType::f32, {1, 2, 1, 70, 1}, 4, 0.1));
    inputs.push_back(testing::random_array(DType::bf16, {64}, 5, 0.5));
    check_attention(
        "sum(softmax(sum(q * (f32(k) * scale), -1) * 0.125, -2) * (f32(v) * weight), -2)", inputs,
        2, {"scale", "weight"});
  }
}

TEST_P(AttentionPrograms, OfMaskedAndCappedScores) {
  Sizes sizes;
  sizes.keys = 100;
  std::vector<HostArray> inputs = arrays(sizes, DType::f32, DType::f32);
  check_attention(
      "s = sum(q * k, -1) * 0.2; t = where(iota(-2) <= 41, s, -inf); "
      "sum(softmax(t, -2) * v, -2)",
      inputs);
  check_attention(
      "s = tanh(sum(q * k, -1) / 9.0) * 9.0; t = where((iota(-2) <= 90) & (iota(-2) > 33), s, "
      "-1e30); sum(softmax(t, -2) * v, -2)",
      inputs);
  inputs.push_back(testing::random_array(DType::f32, {2, 4, 100, 1}, 4));
  check_attention("sum(softmax(sum(q * k, -1) * 0.2 + bias, -2) * v, -2)", inputs, 2, {"bias"});
  inputs.back() = testing::random_array(DType::boolean, {100, 1}, 5);
  check_attention("sum(softmax(where(mask, sum(q * k, -1), -inf), -2) * v, -2)", inputs, 2,
                  {"mask"});
}

// As the definition has it: a row of nothing but -inf gives NaN, and so does NaN.
TEST_P(AttentionPrograms, OfRowsWithoutKeysAndOfSpecialNumbers) {
  for (const std::int64_t keys : {60, 300}) {
    Sizes sizes;
    sizes.keys = keys;
    std::vector<HostArray> inputs = arrays(sizes, DType::f32, DType::f32);
    HostArray bias = testing::random_array(DType::f32, {2, 4, keys, 1}, 4);
    const auto set = [&](std::int64_t row, std::int64_t key, double value) {
      testing::set_bits(bias, row * keys + key, testing::bits_of(value, DType::f32));
    };
    const double infinity = std::numeric_limits<double>::infinity();
    for (std::int64_t key = 0; key < keys; ++key) {
      set(0, key, -infinity);
      if (key != keys - 1) set(1, key, -infinity);
      if (key != 0) set(2, key, -infinity);
    }
    set(3, 5, std::numeric_limits<double>::quiet_NaN());
    set(4, keys - 2, infinity);
    inputs.push_back(bias);
    check_attention("sum(softmax(sum(q * k, -1) + bias, -2) * v, -2)", inputs, keys > 64 ? 2 : 1,
                    {"bias"});
  }
}

TEST_P(AttentionPrograms, OfManyKeysAreTwoKernels) {
  Sizes sizes;
  testing::Share share(GetParam(), 2, testing::random_seed());
  for (const std::int64_t keys : {65, 160, 700, 1025}) {
    if (!share.next()) continue;
    sizes.keys = keys;
    check_attention(kPlain, arrays(sizes, DType::bf16, DType::bf16), 2);
    check_attention(
        "s = sum(q * k, -1); t = where(iota(-2) < 50, s, -inf); sum(softmax(t, -2) * v, -2)",
        arrays(sizes, DType::f32, DType::f32), 2);
  }
}

TEST_P(AttentionPrograms, OfSeveralQueriesForEachSequence) {
  // [b, h, g, t, 1, d]: query t sees the keys up to its own.
  const std::vector<HostArray> inputs = {
      testing::random_array(DType::f32, {2, 2, 3, 4, 1, 32}, 1, 1),
      testing::random_array(DType::bf16, {2, 2, 1, 1, 60, 32}, 2, 1),
      testing::random_array(DType::bf16, {2, 2, 1, 1, 60, 32}, 3, 1)};
  check_attention(
      "s = sum(q * k, -1) * 0.2; t = where(iota(-2) <= iota(-3) + 56, s, -inf); "
      "sum(softmax(t, -2) * v, -2)",
      inputs, 1);
}

// Keys and values with their elements apart, and as users have them: heads inside tokens.
TEST_P(AttentionPrograms, OfAnyStrides) {
  const std::vector<HostArray> tokens = {testing::random_array(DType::bf16, {2, 8 * 32}, 1, 1),
                                         testing::random_array(DType::bf16, {2, 90, 2 * 32}, 2, 1),
                                         testing::random_array(DType::bf16, {2, 90, 2 * 32}, 3, 1)};
  check_attention(
      "queries = reshape(q, 2, 2, 4, 1, 32); "
      "keys = swapaxes(reshape(k, 2, 90, 2, 1, 32), 1, 2)[:, :, :, 0][:, :, None]; "
      "values = swapaxes(reshape(v, 2, 90, 2, 1, 32), 1, 2)[:, :, :, 0][:, :, None]; "
      "reshape(sum(softmax(sum(queries * keys, -1) * 0.2, -2) * values, -2), 2, -1)",
      tokens);
  Sizes sizes;
  std::vector<HostArray> inputs = arrays(sizes, DType::f32, DType::f16);
  // Values with the keys innermost, and keys whose rows begin anywhere.
  inputs[2] = testing::random_array(DType::f16, {1, 2, 1, 64, 70}, 6, 1);
  check_attention("sum(softmax(sum(q * k, -1) * 0.2, -2) * swapaxes(v, -1, -2), -2)", inputs);
  inputs[1] = HostArray::strided(DType::f16, {1, 2, 1, 70, 64}, {0, 5001, 0, 67, 1});
  for (std::int64_t i = 0; i < inputs[1].size(); ++i) {
    testing::set_bits(inputs[1], i, testing::bits_of(std::sin(static_cast<double>(i)), DType::f16));
  }
  check_attention("sum(softmax(sum(q * k, -1) * 0.2, -2) * swapaxes(v, -1, -2), -2)", inputs);
}

TEST_P(AttentionPrograms, OfKeysAlongTheInnermostAxis) {
  const std::vector<HostArray> inputs = {testing::random_array(DType::f32, {3, 2, 64, 1}, 1, 1),
                                         testing::random_array(DType::f16, {3, 1, 64, 90}, 2, 1),
                                         testing::random_array(DType::f16, {3, 1, 48, 90}, 3, 1)};
  check_attention("sum(softmax(sum(q * k, -2) * 0.125, -1) * v, -1)", inputs);
}

TEST_P(AttentionPrograms, AmongOtherKernels) {
  std::vector<HostArray> inputs = arrays({}, DType::f32, DType::f16);
  inputs.push_back(testing::random_array(DType::f32, {64}, 7));
  const std::string text =
      "x = rms_norm(q, w, 1e-5); o = sum(softmax(sum(x * k, -1) * 0.125, -2) * v, -2); "
      "silu(o) + q, (x)";
  inputs = in_order(text, inputs, {"w"});
  EXPECT_EQ(attentions_of(text, inputs), 1U);
  check(text, inputs, 2e-5);
}

// The sum of weights later, and with the logarithm of that sum as a result.
TEST_P(AttentionPrograms, DividedAfterwards) {
  for (const std::int64_t keys : {80, 200}) {
    Sizes sizes;
    sizes.keys = keys;
    const std::vector<HostArray> inputs = arrays(sizes, DType::f32, DType::f32);
    const std::string text =
        "s = sum(q * k, -1) * 0.125; m = max(s, -2); e = exp(s - m); l = sum(e, -2); "
        "o = sum(e * v, -2); o / l, m + log(l)";
    EXPECT_EQ(attentions_of(text, inputs), 1U);
    check(text, inputs, 2e-5);
  }
}

// Results of a sequence do not depend on what it is computed beside, or on the run.
TEST_P(AttentionPrograms, GiveTheSameBitsInEveryBatchAndRun) {
  Sizes sizes;
  sizes.batch = 3;
  sizes.keys = 600;
  const std::vector<HostArray> all = arrays(sizes, DType::f32, DType::bf16);
  const Program program = parse_program("attention", kPlain);
  const HostArray got = run(program, kPlain, all, false)[0];
  EXPECT_EQ(run(program, kPlain, all, true)[0].bytes, got.bytes);
  std::vector<HostArray> last = all;
  for (HostArray& array : last) {
    const std::size_t bytes = array.bytes.size() / 3;
    array.bytes.erase(array.bytes.begin(),
                      array.bytes.begin() + static_cast<std::ptrdiff_t>(2 * bytes));
    array.shape[0] = 1;
  }
  const HostArray alone = run(program, kPlain, last, false)[0];
  ASSERT_EQ(alone.bytes.size() * 3, got.bytes.size());
  EXPECT_EQ(std::memcmp(alone.bytes.data(), got.bytes.data() + 2 * alone.bytes.size(),
                        alone.bytes.size()),
            0);
}

// What differs from attention is none, and right all the same.
TEST_P(AttentionPrograms, NearMissesAreComputedAsBefore) {
  const std::vector<HostArray> inputs = arrays({}, DType::f32, DType::f32);
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const char* text : {
           // another maximum, another sum, weights rounded, squared or used twice
           "s = sum(q * k, -1); e = exp(s - max(s * 2.0, -2)); sum(e / sum(e, -2) * v, -2)",
           "s = sum(q * k, -1); e = exp(s - max(s, -2)); sum(e / sum(e * e, -2) * v, -2)",
           "sum(f16(softmax(sum(q * k, -1), -2)) * v, -2)",
           "p = softmax(sum(q * k, -1), -2); sum(p * p * v, -2)",
           "p = softmax(sum(q * k, -1), -2); sum(p * v, -2), p",
           // over other axes, or no products
           "sum(softmax(sum(q * k, -1), -3) * v, -2)",
           "sum(softmax(q * k, -2) * v, -2)",
           "mean(softmax(sum(q * k, -1), -2) * v, -2)",
       }) {
    if (!share.next()) continue;
    EXPECT_EQ(attentions_of(text, inputs), 0U) << text;
    check(text, inputs, 1e-4);
  }
  const std::vector<HostArray> wide = arrays({}, DType::f64, DType::f64);
  EXPECT_EQ(attentions_of(kPlain, wide), 0U);
  check(kPlain, wide, 1e-12);
}

TEST_P(AttentionPrograms, FunctionsAreOneKernel) {
  Sizes sizes;
  sizes.keys = 300;
  const std::vector<HostArray> inputs = arrays(sizes, DType::bf16, DType::bf16);
  testing::check_on(device(), kPlain, inputs, 64);
  testing::check_on(device(),
                    "s = where(iota(-2) < 200, sum(q * k, -1) * 0.125, -inf); "
                    "silu(sum(softmax(s, -2) * v, -2)) + q",
                    inputs, 64);
}

// Host compilers store vectors to arrays of such rows.
TEST_P(AttentionPrograms, OfRowsThatNoPowerOfTwoDivides) {
  Sizes sizes;
  sizes.batch = sizes.heads = 1;
  sizes.group = 2;
  sizes.keys = 116;
  sizes.depth = sizes.values = 216;
  check_attention(kPlain, arrays(sizes, DType::f16, DType::bf16));
}

// Shapes, groups, dtypes, masks and orders of axes at random.
TEST_P(AttentionPrograms, OfRandomShapes) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE(fmt::format("KILN_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const DType dtypes[] = {DType::f32, DType::f16, DType::bf16};
  const std::uint64_t draws = testing::setting("KILN_TEST_DRAWS", 4);
  for (std::uint64_t i = 0; i < draws; ++i) {
    Sizes sizes{draw(1, 3), draw(1, 3), draw(1, 9), draw(2, 400), draw(2, 140), draw(2, 140)};
    if (draw(0, 1) == 0) sizes.depth = sizes.values = 8 * draw(1, 32);
    std::vector<HostArray> inputs =
        arrays(sizes, dtypes[draw(0, 2)], dtypes[draw(0, 2)], static_cast<std::uint64_t>(i));
    std::string keys = "k";
    std::string values = "v";
    if (draw(0, 2) == 0) {
      std::swap(inputs[1].shape[3], inputs[1].shape[4]);
      inputs[1] = testing::random_array(inputs[1].dtype, inputs[1].shape, i + 9, 1);
      keys = "swapaxes(k, -1, -2)";
    }
    if (draw(0, 2) == 0) {
      std::swap(inputs[2].shape[3], inputs[2].shape[4]);
      inputs[2] = testing::random_array(inputs[2].dtype, inputs[2].shape, i + 10, 1);
      values = "swapaxes(v, -1, -2)";
    }
    std::string score = "s * 0.2";
    if (draw(0, 1) == 0)
      score = fmt::format("where(iota(-2) <= {}, {}, -inf)", draw(0, 400), score);
    if (draw(0, 2) == 0) score = fmt::format("tanh({}) * 3.0", score);
    if (draw(0, 1) == 0) {
      inputs.push_back(testing::random_array(
          DType::f32, {draw(0, 1) == 0 ? sizes.group : 1, sizes.keys, 1}, i + 11, 1));
      score += " + bias";
    }
    const std::string text =
        fmt::format("s = sum(q * {}, -1); sum(softmax({}, -2) * {}, -2)", keys, score, values);
    SCOPED_TRACE(fmt::format("{} heads of {}, {} keys, depth {}, values {}",
                             sizes.batch * sizes.heads, sizes.group, sizes.keys, sizes.depth,
                             sizes.values));
    check_attention(text, inputs, sizes.keys > 64 ? 2 : 1, {"bias"});
  }
}

}  // namespace
}  // namespace kiln
