// KILN_RECORD: what a program asked for stands in the manifest once, whoever asked, and a manifest
// leads to the very kernels that the program will look for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "ahead/compile_only.hpp"
#include "base/subprocess.hpp"
#include "files/manifest.hpp"
#include "kernel/named_kernel.hpp"
#include "kernel/process_cache.hpp"
#include "kernel/target.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

const Device kCpu{DeviceType::cpu, 0};
const Stream kStream{kCpu, nullptr};

/// A file to record into, set before kiln looks for it.
class RecordFile : public ::testing::Environment {
 public:
  RecordFile() {
    path = std::string(getenv("KILN_CACHE_DIR")) + ".jsonl";
    setenv("KILN_RECORD", path.c_str(), 1);
  }
  ~RecordFile() override { std::filesystem::remove(path); }
  std::string path;
};
const auto* const file =
    static_cast<RecordFile*>(::testing::AddGlobalTestEnvironment(new RecordFile));

files::Manifest recorded() {
  std::ifstream stream(file->path);
  return files::parse_manifest(std::string(std::istreambuf_iterator<char>(stream), {}));
}

files::ManifestLine last_recorded() {
  const files::Manifest manifest = recorded();
  EXPECT_TRUE(manifest.problems.empty());
  return manifest.lines.empty() ? files::ManifestLine{} : manifest.lines.back();
}

// Asks for `count` functions without compiling one.
void ask(int count) {
  alignas(16) float memory[8] = {};
  for (int i = 0; i < count; ++i) {
    const Function f = fuse(fmt::format("asked{}", i), [i](Value x) { return x * i + 0.5; },
                            {.on_miss = OnMiss::fail});
    try {
      f(kStream, {View(memory, DType::f32, {4}, kCpu)}, {View(memory + 4, DType::f32, {4}, kCpu)});
      ADD_FAILURE() << "nothing was missing";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::would_compile || error.code() == Code::not_found)
          << error.what();
    }
  }
}

TEST(Record, ThreadsAndProcessesWriteEachFunctionOnce) {
  constexpr int kFunctions = 20;
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(testing::fork_child([] {
      ask(kFunctions);
      return ::testing::Test::HasFailure() ? 1 : 0;
    }));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([] { ask(kFunctions); });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) EXPECT_EQ(base::wait_for(child), 0);
  const files::Manifest manifest = recorded();
  EXPECT_TRUE(manifest.problems.empty());
  std::set<std::string> names;
  for (const files::ManifestLine& line : manifest.lines) names.insert(line.name);
  EXPECT_EQ(manifest.lines.size(), names.size());
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kFunctions));
}

TEST(Record, ALineThatAKilledWriterLeftIsEnded) {
  std::ofstream(file->path, std::ios::app) << "{\"name\":\"half";
  alignas(16) float memory[8] = {};
  const Function f =
      fuse("after_half", [](Value x) { return x - 0.25; }, {.on_miss = OnMiss::fail});
  EXPECT_THROW(
      f(kStream, {View(memory, DType::f32, {4}, kCpu)}, {View(memory + 4, DType::f32, {4}, kCpu)}),
      Error);
  const files::Manifest manifest = recorded();
  EXPECT_EQ(manifest.problems.size(), 1u);
  EXPECT_EQ(manifest.lines.back().name, "after_half");
  std::filesystem::remove(file->path);  // which is noticed
}

struct Asked {
  const char* name;
  std::function<std::string()> entry;  ///< asks, and gives the kernel's name
};

alignas(16) std::byte memory[1 << 12];

View array(std::size_t byte, DType dtype, Dims shape, Dims strides = {}) {
  if (strides.empty()) strides = contiguous_strides(shape);
  return View(memory + byte, dtype, std::move(shape), std::move(strides), kCpu);
}

std::string ask_for(const Function& f, std::vector<Argument> inputs, std::vector<View> outputs) {
  return f.prepare(kStream, inputs, outputs).entry;
}

std::vector<Asked> cases() {
  return {
      {"arguments_in_another_order",
       [] {
         return ask_for(fuse("reversed", [](Value a, Value b) { return b - silu(a) * b; }),
                        {array(0, DType::bf16, {4, 8}), array(64, DType::bf16, {8})},
                        {array(128, DType::bf16, {4, 8})});
       }},
      {"numbers_weak_and_typed",
       [] {
         return ask_for(fuse("numbers", [](Value s, Value x, Value t) { return x * s + t; }),
                        {2.5, array(0, DType::f16, {16}), Scalar::typed(1.0, DType::f32)},
                        {array(64, DType::f32, {16})});
       }},
      {"strides_and_addresses",
       [] {
         return ask_for(fuse("strided", [](Value x, Value y) { return x + y; }),
                        {array(4, DType::f32, {4, 4}, {1, 8}), array(260, DType::f32, {4, 4})},
                        {array(520, DType::f32, {4, 4}, {8, 1})});
       }},
      {"text_with_names_and_options",
       [] {
         return ask_for(parse("text", "t = exp(y) * x; r = t / (t + 1)",
                              {.rounding = Rounding::each, .accuracy = Accuracy::fast}),
                        {array(0, DType::f16, {8}), array(16, DType::f16, {8})},
                        {array(32, DType::f16, {8})});
       }},
      {"several_outputs",
       [] {
         const Function f = fuse("both", [](Value x, Value y) { return std::tuple(x * y, x + y); });
         return ask_for(f, {array(0, DType::f32, {8}), array(32, DType::f32, {8})},
                        {array(64, DType::f32, {8}), array(96, DType::f64, {8})});
       }},
  };
}

class RecordCase : public ::testing::TestWithParam<Asked> {};

TEST_P(RecordCase, LeadsToTheSameKernel) {
  std::string entry;
  try {
    entry = GetParam().entry();
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    GTEST_SKIP() << error.what();
  }
  const files::ManifestLine line = last_recorded();
  std::vector<std::string> order;
  for (const ArgumentSpec& argument : line.specification.arguments) order.push_back(argument.name);
  const Function again = parse(line.name, line.text, line.options, order);
  EXPECT_EQ(name_kernel(emit_all(again, line.specification, "cpu").at(0).request).entry_name,
            entry);
}

TEST(Record, AProgramIsOneLineUnlessItCallsTheCaller) {
  KILN_NEED(host);
  const std::size_t before = recorded().lines.size();
  const Program halves = parse_program("halves", "a = x[..., 0::2]; stack(-1, a, softmax(a, -1))");
  const View x = array(0, DType::f32, {4, 8});
  const View y = array(256, DType::f32, {4, 4, 2});
  const KernelInfo info = halves.prepare(kStream, std::vector<Argument>{x}, std::vector<View>{y});
  EXPECT_EQ(recorded().lines.size(), before + 1);
  const files::ManifestLine line = last_recorded();
  EXPECT_EQ(line.kind, files::ManifestKind::program);
  EXPECT_EQ(line.specification.layouts.at(0).shape, (Dims{4, 4, 2}));
  const Function again = parse(line.name, line.text, line.options);
  std::vector<std::string> entries;
  for (const KernelSpec& kernel : kernel_specs(again, line.specification)) {
    entries.push_back(name_kernel(emit_kernel(kernel, resolve_target("cpu")).request).entry_name);
  }
  EXPECT_EQ(entries.size(), static_cast<std::size_t>(info.kernels));
  EXPECT_EQ(entries.at(0), info.entry);

  const LibraryCall doubled{
      "doubled",
      [](std::span<const DType> dtypes) { return std::vector(dtypes.begin(), dtypes.end()); },
      [](std::span<const Dims> shapes) { return std::vector(shapes.begin(), shapes.end()); },
      [](const Stream&, std::span<const View>, std::span<const View>) {}};
  const Program calls =
      trace_program("calls", [&](Value v) { return call(doubled, {v + 1.0}) * 3.0; });
  calls.prepare(kStream, std::vector<Argument>{x},
                std::vector<View>{array(256, DType::f32, {4, 8})});
  const files::Manifest manifest = recorded();
  ASSERT_EQ(manifest.lines.size(), before + 3);  // before and after the call
  for (std::size_t i = before + 1; i < manifest.lines.size(); ++i) {
    EXPECT_EQ(manifest.lines[i].kind, files::ManifestKind::function);
  }
}

TEST(Record, AKernelOfOnesOwnIsItsSource) {
  KILN_NEED(host);
  const Kernel mine =
      kernel("scale_recorded", R"(
      extern "C" __global__ void scale_recorded(const float* x, float* y, float a, unsigned n) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = a * x[i];
      })",
             {reads(DType::f32), writes(DType::f32), scalar(DType::f32), scalar(DType::u32)},
             {.accuracy = Accuracy::fast});
  const KernelInfo info = mine.prepare(kStream);
  const files::ManifestLine line = last_recorded();
  ASSERT_EQ(line.kind, files::ManifestKind::kernel);
  EXPECT_EQ(line.options.accuracy, Accuracy::fast);
  const Kernel again = kernel(line.name, line.text, line.parameters, line.options);
  EXPECT_EQ(compile_for(again, "cpu").info.key, info.key);
}

INSTANTIATE_TEST_SUITE_P(All, RecordCase, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln
