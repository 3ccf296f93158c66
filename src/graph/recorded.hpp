// One operation of a recorded graph: what it touches, what it is for the driver, and what moving
// one of its operands makes of it. The list, its order and its replay are in graph.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "call/callable.hpp"
#include "call/custom_kernel.hpp"
#include "jit/device/dependencies.hpp"
#include "jit/device/graph.hpp"
#include "kiln/copy.hpp"
#include "kiln/function.hpp"
#include "kiln/kernel.hpp"

namespace kiln {

struct RecordedCall {
  std::shared_ptr<Callable> callable;  ///< owns what the plan names
  std::shared_ptr<const Plan> plan;    ///< null until its kernels are there
  std::vector<Argument> inputs;
  std::vector<View> outputs;
};
struct RecordedKernel {
  std::shared_ptr<Kernel::Impl> kernel;  ///< owns `loaded`
  const LoadedKernel* loaded = nullptr;  ///< null until it is there
  Grid grid;
  std::vector<Argument> arguments;
};
struct RecordedFill {
  View to;
  std::uint8_t byte = 0;
};
struct RecordedSequence {
  std::string name;
  std::vector<View> reads;
  std::vector<View> writes;
  std::function<void(const Stream&)> body;
};
using Recorded = std::variant<RecordedCall, RecordedKernel, Copy, RecordedFill, RecordedSequence>;

// Checked, with its kernel found. Each throws what the call itself would throw. Kernels that would
// be compiled are added to `missing`: when they have been built together, complete() finds them.
Recorded record_call(std::shared_ptr<Callable> callable, const Stream& stream,
                     std::span<const Argument> inputs, std::span<const View> outputs,
                     std::vector<WantedKernel>& missing);
Recorded record_kernel(const Kernel& kernel, const Stream& stream, const Grid& grid,
                       std::span<const Argument> arguments, std::vector<WantedKernel>& missing);
/// A block of bytes, or the call that copies.
Recorded record_copy(const Copy& copy, const Stream& stream, std::vector<WantedKernel>& missing);
/// Makes what it lacks. Throws Error.
void complete(Recorded& recorded, const Stream& stream);
Recorded record_fill(const View& to, std::uint8_t byte, Device device);
Recorded record_sequence(std::string_view name, Device device, std::span<const View> reads,
                         std::span<const View> writes, std::function<void(const Stream&)> body);

/// The bytes that it reads, early or not, and writes; a strided view is all from its lowest to its
/// highest byte.
jit::Access access_of(const Recorded& recorded);

/// The driver's work, one after the other; never empty.
using Work = decltype(jit::GraphNode::work);
std::vector<Work> works_of(const Recorded& recorded, const Stream& stream);

/// Whether two states of one operation differ in no more than the values of parameters.
bool same_kernels(const Recorded& a, const Recorded& b);

/// Memory that is somewhere else now: operands whose data is one of `bytes` bytes from `old` on.
struct Move {
  const void* old = nullptr;
  void* now = nullptr;
  std::size_t bytes = 1;

  bool applies_to(const View& view) const;
};
bool uses(const Recorded& recorded, const Move& move);
/// The operation with those operands moved, and how many they were. Throws what recording it so
/// would throw, and Error(unsupported) for a sequence that uses them.
struct Moved {
  Recorded recorded;
  std::size_t operands = 0;
};
Moved move_operands(const Recorded& recorded, const Move& move, const Stream& stream);

/// The operation with another number for its scalar argument `input`. Throws
/// Error(invalid_argument).
Recorded with_scalar(const Recorded& recorded, std::size_t operation, std::size_t input,
                     Scalar value);

/// For people: the function's or kernel's name, "copy", "fill" or the sequence's.
std::string name_of(const Recorded& recorded);
/// The kernel's entry; empty for what is not one.
std::string entry_of(const Recorded& recorded);

}  // namespace kiln
