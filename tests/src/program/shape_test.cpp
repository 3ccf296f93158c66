// Programs with shape ops and calls of the caller on every device that is there, against the
// reference interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "fusion/text/text.hpp"
#include "kiln/program.hpp"
#include "kiln/reduction.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

// The arguments of a text, by their names.
std::vector<HostArray> named(const std::string& text, const std::map<std::string, HostArray>& all) {
  std::vector<HostArray> inputs;
  const fusion::Graph graph = fusion::parse(text);
  for (const std::string& name : graph.arguments()) inputs.push_back(all.at(name));
  return inputs;
}

class ShapePrograms : public testing::ProgramsOnDevices {};

INSTANTIATE_TEST_SUITE_P(Devices, ShapePrograms,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(ShapePrograms, ReadViewsOfArguments) {
  const HostArray x = testing::random_array(DType::f32, {6, 8, 10}, 1);
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const char* text :
       {"x[..., 0::2] + x[..., 1::2]", "transpose(x) * 2.0", "x[::-1, 1:-1, ::-3] - 1.0",
        "swapaxes(x, 0, 1) + x[0, None, :, :][:, :6]", "reshape(x, 0, -1) * 2.0",
        "reshape(transpose(x, 2, 0, 1), 20, 24) + 1.0", "sum(x[..., 2:7], -1) - x[..., 0:1]",
        "x[2]", "x[..., 3]", "transpose(x)", "mean(reshape(x, 6, 4, 2, -1), -1, 1)"}) {
    if (!share.next()) continue;
    check(text, {x}, 1e-5);
  }
}

TEST_P(ShapePrograms, WritePartsOfResults) {
  const HostArray x = testing::random_array(DType::bf16, {4, 6, 16}, 2);
  const HostArray y = testing::random_array(DType::bf16, {4, 6, 16}, 3);
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const char* text :
       {"concat(-1, x * 2.0, y[..., :5], exp(x))", "stack(0, x, y) + 1.0",
        "reshape(stack(-1, x * y, x - y), 0, 0, -1)", "transpose(softmax(x, -1))",
        "c = concat(1, x, y * 2.0); c, sum(c, 1)",
        "c = stack(2, x, y); c[..., 0, :] * c[..., 1, :]",
        "concat(0, concat(1, x, y), concat(1, y, x))", "c = concat(-1, x, y); c / sum(c, -1)",
        "reshape(transpose(exp(x), 1, 0, 2), 6, -1) * 2.0",
        "exp(x)[..., 1::2] + exp(x)[..., 0::2]"}) {
    if (!share.next()) continue;
    std::vector<HostArray> inputs{x};
    if (std::string(text).find('y') != std::string::npos) inputs.push_back(y);
    check(text, inputs, 1e-4);
    check(text, inputs, 1e-4, true);
  }
}

// What is concatenated with itself broadcasts, in whatever shape it is seen.
TEST_P(ShapePrograms, RepeatValues) {
  const HostArray x = testing::random_array(DType::f32, {3, 2, 5, 4}, 31);
  const HostArray y = testing::random_array(DType::f32, {3, 6, 5, 4}, 32);
  const HostArray w = testing::random_array(DType::bf16, {6, 1, 4}, 33);
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const char* text :
       {"r = reshape(stack(2, x, x, x), 3, 6, 5, 4); r * y, sum(r * y, -1)",
        "r = reshape(stack(2, x, x, x), 3, 6, 5, 4); softmax(sum(r * y, -1), 1) * y",
        "r = concat(1, x, x, x); r * y + w, max(r * y, 1, 2)",
        "r = reshape(stack(2, x, x, x), 3, 6, 5, 4); sum(where(iota(1) < 4, r, y), 2) * w",
        "r = reshape(stack(2, exp(x), exp(x), exp(x)), 18, 20); r, sum(r, 0) + reshape(y, 18, 20)",
        "r = concat(-1, x, x); reshape(r, 3, 2, 5, 8)[..., 2:6] - 1.0 + y[:, :2], mean(r, -1)",
        "r = stack(1, w, w, w); r * w[:, None], reshape(r, 18, 4) - reshape(y, 60, 6)[:18, :4]"}) {
    if (!share.next()) continue;
    check(text, named(text, {{"x", x}, {"y", y}, {"w", w}}), 1e-4);
  }
}

// What is computed of arguments whose axes become one moves with what it is an operand of.
TEST_P(ShapePrograms, ComputeWithJoinedAxes) {
  const HostArray x = testing::random_array(DType::f32, {4, 128}, 36);
  const HostArray b = testing::random_array(DType::f32, {8, 16}, 37);
  const HostArray m = testing::random_array(DType::boolean, {8, 16}, 38);
  const HostArray one = testing::random_array(DType::f32, {1, 1}, 39);
  const HostArray rows = testing::random_array(DType::f32, {4, 1, 1}, 40);
  const HostArray narrow = testing::random_array(DType::bf16, {4, 1, 1}, 41);
  const std::map<std::string, HostArray> all = {{"x", x},     {"b", b},       {"m", m},
                                                {"one", one}, {"rows", rows}, {"narrow", narrow}};
  const std::string h = "h = reshape(x - mean(x, -1), 4, 8, 16); ";
  testing::Share share(GetParam(), 3, testing::random_seed());
  for (const char* text :
       {"h * where(b > 0.0, b, one)", "h * maximum(exp(b), one)", "h * (exp(b) + exp(rows))",
        "where(m, h, 0.0) * (narrow + b)", "bf16(h) * (narrow + bf16(b))", "h * (one + 2.0) + b"}) {
    if (!share.next()) continue;
    check(h + text, named(h + text, all), 1e-4);
  }
}

// Elements in reverse order beside what the same kernel computes of them as they lie.
TEST_P(ShapePrograms, ExchangePartsOfSums) {
  const HostArray x = testing::random_array(DType::bf16, {3, 24, 40}, 34);
  const HostArray s = testing::random_array(DType::f32, {3, 24}, 35);
  for (const char* text :
       {"y = sum(x, -1)[..., 0]; y * s + reshape(reshape(y, 3, 2, 12)[:, ::-1], 3, 24) * (1.0 - s)",
        "y = sum(x, -1)[..., 0]; y * s - reshape(reshape(y, 3, 12, 2)[..., ::-1], 3, 24) * s",
        "y = sum(x, -1)[..., 0]; reshape(y, 3, 4, 6)[:, 2::-1] * 2.0, reshape(s, 3, 6, 4)[..., "
        "::-1]",
        "y = reshape(sum(x, -1), 3, 8, 3)[..., -1:0:-1]; y, sum(y * 2.0, -1), y[..., ::-1] + y"}) {
    check(text, named(text, {{"x", x}, {"s", s}}), 1e-4);
  }
}

// What is computed behind a view of nothing is nothing, also where an axis of one element is cut.
TEST_P(ShapePrograms, CutAllElementsAway) {
  const HostArray x = testing::random_array(DType::f32, {1, 5}, 10);
  check("sum((x - 1.0)[:0:-1], 0), sum((x * 2.0)[1:], 0), concat(0, (x + 1.0)[1:], x)", {x}, 0);
  const HostArray y = testing::random_array(DType::f32, {4, 1}, 11);
  check("sum((x + y)[:, 5:], 1), prod((x * y)[4:], 0), sum((exp(y) - 1.0)[..., 1:], -1)", {x, y},
        0);
}

TEST_P(ShapePrograms, GiveNumbersAxes) {
  const HostArray x = testing::random_array(DType::f32, {3, 4}, 12);
  const HostArray n = testing::random_array(DType::f32, {}, 13);
  check("stack(0, x[0, 1], x[2, 3] * 2.0, 1.0), x[1][2][None] - x[0]", {x}, 1e-6);
  check("stack(0, n, sum(x)[0, 0]), n[None, None] * x, reshape(n + 1.0, 1, 1)", {n, x}, 1e-5);
}

TEST_P(ShapePrograms, RotateInterleavedPairs) {
  const HostArray x = testing::random_array(DType::f16, {2, 6, 32}, 4);
  const HostArray c = testing::random_array(DType::f32, {6, 16}, 5);
  const HostArray s = testing::random_array(DType::f32, {6, 16}, 6);
  const char* text =
      "a = x[..., 0::2]; b = x[..., 1::2]; "
      "f16(reshape(stack(-1, a * c - b * s, a * s + b * c), 0, 0, -1))";
  check(text, {x, c, s}, 1e-3);
}

TEST_P(ShapePrograms, CountBesideReductions) {
  const HostArray x = testing::random_array(DType::f32, {6, 40}, 7);
  check("r = where(uniform(7, 0) > 0.25, x, 0.0); r / sum(abs(r), -1) + mean(x, 0)", {x}, 1e-5);
  check("x * f32(iota(0)), sum(x * f32(iota(-1)), -1), sum(x, -1) * f32(iota(0))", {x}, 1e-5);
  check("m = mean(x, -1); normal(3, 1) * m, (uniform(1, 2) + x)[..., ::2]", {x}, 1e-5);
}

// Indices are compared in the kernel that reduces, whichever axis they are of.
TEST_P(ShapePrograms, CompareIndicesThatTheyReduce) {
  const HostArray x = testing::random_array(DType::f32, {3, 20, 20}, 7);
  HostArray length = HostArray::contiguous(DType::i32, {3, 20, 1});
  for (std::int64_t i = 0; i < length.size(); ++i) {
    testing::set_bits(length, i, static_cast<std::uint64_t>(1 + i % 20));
  }
  check("softmax(where(iota(-1) < y, x, -inf), -1)", {length, x}, 1e-5);
  check("softmax(where(iota(-1) <= iota(-2), x, -inf), -1)", {x}, 1e-5);
  check("softmax(x, -1) - f32(iota(-1) == y)", {x, length}, 1e-5);
  check("logsumexp(x, -1) - sum(where(iota(-1) == y, x, 0.0), -1)", {x, length}, 1e-5);
  check("sum(where(iota(1) < y, x, 0.0), 1), cumsum(x * f32(iota(2)), -1)", {length, x}, 1e-4);
}

TEST_P(ShapePrograms, RunOnPackedArguments) {
  const HostArray q = testing::random_array(DType::u4, {4, 32}, 8, 0.5);
  check("f32(q)[..., 1::2] * 2.0, reshape(f32(q), 4, 2, 16) - 8.0", {q}, 1e-6);
}

// A column sum as somebody else's kernel.
LibraryCall caller_sum(Device device) {
  LibraryCall sum;
  sum.name = "caller_sum";
  sum.dtypes = [](std::span<const DType> inputs) { return std::vector<DType>{inputs[0]}; };
  sum.shapes = [](std::span<const Dims> inputs) {
    return std::vector<Dims>{Dims{1, inputs[0][1]}};
  };
  const Function add = fuse("caller_sum", [](Value x) { return kiln::sum(x, 0); });
  sum.run = [device, add](const Stream& stream, std::span<const View> inputs,
                          std::span<const View> outputs) {
    EXPECT_EQ(stream.device, device);
    add(stream, {inputs[0]}, {outputs[0]});
  };
  return sum;
}

TEST_P(ShapePrograms, CallTheCallerBetweenKernels) {
  const HostArray x = testing::random_array(DType::bf16, {12, 20}, 9);
  const LibraryCall sum = caller_sum(device());
  const Program program = trace_program("with_call", [&](Value v) {
    const Value y = exp(v * 0.5);
    return std::tuple(y / (1.0 + call(sum, {y})), call(sum, {v}));
  });
  // What the caller is given is rounded to its dtype; so is it here.
  const std::string text = "y = exp(x * 0.5); y / (1.0 + bf16(sum(bf16(y), 0))), bf16(sum(x, 0))";
  for (const bool recorded : {false, true}) check(program, text, {x}, 4e-3, recorded);
}

// Somebody else's kernel that gives packed numbers.
TEST_P(ShapePrograms, RunAlongWhatTheCallerPacks) {
  LibraryCall pack;
  pack.name = "pack";
  pack.dtypes = [](std::span<const DType>) { return std::vector<DType>{DType::u4}; };
  pack.shapes = [](std::span<const Dims> inputs) { return std::vector<Dims>{inputs[0]}; };
  const Function low_bits = fuse("pack", [](Value x) { return x & 15; });
  pack.run = [low_bits](const Stream& stream, std::span<const View> inputs,
                        std::span<const View> outputs) {
    low_bits(stream, {inputs[0]}, {outputs[0]});
  };
  const HostArray x = testing::random_array(DType::i32, {6, 20}, 14);
  const Program program = trace_program("packed", [&](Value v) {
    const Value packed = call(pack, {v});
    return std::tuple(cumsum(packed, 1), packed * cumsum(v, 0), max(packed, 0) + 1);
  });
  check(program, "p = x & 15; cumsum(p, 1), p * cumsum(x, 0), max(p, 0) + 1", {x}, 0, false);
}

TEST(LibraryCalls, AreKernelsOfTheirOwnInExplain) {
  std::vector<float> x(64), y(64);
  const LibraryCall sum = caller_sum({});
  const Program program =
      trace_program("with_call", [&](Value v) { return exp(v) / call(sum, {exp(v)}); });
  const ProgramInfo info =
      program.explain({}, std::vector<Argument>{View(x.data(), DType::f32, {8, 8})},
                      std::vector<View>{View(y.data(), DType::f32, {8, 8})});
  ASSERT_EQ(info.kernels.size(), 3u);
  EXPECT_TRUE(info.kernels[1].call);
  EXPECT_EQ(info.kernels[1].name, "caller_sum");
  EXPECT_EQ(info.kernels[2].reason, "it reads the result of a custom call");
  EXPECT_NE(program.expression().find("caller_sum("), std::string::npos);
}

// The smallest and the largest of all, at their places among the results.
LibraryCall caller_bounds() {
  LibraryCall bounds;
  bounds.name = "bounds";
  bounds.dtypes = [](std::span<const DType> inputs) {
    return std::vector<DType>{inputs[0], inputs[0]};
  };
  bounds.shapes = [](std::span<const Dims>) { return std::vector<Dims>{Dims{1}, Dims{1}}; };
  bounds.run = [](const Stream&, std::span<const View> inputs, std::span<const View> outputs) {
    ASSERT_EQ(outputs.size(), 2u);
    const auto* first = static_cast<const float*>(inputs[0].data());
    const auto [low, high] = std::minmax_element(first, first + inputs[0].size());
    *static_cast<float*>(outputs[0].data()) = *low;
    *static_cast<float*>(outputs[1].data()) = *high;
  };
  return bounds;
}

TEST(LibraryCalls, AreGivenAllResultsAlsoThoseThatNobodyReads) {
  std::vector<float> x = {3, 1, 4, 1, 5};
  std::vector<float> y(5);
  const std::vector<Argument> inputs{View(x.data(), DType::f32, {5})};
  const std::vector<View> outputs{View(y.data(), DType::f32, {5})};
  for (const std::size_t used : {0, 1}) {
    const Program program = trace_program(
        "with_bounds", [&](Value v) { return v - call(caller_bounds(), 2, {v})[used]; });
    std::vector<std::uint64_t> workspace(program.workspace_bytes({}, inputs, outputs) / 8 + 2);
    program.run({}, inputs, outputs,
                View(workspace.data(), DType::u64, {static_cast<std::int64_t>(workspace.size())}));
    EXPECT_EQ(y[0], used == 0 ? 2 : -2);
  }
}

TEST(LibraryCalls, RefuseWhatIsMissing) {
  EXPECT_THROW(trace_program("f", [](Value v) { return call(LibraryCall{}, {v}); }), Error);
  std::vector<float> x(4);
  const auto message = [&](const LibraryCall& wrong) {
    const Program program = trace_program("f", [&](Value v) { return v + call(wrong, 2, {v})[1]; });
    try {
      program.explain({}, std::vector<Argument>{View(x.data(), DType::f32, {4})},
                      std::vector<View>{View(x.data(), DType::f32, {4})});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  LibraryCall wrong = caller_bounds();
  wrong.dtypes = [](std::span<const DType> inputs) { return std::vector<DType>{inputs[0]}; };
  EXPECT_EQ(message(wrong), "f: bounds: dtypes: expected those of 2 results or more, got 1");
  wrong = caller_bounds();
  wrong.shapes = [](std::span<const Dims>) { return std::vector<Dims>{Dims{1}}; };
  EXPECT_EQ(message(wrong), "f: bounds: shapes: expected those of 2 results or more, got 1");
  wrong.shapes = [](std::span<const Dims>) { return std::vector<Dims>{Dims{1}, Dims{-3}}; };
  EXPECT_EQ(message(wrong), "f: bounds: shapes: result 1: expected extents of 0 or more, got [-3]");
  wrong.shapes = [](std::span<const Dims>) { return std::vector<Dims>(3, Dims{1}); };
  EXPECT_NE(message(wrong).find("got 2 dtypes and 3 shapes"), std::string::npos);
}

}  // namespace
}  // namespace kiln
