// The GPU backend when its driver fails: every call that a graph makes is made to fail in turn,
// over the CUDA driver made for tests, and the results stay the same. Nothing is leaked, no context
// is left behind.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "jit/device/graph.hpp"
#include "kiln/error.hpp"
#include "tests/jit/device/fixtures.hpp"

namespace kiln::jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HostDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library != nullptr) {
      find(fail_, library, "kiln_host_driver_fail");
      find(live_, library, "kiln_host_driver_live_handles");
      find(programmatic_edges_, library, "kiln_host_driver_programmatic_edges");
      find(current_, library, "cuCtxGetCurrent");
    }
    if (fail_ == nullptr)
      GTEST_SKIP() << "libcuda.so.1 is a real driver here, which does not fail on demand";
    set_log([this](LogLevel, std::string_view line) { logged_.emplace_back(line); });
    device_ = &backend({DeviceType::cuda, 0});
    std::string reason;
    kernel_ = device_->load(testing::saxpy(*device_, reason).value(), "saxpy");
  }
  void TearDown() override {
    if (fail_ != nullptr) fail_("", 0);
    set_log({});
  }
  template <class Function>
  static void find(Function& function, void* library, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }

  GraphNode saxpy(float* x, float* y, std::vector<std::uint32_t> after, bool pdl = false) {
    return {KernelNode{kernel_, {.work_items = 100}, arguments(x, y), pdl}, std::move(after)};
  }
  static Arguments arguments(float* x, float* y) {
    Arguments result;
    result.add(x);
    result.add(y);
    result.add(2.0F);
    result.add(std::uint64_t{100});
    return result;
  }
  /// Every kind of node, each of them updated once, two launches.
  std::vector<float> run_program(bool& replayed) {
    std::vector<float> m(700, 1.0F);  // the device's memory is the host's
    float* p = m.data();
    const auto library_call = [this, p](const Stream& stream) {
      void* x = p + 200;
      void* y = p + 300;
      float a = 3;
      std::uint64_t n = 100;
      void* values[] = {&x, &y, &a, &n};
      device_->launch(*kernel_, {.work_items = n}, values, stream);
      device_->fill(p + 300, 0, 40, stream);
    };
    std::vector<GraphNode> nodes;
    nodes.push_back(saxpy(p, p + 100, {}));
    nodes.push_back({CopyNode{p + 200, p + 100, 400}, {0}});
    nodes.push_back({SequenceNode{library_call}, {1}});
    nodes.push_back({FillNode{p + 400, 0, 200}, {}});
    nodes.push_back(saxpy(p + 300, p + 500, {2, 3}));
    nodes.push_back(saxpy(p + 500, p + 600, {0, 4}, true));
    auto graph = device_->prepare(std::move(nodes));
    graph->launch({device_->device(), nullptr});
    graph->update(0, arguments(p + 500, p + 100));
    graph->update(1, CopyNode{p + 210, p + 100, 200});
    graph->update(3, FillNode{p + 400, 0x40, 100});
    graph->launch({device_->device(), nullptr});
    replayed = graph->is_replayed();
    return m;
  }

  void (*fail_)(const char*, int) = nullptr;
  int (*live_)() = nullptr;
  int (*programmatic_edges_)() = nullptr;
  int (*current_)(void**) = nullptr;
  Backend* device_ = nullptr;
  std::shared_ptr<Kernel> kernel_;
  std::vector<std::string> logged_;
};

class DriverFault : public HostDriver, public ::testing::WithParamInterface<const char*> {};

TEST_P(DriverFault, ChangesNoResultAndLeaksNothing) {
  bool replayed = false;
  const std::vector<float> expected = run_program(replayed);
  ASSERT_TRUE(replayed);
  const int live = live_();
  int fallbacks = 0;
  for (int nth = 1; nth <= 8; ++nth) {
    SCOPED_TRACE(nth);
    fail_(GetParam(), nth);
    std::vector<float> result;
    try {
      result = run_program(replayed);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    fail_("", 0);
    EXPECT_EQ(result, expected);
    EXPECT_EQ(live_(), live);
    fallbacks += replayed ? 0 : 1;
    void* context = nullptr;
    EXPECT_EQ(current_(&context), 0);
    EXPECT_EQ(context, nullptr) << "kiln left a context current";
  }
  // An update that fails makes the graph anew, and what was captured becomes a graph in the graph
  // if its edges are not to be had; anything else makes it a list, and says so.
  const std::string_view call = GetParam();
  if (call.find("Exec") == call.npos && call != "cuGraphGetEdges") {
    EXPECT_GE(fallbacks, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Every, DriverFault,
    ::testing::Values("cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphAddMemcpyNode",
                      "cuGraphAddMemsetNode", "cuGraphAddDependencies_v2",
                      "cuGraphInstantiateWithFlags", "cuStreamCreate", "cuStreamBeginCapture_v2",
                      "cuStreamEndCapture", "cuGraphGetNodes", "cuGraphGetEdges",
                      "cuGraphNodeGetType", "cuGraphKernelNodeGetParams_v2",
                      "cuGraphKernelNodeCopyAttributes", "cuGraphMemsetNodeGetParams",
                      "cuGraphLaunch", "cuGraphExecKernelNodeSetParams_v2",
                      "cuGraphExecMemcpyNodeSetParams", "cuGraphExecMemsetNodeSetParams"),
    [](const auto& info) { return std::string(info.param); });

// A kernel that waits itself may begin early where all that it waits for are kernels.
TEST_F(HostDriver, ProgrammaticLaunchesAreForKernelsAfterKernels) {
  std::vector<float> m(400, 1.0F);
  float* const p = m.data();
  const auto edges_of = [&](std::vector<GraphNode> nodes) {
    const int before = programmatic_edges_();
    const auto graph = device_->prepare(std::move(nodes));
    EXPECT_TRUE(graph->is_replayed());
    m.assign(m.size(), 1.0F);
    graph->launch({device_->device(), nullptr});
    return programmatic_edges_() - before;
  };
  const GraphNode first = saxpy(p, p + 100, {});
  EXPECT_EQ(edges_of({first, saxpy(p + 100, p + 200, {0}, true)}), 1);
  EXPECT_EQ(m[200], 1 + 2 * 3.0F);
  EXPECT_EQ(edges_of({first, saxpy(p + 100, p + 200, {0})}), 0);
  EXPECT_EQ(edges_of({first, first, saxpy(p + 100, p + 200, {0, 1}, true)}), 2);
  EXPECT_EQ(m[200], 1 + 2 * 5.0F);
  const GraphNode fill{FillNode{p + 350, 0, 4}, {}};
  EXPECT_EQ(edges_of({first, fill, saxpy(p + 100, p + 200, {0, 1}, true)}), 0);
  EXPECT_EQ(m[200], 1 + 2 * 3.0F);
  EXPECT_EQ(edges_of({saxpy(p, p + 100, {}, true)}), 0);
}

class DriverError : public DriverFault {};

TEST_P(DriverError, NamesTheCallTheReasonAndTheDevice) {
  const std::string function = GetParam();
  fail_(GetParam(), 1);
  void* memory = nullptr;
  try {
    std::string reason;
    auto kernel = device_->load(testing::saxpy(*device_, reason).value(), "saxpy");
    memory = device_->allocate(400);
    void* arguments[] = {&memory, &memory, nullptr, nullptr};
    float a = 0;
    std::uint64_t n = 100;
    arguments[2] = &a;
    arguments[3] = &n;
    const Stream stream{device_->device(), nullptr};
    device_->fill(memory, 0, 400, stream);
    // All that a block has unasked, of which kernels declare some; and more.
    for (const std::uint32_t bytes : {48u << 10, 60u << 10}) {
      device_->launch(*kernel, {.work_items = n, .shared_bytes = bytes}, arguments, stream);
    }
    device_->synchronize(stream);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(Code::device));
    EXPECT_EQ(error.driver_code(), 999);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("failed on cuda:0 (host driver of the tests)"),
                                    HasSubstr("HOST_DRIVER_ERROR (999)")));
  }
  device_->free(memory);
  void* context = nullptr;
  EXPECT_EQ(current_(&context), 0);
  EXPECT_EQ(context, nullptr) << "kiln left a context current";
}

// In a process of its own, which has not initialised the driver yet.
TEST(DriverInitialisation, IsTriedAgainAfterAFailure) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void (*fail)(const char*, int) = nullptr;
  if (library != nullptr) {
    fail = reinterpret_cast<decltype(fail)>(dlsym(library, "kiln_host_driver_fail"));
  }
  if (fail == nullptr)
    GTEST_SKIP() << "libcuda.so.1 is a real driver here, which does not fail on demand";
  const auto run = [fail] {
    fail("cuInit", 1);
    for (int i = 0; i < 3; ++i) {
      if (why_absent(DeviceType::cuda).find("cuInit failed with error 999") == std::string::npos) {
        return 1;
      }
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!why_absent(DeviceType::cuda).empty()) {
      if (std::chrono::steady_clock::now() >= end) return 2;
      std::this_thread::yield();
    }
    return 0;
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(_exit(run()), ::testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Every, DriverError,
                         ::testing::Values("cuModuleLoadData", "cuModuleGetFunction",
                                           "cuMemAlloc_v2", "cuMemsetD8Async", "cuFuncSetAttribute",
                                           "cuLaunchKernel", "cuStreamSynchronize"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kiln::jit
