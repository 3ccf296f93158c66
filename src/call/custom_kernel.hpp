// What is behind a Kernel: its source, and where it is loaded. Graphs use it to launch one as a
// node.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "jit/device/backend.hpp"
#include "kernel/kernel_request.hpp"
#include "kiln/kernel.hpp"

namespace kiln {

/// A kernel on one device. Kept while the Kernel lives.
struct LoadedKernel {
  jit::Backend* backend = nullptr;
  std::shared_ptr<jit::Kernel> kernel;
  KernelInfo info;
  const LoadedKernel* next = nullptr;
};

struct Kernel::Impl {
  Impl(std::string_view name, std::string_view source, std::span<const KernelParameter> parameters,
       const Options& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Null before the first use on that device. Takes no lock.
  const LoadedKernel* find(Device device) const;
  /// Loads it there if it is not.
  const LoadedKernel& on(Device device);
  /// For that target.
  KernelRequest request(const std::string& target) const;
  KernelInfo info(const std::string& target) const;

  std::string name;
  std::string text;  ///< of its KernelRequest
  std::string source;
  std::vector<KernelParameter> parameters;
  Options options;
  bool by_thread = false;  ///< the __global__ form
  bool awaits = false;     ///< waits itself for the kernels before it (preamble/dependents.h)

 private:
  std::atomic<const LoadedKernel*> first_ = nullptr;
  std::mutex mutex_;
};

/// Throws Error(invalid_argument) that names the kernel and the argument.
void check_arguments(const Kernel::Impl& kernel, Device device, const Grid& grid,
                     std::span<const Argument> arguments);

/// How the backend launches that grid.
jit::LaunchShape launch_shape(const Kernel::Impl& kernel, Device device, const Grid& grid);

/// The words that the parameters take: one each and, on the CPU, three for the grid.
inline constexpr std::size_t kGridWords = 3;
std::size_t parameter_count(const Kernel::Impl& kernel, Device device);
/// Of parameter `i`, in bytes.
std::size_t parameter_bytes(const Kernel::Impl& kernel, std::size_t i);
/// Writes parameter i to words[i]. Throws Error(invalid_argument) for a number that does not fit.
void fill_parameters(const Kernel::Impl& kernel, Device device, const Grid& grid,
                     std::span<const Argument> arguments, std::uint64_t* words);

}  // namespace kiln
