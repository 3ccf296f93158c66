// The meaning of ops that compute, by the kind of their result; what gives a result of another kind
// than it takes is in operation.cpp.
#pragma once

#include <span>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/reference/value.hpp"

namespace kiln::fusion::reference {

Value operate_float(const TypedNode& node, std::span<const Value> operands, Rounding rounding);
Value operate_integer(const TypedNode& node, std::span<const Value> operands);
Value operate_complex(const TypedNode& node, std::span<const Value> operands, Rounding rounding);

long double inverse_erf(long double x);

/// Throws Error(internal): inference lets no such node pass.
[[noreturn]] void no_meaning(Op op, DType dtype);

}  // namespace kiln::fusion::reference
