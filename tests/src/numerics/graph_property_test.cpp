// Random graphs against the reference interpreter, op by op: kernels store intermediate values too,
// and each is judged from the operands that the device itself had, so that no error hides in one
// that came before. Once more before their kernels are there, when general kernels serve the calls
// (OnMiss::fallback), and then by the kernels that take over. KILN_TEST_DRAWS and KILN_TEST_SEED
// change how many graphs, and which; a large number is divided among processes, because modules
// stay loaded as long as theirs lives.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include "call/call_specs.hpp"
#include "call/function_impl.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/reference/operation.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/text/text.hpp"
#include "kiln/statistics.hpp"
#include "tests/support/general_kernels.hpp"
#include "tests/support/graph_case.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using fusion::NodeId;
using fusion::Op;
using fusion::TypedGraph;
using fusion::TypedNode;
using fusion::reference::Value;
using testing::ArgumentPool;
using testing::GraphCase;
using testing::GraphDraw;
using testing::HostArray;

bool is_narrow(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// Ops whose result the contract defines to the bit: under fast, only what is not rounded at all.
// f64's floor_divide and remainder are rounded twice by the reference.
bool is_defined(Op op, Accuracy accuracy) {
  const auto exact = [&](const fusion::Bounds& bounds) {
    return std::max({bounds.own, bounds.libm, bounds.cuda, bounds.hip}) <=
           (accuracy == Accuracy::fast ? 0 : 0.5);
  };
  return op != Op::floor_divide && op != Op::remainder && exact(fusion::info(op).f32) &&
         exact(fusion::info(op).f64);
}

// The ops that are defined to the bit on complex numbers too, as the reference has them.
bool is_defined_for_complex(Op op) {
  const auto bound = fusion::info(op).c64;
  return bound ? bound->error <= 0.5 : fusion::takes_complex(op);
}

bool is_nan(const Value& value) { return std::isnan(value.real) || std::isnan(value.imag); }

// Whether a kernel must store the value for the next ones to be judged. The bits of a NaN are
// nobody's promise, but these show them.
bool must_be_stored(const fusion::Node& node, bool complex, Accuracy accuracy) {
  return node.op == Op::bitcast || node.op == Op::copysign || !is_defined(node.op, accuracy) ||
         (complex && !is_defined_for_complex(node.op));
}

bool agrees_as_complex(Op op, const Value& actual, const Value& exact,
                       std::span<const Value> operands) {
  std::array<fusion::WideComplex, 3> z;
  for (std::size_t i = 0; i < operands.size(); ++i) z[i] = {operands[i].real, operands[i].imag};
  return fusion::counted_error(op, {actual.real, actual.imag}, {exact.real, exact.imag},
                               std::span(z).first(operands.size())) <= fusion::info(op).c64->error;
}

// Under fast, a product may not have been rounded before it was added, so that the error of a sum
// is one of its operands.
bool is_near(std::string_view function, long double actual, long double exact,
             std::span<const long double> operands, DType stored) {
  long double size = 1;
  for (const long double x : operands) size = std::max(size, std::fabs(x));
  return fusion::fast_error(function, actual, exact, operands, stored) <= fusion::kFastBound * size;
}

// ---- Judging -----------------------------------------------------------------------------------

class Judge {
 public:
  Judge(const GraphCase& item, const Options& options, Device device)
      : item_(item), options_(options), device_(device) {
    const std::vector<fusion::ArgumentType> types = item.pool.types(item.graph);
    const TypedGraph natural = fusion::infer(item.graph, types, {}, options.rounding, "property");
    std::vector<bool> read(item.graph.nodes().size(), false);
    for (const fusion::Node& node : item.graph.nodes())
      for (const NodeId operand : node.inputs()) read[operand] = true;
    std::vector<DType> stored;
    for (std::size_t i = 0; i < natural.outputs.size(); ++i) {
      DType dtype = natural.nodes[natural.outputs[i]].dtype;
      // What the device goes on with has the digits of an f32.
      const bool widened =
          options.rounding == Rounding::once && is_narrow(dtype) && read[item.graph.outputs()[i]];
      widened_.push_back(widened);
      stored.push_back(widened ? DType::f32 : dtype);
    }
    typed_ = fusion::infer(item.graph, types, stored, options.rounding, "property");
    stores_.resize(typed_.nodes.size());
    GraphDraw layouts(stored.size());
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const NodeId id = typed_.outputs[i];
      stores_[widened_[i] ? typed_.nodes[id].operands[0] : id].push_back(i);
      outputs_.push_back(layouts.layout(stored[i], item.pool.shape));
    }
    before_ = outputs_;
    for (const std::string& name : item.graph.arguments()) {
      inputs_.push_back(item.pool.arguments.at(name));
      const auto* const array = std::get_if<HostArray>(&inputs_.back());
      strides_.push_back(array == nullptr ? Dims()
                                          : fusion::broadcast_strides(array->shape, array->strides,
                                                                      item.pool.shape));
    }
  }

  // Runs the graph; what the first wrong value is, or nothing.
  std::string run() {
    const Function function =
        parse("property", fusion::to_text(item_.graph), options_, item_.graph.arguments());
    if (options_.on_miss != OnMiss::fallback) return run(function);
    if (std::string wrong = run_before(function); !wrong.empty()) return wrong;
    const std::vector<HostArray> first = std::exchange(outputs_, before_);
    Options compiling = options_;
    compiling.on_miss = OnMiss::compile;
    std::string wrong =
        run(parse("property", fusion::to_text(item_.graph), compiling, item_.graph.arguments()));
    return wrong.empty() ? difference(first) : wrong;
  }

 private:
  // Before its kernel is there. General kernels are compiled first: always where there is no
  // interpreter, and there for half of the graphs.
  std::string run_before(const Function& function) {
    if (device_.type != DeviceType::cpu || item_.graph.nodes().size() % 2 == 0) {
      testing::load_general_kernels(call_specs(function.impl().definition, types()),
                                    jit::backend(device_));
    }
    const std::string wrong = run(function);
    return wrong.empty() ? wrong : "before its kernel was there: " + wrong;
  }

  CallTypes types() const {
    const auto type = [](const HostArray& array) {
      return ArrayType{array.dtype, array.shape, array.strides, array.first, array.offset, {}};
    };
    CallTypes types;
    types.arguments = item_.pool.types(item_.graph);
    for (const testing::TestInput& input : inputs_) {
      if (const auto* array = std::get_if<HostArray>(&input)) types.arrays.push_back(type(*array));
    }
    for (const HostArray& output : outputs_) types.outputs.push_back(type(output));
    return types;
  }

  // What has other bits than before the kernel took over, though the contract defines them.
  std::string difference(const std::vector<HostArray>& first) const {
    if (options_.accuracy == Accuracy::fast) return {};  // a kernel may contract
    std::vector<bool> exact;
    for (const TypedNode& node : typed_.nodes) {
      const bool complex = node.dtype == DType::c64 ||
                           (node.arity > 0 && typed_.nodes[node.operands[0]].dtype == DType::c64);
      bool own = complex ? is_defined_for_complex(node.op)
                         : !is_floating(node.dtype) || kiln::is_defined(node.op, options_.accuracy);
      // A NaN has any bits.
      own = own && node.op != Op::bitcast && node.op != Op::copysign;
      for (const NodeId operand : node.inputs()) own = own && exact[operand];
      exact.push_back(own);
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (!exact[typed_.outputs[i]]) continue;
      for (std::int64_t n = 0; n < outputs_[i].size(); ++n) {
        const std::int64_t place = testing::place_of(outputs_[i], n);
        const std::uint64_t was = testing::get_bits(first[i], place);
        const std::uint64_t is = testing::get_bits(outputs_[i], place);
        const DType dtype = outputs_[i].dtype;
        const bool nans = is_nan(fusion::reference::decode(dtype, was)) &&
                          is_nan(fusion::reference::decode(dtype, is));
        if (was == is || nans) continue;
        return fmt::format("output {}, element {}: {:#x} before its kernel was there, {:#x} then",
                           i, n, was, is);
      }
    }
    return {};
  }

  std::string run(const Function& function) {
    try {
      testing::run_on(device_, function, inputs_, outputs_);
    } catch (const Error& error) {
      return fmt::format("it threw: {}", error.what());
    }
    std::int64_t count = 1;
    for (const std::int64_t extent : item_.pool.shape) count *= extent;
    for (std::int64_t n = 0; n < count; ++n) {
      std::string wrong = element(n);
      if (!wrong.empty()) return wrong;
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      HostArray expected = before_[i];
      for (std::int64_t n = 0; n < count; ++n) {
        const std::int64_t place = testing::place_of(expected, n);
        testing::set_bits(expected, place, testing::get_bits(outputs_[i], place));
      }
      if (expected.bytes != outputs_[i].bytes)
        return fmt::format("output {}: a byte between its elements was changed", i);
    }
    return {};
  }

  struct Known {
    Value value;
    bool sure = true;  ///< false after an error that is allowed and was not stored
    /// False under fast for what is rounded on its way from the arguments: a compiler that computes
    /// it once to store it and once more for another op may contract a product and a sum in one of
    /// them, so that the op's operand is near what was stored, but not equal.
    bool unique = true;
  };

  std::string element(std::int64_t n) const {
    std::vector<Known> known(typed_.nodes.size());
    for (NodeId id = 0; id < known.size(); ++id) {
      const TypedNode& node = typed_.nodes[id];
      std::array<Value, 3> operands;
      bool sure = true;
      bool unique = true;
      for (std::size_t i = 0; i < node.arity; ++i) {
        operands[i] = known[node.operands[i]].value;
        sure = sure && known[node.operands[i]].sure;
        unique = unique && known[node.operands[i]].unique;
      }
      const std::span given = std::span(operands).first(node.arity);
      const bool defined = is_defined(node, given) && !shows_nan(node, given);
      const bool judged = sure && !shows_nan(node, given) && (unique || node.op != Op::bitcast);
      const bool remains =
          unique && (options_.accuracy != Accuracy::fast || is_defined(node, given));
      known[id] = {value(node, given, n, Rounding::each), sure && defined, remains};
      for (const std::size_t i : stores_[id]) {
        const HostArray& output = outputs_[i];
        const std::uint64_t got = testing::get_bits(output, testing::place_of(output, n));
        if (judged && !agrees(node, given, unique, n, output.dtype, got))
          return describe(node, given, n, i, got);
        // A rounded copy says nothing of the value behind it.
        const bool whole = options_.rounding == Rounding::each || !is_narrow(output.dtype);
        if (whole) {
          known[id] = {fusion::reference::decode(output.dtype, got), true, remains};
          if (output.dtype != node.dtype) known[id].value.pattern.reset();
          known[id].value.dtype = node.dtype;
        }
      }
    }
    return {};
  }

  static bool shows_nan(const TypedNode& node, std::span<const Value> operands) {
    if (node.op == Op::bitcast) return is_nan(operands[0]) && !operands[0].pattern;
    return node.op == Op::copysign && std::isnan(operands[1].real);
  }

  static bool is_complex(const TypedNode& node, std::span<const Value> operands) {
    return node.dtype == DType::c64 || (!operands.empty() && operands[0].dtype == DType::c64);
  }

  bool is_defined(const TypedNode& node, std::span<const Value> operands) const {
    if (is_complex(node, operands)) return is_defined_for_complex(node.op);
    return !is_floating(node.dtype) || kiln::is_defined(node.op, options_.accuracy);
  }

  // Under Rounding::each as the dtype's arithmetic has it, narrow floats under the function's
  // Rounding::once as f32; under Rounding::once with all digits.
  Value value(const TypedNode& node, std::span<const Value> operands, std::int64_t n,
              Rounding rounding) const {
    switch (node.op) {
      case Op::input: {
        const auto& array = std::get<HostArray>(inputs_[node.payload]);
        return fusion::reference::read(array.bytes.data() + array.first, array.dtype,
                                       array.offset + index(strides_[node.payload], n));
      }
      case Op::scalar: {
        const Scalar& scalar = std::get<Scalar>(inputs_[node.payload]);
        const DType given = is_floating(scalar.dtype()) ? DType::f64 : scalar.dtype();
        const Value number = fusion::reference::decode(
            given, bits(given) == 64 ? scalar.bits()
                                     : scalar.bits() & ((std::uint64_t{1} << bits(given)) - 1));
        // A weak number is a literal: an f32 beside narrow floats.
        const bool wide = scalar.weak() && options_.rounding == Rounding::once;
        Value result = fusion::reference::convert(
            number, wide ? fusion::compute_dtype(node.dtype) : node.dtype, true);
        result.dtype = node.dtype;
        return result;
      }
      case Op::iota:
        return fusion::reference::convert(fusion::reference::from_integer(DType::i64, n),
                                          node.dtype, true);
      case Op::constant:
      case Op::cast:
      case Op::promote:
      case Op::bitcast: return fusion::reference::evaluate_node(typed_, node, operands);
      default: break;
    }
    TypedNode computed = node;
    if (options_.rounding == Rounding::once && node.op != Op::nextafter)
      computed.dtype = fusion::compute_dtype(node.dtype);
    Value result = fusion::reference::operate(computed, operands, rounding);
    result.pattern.reset();
    result.dtype = node.dtype;
    return result;
  }

  std::int64_t index(const Dims& strides, std::int64_t n) const {
    std::int64_t place = 0;
    for (std::size_t k = strides.size(); k-- > 0;) {
      place += n % item_.pool.shape[k] * strides[k];
      n /= item_.pool.shape[k];
    }
    return place;
  }

  // `unique` as Known has it, of the operands: then what is exact is so to the bit.
  bool agrees(const TypedNode& node, std::span<const Value> operands, bool unique, std::int64_t n,
              DType stored, std::uint64_t got) const {
    const Value expected = value(node, operands, n, Rounding::each);
    const bool complex = stored == DType::c64;
    const bool to_the_bit = is_defined(node, operands) && (unique || is_complex(node, operands));
    if (expected.pattern && expected.dtype == stored && (unique || !is_floating(stored)))
      return *expected.pattern == got;
    if (!is_floating(stored) && !complex) return fusion::reference::encode(expected) == got;
    const Value actual = fusion::reference::decode(stored, got);
    // A C library's pow and hypot give a number for a quiet NaN, but NaN for a signalling one.
    const bool knows_signalling = node.op == Op::power || node.op == Op::hypot;
    if (knows_signalling && is_nan(actual) && std::ranges::any_of(operands, is_nan)) return true;
    if (to_the_bit) {
      const auto same = [&](long double x, long double y) {
        const long double rounded = fusion::reference::round_to(x, stored);
        if (std::isnan(rounded) || std::isnan(y)) return std::isnan(rounded) == std::isnan(y);
        return rounded == y && std::signbit(rounded) == std::signbit(y);
      };
      return same(expected.real, actual.real) && (!complex || same(expected.imag, actual.imag));
    }
    if (is_complex(node, operands)) {
      return agrees_as_complex(node.op, actual, value(node, operands, n, Rounding::once), operands);
    }
    // The bounds themselves are proven by other tests, over far more inputs: this one is about
    // which op is computed from what.
    std::array<long double, 3> reals{};
    for (std::size_t i = 0; i < operands.size(); ++i) reals[i] = operands[i].real;
    const Value exact = value(node, operands, n, Rounding::once);
    if (options_.accuracy == Accuracy::fast) {
      const std::span given = std::span(reals).first(operands.size());
      return is_near(fusion::info(node.op).name, actual.real, exact.real, given, stored);
    }
    const auto bound =
        fusion::error_bound(fusion::info(node.op), stored, options_.accuracy, device_.type);
    return fusion::counted_error(node.op, actual.real, exact.real, reals, stored) <=
           2 * *bound + 0.5;
  }

  std::string describe(const TypedNode& node, std::span<const Value> operands, std::int64_t n,
                       std::size_t output, std::uint64_t got) const {
    const auto text = [](const Value& value) {
      if (value.dtype == DType::c64)
        return fmt::format("c64 {:a} + {:a}i", static_cast<double>(value.real),
                           static_cast<double>(value.imag));
      const std::string number = is_floating(value.dtype)
                                     ? fmt::format("{} ({:a})", static_cast<double>(value.real),
                                                   static_cast<double>(value.real))
                                     : fmt::format("{}", static_cast<std::int64_t>(value.integer));
      return fmt::format("{} {}", name(value.dtype), number);
    };
    std::string given;
    for (const Value& operand : operands) given += (given.empty() ? "" : ", ") + text(operand);
    const DType dtype = outputs_[output].dtype;
    Value expected = value(node, operands, n, Rounding::each);
    return fmt::format("output {}, element {}: {} -> {} of [{}] is {} ({:#x}), expected {}", output,
                       n, fusion::info(node.op).name, name(node.dtype), given,
                       text(fusion::reference::decode(dtype, got)), got, text(expected));
  }

  const GraphCase& item_;
  Options options_;
  Device device_;
  TypedGraph typed_;
  std::vector<bool> widened_;
  std::vector<std::vector<std::size_t>> stores_;  ///< of each typed node, the outputs that hold it
  std::vector<testing::TestInput> inputs_;
  std::vector<Dims> strides_;
  std::vector<HostArray> outputs_;
  std::vector<HostArray> before_;
};

// What is wrong with a case; nothing for one that inference refuses.
std::string wrong(const GraphCase& item, const Options& options, Device device) {
  std::optional<Judge> judge;
  try {
    judge.emplace(item, options, device);
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument) throw;
    return {};
  }
  return judge->run();
}

std::string describe(const GraphCase& item) {
  std::string text = fusion::to_text(item.graph) + "\nwith";
  for (const std::string& name : item.graph.arguments()) {
    const fusion::ArgumentType type = item.pool.type(name);
    text += fmt::format(" {}: {}{}", name, type.weak ? "weak " : "", kiln::name(type.dtype));
    if (type.scalar) continue;
    const auto& array = std::get<HostArray>(item.pool.arguments.at(name));
    text +=
        fmt::format("[{}] strides [{}]", fmt::join(array.shape.begin(), array.shape.end(), ", "),
                    fmt::join(array.strides.begin(), array.strides.end(), ", "));
  }
  return text;
}

// ---- The tests ---------------------------------------------------------------------------------

// Graphs on the same arguments share a kernel: compiling takes most of the time.
constexpr std::uint64_t kGraphsInKernel = 24;

struct Batch {
  GraphCase item;
  Options options;
};

Batch draw_batch(std::uint64_t seed, std::uint64_t number, bool before) {
  // Other graphs, whose kernels are not there.
  GraphDraw draw(seed + number * 0x9e3779b97f4a7c15 + (before ? 0x6a09e667f3bcc909 : 0));
  Batch batch{{{}, draw.pool()}, {}};
  batch.options.rounding = number % 2 == 0 ? Rounding::each : Rounding::once;
  constexpr Accuracy kAccuracies[] = {Accuracy::storage, Accuracy::strict, Accuracy::fast};
  batch.options.accuracy = kAccuracies[number / 2 % 3];
  if (before) batch.options.on_miss = OnMiss::fallback;
  fusion::Graph& all = batch.item.graph;
  for (std::uint64_t i = 0; i < kGraphsInKernel; ++i) {
    const fusion::Graph graph =
        draw.graph(batch.item.pool, batch.options.rounding, [&](const fusion::Node& node) {
          return must_be_stored(node, batch.item.pool.complex, batch.options.accuracy);
        });
    std::map<NodeId, NodeId> made;
    for (const NodeId output : graph.outputs()) {
      const NodeId id = testing::copy_node(graph, output, all, made);
      if (std::ranges::find(all.outputs(), id) == all.outputs().end()) all.add_output(id);
    }
  }
  return batch;
}

constexpr std::uint64_t kGraphsInProcess = 50'000;

// Runs this test, as one of its processes, on other graphs; false if one is wrong.
bool run_in_process(std::uint64_t graphs, std::uint64_t seed) {
  const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string command = fmt::format(
      "KILN_TEST_DRAWS={} KILN_TEST_SEED={} '{}' '--gtest_filter={}.{}' --gtest_brief=1", graphs,
      seed, std::filesystem::read_symlink("/proc/self/exe").string(), test->test_suite_name(),
      test->name());
  std::fflush(stdout);
  return std::system(command.c_str()) == 0;
}

const bool has_fallback_memory = ::setenv("KILN_FALLBACK_MEMORY", "16M", 1) == 0;

class GraphProperty : public ::testing::TestWithParam<DeviceType> {};

// Draws graphs and judges them; `before`: also by the calls before their kernels are there.
void check_graphs(DeviceType type, bool before) {
  const Device device{type, 0};
  const std::uint64_t wanted = testing::draws_of(type, type == DeviceType::cpu ? 96 : 2'000, 4);
  const std::uint64_t seed = testing::random_seed();
  for (std::uint64_t done = 0; wanted > kGraphsInProcess && done < wanted;
       done += kGraphsInProcess) {
    const std::uint64_t part = std::min(kGraphsInProcess, wanted - done);
    const std::uint64_t begin = seed + done / kGraphsInProcess * 0xd1342543de82ef95;
    ASSERT_TRUE(run_in_process(part, begin)) << done << " graphs before were right";
  }
  if (wanted > kGraphsInProcess) return;
  const std::uint64_t batches = (wanted + kGraphsInKernel - 1) / kGraphsInKernel;
  const std::uint64_t fallbacks = statistics(device).fallbacks;
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> failed{UINT64_MAX};
  const auto work = [&] {
    for (std::uint64_t number = next++; number < batches && failed == UINT64_MAX; number = next++) {
      const Batch batch = draw_batch(seed, number, before);
      if (!wrong(batch.item, batch.options, device).empty()) failed = number;
    }
  };
  std::vector<std::future<void>> workers;
  for (unsigned i = std::clamp(std::thread::hardware_concurrency(), 1u, 64u); i-- > 0;)
    workers.push_back(std::async(std::launch::async, work));
  for (std::future<void>& worker : workers) worker.get();
  // But for graphs that inference refuses.
  const std::uint64_t served = statistics(device).fallbacks - fallbacks;
  EXPECT_TRUE(!before || 2 * served > std::min(next.load(), batches)) << served;
  fmt::print("{} graphs, KILN_TEST_SEED={}\n", std::min(next.load(), batches) * kGraphsInKernel,
             seed);
  if (failed == UINT64_MAX) return;
  const auto [item, options] = draw_batch(seed, failed, before);
  const Options& chosen = options;
  const GraphCase small = testing::shrink(
      item, [&](const GraphCase& candidate) { return !wrong(candidate, chosen, device).empty(); });
  FAIL() << "KILN_TEST_SEED=" << seed << ", batch " << failed << ", rounding "
         << (options.rounding == Rounding::each ? "each" : "once") << ", accuracy "
         << (options.accuracy == Accuracy::strict ? "strict"
             : options.accuracy == Accuracy::fast ? "fast"
                                                  : "storage")
         << ": " << wrong(item, options, device) << "\nat its smallest: " << describe(small) << "\n"
         << wrong(small, options, device);
}

TEST_P(GraphProperty, EveryOpOfRandomGraphsAgreesWithTheReference) {
  if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
  check_graphs(GetParam(), false);
}

TEST_P(GraphProperty, HoldsBeforeKernelsAreThereAndWhenTheyTakeOver) {
  if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
  ASSERT_TRUE(has_fallback_memory);
  check_graphs(GetParam(), true);
}

TEST(GraphShrink, KeepsTheNodeThatFailsAndOneElement) {
  GraphDraw draw(1);
  GraphCase item{{}, draw.pool()};
  item.pool.shape = {3, 5, 4};
  for (auto& [name, input] : item.pool.arguments)
    if (name[0] == 'a') input = draw.array(item.pool.shape, DType::f32);
  item.graph = fusion::parse("t = exp(a0 + s0) * 2; sin(t), floor(tanh(a1 - t) / a2), -a3");
  int calls = 0;
  const GraphCase small = testing::shrink(item, [&](const GraphCase& candidate) {
    ++calls;
    return std::ranges::any_of(candidate.graph.nodes(),
                               [](const fusion::Node& node) { return node.op == Op::tanh; });
  });
  EXPECT_TRUE(fusion::to_text(small.graph) == "tanh(a1)" ||
              fusion::to_text(small.graph) == "tanh(a0)")
      << fusion::to_text(small.graph);
  EXPECT_EQ(small.pool.shape, Dims({1, 1, 1}));
  EXPECT_LT(calls, 60);
}

INSTANTIATE_TEST_SUITE_P(Cpu, GraphProperty, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, GraphProperty, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
