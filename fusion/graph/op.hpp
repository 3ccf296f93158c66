// The op table: every operation of kiln in one row, with all that is known of it. The parser,
// inference, passes, partition, emit, the published table and the tests all read this one table, so
// that they cannot disagree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kiln/dtype.hpp"

namespace kiln::fusion {

enum class Op : std::uint8_t {
  // leaves
  input,
  scalar,
  constant,
  iota,
  // conversions: `cast` was written by the user and always rounds; `promote` is what the lattice
  // implies and rounds only under Rounding::each
  cast,
  promote,
  bitcast,
  // unary
  abs,
  neg,
  sign,
  square,
  sqrt,
  rsqrt,
  cbrt,
  reciprocal,
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  sigmoid,
  erf,
  erfc,
  ndtr,  ///< the normal distribution function, Phi(x) = erfc(-x / sqrt(2)) / 2
  erfinv,
  lgamma,
  floor,
  ceil,
  round,
  trunc,
  isnan,
  isinf,
  isfinite,
  logical_not,
  bitwise_not,
  real,
  imag,
  conj,
  popcount,
  clz,
  // binary
  add,
  sub,
  mul,
  div,
  floor_divide,
  remainder,
  fmod,
  power,
  maximum,
  minimum,
  fmax,
  fmin,
  atan2,
  hypot,
  logaddexp,
  copysign,
  nextafter,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  logical_xor,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  left_shift,
  right_shift,
  // ternary
  where,
  fma,
  clip,
  lerp,
  // random: seed, offset and the number of the element
  uniform,
  normal,
  // reductions, which keep their axes with size one
  sum,
  mean,
  prod,
  reduce_max,
  reduce_min,
  reduce_any,
  reduce_all,
  argmax,
  argmin,
  // running results along one axis, which have the shape of their operand
  cumsum,
  cumprod,
  cummax,
  // shape: each element of the result is one of an operand (shape_ops.hpp)
  reshape,
  transpose,
  swapaxes,
  slice,
  expand_dims,
  squeeze,
  concat,
  // along an axis that is written, by integers that are data (indexed.hpp)
  take,
  put,
  bound,
  // programs: a tuple, one value longer than its first operand, and a custom call on a tuple
  tuple,
  custom_call,
  // programs whose views are placed (place_views.hpp): other strides over a stored value, and an
  // array that several kernels write
  view,
  join,
};

/// How the dtypes of an op's operands and of its result follow from what it is given.
enum class Rule : std::uint8_t {
  leaf,        ///< no operands
  index,       ///< no operands; an integer or float dtype is written in the node
  convert,     ///< the dtype is written in the node
  same,        ///< computed in and returns the operands' common dtype; bools have + * and an order
  integral,    ///< as `same`; integers and bool are returned unchanged (floor, round, ...)
  floating,    ///< common dtype, integers and bool become f32; bools have no /
  compare,     ///< computed in the common dtype, returns bool
  predicate,   ///< one operand of any dtype, returns bool
  logical,     ///< operands are taken to bool, returns bool
  bitwise,     ///< common dtype, which must be an integer or bool
  shift,       ///< the first operand's dtype; both must be integers
  select,      ///< the first operand is taken to bool, the others to their common dtype
  accumulate,  ///< floats and c64 stay, signed integers and bool become i64, unsigned ones u64
  position,    ///< one operand of any dtype but c64, returns i64
  component,   ///< c64 gives f32, everything else is unchanged (real, imag)
  random,      ///< integers, taken to u64; returns f32
  indexed,     ///< the first operand's dtype; the second operand is of any integer dtype
};

/// The largest error of an op's result over all inputs, in units in the last place as
/// fusion/reference/bound.hpp counts them; 0.5 is correctly rounded, 0 exact. Which of the four
/// holds depends on whose function computes it.
struct Bounds {
  double own = 0;   ///< the device code's functions for host compilers: f32 on the CPU, not strict
  double libm = 0;  ///< the host's library: f64 on the CPU, and f32 under strict
  double cuda = 0;  ///< on NVIDIA GPUs: NVRTC's library, or the preamble's own functions
  double hip = 0;   ///< on AMD GPUs: hiprtc's library, or the preamble's own functions
};

/// The largest error of a c64 result, as fusion/reference/bound.hpp counts it. It holds on every
/// device: all compute in f64 on the way.
struct ComplexBound {
  double error;
  bool same_bits;  ///< on every device: only operations that all of them round alike
};

/// For which operands the result is never below zero, though it may be -0 or NaN.
enum class Sign : std::uint8_t {
  unknown,
  never_negative,   ///< of any
  magnitude,        ///< of floats, and of an integer that is not below zero (other integers wrap)
  square,           ///< of floats; integers wrap
  of_any_operand,   ///< where one of them is never below zero
  of_all_operands,  ///< where none of them is below zero; integers wrap
  product,          ///< the same, and where both are the same
};

/// Whether the result of a larger float is never smaller. NaN gives NaN, and nothing else does.
enum class Order : std::uint8_t {
  unknown,
  increasing,
  increasing_from_zero,  ///< of floats that are not below zero
};

/// What becomes of the operands' relative errors.
enum class RelativeError : std::uint8_t {
  amplified,         ///< or unknown
  kept,              ///< the result's is no more than theirs together, and what rounding adds
  kept_of_one_sign,  ///< kept where all that is added up has one sign
  dampened,          ///< no more than the operand's, and the function's own
};

/// The cost of operations that take a few instructions.
inline constexpr double kMostCheap = 5;

/// What else is known of an op: the columns that most rows leave at these defaults. What a column
/// claims holds; a default claims nothing.
struct OpTraits {
  std::string_view infix{};  ///< of the text form, and of device code on floats (div: on f64)
  double cost = 1;           ///< in multiples of an f32 addition, as an H200 takes chains of it
  double narrow_cost = 0;    ///< the same of results of 16 bits; 0: as of others
  bool cheap = true;         ///< better computed twice than stored; of a cost up to kMostCheap
  Sign sign = Sign::unknown;
  Order order = Order::unknown;
  RelativeError relative_error = RelativeError::amplified;
  bool ieee = false;              ///< IEEE 754 arithmetic: every device rounds it correctly
  bool fast_instruction = false;  ///< Accuracy::fast has one on GPUs, although it is IEEE's
  bool undoes_itself = false;     ///< f(f(x)) is x
  bool idempotent = false;        ///< f(x, x) is x
  bool refuses_bools = false;     ///< of Rule::floating: arithmetic, as that of Rule::same
  std::optional<Op> on_bools{};   ///< what arithmetic of Rule::same is on bools, if it is anything
  std::optional<ComplexBound> c64{};  ///< nothing for an op that has no complex arithmetic
  std::string_view
      combiner{};  ///< of a reduction or running result: its struct in preamble/reduce.h
};

struct OpInfo : OpTraits {
  Op op = Op::input;
  std::string_view name{};  ///< in the text form and the API
  int arity = 0;
  Rule rule = Rule::leaf;
  Bounds f32{};  ///< of an f32 result
  Bounds f64{};  ///< of an f64 result
};

const OpInfo& info(Op op);
/// The ops that work element by element.
std::span<const OpInfo> all_ops();
/// The ones that work along axes (axes.hpp). They are written by calls too, but are not reserved
/// names.
std::span<const OpInfo> all_reductions();
inline bool is_reduction(Op op) { return op >= Op::sum && op <= Op::argmin; }
/// A reduction that gives the index of an element and not a value.
inline bool is_arg_reduction(Op op) { return info(op).rule == Rule::position; }
/// A running result.
inline bool is_scan(Op op) { return op >= Op::cumsum && op <= Op::cummax; }
/// Written with axes.
inline bool has_axes(Op op) { return is_reduction(op) || is_scan(op); }
/// What moves elements and computes nothing: only a Program can.
inline bool is_shape_op(Op op) { return op >= Op::reshape && op <= Op::concat; }
/// A shape op of one operand, whose elements it shows in another shape.
inline bool is_view_op(Op op) { return is_shape_op(op) && op != Op::concat; }
/// A view op whose result has the operand's elements in the operand's C order.
inline bool keeps_element_order(Op op) {
  return op == Op::reshape || op == Op::expand_dims || op == Op::squeeze;
}
/// What takes from integers that are data where to read, to write or to end.
inline bool is_indexed(Op op) { return op >= Op::take && op <= Op::bound; }
/// Whose payload is a list of integers in the graph's tables.
inline bool has_list(Op op) { return is_shape_op(op) || is_indexed(op); }
/// What is computed element by element, or a leaf.
inline bool is_elementwise(Op op) { return op < Op::sum; }
/// Whether complex numbers mean something to the op.
bool takes_complex(Op op);
/// Whether operands of that dtype do, all of them: what inference does not refuse.
bool accepts(const OpInfo& op, DType dtype);
std::optional<Op> find_reduction(std::string_view name);

/// The op of that name that a user may write by a call of its name on values, or nothing.
std::optional<Op> find_op(std::string_view name);

}  // namespace kiln::fusion
