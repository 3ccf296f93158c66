// The tree by which floats of a row are added up and multiplied, as numerics.md defines it, and how
// deep it is. Shares no code with what it checks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace kiln::fusion::reference {

inline constexpr std::size_t kTreeChunk = 32768;

/// How many residues the indices of up to kTreeChunk elements have.
constexpr std::size_t tree_residues(std::size_t count) {
  return std::clamp<std::size_t>(std::bit_ceil(count) / 4, 256, 4096);
}

/// The result for a row, whose numbers are those that are added up or multiplied. `combine` is the
/// operation in the type in which it is computed, `identity` 0 or 1.
template <class T, class Combine>
T reduce_in_tree(const std::vector<T>& row, T identity, const Combine& combine) {
  std::vector<T> partial;
  for (std::size_t at = 0; row.size() > kTreeChunk && at < row.size(); at += kTreeChunk) {
    const auto first = row.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count = std::min(kTreeChunk, row.size() - at);
    partial.push_back(
        reduce_in_tree<T>({first, first + static_cast<std::ptrdiff_t>(count)}, identity, combine));
  }
  if (!partial.empty()) return reduce_in_tree(partial, identity, combine);
  partial.assign(tree_residues(row.size()), identity);
  const std::size_t residues = partial.size();
  for (std::size_t i = 0; i < row.size(); ++i) {
    partial[i % residues] = combine(partial[i % residues], row[i]);
  }
  for (std::size_t half = residues / 2; half != 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) partial[i] = combine(partial[i], partial[i + half]);
  }
  return partial[0];
}

/// The most combinations that any element of so many goes through, but for those with the identity,
/// which are exact. So a sum has an error of at most tree_depth(n) u / (1 - tree_depth(n) u) times
/// the sum of the elements' sizes, u being half a unit in the last place of 1 (Higham, "Accuracy
/// and Stability of Numerical Algorithms", 2002, 4.2), and a product that relative to itself.
constexpr int tree_depth(std::size_t count) {
  if (count <= 1) return 0;
  if (count > kTreeChunk) {
    return tree_depth(kTreeChunk) + tree_depth((count - 1) / kTreeChunk + 1);
  }
  const std::size_t residues = tree_residues(count);
  if (count <= residues) return std::bit_width(count - 1);
  const std::size_t terms = (count - 1) / residues + 1;
  return static_cast<int>(terms) - 1 + std::bit_width(residues - 1);
}

}  // namespace kiln::fusion::reference
