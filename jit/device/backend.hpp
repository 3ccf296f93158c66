// A device as kiln needs it: load a code object, launch a kernel of it. Two implementations: HIP
// (jit/device/hip/, one source for AMD and NVIDIA) and the CPU (jit/device/cpu/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "kiln/view.hpp"

namespace kiln::jit {

class Backend;
class PreparedGraph;
struct GraphNode;

/// A kernel that is loaded on one device. Its module is unloaded when the last reference goes: keep
/// one for as long as a launch of it may be running (Backend::wait_until_idle) or a graph may
/// replay it.
class Kernel {
 public:
  explicit Kernel(const Backend& owner) : owner_(&owner) {}
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// The device that it is loaded on; no other can launch it.
  const Backend& owner() const { return *owner_; }

 private:
  const Backend* owner_;
};

/// How many threads. On the CPU a "thread" is one work item, the entry is
///   extern "C" void ENTRY(void* const* arguments, unsigned long long begin, unsigned long long
///   end)
/// which computes the items [begin, end), and `block` is the fewest items that are worth a core of
/// their own: a launch of up to one block runs on the calling thread, a larger one is cut between
/// blocks.
struct LaunchShape {
  std::uint64_t work_items = 0;    ///< 0 launches nothing
  std::uint32_t block = 256;       ///< threads per block
  std::uint64_t max_blocks = 0;    ///< 0: the device's limit; the kernel strides over what is left
  std::uint32_t shared_bytes = 0;  ///< LDS per block beyond what the kernel declares; GPUs only
  /// For kernels that look at the other axes of the grid. Such a grid, or one that is `exact`, is
  /// launched as it is asked for or not at all; the kernel does not stride.
  std::uint32_t grid_y = 1;
  std::uint32_t grid_z = 1;
  std::uint32_t block_y = 1;
  std::uint32_t block_z = 1;
  bool exact = false;
};

/// A good `LaunchShape::block` on the CPU where an item is one element of a short chain: a few
/// microseconds of work, what waking another core costs.
inline constexpr std::uint32_t kCpuBlock = 16 * 1024;

/// What Backend::load() throws about the code that it was given: by the driver's verdict or by the
/// image itself it can never be loaded, while any other Error means that it could not be loaded
/// now.
class InvalidImage : public Error {
 public:
  explicit InvalidImage(const std::string& message, std::optional<int> driver_code = {})
      : Error(Code::device, message, driver_code) {}
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Device device() const = 0;
  virtual std::string name() const = 0;  ///< for people, "NVIDIA H200"
  /// The target for the compiler, with features: "gfx90a:sramecc+:xnack-", "sm_90", or the CPU's
  /// name and feature set.
  virtual std::string target() const = 0;
  virtual int wave_size() const = 0;
  virtual int compute_units() const = 0;

  /// Throws InvalidImage when `code` is no module for this device or has no such entry, and
  /// Error(device) with the driver's reason when it cannot be loaded now: no memory, no mappings, a
  /// device that is lost.
  virtual std::shared_ptr<Kernel> load(std::span<const std::byte> code,
                                       const std::string& entry) = 0;
  /// `arguments[i]` points at the i-th parameter. Takes no lock, allocates nothing, does not wait
  /// (on the CPU it has finished when it returns). The caller's current device and context are left
  /// as they were. Throws Error(device) for what the driver refuses and Error(invalid_argument) for
  /// a stream or a kernel of another device.
  virtual void launch(const Kernel& kernel, const LaunchShape& shape, void* const* arguments,
                      const Stream& stream) = 0;
  /// Waits until nothing that was launched before is running. False if that cannot be waited for
  /// now, perhaps because a stream is being captured; then it may be running still.
  virtual bool wait_until_idle() = 0;
  /// Whether what is launched on the stream is being recorded into a graph instead of run: then
  /// nothing may wait, time or allocate on the device.
  virtual bool is_capturing(const Stream& stream) = 0;
  /// Makes a graph of the operations (jit/device/graph.hpp). Throws Error(invalid_argument) for a
  /// list that is not right; what the driver cannot make into a graph is run as a list instead, and
  /// logged once.
  virtual std::unique_ptr<PreparedGraph> prepare(std::vector<GraphNode> nodes) = 0;

  /// Asynchronous on the stream, as a launch is.
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes,
                              const Stream& stream) = 0;
  virtual void fill(void* to, std::uint8_t value, std::size_t bytes, const Stream& stream) = 0;

  // For the tool, the tests and the benchmarks only: kiln never allocates or waits for a caller.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* pointer) noexcept = 0;
  virtual void copy_in(void* device, const void* host, std::size_t bytes, const Stream& stream) = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes,
                        const Stream& stream) = 0;
  virtual void synchronize(const Stream& stream) = 0;
  virtual Stream create_stream() = 0;
  virtual void destroy_stream(const Stream& stream) noexcept = 0;
  /// Microseconds between two points of the stream that enclose `body`, by the device's own clock.
  virtual double time_us(const Stream& stream, const std::function<void()>& body) = 0;
};

/// The backend of that device, made on first use and kept until the process ends. After that first
/// use it costs one load. Throws Error(not_found) that says what is there, or Error(unsupported)
/// that says which library or package is missing.
Backend& backend(Device device);
/// Those that were made so far.
std::vector<Backend*> open_backends();

/// Every device that can be used now: HIP, then CUDA, then the CPU.
std::vector<Device> devices();

/// Why there are no devices of that type here, for people; empty if there are some.
std::string why_absent(DeviceType type);

}  // namespace kiln::jit
