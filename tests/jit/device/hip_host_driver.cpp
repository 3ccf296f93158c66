// A CUDA driver for tests, libcuda.so.1 to the program that loads it: memory is the host's, kernels
// run on the host when they are launched (the saxpy of the tests, and what host_nvrtc.cpp makes),
// and a graph runs its nodes as late and in as odd an order as its edges allow. It checks what a
// real driver checks or crashes on: a current context, known handles, sizes, duplicate edges. Any
// call can be made to fail (hip_host_driver.hpp).
#include "tests/jit/device/hip_host_driver.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "jit/device/hip/cuda/cuda_driver.hpp"

namespace {

using namespace kiln::jit::nvidia;

constexpr CUresult kInvalidValue = 1;
constexpr CUresult kOutOfMemory = 2;
constexpr CUresult kInvalidImage = 200;
constexpr CUresult kInvalidContext = 201;
constexpr CUresult kInvalidHandle = 400;
constexpr CUresult kNotFound = 500;
constexpr CUresult kCaptureUnsupported = 900;
constexpr CUresult kUnknown = 999;

struct Kernel;

/// Runs the grid with the parameters' values.
using Run = void (*)(const Kernel&, const CudaKernelNodeParams&, void* const*);

struct Kernel {
  Run run = nullptr;
  std::vector<std::size_t> sizes;  ///< of the parameters, in bytes
  void* library = nullptr;         ///< of a kernel that was compiled
  void* entry = nullptr;
  bool by_block = false;  ///< it is called for blocks, not for work items
  void* context = nullptr;
  unsigned dynamic_bytes = 47 << 10;  ///< of 48 KiB, without what the kernel itself declares
};

struct Node {
  int type = 5;
  std::vector<Node*> after;
  std::function<void()> run = [] {};
  // What was given for a kernel, with its values.
  CudaKernelNodeParams kernel{};
  std::vector<std::vector<char>> values;
  std::vector<void*> pointers;
  CudaMemsetNodeParams fill{};
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};

/// An executable is a copy: later changes of the graph do not reach it.
struct Executable {
  std::vector<Node*> order;  // of the graph's nodes, dependencies first
  std::map<Node*, std::function<void()>> work;
};

struct StreamState {
  std::unique_ptr<Graph> captured;
  Node* last = nullptr;
  bool invalidated = false;
  void* context = nullptr;
};

struct Driver {
  std::recursive_mutex mutex;
  std::set<void*> globally_captured;  // streams, in the mode that forbids the most
  std::set<void*> modules, functions, streams, events, graphs, executables;
  std::string failing;
  int calls_until_failure = 0;
  CUresult failure = kUnknown;
  int programmatic_edges = 0;
  std::uint64_t device_waits = 0;
};

Driver& driver() {
  static auto* one = new Driver;
  return *one;
}

char primaries[2];  // the contexts of two devices
thread_local std::vector<void*> context_stack;
thread_local int capture_mode = 0;  // of this thread: global

/// What a capture elsewhere forbids to a thread that has not relaxed its mode.
bool is_forbidden(std::string_view call) {
  static const std::set<std::string_view> unsafe = {"cuMemAlloc_v2",    "cuMemFree_v2",
                                                    "cuModuleLoadData", "cuModuleUnload",
                                                    "cuCtxSynchronize", "cuEventSynchronize"};
  constexpr int kRelaxed = 2;
  return capture_mode != kRelaxed && !driver().globally_captured.empty() && unsafe.count(call) != 0;
}
void spoil_captures();

bool is_primary(const void* context) {
  return context == &primaries[0] || context == &primaries[1];
}
void* current_context() { return context_stack.empty() ? nullptr : context_stack.back(); }

/// Takes the driver's lock and says whether this call shall fail.
class Call {
 public:
  explicit Call(const char* name, bool needs_context = true) : lock_(driver().mutex) {
    Driver& d = driver();
    if (d.failing == name && --d.calls_until_failure == 0) error_ = d.failure;
    if (is_forbidden(name)) {
      spoil_captures();
      error_ = kCaptureUnsupported;
    }
    if (needs_context && (context_stack.empty() || !is_primary(context_stack.back()))) {
      error_ = kInvalidContext;
    }
  }
  CUresult error() const { return error_; }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  CUresult error_ = 0;
};

#define CALL(...)                                 \
  Call call(__func__ __VA_OPT__(, ) __VA_ARGS__); \
  if (call.error() != 0) return call.error()

StreamState* state_of(CUstream stream) { return reinterpret_cast<StreamState*>(stream); }
Graph* graph_of(CUgraph graph) { return reinterpret_cast<Graph*>(graph); }
Node* node_of(CUgraphNode node) { return reinterpret_cast<Node*>(node); }

void spoil_captures() {
  for (void* stream : driver().globally_captured)
    static_cast<StreamState*>(stream)->invalidated = true;
}

Kernel& kernel_of(CUfunction function) { return *reinterpret_cast<Kernel*>(function); }

/// Saxpy as the test's PTX computes it, with the grid it was given.
void run_saxpy(const Kernel&, const CudaKernelNodeParams& launch, void* const* parameters) {
  const float* x = *static_cast<const float* const*>(parameters[0]);
  float* y = *static_cast<float* const*>(parameters[1]);
  const float a = *static_cast<const float*>(parameters[2]);
  const auto n = *static_cast<const std::uint64_t*>(parameters[3]);
  if (launch.grid[0] == 0 || launch.block[0] == 0) std::abort();
  for (std::uint64_t i = 0; i < n; ++i) y[i] = std::fma(a, x[i], y[i]);
}

/// A kernel of host_nvrtc.cpp: it bounds the work items itself, and sees the grid if it asks.
void run_compiled(const Kernel& kernel, const CudaKernelNodeParams& launch,
                  void* const* parameters) {
  unsigned grid[] = {launch.grid[0],  launch.grid[1],  launch.grid[2],
                     launch.block[0], launch.block[1], launch.block[2]};
  std::vector<void*> arguments(parameters, parameters + kernel.sizes.size());
  arguments.push_back(grid);
  const auto entry =
      reinterpret_cast<void (*)(void* const*, unsigned long long, unsigned long long)>(
          kernel.entry);
  const auto blocks = static_cast<unsigned long long>(grid[0]) * grid[1] * grid[2];
  entry(arguments.data(), 0, kernel.by_block ? blocks : ~0ULL);
}

/// Finds one of the kernels of a library, and what is known of its parameters (host_nvrtc.cpp).
bool find_entry(Kernel& kernel, const std::string& name) {
  const auto symbol = [&](const std::string& of) { return dlsym(kernel.library, of.c_str()); };
  const auto* sizes = static_cast<unsigned long*>(symbol("kiln_host_sizes_" + name));
  const auto* by_block = static_cast<int*>(symbol("kiln_host_by_block_" + name));
  kernel.entry = symbol(name);
  if (kernel.entry == nullptr || sizes == nullptr || by_block == nullptr) return false;
  kernel.sizes.clear();
  for (; *sizes != 0; ++sizes) kernel.sizes.push_back(*sizes);
  kernel.by_block = *by_block != 0;
  return true;
}

/// Loads the shared object that an image is. Null if it is none.
std::unique_ptr<Kernel> load_compiled(const char* image) {
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0) return nullptr;
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (header.e_machine == 190) return nullptr;  // a cubin
  const std::size_t size = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
  std::string path = (std::filesystem::temp_directory_path() / "kiln-cubin-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  const bool written = file >= 0 && ::write(file, image, size) == static_cast<ssize_t>(size);
  auto kernel = std::make_unique<Kernel>();
  if (written) kernel->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (file >= 0) ::close(file), ::unlink(path.c_str());
  if (kernel->library == nullptr) return nullptr;
  kernel->run = run_compiled;
  return kernel;
}

/// Fills in a kernel node: the values of its parameters are copied, as CUDA does.
void set_kernel(Node& node, const CudaKernelNodeParams& given) {
  const Kernel& loaded = kernel_of(given.function);
  node.type = 0;
  node.values.clear();
  node.pointers.clear();
  for (std::size_t i = 0; i < loaded.sizes.size(); ++i) {
    const char* value = static_cast<const char*>(given.parameters[i]);
    node.values.emplace_back(value, value + loaded.sizes[i]);
  }
  for (auto& value : node.values) node.pointers.push_back(value.data());
  node.kernel = given;
  node.kernel.parameters = node.pointers.data();
  node.run = [kernel = given, values = node.values]() mutable {
    // A driver would run into freed code here.
    if (driver().functions.count(kernel.function) == 0) std::abort();
    std::vector<void*> pointers;
    for (auto& value : values) pointers.push_back(value.data());
    kernel_of(kernel.function).run(kernel_of(kernel.function), kernel, pointers.data());
  };
}

void set_copy(Node& node, const CudaMemcpy3D& copy) {
  node.type = 1;
  node.run = [copy] {
    std::memmove(reinterpret_cast<void*>(copy.to.device),
                 reinterpret_cast<const void*>(copy.from.device), copy.width_bytes);
  };
}

void set_fill(Node& node, const CudaMemsetNodeParams& fill) {
  node.type = 2;
  node.fill = fill;
  node.run = [fill] {
    std::memset(reinterpret_cast<void*>(fill.to), static_cast<int>(fill.value), fill.width);
  };
}

bool is_valid(const CudaKernelNodeParams& p) {
  return driver().functions.count(p.function) != 0 &&
         kernel_of(p.function).context == current_context() && p.grid[0] != 0 && p.block[0] != 0 &&
         p.block[0] * p.block[1] * p.block[2] <= 1024 && p.block[1] * p.block[2] != 0 &&
         p.grid[1] * p.grid[2] != 0 && p.shared_bytes <= kernel_of(p.function).dynamic_bytes &&
         p.parameters != nullptr;
}
bool is_valid(const CudaMemcpy3D& copy) {
  return copy.width_bytes != 0 && copy.height == 1 && copy.depth == 1 &&
         copy.from.memory_type == kMemoryTypeUnified && copy.to.memory_type == kMemoryTypeUnified;
}
bool is_valid(const CudaMemsetNodeParams& fill) {
  return fill.width != 0 && fill.height == 1 && fill.element_bytes == 1;
}

CUresult add_node(CUgraphNode* result, CUgraph graph, const CUgraphNode* after, std::size_t count,
                  const std::function<void(Node&)>& set) {
  auto node = std::make_unique<Node>();
  for (std::size_t i = 0; i < count; ++i) node->after.push_back(node_of(after[i]));
  std::set<Node*> unique(node->after.begin(), node->after.end());
  if (unique.size() != count || unique.count(nullptr) != 0) return kInvalidValue;
  set(*node);
  *result = reinterpret_cast<CUgraphNode>(node.get());
  graph_of(graph)->nodes.push_back(std::move(node));
  return 0;
}

/// Runs `set`'s work now, or adds it to the stream's capture.
void submit(CUstream stream, const std::function<void(Node&)>& set) {
  StreamState* state = state_of(stream);
  auto node = std::make_unique<Node>();
  set(*node);
  if (state == nullptr || state->captured == nullptr) return node->run();
  if (state->last != nullptr) node->after.push_back(state->last);
  state->last = node.get();
  state->captured->nodes.push_back(std::move(node));
}

/// Known, and of the device whose context is current.
bool is_known(CUstream stream) {
  if (stream == nullptr) return true;
  return driver().streams.count(stream) != 0 && state_of(stream)->context == current_context();
}

/// An order that the edges allow and that is as far from the order of creation as they let it be.
std::vector<Node*> odd_order(const Graph& graph) {
  std::vector<Node*> order;
  std::set<Node*> done;
  while (order.size() < graph.nodes.size()) {
    for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
      const bool ready = std::all_of((*node)->after.begin(), (*node)->after.end(),
                                     [&](Node* parent) { return done.count(parent) != 0; });
      if (done.count(node->get()) != 0 || !ready) continue;
      order.push_back(node->get());
      done.insert(node->get());
      break;
    }
  }
  return order;
}

template <class T>
CUresult destroy(std::set<void*>& known, void* handle) {
  if (known.erase(handle) == 0) return kInvalidHandle;
  delete static_cast<T*>(handle);
  return 0;
}

}  // namespace

extern "C" {

void kiln_host_driver_fail(const char* function, int nth) {
  kiln_host_driver_fail_with(function, nth, kUnknown);
}
void kiln_host_driver_fail_with(const char* function, int nth, int error) {
  std::lock_guard lock(driver().mutex);
  driver().failing = function;
  driver().calls_until_failure = nth;
  driver().failure = error;
}
int kiln_host_driver_programmatic_edges() {
  std::lock_guard lock(driver().mutex);
  return driver().programmatic_edges;
}
std::uint64_t kiln_host_driver_device_waits() {
  std::lock_guard lock(driver().mutex);
  return driver().device_waits;
}
int kiln_host_driver_live_handles() {
  Driver& d = driver();
  std::lock_guard lock(d.mutex);
  return static_cast<int>(d.modules.size() + d.streams.size() + d.events.size() + d.graphs.size() +
                          d.executables.size());
}

CUresult cuInit(unsigned) {
  CALL(false);
  return 0;
}
CUresult cuGetErrorName(CUresult, const char** text) {
  *text = "HOST_DRIVER_ERROR";
  return 0;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the host driver";
  return 0;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
CUresult cuDeviceGet(CUdevice* device, int index) {
  *device = index;
  return index == 0 || index == 1 ? 0 : 101;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<std::size_t>(size), "host driver of the tests");
  return 0;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  static const std::map<int, int> values = {
      {kMaxThreadsPerBlock, 1024}, {kMaxGridDimX, 2147483647},   {kWarpSize, 32},
      {kMultiprocessorCount, 4},   {kComputeCapabilityMajor, 9}, {kComputeCapabilityMinor, 0}};
  *value = values.at(attribute);
  return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(&primaries[device]);
  return 0;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_stack.empty() ? nullptr : static_cast<CUcontext>(context_stack.back());
  return 0;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  context_stack.push_back(context);
  return 0;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (context_stack.empty()) return kInvalidContext;
  *context = static_cast<CUcontext>(context_stack.back());
  context_stack.pop_back();
  return 0;
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice) {
  *context = reinterpret_cast<CUcontext>(new char);
  return cuCtxPushCurrent_v2(*context);
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  std::erase(context_stack, static_cast<void*>(context));
  delete reinterpret_cast<char*>(context);
  return 0;
}
CUresult cuCtxSynchronize() {
  CALL();
  ++driver().device_waits;
  return 0;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CALL();
  auto kernel = load_compiled(static_cast<const char*>(image));
  if (kernel == nullptr &&
      std::strstr(static_cast<const char*>(image), ".entry saxpy") != nullptr) {
    kernel = std::make_unique<Kernel>();
    kernel->run = run_saxpy;
    kernel->sizes = {8, 8, 4, 8};
  }
  if (kernel == nullptr) return kInvalidImage;
  kernel->context = current_context();
  *module = reinterpret_cast<CUmodule>(kernel.release());
  driver().modules.insert(*module);
  driver().functions.insert(*module);
  return 0;
}
CUresult cuModuleUnload(CUmodule module) {
  CALL();
  driver().functions.erase(module);
  if (driver().modules.count(module) != 0 &&
      kernel_of(reinterpret_cast<CUfunction>(module)).library) {
    dlclose(kernel_of(reinterpret_cast<CUfunction>(module)).library);
  }
  return destroy<Kernel>(driver().modules, module);
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CALL();
  Kernel& kernel = kernel_of(reinterpret_cast<CUfunction>(module));
  if (kernel.library == nullptr ? std::strcmp(name, "saxpy") != 0 : !find_entry(kernel, name)) {
    return kNotFound;
  }
  *function = reinterpret_cast<CUfunction>(module);
  return 0;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  CALL();
  constexpr int kMaxDynamicSharedBytes = 8;
  if (attribute != kMaxDynamicSharedBytes) return kInvalidValue;
  kernel_of(function).dynamic_bytes = static_cast<unsigned>(value);
  return 0;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void** parameters, void** extra) {
  CALL();
  const CudaKernelNodeParams given{function,   {gx, gy, gz}, {bx, by, bz}, shared,
                                   parameters, extra,        nullptr,      nullptr};
  if (!is_known(stream)) return kInvalidHandle;
  if (!is_valid(given)) return kInvalidValue;
  submit(stream, [&](Node& node) { set_kernel(node, given); });
  return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  CALL();
  *pointer = bytes > (1ULL << 32) ? 0 : reinterpret_cast<CUdeviceptr>(std::malloc(bytes));
  return *pointer != 0 ? 0 : kOutOfMemory;
}
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  CALL();
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  CALL();
  if (!is_known(stream)) return kInvalidHandle;
  CudaMemcpy3D copy{};
  copy.to.device = to;
  copy.from.device = from;
  copy.width_bytes = bytes;
  submit(stream, [&](Node& node) { set_copy(node, copy); });
  return 0;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  CALL();
  if (!is_known(stream)) return kInvalidHandle;
  submit(stream, [&](Node& node) { set_fill(node, {to, 0, value, 1, bytes, 1}); });
  return 0;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  CALL();
  *stream = reinterpret_cast<CUstream>(new StreamState{nullptr, nullptr, false, current_context()});
  driver().streams.insert(*stream);
  return 0;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  CALL();
  return destroy<StreamState>(driver().streams, stream);
}
CUresult cuStreamSynchronize(CUstream stream) {
  CALL();
  if (!is_known(stream)) return kInvalidHandle;
  if (stream == nullptr || state_of(stream)->captured == nullptr) return 0;
  state_of(stream)->invalidated = true;
  return kCaptureUnsupported;
}
CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  CALL();
  if (!is_known(stream)) return kInvalidHandle;
  *status = 0;
  if (stream == nullptr) return 0;  // the legacy stream, which no stream of this driver waits for
  *status = state_of(stream)->captured == nullptr ? 0 : state_of(stream)->invalidated ? 2 : 1;
  return 0;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  CALL();
  return is_known(stream) && driver().events.count(event) != 0 ? 0 : kInvalidHandle;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  CALL();
  if (stream == nullptr || !is_known(stream) || state_of(stream)->captured) return kInvalidHandle;
  *state_of(stream) = {std::make_unique<Graph>(), nullptr, false, current_context()};
  if (mode == 0) driver().globally_captured.insert(stream);
  return 0;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  StreamState& state = *state_of(stream);
  driver().globally_captured.erase(stream);
  std::unique_ptr<Graph> captured = std::move(state.captured);
  state.captured = nullptr;
  CALL();
  if (state.invalidated) return 901;
  *graph = reinterpret_cast<CUgraph>(captured.release());
  driver().graphs.insert(*graph);
  return 0;
}
CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  CALL();
  *event = reinterpret_cast<CUevent>(new char);
  driver().events.insert(*event);
  return 0;
}
CUresult cuEventDestroy_v2(CUevent event) {
  CALL();
  return destroy<char>(driver().events, event);
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  CALL();
  return is_known(stream) && driver().events.count(event) != 0 ? 0 : kInvalidHandle;
}
CUresult cuEventSynchronize(CUevent event) {
  CALL();
  return driver().events.count(event) != 0 ? 0 : kInvalidHandle;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  CALL();
  *milliseconds = 0.5F;
  return 0;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  CALL();
  *graph = reinterpret_cast<CUgraph>(new Graph);
  driver().graphs.insert(*graph);
  return 0;
}
CUresult cuGraphDestroy(CUgraph graph) {
  CALL();
  return destroy<Graph>(driver().graphs, graph);
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                 std::size_t count, const CudaKernelNodeParams* given) {
  CALL();
  if (!is_valid(*given)) return kInvalidValue;
  return add_node(node, graph, after, count, [&](Node& n) { set_kernel(n, *given); });
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                              std::size_t count, const CudaMemcpy3D* copy, CUcontext) {
  CALL();
  if (!is_valid(*copy)) return kInvalidValue;
  return add_node(node, graph, after, count, [&](Node& n) { set_copy(n, *copy); });
}
CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                              std::size_t count, const CudaMemsetNodeParams* fill, CUcontext) {
  CALL();
  if (!is_valid(*fill)) return kInvalidValue;
  return add_node(node, graph, after, count, [&](Node& n) { set_fill(n, *fill); });
}
CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                             std::size_t count) {
  CALL();
  return add_node(node, graph, after, count, [](Node&) {});
}
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CudaGraphEdge* edges, std::size_t count) {
  CALL();
  if (driver().graphs.count(graph) == 0) return kInvalidHandle;
  for (std::size_t i = 0; i < count; ++i) {
    Node* const parent = node_of(from[i]);
    Node* const child = node_of(to[i]);
    const bool programmatic = edges[i].type == 1;
    const bool kernels = parent->type == 0 && child->type == 0;
    if (std::ranges::count(child->after, parent) != 0) return kInvalidValue;
    if (programmatic && (!kernels || edges[i].from_port != 1)) return kInvalidValue;
    child->after.push_back(parent);
    driver().programmatic_edges += programmatic ? 1 : 0;
  }
  return 0;
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                  std::size_t count, CUgraph child) {
  CALL();
  std::vector<std::function<void()>> work;
  for (Node* inner : odd_order(*graph_of(child))) work.push_back(inner->run);
  return add_node(node, graph, after, count, [&](Node& n) {
    n.type = 4;
    n.run = [work] {
      for (const auto& run : work) run();
    };
  });
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  CALL();
  const auto& all = graph_of(graph)->nodes;
  // Backwards: no order is promised.
  for (std::size_t i = 0; nodes != nullptr && i < *count; ++i) {
    nodes[i] = reinterpret_cast<CUgraphNode>(all[all.size() - 1 - i].get());
  }
  *count = all.size();
  return 0;
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  CALL();
  std::size_t edges = 0;
  for (const auto& node : graph_of(graph)->nodes) {
    for (Node* parent : node->after) {
      if (from != nullptr) {
        from[edges] = reinterpret_cast<CUgraphNode>(parent);
        to[edges] = reinterpret_cast<CUgraphNode>(node.get());
      }
      ++edges;
    }
  }
  *count = edges;
  return 0;
}
CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
  CALL();
  *type = node_of(node)->type;
  return 0;
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CudaKernelNodeParams* given) {
  CALL();
  *given = node_of(node)->kernel;
  return 0;
}
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode, CUgraphNode) {
  CALL();
  return 0;
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CudaMemsetNodeParams* fill) {
  CALL();
  *fill = node_of(node)->fill;
  return 0;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  CALL();
  auto made = std::make_unique<Executable>();
  made->order = odd_order(*graph_of(graph));
  for (Node* node : made->order) made->work[node] = node->run;
  *executable = reinterpret_cast<CUgraphExec>(made.release());
  driver().executables.insert(*executable);
  return 0;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  CALL();
  if (!is_known(stream) || driver().executables.count(executable) == 0) return kInvalidHandle;
  const auto& made = *reinterpret_cast<Executable*>(executable);
  for (Node* node : made.order) made.work.at(node)();
  return 0;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  CALL();
  return destroy<Executable>(driver().executables, executable);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CudaKernelNodeParams* given) {
  CALL();
  if (!is_valid(*given) || node == nullptr) return kInvalidValue;
  Node changed;
  set_kernel(changed, *given);
  reinterpret_cast<Executable*>(executable)->work.at(node_of(node)) = changed.run;
  return 0;
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CudaMemcpy3D* copy, CUcontext) {
  CALL();
  if (!is_valid(*copy) || node == nullptr) return kInvalidValue;
  Node changed;
  set_copy(changed, *copy);
  reinterpret_cast<Executable*>(executable)->work.at(node_of(node)) = changed.run;
  return 0;
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CudaMemsetNodeParams* fill, CUcontext) {
  CALL();
  if (!is_valid(*fill) || node == nullptr) return kInvalidValue;
  Node changed;
  set_fill(changed, *fill);
  reinterpret_cast<Executable*>(executable)->work.at(node_of(node)) = changed.run;
  return 0;
}

}  // extern "C"
