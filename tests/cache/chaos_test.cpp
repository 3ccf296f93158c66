// Machines that compile together while their server is killed, started again with nothing, and made
// to refuse what it is sent: every machine gets every kernel, in a time that has a bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "base/subprocess.hpp"
#include "server_test.hpp"
#include "tests/support/child_process.hpp"

namespace kiln::cache {
namespace {

using kiln::testing::fork_child;
using kiln::testing::Pipe;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Chaos : public ServerTest {
 protected:
  static constexpr std::size_t kMachines = 8, kKernels = 200;
  static constexpr milliseconds kCompile{20};

  /// Every machine builds every kernel while `disturb` is called again and again.
  void build_all(const std::function<void()>& disturb) {
    Pipe compiled;
    std::vector<pid_t> children;
    const auto start = Clock::now();
    for (std::size_t m = 0; m < kMachines; ++m) {
      children.push_back(fork_child([&, m] {
        set_log([](LogLevel, std::string_view) {});
        const auto cache = machine("machine" + std::to_string(m),
                                   "wait=200ms&answer=500ms&lease=300ms", std::chrono::seconds(2));
        std::vector<std::size_t> order(kKernels);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, std::minstd_rand(static_cast<unsigned>(m)));
        bool right = true;
        for (const std::size_t k : order) {
          const Entry entry = build(*cache, sample_key(k), [&] {
            std::this_thread::sleep_for(kCompile);
            compiled.send('c');
            return sample_entry(k);
          });
          right = right && entry.code == sample_entry(k).code && cache->find(sample_key(k));
        }
        return right && cache->stats()[Count::remote_refused] == 0 ? 0 : 1;
      }));
    }
    std::atomic<bool> done{false};
    std::thread disturber([&] {
      while (!done) {
        disturb();
        std::this_thread::sleep_for(milliseconds(300));
      }
    });
    for (const pid_t child : children) EXPECT_EQ(base::wait_for(child), 0);
    done = true;
    disturber.join();
    std::size_t compiles = 0;
    for (; compiled.is_readable(); ++compiles) compiled.receive<char>();
    const std::chrono::duration<double> took = Clock::now() - start;
    std::printf("%zu machines, %zu kernels: %zu compiles, %.1f s\n", kMachines, kKernels, compiles,
                took.count());
    EXPECT_GE(compiles, kKernels);
    EXPECT_LE(compiles, kMachines * kKernels);
    // At worst a machine waits for another's lease with every kernel.
    EXPECT_LT(took, kKernels * (kCompile + milliseconds(500)));
  }
};

TEST_F(Chaos, ServerIsKilledAndStartedAgainWithNothing) {
  build_all([&] {
    server_->stop();
    std::this_thread::sleep_for(milliseconds(100));
    server_->start();
  });
}

TEST_F(Chaos, ServerIsFlushed) {
  build_all([&] { ask({"FLUSHALL"}); });
}

TEST_F(Chaos, ServerIsFullAndThenAReplicaOfNobody) {
  bool full = false;
  build_all([&] {
    full = !full;
    ask({"CONFIG", "SET", "maxmemory", full ? "1" : "0"});
    ask(full ? Command{"REPLICAOF", "NO", "ONE"} : Command{"REPLICAOF", "127.0.0.1", "1"});
  });
}

TEST_F(Chaos, ServerStops) {
  build_all([&] { ask({"CLIENT", "PAUSE", "400"}); });
}

}  // namespace
}  // namespace kiln::cache
