// Kernels that the caller has written: compiled by the same service, kept in the same cache,
// launched and recorded like fused functions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/dtype.hpp"
#include "kiln/function.hpp"
#include "kiln/options.hpp"
#include "kiln/view.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// One parameter of a kernel, in the order in which the kernel declares them. What a pointer is
/// read or written through decides what a Graph runs before what.
struct KernelParameter {
  enum class Kind : std::uint8_t { reads, writes, reads_and_writes, scalar };
  Kind kind = Kind::reads;
  DType dtype = DType::f32;
};
/// A pointer to elements of that dtype.
constexpr KernelParameter reads(DType dtype) { return {KernelParameter::Kind::reads, dtype}; }
constexpr KernelParameter writes(DType dtype) { return {KernelParameter::Kind::writes, dtype}; }
constexpr KernelParameter reads_and_writes(DType dtype) {
  return {KernelParameter::Kind::reads_and_writes, dtype};
}
/// A number by value: f32, f64, bool or an integer of 8 bits or more.
constexpr KernelParameter scalar(DType dtype) { return {KernelParameter::Kind::scalar, dtype}; }

/// How many threads: blocks of the grid, threads of a block, and bytes of dynamic shared memory.
struct Grid {
  struct Extent {
    std::uint32_t x = 1;
    std::uint32_t y = 1;
    std::uint32_t z = 1;
  };
  Extent blocks;
  Extent threads;
  std::uint32_t shared_bytes = 0;

  /// Enough blocks of `threads` threads along x for `count` of them.
  static Grid covering(std::uint64_t count, std::uint32_t threads = 256) {
    return {{static_cast<std::uint32_t>((count + threads - 1) / threads)}, {threads}};
  }
};

/// A kernel of the caller's own (see kernel()); copies are the same one. Safe from any thread. What
/// was captured from a stream while it was launched needs one of the copies for as long as it is
/// replayed.
class Kernel {
 public:
  /// Checks, finds or compiles, and launches on `stream`. Arrays are handed over as the pointers of
  /// their views: shapes and strides are the kernel's own affair, but a view must span all that the
  /// kernel touches. A grid without threads launches nothing. Throws Error: invalid_argument for
  /// a number of arguments, a dtype, a device or a grid that does not fit, compile_failed,
  /// would_compile, device.
  void operator()(const Stream& stream, const Grid& grid,
                  std::initializer_list<Argument> arguments) const {
    call(stream, grid, {arguments.begin(), arguments.size()});
  }
  void call(const Stream& stream, const Grid& grid, std::span<const Argument> arguments) const;

  /// Finds or compiles it for the stream's device; launches nothing.
  KernelInfo prepare(const Stream& stream) const;

  const std::string& name() const;

  struct [[gnu::visibility("hidden")]] Impl;
  explicit Kernel(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& shared_impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// A kernel from HIP source, in one of two forms:
///
///   extern "C" __global__ void scale(const float* x, float* y, float a, unsigned n) { ... }
///   KILN_KERNEL(256, scale, const kiln::f32* x, kiln::f32* y, kiln::f32 a, kiln::u32 n) {
///     KILN_FOR_EACH_WORK_ITEM(kiln::u32, 256, i, n) { y[i] = a * x[i]; }
///   }
///
/// `name` is the kernel's name there and the name in errors and the cache. The source may include
/// nothing; what it names of kiln's device code (preamble/README.md) stands before it, in namespace
/// kiln. A source with ## gets all of that.
/// On the CPU device the first form runs with one thread at a time and the second vectorised over
/// the range of work items; a kernel whose threads share memory or wait for each other compiles for
/// GPUs only. `options.accuracy == fast` allows contraction; rounding means nothing here.
///
/// A kernel whose every block calls kiln::await_prerequisites() before it touches memory may begin
/// in a Graph while the kernels that it waits for are still running, once every block of theirs has
/// called kiln::let_dependents_launch() or ended: on NVIDIA GPUs from sm_90 on, elsewhere both do
/// nothing. Fused kernels do so by themselves.
///
/// Throws Error(invalid_argument) for a name that is not a C identifier or not in the source, and
/// for a scalar's dtype.
Kernel kernel(std::string_view name, std::string_view source,
              std::span<const KernelParameter> parameters, const Options& options = {});
Kernel kernel(std::string_view name, std::string_view source,
              std::initializer_list<KernelParameter> parameters, const Options& options = {});

}  // namespace kiln

#pragma GCC visibility pop
