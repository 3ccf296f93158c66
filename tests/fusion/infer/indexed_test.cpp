// Indexed ops in the text form, their dtypes and shapes, and where values end that are bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

using ::testing::HasSubstr;

struct Given {
  DType dtype;
  Dims shape;
};

ShapedGraph shaped(std::string_view text, const std::vector<Given>& inputs) {
  std::vector<ArgumentType> types;
  std::vector<Dims> shapes;
  for (const Given& input : inputs) {
    types.push_back({input.dtype, false, false});
    shapes.push_back(input.shape);
  }
  return shape_graph(infer(parse(text), types, {}, Rounding::once, "f"), shapes, "f");
}

std::string type_of(std::string_view text, const std::vector<Given>& inputs) {
  const ShapedGraph graph = shaped(text, inputs);
  const NodeId output = graph.graph.outputs[0];
  return std::string(name(graph.graph.nodes[output].dtype)) + to_string(graph.shapes[output]);
}

std::string error_of(std::string_view text, const std::vector<Given>& inputs) {
  try {
    infer_bounds(move_bounds(shaped(text, inputs)), "f");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

using enum DType;

TEST(IndexedText, IsWhatThePrinterWrites) {
  for (const char* text : {"take(x, i, 0)", "take(x, i + 1, -1)", "put(x, i, y * 2, 1)",
                           "bound(x, n, 0)", "sum(bound(x, n, 1), -1)"}) {
    EXPECT_EQ(to_text(parse(text)), text);
  }
  EXPECT_EQ(to_text(parse("take(x, i)")), "take(x, i, 0)");
  EXPECT_EQ(to_text(parse("k[:, :n]")), "bound(k, n, 1)");
  EXPECT_EQ(to_text(parse("k[..., :n, 2:4]")), "bound(k[..., 2:4], n, -2)");
  EXPECT_EQ(to_text(parse("n = m + 1; k[:n]")), "m = m; bound(k, m + 1, 0)");
}

TEST(IndexedText, SaysWhatIsExpected) {
  const auto message = [](const char* text) {
    try {
      parse(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message("take(x)"), HasSubstr("take: expected 2 values and an axis"));
  EXPECT_THAT(message("take(x, i, j)"), HasSubstr("axis: expected an integer literal, got 'j'"));
  EXPECT_THAT(message("put(x + 1, i, y)"), HasSubstr("which is updated in place"));
  EXPECT_THAT(message("x[n:]"), HasSubstr("a value may only be a stop"));
  EXPECT_THAT(message("x[:n:2]"), HasSubstr("a stop that is a value bounds the axis"));
}

TEST(IndexedTypes, AreThoseOfTheArray) {
  EXPECT_EQ(type_of("take(x, i)", {{bf16, {7, 4}}, {u8, {2, 3}}}), "bf16[2,3,4]");
  EXPECT_EQ(type_of("take(x, i, 1)", {{i8, {7, 4}}, {i64, {}}}), "i8[7]");
  EXPECT_EQ(type_of("take(x, i, -2)", {{f32, {5, 7, 4}}, {i32, {3}}}), "f32[5,3,4]");
  EXPECT_EQ(type_of("put(x, i, y)", {{f8e4m3, {7, 4}}, {i32, {2}}, {f32, {4}}}), "f8e4m3[7,4]");
  EXPECT_EQ(type_of("x[:, :n]", {{f16, {7, 4}}, {i32, {7, 1}}}), "f16[7,4]");
}

TEST(IndexedTypes, OfOthersAreErrors) {
  const Given x{f32, {7, 4}};
  EXPECT_THAT(error_of("take(x, i)", {x, {f32, {2}}}), HasSubstr("places of an integer dtype"));
  EXPECT_THAT(error_of("take(x, i, 2)", {x, {i32, {2}}}), HasSubstr("axis: expected one of [7,4]"));
  EXPECT_THAT(error_of("take(x, i)", {{f32, {0, 4}}, {i32, {2}}}), HasSubstr("nothing to take"));
  EXPECT_THAT(error_of("put(x, i, y)", {x, {i32, {2}}, {f32, {3}}}),
              HasSubstr("expected a value that broadcasts to [2,4]"));
  EXPECT_THAT(error_of("put(x, i, y)", {{i32, {7, 4}}, {i32, {2}}, {f32, {4}}}),
              HasSubstr("which cannot hold the result's f32"));
  EXPECT_THAT(error_of("x[:n]", {x, {i32, {7}}}), HasSubstr("expected an end that broadcasts"));
}

// "axis: argument" of each bound, the argument by its position.
std::string ends_of(std::string_view text, const std::vector<Given>& inputs) {
  const ShapedGraph graph = move_bounds(expand_places(shaped(text, inputs)));
  std::string result;
  const std::vector<Ends> ends = infer_bounds(graph, "f");
  for (const BoundedAxis& bound : ends[graph.graph.outputs[0]]) {
    NodeId end = bound.end;
    while (graph.graph.nodes[end].arity > 0) end = graph.graph.nodes[end].operands[0];
    result += (result.empty() ? "" : ", ") + std::to_string(bound.axis) + ": " +
              std::to_string(graph.graph.nodes[end].payload);
  }
  return result;
}

TEST(Bounds, TravelAlongWithShapes) {
  const Given x{f32, {5, 7, 4}};
  const Given n{i32, {}};
  EXPECT_EQ(ends_of("x[:, :n] * 2 + 1", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("(x * 2)[:, :n]", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("x[:, :n] + y[:m]", {x, n, x, n}), "-3: 3, -2: 1");
  EXPECT_EQ(ends_of("x[:, :n] + y[:, :m]", {x, n, x, n}), "-2: 3, -2: 1");
  EXPECT_EQ(ends_of("x + y[:n]", {x, {f32, {1, 7, 4}}, n}), "-3: 2");
  EXPECT_EQ(ends_of("sum(x[:, :n], -1)", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("sum(x[:, :n], 1)", {x, n}), "");
  EXPECT_EQ(ends_of("softmax(x[:, :, :n], -1)", {x, n}), "-1: 1");
  EXPECT_EQ(ends_of("cumsum(x[:, :n], 0) + cummax(x[:, :n], 1)", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("cumsum(x * 2, 1)[:, :n]", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("transpose(x[:, :n])", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("swapaxes(x[:, :n], 0, 1)", {x, n}), "-3: 1");
  EXPECT_EQ(ends_of("reshape(x[:n], 0, -1)", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("x[:, :n][2]", {x, n}), "-2: 1");
  EXPECT_EQ(ends_of("take(y, i[:n])", {{f32, {9, 4}}, {i32, {6}}, n}), "-2: 2");
}

TEST(Bounds, OfWhatCannotEndAreErrors) {
  const Given x{f32, {5, 7, 4}};
  const Given n{i32, {}};
  EXPECT_THAT(
      error_of("concat(0, x[:n], x[:n])", {x, n}),
      HasSubstr("concat: expected operands that are bounded alike along other axes than 0"));
  EXPECT_THAT(error_of("concat(1, x[:n], x)", {x, n}), HasSubstr("given 1 and 0 bounds"));
  EXPECT_THAT(error_of("reshape(x[:, :n], -1)", {x, n}), HasSubstr("is no axis of the result"));
  EXPECT_THAT(error_of("x[:n][1:]", {x, n}), HasSubstr("is no axis of the result"));
  EXPECT_THAT(error_of("sum(x[:, :n], 0)", {x, {i32, {5, 1, 1}}}),
              HasSubstr("sum: reduces an axis along which the end of another differs"));
  EXPECT_THAT(error_of("cumsum(x[:, :n], 0)", {x, {i32, {5, 1, 1}}}),
              HasSubstr("cumsum: runs along an axis along which the end of another differs"));
}

}  // namespace
}  // namespace kiln::fusion
