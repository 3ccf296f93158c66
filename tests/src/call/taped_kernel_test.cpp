// Which of a kernel's tapes are looked at, when it gets another one, and which one goes for it.
#include "call/taped_kernel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/reclamation.hpp"

namespace kiln {
namespace {

/// A kernel with tapes that hold for one number each.
struct NumberedTapes {
  /// Whether one holds for a number; else whether another one is wanted, which is added then.
  bool find(int number, bool& wants) {
    const auto tape_of = [&](std::uint64_t at) -> const int* {
      return tapes[at] ? &*tapes[at] : nullptr;
    };
    const auto holds = [&](int own) { return own == number; };
    const bool held = recent.find(kind, tape_of, holds, wants) != nullptr;
    if (wants) {
      const auto free = std::ranges::find(tapes, std::optional<int>());
      const auto at = free != tapes.end() ? static_cast<std::uint8_t>(free - tapes.begin())
                                          : recent.least_recent();
      tapes[at] = number;
      recent.note_tape(at, kind);
    }
    return held;
  }
  bool has(int number) const {
    return std::ranges::find(tapes, std::optional(number)) != tapes.end();
  }

  std::size_t kind = 5;  ///< of sizes
  RecentTapes recent;
  std::array<std::optional<int>, RecentTapes::kMostTapes> tapes{};
};

TEST(RecentTapes, AreMadeWhereNoneHolds) {
  NumberedTapes kernel;
  bool wants = false;
  for (int number = 0; number < 100; ++number) {
    EXPECT_FALSE(kernel.find(number, wants));
    EXPECT_TRUE(wants);
    EXPECT_TRUE(kernel.find(number, wants));
    EXPECT_TRUE(kernel.find(number / 2, wants));
    EXPECT_FALSE(wants);
  }
}

// A plan table drops what has not been used for long, in whatever order.
TEST(RecentTapes, AreFoundBehindThoseThatWereDropped) {
  NumberedTapes kernel;
  bool wants = false;
  for (int number = 0; number < 10; ++number) kernel.find(number, wants);
  for (const std::size_t dropped : {0, 3, 4, 8}) kernel.tapes[dropped].reset();
  for (const int number : {9, 1, 2, 5, 6, 7}) {
    EXPECT_TRUE(kernel.find(number, wants)) << number;
  }
  EXPECT_FALSE(kernel.find(3, wants));
  EXPECT_TRUE(wants);
  EXPECT_EQ(kernel.tapes[0], 3) << "where one was dropped";
}

TEST(RecentTapes, AreBoundedAndTheLeastRecentGoes) {
  NumberedTapes kernel;
  bool wants = false;
  constexpr int kMost = RecentTapes::kMostTapes;
  for (int number = 0; number < kMost; ++number) kernel.find(number, wants);
  int made = 0;
  int calls = 0;
  for (int number = kMost; made < 20; ++number, ++calls) {
    kernel.kind = 4;
    EXPECT_TRUE(kernel.find(7, wants));
    kernel.kind = 5;
    kernel.find(number, wants);
    if (wants) ++made;
    ASSERT_LT(calls, 100000);
  }
  EXPECT_GT(calls, 20 * made) << "recording takes several times as long as planning";
  EXPECT_TRUE(kernel.has(7)) << "it has been used";
  EXPECT_FALSE(kernel.has(0));
  EXPECT_TRUE(kernel.has(kMost - 1));
}

// As with lengths that grow through more schedules than a kernel has tapes.
TEST(RecentTapes, AreMadeForAsLongAsTheyHoldAgain) {
  NumberedTapes kernel;
  bool wants = false;
  for (int number = 0; number < 5 * RecentTapes::kMostTapes; ++number) {
    EXPECT_FALSE(kernel.find(number, wants));
    ASSERT_TRUE(wants) << number;
    EXPECT_TRUE(kernel.find(number, wants));
  }
}

// Where there can be none, recording is not tried each time.
TEST(RecentTapes, AreSeldomTriedWhereThereCanBeNone) {
  const RecentTapes recent;
  const auto none = [](std::uint64_t) -> const int* { return nullptr; };
  const auto holds = [](int) { return true; };
  int tried = 0;
  for (int call = 0; call < 5000; ++call) {
    bool wants = false;
    recent.find(static_cast<std::size_t>(call) % 3, none, holds, wants);
    if (!wants) continue;
    ++tried;
    recent.note_no_tape();
  }
  EXPECT_GE(tried, 1);
  EXPECT_LE(tried, 20);
}

struct NumberedPlan final : CachedPlan {
  NumberedPlan(std::uint64_t word, int own) : number(own) {
    signature = {word};
    hash = mixed(0, word);
  }
  std::size_t bytes() const override { return 100; }
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override { return {}; }
  int number;
};

TEST(PlanTables, ReplaceThePlanOfASignature) {
  PlanTable plans;
  const auto found = [&](std::uint64_t word) {
    const base::ReadSection reading;
    const CachedPlan* const plan = plans.find({&word, 1}, mixed(0, word));
    return plan == nullptr ? -1 : static_cast<const NumberedPlan*>(plan)->number;
  };
  const PlanUsage before = plan_usage({});
  for (std::uint64_t word = 1; word <= 40; ++word) {
    plans.replace(std::make_shared<NumberedPlan>(word, static_cast<int>(word)));
  }
  std::weak_ptr<CachedPlan> first;
  for (const int number : {1000, 1001}) {
    auto plan = std::make_shared<NumberedPlan>(7, number);
    if (first.expired()) first = plan;
    plans.replace(std::move(plan));
    EXPECT_EQ(found(7), number);
  }
  EXPECT_TRUE(first.expired()) << "nobody reads it";
  EXPECT_EQ(found(8), 8);
  EXPECT_EQ(found(41), -1);
  EXPECT_EQ(plan_usage({}).plans - before.plans, 40u);
  EXPECT_EQ(plan_usage({}).bytes - before.bytes, 40u * 100);
}

}  // namespace
}  // namespace kiln
