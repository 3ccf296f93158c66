#include "numerics/exact_compositions.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "fusion/graph/number.hpp"

namespace kiln::numerics {
namespace {

using Real = long double;

// Without an overflow on the way, and without what 1 + e^-x rounds off a small e^x.
Real sigmoid(Real x) {
  const Real e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

Real elu(Real x, Real alpha) { return x > 0 ? x : alpha * std::expm1(x); }

Real largest_of(DType dtype) { return fusion::decode(fusion::encode(HUGE_VAL, dtype) - 1, dtype); }

// Maximum and minimum with a number, which keep NaN.
Real at_least(Real x, Real low) { return x < low || (x == 0 && low == 0) ? low : x; }
Real at_most(Real x, Real high) { return x > high ? high : x; }

Real hardsigmoid(Real x) { return at_most(at_least(x + 3, 0), 6) / 6; }

Real softplus(Real x) { return at_least(x, 0) + std::log1p(std::exp(-std::fabs(x))); }

// tanh(log(1 + e^x)) with n = e^x (e^x + 2) as n / (n + 2).
Real mish_factor(Real x) {
  if (x > 40) return 1;
  const Real e = std::exp(x);
  const Real n = e * (e + 2);
  return n / (n + 2);
}

Real nan_to_num(Real x, DType dtype) {
  if (std::isnan(x)) return 0;
  return std::isinf(x) ? std::copysign(largest_of(dtype), x) : x;
}

constexpr std::array<std::pair<std::string_view, ExactComposition>, 19> kExact = {{
    {"relu", [](Real x, DType) { return at_least(x, 0); }},
    {"relu6", [](Real x, DType) { return at_most(at_least(x, 0), 6); }},
    {"leaky_relu", [](Real x, DType) { return x > 0 ? x : x / 100; }},
    {"elu", [](Real x, DType) { return elu(x, 1); }},
    {"selu",
     [](Real x, DType) {
       return Real{1.0507009873554804934193349852946L} *
              elu(x, Real{1.6732632423543772848170429916717L});
     }},
    {"celu", [](Real x, DType) { return elu(x, 1); }},
    {"gelu", [](Real x, DType) { return x * (std::erfc(-x * std::sqrt(0.5L)) / 2); }},
    {"gelu_tanh",
     [](Real x, DType) {
       const Real scale = std::sqrt(2 / std::acos(Real{-1}));
       return x * (sigmoid(2 * scale * (x + 0.044715L * x * x * x)));
     }},
    {"quick_gelu", [](Real x, DType) { return x * (sigmoid(1.702L * x)); }},
    {"silu", [](Real x, DType) { return x * (sigmoid(x)); }},
    {"mish", [](Real x, DType) { return x * (mish_factor(x)); }},
    {"softplus", [](Real x, DType) { return softplus(x); }},
    {"softsign", [](Real x, DType) { return x / (1 + std::fabs(x)); }},
    {"hardswish", [](Real x, DType) { return x * hardsigmoid(x); }},
    {"hardsigmoid", [](Real x, DType) { return hardsigmoid(x); }},
    {"tanhshrink", [](Real x, DType) { return x - std::tanh(x); }},
    {"squared_relu", [](Real x, DType) { return at_least(x, 0) * at_least(x, 0); }},
    {"logit", [](Real x, DType) { return std::log(x) - std::log1p(-x); }},
    {"nan_to_num", [](Real x, DType dtype) { return nan_to_num(x, dtype); }},
}};

}  // namespace

ExactComposition exact_composition(std::string_view name) {
  const auto* const found =
      std::ranges::find(kExact, name, &std::pair<std::string_view, ExactComposition>::first);
  return found == kExact.end() ? nullptr : found->second;
}

}  // namespace kiln::numerics
