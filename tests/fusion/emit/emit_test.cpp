// The kernel text: what it says, that it says the same every time, and that names cannot break it.
#include "fusion/emit/emit.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "fusion/emit/kernel_names.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

struct Emitted {
  KernelDescription kernel;
  Layout layout;
};

Emitted emit_text(std::string_view text, DType dtype, Backend backend = Backend::amd,
                  Accuracy accuracy = Accuracy::storage, Rounding rounding = Rounding::once) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> arguments(graph.arguments().size(), {dtype, false, false});
  const TypedGraph typed = infer(graph, arguments, {}, rounding, "f");
  std::vector<Operand> operands(arguments.size() + typed.outputs.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    operands[i].dtype =
        i < arguments.size() ? dtype : typed.nodes[typed.outputs[i - arguments.size()]].dtype;
    operands[i].output = i >= arguments.size();
    operands[i].strides = {1};
  }
  const Layout layout = plan_layout({1024}, operands, backend);
  return {emit(typed, layout.schedule, element_moves(typed, layout.schedule, accuracy), accuracy),
          layout};
}

bool contains(const Emitted& emitted, std::string_view part) {
  return emitted.kernel.source.find(part) != std::string::npos;
}

TEST(Emit, ReadsLikeTheExpression) {
  const Emitted emitted = emit_text("silu(gate) * up", DType::bf16);
  EXPECT_TRUE(contains(emitted, "// bf16 in0, bf16 in1 -> bf16 out0\n"));
  EXPECT_TRUE(contains(emitted, "const f32 in0 = to<f32>(in0_lanes[lane]);"));
  EXPECT_TRUE(contains(emitted, "load<width.size, 16>(in0_data, first)"));
  EXPECT_TRUE(contains(emitted, "store<width.size, 16>(out0_data, first, out0_lanes);"));
}

TEST(Emit, IsTheSameEveryTime) {
  EXPECT_EQ(emit_text("gelu(x) + y", DType::f16).kernel.source,
            emit_text("gelu(x) + y", DType::f16).kernel.source);
}

TEST(Emit, ChoosesTheMathsByAccuracy) {
  EXPECT_TRUE(contains(emit_text("exp(x)", DType::bf16), "narrow::exp(in0)"));
  EXPECT_TRUE(contains(emit_text("exp(x)", DType::f32), " = exp(in0)"));
  EXPECT_TRUE(contains(emit_text("exp(x)", DType::bf16, Backend::amd, Accuracy::strict),
                       "strict::exp(in0)"));
  EXPECT_TRUE(
      contains(emit_text("exp(x)", DType::bf16, Backend::amd, Accuracy::fast), "fast::exp(in0)"));
}

TEST(Emit, DividesByTheReciprocalInFastF32Only) {
  const auto divides = [](DType dtype, Accuracy accuracy) {
    return contains(emit_text("x / y", dtype, Backend::amd, accuracy), "fast::div(in0, in1)");
  };
  EXPECT_TRUE(divides(DType::f32, Accuracy::fast));
  EXPECT_TRUE(divides(DType::bf16, Accuracy::fast));
  EXPECT_FALSE(divides(DType::f64, Accuracy::fast));
  EXPECT_FALSE(divides(DType::f32, Accuracy::storage));
  EXPECT_FALSE(divides(DType::f32, Accuracy::strict));
}

// Of an array and one number.
std::string text_with_number(std::string_view text, Backend backend) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> types = {{DType::bf16, false, false}, {DType::f32, false, false}};
  const TypedGraph typed = infer(graph, types, {}, Rounding::once, "f");
  std::vector<Operand> operands(3);
  const DType dtypes[] = {DType::bf16, DType::f32, typed.nodes[typed.outputs[0]].dtype};
  for (std::size_t i = 0; i < 3; ++i) {
    operands[i].dtype = dtypes[i];
    operands[i].output = i == 2;
    operands[i].strides = {i == 1 ? 0 : 1};
  }
  const Layout layout = plan_layout({1024}, operands, backend);
  return emit(typed, layout.schedule, element_moves(typed, layout.schedule, Accuracy::storage),
              Accuracy::storage)
      .source;
}

TEST(Emit, RoundsTo8BitsWhereAVectorIsStoredOnNvidia) {
  const auto waits = [](std::string_view text, Backend backend) {
    return text_with_number(text, backend).find("unrounded_results<") != std::string::npos;
  };
  EXPECT_TRUE(waits("f8e4m3(x * s)", Backend::nvidia));
  EXPECT_FALSE(waits("f8e4m3(x * s)", Backend::amd));
  EXPECT_FALSE(waits("f8e4m3(x * s)", Backend::host));
  EXPECT_FALSE(waits("f16(x * s)", Backend::nvidia));
  EXPECT_FALSE(waits("i8(x * s)", Backend::nvidia));
}

TEST(Emit, TheNeighbourIsOneOfTheResultsDtype) {
  EXPECT_TRUE(contains(emit_text("nextafter(x, y)", DType::f16), "nextafter<f16>(in0, in1)"));
  EXPECT_TRUE(contains(emit_text("nextafter(x, y)", DType::bf16), "nextafter<bf16>(in0, in1)"));
  EXPECT_TRUE(contains(emit_text("nextafter(x, y)", DType::f32), " nextafter(in0, in1)"));
}

TEST(Emit, DoesNotUseACheapMethodWhereADifferenceWouldAmplifyItsError) {
  EXPECT_FALSE(contains(emit_text("exp(x) - 1", DType::bf16), "narrow::exp"));
  EXPECT_TRUE(contains(emit_text("exp(x) * y", DType::bf16), "narrow::exp"));
}

TEST(Emit, UsesACheapMethodForValuesOfF32ThatOnlyACastTo16BitsTakes) {
  EXPECT_TRUE(contains(emit_text("f16(tanh(x / 30) * 30)", DType::f32), "narrow::tanh"));
  EXPECT_TRUE(contains(emit_text("f32(exp(x)) * y", DType::bf16), " = exp(in0)"))
      << "stored in 32 bits";
  EXPECT_TRUE(contains(emit_text("f16(exp(x)), exp(x) * y", DType::f32), " = exp(in0)"));
  EXPECT_TRUE(contains(
      emit_text("bf16(exp(x))", DType::f32, Backend::amd, Accuracy::storage, Rounding::each),
      " exp(in0)"))
      << "rounded to f32 first";
  EXPECT_TRUE(contains(emit_text("bf16(exp(x))", DType::f32, Backend::host), " exp(in0)"))
      << "only GPUs gain";
}

TEST(Emit, RoundsAfterEachOperationWhenAsked) {
  const Emitted each =
      emit_text("x * y + x", DType::bf16, Backend::amd, Accuracy::storage, Rounding::each);
  EXPECT_TRUE(contains(each, "= to<f32>(to<bf16>(in0 * in1));"));
  EXPECT_FALSE(contains(emit_text("x * y + x", DType::bf16), "to<f32>(to<bf16>("));
  EXPECT_TRUE(contains(emit_text("bf16(x * y) + x", DType::f32), "to<f32>(to<bf16>("));
}

TEST(Emit, ConstantsKeepTheirBits) {
  EXPECT_TRUE(contains(emit_text("x * 0.1", DType::f32), "in0 * 0.1f"));
  EXPECT_TRUE(contains(emit_text("x + -0.0", DType::f32), "in0 + -0.0f"));
  EXPECT_TRUE(contains(emit_text("x / -0.0", DType::f32), "-(in0) / 0.0f"));
  EXPECT_TRUE(
      contains(emit_text("where(x > 1, x, nan)", DType::f32), "bit_cast<f32>(0x7fc00000u)"));
  EXPECT_TRUE(contains(emit_text("where(x > 1, x, inf)", DType::f64),
                       "bit_cast<f64>(0x7ff0000000000000ull)"));
  EXPECT_TRUE(contains(emit_text("x & -9223372036854775808", DType::i64),
                       "i64(-9223372036854775807ll - 1)"));
}

TEST(Emit, CopiesAndBitcastsOfNarrowNumbersAreNotConverted) {
  const Emitted copy = emit_text("x, x + y", DType::f16);
  EXPECT_TRUE(contains(copy, "const f16 in0_bits = in0_lanes[lane];"));
  EXPECT_TRUE(contains(copy, "const f32 in0 = to<f32>(in0_bits);"));
  EXPECT_TRUE(contains(copy, "out0_lanes[lane] = in0_bits;"));
  const Emitted bits = emit_text("bitcast(x, u16), bitcast(bitcast(x, u16), bf16)", DType::f16);
  EXPECT_FALSE(contains(bits, "to<f32>"));
  EXPECT_TRUE(contains(bits, "bit_cast<u16>(in0_bits)"));
}

TEST(Emit, AnExpressionCannotLeaveItsComment) {
  EXPECT_EQ(readable("code\n", "f", "x +\n 1.5", {}, {}), "// f: x +  1.5\ncode\n");
}

TEST(Emit, ParametersArePackedAtTheirAlignment) {
  const Emitted emitted = emit_text("x + y", DType::f32);
  const ParameterBlock block = pack_parameters(emitted.kernel, emitted.layout);
  ASSERT_EQ(block.offsets.size(), emitted.kernel.parameters.size());
  for (std::size_t i = 0; i < block.offsets.size(); ++i) {
    const std::uint32_t bytes = emitted.kernel.parameters[i].bytes;
    EXPECT_EQ(block.offsets[i] % (bytes == 12 ? 4 : bytes), 0u);
    EXPECT_LE(block.offsets[i] + bytes, block.bytes.size());
  }
}

TEST(Emit, AnOperationIsOneLineHoweverManyThereAre) {
  const auto lines = [](int operations) {
    std::string text = "x";
    for (int i = 0; i < operations; ++i) text += i % 2 == 0 ? " + x" : " - x";
    return std::ranges::count(emit_text(text, DType::f32).kernel.source, '\n');
  };
  const auto frame = lines(2) - 2;
  EXPECT_EQ(lines(100), frame + 100);
  EXPECT_EQ(lines(10'000), frame + 10'000);
}

TEST(WithEntry, ReplacesEveryMentionOfThePlaceholder) {
  EXPECT_EQ(with_entry("a kiln_kernel_entry b kiln_kernel_entry_range", "k_1"),
            "a k_1 b k_1_range");
}

}  // namespace
}  // namespace kiln::fusion
