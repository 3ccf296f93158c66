// How work is cut over cores, and how many threads there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <random>

#include "jit/device/cpu/threads.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::cpu {
namespace {

TEST(Cut, CoversEverythingOnceForAnyCount) {
  std::mt19937_64 random(7);
  for (int draw = 0; draw < 20'000; ++draw) {
    const std::uint64_t items = random() >> (random() % 63);
    const std::uint64_t block = 1 + (random() >> (40 + random() % 24));
    const int threads = 1 + static_cast<int>(random() % 200);
    const Cut parts = cut(items, block, threads);
    if (items == 0) {
      ASSERT_EQ(parts.parts, 0U);
      continue;
    }
    ASSERT_GE(parts.parts, 1U);
    ASSERT_LE(parts.parts, static_cast<std::uint64_t>(threads));
    ASSERT_EQ(parts.parts, (items - 1) / parts.length + 1) << "the last part is empty or too long";
  }
}

TEST(Cut, OneBlockStaysOnOneThread) {
  EXPECT_EQ(cut(16'384, 16'384, 64).parts, 1U);
  EXPECT_EQ(cut(16'385, 16'384, 64).parts, 2U);
}

TEST(Cut, NeverMorePartsThanBlocks) { EXPECT_EQ(cut(3 * 4096, 4096, 64).parts, 3U); }

TEST(Cut, FewLargeItemsUseEveryThread) { EXPECT_EQ(cut(8, 1, 8).parts, 8U); }

TEST(Cut, LongPartsEndAtCacheLines) { EXPECT_EQ(cut(1'000'003, 1024, 7).length % 64, 0U); }

TEST(Threads, OverrideIsAWholeNumber) {
  EXPECT_EQ(parse_thread_count("12"), 12);
  for (const char* wrong : {"0", "-3", "4097", "2 ", "two", "1.5", "99999999999999999999"}) {
    try {
      parse_thread_count(wrong);
      ADD_FAILURE() << wrong << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("KILN_CPU_THREADS"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(wrong));
    }
  }
}

// The count is read once, so each of these asks in a process of its own.
TEST(ThreadsDeathTest, AreAsManyAsTheEnvironmentSays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("KILN_CPU_THREADS", "7", 1);
        std::exit(thread_count() == 7 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(ThreadsDeathTest, AreNoMoreThanTheCoresOfTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        unsetenv("KILN_CPU_THREADS");
        cpu_set_t allowed;
        cpu_set_t one;
        CPU_ZERO(&one);
        sched_getaffinity(0, sizeof allowed, &allowed);
        int core = 0;
        while (!CPU_ISSET(core, &allowed)) ++core;
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        std::exit(thread_count() == 1 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln::jit::cpu
