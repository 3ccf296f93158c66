// How many kernels a layer of a decoder takes that is plainly written, with one matrix for queries,
// keys and values, and one for gates and what they are multiplied with.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "fusion/text/text.hpp"
#include "program/plan.hpp"
#include "program/step_kernel.hpp"
#include "tests/src/program/layer_writings.hpp"

namespace kiln {
namespace {

struct Layer {
  std::int64_t batch = 1;
  std::int64_t positions = 1024;
  DType activations = DType::bf16;
  bool packed = true;  ///< weights: of 4 bits with a scale and a bias, or else of bf16
};

std::string layer_text(const Layer& layer) {
  const auto product = [&](const char* weights, const char* x, int rows, int columns) {
    if (!layer.packed)
      return fmt::format("reshape(sum({} * {}[:, None], -1), -1, {})", weights, x, rows);
    return fmt::format(
        "reshape(sum(({0} * {0}_scale + {0}_bias) * reshape({1}, -1, 1, {2}, 64), -1, -2), -1, "
        "{3})",
        weights, x, columns / 64, rows);
  };
  return fmt::format(
      R"(h = {f}(x * rsqrt(mean(x * x, -1) + 1e-5) * norm1);
      pairs = reshape({qkv}, {batch}, 48, -1, 2);
      a = pairs[..., 0]; b = pairs[..., 1]; c = turn[..., 0]; d = turn[..., 1];
      qkv = reshape(stack(-1, a * c - b * d, a * d + b * c), {batch}, 48, 128);
      stored = put(cache, rows, qkv);
      kv = reshape(stored, {batch}, {positions}, 2, 8, 128);
      keys = swapaxes(kv[:, :, 0], 1, 2)[:, :, None, :end];
      values = swapaxes(kv[:, :, 1], 1, 2)[:, :, None, :end];
      q = reshape(qkv[:, :32], {batch}, 8, 4, 1, 128);
      weights = softmax(0.088 * sum(q * keys, -1), -2);
      mixed = {f}(reshape(sum(weights * values, -2), {batch}, 4096));
      r = x + {o};
      h2 = {f}(r * rsqrt(mean(r * r, -1) + 1e-5) * norm2);
      gu = {gate_up};
      gated = {f}(silu(gu[:, :14336]) * gu[:, 14336:]);
      y = r + {down};
      y, stored)",
      fmt::arg("f", name(layer.activations)), fmt::arg("batch", layer.batch),
      fmt::arg("positions", layer.positions), fmt::arg("qkv", product("wqkv", "h", 6144, 4096)),
      fmt::arg("o", product("wo", "mixed", 4096, 4096)),
      fmt::arg("gate_up", product("w13", "h2", 28672, 4096)),
      fmt::arg("down", product("w2", "gated", 4096, 14336)));
}

CallTypes layer_types(const fusion::Graph& graph, const Layer& layer) {
  const std::int64_t b = layer.batch;
  std::map<std::string, ArrayType> arrays;
  const auto add = [&](const std::string& name, DType dtype, const Dims& shape) {
    arrays[name] = {dtype, shape, contiguous_strides(shape)};
  };
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    if (!layer.packed) return add(name, DType::bf16, {rows, columns});
    add(name, DType::u4, {rows, columns / 64, 64});
    add(name + "_scale", DType::f16, {rows, columns / 64, 1});
    add(name + "_bias", DType::f16, {rows, columns / 64, 1});
  };
  matrix("wqkv", 6144, 4096);
  matrix("wo", 4096, 4096);
  matrix("w13", 28672, 4096);
  matrix("w2", 4096, 14336);
  add("x", DType::f32, {b, 4096});
  add("norm1", DType::f32, {4096});
  add("norm2", DType::f32, {4096});
  add("turn", DType::f32, {b, 48, 64, 2});
  add("cache", DType::f16, {b * layer.positions * 16, 128});
  add("rows", DType::i32, {b, 48});
  add("end", DType::i32, {b, 1, 1, 1, 1});
  CallTypes types;
  for (const std::string& name : graph.arguments()) {
    const ArrayType& array = arrays.at(name);
    types.arguments.push_back({array.dtype, false, false});
    types.arrays.push_back(array);
  }
  return types;
}

// Norm; queries, keys and values, turned, and put into the cache; attention and what joins its
// parts; the output and what is added to it; norm; gate, up and what is made of both; down and what
// is added to it.
TEST(Layers, TakeEightKernels) {
  std::vector<Layer> layers;
  for (const DType activations : {DType::bf16, DType::f16, DType::f32}) {
    for (const bool packed : {true, false}) {
      for (const auto& [batch, positions] : {std::pair{1, 1024}, {4, 1024}, {1, 8192}, {8, 300}})
        layers.push_back({batch, positions, activations, packed});
    }
  }
  for (const Layer& layer : layers) {
    SCOPED_TRACE(fmt::format("{} sequences of {}, {}, {} weights", layer.batch, layer.positions,
                             name(layer.activations), layer.packed ? "packed" : "plain"));
    const std::string text = layer_text(layer);
    const Definition definition{"layer", fusion::parse(text), Options(), text};
    const ProgramPlan plan = plan_program(definition, layer_types(definition.graph, layer));
    EXPECT_LE(plan.info.kernels.size(), 8U);
    // Weights and what has been put are read once, and what is between is small beside them.
    const auto cache = static_cast<std::uint64_t>(layer.batch * layer.positions * 16 * 128 * 2);
    EXPECT_LT(plan.info.bytes, (plan.info.lower_bound + cache) * 21 / 20);
  }
}

// Products compute the norms themselves where a block of an NVIDIA GPU takes many rows: of one
// sequence and weights of four bits.
TEST(Layers, TakeSixKernelsWhereBlocksComputeNorms) {
  for (const DType activations : {DType::bf16, DType::f16}) {
    const Layer layer{1, 1024, activations, true};
    const std::string text = layer_text(layer);
    const Definition definition{"layer", fusion::parse(text), Options(), text};
    CallTypes types = layer_types(definition.graph, layer);
    types.target = "sm_90";
    const ProgramPlan plan = plan_program(definition, types);
    EXPECT_EQ(plan.info.kernels.size(), 6U);
    const auto count = static_cast<std::uint64_t>(
        std::ranges::count_if(plan.info.kernels, [](const ProgramKernel& kernel) {
          return kernel.reason.find("every block computes") != std::string::npos;
        }));
    EXPECT_EQ(count, 2U);
  }
}

// However it is written: sizes decide nothing.
TEST(Layers, TakeAsManyKernelsInEveryWriting) {
  for (const testing::LayerWriting& writing : testing::layer_writings()) {
    for (const auto& [batch, positions] : {std::pair{1, 1024}, {4, 1024}, {1, 8192}, {8, 300}}) {
      SCOPED_TRACE(fmt::format("{}: {} sequences of {}", writing.name, batch, positions));
      const testing::LayerSizes sizes{batch, positions};
      const std::string text = testing::written_layer(writing, sizes);
      const Definition definition{"layer", fusion::parse(text), Options(), text};
      const std::map<std::string, testing::LayerOperand> operands = testing::layer_operands(sizes);
      CallTypes types;
      for (const std::string& name : definition.graph.arguments()) {
        const testing::LayerOperand& operand = operands.at(name);
        types.arguments.push_back({operand.dtype, false, false});
        types.arrays.push_back({operand.dtype, operand.shape, contiguous_strides(operand.shape)});
      }
      const ProgramPlan plan = plan_program(definition, types);
      std::string kernels;
      for (const ProgramKernel& kernel : plan.info.kernels) {
        kernels += fmt::format("\n{}: {}", kernel.reason, kernel.expression);
      }
      EXPECT_LE(plan.info.kernels.size(), writing.kernels) << kernels;
    }
  }
}

}  // namespace
}  // namespace kiln
