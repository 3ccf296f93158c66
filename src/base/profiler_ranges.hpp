// Ranges that profilers show beside kernels, whose own names say what form they have and not whose
// they are: roctx (rocprof, ROCm Systems Profiler) and NVTX (Nsight Systems). Their libraries are
// used where they are; nothing is linked.
#pragma once

#include <string>

namespace kiln::base {

/// How the ranges of this process begin and end; null without a profiler.
struct RangeFunctions {
  int (*push)(const char* name) = nullptr;
  int (*pop)() = nullptr;
};

/// Found once, at the first call. KILN_PROFILER_RANGES says where: `off`: nowhere; `on`: in the
/// first of these libraries that can be loaded; a path: in that library. Without it, ranges are
/// there if the process has loaded one of the libraries, as programs with ranges of their own have,
/// or if a profiler of NVIDIA's has started it (NVTX_INJECTION64_PATH).
const RangeFunctions& range_functions();

/// A range of this thread for as long as the object lives. Without a profiler it costs a
/// comparison, and `name()`, which gives its name, is not called.
class ProfilerRange {
 public:
  template <class Name>
  explicit ProfilerRange(const Name& name) : functions_(range_functions()) {
    if (functions_.push != nullptr) functions_.push(std::string(name()).c_str());
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() {
    if (functions_.push != nullptr) functions_.pop();
  }

 private:
  const RangeFunctions& functions_;
};

}  // namespace kiln::base
