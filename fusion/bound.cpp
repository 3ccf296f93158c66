#include "fusion/bound.hpp"

#include <algorithm>
#include <cmath>

namespace kiln::fusion {
namespace {

struct Format {
  int mantissa_bits;      ///< with the hidden one
  int smallest_exponent;  ///< of a normal number
  int largest_exponent;
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {11, -14, 15};
    case DType::bf16: return {8, -126, 127};
    case DType::f64: return {53, -1022, 1023};
    default: return {24, -126, 127};
  }
}

int exponent_of(long double x, const Format& format) {
  if (x == 0) return format.smallest_exponent;
  return std::clamp(std::ilogb(x), format.smallest_exponent, format.largest_exponent);
}

const Bounds& bounds_of(const OpInfo& op, DType dtype) {
  return dtype == DType::f64 ? op.f64 : op.f32;
}

bool is_always_rounded(const Bounds& bounds) {
  return std::max({bounds.own, bounds.libm, bounds.cuda, bounds.hip}) <= 0.5;
}

// What Accuracy::fast has a hardware instruction for in f32, besides everything that is made of
// them.
bool has_fast_method(const OpInfo& op) {
  switch (op.op) {
    case Op::div:
    case Op::sqrt:
    case Op::reciprocal: return true;
    default: return false;
  }
}

}  // namespace

std::optional<double> error_bound(const OpInfo& op, DType result, Accuracy accuracy,
                                  DeviceType device) {
  const Bounds& bounds = bounds_of(op, result);
  const bool exact = std::max(bounds.own, bounds.libm) == 0;
  if (exact) return 0;
  const bool on_gpu = device != DeviceType::cpu;
  if (accuracy == Accuracy::fast && on_gpu && result != DType::f64 &&
      (!is_always_rounded(bounds) || has_fast_method(op))) {
    return std::nullopt;
  }
  if (result != DType::f64 && result != DType::f32) return kStorageBound;
  switch (device) {
    case DeviceType::cuda: return bounds.cuda;
    case DeviceType::hip: return bounds.hip;
    case DeviceType::cpu: break;
  }
  return accuracy == Accuracy::strict ? bounds.libm : bounds.own;
}

bool is_library_function(const OpInfo& op, DType result, Accuracy accuracy, DeviceType device) {
  if (is_always_rounded(bounds_of(op, result))) return false;
  return device != DeviceType::cpu || accuracy == Accuracy::strict || result == DType::f64;
}

double ulp_error(long double actual, long double exact, DType dtype) {
  if (std::isnan(exact) || std::isnan(actual))
    return std::isnan(exact) == std::isnan(actual) ? 0 : kWrongResult;
  if (actual == 0 && exact == 0)
    return std::signbit(actual) == std::signbit(exact) ? 0 : kWrongResult;
  if (actual == exact) return 0;
  const Format format = format_of(dtype);
  const long double beyond = std::ldexp(1.0L, format.largest_exponent + 1);
  const long double target = std::clamp(exact, -beyond, beyond);
  const long double distance = std::fabs(std::clamp(actual, -beyond, beyond) - target);
  const int unit = exponent_of(target, format) - format.mantissa_bits + 1;
  return static_cast<double>(std::ldexp(distance, -unit));
}

namespace {

long double normal_tail_term(long double x) {
  return x < 0 ? std::erfc(-x * std::sqrt(0.5L)) / 2 * x * x / 2 : 0;
}

}  // namespace

long double largest_term(Op op, std::span<const long double> operands) {
  const auto size = [&](std::size_t i) { return std::fabs(operands[i]); };
  switch (op) {
    case Op::logaddexp: return std::max(size(0), size(1));
    case Op::lerp: return std::max({size(0), size(0) * size(2), size(1) * size(2)});
    // The rounding of x alone moves the logarithm of the tail by x^2 half units.
    case Op::ndtr: return normal_tail_term(operands[0]);
    case Op::lgamma: return operands[0] < 0 ? std::fabs(std::lgamma(1 - operands[0])) : 0;
    default: return 0;
  }
}

long double largest_term(std::string_view composition, long double operand) {
  if (composition == "tanhshrink") return std::fabs(operand);
  if (composition == "gelu") return std::fabs(operand) * normal_tail_term(operand);
  if (composition == "logit") return std::fabs(std::log(operand));
  return 0;
}

std::optional<double> composition_bound(DType result, Accuracy accuracy, DeviceType device) {
  const bool promised = accuracy != Accuracy::fast || device == DeviceType::cpu;
  if (bits(result) != 16 || !promised) return std::nullopt;
  return kStorageBound;
}

double counted_error(long double largest_term, long double actual, long double exact, DType dtype) {
  const double error = ulp_error(actual, exact, dtype);
  const bool of_result = !std::isfinite(largest_term) || largest_term <= std::fabs(exact);
  if (error <= 0.5 || error == kWrongResult || of_result) return error;
  const Format format = format_of(dtype);
  return std::ldexp(error, exponent_of(exact, format) - exponent_of(largest_term, format));
}

double counted_error(Op op, long double actual, long double exact,
                     std::span<const long double> operands, DType dtype) {
  const double error = ulp_error(actual, exact, dtype);
  if (error <= 0.5) return error;
  const long double term = largest_term(op, operands);
  if (term > 0 && actual == 0 && exact == 0) return 0;  // the sign of terms that cancelled
  const bool overflows = term > 0 && std::ilogb(term) >= format_of(dtype).largest_exponent;
  if (op == Op::lerp && overflows) return 0;
  return counted_error(term, actual, exact, dtype);
}

}  // namespace kiln::fusion
