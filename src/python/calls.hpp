// Calls from Python: what a Function, a Program and a recorded call take.
#pragma once

#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kiln/dynamic.hpp"
#include "kiln/error.hpp"
#include "kiln/prepare.hpp"
#include "kiln/program.hpp"
#include "python/arrays.hpp"
#include "python/objects.hpp"

namespace kiln::python {

[[noreturn]] inline void fail(const std::string& function, const std::string& message) {
  throw Error(Code::invalid_argument, function + ": " + message);
}

/// A function with the names of its operands as Python's objects, and the types of outputs that it
/// has been asked for.
class Described {
 public:
  explicit Described(Function function);
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  const Function& function() const { return function_; }
  const std::vector<std::string>& arguments() const { return arguments_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  /// For each output, the argument that it updates in place.
  const std::vector<std::optional<std::size_t>>& updated() const { return updated_; }
  /// The number of the argument of that name.
  std::optional<std::size_t> find(PyObject* name) const;
  /// The outputs' types for such inputs.
  const OutputTypes& types_for(std::span<const Argument> inputs);
  std::string text() const;

 private:
  Function function_;
  std::vector<std::string> arguments_;
  std::vector<std::string> outputs_;
  std::vector<std::optional<std::size_t>> updated_;
  std::vector<nb::object> names_;  ///< interned
  std::map<std::vector<std::int64_t>, OutputTypes> types_;
};

struct PyFunction : Described {
  using Described::Described;
};

struct PyProgram : Described {
  explicit PyProgram(const Function& function)
      : Described(function), program(kiln::program(function)) {}
  Program program;
};

/// The operands of one call, valid while this and Python's arguments live.
class Operands {
 public:
  /// `keywords` may be null. Outputs that are not given are the arguments that they update in
  /// place, or are allocated. Throws Error, also for Python's arguments that are no operands.
  Operands(Described& callee, PyObject* arguments, PyObject* keywords);
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  const Stream& stream() const { return stream_; }
  std::span<const Argument> inputs() const { return inputs_; }
  std::span<const View> outputs() const { return outputs_; }
  /// A workspace of so many bytes: the one that was given, or a new one.
  View workspace(std::size_t bytes);

  /// The array or the tuple of arrays that the call returns. A new reference.
  PyObject* result() const;
  /// Every operand of the call, for what outlives it: the inputs, the outputs, the workspace.
  nb::list kept() const;
  /// The same arrays, each with its address.
  std::vector<std::pair<const void*, nb::object>> memory() const;
  /// The first of them; null if there is none.
  PyObject* first_array() const { return first_; }

 private:
  void take_arguments(PyObject* arguments, PyObject* keywords);
  void take_outputs(PyObject* out);
  void take_given_outputs(PyObject* out);
  void choose_stream(PyObject* chosen);
  void see(PyObject* array, const View& view);
  PyObject* allocated(DType dtype, const Dims& shape);

  // The lists of a call of up to about ten operands lie here: it allocates nothing.
  alignas(std::max_align_t) std::array<std::byte, 4096> memory_;
  std::pmr::monotonic_buffer_resource lists_{memory_.data(), memory_.size()};
  Described& callee_;
  Arrays views_;
  std::pmr::vector<PyObject*> given_{&lists_};  ///< borrowed
  PyObject* out_ = nullptr;                     ///< borrowed
  PyObject* chosen_ = nullptr;
  PyObject* workspace_given_ = nullptr;
  PyObject* first_ = nullptr;
  std::pmr::vector<nb::object> results_{&lists_};
  nb::object workspace_array_;  ///< once there is one
  View workspace_view_;
  Stream stream_;
  bool foreign_stream_ = false;  ///< it is not the one on which the framework's memory is reused
  std::pmr::vector<Argument> inputs_{&lists_};
  std::pmr::vector<View> outputs_{&lists_};
};

/// That such a call needs.
std::size_t workspace_bytes(const PyProgram& program, const Operands& operands);

/// The stream of a later launch: `chosen`, or what the framework of `array` works on now.
Stream stream_for(Device device, PyObject* array, PyObject* chosen);

/// Adds Function, Program, Launch and Preparation to the module.
void bind_calls(nb::module_& module);
/// Adds Kernel.
void bind_kernels(nb::module_& module);
/// Adds Graph, Recorder and copies.
void bind_graphs(nb::module_& module);
/// Adds Value and what traces functions.
void bind_tracing(nb::module_& module);
/// Adds the cache.
void bind_cache(nb::module_& module);
/// Adds devices and the settings of the process.
void bind_process(nb::module_& module);

/// Options by their names. Throws Error(invalid_argument).
Options options_of(const std::string& rounding, const std::string& accuracy,
                   const std::string& on_miss);
OnMiss on_miss_of(const std::string& on_miss);
Device device_of(nb::handle device);

nb::object kernel_info(const KernelInfo& info);
nb::object explanation(const ProgramInfo& info);

}  // namespace kiln::python
