// Reductions before there is a kernel: their text, their shapes, what the reference makes of them,
// and how rows are shared out.
#include <gtest/gtest.h>

#include <cmath>

#include "fusion/emit/rows/rows.hpp"
#include "fusion/graph/reduction_calls.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/schedule/rows/row_buffers.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

TypedGraph typed(const std::string& text, DType dtype = DType::f32, std::size_t arguments = 1) {
  const std::vector<ArgumentType> types(arguments, {dtype, false, false});
  return infer(parse(text), types, {}, Rounding::once, "f");
}

TEST(Axes, AreReadFromTheFrontAndTheEnd) {
  EXPECT_EQ(axes_of(axis_set({-1, 2, 0, -32}, "f")), (std::vector<int>{0, 2, -1, -32}));
  EXPECT_EQ(resolve_axes(axis_set({-1}, "f"), 3, "f"), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(resolve_axes(0, 2, "f"), (std::vector<bool>{true, true}));
  EXPECT_THROW(resolve_axes(axis_set({2}, "f"), 2, "f"), Error);
  EXPECT_THROW(axis_set({32}, "f"), Error);
  EXPECT_EQ(axis_text(-7), "-7");
}

TEST(ReductionText, IsReadBack) {
  for (const char* text : {"sum(x, -1)", "max(x)", "argmin(x, 0, 2)", "x / sum(abs(x), -1)",
                           "prod(x, 1), any(x, 0), all(x, 0), mean(x), min(x, -2), argmax(x)"}) {
    EXPECT_EQ(to_text(parse(text)), text);
  }
  for (const std::string_view name : reduction_names()) {
    if (name == "layer_norm" || name == "rms_norm") continue;
    const std::string once = to_text(parse(std::string(name) + "(x, -1)"));
    EXPECT_EQ(to_text(parse(once)), once) << name;
  }
  EXPECT_EQ(to_text(parse("max * max(max, -1)")), "max * max(max, -1)") << "a name is no call";
}

TEST(ReductionText, SaysWhatIsWrong) {
  EXPECT_THROW(parse("sum(x, y)"), Error);
  EXPECT_THROW(parse("sum(x, 1.5)"), Error);
  EXPECT_THROW(parse("sum()"), Error);
  EXPECT_THROW(parse("rms_norm(x)"), Error);
  EXPECT_THROW(parse("rms_norm(x, w, y)"), Error) << "eps is a number";
  try {
    parse("softmaks(x, -1)");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("softmax"), std::string::npos);
  }
}

TEST(ReductionTypes, WidenSmallIntegers) {
  const auto dtype_of = [](const char* text, DType dtype) {
    const TypedGraph graph = typed(text, dtype);
    return graph.nodes[graph.outputs[0]].dtype;
  };
  EXPECT_EQ(dtype_of("sum(x)", DType::i8), DType::i64);
  EXPECT_EQ(dtype_of("sum(x)", DType::boolean), DType::i64);
  EXPECT_EQ(dtype_of("prod(x)", DType::u16), DType::u64);
  EXPECT_EQ(dtype_of("sum(x)", DType::bf16), DType::bf16);
  EXPECT_EQ(dtype_of("mean(x)", DType::i32), DType::f32);
  EXPECT_EQ(dtype_of("max(x)", DType::u8), DType::u8);
  EXPECT_EQ(dtype_of("argmax(x)", DType::f16), DType::i64);
  EXPECT_EQ(dtype_of("any(x)", DType::f32), DType::boolean);
  EXPECT_EQ(dtype_of("sum(x)", DType::c64), DType::c64);
  EXPECT_THROW(typed("argmax(x)", DType::c64), Error);
}

TEST(Shapes, KeepReducedAxes) {
  const auto shape_of = [](const char* text, std::vector<Dims> arguments) {
    const TypedGraph graph = typed(text, DType::f32, arguments.size());
    return infer_shapes(graph, arguments, "f")[graph.outputs[0]];
  };
  EXPECT_EQ(shape_of("sum(x, -1)", {{2, 3, 4}}), (Dims{2, 3, 1}));
  EXPECT_EQ(shape_of("sum(x)", {{2, 3}}), (Dims{1, 1}));
  EXPECT_EQ(shape_of("x - mean(x, 0)", {{2, 3}}), (Dims{2, 3}));
  EXPECT_EQ(shape_of("sum(x * y, -1)", {{5, 1}, {7}}), (Dims{5, 1}));
  EXPECT_THROW(shape_of("sum(x, -1) + y", {{5, 2}, {3, 3}}), Error);
}

// A kernel infers the shapes of its values from what it reads: nothing else may say what they are.
TEST(Shapes, AreTheSameWithoutTrivialReductions) {
  for (const char* text : {"argmax(x, 0)", "cumsum(argmin(x, 0), 1)", "sum(argmax(x, 0), 1)",
                           "all(x > 0.0, 0), mean(x, 0), max(x, 0) + sum(x, 1)"}) {
    const std::vector<Dims> arguments{{1, 10}};
    const TypedGraph graph = typed(text, DType::f32, 1);
    const std::vector<Dims> before = infer_shapes(graph, arguments, "f");
    std::vector<Dims> shapes = before;
    const TypedGraph rest = drop_trivial_reductions(graph, shapes);
    EXPECT_EQ(infer_shapes(rest, arguments, "f"), shapes) << text;
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      EXPECT_EQ(shapes[rest.outputs[i]], before[graph.outputs[i]]) << text;
    }
    EXPECT_EQ(std::ranges::find(rest.nodes, Op::argmax, &TypedNode::op), rest.nodes.end()) << text;
  }
}

TEST(ReduceSpace, TellsWhatOneKernelCanDo) {
  const auto conflict = [](const char* text, std::vector<Dims> arguments) {
    TypedGraph graph = typed(text, DType::f32, arguments.size());
    std::vector<Dims> shapes = infer_shapes(graph, arguments, "f");
    graph = drop_trivial_reductions(graph, shapes);
    return reduce_space(graph, shapes).conflict;
  };
  EXPECT_EQ(conflict("softmax(x, -1) * w", {{8, 4}, {4}}), "");
  EXPECT_EQ(conflict("sum(sum(x, -1), -1)", {{8, 4}}), "") << "the outer one is trivial";
  EXPECT_NE(conflict("sum(sum(x, -1), 0)", {{8, 4}}), "");
  EXPECT_NE(conflict("sum(x, -1) + sum(w, -1)", {{8, 4}, {8, 5}}), "");
  EXPECT_NE(conflict("sum(x, -1), w * 2", {{8, 4}, {4}}), "") << "would be stored by every row";
  EXPECT_NE(conflict("sum(x, 1, 2) + sum(w, 1, 2)", {{8, 4, 3}, {8, 1, 3}}), "")
      << "a shorter operand would be counted four times";
}

Layout rows_of(std::int64_t length, DType dtype, Backend backend, const RowFeatures& device = {},
               int passes = 2, std::int64_t count = 1000) {
  ReduceSpace space{{count, length}, {false, true}, {}};
  space.passes = passes;
  std::vector<Operand> operands(2);
  operands[0] = {dtype, false, {length, 1}, 0};
  operands[1] = {dtype, true, {1, 0}, 0};
  return plan_rows(space, space.shape, operands, {false, true}, false, backend, device);
}

TEST(RowLayout, BlocksOfAClusterShareLongRows) {
  const Layout shared = rows_of(131072, DType::bf16, Backend::nvidia, {true});
  const RowSchedule& rows = shared.schedule.reduction;
  EXPECT_EQ(rows.cluster_blocks, 4);
  EXPECT_EQ(rows.threads, 2048);
  EXPECT_EQ(rows.block(), 512);
  EXPECT_EQ(rows.vectors, 8) << "kept, though no block has room for the row";
  EXPECT_EQ(shared.work_items, 4000u);
  EXPECT_EQ(rows_of(131072, DType::bf16, Backend::nvidia).schedule.reduction.cluster_blocks, 1);
  EXPECT_EQ(rows_of(65536, DType::bf16, Backend::nvidia, {true}).schedule.reduction.cluster_blocks,
            1);
  EXPECT_EQ(rows_of(131072, DType::f32, Backend::nvidia, {true}).schedule.reduction.cluster_blocks,
            8);
  const Layout longest = rows_of(1 << 20, DType::f32, Backend::nvidia, {true});
  EXPECT_EQ(longest.schedule.reduction.cluster_blocks, 1)
      << "more than clusters have on every device";
  EXPECT_EQ(longest.schedule.reduction.vectors, 0);
  const auto blocks = [](int passes, std::int64_t count) {
    return rows_of(131072, DType::bf16, Backend::nvidia, {true}, passes, count)
        .schedule.reduction.cluster_blocks;
  };
  EXPECT_EQ(blocks(1, 1000), 1) << "read once";
  EXPECT_EQ(blocks(1, 100), 4) << "too few for a block each";
}

// A row with so many weights, of which there are as many results.
RowSchedule with_weights(std::int64_t length, DType dtype, int weights, bool roomy) {
  ReduceSpace space{{1000, length}, {false, true}, {}};
  space.passes = 2;
  std::vector<Operand> operands(static_cast<std::size_t>(weights) + 2, {dtype, false, {0, 1}, 0});
  operands.front().strides = operands.back().strides = {length, 1};
  operands.back().output = true;
  const std::vector<bool> uniform(operands.size(), false);
  return plan_rows(space, space.shape, operands, uniform, false, Backend::nvidia, {true, roomy})
      .schedule.reduction;
}

TEST(RowLayout, TwoBlocksKeepLongRowsWhereThereIsMoreSharedMemory) {
  const RowSchedule rows = with_weights(65536, DType::bf16, 1, true);
  EXPECT_EQ(rows.block(), 512);
  EXPECT_EQ(rows.vectors, 16);
  EXPECT_EQ(rows.in_smem, 12);
  EXPECT_EQ(with_weights(65536, DType::bf16, 1, false).block(), 1024);
  EXPECT_EQ(with_weights(65536, DType::bf16, 2, true).block(), 1024) << "room for weights";
  EXPECT_EQ(with_weights(65536, DType::f32, 1, true).cluster_blocks, 2);
  EXPECT_EQ(with_weights(65536, DType::f32, 1, true).block(), 512);
  EXPECT_EQ(with_weights(65536, DType::f32, 1, false).cluster_blocks, 4);
  EXPECT_EQ(with_weights(65536, DType::f16, 1, true).in_smem, 10);
  EXPECT_EQ(with_weights(32768, DType::f16, 2, true).in_smem, 8);
  EXPECT_EQ(with_weights(32768, DType::f16, 2, false).in_smem, 7);
  EXPECT_EQ(with_weights(65536, DType::f16, 2, true).in_smem, 3);
  EXPECT_EQ(with_weights(32768, DType::f16, 1, true).in_smem, 7) << "as everywhere";
}

// Rows of two operands that two passes read, with weights or without, and how many sums are added
// up in a pass.
Schedule of_two(std::int64_t length, DType dtype, bool weighted, int trees = 1) {
  ReduceSpace space{{1000, length}, {false, true}, {}};
  space.passes = 2;
  space.trees = trees;
  space.read_again = {true, true, true};
  std::vector<Operand> operands(weighted ? 4 : 3, {dtype, false, {length, 1}, 0});
  if (weighted) operands[2].strides = {0, 1};
  operands.back().output = true;
  const std::vector<bool> uniform(operands.size(), false);
  return plan_rows(space, space.shape, operands, uniform, false, Backend::nvidia, {true, true})
      .schedule;
}

TEST(RowLayout, CopiesRowsOfTwoOperandsBesideWeights) {
  for (const std::int64_t length : {14336, 16384, 24576, 32768}) {
    const RowSchedule rows = of_two(length, DType::bf16, true).reduction;
    EXPECT_TRUE(rows.copied) << length;
    EXPECT_EQ(rows.threads, 512);
    EXPECT_EQ(rows.vectors, (length / 8 + 511) / 512);
    EXPECT_EQ(rows.in_smem, rows.vectors);
    EXPECT_EQ(rows.full_vectors, length / 8 / 512);
    EXPECT_FALSE(of_two(length, DType::bf16, false).reduction.copied) << length;
  }
  EXPECT_FALSE(of_two(8192, DType::bf16, true).reduction.copied) << "fits registers";
  EXPECT_FALSE(of_two(16384, DType::f32, true).reduction.copied) << "half as much work";
  // All lanes of an operand take shared memory, be they one element.
  constexpr std::int64_t kLength = 28'672;
  ReduceSpace space{{1000, kLength}, {false, true}, {}};
  space.passes = 2;
  space.trees = 1;
  std::vector<Operand> operands(8, {DType::bf16, false, {1, 0}, 0});
  operands[0].strides = operands.back().strides = {kLength, 1};
  operands[6].strides = {0, 1};
  operands.back().output = true;
  const std::vector<bool> uniform(operands.size(), false);
  EXPECT_FALSE(
      plan_rows(space, space.shape, operands, uniform, false, Backend::nvidia, {true, true})
          .schedule.reduction.copied);
}

TEST(RowLayout, AClusterHasABlockForEachChunkAlsoWithoutTrees) {
  EXPECT_EQ(of_two(65536, DType::f32, false, 0).reduction.cluster_blocks, 4) << "no room for one";
  for (const int trees : {0, 1}) {
    EXPECT_EQ(of_two(65536, DType::bf16, false, trees).reduction.cluster_blocks, 2) << trees;
    EXPECT_EQ(of_two(151936, DType::bf16, false, trees).reduction.cluster_blocks, 5) << trees;
  }
}

// Group norm of an image whose channels are innermost, two to a group.
TEST(RowLayout, CopiesNoWeightsOfJoinedColumns) {
  constexpr std::int64_t kPixels = 3136;
  ReduceSpace space{{1000, kPixels, 32, 2}, {false, true, false, true}, {}};
  space.passes = 3;
  space.trees = 1;
  space.read_again = {true, false};
  const std::vector<Operand> operands{{DType::bf16, false, {kPixels * 64, 64, 2, 1}, 0},
                                      {DType::bf16, false, {0, 0, 2, 1}, 0},
                                      {DType::bf16, true, {kPixels * 64, 64, 2, 1}, 0}};
  const Schedule schedule = plan_rows(space, space.shape, operands, {false, false, false}, false,
                                      Backend::nvidia, {true, true})
                                .schedule;
  EXPECT_EQ(schedule.reduction.joined, 2);
  EXPECT_TRUE(schedule.reduction.copied);
  EXPECT_TRUE(schedule.operands[0].in_registers);
  EXPECT_FALSE(schedule.operands[1].in_registers);
}

TEST(RowLayout, SharesRowsOut) {
  const Layout middle = rows_of(4096, DType::bf16, Backend::nvidia);
  EXPECT_EQ(middle.schedule.width, 8);
  EXPECT_EQ(middle.schedule.reduction.threads, 64);
  EXPECT_EQ(middle.schedule.reduction.vectors, 8) << "only reads";
  EXPECT_EQ(middle.schedule.reduction.full_vectors, 8);
  EXPECT_EQ(middle.schedule.operands[0].alignment, 16);
  const Layout brief = rows_of(64, DType::bf16, Backend::amd);
  EXPECT_EQ(brief.schedule.reduction.threads, 8);
  EXPECT_EQ(brief.schedule.reduction.rows, 32) << "many short rows share a wave";
  EXPECT_EQ(brief.work_items, 32u);
  const Layout half = rows_of(32768, DType::bf16, Backend::nvidia);
  EXPECT_EQ(half.schedule.reduction.threads, 512);
  EXPECT_EQ(half.schedule.reduction.vectors, 8);
  EXPECT_EQ(half.schedule.reduction.in_smem, 7)
      << "60 KiB are all that every device has for a block";
  EXPECT_EQ(rows_of(32768, DType::bf16, Backend::amd).schedule.reduction.in_smem, 0);
  const Layout longer = rows_of(1 << 20, DType::f32, Backend::nvidia);
  EXPECT_EQ(longer.schedule.reduction.vectors, 0) << "read again by each pass";
  EXPECT_EQ(longer.schedule.reduction.batch, 4);
  const Layout odd = rows_of(4097, DType::bf16, Backend::nvidia);
  EXPECT_EQ(odd.schedule.width, 8) << "rows begin within vectors";
  EXPECT_EQ(odd.schedule.reduction.phase, 0);
  EXPECT_EQ(odd.schedule.operands[0].alignment, 16);
  EXPECT_EQ(odd.vectors, 512);
  EXPECT_EQ(odd.schedule.reduction.full_vectors, 7)
      << "rows that begin within a vector have one fewer";
  EXPECT_EQ(rows_of(513, DType::bf16, Backend::nvidia).schedule.reduction.phase, 0);
  EXPECT_EQ(rows_of(7, DType::bf16, Backend::nvidia).schedule.width, 1) << "too short";
  EXPECT_EQ(rows_of(4096, DType::f32, Backend::host).work_items, 1000u);
}

TEST(RowLayout, MovesShortRowsThatAreNoVectorsThroughSharedMemory) {
  for (const Backend backend : {Backend::amd, Backend::nvidia}) {
    for (const std::int64_t length : {7, 33, 49, 100, 257, 511}) {
      const Schedule few = rows_of(length, DType::bf16, backend).schedule;
      EXPECT_EQ(few.operands[0].access, Access::staged) << length;
      EXPECT_EQ(few.width, 1);
      EXPECT_LE(few.reduction.threads, 32);
      EXPECT_EQ(few.reduction.block(), 128);
      EXPECT_GE(few.reduction.vectors * few.reduction.threads, length);
      EXPECT_LE(few.reduction.full_vectors * few.reduction.threads, length);
    }
    EXPECT_EQ(rows_of(64, DType::bf16, backend).schedule.operands[0].access, Access::contiguous);
    EXPECT_EQ(rows_of(513, DType::bf16, backend).schedule.operands[0].access, Access::contiguous);
  }
  const ReduceSpace space{{1 << 20, 49}, {false, true}, {}};
  const auto threads_of = [&](std::int64_t stride) {
    const std::vector<Operand> operands = {{DType::bf16, false, {stride, 1}, 2}};
    const Schedule many =
        plan_rows(space, space.shape, operands, {false}, false, Backend::nvidia, {}).schedule;
    return many.operands[0].access == Access::staged ? many.reduction.threads : 0;
  };
  EXPECT_EQ(threads_of(49), 2) << "as few as have registers for the row";
  EXPECT_EQ(threads_of(50), 0) << "rows with gaps are no range of memory";
}

TEST(RowLayout, IsThereForRowsOfNothing) {
  const ReduceSpace space{{1000, 0}, {false, true}, {}};
  const Operand row{DType::bf16, false, {0, 1}, 0};
  const std::vector<Operand> stored = {row, {DType::bf16, true, {0, 1}, 0}};
  for (const Backend backend : {Backend::host, Backend::amd, Backend::nvidia}) {
    for (const RowFeatures device : {RowFeatures{}, RowFeatures{true, true}}) {
      EXPECT_GE(rows_of(0, DType::bf16, backend, device).schedule.reduction.rows, 1);
      EXPECT_GE(plan_rows(space, space.shape, stored, {false, false}, false, backend, device)
                    .schedule.reduction.rows,
                1);
    }
  }
}

TEST(RowLayout, TellsTheHostWhetherRowsAreWholeVectors) {
  const auto row_of = [](std::int64_t length) {
    return rows_of(length, DType::f32, Backend::host).schedule;
  };
  EXPECT_FALSE(row_of(4096).reduction.ragged);
  EXPECT_TRUE(row_of(4097).reduction.ragged);
  EXPECT_GT(row_of(4097).reduction.vectors, 1);
  EXPECT_TRUE(row_of(63).reduction.ragged);
  EXPECT_EQ(row_of(63).width, 64);
  EXPECT_EQ(row_of(63).reduction.vectors, 1);
  EXPECT_NE(row_of(0).reduction.vectors, 1) << "there is no vector";
}

TEST(RowLayout, OneKernelOfTheHostIsForRowsOfManyLengths) {
  const auto vectors = [](std::int64_t length) {
    return rows_of(length, DType::f32, Backend::host).schedule.reduction.vectors;
  };
  EXPECT_EQ(vectors(257), vectors(1 << 14));
  EXPECT_EQ(vectors((1 << 14) + 1), vectors(1 << 17));
  EXPECT_NE(vectors(1 << 14), vectors(1 << 17));
  EXPECT_EQ(vectors((1 << 17) + 1), 0) << "nothing of it is kept";
}

Layout columns_of(const Dims& shape, DType dtype, Backend backend) {
  const ReduceSpace space{shape, {true, false}, {}};
  std::vector<Operand> operands(2);
  operands[0] = {dtype, false, {shape[1], 1}, 0};
  operands[1] = {dtype, true, {0, 1}, 0};
  return plan_rows(space, space.shape, operands, {false, true}, false, backend);
}

TEST(ColumnLayout, ReadsNeighbouringColumnsTogether) {
  const Layout few = columns_of({65536, 4096}, DType::f32, Backend::nvidia);
  EXPECT_EQ(few.schedule.width, 4);
  EXPECT_EQ(few.schedule.reduction.columns, 8) << "a cache line";
  EXPECT_EQ(few.schedule.reduction.threads, 64);
  EXPECT_EQ(few.schedule.reduction.batch, 4);
  EXPECT_EQ(few.schedule.operands[0].alignment, 16);
  EXPECT_EQ(few.work_items, 128u);
  const Layout many = columns_of({64, 1 << 20}, DType::bf16, Backend::amd);
  EXPECT_EQ(many.schedule.reduction.threads, 2);
  EXPECT_EQ(many.schedule.reduction.columns, 128);
  const Layout narrow = columns_of({1 << 20, 3}, DType::f32, Backend::amd);
  EXPECT_EQ(narrow.schedule.reduction.columns, 1) << "more threads share each";
  EXPECT_EQ(narrow.schedule.reduction.threads, 512);
  const Layout fewer = columns_of({65536, 4096}, DType::bf16, Backend::nvidia);
  EXPECT_EQ(fewer.schedule.reduction.columns, 4) << "half a line, so that there are more blocks";
  EXPECT_EQ(fewer.schedule.reduction.threads, 128);
  const Layout brief = columns_of({4, 256}, DType::f32, Backend::nvidia);
  EXPECT_EQ(brief.schedule.reduction.vectors, 4) << "kept in registers";
  EXPECT_EQ(brief.schedule.reduction.threads, 1);
  EXPECT_EQ(columns_of({1000, 4096}, DType::f32, Backend::host).work_items, 4u);
  EXPECT_EQ(columns_of({1000, 60}, DType::f32, Backend::host).schedule.width, 64);
}

TEST(ColumnLayout, IsWhatATestAsksFor) {
  ReduceSpace space{{64, 70}, {true, false}, {}};
  space.passes = 2;
  std::vector<Operand> operands(2);
  operands[0] = {DType::f32, false, {70, 1}, 0};
  operands[1] = {DType::f32, true, {70, 1}, 0};
  const auto of = [&](const ForcedRows& forced) {
    return plan_rows(space, space.shape, operands, {false, false}, false, Backend::nvidia,
                     {false, false, forced})
        .schedule.reduction;
  };
  EXPECT_EQ(of({}).threads, 16) << "for so few columns";
  EXPECT_EQ(of({.keeps_columns = true}).threads, 4) << "as few as have room for all elements";
  EXPECT_EQ(of({.keeps_columns = true}).vectors, 16);
  EXPECT_EQ(of({.columns = 2}).columns, 2);
  EXPECT_EQ(of({.keeps_columns = true, .columns = 2}).columns, 2);
  EXPECT_EQ(of({.keeps_columns = true, .columns = 2}).vectors, 16);
}

// A thread's sums, of a batch of residues and of one group of each size, leave registers for loads.
TEST(ColumnLayout, HasFewSumsInAThread) {
  const auto of = [](std::int64_t length, int trees, Backend backend) {
    ReduceSpace space{{4096, length, 768}, {false, true, false}, {}};
    space.reductions = trees;
    space.trees = trees;
    std::vector<Operand> operands(2);
    operands[0] = {DType::bf16, false, {length * 768, 768, 1}, 0};
    operands[1] = {DType::bf16, true, {768, 0, 1}, 0};
    return plan_rows(space, space.shape, operands, {false, true}, false, backend).schedule;
  };
  const Schedule one = of(64, 1, Backend::amd);
  EXPECT_EQ(one.reduction.threads, 1);
  EXPECT_EQ(one.reduction.groups, 8);
  EXPECT_EQ(one.reduction.vectors, 0);
  const Schedule two = of(77, 2, Backend::nvidia);
  EXPECT_EQ(two.width, 4);
  EXPECT_EQ(two.reduction.threads, 8);
  EXPECT_EQ(two.reduction.vectors, 10) << "all loads are in flight at once";
  const Schedule longer = of(4096, 1, Backend::nvidia);
  EXPECT_EQ(longer.width, 8);
  EXPECT_EQ(longer.reduction.threads, 64);
  EXPECT_EQ(longer.reduction.groups, 4);
  const Schedule three = of(4096, 3, Backend::nvidia);
  EXPECT_LT(three.width, longer.width);
}

// What one pass reads takes no registers between passes.
TEST(ColumnLayout, KeepsWhatIsReadAgain) {
  const TypedGraph graph = typed("x * rsqrt(mean(x * x, -2)) * g + r", DType::f32, 3);
  const std::vector<Dims> own(3, {64, 512, 4096});
  const ReduceSpace space = reduce_space(graph, infer_shapes(graph, own, "f"));
  EXPECT_EQ(space.read_again, (std::vector<bool>{true, false, false}));
  std::vector<Operand> operands(4);
  for (Operand& operand : operands) operand = {DType::f32, false, {512 * 4096, 4096, 1}, 0};
  operands[3].output = true;
  const Schedule schedule =
      plan_rows(space, space.shape, operands, std::vector<bool>(4, false), false, Backend::nvidia)
          .schedule;
  EXPECT_TRUE(schedule.operands[0].in_registers);
  EXPECT_FALSE(schedule.operands[1].in_registers);
  EXPECT_EQ(schedule.reduction.vectors, 8);
  EXPECT_EQ(schedule.reduction.min_blocks, 2);
}

// Long columns are kept by as many blocks as a multiprocessor has room for, in lines where several
// are, also with some of them in registers; what has no room, or too few columns, is read again.
TEST(ColumnLayout, KeepsLongColumnsInClusters) {
  const auto of = [](const std::string& text, std::int64_t rows, std::int64_t columns) {
    const TypedGraph graph = typed(text, DType::bf16, text.find("+ r") == text.npos ? 1 : 2);
    const std::vector<Dims> own(graph.arguments.size(), {rows, columns});
    const ReduceSpace space = reduce_space(graph, infer_shapes(graph, own, "f"));
    std::vector<Operand> operands(own.size() + 1);
    for (Operand& operand : operands) operand = {DType::bf16, false, {columns, 1}, 0};
    operands.back().output = true;
    return plan_rows(space, space.shape, operands, std::vector<bool>(operands.size(), false), false,
                     Backend::nvidia, {true, true})
        .schedule.reduction;
  };
  const std::string norm_text = "c = x - mean(x, -2); c / sqrt(mean(c * c, -2))";
  const RowSchedule norm = of(norm_text, 4096, 65536);
  EXPECT_EQ(norm.cluster_blocks, 8);
  EXPECT_EQ(norm.columns, 8) << "a line";
  EXPECT_EQ(norm.threads, 8 * 32);
  EXPECT_EQ(norm.vectors, 16);
  EXPECT_EQ(norm.min_blocks, 3);
  EXPECT_EQ(norm.register_vectors(), 0);
  EXPECT_TRUE(norm.copied);
  const RowSchedule longer = of(norm_text, 16384, 16384);
  EXPECT_EQ(longer.columns, 4) << "half a line, of which there is room for so many";
  EXPECT_EQ(longer.min_blocks, 2);
  EXPECT_EQ(longer.register_vectors(), 6) << "beside which shared memory has room for two blocks";
  EXPECT_EQ(of(norm_text, 32768, 16384).min_blocks, 1);
  EXPECT_FALSE(of(norm_text, 32769, 16384).copied) << "several chunks";
  EXPECT_TRUE(of("x / sqrt(mean(x * x, -2))", 4096, 65536).copied) << "read twice";
  EXPECT_TRUE(of("h = x + r; c = h - mean(h, -2); c / sqrt(mean(c * c, -2))", 4096, 65536).copied);
  EXPECT_FALSE(of(norm_text, 4096, 512).copied) << "fewer blocks than multiprocessors";
  const RowSchedule few = of(norm_text, 65536, 4096);
  EXPECT_EQ(few.cluster_blocks, 2) << "which share a line";
  EXPECT_EQ(few.columns, 8);
  EXPECT_EQ(few.vectors, 0);
}

// Elements of a residue are added up one after the other, by one thread.
TEST(ColumnLayout, GivesEachResidueOneThread) {
  for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
    const TypedGraph graph = typed("c = x - mean(x, -2); mean(c * c, -2)", dtype);
    for (const std::int64_t length : {1000, 1100, 1919, 2032, 2048, 3000, 5000, 20000}) {
      for (const std::int64_t columns : {1, 2, 3, 7, 8, 16, 45, 49, 64, 100, 512, 1000}) {
        const Dims shape = {length, columns};
        const ReduceSpace space = reduce_space(graph, infer_shapes(graph, std::vector{shape}, "f"));
        std::vector<Operand> operands(2);
        operands[0] = {dtype, false, {columns, 1}, 0};
        operands[1] = {dtype, true, {0, 1}, 0};
        const RowSchedule rows =
            plan_rows(space, shape, operands, {false, true}, false, Backend::nvidia, {true, true})
                .schedule.reduction;
        EXPECT_LE(rows.threads, residues_of(length))
            << name(dtype) << ", " << columns << " columns of " << length;
      }
    }
  }
}

// Registers that a thread of kept columns needs decide how many blocks a multiprocessor has.
TEST(ColumnLayout, GivesBlocksThatKeepColumnsAsManyRegistersAsTheyNeed) {
  const auto of = [](DType dtype, std::int64_t length, std::int64_t columns) {
    const TypedGraph graph = typed("x / sqrt(mean(x * x, -2))", dtype);
    const Dims shape = {4096, length, columns};
    const ReduceSpace space = reduce_space(graph, infer_shapes(graph, std::vector{shape}, "f"));
    std::vector<Operand> operands(2);
    for (Operand& own : operands) own = {dtype, false, {length * columns, columns, 1}, 0};
    operands.back().output = true;
    return plan_rows(space, shape, operands, {false, false}, false, Backend::nvidia, {true, true})
        .schedule;
  };
  EXPECT_EQ(of(DType::f32, 256, 3136).reduction.min_blocks, 4);
  EXPECT_EQ(of(DType::bf16, 256, 3136).reduction.min_blocks, 3);
  EXPECT_EQ(of(DType::bf16, 1000, 3136).reduction.min_blocks, 2);
  const Schedule odd = of(DType::bf16, 512, 49);
  EXPECT_EQ(odd.width, 1);
  EXPECT_EQ(odd.reduction.vectors, 32) << "each of which has a register";
}

TEST(ReferenceOfReductions, KnowsTheDefinitions) {
  float x[] = {1, 2, 3, 4, 5, 6};
  const TypedGraph graph = typed("sum(x, -1), mean(x, 0), argmax(x), var(x, -1), logsumexp(x, -1)");
  const std::vector<Dims> own = {{2, 3}};
  const std::vector<Dims> shapes = infer_shapes(graph, own, "f");
  float sums[2], means[3], variances[2], logs[2];
  std::int64_t place = 0;
  const ReferenceOperand argument{x, DType::f32, {3, 1}, 0};
  const ReferenceOperand outputs[] = {{sums, DType::f32, {1, 0}, 0},
                                      {means, DType::f32, {0, 1}, 0},
                                      {&place, DType::i64, {0, 0}, 0},
                                      {variances, DType::f32, {1, 0}, 0},
                                      {logs, DType::f32, {1, 0}, 0}};
  evaluate_arrays(graph, shapes, std::span(&argument, 1), outputs);
  EXPECT_EQ(sums[1], 15);
  EXPECT_EQ(means[2], 4.5f);
  EXPECT_EQ(place, 5);
  EXPECT_FLOAT_EQ(variances[0], 2.0f / 3);
  EXPECT_FLOAT_EQ(logs[0], std::log(std::exp(1.0f) + std::exp(2.0f) + std::exp(3.0f)));
}

// Twice 64 bits are more than the interpreter's integers hold with a sign.
TEST(ReferenceOfReductions, WrapsProductsOfTheLargestIntegers) {
  const std::uint64_t x[] = {UINT64_MAX, UINT64_MAX, UINT64_MAX - 2};
  const TypedGraph graph = typed("prod(x, -1), cumprod(x, -1)", DType::u64);
  const std::vector<Dims> shapes = infer_shapes(graph, std::vector<Dims>{{3}}, "f");
  std::uint64_t all = 0;
  std::uint64_t running[3] = {};
  const ReferenceOperand argument{const_cast<std::uint64_t*>(x), DType::u64, {1}, 0};
  const ReferenceOperand outputs[] = {{&all, DType::u64, {0}, 0}, {running, DType::u64, {1}, 0}};
  evaluate_arrays(graph, shapes, std::span(&argument, 1), outputs);
  EXPECT_EQ(all, x[0] * x[1] * x[2]);
  EXPECT_EQ(running[1], 1u);
  EXPECT_EQ(running[2], all);
}

// Rows of the CPU in another order than that of their count: in whole where that fits into the
// caches; else a chunk of the tree, or those of neighbouring parts, until lines of memory are
// whole.
TEST(RowBuffers, HaveWholeRowsOrChunks) {
  const auto elements = [](std::int64_t length, std::int64_t splits, std::int64_t behind) {
    return buffered_elements(
        {.length = length, .splits = splits, .behind = behind, .bytes = 4, .narrowest = 4});
  };
  EXPECT_EQ(elements(1 << 15, 1, 4096), 0);
  EXPECT_EQ(elements(1 << 17, 1, 4096), 0);
  EXPECT_EQ(elements(1 << 18, 1, 4096), 1 << 15);
  EXPECT_EQ(elements(1 << 24, 512, 256), 1 << 15);
  EXPECT_EQ(elements(1 << 24, 512, 4096), 1 << 18);
  EXPECT_EQ(elements(1 << 24, 512, 1 << 20), 1 << 20);
  EXPECT_EQ(elements(1 << 27, 512, 4096), 1 << 17) << "of eight stretches";
  EXPECT_EQ(elements(1 << 30, 512, 4096), 1 << 15) << "of more than there may be";
}

TEST(RowBuffers, AreOfOperandsWhoseNeighboursAreFarApartInTheCount) {
  ReduceSpace space;
  space.shape = {8, 16, 64};
  space.reduced = {false, true, true};
  space.passes = 1;
  space.reductions = 1;
  space.trees = 1;
  const auto of = [](Dims strides, bool output = false) {
    Operand operand;
    operand.dtype = DType::f32;
    operand.strides = std::move(strides);
    operand.output = output;
    return operand;
  };
  const std::vector<Operand> operands = {of({1024, 1, 16}), of({1024, 64, 1}), of({0, 1, 0}),
                                         of({1, 0, 0}, true)};
  const Layout layout =
      plan_rows(space, space.shape, operands, {false, false, false, true}, false, Backend::host);
  EXPECT_TRUE(layout.schedule.is_buffered(0));
  EXPECT_EQ(layout.schedule.operands[0].along, 1);
  EXPECT_EQ(layout.schedule.operands[1].access, Access::contiguous);
  for (std::size_t i = 1; i < operands.size(); ++i) EXPECT_FALSE(layout.schedule.is_buffered(i));
}

}  // namespace
}  // namespace kiln::fusion
