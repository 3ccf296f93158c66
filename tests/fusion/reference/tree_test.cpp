// The tree of sums and products against what its definition says of small and of long rows.
#include "fusion/reference/tree.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace kiln::fusion::reference {
namespace {

// A sum written down: which numbers are added up, in which order.
std::string written(const std::vector<std::string>& row) {
  return reduce_in_tree(row, std::string(), [](const std::string& a, const std::string& b) {
    if (a.empty() || b.empty()) return a + b;
    return "(" + a + "+" + b + ")";
  });
}
std::vector<std::string> letters(std::size_t count) {
  std::vector<std::string> row;
  for (std::size_t i = 0; i < count; ++i) row.emplace_back(1, static_cast<char>('a' + i));
  return row;
}

TEST(Tree, OfFewElementsPairsThoseFarthestApartFirst) {
  EXPECT_EQ(written(letters(0)), "");
  EXPECT_EQ(written(letters(1)), "a");
  EXPECT_EQ(written(letters(2)), "(a+b)");
  EXPECT_EQ(written(letters(4)), "((a+c)+(b+d))");
  EXPECT_EQ(written(letters(5)), "(((a+e)+c)+(b+d))");
  EXPECT_EQ(written(letters(8)), "(((a+e)+(c+g))+((b+f)+(d+h)))");
}

// The number of combinations above an element, by counting.
struct Counted {
  int depth = -1;  ///< -1: the identity
};
int counted_depth(std::size_t count) {
  const auto combine = [](Counted a, Counted b) {
    if (a.depth < 0 || b.depth < 0) return a.depth < 0 ? b : a;
    return Counted{std::max(a.depth, b.depth) + 1};
  };
  return std::max(0, reduce_in_tree(std::vector<Counted>(count, {0}), Counted{}, combine).depth);
}

TEST(Tree, IsAsDeepAsItsBoundSays) {
  std::vector<std::size_t> lengths(70);
  std::iota(lengths.begin(), lengths.end(), 0);
  for (std::size_t n = 128; n <= 1 << 21; n *= 2) {
    for (const std::size_t length : {n - 1, n, n + 1, n + n / 2}) lengths.push_back(length);
  }
  for (const std::size_t length : lengths) {
    EXPECT_EQ(counted_depth(length), tree_depth(length)) << length;
  }
  EXPECT_EQ(tree_depth(256), 8);
  EXPECT_EQ(tree_depth(4096), 13);
  EXPECT_EQ(tree_depth(32768), 19);
  EXPECT_LE(tree_depth(std::size_t{1} << 40), 60);
}

// Elements of one residue are added in order, and each element once.
TEST(Tree, TakesEachElementOnce) {
  for (const std::size_t length : {1000, 1025, 32769, 100'000, 300'000}) {
    std::vector<double> row(length);
    std::iota(row.begin(), row.end(), 1);
    const double n = static_cast<double>(length);
    EXPECT_EQ(reduce_in_tree(row, 0.0, std::plus<>()), n * (n + 1) / 2) << length;
  }
  std::vector<std::string> row(1023);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = fmt::format("<{}>", i);
  EXPECT_NE(written(row).find("(((<0>+<256>)+<512>)+<768>)"), std::string::npos);
}

// Where elements are read in aligned vectors, their places are shifted: the pairs stay the same.
TEST(Tree, IsTheSameForRotatedPlaces) {
  constexpr std::size_t kCount = 4096;
  std::vector<float> row(kCount);
  for (std::size_t i = 0; i < kCount; ++i) row[i] = 1.0F / static_cast<float>(i * i % 977 + 1);
  const float want = reduce_in_tree(row, 0.0F, std::plus<>());
  const std::size_t residues = tree_residues(kCount);
  for (const std::size_t shift : {1, 3, 7, 500}) {
    std::vector<float> place(residues, 0);
    for (std::size_t i = 0; i < kCount; ++i) place[(i + shift) % residues] += row[i];
    for (std::size_t half = residues / 2; half != 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) place[i] += place[i + half];
    }
    EXPECT_EQ(place[0], want) << shift;
  }
}

}  // namespace
}  // namespace kiln::fusion::reference
