// Random shapes, strides, dtypes and graphs against the reference interpreter: every element of
// every output, every byte between them, and nothing outside. KILN_TEST_DRAWS, KILN_TEST_KERNELS
// and KILN_TEST_SEED change how many cases, how many compiled kernels, and which; KILN_TEST_CASE
// runs one case alone, as a failure prints it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <optional>

#include "fusion/graph/number.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/reference/value.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/guarded_memory.hpp"
#include "tests/support/layout_case.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::Case;
using testing::CaseOperand;
using testing::GuardedMemory;

using Bytes = std::vector<std::byte>;

// ---- What was running when a signal came, such as that of a guard page that was touched --------

std::array<char, 4096> running_case{};

void announce(const std::string& text) {
  const std::size_t length = std::min(text.size(), running_case.size() - 1);
  std::memcpy(running_case.data(), text.data(), length);
  running_case[length] = '\0';
}

extern "C" void report_fault(int signal) {
  static constexpr std::string_view kWords = "\nthis case ended with a signal:\n";
  [[maybe_unused]] ssize_t ignored = ::write(2, kWords.data(), kWords.size());
  ignored = ::write(2, running_case.data(), std::strlen(running_case.data()));
  ignored = ::write(2, "\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// ---- Values ------------------------------------------------------------------------------------

Bytes random_bytes(const CaseOperand& operand, std::mt19937_64& random) {
  Bytes bytes(operand.bytes());
  const DType dtype = operand.dtype;
  const auto half = [&] {
    return static_cast<long double>(static_cast<int>(random() % 17) - 8) / 2;
  };
  const DType part = dtype == DType::c64 ? DType::f32 : dtype;
  const auto width = static_cast<std::size_t>(std::max(1, bits(part) / 8));
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
    std::uint64_t value = random();
    if (is_floating(part) && bits(part) >= 8)
      value = fusion::reference::encode(fusion::reference::from_real(part, half()));
    if (part == DType::boolean) value &= 1;
    std::memcpy(bytes.data() + at, &value, width);
  }
  return bytes;
}

Dims strides_in(const CaseOperand& operand, const Dims& shape) {
  return fusion::broadcast_strides(operand.shape, operand.strides, shape);
}

// What output `index` must be: `before` with the reference's elements in it.
Bytes expected_output(const Case& item, const fusion::Graph& graph, std::size_t index,
                      std::vector<Bytes>& inputs, const Bytes& before) {
  const CaseOperand& output = item.outputs[index];
  const fusion::Extract part = fusion::extract(graph, std::span(&index, 1));
  std::vector<fusion::ArgumentType> types;
  std::vector<fusion::ReferenceOperand> arguments;
  for (const std::size_t i : part.arguments) {
    const CaseOperand& input = item.inputs[i];
    types.push_back({input.dtype, false, false});
    arguments.push_back(
        {inputs[i].data(), input.dtype, strides_in(input, output.shape), input.first()});
  }
  const fusion::TypedGraph typed =
      fusion::infer(part.graph, types, std::span(&output.dtype, 1), Rounding::once, "reference");
  Bytes expected = before;
  const std::vector<fusion::ReferenceOperand> outputs = {
      {expected.data(), output.dtype, output.strides, output.first()}};
  fusion::evaluate(typed, output.shape, arguments, outputs);
  return expected;
}

// Elements that are as near to the expected ones as the recipe allows become equal to them.
void forgive(const Case& item, const CaseOperand& output, const Bytes& expected, Bytes& got) {
  const double ulps = item.recipe.ulps;
  if (ulps == 0) return;
  const auto width = static_cast<std::size_t>(bits(output.dtype) / 8);
  for (std::size_t at = 0; at + width <= got.size(); at += width) {
    std::uint64_t want = 0;
    std::uint64_t have = 0;
    std::memcpy(&want, expected.data() + at, width);
    std::memcpy(&have, got.data() + at, width);
    const double error = fusion::ulp_error(fusion::decode(have, output.dtype),
                                           fusion::decode(want, output.dtype), output.dtype);
    if (error <= ulps) std::memcpy(got.data() + at, &want, width);
  }
}

// ---- Running -----------------------------------------------------------------------------------

class Runner {
 public:
  explicit Runner(Device device)
      : backend_(jit::backend(device)), stream_(backend_.create_stream()) {
    for (int i = 0; i < 8; ++i)
      memory_.push_back(std::make_unique<GuardedMemory>(backend_, kBytes));
  }
  ~Runner() { backend_.destroy_stream(stream_); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  static bool fits(const Case& item) {
    const auto small = [](const CaseOperand& operand) { return operand.bytes() + 256 < kBytes; };
    return std::ranges::all_of(item.inputs, small) && std::ranges::all_of(item.outputs, small);
  }

  enum class Outcome : std::uint8_t { right, wrong, needs_compile };

  /// Runs the case on values that follow from `seed`; `reason` says what was wrong.
  Outcome run(const Case& item, std::uint64_t seed, OnMiss on_miss, std::string& reason) {
    std::vector<char*> places;
    std::vector<Argument> arguments;
    std::vector<View> outputs;
    for (std::size_t i = 0; i < item.inputs.size(); ++i) {
      places.push_back(place(i, item.inputs[i]));
      arguments.emplace_back(view(item.inputs[i], places[i]));
    }
    for (std::size_t i = 0; i < item.outputs.size(); ++i) {
      const CaseOperand& output = item.outputs[i];
      places.push_back(output.same_as >= 0 ? places[static_cast<std::size_t>(output.same_as)]
                                           : place(item.inputs.size() + i, output));
      outputs.push_back(view(output, places.back()));
    }
    try {
      // A function of its own for each case: its plan is not needed again.
      const Function function = parse("property", item.recipe.expression, {.on_miss = on_miss});
      function.bind(stream_, arguments, outputs);  // compiles as a call does, or says that it would
      return run_prepared(item, seed, function, arguments, outputs, places, reason);
    } catch (const Error& error) {
      if (error.code() == Code::would_compile) return Outcome::needs_compile;
      reason = fmt::format("it threw: {}", error.what());
      return Outcome::wrong;
    }
  }

 private:
  static constexpr std::size_t kBytes = 1 << 20;

  std::size_t gap(const CaseOperand& operand) const {
    return static_cast<std::size_t>(operand.shift * bits(operand.dtype) / 8);
  }

  char* place(std::size_t slot, const CaseOperand& operand) const {
    return memory_[slot]->place(operand.bytes(), operand.at_end, gap(operand));
  }

  Outcome run_prepared(const Case& item, std::uint64_t seed, const Function& function,
                       std::span<const Argument> arguments, std::span<const View> outputs,
                       const std::vector<char*>& places, std::string& reason) {
    std::mt19937_64 random(seed);
    std::vector<Bytes> inputs;
    for (std::size_t i = 0; i < item.inputs.size(); ++i) {
      inputs.push_back(random_bytes(item.inputs[i], random));
      memory_[i]->write(places[i], inputs[i]);
    }
    const fusion::Graph graph = fusion::parse(item.recipe.expression);
    std::vector<Bytes> expected;
    for (std::size_t i = 0; i < item.outputs.size(); ++i) {
      const CaseOperand& output = item.outputs[i];
      const bool in_place = output.same_as >= 0;
      const Bytes poison(output.bytes(), std::byte{0xcd});
      const Bytes& before = in_place ? inputs[static_cast<std::size_t>(output.same_as)] : poison;
      const std::size_t slot = item.inputs.size() + i;
      if (!in_place) memory_[slot]->write(places[slot], poison);
      expected.push_back(expected_output(item, graph, i, inputs, before));
    }
    function.call(stream_, arguments, outputs);
    backend_.synchronize(stream_);
    return compare(item, inputs, expected, places, reason);
  }

  View view(const CaseOperand& operand, char* at) const {
    return {at + operand.first() * bits(operand.dtype) / 8, operand.dtype, operand.shape,
            operand.strides, backend_.device()};
  }

  Outcome compare(const Case& item, const std::vector<Bytes>& inputs,
                  const std::vector<Bytes>& expected, const std::vector<char*>& places,
                  std::string& reason) const {
    const std::size_t arguments = item.inputs.size();
    const auto check = [&](std::size_t slot, const char* at, const Bytes& want,
                           const CaseOperand& operand, std::string_view what, std::size_t index) {
      bool intact = true;
      Bytes got = memory_[slot]->read(at, want.size(), intact);
      if (!intact) reason = fmt::format("bytes around {} {} were written", what, index);
      if (what == "output") forgive(item, operand, want, got);
      const auto [a, b] = std::ranges::mismatch(got, want);
      if (a == got.end()) return;
      const auto byte = static_cast<std::size_t>(a - got.begin());
      reason =
          fmt::format("{} {} differs first in byte {}, element {} in memory: {:#04x}, not {:#04x}",
                      what, index, byte, byte * 8 / static_cast<std::size_t>(bits(operand.dtype)),
                      std::to_integer<int>(*a), std::to_integer<int>(*b));
    };
    for (std::size_t i = 0; i < item.outputs.size(); ++i) {
      const int same = item.outputs[i].same_as;
      const std::size_t slot = same >= 0 ? static_cast<std::size_t>(same) : arguments + i;
      check(slot, places[arguments + i], expected[i], item.outputs[i], "output", i);
    }
    for (std::size_t i = 0; i < arguments; ++i) {
      const bool overwritten = std::ranges::any_of(item.outputs, [&](const CaseOperand& output) {
        return output.same_as == static_cast<int>(i);
      });
      if (!overwritten) check(i, places[i], inputs[i], item.inputs[i], "input", i);
    }
    return reason.empty() ? Outcome::right : Outcome::wrong;
  }

  jit::Backend& backend_;
  Stream stream_;
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
};

// ---- Making a failure small --------------------------------------------------------------------

void resize(CaseOperand& operand, std::size_t axis_from_end, std::int64_t size) {
  if (axis_from_end >= operand.shape.size()) return;
  std::int64_t& own = operand.shape[operand.shape.size() - 1 - axis_from_end];
  if (own > size) own = size;
}

// Smaller extents while the case still fails.
Case shrink(Runner& runner, Case item, std::uint64_t seed, std::string& reason) {
  std::size_t rank = 0;
  for (const CaseOperand& output : item.outputs) rank = std::max(rank, output.shape.size());
  bool smaller = true;
  for (int steps = 0; smaller && steps < 20; ++steps) {
    smaller = false;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      std::int64_t size = 1;
      for (const CaseOperand& output : item.outputs) {
        if (axis < output.shape.size())
          size = std::max(size, output.shape[output.shape.size() - 1 - axis]);
      }
      for (const std::int64_t next : {std::int64_t{1}, size / 2, size - 1}) {
        if (next < 1 || next >= size) continue;
        Case candidate = item;
        for (CaseOperand& input : candidate.inputs) resize(input, axis, next);
        for (CaseOperand& output : candidate.outputs) resize(output, axis, next);
        std::string why;
        if (runner.run(candidate, seed, OnMiss::compile, why) != Runner::Outcome::wrong) continue;
        item = std::move(candidate);
        reason = why;
        smaller = true;
        break;
      }
    }
  }
  return item;
}

// ---- The test ----------------------------------------------------------------------------------

class LayoutProperty : public ::testing::TestWithParam<DeviceType> {};

TEST_P(LayoutProperty, AgreesWithTheReferenceInEveryByte) {
  const DeviceType type = GetParam();
  if (!testing::has_device(type)) GTEST_SKIP() << jit::why_absent(type);
  const bool cpu = type == DeviceType::cpu;
  const std::uint64_t wanted = testing::setting("KILN_TEST_DRAWS", cpu ? 1'000 : 100'000);
  const std::uint64_t budget = testing::setting("KILN_TEST_KERNELS", cpu ? 16 : 400);
  const std::uint64_t seed = testing::random_seed();
  const char* const only = std::getenv("KILN_TEST_CASE");
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, report_fault);
  Runner runner({type, 0});
  const std::vector<testing::Recipe> recipes = testing::recipes(seed);
  std::uint64_t done = 0;
  std::uint64_t compiled = 0;
  // Kernels are compiled for the first cases that need one and then evenly over the run; between,
  // cases that need another are drawn again.
  const auto may_compile = [&] {
    return only != nullptr || compiled < budget / 2 + budget * done / (2 * wanted);
  };
  std::uint64_t number = only != nullptr ? std::strtoull(only, nullptr, 10) : 0;
  for (; done < (only != nullptr ? 1 : wanted); ++number) {
    ASSERT_LT(number, 100 * wanted + 1'000'000) << "too few cases fit the kernels";
    const Case item = testing::CaseDraw(seed, number).draw(recipes);
    if (!Runner::fits(item)) continue;
    announce(fmt::format("KILN_TEST_SEED={} KILN_TEST_CASE={}: {}", seed, number, describe(item)));
    std::string reason;
    Runner::Outcome outcome = runner.run(item, number, OnMiss::fail, reason);
    if (outcome == Runner::Outcome::needs_compile) {
      if (!may_compile()) continue;
      ++compiled;
      outcome = runner.run(item, number, OnMiss::compile, reason);
    }
    ++done;
    if (outcome == Runner::Outcome::right) continue;
    std::string smallest = reason;
    const Case small = shrink(runner, item, number, smallest);
    FAIL() << "KILN_TEST_SEED=" << seed << " KILN_TEST_CASE=" << number << ": "
           << testing::describe(item) << "\n"
           << reason << "\nat its smallest: " << testing::describe(small) << "\n"
           << smallest;
  }
  fmt::print("{} cases of {} drawn, {} with a kernel of their own, seed {}\n", done, number,
             compiled, seed);
}

INSTANTIATE_TEST_SUITE_P(Cpu, LayoutProperty, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, LayoutProperty, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
