// Describing functions where the number of operands is known at run time only: for bindings of
// other languages, and for programs that read graphs from files. What fuse(), apply() and call() do
// for callables of C++.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/function.hpp"
#include "kiln/library_call.hpp"
#include "kiln/options.hpp"
#include "kiln/value.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// A function of arguments with these names; `body` is called once, here, with a Value for each,
/// and returns the outputs. What it throws is thrown. Throws Error(invalid_argument) for a name
/// that the text form could not write, or that is there twice, and where there are no outputs.
Function trace(std::string_view name, std::span<const std::string> arguments,
               const Options& options,
               const std::function<std::vector<Value>(std::span<const Value>)>& body);

/// Adds the op, composition, reduction or shape op of that name, as the text form would: axes,
/// extents and indices are integer literals. Throws Error(invalid_argument) for an unknown name, a
/// wrong number of operands, or operands of two different functions.
Value apply(std::string_view function, std::span<const Value> operands);

/// Adds a call of the caller's own (LibraryCall) with `results` results.
std::vector<Value> call(const LibraryCall& call, std::size_t results,
                        std::span<const Value> inputs);

/// For each output, the argument that it updates in place (put() in kiln/shape.hpp), exactly whose
/// view it has to be in every call; nothing for one that is stored anew.
std::vector<std::optional<std::size_t>> updated_arguments(const Function& function);

/// Every name that apply() knows, sorted.
std::vector<std::string> function_names();

}  // namespace kiln

#pragma GCC visibility pop
