// What the reference interpreter gives for indexed ops, as numbers written down here.
#include <gtest/gtest.h>

#include <cmath>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/text/text.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
namespace {

struct Numbers {
  std::vector<float> values;
  Dims shape;
};

constexpr float kUntouched = -99;

// The first output for f32 arrays and, where `integers` is true, i64 arrays. Its elements are
// kUntouched where nothing is stored.
std::vector<float> result(std::string_view text, std::vector<Numbers> inputs,
                          std::vector<bool> integers) {
  std::vector<ArgumentType> types;
  std::vector<Dims> shapes;
  std::vector<std::vector<std::int64_t>> whole(inputs.size());
  std::vector<ReferenceOperand> arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = integers[i] ? DType::i64 : DType::f32;
    types.push_back({dtype, false, false});
    shapes.push_back(inputs[i].shape);
    for (const float value : inputs[i].values) {
      whole[i].push_back(static_cast<std::int64_t>(value));
    }
    void* const data = integers[i] ? static_cast<void*>(whole[i].data())
                                   : static_cast<void*>(inputs[i].values.data());
    arguments.push_back({data, dtype, contiguous_strides(inputs[i].shape), 0});
  }
  const ShapedGraph graph =
      shape_graph(infer(parse(text), types, {}, Rounding::once, "f"), shapes, "f");
  std::int64_t size = 1;
  for (const std::int64_t extent : graph.shapes[graph.graph.outputs[0]]) size *= extent;
  std::vector<float> output(static_cast<std::size_t>(size), kUntouched);
  const ReferenceOperand stored{output.data(), DType::f32,
                                contiguous_strides(graph.shapes[graph.graph.outputs[0]]), 0};
  evaluate_arrays(graph.graph, graph.shapes, arguments, std::span(&stored, 1));
  return output;
}

using Values = std::vector<float>;
const Numbers kMatrix{{1, 2, 3, 4, 5, 6}, {3, 2}};

TEST(ReferenceTake, GivesZeroForPlacesThatAreNotThere) {
  const Numbers places{{2, -1, 0, 3}, {4}};
  EXPECT_EQ(result("take(x, i)", {kMatrix, places}, {false, true}),
            (Values{5, 6, 0, 0, 1, 2, 0, 0}));
  EXPECT_EQ(result("take(x, i, 1)", {kMatrix, {{1, 1, 2, 0}, {2, 2}}}, {false, true}),
            (Values{2, 2, 0, 1, 4, 4, 0, 3, 6, 6, 0, 5}));
  EXPECT_EQ(result("take(x, i)", {kMatrix, {{1}, {}}}, {false, true}), (Values{3, 4}));
}

TEST(ReferencePut, WritesOnlyPlacesThatAreThere) {
  EXPECT_EQ(result("put(x, i, y)", {kMatrix, {{2, -1, 0, 3}, {4}}, {{10, 20}, {2}}},
                   {false, true, false}),
            (Values{10, 20, 3, 4, 10, 20}));
  EXPECT_EQ(
      result("put(x, i, y, 1)", {kMatrix, {{1}, {1}}, {{7, 8, 9}, {3, 1}}}, {false, true, false}),
      (Values{1, 7, 3, 8, 5, 9}));
}

TEST(ReferenceBound, LeavesOutWhatLiesBeyond) {
  const auto with = [](std::string_view text, float n) {
    return result(text, {kMatrix, {{n}, {}}}, {false, true});
  };
  EXPECT_EQ(with("x[:n] + 1", 2), (Values{2, 3, 4, 5, kUntouched, kUntouched}));
  EXPECT_EQ(with("x[:, :n]", 1), (Values{1, kUntouched, 3, kUntouched, 5, kUntouched}));
  EXPECT_EQ(with("sum(x[:n], 0)", 2), (Values{4, 6}));
  EXPECT_EQ(with("sum(x[:n], 0)", 0), (Values{0, 0}));
  EXPECT_EQ(with("prod(x[:n], 0)", -1), (Values{1, 1}));
  EXPECT_EQ(with("max(x[:n], 0)", 9), (Values{5, 6}));
  EXPECT_EQ(with("max(x[:n], 0)", 0), (Values{-INFINITY, -INFINITY}));
  EXPECT_TRUE(std::isnan(with("mean(x[:n], 0)", 0)[0]));
  EXPECT_EQ(with("softmax(x[:n], 0)", 0), Values(6, kUntouched));
  EXPECT_EQ(with("sum(transpose(x[:n]), -1)", 1), (Values{1, 2}));
  EXPECT_EQ(result("x[:, :n] * 2", {kMatrix, {{0, 1, 2}, {3, 1}}}, {false, true}),
            (Values{kUntouched, kUntouched, 6, kUntouched, 10, 12}));
}

}  // namespace
}  // namespace kiln::fusion
