// Plans of random programs over arrays with any strides. Each is executed by the reference
// interpreter kernel by kernel in a real workspace, so that a wrong place gives a wrong number, and
// its kernels are emitted, so that none refuses what the plan gave it. A failure is shown as the
// smallest part of the program that fails.
#include "program/plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "call/call_specs.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/extract.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/partition/workspace.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/text/text.hpp"
#include "kernel/emit_kernel.hpp"
#include "tests/src/program/enclosure.hpp"
#include "tests/src/program/random_arguments.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

std::byte* first_of(const HostArray& array) {
  return const_cast<std::byte*>(array.bytes.data()) + array.first;
}

// Runs the plan's steps by the reference, every operand where the plan puts it.
std::vector<HostArray> run_by_reference(const ProgramPlan& plan,
                                        const std::vector<HostArray>& inputs,
                                        std::vector<HostArray> outputs) {
  std::vector<std::byte> workspace(plan.info.workspace_bytes, std::byte{0xcd});
  const auto place = [&](const ProgramOperand& operand) {
    fusion::ReferenceOperand result{nullptr, DType::f32, operand.layout.strides,
                                    operand.layout.offset};
    if (operand.kind == ProgramOperand::Kind::temporary) {
      const ProgramPlan::Temporary& temporary = plan.temporaries[operand.index];
      result.data = workspace.data() + temporary.offset;
      result.dtype = temporary.dtype;
    } else {
      const bool output = operand.kind == ProgramOperand::Kind::output;
      const HostArray& array = output ? outputs[operand.index] : inputs[operand.index];
      result.data = first_of(array);
      result.dtype = array.dtype;
    }
    return result;
  };
  for (const ProgramStep& step : plan.steps) {
    std::vector<Dims> own;
    std::vector<fusion::ReferenceOperand> arguments;
    std::vector<fusion::ReferenceOperand> results;
    for (const ProgramOperand& operand : step.inputs) {
      arguments.push_back(place(operand));
      own.push_back(operand.shape);
    }
    const fusion::TypedGraph& typed = step.kernel->function().graph;
    const bool counts = std::ranges::find(typed.nodes, fusion::Op::iota, &fusion::TypedNode::op) !=
                        typed.nodes.end();
    if (counts && !fusion::works_along_axes(typed)) {
      // It counts through the shape of what it stores, whatever it reads.
      const Dims& shape = step.outputs[0].shape;
      for (std::size_t i = 0; i < own.size(); ++i) {
        arguments[i].strides = fusion::broadcast_strides(own[i], arguments[i].strides, shape);
      }
      for (const ProgramOperand& operand : step.outputs) results.push_back(place(operand));
      fusion::evaluate(typed, shape, arguments, results);
      continue;
    }
    const fusion::ShapedGraph graph = fusion::shape_graph(typed, own, "step");
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      results.push_back(place(step.outputs[i]));
      // Axes of one element in front are the plan's, not the graph's.
      const std::size_t rank = graph.shapes[graph.graph.outputs[i]].size();
      const std::span<const std::int64_t> strides(results[i].strides);
      results[i].strides = Dims(strides.subspan(strides.size() - rank));
    }
    fusion::evaluate_arrays(graph.graph, graph.shapes, arguments, results);
  }
  return outputs;
}

struct Case {
  fusion::Graph graph;
  std::vector<HostArray> inputs;
  Rounding rounding = Rounding::once;
  std::uint64_t seed = 0;
};

Case random_case(std::uint64_t seed, std::size_t nodes, bool packed = false) {
  testing::ProgramKind kind;
  kind.nodes = nodes;
  kind.elements = nodes > 200 ? 60 : 400;
  kind.floats = seed % 3 != 0;
  kind.packed = packed;
  testing::RandomProgram made = testing::random_program(seed, kind);
  Case result{{}, testing::random_arguments(made, seed), Rounding::once, seed};
  result.graph = std::move(made.graph);
  if (seed % 4 == 1) result.rounding = Rounding::each;
  return result;
}

CallTypes call_of(const Case& one) {
  CallTypes call;
  for (const HostArray& input : one.inputs) {
    call.arguments.push_back({input.dtype, false, false});
    call.arrays.push_back({input.dtype, input.shape, input.strides});
  }
  return call;
}

Definition definition_of(const fusion::Graph& graph, Rounding rounding = Rounding::once) {
  Definition definition;
  definition.name = "random";
  definition.graph = graph;
  definition.options.rounding = rounding;
  return definition;
}

// Emits the kernels for every kind of device.
void emit_kernels(const ProgramPlan& plan, const CallTypes& call) {
  for (const KernelSpec& spec : step_specs(plan, call)) {
    if (std::ranges::find(spec.shape, 0) != spec.shape.end()) continue;  // nothing is launched
    for (const char* target : {"cpu", "gfx90a", "sm_90"}) emit_kernel(spec, target);
  }
}

// That the operands of a step have.
std::uint64_t bytes_of(const ProgramStep& step, const ProgramPlan& plan, const CallTypes& call) {
  std::uint64_t bytes = 0;
  for (const auto* operands : {&step.inputs, &step.outputs}) {
    for (const ProgramOperand& operand : *operands) {
      if (operand.scalar) continue;
      DType dtype = plan.output_dtypes.front();
      switch (operand.kind) {
        case ProgramOperand::Kind::length: continue;
        case ProgramOperand::Kind::argument: dtype = call.arguments[operand.index].dtype; break;
        case ProgramOperand::Kind::output: dtype = plan.output_dtypes[operand.index]; break;
        case ProgramOperand::Kind::temporary: dtype = plan.temporaries[operand.index].dtype; break;
      }
      bytes += fusion::byte_count(dtype, operand.shape);
    }
  }
  return bytes;
}

// What is wrong with the bytes that a plan says it moves, or nothing.
std::string wrong_bytes(const Definition& definition, const CallTypes& call,
                        const fusion::CostModel& model = {}) {
  const ProgramPlan plan = plan_program(definition, call, model);
  const ProgramInfo& info = plan.info;
  if (info.bytes > info.op_by_op_bytes) {
    return fmt::format("it moves {} bytes, {} unfused", info.bytes, info.op_by_op_bytes);
  }
  if (info.bytes < info.lower_bound) return "it moves less than the lower bound";
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    const std::uint64_t bytes = bytes_of(plan.steps[k], plan, call);
    if (bytes == info.kernels[k].bytes) continue;
    return fmt::format("kernel {} says that it moves {} bytes, its operands have {}", k,
                       info.kernels[k].bytes, bytes);
  }
  const std::uint64_t unfused = unfused_workspace(definition, call);
  if (info.workspace_bytes > unfused) {
    return "it needs a larger workspace than one kernel for each operation does";
  }
  if (info.workspace_bytes > 0 && info.op_by_op_workspace != unfused) {
    return "it is compared with another plan of one kernel for each operation";
  }
  return {};
}

// What is wrong with the plan of a case, or nothing.
std::string wrong(const Case& one) {
  const Definition definition = definition_of(one.graph, one.rounding);
  CallTypes call = call_of(one);
  std::mt19937_64 random(one.seed);
  std::vector<HostArray> outputs;
  const ProgramPlan natural = plan_program(definition, call);
  for (std::size_t i = 0; i < natural.output_shapes.size(); ++i) {
    const DType dtype = natural.output_dtypes[i];
    outputs.push_back(testing::with_random_layout(dtype, natural.output_shapes[i], random));
    call.outputs.push_back({dtype, natural.output_shapes[i], outputs.back().strides});
  }
  if (std::string bytes = wrong_bytes(definition, call); !bytes.empty()) return bytes;
  const ProgramPlan plan = plan_program(definition, call);
  try {
    if (one.seed % 3 == 0) emit_kernels(plan, call);
  } catch (const Error& error) {
    return fmt::format("a kernel is refused: {}", error.what());
  }
  const std::vector<HostArray> got = run_by_reference(plan, one.inputs, outputs);

  std::vector<fusion::ArgumentType> types;
  std::vector<Dims> shapes;
  for (const HostArray& input : one.inputs) {
    types.push_back({input.dtype, false, false});
    shapes.push_back(input.shape);
  }
  const fusion::ShapedGraph whole = fusion::shape_graph(
      fusion::infer(one.graph, types, {}, one.rounding, "reference"), shapes, "reference");
  const auto expected = testing::enclose(whole, one.inputs, definition.options, DeviceType::cpu);
  testing::Compared compared;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string text = testing::outside(expected[i], got[i], compared);
    if (!text.empty()) return fmt::format("output {}: {}", i, text);
  }
  return {};
}

// The part of a program that computes one of its values.
Case part_of(const Case& whole, fusion::NodeId value) {
  fusion::Graph graph = whole.graph;
  graph.add_output(value);
  const std::size_t last = graph.outputs().size() - 1;
  fusion::Extract part = fusion::extract(graph, std::span(&last, 1));
  Case result{std::move(part.graph), {}, whole.rounding, whole.seed};
  for (const std::size_t i : part.arguments) result.inputs.push_back(whole.inputs[i]);
  return result;
}

std::string shrunk(const Case& whole) {
  for (fusion::NodeId id = 0; id < whole.graph.nodes().size(); ++id) {
    if (whole.graph[id].arity == 0) continue;
    const Case part = part_of(whole, id);
    if (wrong(part).empty()) continue;
    std::string text = fusion::to_text(part.graph);
    for (const HostArray& input : part.inputs) {
      text += fmt::format("; {}{}@{}", name(input.dtype), fusion::to_string(input.shape),
                          fusion::to_string(input.strides));
    }
    return text;
  }
  return "only the whole program fails: " + fusion::to_text(whole.graph);
}

TEST(ProgramPlan, GivesTheSameNumbersInItsWorkspace) {
  for (std::uint64_t seed = 100; seed < 400; ++seed) {
    const Case one = random_case(seed, 10 + seed % 7 * 12);
    const std::string what = wrong(one);
    ASSERT_EQ(what, "") << "seed " << seed << ": " << shrunk(one);
  }
}

// Kernels that run along an axis read no packed numbers: those lie one in each byte for them,
// whatever else reads them and wherever they lie.
TEST(ProgramPlan, HasAKernelForWhatRunsBesidePackedNumbers) {
  for (std::uint64_t number = 0; number < 300; ++number) {
    const std::uint64_t seed = 3 * number;  // all of their kernels are emitted
    const Case one = random_case(seed, 4 + number % 5 * 4, true);
    const std::string what = wrong(one);
    ASSERT_EQ(what, "") << "seed " << seed << ": " << shrunk(one);
  }
}

Case packed_case(const std::string& text, DType dtype, std::uint64_t seed) {
  Case one{fusion::parse(text), {}, seed % 2 == 0 ? Rounding::once : Rounding::each, 3 * seed};
  testing::RandomProgram types;
  types.dtypes.assign(one.graph.arguments().size(), dtype);
  types.shapes.assign(one.graph.arguments().size(), {6, 10});
  one.inputs = testing::random_arguments(types, seed);
  return one;
}

TEST(ProgramPlan, ReadsPackedNumbersInEveryWayBesideWhatRuns) {
  for (const char* text :
       {"t = cummax(a, -1); bool(c), t, a / (c + 1)", "cumsum(a, 0), a + c",
        "cumsum(a * c, -1) + c", "cumsum(a[::-1], 0), c[:, ::-1] + 1", "concat(0, cumsum(a, 0), c)",
        "s = cumsum(a, 1); u4(s), s * c", "cumprod(a, 0) + max(c, 1)",
        "cumsum(cumsum(a, 0), 1) + f32(c)", "cummax(transpose(a), 0) * transpose(c)",
        "cumsum(concat(1, a, c), 1)", "b = bitcast(a, i4); cumsum(b, 0), b + c, cumsum(c, 0)",
        "cumsum(bitcast(bitcast(a, i4), u4)[1:, ::2], 1)", "max(bitcast(a, i4), 1) + a * c",
        "cumsum(bitcast(a, f4e2m1), 0)", "cummax(bitcast(a, u4) + bitcast(c, u4), 0)"}) {
    for (const DType dtype : {DType::u4, DType::i4, DType::f4e2m1}) {
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        const Case one = packed_case(text, dtype, seed);
        ASSERT_EQ(wrong(one), "") << text << " of " << name(dtype) << ", seed " << seed;
      }
    }
  }
}

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
    Case one{fusion::parse(text), {}, Rounding::once, 0};
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

// With a thousand operations there are hundreds of temporaries in few places.
TEST(ProgramPlan, KeepsApartWhatLivesTogetherInLargePrograms) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Case one = random_case(seed, 1000);
    const Definition definition = definition_of(one.graph, one.rounding);
    const ProgramPlan plan = plan_program(definition, call_of(one));
    std::vector<fusion::Lifetime> lives(plan.temporaries.size(), {0, plan.steps.size(), 0});
    for (std::size_t k = 0; k < plan.steps.size(); ++k) {
      for (const auto* operands : {&plan.steps[k].inputs, &plan.steps[k].outputs}) {
        for (const ProgramOperand& operand : *operands) {
          if (operand.kind != ProgramOperand::Kind::temporary) continue;
          fusion::Lifetime& life = lives[operand.index];
          life.first = std::min(life.first, k);
          life.last = std::max(life.last, k);
        }
      }
    }
    for (std::size_t i = 0; i < lives.size(); ++i) {
      const ProgramPlan::Temporary& a = plan.temporaries[i];
      EXPECT_LE(a.offset + a.bytes, plan.info.workspace_bytes);
      for (std::size_t k = 0; k < i; ++k) {
        const ProgramPlan::Temporary& b = plan.temporaries[k];
        const bool together = lives[i].first <= lives[k].last && lives[k].first <= lives[i].last;
        const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
        // A kernel may store where it reads for the last time.
        const bool in_turn = lives[i].first == lives[k].last || lives[k].first == lives[i].last;
        const bool same = a.offset == b.offset && a.bytes == b.bytes && a.dtype == b.dtype;
        EXPECT_TRUE(apart || !together || (in_turn && same))
            << "seed " << seed << ", temporaries " << k << ", " << i;
      }
    }
    EXPECT_GT(lives.size(), 10u) << "seed " << seed;
    EXPECT_EQ(wrong(one), "") << "seed " << seed;
  }
}

// Whatever the sizes, and also where all arrays count as larger than the caches.
void expect_no_larger_than_unfused(const Case& one) {
  fusion::CostModel uncached;
  uncached.cached_bytes = 0;
  const Definition definition = definition_of(one.graph, one.rounding);
  const CallTypes call = call_of(one);
  ASSERT_EQ(wrong_bytes(definition, call), "") << "seed " << one.seed;
  ASSERT_EQ(wrong_bytes(definition, call, uncached), "") << "seed " << one.seed << ", uncached";
}

TEST(ProgramPlan, MovesAndStoresNoMoreThanUnfused) {
  testing::Share share(DeviceType::cpu, 3);
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    if (!share.next()) continue;
    const std::size_t nodes = seed % 50 == 0 ? 300 : 4 + seed % 23 * 3;
    ASSERT_NO_FATAL_FAILURE(expect_no_larger_than_unfused(random_case(seed, nodes)));
  }
}

// Fused kernels need more unpacked than those of one operation each.
TEST(ProgramPlan, IsNoLargerThanUnfusedWhereItUnpacks) {
  testing::Share share(DeviceType::cpu, 3);
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    if (!share.next()) continue;
    const std::size_t nodes = 4 + seed % 23 * 3;
    ASSERT_NO_FATAL_FAILURE(expect_no_larger_than_unfused(random_case(seed, nodes, true)));
  }
}

// In one kernel with the running sum, q has to lie one number in each byte; in one of its own it
// does not.
TEST(ProgramPlan, ComparesWithUnfusedKernelsThatReadWhatTheyCanPacked) {
  const Dims shape{64, 512};
  CallTypes call;
  for (const DType dtype : {DType::f32, DType::u4}) {
    call.arguments.push_back({dtype, false, false});
    call.arrays.push_back({dtype, shape, contiguous_strides(shape)});
  }
  const std::vector<std::string> names{"x", "q"};
  const auto definition = [&](const char* text) {
    return definition_of(fusion::parse(text, names));
  };
  const std::uint64_t elements = 64 * 512;
  const Definition stored = definition("s = cumsum(x, 0); (s), s * q");
  EXPECT_EQ(unfused_workspace(stored, call), 0u);
  EXPECT_EQ(plan_program(stored, call).info.workspace_bytes, 0u);
  const Definition passed = definition("cumsum(x, 0) * q");
  const ProgramInfo info = plan_program(passed, call).info;
  EXPECT_EQ(info.workspace_bytes, elements) << "of q in bytes";
  EXPECT_EQ(info.op_by_op_workspace, 4 * elements) << "of the sum";
  EXPECT_EQ(info.op_by_op_bytes, elements * 16 + elements / 2);
}

// What a kernel stores lies where it has read something of that kind for the last time.
TEST(ProgramPlan, StoresInPlaceOfWhatIsReadForTheLastTime) {
  const Dims shape{64, 512};
  CallTypes call;
  call.arguments.push_back({DType::f32, false, false});
  call.arrays.push_back({DType::f32, shape, contiguous_strides(shape)});
  const auto room_of = [&](const char* text) {
    return plan_program(definition_of(fusion::parse(text)), call).info.workspace_bytes;
  };
  const std::uint64_t array = 64 * 512 * 4;
  EXPECT_EQ(room_of("cumsum(cumsum(cumsum(x, 0), 1), 0)"), array);
  EXPECT_EQ(room_of("cumsum(transpose(cumsum(transpose(cumsum(x, 0)), 0)), 0)"), 2 * array)
      << "in another order";
  EXPECT_EQ(room_of("y = cumsum(x, 0); cumsum(cumsum(y, 1), 0) + y"), 2 * array) << "still read";
}

// Arrays that have a part in common do not all live from when that is known.
TEST(ProgramPlan, CopiesWhatIsAPartOfSeveralArraysWhenEachIsNeeded) {
  const Dims shape{64, 512};
  CallTypes call;
  call.arguments.push_back({DType::f32, false, false});
  call.arrays.push_back({DType::f32, shape, contiguous_strides(shape)});
  std::string text = "t = x";
  for (int i = 0; i < 20; ++i) text += "; t = reshape(concat(0, t[:32], x[32:]), 0, -1) * 0.5";
  const ProgramInfo info = plan_program(definition_of(fusion::parse(text + "; t")), call).info;
  const std::uint64_t array = 64 * 512 * 4;
  EXPECT_LE(info.workspace_bytes, 2 * array);
  EXPECT_LE(info.op_by_op_workspace, 2 * array);
  EXPECT_LE(info.op_by_op_bytes, 20 * 4 * array);
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

// A value is computed again where that spares a write and a read of it; with more readers each of
// them spares less.
TEST(ProgramPlan, StoresWhatManyKernelsRead) {
  const Dims shape{256, 256, 256};
  CallTypes call;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    call.arguments.push_back({dtype, false, false});
    call.arrays.push_back({dtype, shape, contiguous_strides(shape)});
  }
  const auto plan_of = [&](const char* text) {
    return plan_program(definition_of(fusion::parse(text)), call);
  };
  EXPECT_EQ(plan_of("v = a * b; cumsum(v, 0), cumsum(v, 1)").info.workspace_bytes, 0u);
  const ProgramInfo many =
      plan_of("v = a * b; cumsum(v, 0), cumsum(v, 1), cumsum(v, 2), sum(v, 0), sum(v, 1)").info;
  EXPECT_GT(many.workspace_bytes, 0u);
  EXPECT_LT(many.bytes, many.op_by_op_bytes);
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
  // A norm before a rotation: only the scale of each row is stored.
  const ProgramPlan norm =
      plan_of("h = rms_norm(x, w, 1e-5); h[..., 0::2] * h[..., 1::2]", {{8, 64}, {64}});
  EXPECT_EQ(norm.steps.size(), 2u);
  EXPECT_EQ(norm.info.workspace_bytes, 256u);
  // What is broadcast may have no elements.
  EXPECT_EQ(plan_of("h = x + (w * v)[::-1]; h[0:1] * 2.0", {{2, 0}, {0}, {0}}).steps.size(), 1u);
  // Of which all is needed too stays where it is.
  EXPECT_EQ(plan_of("h = exp(x); h[..., 0::2] + sum(h, -1)", {{8, 64}}).steps.size(), 2u);
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

// ---- A layer of a language model ---------------------------------------------------------------

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
