// What each op of the table means, for the reference interpreter: on floats in long double, on
// integers as mathematics modulo 2^width.
#pragma once

#include <span>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/reference/value.hpp"

namespace kiln::fusion::reference {

/// The result of `node`, which is neither a leaf nor a conversion, on `operands`. Under
/// Rounding::each it is rounded to the node's dtype, and `+ - * / sqrt fma` are those of that
/// dtype's arithmetic.
Value operate(const TypedNode& node, std::span<const Value> operands, Rounding rounding);

/// The result of ops of one and two real arguments in f64 throughout: to a few units in its last
/// place, or logaddexp in that of its larger operand, which is enough to judge almost every
/// narrower float by, in a tenth of the time.
double operate_quickly(Op op, double x);
double operate_quickly(Op op, double x, double y);

}  // namespace kiln::fusion::reference
