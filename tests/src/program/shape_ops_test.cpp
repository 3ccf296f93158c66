// Shape ops without a device: their shapes and errors, the text form, and what a program makes of
// them: views where strides can express them, copies where not.
#include "fusion/graph/shape_ops.hpp"

#include <gtest/gtest.h>

#include "call/function_impl.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"
#include "kiln/program.hpp"
#include "program/plan.hpp"
#include "tests/support/message.hpp"

namespace kiln {
namespace {

using testing::message_of;

Definition definition_of(const std::string& text) {
  Definition definition;
  definition.name = "f";
  definition.graph = fusion::parse(text);
  return definition;
}

ProgramPlan plan_of(const std::string& text, const std::vector<Dims>& shapes,
                    DType dtype = DType::f32) {
  CallTypes call;
  for (const Dims& shape : shapes) {
    call.arguments.push_back({dtype, false, false});
    call.arrays.push_back({dtype, shape, contiguous_strides(shape)});
  }
  return plan_program(definition_of(text), call);
}

Dims shape_of(const std::string& text, const Dims& x) {
  return plan_of(text, {x}).output_shapes[0];
}

// No 64-bit number is the least one negated.
TEST(ShapeOps, TakeEveryStep) {
  for (const std::int64_t step : {INT64_MIN, INT64_MIN + 1, INT64_MAX}) {
    const Function function =
        fuse("f", [&](Value x) { return slice(x, 0, std::nullopt, std::nullopt, step) + 1.0; });
    CallTypes call;
    call.arguments.push_back({DType::f32, false, false});
    call.arrays.push_back({DType::f32, Dims{7}, Dims{1}});
    EXPECT_EQ(plan_program(function.impl().definition, call).output_shapes[0], (Dims{1})) << step;
  }
}

TEST(ShapeOps, HaveTheShapesOfNumPy) {
  EXPECT_EQ(shape_of("x[..., 0::2] + 1", {3, 7}), (Dims{3, 4}));
  EXPECT_EQ(shape_of("x[1] + 1", {3, 7}), (Dims{7}));
  EXPECT_EQ(shape_of("x[-1, ..., 2:5] + 1", {3, 4, 7}), (Dims{4, 3}));
  EXPECT_EQ(shape_of("x[::-1, None, -3:] + 1", {3, 7}), (Dims{3, 1, 3}));
  EXPECT_EQ(shape_of("x[5:2] + 1", {3, 7}), (Dims{0, 7}));
  EXPECT_EQ(shape_of("x[..., None, 0] + 1", {3, 7}), (Dims{3, 1}));
  EXPECT_EQ(shape_of("transpose(x) + 1", {3, 4, 7}), (Dims{7, 4, 3}));
  EXPECT_EQ(shape_of("transpose(x, 1, -1, 0) + 1", {3, 4, 7}), (Dims{4, 7, 3}));
  EXPECT_EQ(shape_of("swapaxes(x, 0, -1) + 1", {3, 4, 7}), (Dims{7, 4, 3}));
  EXPECT_EQ(shape_of("reshape(x, 0, 2, -1) + 1", {3, 8}), (Dims{3, 2, 4}));
  EXPECT_EQ(shape_of("concat(-1, x, x[..., :2], x) + 1", {3, 7}), (Dims{3, 16}));
  EXPECT_EQ(shape_of("stack(1, x, x) + 1", {3, 7}), (Dims{3, 2, 7}));
  EXPECT_EQ(shape_of("squeeze(sum(x, -1), -1)", {3, 7}), (Dims{3}));
  EXPECT_EQ(shape_of("x[9223372036854775807::-9223372036854775807] + 1", {3, 7}), (Dims{1, 7}));
  EXPECT_EQ(shape_of("reshape(x, 4, -1) + 1", {0, 7}), (Dims{4, 0}));
}

TEST(ShapeOps, GiveNumbersAxes) {
  EXPECT_EQ(shape_of("x[None, None] + 1", {}), (Dims{1, 1}));
  EXPECT_EQ(shape_of("reshape(x, 1, -1) + 1", {}), (Dims{1, 1}));
  EXPECT_EQ(shape_of("transpose(x) + 1", {}), (Dims{}));
  EXPECT_EQ(shape_of("stack(0, x, x + 1, 2.0)", {}), (Dims{3}));
}

TEST(ShapeOps, SayWhatDoesNotFit) {
  const auto error = [](const std::string& text, const std::vector<Dims>& shapes) {
    return message_of([&] { plan_of(text, shapes); });
  };
  const auto expect = [&](const std::string& text, const std::string& part) {
    const std::string message = error(text, {{3, 8}});
    EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
  };
  expect("reshape(x, 5, 5)", "f: reshape: expected 24 elements, as [3,8] has, got 25 of [5,5]");
  // Products that are 24 and 0 in 64 bits.
  expect("reshape(x, 8, 2305843009213693955)", "more elements than 64 bits can count");
  EXPECT_NE(error("reshape(x, 4294967296, 4294967296)", {{0, 8}}).find("more elements"),
            std::string::npos);
  const std::int64_t most = std::int64_t{1} << 40;
  EXPECT_EQ(
      error("x[None] + x[:, None]", {{most}}),
      "f: add: expected a shape of 2^58 elements or fewer, got [1099511627776,1099511627776]");
  EXPECT_EQ(error("x[::2] + 1", {{most, most}}),
            "f: argument 'x': expected a shape of 2^58 elements or fewer, got "
            "[1099511627776,1099511627776]");
  EXPECT_EQ(error("concat(1, x, x)", {{0, std::int64_t{1} << 58}}),
            "f: concat: expected a shape of 2^58 elements or fewer, got [0,576460752303423488]");
  EXPECT_EQ(error("x[None] + x[:, None]", {{most / 4096}}), "no error");
  expect("x[9223372036854775807]", "there is no element 9223372036854775807 along axis 0");
  expect("reshape(x, -1, 7)", "the 24 elements of [3,8] do not divide by 7");
  expect("reshape(x, -1, -1)", "more than one extent is -1");
  expect("transpose(x, 0, 0)", "axis 0 comes twice");
  expect("transpose(x, 0)", "expected 2 axes");
  expect("swapaxes(x, 0, 2)", "expected an axis of [3,8] (-2 to 1), got 2");
  expect("x[3]", "there is no element 3 along axis 0 of [3,8]");
  expect("x[..., 0, 0, 0]", "expected an array with axes");
  expect("x[:, :, 1:]", "expected an axis");
  expect("squeeze(x, 0)", "expected an axis of one element");
  expect("concat(0, x, x[:, :4])", "differ along axis 1");
  expect("concat(0, x, x[0])", "different ranks");
  EXPECT_NE(message_of([] { fusion::parse("x[::0]"); }).find("step is 0"), std::string::npos);
  EXPECT_NE(message_of([] { fusion::parse("x[..., ...]"); }).find("'...'"), std::string::npos);
  EXPECT_NE(message_of([] { fusion::parse("x[y]"); }).find("expected an integer"),
            std::string::npos);
  EXPECT_NE(message_of([] { fusion::parse("x[1"); }).find("']'"), std::string::npos);
}

TEST(ShapeOps, AreRefusedByAFunctionWhichPointsToProgram) {
  std::vector<float> memory(16);
  const Function function = parse("f", "x[..., 0::2] * 2.0");
  const View x(memory.data(), DType::f32, {2, 4});
  const View y(memory.data() + 8, DType::f32, {2, 2});
  const std::string message = message_of([&] { function({}, {x}, {y}); }, Code::unsupported);
  EXPECT_NE(message.find("f: slice is not for a Function"), std::string::npos) << message;
  EXPECT_NE(message.find("kiln::Program"), std::string::npos);
}

TEST(ShapeOps, PrintWhatTheParserReads) {
  for (const char* text :
       {"x[..., ::2]", "x[2:-1:3]", "x[:, :, ::-1]", "(x + y)[..., 1:, :]", "reshape(x, 0, -1)",
        "transpose(x)", "transpose(x, 1, 0)", "swapaxes(x, -1, -2)", "expand_dims(x, -1)",
        "squeeze(x, 0)", "concat(-1, x, y)", "-x[..., 0:1]", "x ** y[..., 1:]"}) {
    EXPECT_EQ(fusion::to_text(fusion::parse(text)), text);
  }
  for (const char* text : {"x[0, ..., None]", "stack(0, x, y, z)", "x[:]", "(x)[1][..., 2]"}) {
    const std::string once = fusion::to_text(fusion::parse(text));
    EXPECT_EQ(fusion::to_text(fusion::parse(once)), once) << text;
  }
}

TEST(PlaceViews, ReadsViewsOfArgumentsInPlace) {
  for (const char* text :
       {"exp(x[..., 0::2])", "transpose(x) * 2.0", "reshape(x, -1) + 1.0", "x[::-1] - x",
        "reshape(transpose(x), 16, 4) * 3.0", "sum(reshape(transpose(x), 16, 4), -1)"}) {
    const ProgramPlan plan = plan_of(text, {{8, 8}});
    const bool copies = std::string(text).find("sum(reshape") != std::string::npos;
    EXPECT_EQ(plan.steps.size(), copies ? 2u : 1u) << text;
    EXPECT_EQ(plan.info.workspace_bytes, copies ? 256u : 0u) << text;
  }
}

TEST(PlaceViews, WritesPartsWhereTheyBelong) {
  const ProgramPlan rotary = plan_of(
      "a = x[..., 0::2]; b = x[..., 1::2]; reshape(stack(-1, a * c - b * s, a * s + b * c), 0, 0, "
      "-1)",
      {{2, 8, 32}, {8, 16}, {8, 16}});
  ASSERT_EQ(rotary.steps.size(), 1u);
  EXPECT_EQ(rotary.info.workspace_bytes, 0u);
  EXPECT_EQ(rotary.info.bytes, rotary.info.lower_bound);
  ASSERT_EQ(rotary.steps[0].outputs.size(), 2u);
  EXPECT_EQ(rotary.steps[0].outputs[0].layout.strides, (Dims{256, 32, 2}));
  EXPECT_EQ(rotary.steps[0].outputs[0].layout.offset + rotary.steps[0].outputs[1].layout.offset, 1);
  EXPECT_EQ(plan_of("concat(0, exp(x), concat(0, sin(x), x))", {{4, 4}}).steps.size(), 1u);
  EXPECT_EQ(plan_of("transpose(softmax(x, -1))", {{4, 4}}).steps.size(), 1u);
  EXPECT_EQ(plan_of("y = concat(0, exp(x), sin(x)); (y), sum(y, 0)", {{4, 4}}).steps.size(), 2u);
}

TEST(LayoutBehind, FindsTheArrayBehindAView) {
  using fusion::ArrayLayout;
  const auto behind = [](const Dims& shape, const Dims& seen_shape, const Dims& seen,
                         const Dims& wanted) {
    return fusion::layout_behind(shape, seen_shape, {seen, 0}, {wanted, 5});
  };
  EXPECT_EQ(behind({4, 6}, {6, 4}, {1, 6}, {4, 1}), (ArrayLayout{{1, 4}, 5}));
  EXPECT_EQ(behind({4, 6}, {24}, {1}, {2}), (ArrayLayout{{12, 2}, 5}));
  EXPECT_EQ(behind({24}, {4, 6}, {6, 1}, {6, 1}), (ArrayLayout{{1}, 5}));
  EXPECT_EQ(behind({24}, {4, 6}, {6, 1}, {8, 1}), std::nullopt);
  EXPECT_EQ(behind({4, 6}, {4, 3}, {6, 2}, {3, 1}), std::nullopt);
  EXPECT_EQ(behind({4, 6}, {4, 1, 6}, {6, 0, 1}, {60, 7, 10}), (ArrayLayout{{60, 10}, 5}));
}

}  // namespace
}  // namespace kiln
