// Tapes of kernels against plans: wherever a tape that was recorded with the numbers of one call
// holds for those of another, it has the schedule, the parameters and the grid that a plan for that
// call has, bit for bit; and it holds for enough of them to be of use. Near the lengths at which
// schedules change, and far from them.
#include "kernel/kernel_tape.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "call/function_impl.hpp"
#include "fusion/emit/pack_values.hpp"
#include "fusion/schedule/size_tape.hpp"
#include "fusion/text/text.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/error.hpp"
#include "kiln/program.hpp"
#include "program/plan.hpp"
#include "program/steps.hpp"
#include "tests/support/random_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using fusion::Size;
using fusion::SizeRecorder;
using fusion::SizeTape;

/// The result of a run, where the tape holds.
std::optional<std::int64_t> run(const SizeTape& tape, std::uint16_t place,
                                std::span<const std::int64_t> inputs) {
  std::vector<std::int64_t> values(tape.size());
  std::int64_t* next = tape.begin(values.data());
  for (const std::uint32_t input : tape.inputs()) *next++ = inputs[input];
  if (!tape.run(values.data())) return std::nullopt;
  return values[place];
}

// What a planner might do with two numbers.
Size planned(Size a, Size b, int& decision) {
  decision = a < 64 ? 1 : static_cast<int>(bit_ceil((a + 7) / 8));
  if (b % 4 == 0) decision += 1000;
  if (b != 12) decision += 2000;
  if (abs(a - b) >= 100) decision += 4000;
  decision += 10000 * static_cast<int>(lowest_bit(a | b | 16));
  return std::max(a, b) * 3 + (a * b) / 5 - (a & 7);
}

TEST(SizeTapes, HoldWhereTheSameIsDecided) {
  std::mt19937 random(5);
  int held = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const auto draw = [&] { return static_cast<std::int64_t>(1 + random() % 300); };
    const std::int64_t first[] = {draw(), draw()};
    SizeRecorder recorder;
    int decision = 0;
    const Size a = recorder.input(first[0]);
    const Size b = recorder.input(first[1]);
    const Size results[] = {planned(a, b, decision)};
    std::vector<std::uint16_t> places;
    const auto tape = recorder.finish(results, places);
    ASSERT_TRUE(tape);
    ASSERT_NE(places[0], SizeTape::kFixed);
    EXPECT_TRUE(run(*tape, places[0], first)) << "its own numbers";
    for (int other = 0; other < 300; ++other) {
      const bool near = other % 2 == 0;
      const std::int64_t inputs[] = {near ? first[0] + 8 * (other % 7) : draw(),
                                     near ? first[1] + other % 5 : draw()};
      const auto result = run(*tape, places[0], inputs);
      if (!result) continue;
      ++held;
      int own = 0;
      const Size expected = planned(inputs[0], inputs[1], own);
      EXPECT_EQ(decision, own) << inputs[0] << ", " << inputs[1];
      EXPECT_EQ(*result, static_cast<std::int64_t>(expected));
    }
  }
  EXPECT_GT(held, 3000);
}

// Which of two addresses is the greater one decides nothing where they are compared.
TEST(SizeTapes, HoldWhateverIsNotEqual) {
  SizeRecorder recorder;
  const Size a = recorder.input(4096);
  const Size b = recorder.input(64);
  EXPECT_NE(a, b);
  EXPECT_NE(a + 5, 12);
  EXPECT_NE(3 - b, 0);
  EXPECT_FALSE(b % 8 == 1);
  EXPECT_TRUE(a != 8 && a > 7);
  const Size results[] = {a + b};
  std::vector<std::uint16_t> places;
  const auto tape = recorder.finish(results, places);
  ASSERT_TRUE(tape);
  const auto sum = [&](std::int64_t first, std::int64_t second) {
    const std::int64_t inputs[] = {first, second};
    return run(*tape, places[0], inputs);
  };
  EXPECT_EQ(sum(4096, 64), 4160);
  EXPECT_EQ(sum(64, 4096), 4160) << "in either direction";
  EXPECT_EQ(sum(64, 64), std::nullopt);
  EXPECT_EQ(sum(9, 2), 11);
  EXPECT_EQ(sum(8, 2), std::nullopt);
  EXPECT_EQ(sum(7, 2), std::nullopt);
  EXPECT_EQ(sum(20, 3), std::nullopt);
  EXPECT_EQ(sum(20, 9), std::nullopt);
  EXPECT_EQ(sum(20, -8), 12);
}

TEST(SizeTapes, PinWhatLeavesTheirArithmetic) {
  SizeRecorder recorder;
  const Size a = recorder.input(24);
  EXPECT_EQ(static_cast<int>(a / 8), 3);
  const Size results[] = {a * 2, Size(7)};
  std::vector<std::uint16_t> places;
  const auto tape = recorder.finish(results, places);
  ASSERT_TRUE(tape);
  EXPECT_EQ(places[1], SizeTape::kFixed);
  const std::int64_t same = 31;
  const std::int64_t more = 32;
  EXPECT_EQ(run(*tape, places[0], {&same, 1}), 62);
  EXPECT_EQ(run(*tape, places[0], {&more, 1}), std::nullopt);
}

TEST(SizeTapes, DoNotHoldWhereTheyWouldDivideByZero) {
  SizeRecorder recorder;
  const Size a = recorder.input(24);
  const Size b = recorder.input(5);
  const Size results[] = {a / b + a % b};
  std::vector<std::uint16_t> places;
  const auto tape = recorder.finish(results, places);
  ASSERT_TRUE(tape);
  const std::int64_t zero[] = {24, 0};
  const std::int64_t other[] = {50, 7};
  EXPECT_EQ(run(*tape, places[0], zero), std::nullopt);
  EXPECT_EQ(run(*tape, places[0], other), 50 / 7 + 50 % 7);
}

// ---- Of kernels --------------------------------------------------------------------------------

std::int64_t number_of(const CallNumber& number, const Dims& shape,
                       std::span<const fusion::Operand> operands) {
  using Kind = CallNumber::Kind;
  if (number.kind == Kind::extent) return shape[number.axis];
  const fusion::Operand& operand = operands[number.operand];
  switch (number.kind) {
    case Kind::stride: return operand.strides[number.axis];
    case Kind::offset: return operand.offset;
    case Kind::split_stride: return operand.split_stride;
    case Kind::place: return operand.place.element;
    case Kind::place_stride: return operand.indexed.stride;
    case Kind::place_count: return operand.indexed.extent;
    default: return static_cast<std::int64_t>(operand.address);
  }
}

// Of a program's plan with arrays of these shapes, one after the other in memory; none where the
// program names sizes.
std::vector<KernelSpec> specs_for(const Definition& definition, std::span<const Dims> shapes,
                                  std::span<const DType> dtypes, std::mt19937_64& random) {
  const auto view = [&](std::size_t number, DType dtype, const Dims& shape) {
    const std::size_t within = random() % 3 == 0 ? random() % 4 * 16 : 0;
    const std::uintptr_t at = (std::uintptr_t{number + 1} << 40) + within;
    return View(reinterpret_cast<void*>(at), dtype, shape);
  };
  try {
    std::vector<Argument> inputs;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      inputs.emplace_back(view(i, dtypes.empty() ? DType::f32 : dtypes[i], shapes[i]));
    }
    const Stream stream;
    const ProgramPlan natural = plan_program(definition, types_of({stream, inputs, {}}));
    std::vector<View> outputs;
    for (std::size_t i = 0; i < natural.output_shapes.size(); ++i) {
      outputs.push_back(
          view(shapes.size() + i, natural.output_dtypes[i], natural.output_shapes[i]));
    }
    const CallTypes types = types_of({stream, inputs, outputs});
    return step_specs(plan_program(definition, types), types);
  } catch (const Error&) {
    return {};
  }
}

// Whether kernels are those of one form of a class.
bool are_alike(const KernelSpec& a, const KernelSpec& b) {
  return a.function.expression == b.function.expression && a.function.splits == b.function.splits &&
         a.shape.size() == b.shape.size() && a.form.index() == b.form.index() &&
         a.operands.size() == b.operands.size() &&
         std::ranges::equal(a.operands, b.operands, [](const auto& x, const auto& y) {
           return x.iota == y.iota && x.output == y.output && x.dtype == y.dtype &&
                  x.place.memory == y.place.memory && x.indexed.exists() == y.indexed.exists();
         });
}

struct Recorded {
  fusion::Layout layout;
  std::vector<fusion::Parameter> parameters;
  fusion::ParameterBlock block;
  KernelTape tape;
};

std::optional<Recorded> recorded(const KernelSpec& spec, std::string_view target) {
  EmittedKernel emitted = emit_kernel(spec, target);
  fusion::ParameterBlock block = fusion::pack_parameters(emitted.kernel, emitted.layout);
  auto tape =
      KernelTape::record(spec.function, spec.form, spec.shape, spec.operands, features_of(target),
                         emitted.kernel.parameters, block, [](const CallNumber&) { return true; });
  if (!tape) return std::nullopt;
  return Recorded{std::move(emitted.layout), std::move(emitted.kernel.parameters), std::move(block),
                  *std::move(tape)};
}

// What a launch by the tape has of a parameter.
std::vector<std::byte> parameter_of(const Recorded& own, const std::int64_t* values,
                                    std::size_t parameter) {
  const std::uint32_t bytes = own.parameters[parameter].bytes;
  const std::byte* const fixed = own.tape.bytes().data() + own.block.offsets[parameter];
  std::vector<std::byte> made(fixed, fixed + bytes);
  for (const KernelTape::Value& value : own.tape.values()) {
    if (value.offset == own.block.offsets[parameter]) {
      EXPECT_EQ(value.bytes, bytes);
      fusion::pack_value(values[value.place], bytes, made.data());
    }
  }
  return made;
}

// How many bytes from its operand's data a launch by the tape has a pointer.
std::int64_t pointer_bytes_of(const Recorded& own, const std::int64_t* values,
                              std::size_t parameter) {
  const auto found = std::ranges::find(own.tape.pointers(), own.block.offsets[parameter],
                                       &KernelTape::Pointer::offset);
  if (found == own.tape.pointers().end()) {
    ADD_FAILURE() << "no pointer for parameter " << parameter;
    return 0;
  }
  EXPECT_EQ(found->operand, own.parameters[parameter].index);
  return found->bytes(values);
}

// Whether the tape holds for a call; then it is what a plan for that call is.
bool holds(const Recorded& own, const KernelSpec& made_for, const KernelSpec& call,
           std::string_view target) {
  const SizeTape& tape = own.tape.tape();
  std::vector<std::int64_t> values(tape.size());
  std::int64_t* next = tape.begin(values.data());
  for (const CallNumber& input : own.tape.inputs()) {
    *next++ = number_of(input, call.shape, call.operands);
  }
  if (!tape.run(values.data())) return false;
  const fusion::Layout layout =
      plan_kernel(made_for.function, made_for.form, call.shape, call.operands, features_of(target));
  EXPECT_EQ(own.layout.schedule, layout.schedule);
  EXPECT_EQ(own.tape.threads(values.data()), layout.threads());
  EXPECT_EQ(own.tape.block(values.data()), layout.block());
  fusion::KernelDescription kernel;
  kernel.parameters = own.parameters;
  const fusion::ParameterBlock planned = fusion::pack_parameters(kernel, layout);
  for (std::size_t p = 0; p < own.parameters.size(); ++p) {
    const fusion::Parameter& parameter = own.parameters[p];
    if (parameter.kind == fusion::Parameter::Kind::pointer) {
      EXPECT_EQ(pointer_bytes_of(own, values.data(), p),
                pointer_bytes(layout.offsets[parameter.index], parameter.dtype));
      continue;
    }
    const std::vector<std::byte> made = parameter_of(own, values.data(), p);
    if (fusion::has_value(parameter)) {
      EXPECT_EQ(std::memcmp(made.data(), planned.bytes.data() + planned.offsets[p], made.size()), 0)
          << "parameter " << p << " of kind " << static_cast<int>(parameter.kind);
    }
  }
  return true;
}

/// A program; in shapes -1, -2 and -3 are sizes, of which the first two grow.
struct TapedProgram {
  std::string_view text;
  std::vector<Dims> inputs;
  std::vector<DType> dtypes{};
};

const TapedProgram kTapedPrograms[] = {
    {"a * 2 + b", {{-1, -2}, {-2}}},
    {"a + transpose(b)", {{-1, -2}, {-2, -1}}},
    {"u8(a) + u8(b)", {{-1, -2}, {-2}}, {DType::bf16, DType::bf16}},
    {"softmax(x * 2, -1)", {{-1, -2}}, {DType::bf16}},
    {"(x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * w",
     {{-1, -2}, {-2}},
     {DType::f16, DType::f16}},
    {"sum(x * y, 0)", {{-1, -2}, {-1, -2}}},
    {"x / sum(x, 0)", {{-1, -2}}},
    {"sum(x, 1, 2)", {{-3, -1, -2}}},
    {"sum(x)", {{-1, -2}}},
    {"cumsum(x, -1) + y", {{-1, -2}, {-2}}},
    {"cumsum(x, 0) * 2", {{-1, -2}}},
    {"argmax(x, -1) + iota(0)", {{-1, -2}}},
    {"sum(w * x, -1)", {{-1, -2}, {-2}}, {DType::bf16, DType::bf16}},
    {"sum(f32(w) * x, -1)", {{-1, -2}, {-2}}, {DType::u4, DType::f32}},
    {"sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)",
     {{2, 4, 1, 64}, {2, 1, -1, 64}, {2, 1, -1, 64}},
     {DType::bf16, DType::bf16, DType::bf16}},
    {"take(x, i, 0) * 2", {{-1, -2}, {-3}}, {DType::f32, DType::i32}},
    {"sum(take(x, i, 0), -1)", {{-1, -2}, {-3}}, {DType::bf16, DType::i32}},
    {"put(c, i, y * 2, 0)", {{-1, -2}, {-3}, {-3, -2}}, {DType::f32, DType::i32, DType::f32}},
};

// Sizes that are near those, or far from them: those at which schedules change, and their
// neighbours.
std::vector<std::int64_t> others_of(std::span<const std::int64_t> sizes, std::mt19937_64& random) {
  std::vector<std::int64_t> others(sizes.begin(), sizes.end());
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto step = static_cast<std::int64_t>(1) << random() % 6;
    const auto times = static_cast<std::int64_t>(random() % 5) - 1;
    switch (random() % 4) {
      case 0: break;
      case 1: others[i] += step * times; break;
      case 2: others[i] = (std::int64_t{2} << random() % 13) + times; break;
      default:
        others[i] =
            static_cast<std::int64_t>(std::exp2(2 + 0.001 * static_cast<double>(random() % 10000)));
    }
    others[i] = std::max<std::int64_t>(2, others[i]);
  }
  return others;
}

std::vector<Dims> shapes_of(std::span<const Dims> inputs, std::span<const std::int64_t> sizes) {
  std::vector<Dims> shapes(inputs.begin(), inputs.end());
  for (Dims& shape : shapes) {
    for (std::int64_t& size : shape) {
      if (size < 0) size = sizes[static_cast<std::size_t>(-size - 1)];
    }
  }
  return shapes;
}

constexpr const char* kTargets[] = {"sm_90", "gfx90a", "gfx1030", "cpu"};

TEST(KernelTapes, AreWhatAPlanIs) {
  std::mt19937_64 random(29);
  std::string seldom;  // programs of which that is hardly tested
  for (const TapedProgram& program : kTapedPrograms) {
    const Function function = parse("f", program.text);
    const Definition& definition = function.impl().definition;
    std::map<std::string_view, int> held;
    for (int turn = 0; turn < 10; ++turn) {
      std::vector<std::int64_t> start{768, 320, 6};
      const std::vector<std::int64_t> first = turn == 0 ? start : others_of(start, random);
      const auto specs =
          specs_for(definition, shapes_of(program.inputs, first), program.dtypes, random);
      std::map<std::string_view, std::vector<std::optional<Recorded>>> tapes;
      for (const char* const target : kTargets) {
        for (const KernelSpec& spec : specs) tapes[target].push_back(recorded(spec, target));
      }
      for (int other = 0; other < 60; ++other) {
        const std::vector<std::int64_t> second = others_of(first, random);
        const auto calls =
            specs_for(definition, shapes_of(program.inputs, second), program.dtypes, random);
        for (std::size_t k = 0; k < specs.size() && calls.size() == specs.size(); ++k) {
          if (!are_alike(specs[k], calls[k])) continue;
          for (const char* const target : kTargets) {
            const std::optional<Recorded>& own = tapes[target][k];
            if (own && holds(*own, specs[k], calls[k], target)) ++held[target];
            if (::testing::Test::HasFailure()) {
              FAIL() << fmt::format("{} for {}: made for {}, of {}", program.text, target,
                                    fmt::join(first, ", "), fmt::join(second, ", "));
            }
          }
        }
      }
    }
    for (const char* const target : kTargets) {
      if (held[target] < 40)
        seldom += fmt::format("{}, {}: {}\n", program.text, target, held[target]);
    }
  }
  EXPECT_EQ(seldom, "");
}

// Where one is recorded whenever none holds, lengths that grow soon need no other ones.
TEST(KernelTapes, OfLengthsThatGrowAreFew) {
  std::mt19937_64 random(31);
  std::string many;
  for (const TapedProgram& program : kTapedPrograms) {
    const Function function = parse("f", program.text);
    const Definition& definition = function.impl().definition;
    for (const bool first_grows : {true, false}) {
      std::map<std::string_view, std::vector<std::pair<KernelSpec, Recorded>>> tapes;
      std::map<std::string_view, int> later;
      constexpr std::int64_t kMost = 2000;
      int calls = 0;
      for (std::int64_t length = 2; length < kMost; length += length < 100 ? 1 : 1 + length % 7) {
        const std::int64_t sizes[] = {first_grows ? length : 48, first_grows ? 64 : length, 6};
        const auto specs =
            specs_for(definition, shapes_of(program.inputs, sizes), program.dtypes, random);
        if (length > kMost / 2) calls += static_cast<int>(specs.size());
        for (const KernelSpec& spec : specs) {
          for (const char* const target : kTargets) {
            auto& known = tapes[target];
            const bool held = std::ranges::any_of(known, [&](const auto& own) {
              return are_alike(own.first, spec) && holds(own.second, own.first, spec, target);
            });
            if (held) continue;
            if (auto made = recorded(spec, target)) known.emplace_back(spec, *std::move(made));
            if (length > kMost / 2) ++later[target];
          }
          ASSERT_FALSE(::testing::Test::HasFailure()) << program.text << " of " << length;
        }
      }
      for (const char* const target : kTargets) {
        const std::size_t count = tapes[target].size();
        if (later[target] <= calls / 7 && count <= 100) continue;
        many += fmt::format("{} for {}: {}, {} of them for the last {} calls\n", program.text,
                            target, count, later[target], calls);
      }
    }
  }
  EXPECT_EQ(many, "");
}

// What nobody thought of.
TEST(KernelTapes, OfRandomProgramsAreWhatAPlanIs) {
  const std::uint64_t seed = testing::setting("KILN_TEST_SEED", 1);
  const auto draws = static_cast<int>(testing::setting("KILN_TEST_DRAWS", 80));
  std::mt19937_64 random(seed);
  int held = 0;
  for (int draw = 0; draw < draws; ++draw) {
    const testing::RandomProgram program = testing::random_program(
        seed + static_cast<std::uint64_t>(draw),
        {.nodes = 3 + random() % 10, .floats = draw % 4 != 0, .packed = draw % 5 == 0});
    const Definition definition{"f", program.graph, {}, fusion::to_text(program.graph)};
    // Other numbers for the sizes of the program's arrays.
    const auto shapes = [&](const std::map<std::int64_t, std::int64_t>& known) {
      std::map<std::int64_t, std::int64_t> sizes = known;
      std::vector<Dims> other = program.shapes;
      for (Dims& shape : other) {
        for (std::int64_t& size : shape) {
          if (size < 2) continue;
          const auto drawn = static_cast<std::int64_t>(std::exp2(1 + random() % 10));
          size = sizes.try_emplace(size, drawn + static_cast<std::int64_t>(random() % 3))
                     .first->second;
        }
      }
      return other;
    };
    const auto specs = specs_for(definition, shapes({}), program.dtypes, random);
    const char* const target = kTargets[draw % 4];
    std::vector<std::optional<Recorded>> tapes;
    for (const KernelSpec& spec : specs) tapes.push_back(recorded(spec, target));
    for (int other = 0; other < 40 && !specs.empty(); ++other) {
      const auto calls = specs_for(definition, shapes({}), program.dtypes, random);
      for (std::size_t k = 0; k < specs.size() && calls.size() == specs.size(); ++k) {
        if (!are_alike(specs[k], calls[k]) || !tapes[k]) continue;
        if (holds(*tapes[k], specs[k], calls[k], target)) ++held;
        if (::testing::Test::HasFailure()) {
          FAIL() << definition.expression << " for " << target << ", of seed " << seed
                 << ", program " << draw;
        }
      }
    }
  }
  EXPECT_GT(held, draws) << "seed " << seed;
}

}  // namespace
}  // namespace kiln
