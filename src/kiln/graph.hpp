// Many calls, one submission: a list of operations recorded once and launched often, by the
// driver's graphs where there are any. Addresses and numbers can be changed without building it
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/copy.hpp"
#include "kiln/function.hpp"
#include "kiln/kernel.hpp"
#include "kiln/view.hpp"

namespace kiln {
class Callable;
}

#pragma GCC visibility push(default)

namespace kiln {

class Graph;

/// Records operations in the order in which they would run one after the other. Each returns its
/// number. Nothing runs; kernels that are not ready are compiled side by side when all has been
/// recorded (or not: Options::on_miss). Only for the thread that records.
class Recorder {
 public:
  /// A call of a fused function; checked as Function's own call is. It is one operation, also where
  /// its outputs have several shapes and it takes several kernels (KernelInfo::kernels).
  std::size_t call(const Function& function, std::span<const Argument> inputs,
                   std::span<const View> outputs);
  std::size_t call(const Function& function, std::initializer_list<Argument> inputs,
                   std::initializer_list<View> outputs);
  /// A kernel of the caller's own. Its parameters say what it reads and writes; it touches nothing
  /// else.
  std::size_t call(const Kernel& kernel, const Grid& grid, std::span<const Argument> arguments);
  std::size_t call(const Kernel& kernel, const Grid& grid,
                   std::initializer_list<Argument> arguments);
  /// Copies between views of any layouts and dtypes, like kiln::copy; a copy that takes a kernel is
  /// recorded as a call.
  std::size_t copy(const Copy& copy);
  /// Sets every byte of a C-ordered view to `byte`.
  std::size_t fill(const View& to, std::uint8_t byte);
  /// The caller's own work on a stream: library calls, kernels of its own. It is captured once and
  /// replayed, so it must do the same each time; it touches no memory but `reads` and `writes`.
  std::size_t sequence(std::string_view name, std::span<const View> reads,
                       std::span<const View> writes, std::function<void(const Stream&)> body);

  struct [[gnu::visibility("hidden")]] Impl;

 private:
  friend Graph record(Device device, const std::function<void(Recorder&)>& body);
  friend class Program;
  explicit Recorder(Impl& impl) : impl_(impl) {}
  std::size_t call(std::shared_ptr<Callable> callable, std::span<const Argument> inputs,
                   std::span<const View> outputs);
  Impl& impl_;
};

/// What was recorded. Safe from any thread, but for moving and destroying one.
class Graph {
 public:
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

  /// Submits all operations. Operations that touch a common byte, one of them writing, keep their
  /// order; others may run side by side. Launches of one graph wait for each other, also from
  /// several threads and streams, and so do launches and changes. On a capturing stream the
  /// operations become part of that capture, which needs this graph to live as long as what was
  /// captured. Throws Error(device).
  void launch(const Stream& stream);

  /// Every operand whose data is `old` gets `now`; returns how many there were. Operations that
  /// need another kernel for the new alignment get it, and the order is decided anew. If the new
  /// addresses are not right (an overlap, a captured sequence that uses `old`), throws Error and
  /// changes nothing.
  std::size_t rebind(const void* old, void* now);
  /// For a block of memory of `bytes` bytes that was at `old` and is at `now`: every operand whose
  /// data lies in it keeps its offset in the block. Returns how many there were. Throws Error and
  /// changes nothing if the new addresses are not right (an overlap, a captured sequence that uses
  /// the block).
  std::size_t rebind(const void* old, void* now, std::size_t bytes);
  /// Another number for scalar argument `input` of the call of a function or kernel `operation`, of
  /// the same dtype and weakness.
  void set_scalar(std::size_t operation, std::size_t input, Scalar value);

  struct Operation {
    std::string name;   ///< the function's, kernel's or sequence's, or "copy", "fill"
    std::string entry;  ///< the kernel; empty for what is not one
  };
  struct Edge {
    std::size_t from = 0;
    std::size_t to = 0;
    std::string_view reason;   ///< "read after write", "write after read", "write after write"
    std::uintptr_t begin = 0;  ///< the bytes that both touch
    std::uintptr_t end = 0;
  };
  std::vector<Operation> operations() const;
  std::vector<Edge> edges() const;
  /// Whether the driver replays it; if not, each launch submits the operations one by one, in
  /// order.
  bool is_replayed() const;

 private:
  friend Graph record(Device device, const std::function<void(Recorder&)>& body);
  explicit Graph(std::unique_ptr<Recorder::Impl> impl);
  std::unique_ptr<Recorder::Impl> impl_;
};

/// Records what `body` asks for, for one device. Throws what the calls would throw.
Graph record(Device device, const std::function<void(Recorder&)>& body);

}  // namespace kiln

#pragma GCC visibility pop
