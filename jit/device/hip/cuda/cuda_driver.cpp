// Finds the CUDA driver and keeps the primary contexts. See cuda_driver.hpp.
#include "jit/device/hip/cuda/cuda_driver.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "base/dynamic_library.hpp"
#include "base/retry_pause.hpp"

namespace kiln::jit::nvidia {

CudaDriver cuda;

namespace {

constexpr int kMaxDevices = 64;
std::array<std::atomic<CUcontext>, kMaxDevices> contexts{};

std::string load() {
  const std::string names[] = {"libcuda.so.1"};
  base::DynamicLibrary library(names);
  if (!library) {
    return fmt::format(
        "the CUDA driver is not there ({}); Debian: libcuda1, Ubuntu: libnvidia-compute, elsewhere "
        "NVIDIA's driver package",
        library.error());
  }
  std::string missing;
#define KILN_CUDA_RESOLVE(name, parameters)                                 \
  cuda.name = reinterpret_cast<decltype(cuda.name)>(library.symbol(#name)); \
  if (cuda.name == nullptr) missing += missing.empty() ? #name : ", " #name;
  KILN_CUDA_FUNCTIONS(KILN_CUDA_RESOLVE)
#undef KILN_CUDA_RESOLVE
#define KILN_CUDA_RESOLVE(name, parameters) \
  cuda.name = reinterpret_cast<decltype(cuda.name)>(library.symbol(#name));
  KILN_CUDA_OPTIONAL_FUNCTIONS(KILN_CUDA_RESOLVE)
#undef KILN_CUDA_RESOLVE
  if (!missing.empty()) {
    return fmt::format(
        "libcuda.so.1 is older than CUDA 12.0, which is the oldest kiln uses: it has no {}",
        missing);
  }
  library.keep_loaded();
  return {};
}

// Why not; empty if it is.
std::string initialise() {
  const CUresult error = cuda.cuInit(0);
  if (error == 0) return {};
  const char* text = nullptr;
  cuda.cuGetErrorString(error, &text);
  return fmt::format("libcuda.so.1 is there but cuInit failed with error {}: {}", error,
                     text != nullptr ? text : "unknown");
}

}  // namespace

std::string load_cuda_driver() {
  static const auto* const missing = new std::string(load());
  if (!missing->empty()) return *missing;
  static std::atomic<bool> initialised = false;
  if (initialised.load(std::memory_order_acquire)) return {};
  // A device may be reset or its driver not started yet: no reason to do without it for ever.
  static std::mutex mutex;
  static base::RetryPause pause;
  static auto* const failure = new std::string;
  const std::lock_guard lock(mutex);
  if (initialised.load(std::memory_order_relaxed) || !pause.is_over()) return *failure;
  const auto began = base::RetryPause::Clock::now();
  *failure = initialise();
  if (failure->empty()) {
    initialised.store(true, std::memory_order_release);
  } else {
    pause.start(began);
  }
  return *failure;
}

CUcontext primary_context(int index) {
  return contexts[static_cast<std::size_t>(index)].load(std::memory_order_acquire);
}

CUresult retain_primary_context(int index) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  constexpr CUresult kInvalidDevice = 101;
  if (index < 0 || index >= kMaxDevices) return kInvalidDevice;
  if (primary_context(index) != nullptr) return 0;
  CUdevice device = 0;
  if (CUresult error = cuda.cuDeviceGet(&device, index); error != 0) return error;
  CUcontext context = nullptr;
  if (CUresult error = cuda.cuDevicePrimaryCtxRetain(&context, device); error != 0) return error;
  contexts[static_cast<std::size_t>(index)].store(context, std::memory_order_release);
  return 0;
}

}  // namespace kiln::jit::nvidia
