// Memory of a device for programs that have none yet: the driver's, loaded at run time, or the
// host's.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory.hpp"

namespace decode {

/// Of the functions of a driver that HIP and CUDA have alike.
class Driver {
 public:
  explicit Driver(kiln::DeviceType type) : cuda_(type == kiln::DeviceType::cuda) {
    const auto names = cuda_ ? std::vector{"libcuda.so.1"}
                             : std::vector{"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6",
                                           "libamdhip64.so.5"};
    for (const char* name : names) {
      if (library_ == nullptr) library_ = dlopen(name, RTLD_NOW);
    }
    if (library_ == nullptr) throw std::runtime_error(std::string("cannot load ") + names[0]);
  }

  /// Calls a function of the driver. Throws std::runtime_error where it fails.
  template <class... Arguments>
  void call(const char* cuda_name, const char* hip_name, Arguments... arguments) const {
    const char* name = cuda_ ? cuda_name : hip_name;
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    const int error = function == nullptr ? -1 : function(arguments...);
    if (error != 0)
      throw std::runtime_error(std::string(name) + ": error " + std::to_string(error));
  }

 private:
  bool cuda_;
  void* library_ = nullptr;
};

/// Memory of the first device of that type, and a stream of its own.
inline Memory memory_of(kiln::DeviceType type) {
  Memory memory;
  memory.stream.device = {type, 0};
  if (type == kiln::DeviceType::cpu) {
    constexpr std::size_t kPage = 4096;
    memory.allocate = [](std::size_t bytes) {
      return std::aligned_alloc(kPage, (bytes / kPage + 1) * kPage);
    };
    memory.wait = [] {};
    memory.to_device = memory.to_host = [](void* to, const void* from, std::size_t bytes) {
      std::memcpy(to, from, bytes);
    };
    return memory;
  }
  const Driver driver(type);
  if (type == kiln::DeviceType::cuda) {  // kiln's context, which is that of the CUDA runtime
    void* context = nullptr;
    driver.call("cuInit", "", 0U);
    driver.call("cuDevicePrimaryCtxRetain", "", &context, 0);
    driver.call("cuCtxSetCurrent", "", context);
  }
  driver.call("cuStreamCreate", "hipStreamCreateWithFlags", &memory.stream.native, 1U);
  void* const stream = memory.stream.native;
  memory.allocate = [driver](std::size_t bytes) {
    void* data = nullptr;
    driver.call("cuMemAlloc_v2", "hipMalloc", &data, bytes);
    return data;
  };
  memory.wait = [driver, stream] {
    driver.call("cuStreamSynchronize", "hipStreamSynchronize", stream);
  };
  memory.to_device = [driver, wait = memory.wait](void* to, const void* from, std::size_t bytes) {
    wait();
    driver.call("cuMemcpyHtoD_v2", "hipMemcpyHtoD", to, from, bytes);
  };
  memory.to_host = [driver, wait = memory.wait](void* to, const void* from, std::size_t bytes) {
    wait();
    driver.call("cuMemcpyDtoH_v2", "hipMemcpyDtoH", to, from, bytes);
  };
  return memory;
}

}  // namespace decode
