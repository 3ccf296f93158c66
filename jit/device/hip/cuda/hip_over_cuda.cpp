// HIP's functions over the CUDA driver's: one call each. See hip/hip_runtime_api.h beside this
// file.
#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "jit/device/hip/cuda/cuda_driver.hpp"

namespace kiln::jit::nvidia {
namespace {

hipError_t result(CUresult error) { return static_cast<hipError_t>(error); }
CUstream cu(hipStream_t stream) { return reinterpret_cast<CUstream>(stream); }
CUevent cu(hipEvent_t event) { return reinterpret_cast<CUevent>(event); }
CUmodule cu(hipModule_t module) { return reinterpret_cast<CUmodule>(module); }
CUdeviceptr cu(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

const char* hipGetErrorName(hipError_t error) {
  const char* text = nullptr;
  return cuda.cuGetErrorName(error, &text) == 0 && text != nullptr ? text : "unknown error";
}

const char* hipGetErrorString(hipError_t error) {
  const char* text = nullptr;
  return cuda.cuGetErrorString(error, &text) == 0 && text != nullptr ? text : "no description";
}

// The driver API keeps no last error.
hipError_t hipGetLastError() { return hipSuccess; }

hipError_t hipGetDeviceCount(int* count) { return result(cuda.cuDeviceGetCount(count)); }

hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int index) {
  CUdevice device = 0;
  if (CUresult error = cuda.cuDeviceGet(&device, index); error != 0) return result(error);
  *properties = {};
  int major = 0;
  int minor = 0;
  const struct {
    int attribute;
    int* value;
  } wanted[] = {{kMultiprocessorCount, &properties->multiProcessorCount},
                {kWarpSize, &properties->warpSize},
                {kMaxThreadsPerBlock, &properties->maxThreadsPerBlock},
                {kMaxGridDimX, &properties->maxGridSize[0]},
                {kComputeCapabilityMajor, &major},
                {kComputeCapabilityMinor, &minor}};
  for (const auto& [attribute, value] : wanted) {
    if (CUresult error = cuda.cuDeviceGetAttribute(value, attribute, device); error != 0) {
      return result(error);
    }
  }
  std::snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "sm_%d%d", major, minor);
  return result(cuda.cuDeviceGetName(properties->name, sizeof properties->name, device));
}

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  return result(cuda.cuModuleLoadData(reinterpret_cast<CUmodule*>(module), image));
}

hipError_t hipModuleUnload(hipModule_t module) { return result(cuda.cuModuleUnload(cu(module))); }

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return result(
      cuda.cuModuleGetFunction(reinterpret_cast<CUfunction*>(function), cu(module), name));
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, hipStream_t stream,
                                 void** parameters, void** extra) {
  return result(cuda.cuLaunchKernel(reinterpret_cast<CUfunction>(function), grid_x, grid_y, grid_z,
                                    block_x, block_y, block_z, shared_bytes, cu(stream), parameters,
                                    extra));
}

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  CUdeviceptr address = 0;
  CUresult error = cuda.cuMemAlloc_v2(&address, bytes);
  *pointer = reinterpret_cast<void*>(address);
  return result(error);
}

hipError_t hipFree(void* pointer) { return result(cuda.cuMemFree_v2(cu(pointer))); }

// Unified addressing: the driver knows from the addresses which way it goes.
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind,
                          hipStream_t stream) {
  return result(cuda.cuMemcpyAsync(cu(to), cu(from), bytes, cu(stream)));
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return result(cuda.cuStreamCreate(reinterpret_cast<CUstream*>(stream), flags));
}

hipError_t hipStreamDestroy(hipStream_t stream) {
  return result(cuda.cuStreamDestroy_v2(cu(stream)));
}

hipError_t hipStreamSynchronize(hipStream_t stream) {
  return result(cuda.cuStreamSynchronize(cu(stream)));
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  int value = 0;
  CUresult error = cuda.cuStreamIsCapturing(cu(stream), &value);
  *status = static_cast<hipStreamCaptureStatus>(value);
  return result(error);
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  int value = *mode;
  CUresult error = cuda.cuThreadExchangeStreamCaptureMode(&value);
  *mode = static_cast<hipStreamCaptureMode>(value);
  return result(error);
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  return result(cuda.cuEventCreate(reinterpret_cast<CUevent*>(event), flags));
}

hipError_t hipEventDestroy(hipEvent_t event) { return result(cuda.cuEventDestroy_v2(cu(event))); }

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return result(cuda.cuEventRecord(cu(event), cu(stream)));
}

hipError_t hipEventSynchronize(hipEvent_t event) {
  return result(cuda.cuEventSynchronize(cu(event)));
}

hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t begin, hipEvent_t end) {
  return result(cuda.cuEventElapsedTime(milliseconds, cu(begin), cu(end)));
}

hipError_t hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t stream) {
  return result(cuda.cuMemsetD8Async(cu(to), static_cast<unsigned char>(value), bytes, cu(stream)));
}

hipError_t hipDeviceSynchronize() { return result(cuda.cuCtxSynchronize()); }

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  return result(cuda.cuStreamWaitEvent(cu(stream), cu(event), flags));
}

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return result(cuda.cuStreamBeginCapture_v2(cu(stream), mode));
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return result(cuda.cuStreamEndCapture(cu(stream), reinterpret_cast<CUgraph*>(graph)));
}

}  // namespace kiln::jit::nvidia
