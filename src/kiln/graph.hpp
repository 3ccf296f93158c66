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

#include "kiln/function.hpp"
#include "kiln/view.hpp"

namespace kiln {

class Graph;

/// Takes down operations in the order in which they would run one after the other. Each returns its
/// number. Nothing runs; kernels that are not ready are compiled (or not: Options::on_miss).
class Recorder {
 public:
  /// A call of a fused function; checked as Function's own call is. Where its outputs have several
  /// shapes it is one operation for each (KernelInfo::kernels), and this is the first one's number.
  std::size_t call(const Function& function, std::span<const Argument> inputs,
                   std::span<const View> outputs);
  std::size_t call(const Function& function, std::initializer_list<Argument> inputs,
                   std::initializer_list<View> outputs);
  /// As kiln::copy, between any layouts and dtypes; what takes a kernel is recorded as a call.
  std::size_t copy(const View& to, const View& from);
  /// Every byte of a C-ordered view.
  std::size_t fill(const View& to, std::uint8_t byte);
  /// The caller's own work on a stream: library calls, kernels of its own. It is captured once and
  /// replayed, so it must do the same each time; it touches no memory but `reads` and `writes`.
  std::size_t sequence(std::string_view name, std::span<const View> reads,
                       std::span<const View> writes, std::function<void(const Stream&)> body);

  struct Impl;

 private:
  friend Graph record(Device device, const std::function<void(Recorder&)>& body);
  explicit Recorder(Impl& impl) : impl_(impl) {}
  Impl& impl_;
};

class Graph {
 public:
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

  /// Submits all operations. Operations that touch a common byte, one of them writing, keep their
  /// order; others may run side by side. Launches of one graph wait for each other, also from
  /// several threads and streams. Throws Error(device).
  void launch(const Stream& stream);

  /// Every operand whose data is `old` gets `now`; returns how many there were. Operations that
  /// need another kernel for the new alignment get it, and the order is decided anew. If the new
  /// addresses are not right (an overlap, a captured sequence that uses `old`), throws Error and
  /// changes nothing.
  std::size_t rebind(const void* old, void* now);
  /// Another number for scalar argument `input` of call `operation`, in all of its kernels, of the
  /// same dtype and weakness.
  void set_scalar(std::size_t operation, std::size_t input, Scalar value);

  struct Operation {
    std::string name;   ///< the function's, or "copy", "fill", or the sequence's
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
