#include "fusion/reference/random.hpp"

#include <array>
#include <cmath>

namespace kiln::fusion::reference {
namespace {

using Words = std::array<std::uint64_t, 4>;  // each below 2^32

constexpr std::uint64_t kLow = 0xffffffff;

// One word for each element: four neighbours share a block, whose counter is the block's number and
// the offset.
std::uint64_t word_of(std::uint64_t seed, std::uint64_t offset, std::uint64_t index) {
  const std::uint64_t block = index / 4;
  Words words = {block & kLow, block >> 32, offset & kLow, offset >> 32};
  std::uint64_t key[2] = {seed & kLow, seed >> 32};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = words[0] * 0xD2511F53;
    const std::uint64_t right = words[2] * 0xCD9E8D57;
    words = {(right >> 32) ^ words[1] ^ key[0], right & kLow, (left >> 32) ^ words[3] ^ key[1],
             left & kLow};
    key[0] = (key[0] + 0x9E3779B9) & kLow;
    key[1] = (key[1] + 0xBB67AE85) & kLow;
  }
  return words[index % 4];
}

}  // namespace

long double uniform(std::uint64_t seed, std::uint64_t offset, std::uint64_t index) {
  return std::ldexp(static_cast<long double>(word_of(seed, offset, index) / 256), -24);
}

long double normal_probability(std::uint64_t seed, std::uint64_t offset, std::uint64_t index) {
  const std::uint64_t word = word_of(seed, offset, index);
  // Both steps round to f32, as the definition says.
  const auto whole = static_cast<float>(word / 2);
  const auto middle = static_cast<float>(static_cast<double>(whole) + 0.5);
  const long double p = std::ldexp(static_cast<long double>(middle), -32);
  return word % 2 != 0 ? -p : p;
}

}  // namespace kiln::fusion::reference
