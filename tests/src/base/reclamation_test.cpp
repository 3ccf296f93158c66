// What is retired is freed when no section can have found it, and not before.
#include "base/reclamation.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace kiln::base {
namespace {

TEST(Reclamation, WithoutReadersAnObjectIsFreedAtOnce) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = object;
  retire({std::move(object)});
  EXPECT_TRUE(seen.expired());
}

TEST(Reclamation, AnObjectStaysForSectionsThatBeganBefore) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = object;
  {
    const ReadSection outer;
    {
      const ReadSection inner;
      retire({std::move(object)});
    }
    retire({});
    EXPECT_FALSE(seen.expired()) << "the outer section has not ended";
  }
  retire({});
  EXPECT_TRUE(seen.expired());
}

TEST(Reclamation, ASectionThatBeginsLaterKeepsNothing) {
  auto object = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = object;
  std::latch began(1), may_end(1);
  auto before = std::make_unique<ReadSection>();
  retire({std::move(object)});
  std::thread later([&] {
    const ReadSection section;
    began.count_down();
    may_end.wait();
  });
  began.wait();
  before.reset();
  retire({});
  EXPECT_TRUE(seen.expired());
  may_end.count_down();
  later.join();
}

// Readers find whatever is current and look into it while another thread replaces it.
TEST(Reclamation, ReadersNeverSeeWhatWasFreed) {
  struct Value {
    explicit Value(int n) : number(n) {}
    ~Value() { number = -1; }
    std::atomic<int> number;
  };
  auto current = std::make_shared<Value>(0);
  std::atomic<Value*> shared = current.get();
  std::atomic<bool> ended = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!ended) {
        const ReadSection section;
        if (shared.load()->number < 0) ++wrong;
      }
    });
  }
  for (int n = 1; n < 20'000; ++n) {
    auto next = std::make_shared<Value>(n);
    shared.store(next.get());
    retire({std::exchange(current, std::move(next))});
  }
  ended = true;
  for (std::thread& reader : readers) reader.join();
  retire({});
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace kiln::base
