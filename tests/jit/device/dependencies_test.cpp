// Dependencies are what they must be and no more, for named cases and against a slow search on
// random programs.
#include "jit/device/dependencies.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace kiln::jit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ByteRange kA{0x1000, 0x1100};
constexpr ByteRange kB{0x2000, 0x2100};

TEST(Dependencies, NoneBetweenReadersOfTheSameBytes) {
  EXPECT_THAT(dependencies(std::vector<Access>{{{kA}, {}}, {{kA}, {}}}), IsEmpty());
}

TEST(Dependencies, NoneBetweenNeighbours) {
  EXPECT_THAT(dependencies(std::vector<Access>{{{}, {{0, 16}}}, {{{16, 32}}, {}}}), IsEmpty());
}

TEST(Dependencies, NameTheHazardAndTheBytes) {
  const std::vector<Access> read_after_write{{{}, {kA}}, {{{0x10F0, 0x1200}}, {}}};
  EXPECT_THAT(dependencies(read_after_write),
              ElementsAre(Dependency{0, 1, Hazard::read_after_write, {0x10F0, 0x1100}}));
  const std::vector<Access> write_after_read{{{kA}, {}}, {{}, {{0x0F00, 0x1001}}}};
  EXPECT_THAT(dependencies(write_after_read),
              ElementsAre(Dependency{0, 1, Hazard::write_after_read, {0x1000, 0x1001}}));
  const std::vector<Access> write_after_write{{{}, {kA}}, {{}, {kA}}};
  EXPECT_THAT(dependencies(write_after_write),
              ElementsAre(Dependency{0, 1, Hazard::write_after_write, kA}));
}

TEST(Dependencies, ChainHasNoShortcuts) {
  const std::vector<Access> in_place(5, Access{{kA}, {kA}});
  const auto edges = dependencies(in_place);
  ASSERT_EQ(edges.size(), 4U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(edges[i].from, i);
    EXPECT_EQ(edges[i].to, i + 1);
  }
}

TEST(Dependencies, DiamondKeepsBothSides) {
  const std::vector<Access> diamond{{{}, {kA, kB}}, {{kA}, {kA}}, {{kB}, {kB}}, {{kA, kB}, {}}};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const Dependency& edge : dependencies(diamond)) pairs.emplace_back(edge.from, edge.to);
  EXPECT_THAT(pairs, ElementsAre(std::pair(0U, 1U), std::pair(0U, 2U), std::pair(1U, 3U),
                                 std::pair(2U, 3U)));
}

TEST(Dependencies, UnknownOperationIsABarrier) {
  const Access unknown{{}, {ByteRange::everything()}};
  const std::vector<Access> list{{{kA}, {}}, {{kB}, {}}, unknown, {{kA}, {}}, {{kB}, {}}};
  EXPECT_EQ(dependencies(list).size(), 4U);
}

TEST(Dependencies, EmptyRangesTouchNothing) {
  EXPECT_THAT(dependencies(std::vector<Access>{{{}, {{5, 5}}}, {{}, {{5, 5}}}, {{}, {{9, 3}}}}),
              IsEmpty());
}

TEST(MayBeginEarly, UnlessSomethingWritesWhatIsReadEarly) {
  const Access reads_a{{kA, kB}, {}, {kA}};
  EXPECT_THAT(may_begin_early(std::vector<Access>{{{}, {kB}}, reads_a}), ElementsAre(true, true));
  EXPECT_THAT(may_begin_early(std::vector<Access>{{{}, {kA}}, reads_a}), ElementsAre(true, false));
  EXPECT_THAT(may_begin_early(std::vector<Access>{{{}, {{0x10ff, 0x1100}}}, {}, reads_a}),
              ElementsAre(true, true, false));
  // One that comes later waits for this one.
  EXPECT_THAT(may_begin_early(std::vector<Access>{reads_a, {{}, {kA}}}), ElementsAre(true, true));
  const Access unknown{{}, {ByteRange::everything()}};
  EXPECT_THAT(may_begin_early(std::vector<Access>{unknown, reads_a}), ElementsAre(true, false));
  const Access nothing{{}, {}, {{5, 5}}};
  EXPECT_THAT(may_begin_early(std::vector<Access>{unknown, nothing}), ElementsAre(true, true));
}

// The slow search: every pair is compared, and paths are followed.

bool overlap(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  for (ByteRange x : a) {
    for (ByteRange y : b) {
      if (std::max(x.begin, y.begin) < std::min(x.end, y.end)) return true;
    }
  }
  return false;
}

bool has(const Access& a, const Access& b, Hazard hazard) {
  switch (hazard) {
    case Hazard::read_after_write: return overlap(a.writes, b.reads);
    case Hazard::write_after_read: return overlap(a.reads, b.writes);
    case Hazard::write_after_write: return overlap(a.writes, b.writes);
  }
  return false;
}

bool conflict(const Access& a, const Access& b) {
  return overlap(a.writes, b.reads) || overlap(a.reads, b.writes) || overlap(a.writes, b.writes);
}

std::vector<Access> random_program(std::mt19937& random) {
  std::vector<Access> program(1 + random() % 40);
  const unsigned memory = 1 + random() % 200;  // small: much overlaps; large: little does
  for (Access& access : program) {
    for (auto* ranges : {&access.reads, &access.writes, &access.early}) {
      for (unsigned i = random() % 4; i > 0; --i) {
        const std::uintptr_t begin = random() % memory;
        ranges->push_back({begin, begin + random() % 12});
      }
    }
  }
  return program;
}

TEST(MayBeginEarly, AgreesWithTheSlowSearchInRandomPrograms) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Access> program = random_program(random);
    const std::vector<bool> may = may_begin_early(program);
    for (std::size_t i = 0; i < program.size(); ++i) {
      const auto before = program.begin() + static_cast<std::ptrdiff_t>(i);
      const bool written = std::any_of(program.begin(), before, [&](const Access& access) {
        return overlap(access.writes, program[i].early);
      });
      ASSERT_EQ(may[i], !written) << "operation " << i << " of seed " << seed;
    }
  }
}

TEST(Dependencies, OrderEveryConflictAndNothingTwiceInRandomPrograms) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::vector<Access> program = random_program(random);
    const std::vector<Dependency> edges = dependencies(program);
    const std::size_t n = program.size();

    std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
    std::vector<std::vector<bool>> before(n, std::vector<bool>(n));  // by one edge or more
    std::vector<std::vector<std::uint32_t>> parents(n);
    for (const Dependency& edge : edges) {
      ASSERT_LT(edge.from, edge.to);
      ASSERT_TRUE(pairs.emplace(edge.from, edge.to).second) << "an edge is there twice";
      ASSERT_TRUE(has(program[edge.from], program[edge.to], edge.hazard)) << "no such hazard";
      ASSERT_LT(edge.bytes.begin, edge.bytes.end);
      parents[edge.to].push_back(edge.from);
    }
    for (std::size_t to = 0; to < n; ++to) {
      for (std::uint32_t parent : parents[to]) {
        before[to][parent] = true;
        for (std::size_t i = 0; i < n; ++i) before[to][i] = before[to][i] || before[parent][i];
      }
    }
    for (std::size_t to = 0; to < n; ++to) {
      for (std::size_t from = 0; from < to; ++from) {
        if (conflict(program[from], program[to])) {
          ASSERT_TRUE(before[to][from]) << from << " and " << to << " are not ordered";
        }
      }
      for (std::uint32_t parent : parents[to]) {
        for (std::uint32_t other : parents[to]) {
          ASSERT_FALSE(before[other][parent]) << parent << " -> " << to << " follows from others";
        }
      }
    }
  }
}

}  // namespace
}  // namespace kiln::jit
