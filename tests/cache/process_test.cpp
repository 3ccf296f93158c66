// Many processes on one directory: one compile per key, also when the one that compiles is killed.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <thread>

#include "base/subprocess.hpp"
#include "fault_io.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"
#include "tests/support/child_process.hpp"

namespace kiln::cache {
namespace {

using kiln::testing::fork_child;
using kiln::testing::Pipe;

constexpr int kProcesses = 64;

class Processes : public ::testing::Test {
 protected:
  // Each child gets the same key. One that compiles says who it is and waits to be told to go on;
  // one that waits for another says so once.
  void start() {
    for (int i = 0; i < kProcesses; ++i) {
      children_.push_back(fork_child([this] { return run_child(); }));
    }
  }

  int run_child() {
    Config config = config_for(directory());
    config.wait_limit = std::chrono::minutes(4);
    const auto io = std::make_shared<FaultIo>();
    io->on_pause = [this, said = false]() mutable {
      if (!std::exchange(said, true)) waiting_.send('w');
    };
    config.io = io;
    const Fetched fetched = fetch(*Cache::open(config), sample_key(), [this] {
      started_.send(::getpid());
      go_.receive<char>();
      finished_.send('f');
      return sample_entry();
    });
    return fetched.entry.code == sample_entry().code ? 0 : 1;
  }

  void expect_all_right(std::size_t killed) {
    std::size_t right = 0, signalled = 0;
    for (const pid_t child : children_) {
      const int status = base::wait_for(child).value();
      right += status == 0;
      signalled += WIFSIGNALED(status);
    }
    EXPECT_EQ(signalled, killed);
    EXPECT_EQ(right, children_.size() - killed);
    finished_.send('e');
    EXPECT_EQ(finished_.receive<char>(), 'f');
    EXPECT_EQ(finished_.receive<char>(), 'e') << "more than one process finished a compile";
    EXPECT_EQ(count_files(directory(), ".kiln"), 1u);
    EXPECT_EQ(count_files(directory(), ".lock"), 0u);
  }

  std::string directory() const { return temporary_.path("kiln"); }

  TemporaryDirectory temporary_;
  Pipe started_, waiting_, go_, finished_;
  std::vector<pid_t> children_;
};

TEST_F(Processes, OnOneKeyCompileOnce) {
  start();
  started_.receive<pid_t>();
  for (int i = 0; i < kProcesses - 1; ++i) waiting_.receive<char>();
  go_.send('g');
  expect_all_right(0);
}

TEST_F(Processes, OnOneKeyFinishOneCompileAlsoWhenTheFirstIsKilled) {
  start();
  const pid_t owner = started_.receive<pid_t>();
  for (int i = 0; i < kProcesses - 1; ++i) waiting_.receive<char>();
  ASSERT_EQ(::kill(owner, SIGKILL), 0);
  EXPECT_NE(started_.receive<pid_t>(), owner);
  go_.send('g');
  expect_all_right(1);
}

TEST_F(Processes, AForkedChildDoesNotKeepTheLock) {
  // The compile forks a child that outlives it, as a daemon of the caller would.
  Pipe end;
  pid_t child = -1;
  const auto cache = Cache::open(config_for(directory()));
  fetch(*cache, sample_key(), [&] {
    child = fork_child([&] { return end.receive<char>() == 'e' ? 0 : 1; });
    return sample_entry();
  });
  Config config = config_for(directory());
  const auto io = std::make_shared<FaultIo>();
  io->on_pause = [] { ADD_FAILURE() << "waited for a lock that should be free"; };
  config.io = io;
  fs::remove(path_of(directory(), sample_key()));
  EXPECT_EQ(fetch(*Cache::open(config), sample_key(), [] { return sample_entry(); }).from,
            From::compiled);
  end.send('e');
  EXPECT_EQ(base::wait_for(child), 0);
}

// The lock itself, step by step: `on_pause` runs when a waiter has found the lock taken.
class KeyLocks : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = config_for(temporary_.path("kiln"));
    config_.io = waiter_io_;
    waiter_ = Cache::open(config_);
    config_.io = nullptr;
    owner_ = Cache::open(config_);
  }
  static std::chrono::steady_clock::time_point in(std::chrono::seconds time) {
    return std::chrono::steady_clock::now() + time;
  }
  std::unique_ptr<KeyLock> take() {
    auto lock =
        std::make_unique<KeyLock>(*owner_->directory(), sample_key(), in({}), [] { return false; });
    EXPECT_EQ(lock->state(), KeyLock::State::owned);
    return lock;
  }
  KeyLock wait(std::chrono::seconds time) {
    return {*waiter_->directory(), sample_key(), in(time),
            [this] { return waiter_->find(sample_key()).has_value(); }};
  }
  TemporaryDirectory temporary_;
  Config config_;
  std::shared_ptr<FaultIo> waiter_io_ = std::make_shared<FaultIo>();
  std::shared_ptr<Cache> owner_, waiter_;
};

TEST_F(KeyLocks, AWaiterIsNotFooledByTheFileOfAFormerOwner) {
  // The first owner deletes its file and goes; before the waiter looks again, another takes a new
  // one.
  std::unique_ptr<KeyLock> owner = take();
  int pauses = 0;
  waiter_io_->on_pause = [&] {
    owner.reset();
    if (++pauses == 1) owner = take();
  };
  const KeyLock lock = wait(std::chrono::seconds(60));
  EXPECT_EQ(lock.state(), KeyLock::State::owned);
  EXPECT_EQ(pauses, 2) << "it owned the lock while somebody else did";
}

TEST_F(KeyLocks, AWaiterIsNotHeldUpByAForkedChildOfAFormerOwner) {
  std::unique_ptr<KeyLock> owner = take();
  Pipe end;
  // It has the owner's descriptor, and does not know.
  const pid_t child = fork_child([&] { return end.receive<char>() == 'e' ? 0 : 1; });
  waiter_io_->on_pause = [&] { owner.reset(); };
  const KeyLock lock = wait(std::chrono::seconds(5));
  EXPECT_EQ(lock.state(), KeyLock::State::owned);
  end.send('e');
  EXPECT_EQ(base::wait_for(child), 0);
}

TEST_F(KeyLocks, AnEntryThatAppearsEndsTheWait) {
  const std::unique_ptr<KeyLock> owner = take();
  waiter_io_->on_pause = [&] { owner_->publish(sample_key(), sample_entry()); };
  const KeyLock lock = wait(std::chrono::seconds(60));
  EXPECT_EQ(lock.state(), KeyLock::State::published);
}

TEST_F(KeyLocks, EntriesThatCannotBeReadDoNotEndTheWait) {
  constexpr int kDamaged = 5;
  std::unique_ptr<KeyLock> owner = take();
  int pauses = 0;
  waiter_io_->on_pause = [&] {
    if (++pauses > kDamaged) return owner.reset();
    write_text(path_of(temporary_.path("kiln"), sample_key()), "damaged");
  };
  const Locked locked = waiter_->lock(sample_key(), in(std::chrono::seconds(60)));
  EXPECT_FALSE(locked.entry);
  ASSERT_TRUE(locked.lock);
  EXPECT_EQ(locked.lock->state(), KeyLock::State::owned);
  EXPECT_EQ(pauses, kDamaged + 1);
}

TEST_F(KeyLocks, AnAbandonedLockIsTaken) {
  take();
  write_text(
      temporary_.path("kiln/") + sample_key().hex().substr(0, 2) + "/" + lock_name(sample_key()),
      "");
  take();
}

TEST(Races, EvictionTakesNothingFromAReader) {
  const TemporaryDirectory temporary;
  Config config = config_for(temporary.path("kiln"));
  config.max_size = 40'000;  // a handful of the entries below
  constexpr int kKeys = 24, kRounds = 150;
  constexpr unsigned kThreads = 6;
  std::atomic<int> wrong{0}, found{0}, publishers{kThreads / 2};
  const auto work = [&](unsigned seed, bool publishes) {
    Config own = config;
    own.io = std::make_shared<FaultIo>();
    const auto cache = Cache::open(own);
    std::mt19937 random(seed);
    // Those that read go on while there is somebody who publishes.
    for (int i = 0; i < kRounds || (!publishes && publishers != 0); ++i) {
      const std::uint64_t number = random() % kKeys;
      if (publishes) {
        cache->publish(sample_key(number), sample_entry(number, 4000));
      } else if (const auto entry = cache->find(sample_key(number))) {
        ++found;
        wrong += entry->code != sample_entry(number, 4000).code;
      }
    }
    if (publishes) --publishers;
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i, i % 2 == 0);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(found, 0);
  const auto cache = Cache::open(config);
  EXPECT_LE(usage(*cache).bytes, config.max_size);
  EXPECT_TRUE(verify(*cache, false).problems.empty());
  EXPECT_EQ(count_quarantined(config.directory), 0u);
}

}  // namespace
}  // namespace kiln::cache
