// Reductions of a traced callable: what works along axes of a kiln::Value. A reduced axis stays
// with size one, so that the result broadcasts back against what was reduced.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "kiln/value.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// Axes from the front or, negative, from the end. None means all.
class Axes {
 public:
  Axes() = default;
  Axes(int axis) : axes_{axis} {}                         // NOLINT: implicit on purpose
  Axes(std::initializer_list<int> axes) : axes_(axes) {}  // NOLINT
  const std::vector<int>& values() const { return axes_; }

 private:
  std::vector<int> axes_;
};

/// Adds the reduction of that name, as the text form would. Sums of f16 and bf16 are accumulated in
/// f32, of integers and bool in 64 bits. Throws Error(invalid_argument) for an unknown name.
Value reduce(std::string_view function, const Value& x, const Axes& axes);

#define KILN_REDUCTION(name) \
  inline Value name(const Value& x, const Axes& axes = {}) { return reduce(#name, x, axes); }

KILN_REDUCTION(sum)
KILN_REDUCTION(mean)
KILN_REDUCTION(prod)
KILN_REDUCTION(max)
KILN_REDUCTION(min)
KILN_REDUCTION(any)
KILN_REDUCTION(all)
KILN_REDUCTION(argmax)
KILN_REDUCTION(argmin)
KILN_REDUCTION(var)
KILN_REDUCTION(std)
KILN_REDUCTION(logsumexp)
KILN_REDUCTION(norm2)
KILN_REDUCTION(count_nonzero)
#undef KILN_REDUCTION

inline Value softmax(const Value& x, const Axes& axes = -1) { return reduce("softmax", x, axes); }
inline Value log_softmax(const Value& x, const Axes& axes = -1) {
  return reduce("log_softmax", x, axes);
}
/// Running results along one axis: each element is the sum, product or maximum of those up to it.
/// Dtypes as of sum, prod and max.
inline Value cumsum(const Value& x, int axis) { return reduce("cumsum", x, axis); }
inline Value cumprod(const Value& x, int axis) { return reduce("cumprod", x, axis); }
inline Value cummax(const Value& x, int axis) { return reduce("cummax", x, axis); }
/// Over the last axis; `eps` is a number.
inline Value rms_norm(const Value& x, double eps) { return apply("rms_norm", {x, eps}); }
inline Value rms_norm(const Value& x, const Value& weight, double eps) {
  return apply("rms_norm", {x, weight, eps});
}
inline Value layer_norm(const Value& x, double eps) { return apply("layer_norm", {x, eps}); }
inline Value layer_norm(const Value& x, const Value& weight, const Value& bias, double eps) {
  return apply("layer_norm", {x, weight, bias, eps});
}

}  // namespace kiln

#pragma GCC visibility pop
