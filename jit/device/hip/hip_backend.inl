// The GPU backend, written once in HIP. amd.cpp compiles it against the platform's HIP headers and
// nvidia.cpp against ours over the CUDA driver; each defines KILN_HIP_PLATFORM (the namespace), the
// constants and CurrentDevice before it includes this file. What differs between the two platforms
// stays in those two files.
#pragma once

#include <fmt/format.h>
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/elf.hpp"
#include "jit/device/graph.hpp"
#include "jit/device/hip/platform.hpp"
#include "jit/device/launch_geometry.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::KILN_HIP_PLATFORM {
namespace {

/// What a failed call is reported as: the call, the driver's reason and the device.
std::string failure(hipError_t error, const char* call, const std::string& where) {
  // The runtime remembers a failed call and would report it to the caller's own next check.
  (void)hipGetLastError();
  return fmt::format("{} failed on {}: {} ({}): {}", call, where, hipGetErrorName(error),
                     static_cast<int>(error), hipGetErrorString(error));
}

/// Throws Error(device).
[[noreturn]] void fail(hipError_t error, const char* call, const std::string& where) {
  throw Error(Code::device, failure(error, call, where), static_cast<int>(error));
}

/// Whether the driver speaks of the image and not of the device, its memory or its own state.
/// hipErrorSharedObjectInitFailed is not among them: HIP gives it for want of memory too.
bool is_about_the_image(hipError_t error) {
  switch (error) {
    case hipErrorInvalidImage:
    case hipErrorNoBinaryForGpu:
    case hipErrorInvalidKernelFile:
    case hipErrorInvalidSource:
    case hipErrorSharedObjectSymbolNotFound:
    case hipErrorNotFound: return true;
    default: return false;
  }
}

/// Whether an ELF image has a symbol for the kernel; PTX is text, of which nothing is known here.
/// Drivers have more than one reason for an image that is none: CUDA's is "unknown error" for some.
bool has_kernel(std::span<const std::byte> code, const std::string& entry) {
  const std::string_view bytes(reinterpret_cast<const char*>(code.data()), code.size());
  if (!base::has_elf_magic(bytes)) return true;
  const std::optional<base::Elf> elf = base::Elf::parse(bytes);
  if (!elf) return false;
  const std::vector<base::ElfSymbol> symbols = elf->symbols();
  return std::ranges::find(symbols, entry, &base::ElfSymbol::name) != symbols.end();
}

/// Throws InvalidImage where the driver's reason or the image itself shows that it can never be
/// loaded, else Error(device).
[[noreturn]] void fail_to_load(hipError_t error, const char* call, const std::string& where,
                               std::span<const std::byte> code, const std::string& entry) {
  if (is_about_the_image(error) || !has_kernel(code, entry)) {
    throw InvalidImage(failure(error, call, where), static_cast<int>(error));
  }
  fail(error, call, where);
}

hipStream_t native(const Stream& stream) { return static_cast<hipStream_t>(stream.native); }

/// Lets this thread make calls that a capture on another stream would forbid, such as loading a
/// module.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)hipThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)hipThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
};

class HipKernel final : public Kernel {
 public:
  /// `code` is kept: some HIP releases read the image after hipModuleLoadData has returned.
  HipKernel(const Backend& owner, std::vector<char> code) : Kernel(owner), code_(std::move(code)) {}
  ~HipKernel() override;

  hipFunction_t function() const { return function_; }

  /// Before a launch that asks for so much: what a driver gives unasked has to hold what the kernel
  /// itself declares too. The device must be current.
  void allow(std::uint32_t shared_bytes) const {
    if (shared_bytes <= allowed_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (shared_bytes <= allowed_.load(std::memory_order_relaxed)) return;
    if (auto error = allow_shared(function_, shared_bytes); error != hipSuccess) {
      fail(error, "hipFuncSetAttribute",
           fmt::format("{} ({}) for {} bytes of dynamic shared memory", to_string(owner().device()),
                       owner().name(), shared_bytes));
    }
    allowed_.store(shared_bytes, std::memory_order_release);
  }

 private:
  friend class HipBackend;
  mutable std::mutex mutex_;
  mutable std::atomic<std::uint32_t> allowed_ = 0;
  std::vector<char> code_;
  hipModule_t module_ = nullptr;
  hipFunction_t function_ = nullptr;
};

class HipBackend final : public Backend {
 public:
  explicit HipBackend(int index);

  Device device() const override { return {kDeviceType, index_}; }
  std::string name() const override { return name_; }
  std::string target() const override { return target_; }
  int wave_size() const override { return wave_size_; }
  int compute_units() const override { return compute_units_; }

  std::shared_ptr<Kernel> load(std::span<const std::byte> code, const std::string& entry) override;
  void launch(const Kernel& kernel, const LaunchShape& shape, void* const* arguments,
              const Stream& stream) override;
  bool wait_until_idle() override;
  bool is_capturing(const Stream& stream) override;
  std::unique_ptr<PreparedGraph> prepare(std::vector<GraphNode> nodes) override;
  void copy_on_device(void* to, const void* from, std::size_t bytes, const Stream& stream) override;
  void fill(void* to, std::uint8_t value, std::size_t bytes, const Stream& stream) override;

  void* allocate(std::size_t bytes) override;
  void free(void* pointer) noexcept override;
  void copy_in(void* device, const void* host, std::size_t bytes, const Stream& stream) override;
  void copy_out(void* host, const void* device, std::size_t bytes, const Stream& stream) override;
  void synchronize(const Stream& stream) override;
  Stream create_stream() override;
  void destroy_stream(const Stream& stream) noexcept override;
  double time_us(const Stream& stream, const std::function<void()>& body) override;

  const GridLimits& limits() const { return limits_; }
  /// The device, for messages.
  std::string where() const { return fmt::format("{} ({})", to_string(device()), name_); }
  void check(hipError_t error, const char* call) const {
    if (error != hipSuccess) [[unlikely]]
      fail(error, call, where());
  }

 private:
  /// Throws Error(invalid_argument) unless the stream is one of this device.
  void check(const Stream& stream, const char* function) const {
    if (stream.device != device()) [[unlikely]] {
      throw Error(Code::invalid_argument, fmt::format("{} on {}: the stream is one of {}", function,
                                                      where(), to_string(stream.device)));
    }
  }
  void copy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
            const Stream& stream);

  int index_;
  std::string name_;
  std::string target_;
  int wave_size_ = 0;
  int compute_units_ = 0;
  GridLimits limits_;
};

HipBackend::HipBackend(int index) : index_(index), name_("no name yet") {
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, index), "hipGetDeviceProperties");
  target_ = properties.gcnArchName;
  // Some releases have no marketing name for a device.
  name_ = properties.name[0] != '\0' ? properties.name : properties.gcnArchName;
  wave_size_ = properties.warpSize;
  compute_units_ = properties.multiProcessorCount;
  limits_.max_blocks = static_cast<std::uint64_t>(properties.maxGridSize[0]);
  limits_.max_threads = kMaxGridThreads;
  limits_.max_block = static_cast<std::uint32_t>(properties.maxThreadsPerBlock);
}

std::shared_ptr<Kernel> HipBackend::load(std::span<const std::byte> code,
                                         const std::string& entry) {
  // Drivers have crashed on what is not an image at all, so that much is checked here.
  if (const char* expected = expected_format(code)) {
    throw InvalidImage(fmt::format("load of {} on {}: the code object of {} bytes is not {}", entry,
                                   where(), code.size(), expected));
  }
  const auto* text = reinterpret_cast<const char*>(code.data());
  std::vector<char> image(text, text + code.size());
  image.push_back('\0');  // PTX is text and must end
  auto kernel = std::make_shared<HipKernel>(*this, std::move(image));

  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  RelaxedCapture relaxed;
  if (auto error = hipModuleLoadData(&kernel->module_, kernel->code_.data()); error != hipSuccess) {
    kernel->module_ = nullptr;
    fail_to_load(error, "hipModuleLoadData",
                 fmt::format("{} for {} ({} bytes)", where(), entry, code.size()), code, entry);
  }
  if (auto error = hipModuleGetFunction(&kernel->function_, kernel->module_, entry.c_str());
      error != hipSuccess) {
    fail_to_load(error, "hipModuleGetFunction", fmt::format("{} for {}", where(), entry), code,
                 entry);
  }
  return kernel;
}

HipKernel::~HipKernel() {
  if (module_ == nullptr) return;
  // At the end of the process the driver may be gone already; there is nothing left to free then.
  CurrentDevice current(owner().device().index);
  RelaxedCapture relaxed;
  if (current.error() == hipSuccess && hipModuleUnload(module_) != hipSuccess) {
    (void)hipGetLastError();
  }
}

void HipBackend::launch(const Kernel& kernel, const LaunchShape& shape, void* const* arguments,
                        const Stream& stream) {
  if (shape.work_items == 0) return;
  check(stream, "launch");
  if (&kernel.owner() != this) [[unlikely]] {
    throw Error(Code::invalid_argument, fmt::format("launch on {}: the kernel is loaded on {}",
                                                    where(), to_string(kernel.owner().device())));
  }
  const std::uint32_t blocks = grid_blocks(shape, limits_);
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  const auto& loaded = static_cast<const HipKernel&>(kernel);
  loaded.allow(shape.shared_bytes);
  const hipError_t error = hipModuleLaunchKernel(
      loaded.function(), blocks, shape.grid_y, shape.grid_z, shape.block, shape.block_y,
      shape.block_z, shape.shared_bytes, native(stream), const_cast<void**>(arguments), nullptr);
  if (error != hipSuccess) [[unlikely]] {
    fail(error, "hipModuleLaunchKernel",
         fmt::format("{} for {} x {} x {} blocks of {} x {} x {} threads with {} bytes of dynamic "
                     "shared memory",
                     where(), blocks, shape.grid_y, shape.grid_z, shape.block, shape.block_y,
                     shape.block_z, shape.shared_bytes));
  }
}

bool HipBackend::wait_until_idle() {
  CurrentDevice current(index_);
  if (current.error() != hipSuccess) return false;
  RelaxedCapture relaxed;
  // A wait can end captures that are under way. Where one is of a stream that waits for the legacy
  // one, asking about that fails and harms nothing.
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  if (hipStreamIsCapturing(nullptr, &status) == hipSuccess &&
      hipDeviceSynchronize() == hipSuccess) {
    return true;
  }
  (void)hipGetLastError();
  return false;
}

bool HipBackend::is_capturing(const Stream& stream) {
  check(stream, "is_capturing");
  // The legacy default stream cannot be captured; asking about it while another one is fails.
  if (stream.native == nullptr) return false;
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  check(hipStreamIsCapturing(native(stream), &status), "hipStreamIsCapturing");
  return status != hipStreamCaptureStatusNone;
}

void* HipBackend::allocate(std::size_t bytes) {
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  void* pointer = nullptr;
  if (auto error = hipMalloc(&pointer, std::max<std::size_t>(bytes, 1)); error != hipSuccess) {
    fail(error, "hipMalloc", fmt::format("{} for {} bytes", where(), bytes));
  }
  return pointer;
}

void HipBackend::free(void* pointer) noexcept {
  if (pointer == nullptr) return;
  CurrentDevice current(index_);
  if (hipFree(pointer) != hipSuccess) (void)hipGetLastError();
}

void HipBackend::copy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                      const Stream& stream) {
  check(stream, "copy");
  if (bytes == 0) return;
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  check(hipMemcpyAsync(to, from, bytes, kind, native(stream)), "hipMemcpyAsync");
  if (kind != hipMemcpyDeviceToDevice) {
    check(hipStreamSynchronize(native(stream)), "hipStreamSynchronize");
  }
}

void HipBackend::copy_in(void* device, const void* host, std::size_t bytes, const Stream& stream) {
  copy(device, host, bytes, hipMemcpyHostToDevice, stream);
}

void HipBackend::copy_out(void* host, const void* device, std::size_t bytes, const Stream& stream) {
  copy(host, device, bytes, hipMemcpyDeviceToHost, stream);
}

void HipBackend::copy_on_device(void* to, const void* from, std::size_t bytes,
                                const Stream& stream) {
  copy(to, from, bytes, hipMemcpyDeviceToDevice, stream);
}

void HipBackend::fill(void* to, std::uint8_t value, std::size_t bytes, const Stream& stream) {
  check(stream, "fill");
  if (bytes == 0) return;
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  check(hipMemsetAsync(to, value, bytes, native(stream)), "hipMemsetAsync");
}

void HipBackend::synchronize(const Stream& stream) {
  check(stream, "synchronize");
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  check(hipStreamSynchronize(native(stream)), "hipStreamSynchronize");
}

Stream HipBackend::create_stream() {
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  hipStream_t stream = nullptr;
  check(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags");
  return {device(), stream};
}

void HipBackend::destroy_stream(const Stream& stream) noexcept {
  if (stream.native == nullptr) return;
  CurrentDevice current(index_);
  if (hipStreamDestroy(native(stream)) != hipSuccess) (void)hipGetLastError();
}

/// Two events that mark the beginning and the end of something on a stream.
struct EventPair {
  hipEvent_t begin = nullptr;
  hipEvent_t end = nullptr;

  EventPair() = default;
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;
  ~EventPair() {
    if (begin != nullptr) (void)hipEventDestroy(begin);
    if (end != nullptr) (void)hipEventDestroy(end);
  }
};

double HipBackend::time_us(const Stream& stream, const std::function<void()>& body) {
  check(stream, "time_us");
  CurrentDevice current(index_);
  check(current.error(), "hipSetDevice");
  EventPair events;
  check(hipEventCreateWithFlags(&events.begin, hipEventDefault), "hipEventCreateWithFlags");
  check(hipEventCreateWithFlags(&events.end, hipEventDefault), "hipEventCreateWithFlags");
  check(hipEventRecord(events.begin, native(stream)), "hipEventRecord");
  body();
  check(hipEventRecord(events.end, native(stream)), "hipEventRecord");
  check(hipEventSynchronize(events.end), "hipEventSynchronize");
  float milliseconds = 0;
  check(hipEventElapsedTime(&milliseconds, events.begin, events.end), "hipEventElapsedTime");
  return static_cast<double>(milliseconds) * 1000.0;
}

}  // namespace

int device_count() {
  if (!usable()) return 0;
  int count = 0;
  if (hipGetDeviceCount(&count) != hipSuccess) {
    (void)hipGetLastError();
    return 0;
  }
  return count;
}

std::string why_absent() {
  if (!usable()) return why_unusable();
  int count = 0;
  hipError_t error = hipGetDeviceCount(&count);
  if (error == hipSuccess && count > 0) return {};
  (void)hipGetLastError();
  if (error == hipSuccess) return fmt::format("{} sees no device", kLibraryName);
  return fmt::format("{} sees no device: {}: {}", kLibraryName, hipGetErrorName(error),
                     hipGetErrorString(error));
}

std::unique_ptr<Backend> open(int index) { return std::make_unique<HipBackend>(index); }

}  // namespace kiln::jit::KILN_HIP_PLATFORM
