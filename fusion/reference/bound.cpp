#include "fusion/reference/bound.hpp"

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

template <class Entry>
const Bounds& bounds_of(const Entry& entry, DType dtype) {
  return dtype == DType::f64 ? entry.f64 : entry.f32;
}

bool is_always_rounded(const Bounds& bounds) {
  return std::max({bounds.own, bounds.libm, bounds.cuda, bounds.hip}) <= 0.5;
}

}  // namespace

namespace {

// Of a result under storage or strict, or on the CPU, where fast is no different.
double promised(const Bounds& bounds, DType result, Accuracy accuracy, DeviceType device) {
  if (std::max(bounds.own, bounds.libm) == 0) return 0;
  if (result != DType::f64 && result != DType::f32) return kStorageBound;
  switch (device) {
    case DeviceType::cuda: return bounds.cuda;
    case DeviceType::hip: return bounds.hip;
    case DeviceType::cpu: break;
  }
  return accuracy == Accuracy::strict ? bounds.libm : bounds.own;
}

bool is_library(const Bounds& bounds, DType result, Accuracy accuracy, DeviceType device) {
  if (is_always_rounded(bounds)) return false;
  return device != DeviceType::cpu || accuracy == Accuracy::strict || result == DType::f64;
}

bool is_approximate(Accuracy accuracy, DType result, DeviceType device) {
  return accuracy == Accuracy::fast && device != DeviceType::cpu && result != DType::f64;
}

}  // namespace

std::optional<double> error_bound(const OpInfo& op, DType result, Accuracy accuracy,
                                  DeviceType device) {
  const Bounds& bounds = bounds_of(op, result);
  const bool approximate = is_approximate(accuracy, result, device);
  if (approximate && (!is_always_rounded(bounds) || op.fast_instruction)) return std::nullopt;
  return promised(bounds, result, accuracy, device);
}

std::optional<double> composition_bound(const Composition& composition, DType result,
                                        Accuracy accuracy, DeviceType device) {
  const Bounds& bounds = bounds_of(composition, result);
  const bool exact = std::max(bounds.own, bounds.libm) == 0;
  if (is_approximate(accuracy, result, device) && !exact) return std::nullopt;
  return promised(bounds, result, accuracy, device);
}

bool is_library_function(const OpInfo& op, DType result, Accuracy accuracy, DeviceType device) {
  return is_library(bounds_of(op, result), result, accuracy, device);
}

bool is_library_function(const Composition& composition, DType result, Accuracy accuracy,
                         DeviceType device) {
  return is_library(bounds_of(composition, result), result, accuracy, device);
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

bool is_moderate(long double x) {
  const long double size = std::fabs(x);
  return size == 0 || (size >= 0x1p-20L && size <= 0x1p6L);
}

}  // namespace

double fast_error(std::string_view function, long double actual, long double exact,
                  std::span<const long double> operands, DType dtype) {
  if (!is_moderate(exact) || !std::ranges::all_of(operands, is_moderate)) return 0;
  if (!std::isfinite(actual)) return kWrongResult;
  const Format format = format_of(dtype);
  const long double stored = std::ldexp(1.0L, exponent_of(exact, format) - format.mantissa_bits);
  long double size = std::max(1.0L, std::fabs(exact));
  if (function == "tan") size *= size;
  return static_cast<double>(std::max(0.0L, std::fabs(actual - exact) - stored) / size);
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

long double largest_term(std::string_view composition, long double x, long double exact,
                         DType dtype) {
  if (composition == "tanhshrink") return std::fabs(x);
  if (composition == "logit") return std::fabs(std::log(x));
  long double term = composition == "gelu" ? std::fabs(x) * normal_tail_term(x) : 0;
  if (bits(dtype) == 16 || x >= 0) return term;
  if (composition == "quick_gelu") term = std::fabs(exact * 1.702L * x);
  if (composition == "gelu_tanh")
    term = std::fabs(exact * 1.5957691216057308L * (x + 0.044715L * x * x * x));
  const bool has_small_factor =
      term > 0 || composition == "silu" || composition == "gelu" || composition == "mish";
  if (!has_small_factor) return 0;
  return std::max(term, std::fabs(x) * std::ldexp(1.0L, format_of(dtype).smallest_exponent));
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

namespace {

long double larger_part(const WideComplex& z) {
  return std::max(std::fabs(z.real()), std::fabs(z.imag()));
}

double part_error(long double actual, long double exact, long double exact_other) {
  const bool any_sign = std::isinf(exact) && std::isnan(exact_other);
  if (any_sign && std::isinf(actual)) return 0;
  return actual == exact ? 0 : ulp_error(actual, exact, DType::f32);
}

}  // namespace

double complex_error(const WideComplex& actual, const WideComplex& exact) {
  if (std::isnan(actual.real()) != std::isnan(exact.real()) ||
      std::isnan(actual.imag()) != std::isnan(exact.imag()))
    return kWrongResult;
  if (!std::isfinite(exact.real()) || !std::isfinite(exact.imag())) {
    return std::max(part_error(actual.real(), exact.real(), exact.imag()),
                    part_error(actual.imag(), exact.imag(), exact.real()));
  }
  const Format format = format_of(DType::f32);
  const long double beyond = std::ldexp(1.0L, format.largest_exponent + 1);
  const auto distance = [&](long double a, long double b) {
    return std::fabs(std::clamp(a, -beyond, beyond) - std::clamp(b, -beyond, beyond));
  };
  const long double larger =
      std::max(distance(actual.real(), exact.real()), distance(actual.imag(), exact.imag()));
  const int unit = exponent_of(larger_part(exact), format) - format.mantissa_bits + 1;
  return static_cast<double>(std::ldexp(larger, -unit));
}

namespace {

// `angle` is |b log(a)|, known to f64's last place, and with it the parts of the power: what one
// has beside the larger one where both overflow may be nothing but that.
double error_of_power(const WideComplex& actual, const WideComplex& exact, long double angle) {
  const bool overflows = !std::isfinite(larger_part(exact));
  if (std::isfinite(angle) && angle >= (overflows ? 0x1p20L : 0x1p44L)) return 0;
  const bool finite = !overflows && std::isfinite(angle);
  const long double unknown = finite ? larger_part(exact) * (1 + angle) * 0x1p-50L : 0;
  const auto known = [&](long double a, long double b) {
    const bool same = std::fabs(b) <= unknown || std::fabs(a - b) <= unknown;
    return finite && same && !std::isnan(a) ? b : a;
  };
  const double error = complex_error(
      {known(actual.real(), exact.real()), known(actual.imag(), exact.imag())}, exact);
  return error == kWrongResult || !finite
             ? error
             : error / std::max(1.0, static_cast<double>(angle) * 0x1p-20);
}

}  // namespace

double counted_error(Op op, const WideComplex& actual, const WideComplex& exact,
                     std::span<const WideComplex> operands) {
  if (op == Op::power && operands[0] != WideComplex(0))
    return error_of_power(actual, exact, std::abs(operands[1] * std::log(operands[0])));
  const double error = complex_error(actual, exact);
  if (error <= 0.5 || error == kWrongResult) return error;
  if (op != Op::fma) return error;
  const long double term = larger_part(operands[0]) * larger_part(operands[1]);
  if (!std::isfinite(term) || term <= larger_part(exact)) return error;
  const Format format = format_of(DType::f32);
  return std::ldexp(error, exponent_of(larger_part(exact), format) - exponent_of(term, format));
}

}  // namespace kiln::fusion
