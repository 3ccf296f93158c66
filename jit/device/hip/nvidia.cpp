// The GPU backend on NVIDIA: hip_backend.inl over jit/hip/cuda/. What differs from AMD is here: how
// the library is found, how a device is made current, and what an image looks like.
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "jit/device/hip/cuda/cuda_driver.hpp"
#include "kiln/view.hpp"

namespace kiln::jit::nvidia {
namespace {

constexpr DeviceType kDeviceType = DeviceType::cuda;
constexpr const char* kLibraryName = "libcuda.so.1";
constexpr std::uint64_t kMaxGridThreads = std::numeric_limits<std::uint64_t>::max();

// The driver lets a launch of an executable wait for the one before, on any stream, and copies what
// it is given; an update is for the next launch.
constexpr bool kGraphLaunchesAreOrdered = true;
constexpr bool kGraphUpdatesAreOrdered = true;

bool usable() { return load_cuda_driver().empty(); }
std::string why_unusable() { return load_cuda_driver(); }

/// Makes the device's primary context current, and the caller's again at the end. Kernels of the
/// CUDA runtime's users live in that context too.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    CUcontext wanted = primary_context(index);
    if (wanted == nullptr) {
      error_ = retain_primary_context(index);
      if (error_ != 0) return;
      wanted = primary_context(index);
    }
    CUcontext current = nullptr;
    error_ = cuda.cuCtxGetCurrent(&current);
    if (error_ != 0 || current == wanted) return;
    error_ = cuda.cuCtxPushCurrent_v2(wanted);
    pushed_ = error_ == 0;
  }
  ~CurrentDevice() {
    CUcontext ours = nullptr;
    if (pushed_) (void)cuda.cuCtxPopCurrent_v2(&ours);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  hipError_t error() const { return static_cast<hipError_t>(error_); }

 private:
  CUresult error_ = 0;
  bool pushed_ = false;
};

/// What the driver takes is an ELF image (a cubin), a fat binary or PTX, which is text.
const char* expected_format(std::span<const std::byte> code) {
  return code.size() < 8 ? "a cubin or PTX" : nullptr;
}

/// Lets launches ask for more dynamic shared memory than every device has for a block.
hipError_t allow_shared(hipFunction_t function, std::uint32_t bytes) {
  constexpr int kMaxDynamicSharedBytes = 8;  // of CUfunction_attribute
  return static_cast<hipError_t>(cuda.cuFuncSetAttribute(
      reinterpret_cast<CUfunction>(function), kMaxDynamicSharedBytes, static_cast<int>(bytes)));
}

/// Programmatic dependencies exist only between kernels.
bool can_use_pdl(std::span<const hipGraphNode_t> after) {
  return cuda.cuGraphAddDependencies_v2 != nullptr &&
         std::ranges::all_of(after, [](hipGraphNode_t node) {
           hipGraphNodeType type{};
           return hipGraphNodeGetType(node, &type) == hipSuccess && type == hipGraphNodeTypeKernel;
         });
}

/// With programmatic dependent launch a kernel may begin when every block of those before it has.
hipError_t add_kernel_node(hipGraphNode_t* node, hipGraph_t graph,
                           std::span<const hipGraphNode_t> after, const hipKernelNodeParams& kernel,
                           bool pdl) {
  if (after.empty() || !pdl || !can_use_pdl(after)) {
    return hipGraphAddKernelNode(node, graph, after.data(), after.size(), &kernel);
  }
  const hipError_t error = hipGraphAddKernelNode(node, graph, nullptr, 0, &kernel);
  if (error != hipSuccess) return error;
  const std::vector<hipGraphNode_t> nodes(after.size(), *node);
  const std::vector<CudaGraphEdge> edges(after.size(), kProgrammaticEdge);
  return static_cast<hipError_t>(cuda.cuGraphAddDependencies_v2(
      reinterpret_cast<CUgraph>(graph), reinterpret_cast<const CUgraphNode*>(after.data()),
      reinterpret_cast<const CUgraphNode*>(nodes.data()), edges.data(), edges.size()));
}

/// Clusters, cooperation and the like, which a kernel's parameters do not tell.
bool can_copy_kernels() { return true; }
hipError_t copy_kernel_attributes(hipGraphNode_t from, hipGraphNode_t to) {
  return hipGraphKernelNodeCopyAttributes(to, from);
}

}  // namespace
}  // namespace kiln::jit::nvidia

#define KILN_HIP_PLATFORM nvidia
#include "jit/device/hip/hip_graph.inl"
