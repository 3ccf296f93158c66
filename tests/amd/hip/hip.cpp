// libamdhip64 for tests: the functions of HIP that jit/device/hip/amd.cpp calls, with the ABI of
// the installed headers, over GPUs made of software. Errors are those of HIP; after a kernel's
// fault every call for that device fails, as on hardware. hip_graph.cpp has captures and graphs.
#include <elf.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "tests/amd/hip/runtime.hpp"
#include "tests/amd/isa/disassembler.hpp"

using kiln::amd::Call;
using kiln::amd::find_stream;
using kiln::amd::gpu;
using kiln::amd::is_forbidden;
using kiln::amd::is_valid;
using kiln::amd::Runtime;

namespace kiln::amd {
namespace {

thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;

struct ErrorText {
  const char* name;
  const char* text;
};

const std::map<hipError_t, ErrorText> kErrors = {
    {hipSuccess, {"hipSuccess", "no error"}},
    {hipErrorInvalidValue, {"hipErrorInvalidValue", "invalid argument"}},
    {hipErrorOutOfMemory, {"hipErrorOutOfMemory", "out of memory"}},
    {hipErrorInvalidConfiguration,
     {"hipErrorInvalidConfiguration", "invalid configuration argument"}},
    {hipErrorInvalidDeviceFunction, {"hipErrorInvalidDeviceFunction", "invalid device function"}},
    {hipErrorNoDevice, {"hipErrorNoDevice", "no ROCm-capable device is detected"}},
    {hipErrorInvalidDevice, {"hipErrorInvalidDevice", "invalid device ordinal"}},
    {hipErrorInvalidImage, {"hipErrorInvalidImage", "device kernel image is invalid"}},
    {hipErrorInvalidHandle, {"hipErrorInvalidHandle", "invalid resource handle"}},
    {hipErrorNotFound, {"hipErrorNotFound", "named symbol not found"}},
    {hipErrorNotReady, {"hipErrorNotReady", "device not ready"}},
    {hipErrorIllegalAddress,
     {"hipErrorIllegalAddress", "an illegal memory access was encountered"}},
    {hipErrorNotSupported, {"hipErrorNotSupported", "operation not supported"}},
    {hipErrorStreamCaptureUnsupported,
     {"hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
    {hipErrorStreamCaptureInvalidated,
     {"hipErrorStreamCaptureInvalidated",
      "operation failed due to a previous error during capture"}},
    {hipErrorStreamCaptureMerge,
     {"hipErrorStreamCaptureMerge",
      "operation would result in a merge of separate capture sequences"}},
    {hipErrorStreamCaptureUnmatched,
     {"hipErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"}},
    {hipErrorStreamCaptureUnjoined,
     {"hipErrorStreamCaptureUnjoined", "capturing stream has unjoined work"}},
    {hipErrorStreamCaptureIsolation,
     {"hipErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"}},
    {hipErrorStreamCaptureImplicit,
     {"hipErrorStreamCaptureImplicit",
      "operation would make the legacy stream depend on a capturing blocking stream"}},
    {hipErrorCapturedEvent,
     {"hipErrorCapturedEvent",
      "operation not permitted on an event last recorded in a capturing stream"}},
    {hipErrorStreamCaptureWrongThread,
     {"hipErrorStreamCaptureWrongThread",
      "attempt to terminate a thread-local capture sequence from another thread"}},
};

}  // namespace

hipError_t Call::end(hipError_t error) const {
  if (error != hipSuccess) last_error = error;
  return error;
}

ihipStream_t* find_stream(hipStream_t stream) {
  if (stream == nullptr) return &gpu(current_device).null_stream;
  return is_valid(stream) ? stream : nullptr;
}

namespace {

/// The error of a device that is lost or of a machine without one.
hipError_t health(int device) {
  Runtime& runtime = Runtime::instance();
  if (static_cast<std::size_t>(device) >= runtime.gpus.size()) return hipErrorNoDevice;
  return gpu(device).lost ? hipErrorIllegalAddress : hipSuccess;
}

/// The bytes of an image of which only the beginning is known. It is read as a driver reads it, by
/// what its header says, but a wrong header does not lead out of mapped memory.
std::vector<std::byte> read_image(const void* image) {
  const auto read = [&](std::size_t bytes) {
    std::vector<std::byte> copy(bytes);
    iovec to{copy.data(), copy.size()};
    iovec from{const_cast<void*>(image), copy.size()};
    const ssize_t count = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    copy.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return copy;
  };
  constexpr std::size_t kMostBytes = std::size_t{1} << 28;
  const std::vector<std::byte> beginning = read(sizeof(Elf64_Ehdr));
  Elf64_Ehdr header;
  if (beginning.size() < sizeof header) return beginning;
  std::memcpy(&header, beginning.data(), sizeof header);
  const std::size_t bytes = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
  return bytes > sizeof header && bytes < kMostBytes ? read(bytes) : beginning;
}

hipError_t submit_copy(const CopyWork& copy, hipMemcpyKind kind, hipStream_t on) {
  ihipStream_t* const stream = find_stream(on);
  if (stream == nullptr) return hipErrorInvalidHandle;
  if (hipError_t error = health(stream->device); error != hipSuccess) return error;
  if (copy.bytes == 0) return hipSuccess;
  if (hipError_t error = check(copy, kind); error != hipSuccess) return error;
  return submit(*stream, copy);
}

hipError_t submit_fill(const FillWork& fill, hipStream_t on) {
  ihipStream_t* const stream = find_stream(on);
  if (stream == nullptr) return hipErrorInvalidHandle;
  if (hipError_t error = health(stream->device); error != hipSuccess) return error;
  if (fill.bytes == 0) return hipSuccess;
  if (hipError_t error = check(fill); error != hipSuccess) return error;
  return submit(*stream, fill);
}

hipError_t submit_kernel(const hipKernelNodeParams& given, hipStream_t on) {
  ihipStream_t* const stream = find_stream(on);
  if (stream == nullptr) return hipErrorInvalidHandle;
  if (hipError_t error = health(stream->device); error != hipSuccess) return error;
  KernelWork work;
  if (hipError_t error = make_kernel(given, stream->device, work); error != hipSuccess) {
    return error;
  }
  return submit(*stream, std::move(work));
}

/// What waiting for work that a capture has recorded, not submitted, comes to.
hipError_t refuse_captured(ihipStream_t& stream) {
  if (stream.capture == nullptr) return hipSuccess;
  stream.capture->invalidated = true;
  return hipErrorStreamCaptureUnsupported;
}

/// An operation that does nothing, for what comes before and after it.
Submitted submit_mark(ihipStream_t& stream, std::vector<Submitted> after,
                      std::function<void()> run) {
  stream.last = Runtime::instance().queue.submit(stream.device, after, std::move(run));
  return stream.last;
}

hipError_t record_event(ihipEvent_t& event, ihipStream_t& stream) {
  event.capture = stream.capture;
  event.captured_last = stream.captured_last;
  if (stream.capture != nullptr) return hipSuccess;
  event.time = std::make_shared<ihipEvent_t::Time>();
  event.recorded = submit_mark(stream, order(stream),
                               [time = event.time] { *time = std::chrono::steady_clock::now(); });
  return hipSuccess;
}

hipError_t wait_for_event(ihipStream_t& stream, const ihipEvent_t& event) {
  if (event.capture != nullptr) {
    if (&stream == &gpu(stream.device).null_stream) return hipErrorStreamCaptureImplicit;
    if (stream.capture == nullptr) stream.capture = event.capture;
    if (stream.capture != event.capture) return hipErrorStreamCaptureMerge;
    for (hipGraphNode_t node : event.captured_last) {
      if (std::ranges::count(stream.captured_last, node) == 0) stream.captured_last.push_back(node);
    }
    return hipSuccess;
  }
  if (event.recorded == nullptr) return hipSuccess;
  if (stream.capture != nullptr) {
    stream.capture->invalidated = true;
    return hipErrorStreamCaptureIsolation;
  }
  std::vector<Submitted> after = order(stream);
  after.push_back(event.recorded);
  submit_mark(stream, after, [] {});
  return hipSuccess;
}

}  // namespace
}  // namespace kiln::amd

extern "C" {

// What tests ask.

/// What has gone wrong on the devices since the last time, one text under the other.
const char* kiln_amd_new_faults() {
  const Call call;
  static std::string text;
  static std::size_t told = 0;
  const Runtime& runtime = Runtime::instance();
  text.clear();
  for (; told < runtime.faults.size(); ++told) text += runtime.faults[told] + "\n";
  return text.c_str();
}
/// What the launches since the last time executed.
void kiln_amd_take_trace(kiln::amd::Trace* trace) {
  const Call call;
  *trace = std::exchange(Runtime::instance().trace, {});
}
/// How many kernels have run and how often; empty if none has.
const char* kiln_amd_executed() {
  const Call call;
  static std::string text;
  const Runtime& runtime = Runtime::instance();
  text.clear();
  if (runtime.launches == 0) return text.c_str();
  text = fmt::format("{}: {} kernels in {} launches", runtime.target->processor, runtime.kernels,
                     runtime.launches);
  return text.c_str();
}
/// Handles that have not been given back.
int kiln_amd_live_handles() {
  const Call call;
  return static_cast<int>(Runtime::instance().handles.size());
}

const char* hipGetErrorName(hipError_t error) {
  const auto found = kiln::amd::kErrors.find(error);
  return found == kiln::amd::kErrors.end() ? "hipErrorUnknown" : found->second.name;
}
const char* hipGetErrorString(hipError_t error) {
  const Call call;
  const Runtime& runtime = Runtime::instance();
  if (error == hipErrorNoDevice && !runtime.why_no_gpus.empty()) {
    return runtime.why_no_gpus.c_str();
  }
  if (error == hipErrorIllegalAddress && !runtime.faults.empty()) {
    return runtime.faults.front().c_str();
  }
  const auto found = kiln::amd::kErrors.find(error);
  return found == kiln::amd::kErrors.end() ? "unknown error" : found->second.text;
}
hipError_t hipGetLastError() { return std::exchange(kiln::amd::last_error, hipSuccess); }

// ---- Devices -----------------------------------------------------------------------------------

hipError_t hipGetDeviceCount(int* count) {
  const Call call;
  *count = static_cast<int>(Runtime::instance().gpus.size());
  return call.end(*count > 0 ? hipSuccess : hipErrorNoDevice);
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  const Call call;
  const Runtime& runtime = Runtime::instance();
  if (device < 0 || static_cast<std::size_t>(device) >= runtime.gpus.size()) {
    return call.end(hipErrorInvalidDevice);
  }
  const kiln::amd::Target& target = *runtime.target;
  *properties = {};
  const auto put = [](char* to, std::size_t bytes, const std::string& text) {
    std::snprintf(to, bytes, "%s", text.c_str());
  };
  put(properties->name, sizeof properties->name,
      fmt::format("emulated {} ({})", target.processor, target.product));
  put(properties->gcnArchName, sizeof properties->gcnArchName, std::string(target.name));
  properties->totalGlobalMem = gpu(device).memory.limit();
  properties->sharedMemPerBlock = static_cast<std::size_t>(target.lds_bytes);
  properties->warpSize = target.wave_size;
  properties->multiProcessorCount = target.multiprocessors;
  properties->maxThreadsPerBlock = 1024;
  for (int& size : properties->maxThreadsDim) size = 1024;
  // Of the releases the strictest: those before 6.0 have no other limit than the first.
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65536;
  return call.end(hipSuccess);
}
hipError_t hipGetDevice(int* device) {
  const Call call;
  *device = kiln::amd::current_device;
  return call.end(Runtime::instance().gpus.empty() ? hipErrorNoDevice : hipSuccess);
}
hipError_t hipSetDevice(int device) {
  const Call call;
  if (device < 0 || static_cast<std::size_t>(device) >= Runtime::instance().gpus.size()) {
    return call.end(hipErrorInvalidDevice);
  }
  kiln::amd::current_device = device;
  return call.end(hipSuccess);
}
hipError_t hipDeviceSynchronize() {
  const Call call;
  if (is_forbidden()) return call.end(hipErrorStreamCaptureUnsupported);
  const int device = kiln::amd::current_device;
  Runtime::instance().queue.finish_device(device);
  return call.end(kiln::amd::health(device));
}

// ---- Modules -----------------------------------------------------------------------------------

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  const Call call;
  if (is_forbidden()) return call.end(hipErrorStreamCaptureUnsupported);
  Runtime& runtime = Runtime::instance();
  const int device = kiln::amd::current_device;
  if (hipError_t error = kiln::amd::health(device); error != hipSuccess) return call.end(error);
  try {
    auto loaded = std::make_unique<ihipModule_t>();
    loaded->device = device;
    loaded->code = kiln::amd::CodeObject::load(kiln::amd::read_image(image), runtime.target->name,
                                               kiln::amd::comgr_disassembler());
    runtime.handles.insert(loaded.get());
    *module = loaded.release();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hipModuleLoadData: %s\n", error.what());
    return call.end(hipErrorInvalidImage);
  }
  return call.end(hipSuccess);
}
hipError_t hipModuleUnload(hipModule_t module) {
  const Call call;
  if (is_forbidden()) return call.end(hipErrorStreamCaptureUnsupported);
  Runtime& runtime = Runtime::instance();
  if (runtime.handles.erase(module) == 0) return call.end(hipErrorInvalidHandle);
  for (hipFunction_t function : module->functions) {
    runtime.handles.erase(function);
    delete function;
  }
  delete module;
  return call.end(hipSuccess);
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  const Call call;
  if (!is_valid(module)) return call.end(hipErrorInvalidHandle);
  const kiln::amd::Kernel* const kernel = module->code->kernel(name);
  if (kernel == nullptr) return call.end(hipErrorNotFound);
  *function = new ihipModuleSymbol_t{kernel, module->device, module->code};
  module->functions.push_back(*function);
  Runtime::instance().handles.insert(*function);
  return call.end(hipSuccess);
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned blocks_x, unsigned blocks_y,
                                 unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                                 unsigned threads_z, unsigned shared_bytes, hipStream_t stream,
                                 void** arguments, void** extra) {
  const Call call;
  hipKernelNodeParams given{};
  given.func = function;
  given.gridDim = dim3(blocks_x, blocks_y, blocks_z);
  given.blockDim = dim3(threads_x, threads_y, threads_z);
  given.sharedMemBytes = shared_bytes;
  given.kernelParams = arguments;
  given.extra = extra;
  return call.end(kiln::amd::submit_kernel(given, stream));
}

// ---- Memory ------------------------------------------------------------------------------------

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  const Call call;
  if (is_forbidden()) return call.end(hipErrorStreamCaptureUnsupported);
  const int device = kiln::amd::current_device;
  if (hipError_t error = kiln::amd::health(device); error != hipSuccess) return call.end(error);
  *pointer = nullptr;
  if (bytes == 0) return call.end(hipSuccess);
  *pointer = gpu(device).memory.allocate(bytes);
  return call.end(*pointer != nullptr ? hipSuccess : hipErrorOutOfMemory);
}
/// Waits for all work of the device first, as HIP promises.
hipError_t hipFree(void* pointer) {
  const Call call;
  if (is_forbidden()) return call.end(hipErrorStreamCaptureUnsupported);
  if (pointer == nullptr) return call.end(hipSuccess);
  Runtime& runtime = Runtime::instance();
  for (std::size_t index = 0; index < runtime.gpus.size(); ++index) {
    if (!runtime.gpus[index]->memory.holds(pointer, 1)) continue;
    runtime.queue.finish_device(static_cast<int>(index));
    if (runtime.gpus[index]->memory.free(pointer)) return call.end(hipSuccess);
  }
  return call.end(hipErrorInvalidValue);
}
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream) {
  const Call call;
  return call.end(kiln::amd::submit_copy({to, from, bytes}, kind, stream));
}
hipError_t hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t stream) {
  const Call call;
  return call.end(kiln::amd::submit_fill({to, static_cast<std::uint8_t>(value), bytes}, stream));
}

// ---- Streams -----------------------------------------------------------------------------------

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  const Call call;
  Runtime& runtime = Runtime::instance();
  const int device = kiln::amd::current_device;
  if (hipError_t error = kiln::amd::health(device); error != hipSuccess) return call.end(error);
  *stream = new ihipStream_t;
  (*stream)->device = device;
  (*stream)->blocking = (flags & hipStreamNonBlocking) == 0;
  runtime.handles.insert(*stream);
  runtime.streams.insert(*stream);
  return call.end(hipSuccess);
}
/// What is on the stream stays submitted.
hipError_t hipStreamDestroy(hipStream_t stream) {
  const Call call;
  Runtime& runtime = Runtime::instance();
  if (stream == nullptr || runtime.handles.erase(stream) == 0) {
    return call.end(hipErrorInvalidHandle);
  }
  if (stream->capture != nullptr) stream->capture->invalidated = true;
  runtime.streams.erase(stream);
  delete stream;
  return call.end(hipSuccess);
}
hipError_t hipStreamSynchronize(hipStream_t on) {
  const Call call;
  ihipStream_t* const stream = find_stream(on);
  if (stream == nullptr) return call.end(hipErrorInvalidHandle);
  if (hipError_t error = kiln::amd::refuse_captured(*stream); error != hipSuccess) {
    return call.end(error);
  }
  for (const kiln::amd::Submitted& last : kiln::amd::order(*stream)) {
    Runtime::instance().queue.finish(last);
  }
  return call.end(kiln::amd::health(stream->device));
}
hipError_t hipStreamWaitEvent(hipStream_t on, hipEvent_t event, unsigned) {
  const Call call;
  ihipStream_t* const stream = find_stream(on);
  if (stream == nullptr || !is_valid(event)) return call.end(hipErrorInvalidHandle);
  return call.end(kiln::amd::wait_for_event(*stream, *event));
}

// ---- Events ------------------------------------------------------------------------------------

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  const Call call;
  *event = new ihipEvent_t;
  (*event)->device = kiln::amd::current_device;
  (*event)->timed = (flags & hipEventDisableTiming) == 0;
  Runtime::instance().handles.insert(*event);
  return call.end(hipSuccess);
}
hipError_t hipEventDestroy(hipEvent_t event) {
  const Call call;
  if (Runtime::instance().handles.erase(event) == 0) return call.end(hipErrorInvalidHandle);
  delete event;
  return call.end(hipSuccess);
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t on) {
  const Call call;
  ihipStream_t* const stream = find_stream(on);
  if (stream == nullptr || !is_valid(event)) return call.end(hipErrorInvalidHandle);
  if (event->device != stream->device) return call.end(hipErrorInvalidHandle);
  return call.end(kiln::amd::record_event(*event, *stream));
}
hipError_t hipEventSynchronize(hipEvent_t event) {
  const Call call;
  if (is_forbidden()) return call.end(hipErrorStreamCaptureUnsupported);
  if (!is_valid(event)) return call.end(hipErrorInvalidHandle);
  if (event->capture != nullptr) return call.end(hipErrorCapturedEvent);
  Runtime::instance().queue.finish(event->recorded);
  return call.end(kiln::amd::health(event->device));
}
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t begin, hipEvent_t end) {
  const Call call;
  for (const hipEvent_t event : {begin, end}) {
    if (!is_valid(event) || !event->timed || event->recorded == nullptr) {
      return call.end(hipErrorInvalidHandle);
    }
    if (!event->recorded->done) return call.end(hipErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return call.end(hipSuccess);
}

}  // extern "C"
