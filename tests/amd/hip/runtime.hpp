// The state behind the emulated HIP: devices, handles, work, captures. hip.cpp and hip_graph.cpp
// are the functions of its interface; a handle of HIP is a pointer to the struct of that name here.
#pragma once

#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#undef __noinline__  // for kernels; the standard library of GCC 16 has an attribute of this name

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/amd/hip/device_memory.hpp"
#include "tests/amd/hip/targets.hpp"
#include "tests/amd/hip/work_queue.hpp"
#include "tests/amd/isa/dispatch.hpp"

struct ihipModule_t {
  int device = 0;
  std::shared_ptr<const kiln::amd::CodeObject> code;
  std::vector<hipFunction_t> functions;
};

/// A kernel of a module.
struct ihipModuleSymbol_t {
  const kiln::amd::Kernel* kernel = nullptr;
  int device = 0;
  std::weak_ptr<const kiln::amd::CodeObject> code;  ///< gone when the module is unloaded
  bool has_run = false;
};

namespace kiln::amd {

/// A launch, with a copy of its arguments.
struct KernelWork {
  hipFunction_t function = nullptr;
  std::weak_ptr<const CodeObject> code;
  dim3 blocks;
  dim3 threads;
  std::uint32_t dynamic_lds = 0;
  std::vector<std::byte> arguments;
  std::vector<void*> pointers;  ///< into `arguments`, made for those who ask what a node launches
};
struct CopyWork {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};
struct FillWork {
  void* to = nullptr;
  std::uint8_t value = 0;
  std::size_t bytes = 0;
};
/// A graph in a graph: a copy, which belongs to the node.
struct GraphWork {
  std::shared_ptr<ihipGraph> graph;
};
/// What an operation or the node of a graph does; an empty node does nothing.
using Work = std::variant<std::monostate, KernelWork, CopyWork, FillWork, GraphWork>;

/// What is being recorded from a stream and from others that joined it.
struct Capture {
  std::unique_ptr<ihipGraph> graph;
  hipStream_t origin = nullptr;
  hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
  const void* thread = nullptr;  ///< that began it
  bool invalidated = false;
};

}  // namespace kiln::amd

struct hipGraphNode {
  kiln::amd::Work work;
  std::vector<hipGraphNode_t> after;
};

struct ihipGraph {
  std::vector<std::unique_ptr<hipGraphNode>> nodes;
};

struct ihipStream_t {
  int device = 0;
  bool blocking = false;  ///< it waits for the null stream, and the null stream for it
  kiln::amd::Submitted last;
  std::shared_ptr<kiln::amd::Capture> capture;
  std::vector<hipGraphNode_t> captured_last;  ///< what its next captured operation comes after
};

struct ihipEvent_t {
  using Time = std::chrono::steady_clock::time_point;
  int device = 0;
  bool timed = false;
  kiln::amd::Submitted recorded;
  std::shared_ptr<Time> time;  ///< when that ran
  std::shared_ptr<kiln::amd::Capture> capture;
  std::vector<hipGraphNode_t> captured_last;
};

/// A copy of a graph, in which the graphs in it are nodes of its own.
struct hipGraphExec {
  struct Node {
    hipGraphNode_t original = nullptr;  ///< of the graph, which need not live any more
    /// Launches that wait to run share it: a change reaches them too, as releases of HIP let it.
    std::shared_ptr<kiln::amd::Work> work;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;  ///< each stands behind those that it waits for
};

namespace kiln::amd {

struct Gpu {
  Gpu(int index, std::uint64_t bytes) : memory(bytes) { null_stream.device = index; }
  DeviceMemory memory;
  ihipStream_t null_stream;
  bool lost = false;  ///< a kernel did what makes every later call fail
};

/// One for the process.
struct Runtime {
  static Runtime& instance();
  Runtime();

  std::recursive_mutex mutex;  ///< held during every call, and while kernels run
  const Target* target = nullptr;
  std::vector<std::unique_ptr<Gpu>> gpus;
  std::string why_no_gpus;  ///< for people; empty if there are some
  std::uint64_t seed = 0;
  bool worst_transcendentals = false;
  WorkQueue queue;
  std::set<const void*> handles;  ///< that are valid, of every kind
  std::set<ihipStream_t*> streams;
  std::set<std::shared_ptr<Capture>> captures;
  std::vector<std::string> faults;
  Trace trace;                ///< of the launches that have run and that nobody has asked for
  std::uint64_t kernels = 0;  ///< of all modules, that have run
  std::uint64_t launches = 0;
  std::uint64_t device_waits = 0;  ///< calls that wait for all of a device
};

/// Why a function of the interface does nothing; call() makes it the function's error.
struct Refusal {
  hipError_t error = hipErrorInvalidValue;
};
/// Makes it what hipGetLastError gives.
hipError_t remember(hipError_t error);

/// What a function of the interface does, under the lock.
template <class Body>
hipError_t call(Body body) {
  const std::lock_guard lock(Runtime::instance().mutex);
  try {
    body();
    return hipSuccess;
  } catch (const Refusal& refusal) {
    return remember(refusal.error);
  }
}

bool is_valid(const void* handle);
Gpu& gpu(int index);

// These throw a Refusal.

/// `otherwise` if the handle is none.
template <class T>
T& valid(T* handle, hipError_t otherwise = hipErrorInvalidHandle) {
  if (!is_valid(handle)) throw Refusal{otherwise};
  return *handle;
}
/// Gives up a handle, for its owner to delete.
void release(const void* handle, hipError_t otherwise = hipErrorInvalidHandle);
/// The default stream is the current device's.
ihipStream_t& stream_of(hipStream_t stream);
/// For a device that is lost, and on a machine without one.
void require_healthy(int device);
void check(const CopyWork& copy, hipMemcpyKind kind);
void check(const FillWork& fill);
/// With a copy of the arguments of a launch on that device.
KernelWork kernel_work(const hipKernelNodeParams& given, int device);
/// Puts the work behind what is on the stream or, if the stream is captured, into the graph.
void submit(ihipStream_t& stream, Work work);
/// For calls that captures forbid to threads that have not relaxed their mode; it spoils the
/// captures.
void refuse_while_capturing();

/// What the next operation on the stream comes after.
std::vector<Submitted> order(const ihipStream_t& stream);
/// Does it now. A kernel's Fault is the device's end.
void run(int device, const Work& work);
void report(int device, const std::string& fault);

}  // namespace kiln::amd
