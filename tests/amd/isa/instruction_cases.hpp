// What single instructions compute, as cases with known answers: by hand, from the pseudocode of
// AMD's ISA documents. instruction_test.cpp runs them, and fails for an instruction without any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace kiln::amd {

inline constexpr const char* k9 = "gfx90a";
inline constexpr const char* k10 = "gfx1030";

/// A few words, without memory of their own, so that tables of them are data.
struct Words {
  std::uint32_t word[6] = {};
  std::uint8_t count = 0;

  constexpr Words(std::initializer_list<std::uint32_t> words) {
    for (const std::uint32_t one : words) word[count++] = one;
  }
  std::vector<std::uint32_t> vector() const { return {word, word + count}; }
};

/// One thread's work. The lines find v20 holding 0, the address of memory for the result in
/// s[4:5], and 64 bytes of LDS.
struct Case {
  const char* target;
  const char* lines;  ///< read v1, v2..., write v8 (and v9, v10)
  Words sources;      ///< v1, v2...
  Words expected;     ///< v8, v9, v10, which hold 0x5a5a5a5a before
};
/// The same, where the lines are put together from parts.
struct MadeCase {
  std::string target;
  std::string lines;
  std::vector<std::uint32_t> sources;
  std::vector<std::uint32_t> expected;
};

std::span<const Case> float_cases();
std::span<const Case> conversion_cases();
std::span<const Case> integer_cases();
std::span<const Case> move_cases();
std::span<const Case> flow_cases();
std::span<const Case> memory_cases();
/// Every relation on every type, of numbers, NaN and zeros.
std::vector<MadeCase> comparison_cases();
std::vector<MadeCase> scalar_cases();
/// On device memory and on LDS.
std::vector<MadeCase> atomic_cases();

}  // namespace kiln::amd
