// The order in which running sums and products of floats are computed along a row, as numerics.md
// defines it. Shares no code with what it checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace kiln::fusion::reference {

/// Running results of pairs, then of pairs of these, and so on: each element of the second of a
/// pair takes what the first came to.
template <class T, class Combine>
void run_in_pairs(std::span<T> values, const Combine& combine) {
  for (std::size_t half = 1; half < values.size(); half *= 2) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i / half % 2 == 1) values[i] = combine(values[i / half * half - 1], values[i]);
    }
  }
}

/// The running results of a row. `combine` is the operation in the type in which it is computed,
/// `identity` 0 or 1.
template <class T, class Combine>
std::vector<T> run_in_blocks(std::vector<T> row, T identity, const Combine& combine) {
  constexpr std::size_t kBlock = 256;
  constexpr std::size_t kPart = 8;
  T blocks = identity;
  for (std::size_t at = 0; at < row.size(); at += kBlock) {
    const std::span<T> block = std::span(row).subspan(at, std::min(kBlock, row.size() - at));
    std::vector<T> parts;
    for (std::size_t i = 0; i < block.size(); i += kPart) {
      const std::span<T> part = block.subspan(i, std::min(kPart, block.size() - i));
      run_in_pairs(part, combine);
      parts.push_back(part.back());
    }
    run_in_pairs(std::span<T>(parts), combine);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const T before = i < kPart ? blocks : combine(blocks, parts[i / kPart - 1]);
      block[i] = combine(before, block[i]);
    }
    blocks = combine(blocks, parts.back());
  }
  return row;
}

}  // namespace kiln::fusion::reference
