#include "numerics/judge.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fusion/graph/number.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/operation.hpp"
#include "fusion/reference/value.hpp"

namespace kiln::numerics {
namespace {

using fusion::Op;
using fusion::reference::Value;

fusion::WideComplex complex_of(const Value& value) { return {value.real, value.imag}; }

// Whether operate_quickly's f64 is right to a few units in its last place: no sum in it cancels.
bool has_quick_method(Op op, int arity) {
  return arity == 1 || (arity == 2 && op != Op::logaddexp && op != Op::nextafter);
}

// The unit in the last place of f16, bf16 or f32 at a number of f64 that is not zero.
double unit_at(double x, DType dtype) {
  const int mantissa = dtype == DType::f16 ? 11 : dtype == DType::bf16 ? 8 : 24;
  const int smallest = dtype == DType::f16 ? -14 : -126;
  const auto biased = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff);
  const int exponent = std::max(biased - 1023, smallest) - mantissa + 1;
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

}  // namespace

void Found::add(double error, double counted, std::uint64_t index) {
  if (error > 0.5) ++misrounded;
  if (counted <= largest) return;
  largest = counted;
  at = index;
}

void Found::join(const Found& other) {
  misrounded += other.misrounded;
  fast = std::max(fast, other.fast);
  if (other.largest > largest || (other.largest == largest && other.at < at)) {
    largest = other.largest;
    at = other.at;
  }
}

struct Judge::Element {
  std::array<std::uint64_t, 3> operands{};
  std::uint64_t result = 0;
};

Judge::Judge(const Subject& subject, DType dtype)
    : subject_(subject),
      dtype_(dtype),
      result_(dtype == DType::c64 && subject.op == Op::abs ? DType::f32 : dtype) {
  if (bits(dtype) == 16) {
    for (std::uint64_t i = 0; i < 65536; ++i) values_.push_back(fusion::decode(i, dtype));
  }
  if (!subject.op) {
    composition_ = exact_composition(subject.name);
    return;
  }
  node_.op = *subject.op;
  node_.dtype = result_;
  node_.arity = static_cast<std::uint8_t>(subject.arity);
}

Found Judge::compare(const std::vector<Bytes>& operands, const Bytes& results, std::uint64_t begin,
                     std::uint64_t end, std::uint64_t first) const {
  Found found;
  for (std::uint64_t i = begin; i < end; ++i) {
    Element element;
    const auto index = static_cast<std::int64_t>(i);
    for (std::size_t k = 0; k < operands.size(); ++k)
      element.operands[k] = fusion::reference::read_bits(operands[k].data(), dtype_, index);
    element.result = fusion::reference::read_bits(results.data(), result_, index);
    if (composition_ != nullptr) {
      add_composition(element, first + i, found);
    } else if (dtype_ == DType::c64) {
      add_complex(element, first + i, found);
    } else if (!add_quickly(element, first + i, found)) {
      add_real(element, first + i, found);
    }
  }
  return found;
}

double Judge::value(DType dtype, std::uint64_t bits) const {
  return values_.empty() ? fusion::decode(bits, dtype) : values_[bits];
}

// Adds what f64 shows to be nearer than the next number; false where more digits must decide.
bool Judge::add_quickly(const Element& element, std::uint64_t index, Found& found) const {
  if (dtype_ == DType::f64 || !has_quick_method(node_.op, node_.arity)) return false;
  const double actual = value(dtype_, element.result);
  const double x = value(dtype_, element.operands[0]);
  const double exact = node_.arity == 1 ? fusion::reference::operate_quickly(node_.op, x)
                                        : fusion::reference::operate_quickly(
                                              node_.op, x, value(dtype_, element.operands[1]));
  if (std::isnan(exact)) return std::isnan(actual);
  if (exact == 0 || !std::isfinite(exact))
    return actual == exact && std::signbit(actual) == std::signbit(exact);
  if (!std::isfinite(actual)) return false;
  const double error = std::fabs(actual - exact) / unit_at(exact, dtype_);
  if (error >= 0.4999) return false;
  found.add(error, error, index);
  return true;
}

void Judge::add_real(const Element& element, std::uint64_t index, Found& found) const {
  std::array<long double, 3> reals{};
  std::array<Value, 3> values;
  const auto arity = static_cast<std::size_t>(node_.arity);
  for (std::size_t k = 0; k < arity; ++k) {
    values[k] = fusion::reference::decode(dtype_, element.operands[k]);
    reals[k] = values[k].real;
  }
  // The sign of a NaN is nobody's promise.
  if (node_.op == Op::copysign && std::isnan(reals[1])) return;
  const long double exact =
      fusion::reference::operate(node_, std::span(values).first(arity), Rounding::once).real;
  const long double actual = fusion::reference::decode(dtype_, element.result).real;
  // A C library's pow and hypot give a number for a quiet NaN, but NaN for a signalling one.
  const bool knows_signalling = node_.op == Op::power || node_.op == Op::hypot;
  if (knows_signalling && std::isnan(actual) && (std::isnan(reals[0]) || std::isnan(reals[1])))
    return;
  const std::span given = std::span(reals).first(arity);
  found.fast =
      std::max(found.fast, fusion::fast_error(subject_.name, actual, exact, given, dtype_));
  const double error = fusion::ulp_error(actual, exact, dtype_);
  const double counted =
      error > 0.5 ? fusion::counted_error(node_.op, actual, exact, given, dtype_) : error;
  found.add(error, counted, index);
}

void Judge::add_complex(const Element& element, std::uint64_t index, Found& found) const {
  std::array<Value, 3> values;
  std::array<fusion::WideComplex, 3> operands;
  const auto arity = static_cast<std::size_t>(node_.arity);
  for (std::size_t k = 0; k < arity; ++k) {
    values[k] = fusion::reference::decode(dtype_, element.operands[k]);
    operands[k] = complex_of(values[k]);
  }
  const Value exact =
      fusion::reference::operate(node_, std::span(values).first(arity), Rounding::once);
  const Value actual = fusion::reference::decode(result_, element.result);
  if (result_ != DType::c64) {
    const double error = fusion::ulp_error(actual.real, exact.real, result_);
    return found.add(error, error, index);
  }
  const double error = fusion::complex_error(complex_of(actual), complex_of(exact));
  found.add(error,
            fusion::counted_error(node_.op, complex_of(actual), complex_of(exact),
                                  std::span(operands).first(arity)),
            index);
}

void Judge::add_composition(const Element& element, std::uint64_t index, Found& found) const {
  const long double x = fusion::reference::decode(dtype_, element.operands[0]).real;
  const long double actual = fusion::reference::decode(dtype_, element.result).real;
  const long double exact = composition_(x, dtype_);
  const double error = fusion::ulp_error(actual, exact, dtype_);
  if (error <= 0.5) return found.add(error, error, index);
  found.fast =
      std::max(found.fast, fusion::fast_error(subject_.name, actual, exact, {&x, 1}, dtype_));
  const long double term = fusion::largest_term(subject_.name, x, exact, dtype_);
  found.add(error, fusion::counted_error(term, actual, exact, dtype_), index);
}

}  // namespace kiln::numerics
