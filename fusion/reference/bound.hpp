// How far a result may be from the exact value, and how that is counted. The numbers are the op
// table's; the tests, the tool and the published table all ask here.
#pragma once

#include <complex>
#include <optional>
#include <span>
#include <string_view>

#include "fusion/graph/composition.hpp"
#include "fusion/graph/op.hpp"
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
bool is_library_function(const Composition& composition, DType result, Accuracy accuracy,
                         DeviceType device);

/// What Accuracy::fast promises of f32 and narrower results on a GPU where error_bound() has
/// nothing, as fast_error() counts it.
inline constexpr double kFastBound = 0x1p-10;

/// The error, beyond the half unit that storing costs, as a part of the result or of 1, or for tan
/// of the result's square, whichever is largest. It counts where operands and result are zero or
/// between 2^-20 and 2^6 in size; elsewhere it is 0, and nothing is promised.
double fast_error(std::string_view function, long double actual, long double exact,
                  std::span<const long double> operands, DType dtype);

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

/// The largest term of a composition: gelu, logit and tanhshrink have some. Where the sigmoid in
/// gelu_tanh and quick_gelu is small, the rounding of its argument u alone moves it by |u| half
/// units. Where it, or its like in silu, gelu and mish, is below the normal range, it has fewer
/// digits, and units are those of the smallest normal number times x. Of a 16-bit result neither is
/// seen.
long double largest_term(std::string_view composition, long double x, long double exact,
                         DType dtype);

/// The largest error of a composition's result, as error_bound() has it for ops.
std::optional<double> composition_bound(const Composition& composition, DType result,
                                        Accuracy accuracy, DeviceType device);

/// ulp_error in units of the exact result or of `largest_term`, whichever is larger.
double counted_error(long double largest_term, long double actual, long double exact, DType dtype);

/// The error in units of the op's own largest term; 0 where a term of lerp overflows.
double counted_error(Op op, long double actual, long double exact,
                     std::span<const long double> operands, DType dtype);

using WideComplex = std::complex<long double>;

/// The error of a c64: the larger of its two parts' distances, in units of the last place that f32
/// has at the larger part of `exact`, so that one rounding of each part is at most 0.5. Where a
/// part of `exact` is infinite or NaN, that part must be, and the other counts by itself. The sign
/// of a zero does not count.
double complex_error(const WideComplex& actual, const WideComplex& exact);

/// complex_error in larger units where less is known: fma's are of its product, which may cancel,
/// and those of a power grow with its angle |b log(a)|, of which f64 has 53 digits, from 2^20 on;
/// from 2^44 on nothing is known of it.
double counted_error(Op op, const WideComplex& actual, const WideComplex& exact,
                     std::span<const WideComplex> operands);

}  // namespace kiln::fusion
