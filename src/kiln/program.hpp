// A graph of array operations that takes several kernels: kiln decides which operations share one,
// keeps what lies between in a workspace of the caller, and can say why. Besides what a Function
// can, a program has shape ops (kiln/shape.hpp), reductions over any mix of axes, and calls of the
// caller between its kernels (kiln/library_call.hpp).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/function.hpp"
#include "kiln/graph.hpp"
#include "kiln/library_call.hpp"
#include "kiln/shape.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// One kernel of a program or a call of the caller, for people and tools.
struct ProgramKernel {
  std::string name;                 ///< the kernel's, or the call's
  bool call = false;                ///< of the caller
  std::string expression;           ///< in the text form; t12 is a value of another kernel
  std::string reason;               ///< why it does not share the kernel before it
  std::vector<std::size_t> after;   ///< kernels that must have run
  std::vector<std::string> reads;   ///< arguments, and values of other kernels
  std::vector<std::string> writes;  ///< outputs, and values for other kernels
  std::size_t operations = 0;
  std::uint64_t bytes = 0;           ///< that it moves
  std::uint64_t op_by_op_bytes = 0;  ///< unfused: with a kernel for each of its operations
};

/// What a program moves and needs, beside what it would unfused: then every operation is a kernel
/// of its own, and a composition such as gelu is the operations that it consists of.
struct ProgramInfo {
  std::string program;
  std::vector<ProgramKernel> kernels;
  std::uint64_t bytes = 0;           ///< that all kernels move
  std::uint64_t op_by_op_bytes = 0;  ///< unfused: with a kernel for every operation
  std::uint64_t lower_bound = 0;     ///< every input read and every output written once
  std::uint64_t workspace_bytes = 0;
  std::uint64_t op_by_op_workspace = 0;  ///< unfused; 0 if none is needed
};

/// An argument by its name (`argument_names`).
struct NamedArgument {
  std::string_view name;
  Argument argument;
};
/// An output by its name (`output_names`); one without a name is out0, out1, ... by its position.
struct NamedView {
  std::string_view name;
  View view;
};

/// A program; copies are the same one. Safe from any thread, but calls that run at the same time
/// need a workspace each. What was captured from a stream while it ran needs one of the copies for
/// as long as it is replayed.
class Program {
 public:
  /// The bytes that such a call needs as workspace; nothing is compiled. Takes no lock and
  /// allocates nothing where run() does not.
  std::size_t workspace_bytes(const Stream& stream, std::span<const Argument> inputs,
                              std::span<const View> outputs) const;

  /// Runs all kernels in order on `stream`. Inputs and outputs are as those of a Function; where an
  /// output has been reduced, its view may leave the reduced axes out. `workspace` is a view of at
  /// least workspace_bytes() bytes on the device, aligned to 16; it may be empty if none are
  /// needed, and holds nothing between calls. An output may be exactly the view of an input that no
  /// later kernel reads. Throws Error as Function::call does.
  ///
  /// A repeated run takes no lock and allocates nothing. The same is true of a shape that was never
  /// seen, once two of its class have been run: calls in which the same axes have one element, the
  /// same axes are equally long and operands have gaps along the same ones, of such sizes that all
  /// is fused and split alike (src/README.md says when). The first runs whose kernels are chosen in
  /// another way add to what is known of them, which is bounded, under a lock. Such a run gives the
  /// bits and needs the workspace of a plan made for its shape, of which nothing is kept; a shape
  /// that has come 256 times gets a plan. Calls are planned shape by shape if an output is an input
  /// or overlaps one, and in programs with calls of the caller or with packed arguments.
  void run(const Stream& stream, std::span<const Argument> inputs, std::span<const View> outputs,
           const View& workspace) const;
  void run(const Stream& stream, std::initializer_list<Argument> inputs,
           std::initializer_list<View> outputs, const View& workspace) const {
    run(stream, std::span(inputs.begin(), inputs.size()),
        std::span(outputs.begin(), outputs.size()), workspace);
  }

  /// The same without an exception: what run() would throw. Kernels before the one that fails have
  /// been launched.
  std::optional<Error> try_run(const Stream& stream, std::span<const Argument> inputs,
                               std::span<const View> outputs, const View& workspace) const noexcept;

  /// With operands by name, in any order: run(stream, {{"x", x}, {"w", w}}, {{"y", y}}, workspace).
  /// Throws Error(invalid_argument) that says which are the program's for one that is missing, is
  /// given twice or is none of it.
  void run(const Stream& stream, std::span<const NamedArgument> inputs,
           std::span<const NamedView> outputs, const View& workspace) const;
  void run(const Stream& stream, std::initializer_list<NamedArgument> inputs,
           std::initializer_list<NamedView> outputs, const View& workspace) const {
    run(stream, std::span(inputs.begin(), inputs.size()),
        std::span(outputs.begin(), outputs.size()), workspace);
  }

  /// The kernels that such a run uses, several compiled side by side; finds or compiles them,
  /// whatever Options::on_miss says, and launches nothing.
  KernelInfo prepare(const Stream& stream, std::span<const Argument> inputs,
                     std::span<const View> outputs) const;
  /// What such a run would use now, as Function::look_up tells: KernelInfo::fallback says whether
  /// one of its kernels is missing.
  KernelInfo look_up(const Stream& stream, std::span<const Argument> inputs,
                     std::span<const View> outputs) const;
  /// In the background, and without memory, as Function::prepare does.
  Preparation prepare(Device device, const Specification& specification) const;

  /// A run with everything decided but pointers and numbers: for callers who keep the same layouts.
  /// Checks and compiles as a run does, launches nothing. The workspace is used at each launch.
  Launch bind(const Stream& stream, std::span<const Argument> inputs, std::span<const View> outputs,
              const View& workspace) const;
  Launch bind(const Stream& stream, std::initializer_list<Argument> inputs,
              std::initializer_list<View> outputs, const View& workspace) const {
    return bind(stream, std::span(inputs.begin(), inputs.size()),
                std::span(outputs.begin(), outputs.size()), workspace);
  }
  Launch bind(const Stream& stream, std::span<const NamedArgument> inputs,
              std::span<const NamedView> outputs, const View& workspace) const;
  Launch bind(const Stream& stream, std::initializer_list<NamedArgument> inputs,
              std::initializer_list<NamedView> outputs, const View& workspace) const {
    return bind(stream, std::span(inputs.begin(), inputs.size()),
                std::span(outputs.begin(), outputs.size()), workspace);
  }

  /// Records a run of the program as operations of a graph; kernels that are missing are compiled
  /// side by side. Calls of the caller are captured
  /// (Recorder::sequence), with the addresses of `workspace` that they are given.
  void record(Recorder& recorder, Device device, std::span<const Argument> inputs,
              std::span<const View> outputs, const View& workspace) const;

  /// Which operations went where, and why.
  ProgramInfo explain(const Stream& stream, std::span<const Argument> inputs,
                      std::span<const View> outputs) const;

  const std::string& name() const;
  std::string expression() const;

  struct [[gnu::visibility("hidden")]] Impl;
  explicit Program(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// A program of what a function computes, which need not fit one kernel.
Program program(const Function& function);

/// Traces `body` as fuse() does.
template <class F>
Program trace_program(std::string_view name, F&& body, const Options& options = {}) {
  return program(fuse(name, std::forward<F>(body), options));
}
/// From the text form: statements separated by `;`, the outputs last.
Program parse_program(std::string_view name, std::string_view text, const Options& options = {});

std::vector<std::string> argument_names(const Program& program);
std::vector<std::string> output_names(const Program& program);

}  // namespace kiln

#pragma GCC visibility pop
