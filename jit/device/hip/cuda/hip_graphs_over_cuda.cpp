// HIP's graph functions over the CUDA driver's. See hip/hip_runtime_api.h beside this file.
#include <hip/hip_runtime_api.h>

#include "jit/device/hip/cuda/cuda_driver.hpp"

namespace kiln::jit::nvidia {
namespace {

hipError_t result(CUresult error) { return static_cast<hipError_t>(error); }
CUgraph cu(hipGraph_t graph) { return reinterpret_cast<CUgraph>(graph); }
CUgraphNode cu(hipGraphNode_t node) { return reinterpret_cast<CUgraphNode>(node); }
CUgraphNode* cu(hipGraphNode_t* nodes) { return reinterpret_cast<CUgraphNode*>(nodes); }
const CUgraphNode* cu(const hipGraphNode_t* nodes) {
  return reinterpret_cast<const CUgraphNode*>(nodes);
}
CUgraphExec cu(hipGraphExec_t executable) { return reinterpret_cast<CUgraphExec>(executable); }

/// Copies and fills are done in a context, kernels in that of their module.
CUcontext current_context() {
  CUcontext context = nullptr;
  (void)cuda.cuCtxGetCurrent(&context);
  return context;
}

CudaKernelNodeParams to_cuda(const hipKernelNodeParams& p) {
  return {.function = static_cast<CUfunction>(p.func),
          .grid = {p.gridDim.x, p.gridDim.y, p.gridDim.z},
          .block = {p.blockDim.x, p.blockDim.y, p.blockDim.z},
          .shared_bytes = p.sharedMemBytes,
          .parameters = p.kernelParams,
          .extra = p.extra,
          .kernel = p.kernel,
          .context = static_cast<CUcontext>(p.context)};
}

CudaMemsetNodeParams to_cuda(const hipMemsetParams& p) {
  return {.to = reinterpret_cast<CUdeviceptr>(p.dst),
          .pitch = p.pitch,
          .value = p.value,
          .element_bytes = p.elementSize,
          .width = p.width,
          .height = p.height};
}

CudaMemcpy3D linear_copy(void* to, const void* from, std::size_t bytes) {
  CudaMemcpy3D copy{};
  copy.from.memory_type = kMemoryTypeUnified;
  copy.from.device = reinterpret_cast<CUdeviceptr>(from);
  copy.to.memory_type = kMemoryTypeUnified;
  copy.to.device = reinterpret_cast<CUdeviceptr>(to);
  copy.width_bytes = bytes;
  copy.height = 1;
  copy.depth = 1;
  return copy;
}

}  // namespace

hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags) {
  return result(cuda.cuGraphCreate(reinterpret_cast<CUgraph*>(graph), flags));
}

hipError_t hipGraphDestroy(hipGraph_t graph) { return result(cuda.cuGraphDestroy(cu(graph))); }

hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph,
                                 const hipGraphNode_t* after, std::size_t count,
                                 const hipKernelNodeParams* parameters) {
  const CudaKernelNodeParams kernel = to_cuda(*parameters);
  return result(cuda.cuGraphAddKernelNode_v2(cu(node), cu(graph), cu(after), count, &kernel));
}

hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph,
                                   const hipGraphNode_t* after, std::size_t count, void* to,
                                   const void* from, std::size_t bytes, hipMemcpyKind) {
  const CudaMemcpy3D copy = linear_copy(to, from, bytes);
  return result(
      cuda.cuGraphAddMemcpyNode(cu(node), cu(graph), cu(after), count, &copy, current_context()));
}

hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph,
                                 const hipGraphNode_t* after, std::size_t count,
                                 const hipMemsetParams* parameters) {
  const CudaMemsetNodeParams fill = to_cuda(*parameters);
  return result(
      cuda.cuGraphAddMemsetNode(cu(node), cu(graph), cu(after), count, &fill, current_context()));
}

hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
                                std::size_t count) {
  return result(cuda.cuGraphAddEmptyNode(cu(node), cu(graph), cu(after), count));
}

hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph,
                                     const hipGraphNode_t* after, std::size_t count,
                                     hipGraph_t child) {
  return result(cuda.cuGraphAddChildGraphNode(cu(node), cu(graph), cu(after), count, cu(child)));
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, std::size_t* count) {
  return result(cuda.cuGraphGetNodes(cu(graph), cu(nodes), count));
}

hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to,
                            std::size_t* count) {
  return result(cuda.cuGraphGetEdges(cu(graph), cu(from), cu(to), count));
}

hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  int value = 0;
  const CUresult error = cuda.cuGraphNodeGetType(cu(node), &value);
  *type = static_cast<hipGraphNodeType>(value);
  return result(error);
}

hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* parameters) {
  CudaKernelNodeParams kernel{};
  const CUresult error = cuda.cuGraphKernelNodeGetParams_v2(cu(node), &kernel);
  *parameters = {.blockDim = {kernel.block[0], kernel.block[1], kernel.block[2]},
                 .extra = kernel.extra,
                 .func = kernel.function,
                 .gridDim = {kernel.grid[0], kernel.grid[1], kernel.grid[2]},
                 .kernelParams = kernel.parameters,
                 .sharedMemBytes = kernel.shared_bytes,
                 .kernel = kernel.kernel,
                 .context = kernel.context};
  return result(error);
}

hipError_t hipGraphKernelNodeCopyAttributes(hipGraphNode_t to, hipGraphNode_t from) {
  return result(cuda.cuGraphKernelNodeCopyAttributes(cu(to), cu(from)));
}

hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams* parameters) {
  CudaMemsetNodeParams fill{};
  const CUresult error = cuda.cuGraphMemsetNodeGetParams(cu(node), &fill);
  *parameters = {.dst = reinterpret_cast<void*>(fill.to),
                 .elementSize = fill.element_bytes,
                 .height = fill.height,
                 .pitch = fill.pitch,
                 .value = fill.value,
                 .width = fill.width};
  return result(error);
}

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long flags) {
  return result(cuda.cuGraphInstantiateWithFlags(reinterpret_cast<CUgraphExec*>(executable),
                                                 cu(graph), flags));
}

hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  return result(cuda.cuGraphLaunch(cu(executable), reinterpret_cast<CUstream>(stream)));
}

hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  return result(cuda.cuGraphExecDestroy(cu(executable)));
}

hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipKernelNodeParams* parameters) {
  const CudaKernelNodeParams kernel = to_cuda(*parameters);
  return result(cuda.cuGraphExecKernelNodeSetParams_v2(cu(executable), cu(node), &kernel));
}

hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t executable, hipGraphNode_t node,
                                             void* to, const void* from, std::size_t bytes,
                                             hipMemcpyKind) {
  const CudaMemcpy3D copy = linear_copy(to, from, bytes);
  return result(
      cuda.cuGraphExecMemcpyNodeSetParams(cu(executable), cu(node), &copy, current_context()));
}

hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipMemsetParams* parameters) {
  const CudaMemsetNodeParams fill = to_cuda(*parameters);
  return result(
      cuda.cuGraphExecMemsetNodeSetParams(cu(executable), cu(node), &fill, current_context()));
}

}  // namespace kiln::jit::nvidia
