// The driver without kiln, for comparison: these functions have the same signatures in HIP and
// CUDA. Its kernel is the saxpy of the tests.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "jit/device/backend.hpp"
#include "tests/jit/device/fixtures.hpp"
#include "tests/support/driver_functions.hpp"

namespace kiln::bench {

class RawDriver {
 public:
  explicit RawDriver(DeviceType type) {
    jit::Backend& backend = jit::backend({type, 0});
    const testing::DriverFunctions driver(type);
    driver.find(load_, "cuModuleLoadData", "hipModuleLoadData");
    driver.find(get_function_, "cuModuleGetFunction", "hipModuleGetFunction");
    driver.find(launch_, "cuLaunchKernel", "hipModuleLaunchKernel");
    driver.find(begin_capture, "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
    driver.find(end_capture, "cuStreamEndCapture", "hipStreamEndCapture");
    driver.find(instantiate, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags");
    driver.find(launch_graph, "cuGraphLaunch", "hipGraphLaunch");
    if (driver.is_cuda()) {
      int (*retain)(void**, int) = nullptr;
      driver.find(retain, "cuDevicePrimaryCtxRetain", "");
      driver.find(set_current_, "cuCtxSetCurrent", "");
      ok(retain(&context_, 0));
    }
    make_current();
    function_ = saxpy(backend);
  }

  /// As a user of the runtime has it.
  void make_current() const {
    if (set_current_ != nullptr) ok(set_current_(context_));
  }
  /// As a thread has it that has done nothing with the device.
  void make_none_current() const {
    if (set_current_ != nullptr) ok(set_current_(nullptr));
  }
  void launch_saxpy(unsigned blocks, unsigned threads, void** arguments, void* stream) const {
    ok(launch_(function_, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr));
  }
  static void ok(int error) { testing::DriverFunctions::check(error, "raw driver"); }

  int (*begin_capture)(void*, int) = nullptr;
  int (*end_capture)(void*, void**) = nullptr;
  int (*instantiate)(void**, void*, unsigned long long) = nullptr;
  int (*launch_graph)(void*, void*) = nullptr;

 private:
  /// Loaded once and kept.
  void* saxpy(jit::Backend& backend) const {
    static std::mutex mutex;
    static std::map<DeviceType, void*> functions;
    const std::lock_guard lock(mutex);
    void*& function = functions[backend.device().type];
    if (function != nullptr) return function;
    std::string reason;
    auto image = jit::testing::saxpy(backend, reason);
    if (!image) throw std::runtime_error(reason);
    image->push_back(std::byte{0});
    void* module = nullptr;
    ok(load_(&module, image->data()));
    ok(get_function_(&function, module, "saxpy"));
    return function;
  }

  int (*load_)(void**, const void*) = nullptr;
  int (*get_function_)(void**, void*, const char*) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                 void**, void**) = nullptr;
  int (*set_current_)(void*) = nullptr;
  void* context_ = nullptr;
  void* function_ = nullptr;
};

/// What `work` launches on the stream, captured and instantiated. Kept until the process ends.
class RawGraph {
 public:
  RawGraph(const RawDriver& driver, void* stream, const std::function<void()>& work)
      : driver_(driver) {
    constexpr int kRelaxed = 2;
    RawDriver::ok(driver.begin_capture(stream, kRelaxed));
    work();
    void* graph = nullptr;
    RawDriver::ok(driver.end_capture(stream, &graph));
    RawDriver::ok(driver.instantiate(&executable_, graph, 0));
  }
  void launch(void* stream) const { RawDriver::ok(driver_.launch_graph(executable_, stream)); }

 private:
  const RawDriver& driver_;
  void* executable_ = nullptr;
};

}  // namespace kiln::bench
