// What `kiln bench --sweep` draws: the same functions on every machine, which kiln understands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/text/text.hpp"
#include "tool/commands.hpp"
#include "tool/sweep/draw.hpp"

namespace kiln::tool {
namespace {

using ::testing::HasSubstr;

std::string line_of(const DrawnFunction& function) {
  std::string line = function.name + " | " + function.text + " |";
  const std::int64_t free = free_extent(function, std::uint64_t{64} << 20);
  for (const DrawnArgument& argument : function.arguments) line += " " + to_text(argument, free);
  return line;
}

TEST(Sweep, ASeedGivesTheSameFunctionsOnEveryMachine) {
  const std::vector<DrawnFunction> drawn = draw_functions(1, 4, "");
  EXPECT_EQ(line_of(drawn[0]),
            "elementwise_0 | t0 = tanh(x / 30.0) * 30.0 * g0; t = t0 + y[..., 3:16387]; bf16(t) | "
            "x=f16[2047,16384] g0=f16[2047,16384] y=f16[2047,16392]");
  EXPECT_EQ(line_of(drawn[1]),
            "rows_1 | h = x + r; y = softmax(where(mask, h * 0.125, -inf), -1); t0 = y * s0; t1 = "
            "t0 * s1; t1 | x=bf16[3048,11008] r=bf16[3048,11008] mask=bool[1,11008] "
            "s0=f32[3048,1] s1=f32[3048,1]");
  EXPECT_EQ(line_of(drawn[2]), "columns_2 | sum(x * x, -2) | x=bf16[8,1024,4096]");
}

TEST(Sweep, AFunctionDoesNotDependOnHowManyAreDrawn) {
  const std::vector<DrawnFunction> few = draw_functions(7, 5, "rows");
  const std::vector<DrawnFunction> many = draw_functions(7, 50, "rows");
  std::set<std::string> texts;
  for (std::size_t k = 0; k < few.size(); ++k) EXPECT_EQ(line_of(few[k]), line_of(many[k]));
  for (const DrawnFunction& function : many) texts.insert(line_of(function).substr(8));
  EXPECT_GT(texts.size(), 40u);
  EXPECT_NE(line_of(draw_functions(8, 1, "rows")[0]), line_of(many[0]));
}

TEST(Sweep, AnUnknownFamilyIsRefusedWithThoseThatThereAre) {
  try {
    draw_functions(1, 1, "convolutions");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("elementwise, rows, columns"));
  }
}

// The shapes of what a function gives, with that free extent.
std::vector<Dims> output_shapes(const DrawnFunction& function, std::int64_t free) {
  const fusion::Graph graph = fusion::parse(function.text);
  std::vector<fusion::ArgumentType> types;
  std::vector<Dims> shapes;
  for (const std::string& name : graph.arguments()) {
    const auto argument = std::ranges::find(function.arguments, name, &DrawnArgument::name);
    if (argument == function.arguments.end()) return {};
    types.push_back({argument->dtype, false, false});
    shapes.push_back(shape_of(*argument, free));
  }
  if (types.size() != function.arguments.size()) return {};
  const fusion::ShapedGraph shaped = fusion::shape_graph(
      fusion::infer(graph, types, {}, Rounding::once, function.name), shapes, function.name);
  std::vector<Dims> outputs;
  for (const fusion::NodeId output : shaped.graph.outputs) outputs.push_back(shaped.shapes[output]);
  return outputs;
}

// What is compared with the reference is a part along the free extent.
TEST(Sweep, EveryFamilyIsUnderstoodAtAnySizeAndGrowsAlongOneAxis) {
  for (const std::string_view family : sweep_families()) {
    for (const DrawnFunction& function : draw_functions(3, 60, family)) {
      SCOPED_TRACE(line_of(function));
      const std::vector<Dims> small = output_shapes(function, 2);
      const std::vector<Dims> large = output_shapes(function, 65);
      ASSERT_FALSE(small.empty());
      for (std::size_t i = 0; i < small.size(); ++i) {
        int grow = 0;
        for (std::size_t axis = 0; axis < small[i].size(); ++axis) {
          if (small[i][axis] == large[i][axis]) continue;
          ++grow;
          EXPECT_EQ(small[i][axis] * 65, large[i][axis] * 2);
        }
        EXPECT_EQ(grow, 1);
      }
    }
  }
}

TEST(Sweep, TheArgumentThatGrowsFastestHasTheSizeThatWasAskedFor) {
  DrawnFunction function;
  function.arguments = {{"x", DType::bf16, {kFreeExtent, 1000}},
                        {"s", DType::f32, {kFreeExtent, 1}}};
  EXPECT_EQ(free_extent(function, 1 << 20), 524);
  function.share = 16;
  EXPECT_EQ(free_extent(function, 1 << 20), 32);
  function.multiple = 64;
  EXPECT_EQ(free_extent(function, 1 << 20), 32);
  EXPECT_EQ(free_extent(function, 1 << 22), 128);
  EXPECT_EQ(free_extent(function, 1), 1);
}

}  // namespace
}  // namespace kiln::tool
