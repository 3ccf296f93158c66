// The libamdhip64 of the tests by itself: what it orders, what it leaves open, what it refuses.
// What kernels do is tested in tests/amd/isa.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>
#undef __noinline__  // for kernels; the standard library of GCC 16 has an attribute of this name

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "jit/service/compile.hpp"
#include "tests/amd/isa/disassembler.hpp"
#include "tests/support/toolchains.hpp"

extern "C" int kiln_amd_live_handles();

namespace kiln::amd {
namespace {

using ::testing::Each;

constexpr std::size_t kBytes = 256;

void ok(hipError_t error) { ASSERT_EQ(error, hipSuccess) << hipGetErrorString(error); }

hipStream_t make_stream(unsigned flags = hipStreamNonBlocking) {
  hipStream_t stream = nullptr;
  ok(hipStreamCreateWithFlags(&stream, flags));
  return stream;
}
hipEvent_t make_event() {
  hipEvent_t event = nullptr;
  ok(hipEventCreateWithFlags(&event, hipEventDefault));
  return event;
}

class EmulatedHip : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const hipError_t error = hipGetDeviceCount(&count);
    if (error != hipSuccess && find_comgr().empty()) GTEST_SKIP() << hipGetErrorString(error);
    ok(error);
    ok(hipMalloc(&memory, kBytes));
    bytes = static_cast<std::uint8_t*>(memory);
    one = make_stream();
    two = make_stream();
  }
  void TearDown() override {
    if (memory == nullptr) return;
    ok(hipFree(memory));
    ok(hipStreamDestroy(one));
    ok(hipStreamDestroy(two));
  }
  void set(int value, hipStream_t stream) { ok(hipMemsetAsync(memory, value, kBytes, stream)); }
  /// The first byte after everything has run.
  int result() {
    ok(hipDeviceSynchronize());
    return bytes[0];
  }
  /// All that comes of `work` in many tries.
  template <class Work>
  std::set<int> results(Work work) {
    std::set<int> seen;
    for (int i = 0; i < 64; ++i) {
      work();
      seen.insert(result());
    }
    return seen;
  }

  void* memory = nullptr;
  const std::uint8_t* bytes = nullptr;
  hipStream_t one = nullptr;
  hipStream_t two = nullptr;
};

// ---- Memory ------------------------------------------------------------------------------------

TEST_F(EmulatedHip, MemoryIsPoisonedAndEndsWhereItEnds) {
  EXPECT_THAT(std::vector<int>(bytes, bytes + kBytes), Each(0xff));
  std::vector<char> host(2 * kBytes);
  const auto copy = [&](void* to, const void* from, std::size_t count, hipMemcpyKind kind) {
    return hipMemcpyAsync(to, from, count, kind, one);
  };
  EXPECT_EQ(copy(host.data(), bytes, kBytes, hipMemcpyDeviceToHost), hipSuccess);
  EXPECT_EQ(copy(host.data(), bytes + 1, kBytes, hipMemcpyDeviceToHost), hipErrorInvalidValue);
  EXPECT_EQ(copy(memory, host.data(), kBytes + 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_EQ(copy(memory, host.data(), kBytes, hipMemcpyDeviceToDevice), hipErrorInvalidValue);
  EXPECT_EQ(copy(host.data(), bytes, kBytes, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT_EQ(hipMemsetAsync(memory, 0, kBytes + 1, one), hipErrorInvalidValue);
  EXPECT_EQ(hipFree(host.data()), hipErrorInvalidValue);
  EXPECT_EQ(hipGetLastError(), hipErrorInvalidValue);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
  ok(hipDeviceSynchronize());
}

TEST_F(EmulatedHip, NeighboursAndFreedMemoryCannotBeTouched) {
  constexpr int kPage = 4096;
  EXPECT_DEATH({ (void)*(volatile const std::uint8_t*)(bytes + kPage); }, "");
  EXPECT_DEATH({ (void)*(volatile const std::uint8_t*)(bytes - 1); }, "");
  void* other = nullptr;
  ok(hipMalloc(&other, 10 * kPage));
  ok(hipFree(other));
  EXPECT_DEATH({ *static_cast<volatile char*>(other) = 1; }, "");
  EXPECT_EQ(hipFree(other), hipErrorInvalidValue);
  void* next = nullptr;
  ok(hipMalloc(&next, 10 * kPage));
  EXPECT_NE(next, other) << "what is freed is not given out again at once";
  ok(hipFree(next));
}

TEST_F(EmulatedHip, MemoryThatIsNotThereIsAnError) {
  void* much = memory;
  EXPECT_EQ(hipMalloc(&much, std::size_t{1} << 62), hipErrorOutOfMemory);
  EXPECT_EQ(much, nullptr);
  std::vector<void*> all;
  for (void* part = nullptr; hipMalloc(&part, std::size_t{1} << 28) == hipSuccess;) {
    all.push_back(part);
    ASSERT_LT(all.size(), 1000U);
  }
  for (void* part : all) ok(hipFree(part));
  ok(hipMalloc(&much, 1));
  ok(hipFree(much));
}

// ---- Streams and events ------------------------------------------------------------------------

TEST_F(EmulatedHip, WorkRunsWhenItIsWaitedFor) {
  set(1, one);
  EXPECT_EQ(bytes[0], 0xff);
  ok(hipStreamSynchronize(one));
  EXPECT_EQ(bytes[0], 1);
  set(2, one);
  const hipEvent_t event = make_event();
  ok(hipEventRecord(event, one));
  EXPECT_EQ(bytes[0], 1);
  ok(hipEventSynchronize(event));
  EXPECT_EQ(bytes[0], 2);
  ok(hipEventDestroy(event));
  set(3, one);
  void* other = nullptr;
  ok(hipMalloc(&other, 1));
  EXPECT_EQ(bytes[0], 2);
  ok(hipFree(other));
  EXPECT_EQ(bytes[0], 3) << "hipFree waits for the device";
}

TEST_F(EmulatedHip, AStreamIsInOrderAndTwoAreNot) {
  EXPECT_EQ(results([&] { set(1, one), set(2, one); }), std::set<int>{2});
  EXPECT_EQ(results([&] { set(1, one), set(2, two); }), (std::set<int>{1, 2}));
}

TEST_F(EmulatedHip, EventsOrderStreams) {
  const hipEvent_t event = make_event();
  EXPECT_EQ(results([&] {
              set(1, one);
              ok(hipEventRecord(event, one));
              ok(hipStreamWaitEvent(two, event, 0));
              set(2, two);
            }),
            std::set<int>{2});
  // What comes after the record is not waited for.
  EXPECT_EQ(results([&] {
              ok(hipEventRecord(event, one));
              set(1, one);
              ok(hipStreamWaitEvent(two, event, 0));
              set(2, two);
            }),
            (std::set<int>{1, 2}));
  ok(hipEventDestroy(event));
}

TEST_F(EmulatedHip, TheDefaultStreamWaitsForBlockingStreamsAndTheyForIt) {
  const hipStream_t blocking = make_stream(hipStreamDefault);
  EXPECT_EQ(results([&] { set(1, blocking), set(2, nullptr); }), std::set<int>{2});
  EXPECT_EQ(results([&] { set(1, nullptr), set(2, blocking); }), std::set<int>{2});
  EXPECT_EQ(results([&] { set(1, nullptr), set(2, one); }), (std::set<int>{1, 2}));
  ok(hipStreamDestroy(blocking));
}

TEST_F(EmulatedHip, EventsMeasureWhatHasRun) {
  const hipEvent_t begin = make_event();
  const hipEvent_t end = make_event();
  float milliseconds = -1;
  EXPECT_EQ(hipEventElapsedTime(&milliseconds, begin, end), hipErrorInvalidHandle);
  ok(hipEventRecord(begin, one));
  set(1, one);
  ok(hipEventRecord(end, one));
  EXPECT_EQ(hipEventElapsedTime(&milliseconds, begin, end), hipErrorNotReady);
  ok(hipEventSynchronize(end));
  ok(hipEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GT(milliseconds, 0);
  ok(hipEventDestroy(begin));
  ok(hipEventDestroy(end));
}

TEST_F(EmulatedHip, HandlesThatAreGoneAreRefused) {
  const int before = kiln_amd_live_handles();
  const hipStream_t stream = make_stream();
  ok(hipStreamDestroy(stream));
  EXPECT_EQ(hipStreamDestroy(stream), hipErrorInvalidHandle);
  EXPECT_EQ(hipMemsetAsync(memory, 0, 1, stream), hipErrorInvalidHandle);
  EXPECT_EQ(hipStreamSynchronize(stream), hipErrorInvalidHandle);
  const hipEvent_t event = make_event();
  ok(hipEventDestroy(event));
  EXPECT_EQ(hipEventRecord(event, one), hipErrorInvalidHandle);
  EXPECT_EQ(kiln_amd_live_handles(), before);
}

// ---- Captures ----------------------------------------------------------------------------------

/// What `work` records from the stream.
template <class Work>
hipGraphExec_t capture(hipStream_t stream, Work work) {
  ok(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  work();
  hipGraph_t graph = nullptr;
  ok(hipStreamEndCapture(stream, &graph));
  hipGraphExec_t executable = nullptr;
  ok(hipGraphInstantiateWithFlags(&executable, graph, 0));
  ok(hipGraphDestroy(graph));
  return executable;
}

TEST_F(EmulatedHip, WhatIsCapturedRunsWhenTheGraphDoes) {
  const hipGraphExec_t graph = capture(one, [&] { set(1, one), set(2, one); });
  EXPECT_EQ(result(), 0xff);
  EXPECT_EQ(results([&] { ok(hipGraphLaunch(graph, two)); }), std::set<int>{2});
  ok(hipGraphExecDestroy(graph));
}

TEST_F(EmulatedHip, CapturesForkAndJoinByEvents) {
  const hipEvent_t fork = make_event();
  const hipEvent_t join = make_event();
  const hipGraphExec_t graph = capture(one, [&] {
    set(1, one);
    ok(hipEventRecord(fork, one));
    ok(hipStreamWaitEvent(two, fork, 0));
    set(2, two);
    set(3, one);
    ok(hipEventRecord(join, two));
    ok(hipStreamWaitEvent(one, join, 0));
  });
  EXPECT_EQ(results([&] { ok(hipGraphLaunch(graph, one)); }), (std::set<int>{2, 3}));
  ok(hipGraphExecDestroy(graph));
  // Without the join.
  ok(hipStreamBeginCapture(one, hipStreamCaptureModeGlobal));
  ok(hipEventRecord(fork, one));
  ok(hipStreamWaitEvent(two, fork, 0));
  set(2, two);
  hipGraph_t none = nullptr;
  EXPECT_EQ(hipStreamEndCapture(one, &none), hipErrorStreamCaptureUnjoined);
  EXPECT_EQ(none, nullptr);
  set(4, two);
  EXPECT_EQ(result(), 4) << "both streams are as before";
  ok(hipEventDestroy(fork));
  ok(hipEventDestroy(join));
}

TEST_F(EmulatedHip, WaitingAndAllocatingSpoilACapture) {
  const auto spoils = [&](auto call) {
    ok(hipStreamBeginCapture(one, hipStreamCaptureModeGlobal));
    EXPECT_EQ(call(), hipErrorStreamCaptureUnsupported);
    hipStreamCaptureStatus status{};
    ok(hipStreamIsCapturing(one, &status));
    EXPECT_EQ(status, hipStreamCaptureStatusInvalidated);
    hipGraph_t none = nullptr;
    EXPECT_EQ(hipStreamEndCapture(one, &none), hipErrorStreamCaptureInvalidated);
    ok(hipStreamIsCapturing(one, &status));
    EXPECT_EQ(status, hipStreamCaptureStatusNone);
  };
  void* other = nullptr;
  spoils([&] { return hipStreamSynchronize(one); });
  spoils([&] { return hipMalloc(&other, 1); });
  spoils([&] { return hipFree(memory); });
  spoils([&] { return hipDeviceSynchronize(); });
  // A thread may relax that for itself.
  const hipGraphExec_t graph = capture(one, [&] {
    hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
    ok(hipThreadExchangeStreamCaptureMode(&mode));
    ok(hipMalloc(&other, 1));
    ok(hipThreadExchangeStreamCaptureMode(&mode));
  });
  ok(hipFree(other));
  ok(hipGraphExecDestroy(graph));
}

// ---- Graphs ------------------------------------------------------------------------------------

class EmulatedGraph : public EmulatedHip {
 protected:
  void SetUp() override {
    EmulatedHip::SetUp();
    if (memory != nullptr) ok(hipGraphCreate(&graph, 0));
  }
  void TearDown() override {
    if (executable != nullptr) ok(hipGraphExecDestroy(executable));
    if (graph != nullptr) ok(hipGraphDestroy(graph));
    EmulatedHip::TearDown();
  }
  hipMemsetParams fill(unsigned value) const {
    hipMemsetParams params{};
    params.dst = memory;
    params.value = value;
    params.elementSize = 1;
    params.width = kBytes;
    params.height = 1;
    return params;
  }
  hipGraphNode_t add(unsigned value, const std::vector<hipGraphNode_t>& after) {
    hipGraphNode_t node = nullptr;
    const hipMemsetParams params = fill(value);
    ok(hipGraphAddMemsetNode(&node, graph, after.data(), after.size(), &params));
    return node;
  }
  std::set<int> launch() {
    if (executable == nullptr) ok(hipGraphInstantiateWithFlags(&executable, graph, 0));
    return results([&] { ok(hipGraphLaunch(executable, one)); });
  }

  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
};

TEST_F(EmulatedGraph, RunsInAnyOrderThatItsEdgesAllow) {
  const hipGraphNode_t first = add(1, {});
  const hipGraphNode_t left = add(2, {first});
  const hipGraphNode_t right = add(3, {first});
  EXPECT_EQ(launch(), (std::set<int>{2, 3}));
  ok(hipGraphExecDestroy(executable));
  executable = nullptr;
  add(4, {left, right});
  EXPECT_EQ(launch(), std::set<int>{4});
}

TEST_F(EmulatedGraph, OrdersWhatIsAroundItOnTheStream) {
  add(1, {}), add(1, {});
  ok(hipGraphInstantiateWithFlags(&executable, graph, 0));
  EXPECT_EQ(results([&] {
              set(2, one);
              ok(hipGraphLaunch(executable, one));
            }),
            std::set<int>{1});
  EXPECT_EQ(results([&] {
              ok(hipGraphLaunch(executable, one));
              set(2, one);
            }),
            std::set<int>{2});
}

TEST_F(EmulatedGraph, TellsItsNodesAndEdges) {
  const hipGraphNode_t first = add(1, {});
  const hipGraphNode_t second = add(2, {first});
  std::size_t count = 0;
  ok(hipGraphGetNodes(graph, nullptr, &count));
  ASSERT_EQ(count, 2U);
  hipGraphNode_t nodes[2] = {};
  ok(hipGraphGetNodes(graph, nodes, &count));
  EXPECT_EQ(std::set(nodes, nodes + 2), (std::set{first, second}));
  ok(hipGraphGetEdges(graph, nullptr, nullptr, &count));
  ASSERT_EQ(count, 1U);
  hipGraphNode_t from = nullptr;
  hipGraphNode_t to = nullptr;
  ok(hipGraphGetEdges(graph, &from, &to, &count));
  EXPECT_EQ(from, first);
  EXPECT_EQ(to, second);
  hipGraphNodeType type{};
  ok(hipGraphNodeGetType(first, &type));
  EXPECT_EQ(type, hipGraphNodeTypeMemset);
  hipMemsetParams params{};
  ok(hipGraphMemsetNodeGetParams(second, &params));
  EXPECT_EQ(params.value, 2U);
}

TEST_F(EmulatedGraph, AGraphInItIsACopy) {
  hipGraph_t inner = nullptr;
  ok(hipGraphCreate(&inner, 0));
  std::swap(inner, graph);
  const hipGraphNode_t first = add(2, {});
  add(3, {first});
  std::swap(inner, graph);
  const hipGraphNode_t before = add(1, {});
  hipGraphNode_t child = nullptr;
  ok(hipGraphAddChildGraphNode(&child, graph, &before, 1, inner));
  ok(hipGraphDestroy(inner));
  EXPECT_EQ(launch(), std::set<int>{3});
  ok(hipGraphExecDestroy(executable));
  executable = nullptr;
  add(4, {child});
  EXPECT_EQ(launch(), std::set<int>{4});
}

TEST_F(EmulatedGraph, AChangeReachesLaunchesThatHaveNotRun) {
  const hipGraphNode_t node = add(1, {});
  ok(hipGraphInstantiateWithFlags(&executable, graph, 0));
  ok(hipGraphLaunch(executable, one));
  const hipMemsetParams params = fill(7);
  ok(hipGraphExecMemsetNodeSetParams(executable, node, &params));
  EXPECT_EQ(result(), 7) << "which is why kiln waits before it changes a graph";
}

TEST_F(EmulatedGraph, RefusesWhatHipRefuses) {
  const hipGraphNode_t node = add(1, {});
  const hipGraphNode_t twice[] = {node, node};
  const hipGraphNode_t null = nullptr;
  hipGraphNode_t made = nullptr;
  EXPECT_EQ(hipGraphAddEmptyNode(&made, graph, twice, 2), hipErrorInvalidValue);
  EXPECT_EQ(hipGraphAddEmptyNode(&made, graph, &null, 1), hipErrorInvalidValue);
  hipMemsetParams params = fill(1);
  params.width = 0;
  EXPECT_EQ(hipGraphAddMemsetNode(&made, graph, nullptr, 0, &params), hipErrorInvalidValue);
  params.width = kBytes + 1;
  EXPECT_EQ(hipGraphAddMemsetNode(&made, graph, nullptr, 0, &params), hipErrorInvalidValue);
  ok(hipGraphInstantiateWithFlags(&executable, graph, 0));
  EXPECT_EQ(hipGraphExecMemcpyNodeSetParams1D(executable, node, memory, memory, 1,
                                              hipMemcpyDeviceToDevice),
            hipErrorInvalidValue)
      << "the node is a fill";
}

// A process that has lost its device has lost it for good, so these run in one of their own.
TEST_F(EmulatedGraph, ExecutablesThatGoBeforeTheirLaunchesLoseTheDevice) {
  add(1, {});
  ok(hipGraphInstantiateWithFlags(&executable, graph, 0));
  const auto lose = [&] {
    ok(hipGraphLaunch(executable, one));
    ok(hipGraphExecDestroy(executable));
    std::_Exit(hipStreamSynchronize(one) == hipErrorIllegalAddress ? 0 : 1);
  };
  EXPECT_EXIT(lose(), ::testing::ExitedWithCode(0), "executable was destroyed before its launch");
}

// ---- Modules -----------------------------------------------------------------------------------

class EmulatedModule : public EmulatedHip {
 protected:
  void SetUp() override {
    EmulatedHip::SetUp();
    KILN_NEED(hiprtc);
    if (memory == nullptr) return;
    hipDeviceProp_t properties;
    ok(hipGetDeviceProperties(&properties, 0));
    jit::CompileRequest request;
    request.function = request.entry = "store";
    request.source = R"(
extern "C" __global__ void store(unsigned char value, unsigned char* to, unsigned step) {
  to[(blockIdx.x * blockDim.x + threadIdx.x) * step] = value;
}
)";
    request.target = properties.gcnArchName;
    request.options = jit::compile_options(request.target, false);
    image = jit::compile(request).code;
    ok(hipModuleLoadData(&module, image.data()));
    ok(hipModuleGetFunction(&function, module, "store"));
  }
  void TearDown() override {
    if (module != nullptr) ok(hipModuleUnload(module));
    EmulatedHip::TearDown();
  }
  hipError_t store(std::uint8_t value, std::uint32_t step = 1, unsigned threads = kBytes) {
    void* arguments[] = {&value, &memory, &step};
    return hipModuleLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, one, arguments, nullptr);
  }

  std::string image;
  hipModule_t module = nullptr;
  hipFunction_t function = nullptr;
};

TEST_F(EmulatedModule, LaunchesTakeTheirArgumentsWithThem) {
  ok(store(5));
  EXPECT_EQ(bytes[0], 0xff);
  ok(hipStreamSynchronize(one));
  EXPECT_THAT(std::vector<int>(bytes, bytes + kBytes), Each(5));
}

TEST_F(EmulatedModule, LaunchesThatCannotBeAreRefused) {
  EXPECT_EQ(store(5, 1, 0), hipErrorInvalidValue);
  EXPECT_EQ(store(5, 1, 1025), hipErrorInvalidConfiguration);
  void* arguments[] = {nullptr};
  EXPECT_EQ(hipModuleLaunchKernel(function, 1U << 31, 1, 1, 2, 1, 1, 0, one, arguments, nullptr),
            hipErrorInvalidConfiguration);
  EXPECT_EQ(hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1 << 20, one, arguments, nullptr),
            hipErrorInvalidValue);
  EXPECT_EQ(hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, one, nullptr, nullptr),
            hipErrorInvalidValue);
}

TEST_F(EmulatedModule, ImagesThatAreNoneAreRefused) {
  hipModule_t none = nullptr;
  EXPECT_EQ(hipModuleLoadData(&none, std::string(4096, 'x').c_str()), hipErrorInvalidImage);
  EXPECT_EQ(hipModuleLoadData(&none, image.substr(0, 64).c_str()), hipErrorInvalidImage);
  hipFunction_t missing = nullptr;
  EXPECT_EQ(hipModuleGetFunction(&missing, module, "no_such_kernel"), hipErrorNotFound);
}

TEST_F(EmulatedModule, AFaultIsToldInFullAndEndsTheDevice) {
  const auto lose = [&] {
    ok(store(5, 2));
    const bool lost = hipStreamSynchronize(one) == hipErrorIllegalAddress;
    const bool stays = hipMemsetAsync(memory, 0, 1, two) == hipErrorIllegalAddress;
    std::fprintf(stderr, "reason: %s\n", hipGetErrorString(hipErrorIllegalAddress));
    std::_Exit(lost && stays ? 0 : 1);
  };
  EXPECT_EXIT(lose(), ::testing::ExitedWithCode(0), "reason: .*store");
}

TEST_F(EmulatedModule, ModulesThatGoBeforeTheirLaunchesLoseTheDevice) {
  const auto lose = [&] {
    ok(store(5));
    ok(hipModuleUnload(module));
    std::_Exit(hipStreamSynchronize(one) == hipErrorIllegalAddress ? 0 : 1);
  };
  EXPECT_EXIT(lose(), ::testing::ExitedWithCode(0), "module was unloaded before its launch");
}

}  // namespace
}  // namespace kiln::amd
