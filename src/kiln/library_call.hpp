// Work of the caller's own inside a program: a GEMM, attention, a collective. kiln runs it in its
// place among the fused kernels, on arrays that lie in C order.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "kiln/value.hpp"
#include "kiln/view.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// The functions are called from the threads that trace, run or record the program, also from
/// several at once.
struct LibraryCall {
  std::string name;  ///< for people: explain(), errors, graphs
  /// The dtypes of the results, from those of the inputs.
  std::function<std::vector<DType>(std::span<const DType>)> dtypes;
  /// The shapes of the results, from those of the inputs. May throw Error for inputs that do not
  /// fit.
  std::function<std::vector<Dims>(std::span<const Dims>)> shapes;
  /// Called by Program::run when the kernels before it have been submitted to `stream`, which it
  /// must use too. Inputs may have any strides; outputs are all results, also those that the
  /// program does not use, in C order, and may be an output of the program. In a recorded program
  /// it is captured once and replayed (Recorder::sequence).
  std::function<void(const Stream& stream, std::span<const View> inputs,
                     std::span<const View> outputs)>
      run;
};

/// Adds the call to the callable that is being traced. An input of f16 or bf16 is rounded to it.
/// Throws Error(invalid_argument) without inputs, or where a function of `call` is missing.
std::vector<Value> call(const LibraryCall& call, std::size_t results,
                        std::initializer_list<Value> inputs);
/// For one result.
Value call(const LibraryCall& call, std::initializer_list<Value> inputs);

}  // namespace kiln

#pragma GCC visibility pop
