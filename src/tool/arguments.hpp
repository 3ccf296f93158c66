// What the values of the tool's options mean: NAME=VALUE, NAME=DTYPE[SHAPE]@STRIDES, lists of
// targets, expressions. Everything that is wrong here is a UsageError.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ahead/compile_only.hpp"
#include "kiln/function.hpp"
#include "tool/commands.hpp"

namespace kiln::tool {

struct Assignment {
  std::string name;
  std::string value;
};
/// "NAME=VALUE"; `option` is named in the message.
Assignment parse_assignment(std::string_view option, std::string_view text);
/// Several, each name once.
std::vector<Assignment> parse_assignments(std::string_view option,
                                          const std::vector<std::string>& texts);

/// "x=f32[4096,172]", "x=bf16[64,64]@1,64" (strides in elements), "s=f32" (a number).
ArgumentSpec parse_argument_spec(std::string_view text);

/// "4096,172"; empty for the empty shape.
Dims parse_shape(std::string_view text);

/// A weak number, as in C++: True and False, an integer, or a floating-point number.
Scalar parse_scalar(const std::string& name, std::string_view text);

DType parse_dtype_option(std::string_view option, std::string_view text);

/// One target after the other. A CPU's feature list has commas of its own and stays whole.
std::vector<std::string> parse_targets(const std::vector<std::string>& texts);

/// The function of an expression. An error in the expression is a UsageError.
Function parse_function(const ExpressionOptions& options);

/// The function's outputs by name: its own names; an output without one is "out", or "out0", "out1"
/// and so on by its position where there are several.
std::vector<std::string> named_outputs(const Function& function);

/// The dtype of each output: what `texts` (NAME=DTYPE) says, else its natural one.
std::vector<DType> output_dtypes(const Function& function, Specification specification,
                                 const std::vector<std::string>& names,
                                 const std::vector<std::string>& texts);

/// A whole specification for a kernel without memory.
Specification parse_specification(const Function& function, const KernelOptions& options);

}  // namespace kiln::tool
