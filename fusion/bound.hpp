// How far a result may be from the exact value, and how that is counted. The numbers are the op
// table's; the tests, the tool and the published table all ask here.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "fusion/op.hpp"
#include "kiln/options.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {

/// The largest error of a 16-bit result, under storage and strict on every device.
inline constexpr double kStorageBound = 0.51;

/// The largest error of the op's result in a floating-point dtype, in units in the last place.
/// Nothing where none is promised: under Accuracy::fast on a GPU, unless the op is exact.
std::optional<double> error_bound(const OpInfo& op, DType result, Accuracy accuracy,
                                  DeviceType device);

/// Whether the bound is that of a library that kiln did not write: it may differ by its version.
bool is_library_function(const OpInfo& op, DType result, Accuracy accuracy, DeviceType device);

/// The distance of `actual` from `exact` in units of the last place that `dtype` (f16, bf16, f32 or
/// f64) has at `exact`; where a result overflows, infinity counts as the next number after the
/// largest. 0 for two NaNs, kWrongResult where only one is a number, or where a zero has the wrong
/// sign.
double ulp_error(long double actual, long double exact, DType dtype);
inline constexpr double kWrongResult = 1e9;

/// Some ops add terms that may cancel, which leaves any relative error: logaddexp, lerp, and lgamma
/// of a negative number, where the reflection formula subtracts lgamma(1 - x). Their bounds count
/// units of the largest term. This gives its magnitude, and 0 for all other ops.
long double largest_term(Op op, std::span<const long double> operands);

/// The same for the library functions whose formulas add such terms: gelu, logit and tanhshrink.
long double largest_term(std::string_view composition, long double operand);

/// The largest error of a composition's result. In f32 and f64 it follows from those of its ops,
/// and is measured but not promised.
std::optional<double> composition_bound(DType result, Accuracy accuracy, DeviceType device);

/// ulp_error in units of the exact result or of `largest_term`, whichever is larger.
double counted_error(long double largest_term, long double actual, long double exact, DType dtype);

/// The same with the op's own largest term. Where one of lerp's overflows no error is counted.
double counted_error(Op op, long double actual, long double exact,
                     std::span<const long double> operands, DType dtype);

}  // namespace kiln::fusion
