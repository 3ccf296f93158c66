// The order in which the parts of a row visit its chunks, against the tree of all of them: rows of
// any length, of which nothing is read.
#include "preamble/tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fusion/passes/split_reductions.hpp"
#include "fusion/reference/tree.hpp"

namespace kiln {
namespace {

// A number for each tree of results: 0 where there is none.
u64 joined(u64 a, u64 b) {
  if (a == 0 || b == 0) return a + b;
  const u64 mixed = (a * 0x9e3779b97f4a7c15u) ^ (b + 0x632be59bd9b4e019u);
  return (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u | 1;
}
u64 of_chunk(u64 number) { return joined(number + 1, 0x2545f4914f6cdd1du); }

u64 whole(u64 length) {
  std::vector<u64> chunks;
  for (u64 first = 0; first < length; first += kTreeChunk) {
    chunks.push_back(of_chunk(first / kTreeChunk));
  }
  return fusion::reference::reduce_in_tree<u64>(chunks, 0, joined);
}

template <class Walk>
u64 result_of(u64 length, const Walk& walk) {
  std::vector<u64> open;
  u64 visited = 0;
  walk([&](u64 first, u64 count, int merges) {
    EXPECT_TRUE(count == 0 || first % kTreeChunk == 0);
    EXPECT_TRUE(count == 0 || first + count <= length);
    visited += count;
    open.push_back(count == 0 ? 0 : of_chunk(first / kTreeChunk));
    for (; merges != 0; --merges) {
      const u64 second = open.back();
      open.pop_back();
      open.back() = joined(open.back(), second);
    }
  });
  EXPECT_LE(visited, length);
  EXPECT_EQ(open.size(), 1u);
  return open.empty() ? 0 : open[0];
}

u64 in_parts(u64 length, u64 parts) {
  std::vector<u64> results;
  for (u64 part = 0; part < parts; ++part) {
    results.push_back(result_of(
        length, [&](const auto& body) { for_each_chunk_of<u64>(length, part, parts, body); }));
  }
  return fusion::reference::reduce_in_tree<u64>(results, 0, joined);
}

constexpr u64 kChunkCounts[] = {1,      2,      5,      100,     511,     512,      513,
                                4'096,  32'767, 32'768, 32'769,  40'000,  65'536,   65'537,
                                98'000, 98'305, 98'817, 163'843, 500'000, 1'048'577};

TEST(Tree, OfAllChunks) {
  for (const u64 chunks : kChunkCounts) {
    const u64 length = (chunks - 1) * kTreeChunk + 77;
    EXPECT_EQ(result_of(length, [&](const auto& body) { for_each_chunk<u64>(length, body); }),
              whole(length))
        << chunks << " chunks";
  }
}

TEST(Tree, OfEveryNumberOfParts) {
  for (const u64 chunks : kChunkCounts) {
    const u64 length = (chunks - 1) * kTreeChunk + 77;
    const u64 want = whole(length);
    // As many as split_reductions() has at most.
    const u64 most = std::min<u64>(512, std::bit_ceil(chunks <= 512 ? u64{2'048} : chunks) / 4);
    for (u64 parts = 1; parts <= most; parts *= chunks > 100'000 ? 8 : 2) {
      EXPECT_EQ(in_parts(length, parts), want) << parts << " parts of " << chunks << " chunks";
    }
  }
}

// Even groups are more than parts can be.
TEST(Tree, OfHundredsOfGroups) {
  constexpr u64 kLength = 20'000'000 * u64{kTreeChunk} - 5;
  EXPECT_EQ(in_parts(kLength, 512), whole(kLength));
}

// A Program cuts rows of any length.
TEST(Tree, OfPlannedParts) {
  for (const std::int64_t length : {std::int64_t{1} << 30, (std::int64_t{1} << 30) + 1,
                                    (std::int64_t{3} << 30) + 5, (std::int64_t{1} << 37) - 1}) {
    for (const std::int64_t rows : {1, 3, 300}) {
      const std::int64_t splits = fusion::splits_of({rows, length}, {rows, 1}, false);
      EXPECT_GT(splits, 1);
      EXPECT_EQ(in_parts(static_cast<u64>(length), static_cast<u64>(splits)),
                whole(static_cast<u64>(length)))
          << splits << " parts of " << length;
    }
  }
}

}  // namespace
}  // namespace kiln
