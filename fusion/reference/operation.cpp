// The meaning of every op, written once more and independently of the device code: floats and
// complex numbers through <cmath> in long double, integers as mathematics. The definitions are
// those of the table "Defined where others are silent" in the documentation of numerics. Here is
// which of them a node takes, and what gives a result of another kind.
#include "fusion/reference/operation.hpp"

#include <cmath>
#include <string>

#include "fusion/reference/kinds.hpp"
#include "fusion/reference/random.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion::reference {
namespace {

using Real = long double;

bool compare(Op op, const Value& a, const Value& b) {
  const auto holds = [op](const auto& x, const auto& y) {
    switch (op) {
      case Op::equal: return x == y;
      case Op::not_equal: return x != y;
      case Op::less: return x < y;
      case Op::less_equal: return x <= y;
      case Op::greater: return x > y;
      default: return x >= y;
    }
  };
  if (kind(a.dtype) == Kind::complex) {
    const bool same = a.real == b.real && a.imag == b.imag;
    if (op == Op::equal) return same;
    if (op == Op::not_equal) return !same;
    no_meaning(op, a.dtype);
  }
  return is_floating(a.dtype) ? holds(a.real, b.real) : holds(a.integer, b.integer);
}

bool predicate(Op op, const Value& x) {
  const bool nan = std::isnan(x.real) || std::isnan(x.imag);
  const bool infinite = std::isinf(x.real) || std::isinf(x.imag);
  if (op == Op::isnan) return nan;
  if (op == Op::isinf) return infinite;
  return !nan && !infinite;
}

bool logical(Op op, std::span<const Value> operands) {
  const bool a = operands[0].integer != 0;
  if (op == Op::logical_not) return !a;
  const bool b = operands[1].integer != 0;
  return op == Op::logical_and ? a && b : op == Op::logical_or ? a || b : a != b;
}

}  // namespace

void no_meaning(Op op, DType dtype) {
  throw Error(Code::internal, "reference: " + std::string(info(op).name) + " has no meaning on " +
                                  std::string(name(dtype)));
}

Value operate(const TypedNode& node, std::span<const Value> operands, Rounding rounding) {
  switch (info(node.op).rule) {
    case Rule::compare: return from_integer(node.dtype, compare(node.op, operands[0], operands[1]));
    case Rule::predicate: return from_integer(node.dtype, predicate(node.op, operands[0]));
    case Rule::logical: return from_integer(node.dtype, logical(node.op, operands));
    case Rule::select: return operands[0].integer != 0 ? operands[1] : operands[2];
    case Rule::same:
      if (node.op != Op::abs || operands[0].dtype != DType::c64) break;
      return from_real(node.dtype,
                       rounding == Rounding::each
                           ? round_to(std::hypot(operands[0].real, operands[0].imag), node.dtype)
                           : std::hypot(operands[0].real, operands[0].imag));
    case Rule::random: {
      std::uint64_t place[3];
      for (std::size_t i = 0; i < 3; ++i)
        place[i] = static_cast<std::uint64_t>(operands[i].integer);
      if (node.op == Op::uniform)
        return from_real(node.dtype, uniform(place[0], place[1], place[2]));
      const Real p = normal_probability(place[0], place[1], place[2]);
      const Real x = std::sqrt(2.0L) * inverse_erf(2 * std::fabs(p) - 1);
      const Real number = std::signbit(p) ? x : -x;
      return from_real(node.dtype,
                       rounding == Rounding::each ? round_to(number, node.dtype) : number);
    }
    case Rule::component:
      if (operands[0].dtype != DType::c64) break;
      return from_real(DType::f32, node.op == Op::real ? operands[0].real : operands[0].imag);
    default: break;
  }
  if (kind(node.dtype) == Kind::complex) return operate_complex(node, operands, rounding);
  if (is_floating(node.dtype)) return operate_float(node, operands, rounding);
  return operate_integer(node, operands);
}

}  // namespace kiln::fusion::reference
