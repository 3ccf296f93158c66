// How long planning takes: in proportion to a program, not to the paths through it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "call/call_specs.hpp"
#include "fusion/text/text.hpp"
#include "kernel/emit_kernel.hpp"
#include "tests/src/program/plan_cases.hpp"
#include "tests/src/program/random_arguments.hpp"

namespace kiln {
namespace {

using testing::call_of;
using testing::definition_of;
using testing::emit_kernels;
using testing::PlanCase;

// Each value is looked at a number of times that does not depend on how many paths lead to it.
TEST(ProgramPlan, TakesNoTimeForEachPathThroughAGraph) {
  constexpr int kOperations = 200;
  std::string larger = "a = x; ";
  std::string of_packed = "s = x; ";
  for (int i = 0; i < kOperations; ++i) {
    larger += "a = maximum(a, a * y); ";
    of_packed += "s = s * s; ";
  }
  for (const std::string& text :
       {larger + "sum(a, -1)", larger + "max(log(a), -1)", larger + "a[::-1]",
        larger + "concat(0, a, a)", larger + "cumsum(a, 1)", of_packed + "sum(q * s * y, -1)"}) {
    PlanCase one{fusion::parse(text), {}, Rounding::once, 0};
    CallTypes call;
    testing::RandomProgram types;
    for (const std::string& argument : one.graph.arguments()) {
      types.dtypes.push_back(argument == "q" ? DType::u4 : DType::bf16);
      types.shapes.push_back({6, 64});
    }
    one.inputs = testing::random_arguments(types, 1);
    call = call_of(one);
    const ProgramPlan plan = plan_program(definition_of(one.graph), call);
    emit_kernels(plan, call);
    EXPECT_GE(plan.steps.size(), 1u);
  }
}

// Of this thread, since this machine may have other work.
double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What planning and emitting take, as a Program and, if that can be, as a Function.
double seconds_for(const std::string& text) {
  const double begin = cpu_seconds();
  const Definition definition = definition_of(fusion::parse(text));
  CallTypes call;
  for (std::size_t i = 0; i < definition.graph.arguments().size(); ++i) {
    call.arguments.push_back({DType::f32, false, false});
    call.arrays.push_back({DType::f32, {64, 64}, {64, 1}});
  }
  emit_kernels(plan_program(definition, call), call);
  if (fusion::program_op(definition.graph) == nullptr) {
    call.outputs = natural_outputs(definition, call, {}, {});
    for (const KernelSpec& spec : call_specs(definition, call)) emit_kernel(spec, "cpu");
  }
  return cpu_seconds() - begin;
}

// Eight times as many operations take eight times as long, and 64 times with their square: passes,
// outputs, arguments and temporaries, as many of each.
TEST(ProgramPlan, TakesTimeInProportionToTheOperations) {
  constexpr int kFew = 300;
  constexpr int kTimes = 8;
  using Text = std::string (*)(int);
  const std::vector<std::pair<const char*, Text>> texts = {
      {"passes",
       [](int n) {
         std::string text = "h = x; ";
         for (int i = 0; i < n; i += 2) text += "h = sum(h * y, -1); h = h * y + x; ";
         return text + "h";
       }},
      {"outputs",
       [](int n) {
         std::string text = "x * 0";
         for (int i = 1; i < n; ++i) text += fmt::format(", x * {}", i);
         return text;
       }},
      {"arguments",
       [](int n) {
         std::string text = "x";
         for (int i = 0; i < n; ++i) text += fmt::format(" + a{} * x", i);
         return text;
       }},
      {"temporaries", [](int n) {
         std::string text = "x[0]";
         for (int i = 0; i < n; ++i) text += fmt::format(" + x[{}] * {}", i % 64, i);
         return text;
       }}};
  for (const auto& [what, text] : texts) {
    constexpr int kTries = 4;  // what else the machine does takes time of the caches
    double ratio = 0;
    for (int i = 0; i < kTries; ++i) {
      const double few = std::min(seconds_for(text(kFew)), seconds_for(text(kFew)));
      ratio = seconds_for(text(kFew * kTimes)) / few;
      if (ratio < 2.5 * kTimes) break;
    }
    EXPECT_LT(ratio, 2.5 * kTimes) << what;
  }
}

}  // namespace
}  // namespace kiln
