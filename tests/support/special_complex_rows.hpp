// What ops on c64 give for zeros, infinities and NaN: written down by hand, after C99, Annex G,
// where that says something. Products are the plain formula's.
#pragma once

#include <cmath>
#include <complex>
#include <string_view>
#include <vector>

namespace kiln::testing {

struct ComplexRow {
  std::string_view call;  ///< on x and y in the text form
  std::vector<std::complex<double>> operands;
  std::complex<double> expected;  ///< a real or bool result in the real part
  bool any_signs = false;         ///< of zeros and infinities: Annex G leaves them open
};

inline std::vector<ComplexRow> complex_rows() {
  constexpr double inf = HUGE_VAL;
  const double nan = std::nan("");
  const double pi = std::acos(-1.0);
  return {
      {"abs(x)", {{nan, -inf}}, inf},
      {"abs(x)", {{inf, nan}}, inf},
      {"abs(x)", {{nan, 1}}, nan},
      {"abs(x)", {{3e38, 1e38}}, 316227766016837933199889354443e9},
      {"neg(x)", {{0.0, -inf}}, {-0.0, inf}},
      {"conj(x)", {{-0.0, -0.0}}, {-0.0, 0.0}},
      {"sign(x)", {{0.0, -0.0}}, {0.0, -0.0}},
      {"sign(x)", {{3, -4}}, {0.6, -0.8}},
      {"sign(x)", {{inf, 1}}, {nan, 0.0}},
      {"isnan(x)", {{inf, nan}}, 1},
      {"isinf(x)", {{nan, -inf}}, 1},
      {"isfinite(x)", {{0.0, nan}}, 0},
      {"equal(x, y)", {{-0.0, 0.0}, {0.0, -0.0}}, 1},
      {"equal(x, y)", {{1, nan}, {1, nan}}, 0},
      {"logical_not(x)", {{-0.0, -0.0}}, 1},
      {"logical_not(x)", {{0.0, nan}}, 0},
      {"real(x)", {{-0.0, nan}}, -0.0},
      {"imag(x)", {{nan, -0.0}}, -0.0},

      {"add(x, y)", {{inf, 1}, {-inf, 1}}, {nan, 2}},
      {"sub(x, y)", {{-0.0, 0.0}, {0.0, 0.0}}, {-0.0, 0.0}},
      {"mul(x, y)", {{1, 2}, {3, 4}}, {-5, 10}},
      {"mul(x, y)", {{inf, 0.0}, {1, 0.0}}, {inf, nan}},
      {"mul(x, y)", {{inf, 1}, {0.0, 1}}, {nan, inf}},
      {"square(x)", {{1e30, 1e30}}, {0.0, inf}},
      {"square(x)", {{0.0, -inf}}, {-inf, nan}},
      {"div(x, y)", {{1, 0.0}, {0.0, 0.0}}, {inf, nan}},
      {"div(x, y)", {{0.0, 0.0}, {0.0, 0.0}}, {nan, nan}},
      {"div(x, y)", {{1, 1}, {inf, 0.0}}, {0.0, 0.0}},
      {"div(x, y)", {{1, 1}, {nan, -inf}}, {0.0, 0.0}, true},
      {"div(x, y)", {{inf, inf}, {1, 1}}, {inf, nan}},
      {"div(x, y)", {{inf, nan}, {1, 0.0}}, {inf, nan}, true},
      {"div(x, y)", {{1e38, 1e38}, {1e38, -1e38}}, {0.0, 1}},
      {"reciprocal(x)", {{0.0, 0.0}}, {inf, nan}},
      {"reciprocal(x)", {{inf, inf}}, {0.0, -0.0}},
      {"reciprocal(x)", {{0.0, 1e-30}}, {0.0, -1e30}},

      {"sqrt(x)", {{-0.0, 0.0}}, {0.0, 0.0}},
      {"sqrt(x)", {{-4, 0.0}}, {0.0, 2}},
      {"sqrt(x)", {{-4, -0.0}}, {0.0, -2}},
      {"sqrt(x)", {{1, inf}}, {inf, inf}},
      {"sqrt(x)", {{nan, -inf}}, {inf, -inf}},
      {"sqrt(x)", {{-inf, 1}}, {0.0, inf}},
      {"sqrt(x)", {{-inf, -1}}, {0.0, -inf}},
      {"sqrt(x)", {{inf, -1}}, {inf, -0.0}},
      {"sqrt(x)", {{inf, nan}}, {inf, nan}},
      {"sqrt(x)", {{-inf, nan}}, {nan, inf}, true},
      {"sqrt(x)", {{nan, 1}}, {nan, nan}},
      {"rsqrt(x)", {{4, 0.0}}, {0.5, 0.0}, true},
      {"rsqrt(x)", {{inf, 1}}, {0.0, 0.0}, true},

      {"exp(x)", {{-0.0, -0.0}}, {1, -0.0}},
      {"exp(x)", {{-inf, 1}}, {0.0, 0.0}},
      {"exp(x)", {{-inf, 2}}, {-0.0, 0.0}},
      {"exp(x)", {{inf, -0.0}}, {inf, -0.0}},
      {"exp(x)", {{inf, 2}}, {-inf, inf}},
      {"exp(x)", {{-inf, inf}}, {0.0, 0.0}, true},
      {"exp(x)", {{-inf, nan}}, {0.0, 0.0}, true},
      {"exp(x)", {{inf, inf}}, {inf, nan}, true},
      {"exp(x)", {{inf, nan}}, {inf, nan}, true},
      {"exp(x)", {{nan, 0.0}}, {nan, 0.0}},
      {"exp(x)", {{nan, 1}}, {nan, nan}},
      {"exp(x)", {{1, inf}}, {nan, nan}},
      {"exp(x)", {{1000, 2}}, {-inf, inf}},

      {"log(x)", {{-0.0, 0.0}}, {-inf, pi}},
      {"log(x)", {{0.0, -0.0}}, {-inf, -0.0}},
      {"log(x)", {{-1, 0.0}}, {0.0, pi}},
      {"log(x)", {{-1, -0.0}}, {0.0, -pi}},
      {"log(x)", {{1, inf}}, {inf, pi / 2}},
      {"log(x)", {{1, nan}}, {nan, nan}},
      {"log(x)", {{-inf, 1}}, {inf, pi}},
      {"log(x)", {{inf, -1}}, {inf, -0.0}},
      {"log(x)", {{-inf, inf}}, {inf, 3 * pi / 4}},
      {"log(x)", {{inf, inf}}, {inf, pi / 4}},
      {"log(x)", {{inf, nan}}, {inf, nan}},
      {"log(x)", {{nan, inf}}, {inf, nan}},
      {"log2(x)", {{8, 0.0}}, {3, 0.0}},
      {"log10(x)", {{1000, -0.0}}, {3, -0.0}},

      {"sinh(x)", {{-0.0, 0.0}}, {-0.0, 0.0}},
      {"sinh(x)", {{0.0, inf}}, {0.0, nan}, true},
      {"sinh(x)", {{0.0, nan}}, {0.0, nan}, true},
      {"sinh(x)", {{1, inf}}, {nan, nan}},
      {"sinh(x)", {{inf, 0.0}}, {inf, 0.0}},
      {"sinh(x)", {{inf, 2}}, {-inf, inf}},
      {"sinh(x)", {{inf, inf}}, {inf, nan}, true},
      {"sinh(x)", {{inf, nan}}, {inf, nan}, true},
      {"sinh(x)", {{nan, 0.0}}, {nan, 0.0}},
      {"sinh(x)", {{nan, 1}}, {nan, nan}},
      {"cosh(x)", {{0.0, 0.0}}, {1, 0.0}},
      {"cosh(x)", {{0.0, inf}}, {nan, 0.0}, true},
      {"cosh(x)", {{0.0, nan}}, {nan, 0.0}, true},
      {"cosh(x)", {{inf, 0.0}}, {inf, 0.0}},
      {"cosh(x)", {{inf, 2}}, {-inf, inf}},
      {"cosh(x)", {{inf, inf}}, {inf, nan}, true},
      {"cosh(x)", {{nan, 0.0}}, {nan, 0.0}, true},
      {"tanh(x)", {{-0.0, 0.0}}, {-0.0, 0.0}},
      {"tanh(x)", {{0.0, inf}}, {0.0, nan}, true},
      {"tanh(x)", {{1, inf}}, {nan, nan}},
      {"tanh(x)", {{inf, 1}}, {1, 0.0}},
      {"tanh(x)", {{inf, 2}}, {1, -0.0}},
      {"tanh(x)", {{-inf, 1}}, {-1, 0.0}},
      {"tanh(x)", {{inf, inf}}, {1, 0.0}, true},
      {"tanh(x)", {{-inf, nan}}, {-1, 0.0}, true},
      {"tanh(x)", {{nan, 0.0}}, {nan, 0.0}},
      {"tanh(x)", {{1000, 1}}, {1, 0.0}},
      {"sin(x)", {{inf, 0.0}}, {nan, 0.0}, true},
      {"sin(x)", {{0.0, inf}}, {0.0, inf}},
      {"cos(x)", {{0.0, -inf}}, {inf, 0.0}},
      {"tan(x)", {{1, inf}}, {0.0, 1}},
      {"tan(x)", {{inf, 1}}, {nan, nan}},
      {"sigmoid(x)", {{inf, 1}}, {1, 0.0}, true},
      {"sigmoid(x)", {{-inf, nan}}, {0.0, 0.0}, true},
      {"sigmoid(x)", {{-0.0, 0.0}}, {0.5, 0.0}},
      {"sigmoid(x)", {{-50, 0.0}}, {1.9287498479639178e-22, 0.0}},

      {"power(x, y)", {{0.0, 0.0}, {0.0, 0.0}}, {1, 0.0}},
      {"power(x, y)", {{nan, nan}, {-0.0, 0.0}}, {1, 0.0}},
      {"power(x, y)", {{0.0, -0.0}, {2, 1}}, {0.0, 0.0}},
      {"power(x, y)", {{0.0, 0.0}, {-1, 0.0}}, {nan, nan}},
      {"power(x, y)", {{nan, 0.0}, {2, 0.0}}, {nan, nan}},
  };
}

}  // namespace kiln::testing
