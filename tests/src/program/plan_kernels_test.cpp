// Which kernels programs are cut into, and what these compute: views that move to where they cost
// nothing, layers of a language model, and dtypes of what is stored.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fusion/emit/node_text.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/text/text.hpp"
#include "tests/src/program/plan_cases.hpp"

namespace kiln {
namespace {

using testing::definition_of;

// What only moves is of the dtype in memory from the load to the store, on every kind of device.
TEST(ProgramPlan, ConvertsNothingThatOnlyMoves) {
  const std::string text = "x, x[::-1], concat(0, x, y), reshape(transpose(y), -1), x[None]";
  for (const DType dtype : {DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2,
                            DType::f8e4m3fnuz, DType::f8e5m2fnuz}) {
    CallTypes call;
    for (int i = 0; i < 2; ++i) {
      call.arguments.push_back({dtype, false, false});
      call.arrays.push_back({dtype, {6, 10}, {10, 1}});
    }
    for (const Dims& shape : {Dims{6, 10}, {6, 10}, {12, 10}, {60}, {1, 6, 10}}) {
      call.outputs.push_back({dtype, shape, contiguous_strides(shape)});
    }
    for (const Rounding rounding : {Rounding::once, Rounding::each}) {
      const Definition definition = definition_of(fusion::parse(text), rounding);
      const ProgramPlan plan = plan_program(definition, call);
      for (const ProgramStep& step : plan.steps) {
        const fusion::TypedGraph& graph = step.kernel->function().graph;
        const fusion::NodeText nodes(graph, Accuracy::storage, fusion::Backend::nvidia);
        for (fusion::NodeId id = 0; id < graph.nodes.size(); ++id) {
          EXPECT_EQ(graph.nodes[id].dtype, dtype) << fusion::info(graph.nodes[id].op).name;
          EXPECT_FALSE(nodes.needs_value(id)) << name(dtype) << " is computed with";
        }
      }
    }
  }
}

// A kernel's text has numbers of their dtype with as few digits as the caller's.
TEST(ProgramPlan, PrintsNumbersWithTheFewestDigits) {
  const Dims shape{64, 512};
  const auto text_of = [&](DType dtype) {
    CallTypes call;
    call.arguments.push_back({dtype, false, false});
    call.arrays.push_back({dtype, shape, contiguous_strides(shape)});
    const char* text = "x * 1e-5 + 0.1 - 3e-42 + 16777216.0";
    return plan_program(definition_of(fusion::parse(text)), call).info.kernels.at(0).expression;
  };
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
    EXPECT_EQ(text_of(dtype), "x * 1e-05 + 0.1 - 3e-42 + 16777216.0") << name(dtype);
  }
}

// Few long rows are two kernels, but for products with small weights: a Function's are one kernel,
// of another order.
TEST(SplitReductions, LeaveProductsOfSmallWeightsWhole) {
  const auto kernels = [](const std::string& text, DType weights, DType vectors, Dims vector_shape,
                          std::string_view target) {
    CallTypes call;
    call.target = target;
    const Dims shapes[] = {{16, 150'000}, std::move(vector_shape)};
    for (int i = 0; i < 2; ++i) {
      const DType dtype = i == 0 ? weights : vectors;
      call.arguments.push_back({dtype, false, false});
      call.arrays.push_back({dtype, shapes[i], contiguous_strides(shapes[i])});
    }
    return plan_program(definition_of(fusion::parse(text)), call).steps.size();
  };
  for (const char* text :
       {"sum(q * x, -1)", "q = q; sum(x * (f32(q) * 0.5), -1)", "q = q; sum(f32(q) * x * 0.5, -1)",
        "sum(f64(q) * f64(x), -1)", "sum(abs(f32(q) - f32(x)), -1)"}) {
    for (const DType weights : {DType::i8, DType::f8e4m3}) {
      EXPECT_EQ(kernels(text, weights, DType::bf16, {150'000}, "sm_90"), 1U) << text;
      EXPECT_EQ(kernels(text, weights, DType::bf16, {150'000}, "gfx90a"), 1U) << text;
      EXPECT_EQ(kernels(text, weights, DType::bf16, {16, 150'000}, "sm_90"), 2U) << text;
      EXPECT_EQ(kernels(text, weights, DType::f32, {150'000}, "sm_90"), 1U) << text;
    }
    EXPECT_EQ(kernels(text, DType::bf16, DType::bf16, {150'000}, "sm_90"), 2U) << text;
  }
}

TEST(HoistViews, ComputesBehindAViewInsteadOfStoring) {
  const auto plan_of = [](const std::string& text, const std::vector<Dims>& shapes) {
    CallTypes call;
    for (const Dims& shape : shapes) {
      call.arguments.push_back({DType::bf16, false, false});
      call.arrays.push_back({DType::bf16, shape, contiguous_strides(shape)});
    }
    return plan_program(definition_of(fusion::parse(text)), call);
  };
  const ProgramPlan pairs =
      plan_of("h = x * w + 1.0; h[..., 0::2] * h[..., 1::2]", {{8, 64}, {64}});
  EXPECT_EQ(pairs.steps.size(), 1u);
  EXPECT_EQ(pairs.info.workspace_bytes, 0u);
  // A norm before a rotation reduces the elements of even and of odd numbers.
  const ProgramPlan norm =
      plan_of("h = rms_norm(x, w, 1e-5); h[..., 0::2] * h[..., 1::2]", {{8, 64}, {64}});
  EXPECT_EQ(norm.steps.size(), 1u);
  EXPECT_EQ(norm.info.workspace_bytes, 0u);
  // What is broadcast may have no elements.
  EXPECT_EQ(plan_of("h = x + (w * v)[::-1]; h[0:1] * 2.0", {{2, 0}, {0}, {0}}).steps.size(), 1u);
  // Of which all is needed too stays where it is.
  EXPECT_EQ(plan_of("h = exp(x); h[..., 0::2] + sum(h, -1)", {{8, 64}}).steps.size(), 2u);
}

// A kernel of products keeps results of each of its sums in registers, for several vectors.
TEST(Partition, AddsUpFewProductsInOneKernel) {
  const auto kernels = [](std::size_t count, const char* expression, const Dims& shared,
                          const Dims& own) {
    CallTypes call;
    const auto add = [&](const Dims& shape) {
      call.arguments.push_back({DType::bf16, false, false});
      call.arrays.push_back({DType::bf16, shape, contiguous_strides(shape)});
    };
    std::vector<std::string> names{"x"};
    add(shared);
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back(fmt::format("w{}", i));
      add(own);
      text += fmt::format("{}{}", i == 0 ? "" : ", ",
                          fmt::format(fmt::runtime(expression), names.back()));
    }
    return plan_program(definition_of(fusion::parse(text, names)), call).info.kernels.size();
  };
  const Dims vectors{8, 1, 256};
  const Dims matrix{64, 256};
  EXPECT_EQ(kernels(4, "sum({} * x, -1)", vectors, matrix), 1U);
  EXPECT_EQ(kernels(12, "sum({} * x, -1)", vectors, matrix), 3U);
  EXPECT_EQ(kernels(6, "sum(exp({}) * x, -1)", vectors, matrix), 2U);
  // Not where that would read a matrix again.
  EXPECT_EQ(kernels(6, "sum(x * {}, -1)", matrix, {256}), 1U);
}

// An axis that a reduction keeps is taken away after what else is computed with the result.
TEST(SinkViews, ComputesInTheKernelThatReduces) {
  const auto plan_of = [](const std::string& text) {
    CallTypes call;
    for (const Dims& shape : {Dims{64, 8, 512}, Dims{64, 512}, Dims{512}}) {
      call.arguments.push_back({DType::bf16, false, false});
      call.arrays.push_back({DType::bf16, shape, contiguous_strides(shape)});
    }
    const std::vector<std::string> names{"x", "r", "w"};
    return plan_program(definition_of(fusion::parse(text, names)), call).info;
  };
  for (const char* text :
       {"squeeze(sum(x, 1), 1) * w + r", "s = squeeze(sum(x, 1), 1); silu(s) * w + r, s * r",
        "reshape(mean(x, 1), 0, -1) * w - r"}) {
    const ProgramInfo info = plan_of(text);
    EXPECT_EQ(info.kernels.size(), 1u) << text;
    EXPECT_EQ(info.bytes, info.lower_bound) << text;
  }
  // Not where that would store more.
  const ProgramInfo other = plan_of("s = squeeze(sum(x, 1), 1) + r; cumsum(s, 0), s * w");
  EXPECT_LE(other.kernels.size(), 3u);
}

struct NamedType {
  const char* name;
  DType dtype;
  Dims shape;
};

ProgramInfo info_of(const std::string& text, const std::vector<NamedType>& types) {
  CallTypes call;
  std::vector<std::string> names;
  for (const NamedType& type : types) {
    names.emplace_back(type.name);
    call.arguments.push_back({type.dtype, false, false});
    call.arrays.push_back({type.dtype, type.shape, contiguous_strides(type.shape)});
  }
  return plan_program(definition_of(fusion::parse(text, names)), call).info;
}

// One kernel for the parts of all reductions over a space, and one that joins them; as many again
// for those that wait for these.
TEST(ProgramPlan, ReductionsOverASpaceShareItsParts) {
  const NamedType spaces[] = {{"x", DType::bf16, {65536, 4096}},
                              {"x", DType::f32, {4, 131072, 512}},
                              {"x", DType::f32, {16, 1 << 20}},
                              {"x", DType::f16, {1 << 10, 1 << 11}}};
  const char* axes[] = {", 0", ", 1", ", -1", ""};
  constexpr const char* kOnce[] = {
      "mean(x{0}), max(x{0})", "max(x{0}), sum(x{0})", "argmax(x{0}), norm2(x{0}), any(x > 8{0})",
      "h = x * 2.0 + 1.0; sqrt(sum(h * h{0})), min(x{0}) - 1.0, mean(h{0})"};
  constexpr const char* kTwice[] = {"var(x{0}), max(x{0}), sum(x * x{0})",
                                    "std(x{0}), norm2(x{0}), logsumexp(x{0})",
                                    "h = x - 1.0; std(h{0}), argmax(h{0}), var(x{0})"};
  for (std::size_t k = 0; k < std::size(spaces); ++k) {
    const auto expect = [&](const char* form, std::size_t kernels) {
      const std::string text = fmt::format(fmt::runtime(form), axes[k]);
      const ProgramInfo info = info_of(text, std::vector<NamedType>(1, spaces[k]));
      EXPECT_LE(info.kernels.size(), kernels) << text << ", space " << k;
      EXPECT_LT(info.bytes, info.lower_bound * kernels / 2 * 17 / 16) << text;
      EXPECT_LE(info.workspace_bytes, info.op_by_op_workspace) << text;
    };
    for (const char* form : kOnce) expect(form, 2);
    for (const char* form : kTwice) expect(form, 4);
  }
}

// Weights of 4 bits with a scale for each group, times `x`: [batch, rows].
std::string product(const char* weights, const char* x, int batch, int rows, int columns) {
  return fmt::format(
      "reshape(sum({0} * {0}_scale * reshape({1}, {2}, 1, {3}, 64), -1, -2), {2}, {4})", weights, x,
      batch, columns / 64, rows);
}

std::vector<NamedType> matrix(const char* name, const char* scale, int rows, int columns) {
  return {{name, DType::u4, {rows, columns / 64, 64}},
          {scale, DType::f16, {rows, columns / 64, 1}}};
}

// The residual is added, gates are multiplied with their partners, and casts are made by the
// products that give their operands, whatever views are between.
TEST(Layer, OfAnMlpIsANormAndTwoProducts) {
  for (const int batch : {1, 4}) {
    const std::string text = fmt::format(
        "h = bf16(x * rsqrt(mean(x * x, -1) + 1e-5) * w); gu = {}; "
        "gated = bf16(silu(gu[:, :512]) * gu[:, 512:]); y = x + {}",
        product("w13", "h", batch, 1024, 256), product("w2", "gated", batch, 256, 512));
    std::vector<NamedType> types{{"x", DType::f32, {batch, 256}}, {"w", DType::f32, {256}}};
    for (const NamedType& type : matrix("w13", "w13_scale", 1024, 256)) types.push_back(type);
    for (const NamedType& type : matrix("w2", "w2_scale", 256, 512)) types.push_back(type);
    const ProgramInfo info = info_of(text, types);
    EXPECT_EQ(info.kernels.size(), 3u) << batch;
    EXPECT_EQ(info.workspace_bytes % 16, 0u);
  }
}

// A stream that a norm and a later sum read is stored by the product that it is added to.
TEST(Layer, StoresTheStreamWhereItIsAddedTo) {
  const std::string text =
      fmt::format("r = x + {}; h = bf16(r * rsqrt(mean(r * r, -1) + 1e-5) * w); y = r + {}",
                  product("wo", "a", 1, 256, 256), product("w2", "h", 1, 256, 256));
  std::vector<NamedType> types{
      {"x", DType::f32, {1, 256}}, {"a", DType::bf16, {1, 256}}, {"w", DType::f32, {256}}};
  for (const NamedType& type : matrix("wo", "wo_scale", 256, 256)) types.push_back(type);
  for (const NamedType& type : matrix("w2", "w2_scale", 256, 256)) types.push_back(type);
  EXPECT_EQ(info_of(text, types).kernels.size(), 3u);
}

// Pairs of queries and keys are rotated where they are summed up.
TEST(Layer, RotatesPairsInTheirProduct) {
  const std::string text = fmt::format(
      "y = reshape({}, 1, 6, -1, 2); a = y[..., 0]; b = y[..., 1]; "
      "reshape(stack(-1, a * c - b * s, a * s + b * c), 1, 6, 64)",
      product("w", "h", 1, 384, 256));
  std::vector<NamedType> types{
      {"h", DType::bf16, {1, 256}}, {"c", DType::f32, {1, 1, 32}}, {"s", DType::f32, {1, 1, 32}}};
  for (const NamedType& type : matrix("w", "w_scale", 384, 256)) types.push_back(type);
  EXPECT_EQ(info_of(text, types).kernels.size(), 1u);
}

// What is seen whole too, or in parts that overlap, is stored.
TEST(HoistReducedViews, OnlyWhereEachElementIsSeenOnce) {
  const std::vector<NamedType> types{{"w", DType::f32, {64, 512}}, {"x", DType::f32, {512}}};
  const std::string y = "y = sum(w * x, -1); ";
  EXPECT_EQ(info_of(y + "y[:32] * y[32:]", types).kernels.size(), 1u);
  EXPECT_EQ(info_of(y + "y[:32] * y[32:], max(y, 0)", types).kernels.size(), 3u);
  EXPECT_EQ(info_of(y + "y[:40] * y[24:]", types).kernels.size(), 2u);
}

// What goes backwards shares a kernel where it meets the rest, and else takes one more, however
// many elements there are.
TEST(ExpandReversals, TakesNoMoreKernelsForFewElements) {
  for (const std::int64_t n : {2, 3, 4, 5}) {
    const std::vector<NamedType> types{
        {"x", DType::f32, {9, n, 64}}, {"z", DType::f32, {9, n, 1}}, {"w", DType::f32, {9, n}}};
    const std::vector<NamedType> sums{types[0]};
    const std::vector<NamedType> rows{types[2]};
    const auto kernels = [](const std::string& text, const std::vector<NamedType>& given) {
      return info_of(text, given).kernels.size();
    };
    EXPECT_EQ(kernels("y = sum(x, -1); y[:, ::-1] * z", {types[0], types[1]}), 2u) << n;
    EXPECT_EQ(kernels("y = sum(x, -1); y[:, ::-1] * 2.0", sums), 2u) << n;
    EXPECT_LE(kernels("y = sum(x, -1); y[:, ::-1] + y", sums), 2u) << n;
    EXPECT_EQ(kernels("max(w, 0)[:, ::-1] - 1.0", rows), 2u) << n;
    EXPECT_LE(kernels("y = max(w, 0); y[:, ::-1] - y", rows), 2u) << n;
  }
  const std::vector<NamedType> product{{"x", DType::f32, {4, 64}},
                                       {"w", DType::f32, {64, 64}},
                                       {"s", DType::f32, {32, 2}},
                                       {"c", DType::f32, {32, 2}}};
  const std::string pairs = "y = reshape(sum(w * x[:, None], -1), 4, 32, 2); ";
  EXPECT_EQ(info_of(pairs + "y[..., ::-1] * s + y * c", product).kernels.size(), 1u);
}

// A choice among bf16 numbers is one, not an f32; a sum of them is not.
TEST(StoredDtype, OfAChoiceIsThatOfItsNumbers) {
  const auto stored = [](const std::string& text) {
    const std::vector<std::string> names{"x", "y"};
    const std::vector<fusion::ArgumentType> types(2, {DType::bf16, false, false});
    const std::vector<Dims> shapes(2, Dims{8, 64});
    const fusion::PlacedGraph placed = fusion::place_views(fusion::shape_graph(
        fusion::infer(fusion::parse(text, names), types, {}, Rounding::once, "f"), shapes, "f"));
    return fusion::stored_dtype(placed, placed.graph.outputs[0]);
  };
  for (const char* text : {"where(x < y, x, -y)", "where(x < y, x, 0.0)", "where(x < y, x, -inf)",
                           "maximum(abs(x), bf16(x + y))", "max(minimum(x, y), -1)"}) {
    EXPECT_EQ(stored(text), DType::bf16) << text;
  }
  for (const char* text : {"x + y", "where(x < y, x + y, x)", "where(x < y, x, 0.1)",
                           "maximum(x * y, x)", "max(x * y, -1)"}) {
    EXPECT_EQ(stored(text), DType::f32) << text;
  }
}

}  // namespace
}  // namespace kiln
