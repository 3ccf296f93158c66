// One compile for each key among machines: processes with directories of their own and one server
// between them, also when the one that compiles is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <numeric>

#include "base/subprocess.hpp"
#include "cache/remote/remote.hpp"
#include "server_test.hpp"
#include "tests/support/child_process.hpp"

namespace kiln::cache {
namespace {

using kiln::testing::fork_child;
using kiln::testing::Pipe;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class Fleet : public ServerTest {
 protected:
  /// Patient, so that a busy machine compiles nothing twice.
  std::shared_ptr<Cache> machine(const std::string& name, const std::string& options,
                                 std::chrono::milliseconds wait_limit = seconds(120)) {
    return ServerTest::machine(name, "wait=60s&answer=60s&" + options, wait_limit);
  }
  static std::string lease_of(const Key& key) { return "kiln:1:lease:" + key.hex(); }
};

TEST_F(Fleet, OfEightMachinesCompilesEachOfTwoHundredKernelsOnce) {
  constexpr std::size_t kMachines = 8, kKernels = 200;
  Pipe compiled;
  std::vector<pid_t> children;
  for (std::size_t m = 0; m < kMachines; ++m) {
    children.push_back(fork_child([&, m] {
      const auto cache = machine("machine" + std::to_string(m), "lease=60s");
      std::vector<std::size_t> order(kKernels);
      std::iota(order.begin(), order.end(), 0);
      // Half of them run the same programs in the same order.
      if (m % 2 == 1) std::shuffle(order.begin(), order.end(), std::mt19937(m));
      bool right = true;
      for (const std::size_t k : order) {
        const Entry entry = build(*cache, sample_key(k), [&] {
          compiled.send(static_cast<std::uint8_t>(k));
          return sample_entry(k);
        });
        right = right && entry.code == sample_entry(k).code;
      }
      return right && flush(*cache) ? 0 : 1;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(base::wait_for(child), 0);
  std::map<std::uint8_t, int> times;
  while (compiled.is_readable()) ++times[compiled.receive<std::uint8_t>()];
  EXPECT_EQ(times.size(), kKernels);
  for (const auto& [k, count] : times) EXPECT_EQ(count, 1) << "kernel " << static_cast<int>(k);
}

enum class Step : std::uint8_t { claimed, compiled, published, on_the_server };

class OwnerKilled : public Fleet, public ::testing::WithParamInterface<Step> {};

TEST_P(OwnerKilled, CostsOneLeaseAndAtMostOneCompileMore) {
  const Key key = sample_key(1);
  Pipe compiled, claimed, go;
  const auto die_at = [&](Step step) {
    if (GetParam() == step) ::raise(SIGKILL);
  };
  const pid_t owner = fork_child([&] {
    const auto cache = machine("owner", "lease=500ms");
    build(*cache, key, [&] {
      claimed.send('c');
      go.receive<char>();
      die_at(Step::claimed);
      compiled.send('c');
      die_at(Step::compiled);
      return sample_entry(1);
    });
    die_at(Step::published);
    flush(*cache);
    die_at(Step::on_the_server);
    return 1;
  });
  claimed.receive<char>();
  std::vector<pid_t> others;
  for (int m = 0; m < 4; ++m) {
    others.push_back(fork_child([&, m] {
      const auto cache = machine("other" + std::to_string(m), "lease=60s");
      const Entry entry = build(*cache, key, [&] {
        compiled.send('c');
        return sample_entry(1);
      });
      return entry.code == sample_entry(1).code && flush(*cache) ? 0 : 1;
    }));
  }
  go.send('g');
  const int status = base::wait_for(owner).value();
  EXPECT_TRUE(WIFSIGNALED(status));
  for (const pid_t other : others) EXPECT_EQ(base::wait_for(other), 0);
  int compiles = 0;
  for (; compiled.is_readable(); ++compiles) compiled.receive<char>();
  EXPECT_GE(compiles, 1);
  EXPECT_LE(compiles, 2);
}

INSTANTIATE_TEST_SUITE_P(AtEachStep, OwnerKilled,
                         ::testing::Values(Step::claimed, Step::compiled, Step::published,
                                           Step::on_the_server));

TEST_F(Fleet, AMachineWaitsForAnotherAndTakesWhatItPublished) {
  const Key key = sample_key(1);
  const auto owner = machine("owner", "lease=60s");
  const auto waiter = machine("waiter", "lease=60s");
  Cache::Claim claim = std::move(owner->claim({&key, 1}).front());
  EXPECT_TRUE(claim.lease);
  EXPECT_FALSE(claim.elsewhere);
  EXPECT_TRUE(waiter->claim({&key, 1}).front().elsewhere);
  ASSERT_TRUE(owner->publish(key, sample_entry(1)));
  ASSERT_TRUE(flush(*owner));
  EXPECT_EQ(ask({"EXISTS", lease_of(key)}).integer, 0);
  const Cache::Claim taken = std::move(waiter->claim({&key, 1}).front());
  ASSERT_TRUE(taken.entry);
  EXPECT_EQ(taken.entry->code, sample_entry(1).code);
  ASSERT_TRUE(flush(*waiter));
  EXPECT_EQ(ask({"EXISTS", lease_of(key)}).integer, 0) << "the lease of who found it goes back too";
  EXPECT_TRUE(waiter->find(key));
}

TEST_F(Fleet, ACompileThatFailsGivesTheLeaseBack) {
  const Key key = sample_key(1);
  const auto owner = machine("owner", "lease=60s");
  owner->claim({&key, 1}).clear();
  ASSERT_TRUE(flush(*owner));
  EXPECT_TRUE(machine("other", "lease=60s")->claim({&key, 1}).front().lease);
}

TEST_F(Fleet, ALeaseIsRenewedWhileItLives) {
  const Key key = sample_key(1);
  const auto owner = machine("owner", "lease=900ms");
  const Cache::Claim claim = std::move(owner->claim({&key, 1}).front());
  const auto limit = Clock::now() + seconds(60);
  auto left = ask({"PTTL", lease_of(key)}).integer;
  EXPECT_GT(left, 0);
  EXPECT_LE(left, 900);
  while (true) {
    const auto now = ask({"PTTL", lease_of(key)}).integer;
    if (now > left) break;
    left = now;
    ASSERT_LT(Clock::now(), limit) << "it was never renewed";
  }
}

// A machine that was stopped longer than its lease finds that another one has it.
TEST_F(Fleet, ALeaseThatIsAnothersIsNeitherRenewedNorGivenBack) {
  const Key key = sample_key(1);
  const auto owner = machine("owner", "lease=90ms");
  {
    const Cache::Claim claim = std::move(owner->claim({&key, 1}).front());
    ASSERT_TRUE(claim.lease);
    ask({"SET", lease_of(key), "another's", "PX", "600000"});
    const auto limit = Clock::now() + std::chrono::milliseconds(200);  // several renewals
    while (Clock::now() < limit) EXPECT_GT(ask({"PTTL", lease_of(key)}).integer, 500'000);
  }
  ASSERT_TRUE(flush(*owner));
  EXPECT_EQ(ask({"GET", lease_of(key)}).text, "another's");
}

TEST_F(Fleet, AMachineThatHasWaitedLongEnoughCompilesAlone) {
  const Key key = sample_key(1);
  ask({"SET", lease_of(key), "a machine that hangs"});
  const auto cache = machine("waiter", "lease=60s", std::chrono::milliseconds(200));
  int compiles = 0;
  const auto before = Clock::now();
  build(*cache, key, [&] {
    ++compiles;
    return sample_entry(1);
  });
  EXPECT_EQ(compiles, 1);
  EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(200));
  ASSERT_TRUE(flush(*cache));
  EXPECT_TRUE(machine("other", "lease=60s")->fetch({&key, 1}).front());
}

TEST_F(Fleet, WithoutAServerEachMachineCompilesAtOnce) {
  const Key key = sample_key(1);
  server_->stop();
  int compiles = 0;
  for (int m = 0; m < 2; ++m) {
    build(*machine("machine" + std::to_string(m), "lease=60s"), key, [&] {
      ++compiles;
      return sample_entry(1);
    });
  }
  EXPECT_EQ(compiles, 2);
}

}  // namespace
}  // namespace kiln::cache
