// Stream capture by the driver's own functions, as a program that knows nothing of kiln does it.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "kiln/view.hpp"

namespace kiln::testing {

/// The driver's capture of a stream and the replay of what was captured. Throws std::runtime_error
/// for a driver call that fails.
class Capture {
 public:
  explicit Capture(const Stream& stream) : stream_(stream) {
    const bool cuda = stream.device.type == DeviceType::cuda;
    library_ = cuda ? dlopen("libcuda.so.1", RTLD_NOW) : hip_library();
    find(begin_, "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
    find(end_, "cuStreamEndCapture", "hipStreamEndCapture");
    find(instantiate_, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags");
    find(launch_, "cuGraphLaunch", "hipGraphLaunch");
    find(destroy_, "cuGraphExecDestroy", "hipGraphExecDestroy");
    find(destroy_graph_, "cuGraphDestroy", "hipGraphDestroy");
    find(synchronize_, "cuStreamSynchronize", "hipStreamSynchronize");
    if (!cuda) return;
    int (*retain)(void**, int) = nullptr;
    int (*push)(void*) = nullptr;
    find(retain, "cuDevicePrimaryCtxRetain", "");
    find(push, "cuCtxPushCurrent_v2", "");
    find(pop_, "cuCtxPopCurrent_v2", "");
    void* context = nullptr;
    ok(retain(&context, stream.device.index), "cuDevicePrimaryCtxRetain");
    ok(push(context), "cuCtxPushCurrent_v2");
  }
  ~Capture() {
    if (executable_ != nullptr) (void)destroy_(executable_);
    if (graph_ != nullptr) (void)destroy_graph_(graph_);
    void* context = nullptr;
    if (pop_ != nullptr) (void)pop_(&context);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// In the mode that forbids the most: waiting, allocating and the like anywhere in the process
  /// fail, and spoil the capture.
  void begin() {
    constexpr int kGlobal = 0;
    ok(begin_(stream_.native, kGlobal), "begin capture");
  }
  void end() {
    ok(end_(stream_.native, &graph_), "end capture");
    ok(instantiate_(&executable_, graph_, 0), "instantiate");
  }
  void replay() {
    ok(launch_(executable_, stream_.native), "launch graph");
    ok(synchronize_(stream_.native), "synchronize");
  }

 private:
  static void* hip_library() {
    for (const char* name :
         {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
      if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
    }
    throw std::runtime_error("libamdhip64.so is not loaded");
  }
  template <class Function>
  void find(Function& function, const char* cuda_name, const char* hip_name) {
    const char* name = stream_.device.type == DeviceType::cuda ? cuda_name : hip_name;
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  }
  static void ok(int error, const char* what) {
    if (error != 0) {
      throw std::runtime_error(std::string(what) + ": driver error " + std::to_string(error));
    }
  }

  Stream stream_;
  void* library_ = nullptr;
  int (*begin_)(void*, int) = nullptr;
  int (*end_)(void*, void**) = nullptr;
  int (*instantiate_)(void**, void*, unsigned long long) = nullptr;
  int (*launch_)(void*, void*) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*destroy_graph_)(void*) = nullptr;
  int (*synchronize_)(void*) = nullptr;
  int (*pop_)(void**) = nullptr;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace kiln::testing
