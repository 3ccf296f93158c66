// The GPU backend on AMD: hip_backend.inl over the platform's HIP. The library that belongs to the
// headers is loaded at run time, never linked, so that the same build runs where ROCm is not
// installed.
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#undef __noinline__  // for kernels; the standard library of GCC 16 has an attribute of this name

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/dynamic_library.hpp"
#include "base/elf.hpp"
#include "base/io.hpp"
#include "kiln/view.hpp"

#define KILN_TEXT_(text) #text
#define KILN_TEXT(text) KILN_TEXT_(text)

namespace kiln::jit::amd {
namespace {

// FUNCTION(name, type). The type is spelled out where HIP overloads the name for C++.
#define KILN_HIP_FUNCTIONS(FUNCTION)                                                            \
  FUNCTION(hipGetErrorName, decltype(&::hipGetErrorName))                                       \
  FUNCTION(hipGetErrorString, decltype(&::hipGetErrorString))                                   \
  FUNCTION(hipGetLastError, decltype(&::hipGetLastError))                                       \
  FUNCTION(hipGetDeviceCount, decltype(&::hipGetDeviceCount))                                   \
  FUNCTION(hipGetDeviceProperties, decltype(&::hipGetDeviceProperties))                         \
  FUNCTION(hipGetDevice, decltype(&::hipGetDevice))                                             \
  FUNCTION(hipSetDevice, decltype(&::hipSetDevice))                                             \
  FUNCTION(hipModuleLoadData, decltype(&::hipModuleLoadData))                                   \
  FUNCTION(hipModuleUnload, decltype(&::hipModuleUnload))                                       \
  FUNCTION(hipModuleGetFunction, decltype(&::hipModuleGetFunction))                             \
  FUNCTION(hipModuleLaunchKernel, decltype(&::hipModuleLaunchKernel))                           \
  FUNCTION(hipMalloc, decltype(static_cast<hipError_t (*)(void**, size_t)>(&::hipMalloc)))      \
  FUNCTION(hipFree, decltype(&::hipFree))                                                       \
  FUNCTION(hipMemcpyAsync, decltype(&::hipMemcpyAsync))                                         \
  FUNCTION(hipStreamCreateWithFlags, decltype(&::hipStreamCreateWithFlags))                     \
  FUNCTION(hipStreamDestroy, decltype(&::hipStreamDestroy))                                     \
  FUNCTION(hipStreamSynchronize, decltype(&::hipStreamSynchronize))                             \
  FUNCTION(hipStreamIsCapturing, decltype(&::hipStreamIsCapturing))                             \
  FUNCTION(hipThreadExchangeStreamCaptureMode, decltype(&::hipThreadExchangeStreamCaptureMode)) \
  FUNCTION(hipEventCreateWithFlags, decltype(&::hipEventCreateWithFlags))                       \
  FUNCTION(hipEventDestroy, decltype(&::hipEventDestroy))                                       \
  FUNCTION(hipEventRecord, decltype(&::hipEventRecord))                                         \
  FUNCTION(hipEventSynchronize, decltype(&::hipEventSynchronize))                               \
  FUNCTION(hipEventElapsedTime, decltype(&::hipEventElapsedTime))                               \
  FUNCTION(hipMemsetAsync, decltype(&::hipMemsetAsync))                                         \
  FUNCTION(hipDeviceSynchronize, decltype(&::hipDeviceSynchronize))                             \
  FUNCTION(hipStreamWaitEvent, decltype(&::hipStreamWaitEvent))                                 \
  FUNCTION(hipStreamBeginCapture, decltype(&::hipStreamBeginCapture))                           \
  FUNCTION(hipStreamEndCapture, decltype(&::hipStreamEndCapture))                               \
  FUNCTION(hipGraphCreate, decltype(&::hipGraphCreate))                                         \
  FUNCTION(hipGraphDestroy, decltype(&::hipGraphDestroy))                                       \
  FUNCTION(hipGraphAddKernelNode, decltype(&::hipGraphAddKernelNode))                           \
  FUNCTION(hipGraphAddMemcpyNode1D, decltype(&::hipGraphAddMemcpyNode1D))                       \
  FUNCTION(hipGraphAddMemsetNode, decltype(&::hipGraphAddMemsetNode))                           \
  FUNCTION(hipGraphAddEmptyNode, decltype(&::hipGraphAddEmptyNode))                             \
  FUNCTION(hipGraphAddChildGraphNode, decltype(&::hipGraphAddChildGraphNode))                   \
  FUNCTION(hipGraphGetNodes, decltype(&::hipGraphGetNodes))                                     \
  FUNCTION(hipGraphGetEdges, decltype(&::hipGraphGetEdges))                                     \
  FUNCTION(hipGraphNodeGetType, decltype(&::hipGraphNodeGetType))                               \
  FUNCTION(hipGraphKernelNodeGetParams, decltype(&::hipGraphKernelNodeGetParams))               \
  FUNCTION(hipGraphMemsetNodeGetParams, decltype(&::hipGraphMemsetNodeGetParams))               \
  FUNCTION(hipGraphInstantiateWithFlags, decltype(&::hipGraphInstantiateWithFlags))             \
  FUNCTION(hipGraphLaunch, decltype(&::hipGraphLaunch))                                         \
  FUNCTION(hipGraphExecDestroy, decltype(&::hipGraphExecDestroy))                               \
  FUNCTION(hipGraphExecKernelNodeSetParams, decltype(&::hipGraphExecKernelNodeSetParams))       \
  FUNCTION(hipGraphExecMemcpyNodeSetParams1D, decltype(&::hipGraphExecMemcpyNodeSetParams1D))   \
  FUNCTION(hipGraphExecMemsetNodeSetParams, decltype(&::hipGraphExecMemsetNodeSetParams))

// Declared by the headers of HIP 5.2 and not in its library: null there.
#define KILN_HIP_OPTIONAL_FUNCTIONS(FUNCTION)                                           \
  FUNCTION(hipGraphKernelNodeGetAttribute, decltype(&::hipGraphKernelNodeGetAttribute)) \
  FUNCTION(hipGraphKernelNodeSetAttribute, decltype(&::hipGraphKernelNodeSetAttribute))

// Inside this namespace a HIP name is a pointer to the loaded function; the declarations of the HIP
// headers give it its type and are not called. HIP renames some functions by macro (hipGetDevice-
// PropertiesR0600), so names are expanded before they become text.
#define KILN_HIP_POINTER(name, ...) __VA_ARGS__ name = nullptr;
KILN_HIP_FUNCTIONS(KILN_HIP_POINTER)
KILN_HIP_OPTIONAL_FUNCTIONS(KILN_HIP_POINTER)
#undef KILN_HIP_POINTER

constexpr DeviceType kDeviceType = DeviceType::hip;
constexpr const char* kLibraryName = "libamdhip64.so." KILN_TEXT(HIP_VERSION_MAJOR);
// gridDim * blockDim must stay below 2^32.
constexpr std::uint64_t kMaxGridThreads = std::numeric_limits<std::uint32_t>::max();

// Nothing promises either, and releases have written new arguments where a running launch reads
// them.
constexpr bool kGraphLaunchesAreOrdered = false;
constexpr bool kGraphUpdatesAreOrdered = false;

/// The loader's own search, then where the headers came from, then AMD's directories.
std::vector<std::string> library_paths() {
  std::vector<std::string> paths = {kLibraryName,
                                    std::string(KILN_HIP_LIBRARY_DIR "/") + kLibraryName,
                                    std::string("/opt/rocm/lib/") + kLibraryName};
  std::error_code ignored;
  std::erase_if(paths, [&](const std::string& path) {
    return path.find('/') != std::string::npos && !std::filesystem::exists(path, ignored);
  });
  return paths;
}

/// Another release of HIP that the process has loaded already: its streams would mean nothing to
/// ours.
std::string other_release() {
  for (int major = 5; major <= 9; ++major) {
    if (major == HIP_VERSION_MAJOR) continue;
    const std::string name = fmt::format("libamdhip64.so.{}", major);
    if (base::DynamicLibrary::find_loaded(name)) return name;
  }
  return {};
}

std::string load() {
  if (std::string other = other_release(); !other.empty()) {
    return fmt::format(
        "this process has loaded {}, but kiln was built against {}: build kiln "
        "against the same release",
        other, kLibraryName);
  }
  base::DynamicLibrary library(library_paths());
  if (!library) {
    return fmt::format(
        "the HIP runtime is not there ({}); Debian, Ubuntu: libamdhip64-{}, AMD's "
        "packages: hip-runtime-amd",
        library.error(), HIP_VERSION_MAJOR);
  }
  std::string missing;
#define KILN_HIP_RESOLVE(name, ...)                                         \
  name = reinterpret_cast<decltype(name)>(library.symbol(KILN_TEXT(name))); \
  if (name == nullptr) missing += std::string(missing.empty() ? "" : ", ") + KILN_TEXT(name);
  KILN_HIP_FUNCTIONS(KILN_HIP_RESOLVE)
#undef KILN_HIP_RESOLVE
#define KILN_HIP_RESOLVE(name, ...) \
  name = reinterpret_cast<decltype(name)>(library.symbol(KILN_TEXT(name)));
  KILN_HIP_OPTIONAL_FUNCTIONS(KILN_HIP_RESOLVE)
#undef KILN_HIP_RESOLVE
  if (!missing.empty()) return fmt::format("{} has no {}", kLibraryName, missing);
  library.keep_loaded();
  return {};
}

const std::string& load_once() {
  static const auto* const error = new std::string(load());
  return *error;
}

/// The kernel driver's device node (or its kin under WSL), which HIP cannot do without.
std::string why_no_kernel_driver() {
  if (access("/dev/dxg", R_OK | W_OK) == 0) return {};
  if (access("/dev/kfd", R_OK | W_OK) == 0) return {};
  if (errno == ENOENT)
    return "there is no /dev/kfd: no AMD GPU, or the amdgpu driver is not loaded";
  return fmt::format("/dev/kfd cannot be opened ({}): add this user to the groups render and video",
                     base::describe_errno(errno));
}

/// The device node comes first: a machine without one never loads the library, which costs tens of
/// milliseconds.
bool usable() { return why_no_kernel_driver().empty() && load_once().empty(); }

/// Both reasons at once, for people.
std::string why_unusable() {
  std::string reason = load_once();
  if (std::string driver = why_no_kernel_driver(); !driver.empty()) {
    reason += (reason.empty() ? "" : "; and ") + driver;
  }
  return reason;
}

/// Makes the device current, and the caller's again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    error_ = hipGetDevice(&previous_);
    if (error_ != hipSuccess || previous_ == index) return;
    error_ = hipSetDevice(index);
    changed_ = error_ == hipSuccess;
  }
  ~CurrentDevice() {
    if (changed_) (void)hipSetDevice(previous_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  hipError_t error() const { return error_; }

 private:
  hipError_t error_ = hipSuccess;
  int previous_ = 0;
  bool changed_ = false;
};

/// Launches may ask for all the shared memory that there is.
hipError_t allow_shared(hipFunction_t, std::uint32_t) { return hipSuccess; }

/// Kernels begin when those before them have ended: HIP has no programmatic dependent launch.
hipError_t add_kernel_node(hipGraphNode_t* node, hipGraph_t graph,
                           std::span<const hipGraphNode_t> after, const hipKernelNodeParams& kernel,
                           bool /*pdl*/) {
  return hipGraphAddKernelNode(node, graph, after.data(), after.size(), &kernel);
}

/// A kernel that was launched as a cooperative one must stay so; its parameters do not tell.
bool can_copy_kernels() {
  return hipGraphKernelNodeGetAttribute != nullptr && hipGraphKernelNodeSetAttribute != nullptr;
}
hipError_t copy_kernel_attributes(hipGraphNode_t from, hipGraphNode_t to) {
  hipKernelNodeAttrValue value{};
  if (hipGraphKernelNodeGetAttribute(from, hipKernelNodeAttributeCooperative, &value) !=
      hipSuccess) {
    (void)hipGetLastError();  // some releases fail for an attribute that was never set
    return hipSuccess;
  }
  if (value.cooperative == 0) return hipSuccess;
  return hipGraphKernelNodeSetAttribute(to, hipKernelNodeAttributeCooperative, &value);
}

const char* expected_format(std::span<const std::byte> code) {
  constexpr std::string_view kBundle = "__CLANG_OFFLOAD_BUNDLE__";
  // With the number of entries, and of one entry offset, size and the length of its name.
  constexpr std::size_t kSmallestBundle = kBundle.size() + 4 * sizeof(std::uint64_t);
  const std::string_view text(reinterpret_cast<const char*>(code.data()), code.size());
  const bool image = base::Elf::header_error(text).empty() ||
                     (text.size() >= kSmallestBundle && text.starts_with(kBundle));
  return image ? nullptr : "a 64-bit ELF image or a code object bundle";
}

}  // namespace
}  // namespace kiln::jit::amd

#define KILN_HIP_PLATFORM amd
#include "jit/device/hip/hip_graph.inl"
