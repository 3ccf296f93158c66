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

hipError_t remember(hipError_t error) { return last_error = error; }

ihipStream_t& stream_of(hipStream_t stream) {
  return stream == nullptr ? gpu(current_device).null_stream : valid(stream);
}

namespace {

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

/// The device of a call that captures forbid, which is to work.
int free_device() {
  refuse_while_capturing();
  require_healthy(current_device);
  return current_device;
}

ihipStream_t& healthy_stream(hipStream_t on) {
  ihipStream_t& stream = stream_of(on);
  require_healthy(stream.device);
  return stream;
}

/// An operation that does nothing, for what comes before and after it.
Submitted submit_mark(ihipStream_t& stream, std::vector<Submitted> after,
                      std::function<void()> run) {
  stream.last = Runtime::instance().queue.submit(stream.device, after, std::move(run));
  return stream.last;
}

void record_event(ihipEvent_t& event, ihipStream_t& stream) {
  event.capture = stream.capture;
  event.captured_last = stream.captured_last;
  if (stream.capture != nullptr) return;
  event.time = std::make_shared<ihipEvent_t::Time>();
  event.recorded = submit_mark(stream, order(stream),
                               [time = event.time] { *time = std::chrono::steady_clock::now(); });
}

void wait_for_event(ihipStream_t& stream, const ihipEvent_t& event) {
  if (event.capture != nullptr) {
    if (&stream == &gpu(stream.device).null_stream) throw Refusal{hipErrorStreamCaptureImplicit};
    if (stream.capture == nullptr) stream.capture = event.capture;
    if (stream.capture != event.capture) throw Refusal{hipErrorStreamCaptureMerge};
    for (hipGraphNode_t node : event.captured_last) {
      if (std::ranges::count(stream.captured_last, node) == 0) stream.captured_last.push_back(node);
    }
    return;
  }
  if (event.recorded == nullptr) return;
  if (stream.capture != nullptr) {
    stream.capture->invalidated = true;
    throw Refusal{hipErrorStreamCaptureIsolation};
  }
  std::vector<Submitted> after = order(stream);
  after.push_back(event.recorded);
  submit_mark(stream, after, [] {});
}

}  // namespace
}  // namespace kiln::amd

using namespace kiln::amd;  // NOLINT: the functions of HIP's interface are in no namespace

extern "C" {

// What tests ask.

/// What has gone wrong on the devices since the last time, one text under the other.
const char* kiln_amd_new_faults() {
  const Runtime& runtime = Runtime::instance();
  const std::lock_guard lock(Runtime::instance().mutex);
  static std::string text;
  static std::size_t told = 0;
  text.clear();
  for (; told < runtime.faults.size(); ++told) text += runtime.faults[told] + "\n";
  return text.c_str();
}
/// What the launches since the last time executed.
void kiln_amd_take_trace(kiln::amd::Trace* trace) {
  const std::lock_guard lock(Runtime::instance().mutex);
  *trace = std::exchange(Runtime::instance().trace, {});
}
/// How many kernels have run and how often; empty if none has.
const char* kiln_amd_executed() {
  const Runtime& runtime = Runtime::instance();
  const std::lock_guard lock(Runtime::instance().mutex);
  static std::string text;
  text.clear();
  if (runtime.launches == 0) return text.c_str();
  text = fmt::format("{}: {} kernels in {} launches", runtime.target->processor, runtime.kernels,
                     runtime.launches);
  return text.c_str();
}
/// Calls that waited for all of a device.
std::uint64_t kiln_amd_device_waits() {
  const std::lock_guard lock(Runtime::instance().mutex);
  return Runtime::instance().device_waits;
}
/// Handles that have not been given back.
int kiln_amd_live_handles() {
  const std::lock_guard lock(Runtime::instance().mutex);
  return static_cast<int>(Runtime::instance().handles.size());
}

const char* hipGetErrorName(hipError_t error) {
  const auto found = kErrors.find(error);
  return found == kErrors.end() ? "hipErrorUnknown" : found->second.name;
}
const char* hipGetErrorString(hipError_t error) {
  const Runtime& runtime = Runtime::instance();
  const std::lock_guard lock(Runtime::instance().mutex);
  if (error == hipErrorNoDevice && !runtime.why_no_gpus.empty()) {
    return runtime.why_no_gpus.c_str();
  }
  if (error == hipErrorIllegalAddress && !runtime.faults.empty()) {
    return runtime.faults.front().c_str();
  }
  const auto found = kErrors.find(error);
  return found == kErrors.end() ? "unknown error" : found->second.text;
}
hipError_t hipGetLastError() { return std::exchange(last_error, hipSuccess); }

// ---- Devices -----------------------------------------------------------------------------------

hipError_t hipGetDeviceCount(int* count) {
  return call([&] {
    *count = static_cast<int>(Runtime::instance().gpus.size());
    if (*count == 0) throw Refusal{hipErrorNoDevice};
  });
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  return call([&] {
    const Runtime& runtime = Runtime::instance();
    if (device < 0 || static_cast<std::size_t>(device) >= runtime.gpus.size()) {
      throw Refusal{hipErrorInvalidDevice};
    }
    const Target& target = *runtime.target;
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
  });
}
hipError_t hipGetDevice(int* device) {
  return call([&] {
    *device = current_device;
    if (Runtime::instance().gpus.empty()) throw Refusal{hipErrorNoDevice};
  });
}
hipError_t hipSetDevice(int device) {
  return call([&] {
    if (device < 0 || static_cast<std::size_t>(device) >= Runtime::instance().gpus.size()) {
      throw Refusal{hipErrorInvalidDevice};
    }
    current_device = device;
  });
}
hipError_t hipDeviceSynchronize() {
  return call([] {
    refuse_while_capturing();
    ++Runtime::instance().device_waits;
    Runtime::instance().queue.finish_device(current_device);
    require_healthy(current_device);
  });
}

// ---- Modules -----------------------------------------------------------------------------------

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  return call([&] {
    auto loaded = std::make_unique<ihipModule_t>();
    loaded->device = free_device();
    Runtime& runtime = Runtime::instance();
    try {
      loaded->code =
          CodeObject::load(read_image(image), runtime.target->name, comgr_disassembler());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "hipModuleLoadData: %s\n", error.what());
      throw Refusal{hipErrorInvalidImage};
    }
    runtime.handles.insert(loaded.get());
    *module = loaded.release();
  });
}
hipError_t hipModuleUnload(hipModule_t module) {
  return call([&] {
    refuse_while_capturing();
    release(module);
    for (hipFunction_t function : module->functions) {
      release(function);
      delete function;
    }
    delete module;
  });
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return call([&] {
    const Kernel* const kernel = valid(module).code->kernel(name);
    if (kernel == nullptr) throw Refusal{hipErrorNotFound};
    *function = new ihipModuleSymbol_t{kernel, module->device, module->code};
    module->functions.push_back(*function);
    Runtime::instance().handles.insert(*function);
  });
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned blocks_x, unsigned blocks_y,
                                 unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                                 unsigned threads_z, unsigned shared_bytes, hipStream_t on,
                                 void** arguments, void** extra) {
  return call([&] {
    hipKernelNodeParams given{};
    given.func = function;
    given.gridDim = dim3(blocks_x, blocks_y, blocks_z);
    given.blockDim = dim3(threads_x, threads_y, threads_z);
    given.sharedMemBytes = shared_bytes;
    given.kernelParams = arguments;
    given.extra = extra;
    ihipStream_t& stream = healthy_stream(on);
    submit(stream, kernel_work(given, stream.device));
  });
}

// ---- Memory ------------------------------------------------------------------------------------

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  return call([&] {
    const int device = free_device();
    *pointer = nullptr;
    if (bytes == 0) return;
    *pointer = gpu(device).memory.allocate(bytes);
    if (*pointer == nullptr) throw Refusal{hipErrorOutOfMemory};
  });
}
/// Waits for all work of the device first, as HIP promises.
hipError_t hipFree(void* pointer) {
  return call([&] {
    refuse_while_capturing();
    if (pointer == nullptr) return;
    Runtime& runtime = Runtime::instance();
    for (std::size_t index = 0; index < runtime.gpus.size(); ++index) {
      if (!runtime.gpus[index]->memory.holds(pointer, 1)) continue;
      runtime.queue.finish_device(static_cast<int>(index));
      if (runtime.gpus[index]->memory.free(pointer)) return;
    }
    throw Refusal{};
  });
}
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                          hipStream_t on) {
  return call([&] {
    ihipStream_t& stream = healthy_stream(on);
    const CopyWork copy{to, from, bytes};
    if (bytes == 0) return;
    check(copy, kind);
    submit(stream, copy);
  });
}
hipError_t hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t on) {
  return call([&] {
    ihipStream_t& stream = healthy_stream(on);
    const FillWork fill{to, static_cast<std::uint8_t>(value), bytes};
    if (bytes == 0) return;
    check(fill);
    submit(stream, fill);
  });
}

// ---- Streams -----------------------------------------------------------------------------------

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return call([&] {
    require_healthy(current_device);
    Runtime& runtime = Runtime::instance();
    *stream = new ihipStream_t;
    (*stream)->device = current_device;
    (*stream)->blocking = (flags & hipStreamNonBlocking) == 0;
    runtime.handles.insert(*stream);
    runtime.streams.insert(*stream);
  });
}
/// What is on the stream stays submitted.
hipError_t hipStreamDestroy(hipStream_t stream) {
  return call([&] {
    release(stream);
    if (stream->capture != nullptr) stream->capture->invalidated = true;
    Runtime::instance().streams.erase(stream);
    delete stream;
  });
}
hipError_t hipStreamSynchronize(hipStream_t on) {
  return call([&] {
    ihipStream_t& stream = stream_of(on);
    if (stream.capture != nullptr) {  // which has recorded the work, not submitted it
      stream.capture->invalidated = true;
      throw Refusal{hipErrorStreamCaptureUnsupported};
    }
    for (const Submitted& last : order(stream)) Runtime::instance().queue.finish(last);
    require_healthy(stream.device);
  });
}
hipError_t hipStreamWaitEvent(hipStream_t on, hipEvent_t event, unsigned) {
  return call([&] { wait_for_event(stream_of(on), valid(event)); });
}

// ---- Events ------------------------------------------------------------------------------------

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  return call([&] {
    *event = new ihipEvent_t;
    (*event)->device = current_device;
    (*event)->timed = (flags & hipEventDisableTiming) == 0;
    Runtime::instance().handles.insert(*event);
  });
}
hipError_t hipEventDestroy(hipEvent_t event) {
  return call([&] {
    release(event);
    delete event;
  });
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t on) {
  return call([&] {
    ihipStream_t& stream = stream_of(on);
    if (valid(event).device != stream.device) throw Refusal{hipErrorInvalidHandle};
    record_event(*event, stream);
  });
}
hipError_t hipEventSynchronize(hipEvent_t event) {
  return call([&] {
    refuse_while_capturing();
    if (valid(event).capture != nullptr) throw Refusal{hipErrorCapturedEvent};
    Runtime::instance().queue.finish(event->recorded);
    require_healthy(event->device);
  });
}
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t begin, hipEvent_t end) {
  return call([&] {
    for (const hipEvent_t event : {begin, end}) {
      if (!valid(event).timed || event->recorded == nullptr) throw Refusal{hipErrorInvalidHandle};
      if (!event->recorded->done) throw Refusal{hipErrorNotReady};
    }
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  });
}

}  // extern "C"
