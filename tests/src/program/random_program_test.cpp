// Random programs on every device that is there: their results lie where the contract says
// (enclosure.hpp), and nothing between the elements of an output is written; also before their
// kernels are there, when general kernels serve them (OnMiss::fallback). KILN_TEST_DRAWS and
// KILN_TEST_SEED change how many programs, and which; KILN_TEST_CASE takes one of them alone.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>

#include "call/function_impl.hpp"
#include "fusion/graph/extract.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/text/text.hpp"
#include "kernel/emit_kernel.hpp"
#include "kernel/kernel_table.hpp"
#include "kiln/program.hpp"
#include "kiln/statistics.hpp"
#include "program/plan.hpp"
#include "tests/src/program/enclosure.hpp"
#include "tests/src/program/random_arguments.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/general_kernels.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::Compared;
using testing::HostArray;

struct RandomCase {
  fusion::Graph graph;
  std::vector<HostArray> inputs;
  Options options;
  std::uint64_t seed = 0;
};

RandomCase draw_case(std::uint64_t seed, std::uint64_t number, bool before) {
  RandomCase result;
  // Other programs, whose kernels are not there.
  result.seed = seed + number * 0x9e3779b97f4a7c15 + (before ? 0x6a09e667f3bcc908 : 0);
  if (before) result.options.on_miss = OnMiss::fallback;
  testing::ProgramKind kind;
  kind.nodes = 4 + number * 7 % 23;
  kind.elements = number % 10 == 9 ? 6000 : 300;
  kind.floats = number % 4 != 3;
  kind.packed = number % 8 == 5;
  testing::RandomProgram drawn = testing::random_program(result.seed, kind);
  result.inputs = testing::random_arguments(drawn, result.seed);
  result.graph = std::move(drawn.graph);
  result.options.rounding = number % 3 == 2 ? Rounding::each : Rounding::once;
  result.options.accuracy = number % 5 == 4 ? Accuracy::strict : Accuracy::storage;
  return result;
}

std::string describe(const RandomCase& one) {
  std::string text = fusion::to_text(one.graph);
  text += fmt::format("\nrounding {}, accuracy {}",
                      one.options.rounding == Rounding::each ? "each" : "once",
                      one.options.accuracy == Accuracy::strict ? "strict" : "storage");
  for (std::size_t i = 0; i < one.inputs.size(); ++i) {
    const HostArray& input = one.inputs[i];
    text += fmt::format("\n{}: {}[{}] with strides [{}]", one.graph.arguments()[i],
                        name(input.dtype), fmt::join(input.shape.begin(), input.shape.end(), ","),
                        fmt::join(input.strides.begin(), input.strides.end(), ","));
  }
  return text;
}

// Compiled together, and loaded. What fails is found when it is called.
void load_all(const std::vector<WantedKernel>& wanted) {
  std::latch left(static_cast<std::ptrdiff_t>(wanted.size()));
  const std::vector<KernelTable::Done> done(wanted.size(),
                                            [&left](const KernelResult&) { left.count_down(); });
  KernelTable::instance().request(wanted, done);
  left.wait();
}

// ---- One program on a device -------------------------------------------------------------------

// A case with its program, what it may give and where that goes.
class Trial {
 public:
  Trial(const RandomCase& one, Device device)
      : one_(one),
        device_(device),
        function_(parse("random", fusion::to_text(one.graph), one.options, one.graph.arguments())),
        program_(program(function_)) {
    std::vector<fusion::ArgumentType> types;
    std::vector<Dims> shapes;
    for (const HostArray& input : one.inputs) {
      types.push_back({input.dtype, false, false});
      shapes.push_back(input.shape);
    }
    const fusion::ShapedGraph graph = fusion::shape_graph(
        fusion::infer(function_.impl().definition.graph, types, {}, one.options.rounding, "random"),
        shapes, "random");
    expected_ = testing::enclose(graph, one.inputs, one.options, device.type);
    std::mt19937_64 random(one.seed);
    for (const fusion::NodeId output : graph.graph.outputs) {
      outputs_.push_back(testing::with_random_layout(graph.graph.nodes[output].dtype,
                                                     graph.shapes[output], random));
    }
  }

  std::vector<KernelSpec> specs() const {
    CallTypes call;
    for (const HostArray& input : one_.inputs) {
      call.arguments.push_back({input.dtype, false, false});
      call.arrays.push_back({input.dtype, input.shape, input.strides, input.first});
    }
    for (const HostArray& output : outputs_) {
      call.outputs.push_back({output.dtype, output.shape, output.strides, output.first});
    }
    return step_specs(plan_program(function_.impl().definition, call), call);
  }

  // Its kernels, so that many programs' can be compiled together. Where it is to run before they
  // are there, the general ones, or none for the CPU device's interpreter.
  std::vector<WantedKernel> kernels() const {
    jit::Backend& backend = jit::backend(device_);
    std::vector<WantedKernel> wanted;
    if (before() && device_.type == DeviceType::cpu) return wanted;
    if (before()) return testing::general_kernels_of(specs(), backend);
    for (const KernelSpec& spec : specs()) {
      EmittedKernel kernel = emit_kernel(spec, backend.target());
      if (!kernel.is_empty()) wanted.push_back({std::move(kernel.request), &backend});
    }
    return wanted;
  }

  // What is wrong; nothing if all is right.
  std::string run(Compared& compared) const {
    std::vector<HostArray> got = outputs_;
    try {
      launch(got);
    } catch (const Error& error) {
      return fmt::format("it threw: {}", error.what());
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::string wrong = testing::outside(expected_[i], got[i], compared); !wrong.empty()) {
        return fmt::format("output {} of {}: {}", i, name(got[i].dtype), wrong);
      }
      HostArray between = got[i];
      for (std::int64_t n = 0; n < got[i].size(); ++n) {
        testing::set_bits(between, testing::place_of(between, n), 0);
      }
      if (between.bytes != outputs_[i].bytes) {
        return fmt::format("output {}: a byte between its elements was changed", i);
      }
    }
    return {};
  }

 private:
  bool before() const { return one_.options.on_miss == OnMiss::fallback; }

  void launch(std::vector<HostArray>& outputs) const {
    jit::Backend& backend = jit::backend(device_);
    const Stream stream{device_, nullptr};
    std::vector<std::unique_ptr<testing::DeviceBuffer>> buffers;
    const auto view = [&](const HostArray& array) {
      buffers.push_back(std::make_unique<testing::DeviceBuffer>(backend, array.bytes));
      return View(static_cast<char*>(buffers.back()->data()) + array.first, array.dtype,
                  array.shape, array.strides, device_);
    };
    std::vector<Argument> arguments;
    std::vector<View> results;
    for (const HostArray& input : one_.inputs) arguments.emplace_back(view(input));
    for (const HostArray& output : outputs) results.push_back(view(output));
    const std::size_t bytes = program_.workspace_bytes(stream, arguments, results);
    const testing::DeviceBuffer memory(backend, std::vector<std::byte>(bytes, std::byte{0xff}));
    const View workspace(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device_);
    if (one_.seed % 2 == 0 || before()) {
      program_.run(stream, arguments, results, workspace);
    } else {
      Graph graph = kiln::record(device_, [&](Recorder& recorder) {
        program_.record(recorder, device_, arguments, results, workspace);
      });
      graph.launch(stream);
    }
    backend.synchronize(stream);
    memory.read();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].bytes = buffers[one_.inputs.size() + i]->read();
    }
  }

  const RandomCase& one_;
  Device device_;
  Function function_;
  Program program_;
  std::vector<std::vector<testing::Range>> expected_;
  std::vector<HostArray> outputs_;
};

std::string wrong(const RandomCase& one, Device device) {
  Compared compared;
  try {
    return Trial(one, device).run(compared);
  } catch (const Error& error) {
    return fmt::format("it threw before it ran: {}", error.what());
  }
}

// ---- The smallest that fails -------------------------------------------------------------------

// The part of a program that computes one of its values.
RandomCase part_of(const RandomCase& whole, fusion::NodeId value) {
  RandomCase result = whole;
  result.graph.add_output(value);
  const std::size_t last = result.graph.outputs().size() - 1;
  fusion::Extract part = fusion::extract(result.graph, std::span(&last, 1));
  result.graph = std::move(part.graph);
  result.inputs.clear();
  for (const std::size_t i : part.arguments) result.inputs.push_back(whole.inputs[i]);
  return result;
}

RandomCase shrunk(const RandomCase& whole, Device device) {
  for (fusion::NodeId id = 0; id < whole.graph.nodes().size(); ++id) {
    if (whole.graph[id].arity == 0) continue;
    RandomCase part = part_of(whole, id);
    if (!wrong(part, device).empty()) return part;
  }
  return whole;
}

// ---- The tests ---------------------------------------------------------------------------------

// Programs whose kernels are compiled together.
constexpr std::uint64_t kBatch = 32;

class RandomPrograms : public ::testing::TestWithParam<DeviceType> {};

struct Found {
  std::uint64_t number = UINT64_MAX;
  std::string what;
  Compared compared;
};

// Runs the programs [begin, end); the first that is wrong.
Found run_batch(std::uint64_t seed, std::uint64_t begin, std::uint64_t end, Device device,
                bool before) {
  std::vector<RandomCase> cases;
  for (std::uint64_t number = begin; number < end; ++number) {
    cases.push_back(draw_case(seed, number, before));
  }
  std::vector<std::optional<Trial>> trials(cases.size());
  Found found;
  std::mutex mutex;
  const auto in_parallel = [&](const auto& body) {
    std::atomic<std::size_t> next{0};
    std::vector<std::future<void>> workers;
    for (unsigned i = std::clamp(std::thread::hardware_concurrency(), 1u, 16u); i-- > 0;) {
      workers.push_back(std::async(std::launch::async, [&] {
        for (std::size_t k = next++; k < cases.size(); k = next++) body(k);
      }));
    }
    for (std::future<void>& worker : workers) worker.get();
  };
  const auto report = [&](std::size_t k, const std::string& what) {
    const std::lock_guard lock(mutex);
    if (begin + k >= found.number) return;
    found.number = begin + k;
    found.what = what;
  };
  std::vector<WantedKernel> wanted;
  in_parallel([&](std::size_t k) {
    try {
      trials[k].emplace(cases[k], device);
      std::vector<WantedKernel> own = trials[k]->kernels();
      const std::lock_guard lock(mutex);
      std::ranges::move(own, std::back_inserter(wanted));
    } catch (const Error& error) {
      report(k, fmt::format("it threw before it ran: {}", error.what()));
    }
  });
  load_all(wanted);
  in_parallel([&](std::size_t k) {
    if (!trials[k]) return;
    Compared compared;
    if (const std::string what = trials[k]->run(compared); !what.empty()) report(k, what);
    const std::lock_guard lock(mutex);
    found.compared += compared;
  });
  return found;
}

// Draws programs and compares what they give; `before`: before their kernels are there.
void check_programs(DeviceType type, bool before) {
  const Device device{type, 0};
  const std::uint64_t seed = testing::setting("KILN_TEST_SEED", 1);
  const std::uint64_t only = testing::setting("KILN_TEST_CASE", UINT64_MAX);
  const bool one = only != UINT64_MAX;
  const std::uint64_t first = one ? only : 0;
  const std::uint64_t last =
      one ? only + 1 : testing::draws_of(type, type == DeviceType::cpu ? 32 : 96, 2);
  if (one) fmt::print(stderr, "{}\n", describe(draw_case(seed, only, before)));
  Compared compared;
  for (std::uint64_t begin = first; begin < last; begin += kBatch) {
    const Found found = run_batch(seed, begin, std::min(begin + kBatch, last), device, before);
    compared += found.compared;
    if (found.number == UINT64_MAX) continue;
    const RandomCase whole = draw_case(seed, found.number, before);
    const RandomCase small = shrunk(whole, device);
    FAIL() << "KILN_TEST_SEED=" << seed << " KILN_TEST_CASE=" << found.number << ": "
           << describe(whole) << "\n"
           << found.what << "\nat its smallest: " << describe(small) << "\n"
           << wrong(small, device);
  }
  fmt::print("{} programs, {} elements, of which {} had no bound and {} a wide one, seed {}\n",
             last - first, compared.elements, compared.unknown, compared.wide, seed);
  // What may be anything proves nothing.
  const std::size_t said = compared.elements - compared.unknown - compared.wide;
  EXPECT_TRUE(one || said > compared.elements * 4 / 5) << said << " of " << compared.elements;
}

TEST_P(RandomPrograms, GiveWhatTheContractSays) {
  if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
  check_programs(GetParam(), false);
}

const bool has_fallback_memory = ::setenv("KILN_FALLBACK_MEMORY", "16M", 1) == 0;

TEST_P(RandomPrograms, GiveItBeforeTheirKernelsAreThere) {
  if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
  ASSERT_TRUE(has_fallback_memory);
  const Device device{GetParam(), 0};
  const std::uint64_t served = statistics(device).fallbacks;
  check_programs(GetParam(), true);
  EXPECT_GT(statistics(device).fallbacks, served);
}

INSTANTIATE_TEST_SUITE_P(Cpu, RandomPrograms, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, RandomPrograms, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
