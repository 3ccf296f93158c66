// What reductions that wait for each other take. A kernel computes in each pass over its rows what
// that pass reduces, so a chain of reductions in one kernel would take work and text that grow with
// the square of its length: a program cuts it, and a function, which cannot, refuses it.
#include "fusion/partition/row_work.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ahead/compile_only.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/text/text.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

/// `step` is repeated, and computes h from h, x and y.
struct Chain {
  const char* begin;
  const char* step;
  int operations;  ///< of a step
  Dims y;
};

const Dims kShape{64, 512};

// Much and little that is computed again, along rows and along columns; what stays known from one
// reduction to the next; and running results, which take no passes.
const std::vector<Chain>& chains() {
  static const std::vector<Chain> all = {
      {"h = x", "h = h - max(h, -1); h = exp(h) * y", 4, kShape},
      {"h = x", "h = (h - max(h, -1)) * y", 3, kShape},
      {"h = x", "h = silu(rms_norm(h, y, 1e-5))", 8, {512}},
      {"h = x", "h = layer_norm(h, y, 1e-5) + x", 10, {512}},
      {"h = x", "h = softmax(h * y, -1)", 6, kShape},
      {"h = x", "h = power(abs(h), 0.9) - mean(h, -1) * y", 5, kShape},
      {"h = x", "h = h - max(h, 0); h = exp(h) * y", 4, kShape},
      {"h = sum(x, -1)", "h = sum(x * y * tanh(h), -1)", 4, kShape},
      {"h = x", "h = cumsum(h * 0.5, -1) * y", 3, kShape},
      {"h = x", "h = cumsum(h, -1) * y; h = h / (1 + max(h, -1))", 5, kShape},
  };
  return all;
}

std::string text_of(const Chain& chain, int steps) {
  std::string text = chain.begin;
  for (int i = 0; i < steps; ++i) text += std::string("; ") + chain.step;
  return text + "; h";
}

Specification types_of(const char* a, const Dims& a_shape, const char* b, const Dims& b_shape) {
  Specification types;
  types.arguments.resize(2);
  types.arguments[0].name = a;
  types.arguments[0].shape = a_shape;
  types.arguments[1].name = b;
  types.arguments[1].shape = b_shape;
  return types;
}

Specification types_of(const Chain& chain) { return types_of("x", kShape, "y", chain.y); }

struct Taken {
  double work = 0;  ///< operations on each element, in all passes of all kernels
  double once = 0;  ///< had each value of a kernel been computed once
  std::size_t text = 0;
  std::size_t kernels = 0;
};

fusion::RowWork work_of(const fusion::TypedGraph& graph, const fusion::Schedule& schedule) {
  std::vector<bool> uniform;
  for (const fusion::OperandSchedule& operand : schedule.operands)
    uniform.push_back(operand.row_invariant);
  return fusion::row_work(graph, fusion::row_invariant_nodes(graph, uniform, {}));
}

Taken taken_by(const std::string& text, const Specification& types, std::string_view target) {
  Taken taken;
  for (const KernelSpec& spec : kernel_specs(parse("f", text), types)) {
    const EmittedKernel kernel = emit_kernel(spec, resolve_target(target));
    const fusion::RowWork work = work_of(spec.function.graph, kernel.layout.schedule);
    taken.work += work.once + work.again;
    taken.once += work.once;
    taken.text += kernel.request.text.size();
    ++taken.kernels;
  }
  return taken;
}

Taken taken_by(const Chain& chain, int steps, std::string_view target) {
  return taken_by(text_of(chain, steps), types_of(chain), target);
}

TEST(DependentReductions, TakeTwiceTheWorkAndTextForTwiceAsMany) {
  for (const Chain& chain : chains()) {
    for (const std::string_view target : {"sm_90", "gfx90a", "cpu"}) {
      SCOPED_TRACE(::testing::Message() << chain.step << ", " << target);
      Taken before = taken_by(chain, 8, target);
      for (const int steps : {16, 32, 64, 128}) {
        const Taken taken = taken_by(chain, steps, target);
        EXPECT_LE(taken.text, 2.5 * before.text) << steps << " steps";
        EXPECT_LE(taken.work, 2.5 * before.work) << steps << " steps";
        EXPECT_LE(taken.work, 3 * taken.once + 48.0 * taken.kernels) << steps << " steps";
        before = taken;
      }
    }
  }
}

TEST(DependentReductions, TakeAsMuchTextForEachOfTenThousandOperations) {
  for (const Chain& chain : chains()) {
    SCOPED_TRACE(chain.step);
    const int steps = 10'000 / chain.operations;
    EXPECT_LE(taken_by(chain, steps, "sm_90").text, 1500u * 10'000);
  }
}

// Short rows, of which the host takes several at once, and every reduction is an output.
TEST(DependentReductions, TakeTwiceTheTextWhereEachIsStored) {
  const auto text = [](int steps) {
    std::string all = "h0 = sum(x, -1); ";
    std::string outputs = "(h0)";
    for (int i = 1; i <= steps; ++i) {
      all += fmt::format("h{} = sum(x * h{}, -1); ", i, i - 1);
      outputs += fmt::format(", (h{})", i);
    }
    return all + outputs;
  };
  Specification types;
  types.arguments.resize(1);
  types.arguments[0].name = "x";
  types.arguments[0].shape = {64, 100};
  std::size_t before = taken_by(text(8), types, "cpu").text;
  for (const int steps : {16, 32, 64, 128}) {
    const std::size_t taken = taken_by(text(steps), types, "cpu").text;
    EXPECT_LE(taken, 2.5 * before) << steps << " steps";
    before = taken;
  }
}

// Packed weights times what a chain gives, and what follows from their products.
TEST(DependentReductions, OfProductsTakeTwiceTheTextForChainsTwiceAsLong) {
  for (const auto& [begin, end] : std::vector<std::pair<std::string, std::string>>{
           {"t = x", "sum(w * t, -1)"}, {"t = sum(w * x, -1)", "t"}}) {
    const auto taken = [&](int steps) {
      std::string text = begin;
      for (int i = 0; i < steps; ++i) text += "; t = tanh(t) * 0.5";
      Specification types = types_of("x", {2, 1, 4096}, "w", {1, 512, 4096});
      types.arguments[0].dtype = DType::f16;
      types.arguments[1].dtype = DType::u4;
      return taken_by(text + "; " + end, types, "sm_90").text;
    };
    std::size_t before = taken(8);
    for (const int steps : {16, 32, 64, 128}) {
      const std::size_t text = taken(steps);
      EXPECT_LE(text, 2.5 * before) << begin << ", " << steps << " steps";
      before = text;
    }
  }
}

// Of a few, one kernel is fastest.
TEST(DependentReductions, ShareAKernelWhereAnArrayBetweenTwoTakesLonger) {
  for (const Chain& chain : chains()) {
    if (std::string_view(chain.step).find("cumsum") != std::string_view::npos) continue;
    SCOPED_TRACE(chain.step);
    EXPECT_EQ(taken_by(chain, 2, "sm_90").kernels, 1u);
  }
}

TEST(DependentReductions, OfAFunctionAreComputedInItsOneKernelOrRefused) {
  int refused = 0;
  for (const Chain& chain : chains()) {
    for (const int steps : {1, 4, 8, 16, 32, 64, 128, 1000}) {
      const Function function = parse("f", text_of(chain, steps));
      try {
        const auto emitted = emit_all(function, types_of(chain), "sm_90");
        ASSERT_EQ(emitted.size(), 1u);
        EXPECT_LE(emitted[0].request.text.size(), 20'000u + 2000u * chain.operations * steps)
            << chain.step << ", " << steps << " steps";
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(error.code(), Code::unsupported);
        EXPECT_NE(message.find("use a kiln::Program"), std::string::npos) << message;
        if (message.find("wait for each other") == std::string::npos) continue;
        ++refused;
        EXPECT_GT(steps, 8) << chain.step;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

// Of arguments that all have an element for each of a row's.
TEST(RowWork, CountsWhatFurtherPassesComputeAgain) {
  const auto work = [](const std::string& text) {
    const fusion::Graph graph = fusion::parse(text);
    const std::vector<fusion::ArgumentType> types(graph.arguments().size());
    const fusion::TypedGraph typed = fusion::infer(graph, types, {}, Rounding::once, "f");
    const std::vector<bool> uniform(typed.arguments.size(), false);
    return fusion::row_work(typed, fusion::row_invariant_nodes(typed, uniform, {}));
  };
  EXPECT_EQ(work("x + 1.0").again, 0);
  EXPECT_EQ(work("sum(x + 1.0, -1)").again, 0);
  EXPECT_EQ(work("x - max(x, -1)").again, 0);
  const fusion::RowWork one = work("h = x + 1.0; h - max(h, -1)");
  EXPECT_EQ(one.once, 2);
  EXPECT_EQ(one.again, 1);
  // Two passes more need h, and one the difference.
  EXPECT_EQ(work("h = x + 1.0; d = h - max(h, -1); d - sum(d, -1)").again, 3);
  EXPECT_FALSE(one.is_better_cut());
}

class DependentReductionsRun : public testing::ProgramsOnDevices {};

INSTANTIATE_TEST_SUITE_P(Devices, DependentReductionsRun,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(DependentReductionsRun, AgreeWithTheReferenceWhereverTheyAreCut) {
  const HostArray x = testing::random_array(DType::f32, {5, 300}, 1);
  testing::Share share(GetParam(), 5);
  for (const Chain& chain : chains()) {
    if (!share.next()) continue;
    const Dims shape = chain.y.size() == 1 ? Dims{300} : Dims{5, 300};
    check(text_of(chain, 6), {x, testing::random_array(DType::f32, shape, 2)}, 1e-4);
  }
}

}  // namespace
}  // namespace kiln
