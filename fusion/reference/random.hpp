// The random numbers of the reference interpreter: Philox 4x32-10 once more, and what is made of
// its words, by definition and not by the device code's methods.
#pragma once

#include <cstdint>

namespace kiln::fusion::reference {

/// In [0, 1), a multiple of 2^-24: the upper 24 bits of the element's word.
long double uniform(std::uint64_t seed, std::uint64_t offset, std::uint64_t index);

/// The probability p in (0, 1/2] of the tail beyond a normal number, rounded to f32; negative where
/// the number is: its quantile is the number.
long double normal_probability(std::uint64_t seed, std::uint64_t offset, std::uint64_t index);

}  // namespace kiln::fusion::reference
