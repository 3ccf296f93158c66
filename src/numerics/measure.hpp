// Runs the real kernels on a device and counts how far their results are from exact ones, which the
// reference interpreter computes in long double. One Measurement is one row of the published table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"
#include "kiln/view.hpp"

namespace kiln::numerics {

struct Request {
  std::vector<std::string> functions;  ///< names of ops and compositions; empty: all
  std::vector<DType> dtypes = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64};
  Accuracy accuracy = Accuracy::storage;
  bool complete = false;         ///< all 2^32 numbers for functions of one f32
  std::size_t pairs = 2048;      ///< of so many numbers, for functions of two 16-bit arguments
  std::uint64_t stride = 20011;  ///< between f32 numbers, where they are not complete
};

struct Measurement {
  std::string function;
  DType dtype = DType::f32;
  std::uint64_t inputs = 0;
  bool complete = false;             ///< no input was left out
  std::uint64_t misrounded = 0;      ///< results that are not the nearest number
  double largest = 0;                ///< error, as fusion/reference/bound.hpp counts it
  std::vector<std::uint64_t> worst;  ///< the operands where it was found, as bits
  std::optional<double> bound;
  std::optional<double> fast;  ///< fusion::fast_error, where that is what is bounded
  bool library = false;        ///< the bound is that of a library that kiln did not write

  double rounded_share() const;
  bool exceeded() const;
  /// The bound is looser than twice the largest error; a correctly rounded one never is.
  bool loose() const { return bound && *bound > 0.51 && largest > 0 && *bound > 2 * largest; }
};

/// Throws Error(invalid_argument) for a name that no function has and for a dtype that is not f16,
/// bf16, f32, f64 or c64.
std::vector<Measurement> measure(Device device, const Request& request);

/// The release of the compiler, and on the CPU of the maths library, whose results were measured.
std::string library_version(Device device);

}  // namespace kiln::numerics
