// Stream capture by the driver's own functions, as a program that knows nothing of kiln does it.
#pragma once

#include "kiln/view.hpp"
#include "tests/support/driver_functions.hpp"

namespace kiln::testing {

/// The driver's capture of a stream and the replay of what was captured. Throws std::runtime_error
/// for a driver call that fails.
class Capture {
 public:
  explicit Capture(const Stream& stream) : stream_(stream), driver_(stream.device.type) {
    driver_.find(begin_, "cuStreamBeginCapture_v2", "hipStreamBeginCapture");
    driver_.find(end_, "cuStreamEndCapture", "hipStreamEndCapture");
    driver_.find(instantiate_, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags");
    driver_.find(launch_, "cuGraphLaunch", "hipGraphLaunch");
    driver_.find(destroy_, "cuGraphExecDestroy", "hipGraphExecDestroy");
    driver_.find(destroy_graph_, "cuGraphDestroy", "hipGraphDestroy");
    driver_.find(synchronize_, "cuStreamSynchronize", "hipStreamSynchronize");
    if (!driver_.is_cuda()) return;
    int (*retain)(void**, int) = nullptr;
    int (*push)(void*) = nullptr;
    driver_.find(retain, "cuDevicePrimaryCtxRetain", "");
    driver_.find(push, "cuCtxPushCurrent_v2", "");
    driver_.find(pop_, "cuCtxPopCurrent_v2", "");
    void* context = nullptr;
    check(retain(&context, stream.device.index), "cuDevicePrimaryCtxRetain");
    check(push(context), "cuCtxPushCurrent_v2");
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
    check(begin_(stream_.native, kGlobal), "begin capture");
  }
  void end() {
    check(end_(stream_.native, &graph_), "end capture");
    check(instantiate_(&executable_, graph_, 0), "instantiate");
  }
  void replay() {
    check(launch_(executable_, stream_.native), "launch graph");
    check(synchronize_(stream_.native), "synchronize");
  }

 private:
  static void check(int error, const char* what) { DriverFunctions::check(error, what); }

  Stream stream_;
  DriverFunctions driver_;
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
