// The part of the CUDA driver API that kiln calls, declared here so that no CUDA header or toolkit
// is needed to build, and found in libcuda.so.1 at run time. Only hip_over_cuda.cpp and nvidia.cpp
// use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kiln::jit::nvidia {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uintptr_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;

using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;

struct CudaKernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  CUfunction function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;  ///< a CUkernel: what the runtime API captures instead of a function
  CUcontext context;
};

struct CudaMemsetNodeParams {  // CUDA_MEMSET_NODE_PARAMS_v1
  CUdeviceptr to;
  std::size_t pitch;
  unsigned value;
  unsigned element_bytes;
  std::size_t width;
  std::size_t height;
};

struct CudaMemcpySide {
  std::size_t x, y, z, lod;
  int memory_type;
  void* host;
  CUdeviceptr device;
  void* array;
  void* reserved;
  std::size_t pitch, height;
};

struct CudaMemcpy3D {  // CUDA_MEMCPY3D_v2
  CudaMemcpySide from;
  CudaMemcpySide to;
  std::size_t width_bytes, height, depth;
};

inline constexpr int kMemoryTypeUnified = 4;

struct CudaGraphEdge {  // CUgraphEdgeData
  unsigned char from_port;
  unsigned char to_port;
  unsigned char type;
  unsigned char reserved[5];
};
/// From CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, and of CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.
inline constexpr CudaGraphEdge kProgrammaticEdge = {1, 0, 1, {}};

// Values of CUdevice_attribute.
inline constexpr int kMaxThreadsPerBlock = 1;
inline constexpr int kMaxGridDimX = 5;
inline constexpr int kWarpSize = 10;
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;

// FUNCTION(exported name, parameters). The names carry the version suffix that the CUDA headers add
// by macro: without it the library gives the oldest form of a function.
#define KILN_CUDA_FUNCTIONS(FUNCTION)                                                             \
  FUNCTION(cuInit, (unsigned))                                                                    \
  FUNCTION(cuGetErrorName, (CUresult, const char**))                                              \
  FUNCTION(cuGetErrorString, (CUresult, const char**))                                            \
  FUNCTION(cuDeviceGetCount, (int*))                                                              \
  FUNCTION(cuDeviceGet, (CUdevice*, int))                                                         \
  FUNCTION(cuDeviceGetName, (char*, int, CUdevice))                                               \
  FUNCTION(cuDeviceGetAttribute, (int*, int, CUdevice))                                           \
  FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                                      \
  FUNCTION(cuCtxGetCurrent, (CUcontext*))                                                         \
  FUNCTION(cuCtxPushCurrent_v2, (CUcontext))                                                      \
  FUNCTION(cuCtxPopCurrent_v2, (CUcontext*))                                                      \
  FUNCTION(cuModuleLoadData, (CUmodule*, const void*))                                            \
  FUNCTION(cuModuleUnload, (CUmodule))                                                            \
  FUNCTION(cuModuleGetFunction, (CUfunction*, CUmodule, const char*))                             \
  FUNCTION(cuFuncSetAttribute, (CUfunction, int, int))                                            \
  FUNCTION(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,         \
                            unsigned, unsigned, CUstream, void**, void**))                        \
  FUNCTION(cuMemAlloc_v2, (CUdeviceptr*, std::size_t))                                            \
  FUNCTION(cuMemFree_v2, (CUdeviceptr))                                                           \
  FUNCTION(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, std::size_t, CUstream))                      \
  FUNCTION(cuStreamCreate, (CUstream*, unsigned))                                                 \
  FUNCTION(cuStreamDestroy_v2, (CUstream))                                                        \
  FUNCTION(cuStreamSynchronize, (CUstream))                                                       \
  FUNCTION(cuStreamIsCapturing, (CUstream, int*))                                                 \
  FUNCTION(cuThreadExchangeStreamCaptureMode, (int*))                                             \
  FUNCTION(cuEventCreate, (CUevent*, unsigned))                                                   \
  FUNCTION(cuEventDestroy_v2, (CUevent))                                                          \
  FUNCTION(cuEventRecord, (CUevent, CUstream))                                                    \
  FUNCTION(cuEventSynchronize, (CUevent))                                                         \
  FUNCTION(cuEventElapsedTime, (float*, CUevent, CUevent))                                        \
  FUNCTION(cuCtxSynchronize, ())                                                                  \
  FUNCTION(cuMemsetD8Async, (CUdeviceptr, unsigned char, std::size_t, CUstream))                  \
  FUNCTION(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                      \
  FUNCTION(cuStreamBeginCapture_v2, (CUstream, int))                                              \
  FUNCTION(cuStreamEndCapture, (CUstream, CUgraph*))                                              \
  FUNCTION(cuGraphCreate, (CUgraph*, unsigned))                                                   \
  FUNCTION(cuGraphDestroy, (CUgraph))                                                             \
  FUNCTION(cuGraphAddKernelNode_v2,                                                               \
           (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CudaKernelNodeParams*)) \
  FUNCTION(cuGraphAddMemcpyNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,         \
                                  const CudaMemcpy3D*, CUcontext))                                \
  FUNCTION(cuGraphAddMemsetNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,         \
                                  const CudaMemsetNodeParams*, CUcontext))                        \
  FUNCTION(cuGraphAddEmptyNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t))         \
  FUNCTION(cuGraphAddChildGraphNode,                                                              \
           (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph))                     \
  FUNCTION(cuGraphGetNodes, (CUgraph, CUgraphNode*, std::size_t*))                                \
  FUNCTION(cuGraphGetEdges, (CUgraph, CUgraphNode*, CUgraphNode*, std::size_t*))                  \
  FUNCTION(cuGraphNodeGetType, (CUgraphNode, int*))                                               \
  FUNCTION(cuGraphKernelNodeGetParams_v2, (CUgraphNode, CudaKernelNodeParams*))                   \
  FUNCTION(cuGraphKernelNodeCopyAttributes, (CUgraphNode, CUgraphNode))                           \
  FUNCTION(cuGraphMemsetNodeGetParams, (CUgraphNode, CudaMemsetNodeParams*))                      \
  FUNCTION(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long))              \
  FUNCTION(cuGraphLaunch, (CUgraphExec, CUstream))                                                \
  FUNCTION(cuGraphExecDestroy, (CUgraphExec))                                                     \
  FUNCTION(cuGraphExecKernelNodeSetParams_v2,                                                     \
           (CUgraphExec, CUgraphNode, const CudaKernelNodeParams*))                               \
  FUNCTION(cuGraphExecMemcpyNodeSetParams,                                                        \
           (CUgraphExec, CUgraphNode, const CudaMemcpy3D*, CUcontext))                            \
  FUNCTION(cuGraphExecMemsetNodeSetParams,                                                        \
           (CUgraphExec, CUgraphNode, const CudaMemsetNodeParams*, CUcontext))

// The functions of later releases than the oldest that kiln uses: null where the driver lacks them.
#define KILN_CUDA_OPTIONAL_FUNCTIONS(FUNCTION) \
  FUNCTION(cuGraphAddDependencies_v2,          \
           (CUgraph, const CUgraphNode*, const CUgraphNode*, const CudaGraphEdge*, std::size_t))

struct CudaDriver {
#define KILN_CUDA_POINTER(name, parameters) CUresult(*name) parameters = nullptr;
  KILN_CUDA_FUNCTIONS(KILN_CUDA_POINTER)
  KILN_CUDA_OPTIONAL_FUNCTIONS(KILN_CUDA_POINTER)
#undef KILN_CUDA_POINTER
};

/// The loaded functions. Valid after load_cuda_driver() returned an empty string.
extern CudaDriver cuda;

/// Loads libcuda.so.1, once, and calls cuInit, after a pause again where it failed. Returns why
/// that failed, or nothing.
std::string load_cuda_driver();

/// The primary context of that device, which is the one the CUDA runtime uses, retained on first
/// use and never released. Null if `index` was not passed to retain_primary_context().
CUcontext primary_context(int index);
CUresult retain_primary_context(int index);

}  // namespace kiln::jit::nvidia
