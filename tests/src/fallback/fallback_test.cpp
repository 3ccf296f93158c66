// OnMiss::fallback on every device that is there: calls are served before their kernel is, and what
// they give is what the contract says. The first use of every text here falls back; that of random
// graphs is in tests/src/numerics/graph_property_test.cpp and
// tests/src/program/random_program_test.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>

#include "call/call_specs.hpp"
#include "call/function_impl.hpp"
#include "fallback/general_launch.hpp"
#include "fallback/host_operations.hpp"
#include "fusion/reference/running.hpp"
#include "fusion/reference/tree.hpp"
#include "kiln/kiln.hpp"
#include "program/plan.hpp"
#include "program/program_impl.hpp"
#include "tests/src/program/indexed_run.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/capture.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/general_kernels.hpp"
#include "tests/support/message.hpp"

namespace kiln {
namespace {

using fusion::reference::reduce_in_tree;
using fusion::reference::run_in_blocks;
using ::testing::AllOf;
using testing::DeviceBuffer;
using ::testing::HasSubstr;
using testing::HostArray;
using testing::message_of;

constexpr Options kFallback{.on_miss = OnMiss::fallback};

class Fallbacks : public testing::ProgramsOnDevices {
 protected:
  void SetUp() override {
    ProgramsOnDevices::SetUp();
    if (!IsSkipped()) lend(std::size_t{4} << 20);
  }
  void TearDown() override {
    if (memory_) lend_fallback_memory(View(nullptr, DType::u8, {0}, device()));
  }

  // As memory for temporaries from now on.
  void lend(std::size_t bytes) {
    auto lent = std::make_unique<DeviceBuffer>(jit::backend(device()),
                                               std::vector<std::byte>(bytes, std::byte{0xff}));
    lend_fallback_memory(
        View(lent->data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device()));
    memory_ = std::move(lent);
  }

  std::uint64_t served() const { return statistics(device()).fallbacks; }
  bool interprets() const { return GetParam() == DeviceType::cpu; }

  static CallTypes types_of(const std::vector<HostArray>& inputs,
                            const std::vector<HostArray>& outputs) {
    CallTypes types;
    const auto type = [](const HostArray& array) {
      return ArrayType{array.dtype, array.shape, array.strides, array.first, array.offset, {}};
    };
    for (const HostArray& input : inputs) {
      types.arguments.push_back({input.dtype, false, false});
      types.arrays.push_back(type(input));
    }
    for (const HostArray& output : outputs) types.outputs.push_back(type(output));
    return types;
  }

  // What a call gives before its kernel is there; on the CPU by the interpreter, and elsewhere by
  // general kernels.
  std::vector<HostArray> serve(const std::string& text, const std::vector<HostArray>& inputs,
                               const std::vector<HostArray>& shaped, const Options& options) {
    std::vector<HostArray> outputs = outputs_like(text, inputs, shaped);
    const Function function = parse("served", text, options);
    if (!interprets()) {
      load_general(call_specs(function.impl().definition, types_of(inputs, outputs)));
    }
    const std::uint64_t before = served();
    testing::run_on(device(), function, inputs, outputs);
    EXPECT_EQ(served(), before + 1) << text;
    return outputs;
  }

  // That, and then what the kernel gives: within `slack` as expect_within() has it.
  void check(const std::string& text, const std::vector<HostArray>& inputs, double slack,
             Options options = kFallback) {
    const std::vector<HostArray> want = testing::reference_of(text, inputs, options.rounding);
    testing::expect_within(serve(text, inputs, want, options), want, slack,
                           text + ", before its kernel was there");
    options.on_miss = OnMiss::compile;
    // That GPU made of software compiles no kernels of rows.
    if (testing::is_host_driver(jit::backend(device()))) return;
    testing::expect_within(testing::outputs_of(device(), text, inputs, options), want, slack, text);
  }

  // The same of a program, each of whose kernels is served.
  std::vector<HostArray> serve_program(const std::string& text,
                                       const std::vector<HostArray>& inputs,
                                       const std::vector<HostArray>& shaped) {
    const Program program = parse_program("served", text, kFallback);
    std::vector<HostArray> outputs = outputs_like(text, inputs, shaped);
    const CallTypes types = types_of(inputs, outputs);
    const std::vector<KernelSpec> kernels =
        step_specs(plan_program(program.impl().function->definition, types), types);
    if (!interprets()) load_general(kernels);
    const std::uint64_t before = served();
    outputs = run(program, inputs, std::move(outputs), false);
    EXPECT_EQ(served(), before + kernels.size()) << text;
    return outputs;
  }

  void check_program(const std::string& text, const std::vector<HostArray>& inputs,
                     double relative) {
    const std::vector<HostArray> want = testing::reference_of(text, inputs);
    const std::vector<HostArray> got = serve_program(text, inputs, want);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double rounding = testing::rounding_of(got[i].dtype) * 1.01;
      testing::expect_close(got[i], want[i], relative + rounding, relative * 10,
                            fmt::format("{}, output {}", text, i));
    }
  }

  static std::vector<HostArray> outputs_like(const std::string& text,
                                             const std::vector<HostArray>& inputs,
                                             const std::vector<HostArray>& shaped) {
    const std::vector<DType> dtypes = testing::natural_dtypes(text, inputs);
    std::vector<HostArray> outputs;
    for (std::size_t i = 0; i < shaped.size(); ++i) {
      outputs.push_back(HostArray::contiguous(dtypes[i], shaped[i].shape));
    }
    return outputs;
  }

  void load_general(const std::vector<KernelSpec>& kernels) {
    testing::load_general_kernels(kernels, jit::backend(device()));
  }

 private:
  std::unique_ptr<DeviceBuffer> memory_;
};

INSTANTIATE_TEST_SUITE_P(Devices, Fallbacks,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

HostArray floats(const Dims& shape, std::uint64_t seed, DType dtype = DType::f32) {
  return testing::random_array(dtype, shape, seed);
}

TEST_P(Fallbacks, ServeRowsAndWhatIsBroadcast) {
  check("softmax(x, -1)", {floats({5, 300}, 1)}, 8);
  check("x * rsqrt(mean(x * x, -1) + 1e-5) * w", {floats({3, 65}, 2, DType::bf16), floats({65}, 3)},
        16);
  check("argmax(x, -1), argmin(x, -1), max(x, -1), any(x > 6, -1)", {floats({2, 1000}, 4)}, 0);
  check("sum(x, 0) + 1", {floats({257, 6}, 5, DType::i32)}, 0);
  check("prod(x, 0, 2) - x", {floats({2, 3, 3}, 6)}, 64);
}

TEST_P(Fallbacks, ServeRunningResults) {
  check("cumsum(x, -1)", {floats({2, 10000}, 7, DType::i64)}, 0);
  check("cummax(x * 2, 0), x + 1", {floats({300, 2}, 8)}, 0);
  check("cumprod(x, -1)", {floats({1, 4}, 9, DType::f64)}, 8);
}

TEST_P(Fallbacks, ServeEveryKindOfNumber) {
  check("bf16(x) + f8e4m3(y), u4(abs(x)), x << 3, ~x",
        {floats({77}, 10, DType::i16), floats({77}, 11, DType::f16)}, 1);
  check("i4(x * 2.0 - max(x, -1))", {floats({6, 34}, 19, DType::i32)}, 0);
  check("where(x > 0, x, f32(iota(-1, i32))), uniform(3, 4)", {floats({5, 7}, 14)}, 0);
  check("max(where(iota(-1) <= iota(-2), x, -1.0), -1)", {floats({4, 9, 9}, 16)}, 0);
  check("min(x * f32(iota(0)), 0), x * f32(iota(1))", {floats({9, 7}, 17)}, 0);
  check("x / 3 + 1", {floats({129}, 15, DType::bf16)}, 0,
        {.rounding = Rounding::each, .on_miss = OnMiss::fallback});
}

TEST_P(Fallbacks, TakeRowsInBlocksThatFitTheMemory) {
  lend(20'000);
  check("exp(x) * y - 2", {floats({100'000}, 16), floats({100'000}, 17)}, 8);
  check("x - max(x, -1)", {floats({200, 100}, 18)}, 0);
}

TEST_P(Fallbacks, ServeProgramsStepByStep) {
  check_program("y = softmax(x, -1); concat(1, y * 2, x), sum(y, 0)", {floats({6, 40}, 19)}, 1e-5);
  // A split reduction.
  check_program("sum(x, -1), argmax(x, -1), mean(x, -1)", {floats({1, 65601}, 20)}, 1e-5);
}

// Sums and products of operations that are correctly rounded have the bits of the tree.
TEST_P(Fallbacks, FollowTheTreeOfReductions) {
  lend(std::size_t{32} << 20);
  for (const std::int64_t length : {1, 3, 255, 257, 1'000, 4'097, 32'768, 33'500, 100'003}) {
    if (GetParam() == DeviceType::hip && length > 4'097) continue;  // emulated
    const HostArray x = floats({2, length}, static_cast<std::uint64_t>(length));
    const std::vector<HostArray> shaped(3, HostArray::contiguous(DType::f32, {2, 1}));
    for (const bool as_program : {false, true}) {
      // A kernel of its own for each length, which is not there yet.
      const double own = static_cast<double>(2 * length + (as_program ? 1 : 0)) / 1024;
      const std::string text = fmt::format(
          "y = x * {0}; d = y - mean(y, -1); sum(y, -1), prod(1 + x * 0.03125 + 0 * y, -1), "
          "mean(d * d, -1)",
          own);
      const std::vector<HostArray> got =
          as_program ? serve_program(text, {x}, shaped) : serve(text, {x}, shaped, kFallback);
      for (std::int64_t row = 0; row < 2; ++row) {
        const auto sum = [](const std::vector<float>& all) {
          return reduce_in_tree(all, 0.0F, std::plus<>());
        };
        std::vector<float> elements;
        std::vector<float> factors;
        for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
          const auto each = static_cast<float>(testing::number_at(x, i));
          elements.push_back(each * static_cast<float>(own));
          factors.push_back(1 + each * 0.03125F + 0 * elements.back());
        }
        const auto count = static_cast<float>(length);
        const float mean = sum(elements) / count;
        std::vector<float> squares;
        for (const float each : elements) squares.push_back((each - mean) * (each - mean));
        const float want[] = {sum(elements), reduce_in_tree(factors, 1.0F, std::multiplies<>()),
                              sum(squares) / count};
        for (std::size_t k = 0; k < std::size(want); ++k) {
          ASSERT_EQ(get_bits(got[k], row), std::bit_cast<std::uint32_t>(want[k]))
              << "output " << k << " of row " << row << " of " << length
              << (as_program ? ", a Program" : "");
        }
      }
    }
  }
}

TEST_P(Fallbacks, FollowTheTreeOfRowsThatEndWhereDataSays) {
  lend(std::size_t{32} << 20);
  const std::vector<std::pair<std::int64_t, std::int64_t>> lengths = {
      {200, 130}, {300, 40}, {5'000, 1'100}, {40'000, 33'001}, {70'001, 300}};
  for (const auto& [length, end] : lengths) {
    if (GetParam() == DeviceType::hip && length > 5'000) continue;  // emulated
    const std::string text = fmt::format("y = x[:, :n] * {}; sum(y, -1), mean(y, -1)",
                                         static_cast<double>(length) / 1024);
    HostArray ends = HostArray::contiguous(DType::i32, {2, 1});
    set_bits(ends, 0, static_cast<std::uint64_t>(end));
    set_bits(ends, 1, static_cast<std::uint64_t>(end / 2));
    const HostArray x = floats({2, length}, static_cast<std::uint64_t>(length));
    const std::vector<HostArray> shaped(2, HostArray::contiguous(DType::f32, {2, 1}));
    const std::vector<HostArray> got = serve(text, {x, ends}, shaped, kFallback);
    for (std::int64_t row = 0; row < 2; ++row) {
      std::vector<float> elements;
      for (std::int64_t i = 0; i < (row == 0 ? end : end / 2); ++i) {
        elements.push_back(static_cast<float>(testing::number_at(x, row * length + i)) *
                           static_cast<float>(static_cast<double>(length) / 1024));
      }
      const float sum = reduce_in_tree(elements, 0.0F, std::plus<>());
      const float want[] = {sum, sum / static_cast<float>(elements.size())};
      for (std::size_t k = 0; k < std::size(want); ++k) {
        ASSERT_EQ(get_bits(got[k], row), std::bit_cast<std::uint32_t>(want[k]))
            << "output " << k << " of row " << row << " of " << length << " up to " << end;
      }
    }
  }
}

// So have running sums and products those of their order, along rows and along columns.
TEST_P(Fallbacks, FollowTheOrderOfRunningResults) {
  for (const std::int64_t length : {1, 7, 8, 9, 200, 256, 257, 1'000, 70'001}) {
    if (GetParam() == DeviceType::hip && length > 1'000) continue;  // emulated
    for (const bool columns : {false, true}) {
      const HostArray x =
          floats(columns ? Dims{length, 3} : Dims{3, length}, static_cast<std::uint64_t>(length));
      const auto at = [&](std::int64_t row, std::int64_t i) {
        return columns ? i * 3 + row : row * length + i;
      };
      // A kernel of its own for each length, which is not there yet.
      const double own = static_cast<double>(2 * length + (columns ? 1 : 0)) / 1024;
      const std::string text =
          fmt::format("cumsum(x * {0}, {1}), cumprod(1 + x * 0.03125, {1})", own, columns ? 0 : 1);
      const std::vector<HostArray> got = serve(text, {x}, {x, x}, kFallback);
      for (std::int64_t row = 0; row < 3; ++row) {
        std::vector<float> elements;
        std::vector<float> factors;
        for (std::int64_t i = 0; i < length; ++i) {
          const auto each = static_cast<float>(testing::number_at(x, at(row, i)));
          elements.push_back(each * static_cast<float>(own));
          factors.push_back(1 + each * 0.03125F);
        }
        const std::vector<float> want[] = {run_in_blocks(elements, 0.0F, std::plus<>()),
                                           run_in_blocks(factors, 1.0F, std::multiplies<>())};
        for (std::size_t k = 0; k < std::size(want); ++k) {
          for (std::int64_t i = 0; i < length; ++i) {
            ASSERT_EQ(get_bits(got[k], at(row, i)),
                      std::bit_cast<std::uint32_t>(want[k][static_cast<std::size_t>(i)]))
                << text << ": element " << i << " of " << length;
          }
        }
      }
    }
  }
}

// What the parts of a split reduction give may be taken by a kernel that was there before: those of
// a part follow the tree of all as if other elements were 0.
TEST(InterpretedStages, OfPartsFollowTheTreeOfAll) {
  for (const std::uint64_t length : {20'000, 100'003, 200'000, 540'000}) {
    std::vector<double> row;
    for (std::uint64_t i = 0; i < length; ++i) row.push_back(1.0 / static_cast<double>(3 + i));
    const std::uint64_t chunks = (length - 1) / 32'768 + 1;
    for (const std::uint64_t splits : {1, 2, 4, 16, 64}) {
      std::vector<double> from = row;
      for (const host::TreeStage& stage : host::tree_stages(1, length, splits)) {
        std::vector<double> to(stage.items());
        host::run_stage(fusion::Op::sum, DType::f64, stage, from.data(), nullptr, to.data());
        from = to;
      }
      ASSERT_EQ(from.size(), splits);
      EXPECT_EQ(reduce_in_tree(from, 0.0, std::plus<>()), reduce_in_tree(row, 0.0, std::plus<>()))
          << length << " in " << splits;
      if (splits > chunks) continue;
      for (std::uint64_t part = 0; part < splits; part += 3) {
        std::vector<double> own = row;
        for (std::uint64_t i = 0; i < length; ++i) {
          if (i / 32'768 % splits != part) own[i] = 0;
        }
        EXPECT_EQ(from[part], reduce_in_tree(own, 0.0, std::plus<>()))
            << length << ", part " << part << " of " << splits;
      }
    }
  }
}

// From the results of chunks on: rows of up to 5,000 chunks follow the tree of as many as they
// have.
class FallbackStages : public Fallbacks {
 protected:
  static constexpr std::uint64_t kChunk = fusion::reference::kTreeChunk;
  static constexpr std::uint64_t kChunks = 5'000;

  static std::vector<host::TreeStage> stages(std::uint64_t rows) {
    std::vector<host::TreeStage> all = host::tree_stages(rows, kChunks * kChunk, 1);
    all.erase(all.begin(), std::ranges::find(all, kChunk, &host::TreeStage::elements));
    return all;
  }

  // By the interpreter, or by general kernels.
  std::vector<double> run(std::vector<double> from, const std::vector<std::int64_t>& counts) {
    for (const host::TreeStage& stage : stages(counts.size())) {
      const std::int64_t* const own = stage.elements == 0 ? nullptr : counts.data();
      std::vector<double> to(stage.items());
      if (interprets()) {
        host::run_stage(fusion::Op::sum, DType::f64, stage, from.data(), own, to.data());
      } else {
        launch(stage, from, own, to);
      }
      from = to;
    }
    return from;
  }

 private:
  void launch(const host::TreeStage& stage, const std::vector<double>& from,
              const std::int64_t* counts, std::vector<double>& to) {
    jit::Backend& backend = jit::backend(device());
    const GeneralKernel kernel{GeneralKernel::Kind::along, DType::f64, fusion::Op::input, false};
    const std::vector<WantedKernel> wanted = {
        {general_request(kernel, backend.target()), &backend}};
    testing::load_kernels(wanted);
    const auto bytes = [](const auto* data, std::size_t count) {
      const auto* const at = reinterpret_cast<const std::byte*>(data);
      return std::vector<std::byte>(at, at + count * sizeof *data);
    };
    const DeviceBuffer source(backend, bytes(from.data(), from.size()));
    const DeviceBuffer target(backend, bytes(to.data(), to.size()));
    std::optional<DeviceBuffer> ends;
    if (counts != nullptr) ends.emplace(backend, bytes(counts, stage.rows));
    const Stream stream{device(), nullptr};
    launch_along(backend, *find_general_kernel(backend, kernel),
                 along_stage(along_code(fusion::Op::sum, true), stage, source.data(),
                             ends ? ends->data() : nullptr, target.data()),
                 stream);
    backend.synchronize(stream);
    std::memcpy(to.data(), target.read().data(), to.size() * sizeof(double));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, FallbackStages,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(FallbackStages, OfChunksFollowTheTreeOfAsManyAsARowHas) {
  const std::vector<std::int64_t> counts = {0,
                                            1,
                                            255 * kChunk,
                                            255 * kChunk + 1,
                                            300 * kChunk - 1,
                                            1'025 * kChunk,
                                            2'000 * kChunk,
                                            kChunks * kChunk};
  std::vector<double> chunks;
  std::vector<std::vector<double>> own;
  for (const std::int64_t count : counts) {
    const std::uint64_t there = (static_cast<std::uint64_t>(count) + kChunk - 1) / kChunk;
    own.emplace_back();
    for (std::uint64_t i = 0; i < kChunks; ++i) {
      chunks.push_back(i < there ? 1.0 / static_cast<double>(3 + i) : 0.0);
      if (i < there) own.back().push_back(chunks.back());
    }
  }
  const std::vector<double> got = run(chunks, counts);
  ASSERT_EQ(got.size(), counts.size());
  for (std::size_t row = 0; row < counts.size(); ++row) {
    EXPECT_EQ(got[row], reduce_in_tree(own[row], 0.0, std::plus<>())) << counts[row];
  }
}

TEST_P(Fallbacks, WriteOverAnInputThatIsTheOutput) {
  jit::Backend& backend = jit::backend(device());
  const Function function = parse("in_place", "x * 2 + y, x", kFallback);
  HostArray x = HostArray::contiguous(DType::f32, {4});
  const auto number = [](float* at, float value) {
    for (int i = 0; i < 4; ++i) at[i] = value * static_cast<float>(i + 1);
  };
  number(reinterpret_cast<float*>(x.bytes.data()), 1);
  const DeviceBuffer in(backend, x.bytes);
  const DeviceBuffer other(backend, x.bytes);
  const DeviceBuffer copy(backend, x.bytes);
  const View view(in.data(), DType::f32, {4}, device());
  const std::array<Argument, 2> inputs = {Argument(view),
                                          Argument(View(other.data(), DType::f32, {4}, device()))};
  const std::array outputs = {view, View(copy.data(), DType::f32, {4}, device())};
  if (!interprets()) {
    load_general(call_specs(function.impl().definition, types_of({x, x}, {x, x})));
  }
  const Stream stream{device(), nullptr};
  function.call(stream, inputs, outputs);
  backend.synchronize(stream);
  EXPECT_EQ(testing::number_at({DType::f32, {4}, {1}, in.read()}, 3), 12);
  EXPECT_EQ(testing::number_at({DType::f32, {4}, {1}, copy.read()}, 3), 4);
  const std::array wrong = {view.from(1), outputs[1]};
  EXPECT_THAT(message_of([&] { function.call(stream, inputs, wrong); }, Code::invalid_argument),
              HasSubstr("overlaps"));
}

TEST_P(Fallbacks, NeedMemory) {
  jit::Backend& backend = jit::backend(device());
  const HostArray x = floats({64}, 21);
  const Function function = parse("hungry", "exp(x) - 64", kFallback);
  if (!interprets()) load_general(call_specs(function.impl().definition, types_of({x}, {x})));
  const DeviceBuffer buffer(backend, x.bytes);
  const View view(buffer.data(), DType::f32, {64}, device());
  const Stream stream{device(), nullptr};
  const auto call = [&] { function(stream, {view}, {view}); };
  lend_fallback_memory(View(nullptr, DType::u8, {0}, device()));
  EXPECT_THAT(message_of(call, Code::would_compile),
              AllOf(HasSubstr("hungry: on_miss is fallback, which needs memory for temporaries"),
                    HasSubstr("kiln::lend_fallback_memory")));
  const DeviceBuffer little(backend, std::vector<std::byte>(64));
  const View odd(static_cast<char*>(little.data()) + 4, DType::u8, {32}, device());
  EXPECT_THAT(message_of([&] { lend_fallback_memory(odd); }, Code::invalid_argument),
              HasSubstr("expected an address that is a multiple of 16"));
}

TEST_P(Fallbacks, AreForNothingThatIsKept) {
  const HostArray x = floats({64}, 22);
  const DeviceBuffer in(jit::backend(device()), x.bytes);
  const DeviceBuffer out(jit::backend(device()), x.bytes);
  const View from(in.data(), DType::f32, {64}, device());
  const View to(out.data(), DType::f32, {64}, device());
  const Stream stream{device(), nullptr};
  const std::uint64_t before = served();
  const auto function = [&](int n) {
    return parse("kept", fmt::format("x * {} + 0.125", n), kFallback);
  };
  Graph graph = record(device(), [&](Recorder& recorder) {
    recorder.call(function(1), {from}, {to});
    program(function(2)).record(recorder, device(), std::array{Argument(from)}, std::array{to}, {});
  });
  graph.launch(stream);
  function(3).bind(stream, {from}, {to})(stream);
  program(function(4)).bind(stream, {from}, {to}, {})(stream);
  if (GetParam() != DeviceType::cpu) {
    jit::Backend& backend = jit::backend(device());
    const Stream own = backend.create_stream();
    {
      testing::Capture capture(own);
      capture.begin();
      function(5)(own, {from}, {to});
      program(function(6)).run(own, {from}, {to}, {});
      capture.end();
      capture.replay();
    }
    backend.destroy_stream(own);
  }
  jit::backend(device()).synchronize(stream);
  EXPECT_EQ(served(), before);
}

TEST_P(Fallbacks, ServeWhatIsTakenWhereDataSays) {
  const HostArray x = floats({7, 24}, 29);
  const HostArray i = testing::integers(DType::i32, {5}, {3, -1, 6, 7, 0});
  check("take(x, i) * 2 + 1", {x, i}, 4);
  check("take(x, i, 1)", {x, testing::integers(DType::u8, {5}, {9, 30})}, 4);
  check("softmax(take(x, i), -1)", {x, i}, 16);
  check("take(x, i)", {floats({7, 6}, 30, DType::u4), i}, 0);
  check_program("take(x * 2, i), sum(take(x, i, 1), 0)", {x, i}, 1e-5);
}

TEST_P(Fallbacks, ServeWhatIsPutWhereDataSays) {
  const HostArray x = floats({7, 8}, 31, DType::bf16);
  const HostArray y = floats({3, 8}, 32);
  const HostArray i = testing::integers(DType::i64, {3}, {6, 7, 2});
  const std::string text = "put(x, i, y * 2)";
  const Function function = parse("put", text, kFallback);
  if (!interprets()) load_general(call_specs(function.impl().definition, types_of({x, i, y}, {x})));
  jit::Backend& backend = jit::backend(device());
  const DeviceBuffer updated(backend, x.bytes);
  const DeviceBuffer places(backend, i.bytes);
  const DeviceBuffer values(backend, y.bytes);
  const View out(updated.data(), DType::bf16, {7, 8}, device());
  const Argument inputs[] = {out, View(places.data(), DType::i64, {3}, device()),
                             View(values.data(), DType::f32, {3, 8}, device())};
  const Stream stream{device(), nullptr};
  const std::uint64_t before = served();
  function.call(stream, inputs, {&out, 1});
  EXPECT_EQ(served(), before + 1);
  backend.synchronize(stream);
  HostArray got = x;
  got.bytes = updated.read();
  testing::expect_within({got}, testing::reference_of(text, {x, i, y}), 0, text);
  const DeviceBuffer elsewhere(backend, x.bytes);
  const View other = out.with_data(elsewhere.data());
  EXPECT_THAT(message_of(
                  [&] {
                    function.call(stream, inputs, {&other, 1});
                  },
                  Code::invalid_argument),
              HasSubstr("expected exactly the view of"));
}

TEST_P(Fallbacks, ServeWhatEndsWhereDataSays) {
  const HostArray x = floats({4, 20}, 33);
  const HostArray one = testing::integers(DType::i32, {}, {7});
  const HostArray each = testing::integers(DType::i64, {4, 1}, {3, 20, -2, 99});
  check("exp(x[:, :n])", {x, one}, 8);
  check("x[:n] * 2", {x, testing::integers(DType::u64, {}, {2})}, 4);
  check("sum(x[:, :n], -1), max(x[:, :n], -1)", {x, each}, 8);
  check("argmax(x[:, :n], -1), any(x[:, :n] > 6, -1)", {x, one}, 0);
  check("mean(x[:, :n], -1)", {x, one}, 8);
  check("softmax(x[:, :n], -1)", {x, one}, 16);
  check("cumsum(x[:, :n], -1)", {x, each}, 8);
  check("cumsum(x[:n], -1) * 2", {x, one}, 8);
  check("cumsum(x[:, :n], 0)", {x, one}, 8);
  check("sum(x[:n], 0)", {x, one}, 8);
  check_program("y = x[:, :n] * 2; y - sum(y, -1)", {x, one}, 1e-5);
}

TEST_P(Fallbacks, ServeAttention) {
  const auto heads = [](std::int64_t group, std::int64_t keys, std::int64_t depth,
                        std::uint64_t seed, DType dtype = DType::f32) {
    return floats({2, group, keys, depth}, seed, dtype);
  };
  const std::string plain = "sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)";
  const std::vector<HostArray> few = {floats({2, 3, 1, 16}, 34), heads(1, 21, 16, 35),
                                      heads(1, 21, 8, 36)};
  check(plain, few, 64);
  check("s = where(iota(-2) < 9, sum(q * k, -1), -inf); sum(softmax(s, -2) * v, -2)", few, 64);
  check_program(plain, few, 1e-5);
  // In parts, which another kernel joins.
  check_program(plain,
                {floats({2, 2, 1, 16}, 37), heads(1, 330, 16, 38, DType::bf16),
                 heads(1, 330, 16, 39, DType::f16)},
                1e-4);
  check_program(
      "s = sum(q * k, -1); p = exp(s - max(s, -2)); sum(p * v, -2) / sum(p, -2), max(s, -2)",
      {floats({2, 2, 1, 16}, 37), heads(1, 330, 16, 38), heads(1, 330, 16, 39)}, 1e-4);
}

TEST_P(Fallbacks, NeedABasePackOnAGpu) {
  if (interprets()) GTEST_SKIP() << "the CPU device has an interpreter";
  const HostArray x = floats({8}, 23);
  const DeviceBuffer buffer(jit::backend(device()), x.bytes);
  const View view(buffer.data(), DType::f64, {4}, device());
  // A function that no other test here has.
  const Function function = parse("bare", "lgamma(x)", kFallback);
  EXPECT_THAT(message_of(
                  [&] {
                    function(Stream{device(), nullptr}, {view}, {view});
                  },
                  Code::would_compile),
              AllOf(HasSubstr("bare: on_miss is fallback, and no base pack for"),
                    HasSubstr("kiln compile --base-pack --target")));
}

}  // namespace
}  // namespace kiln
