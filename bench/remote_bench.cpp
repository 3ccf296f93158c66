// What the remote tier costs and saves: an entry from the server beside the same entry from disk
// and beside a compile, and a fleet's cold start. The server is one on a Unix socket of this
// machine: a network adds its round trip. The code object is 16 KiB, the source 48 KiB.
//
// cold_start is a simulation with the times that the other rows measure: machines that start
// together and need the same 300 kernels, each with four threads that compile units of eight. The
// server does one thing at a time. Its counters are the compiles of all machines, the bytes that
// the server sends and receives, and the seconds until the last machine has its last kernel.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <queue>
#include <random>
#include <vector>

#include "ahead/prepare.hpp"
#include "bench/rounds.hpp"
#include "cache/cache.hpp"
#include "kiln/kiln.hpp"
#include "tests/cache/sample.hpp"
#include "tests/support/redis_server.hpp"

namespace kiln::cache {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

const std::size_t kKernels = bench::rounds<std::size_t>(300, 16);

Entry typical_entry(std::uint64_t number) {
  Entry entry = sample_entry(number, 16 << 10);
  while (entry.source.size() < 48 << 10) {
    entry.source += fmt::format("  const float v{0} = v{1} * 0.5f;\n", entry.source.size(), 7);
  }
  return entry;
}

std::vector<Key> all_keys() {
  std::vector<Key> keys;
  for (std::uint64_t i = 0; i < kKernels; ++i) keys.push_back(sample_key(i));
  return keys;
}

/// A server that has every kernel, and machines that use it.
class Fleet {
 public:
  Fleet() {
    const auto maker = machine("maker");
    for (std::uint64_t i = 0; i < kKernels; ++i) {
      maker->publish(sample_key(i), typical_entry(i));
    }
    maker->flush_remote(Clock::now() + std::chrono::seconds(60));
  }
  std::shared_ptr<Cache> machine(const std::string& name) {
    Config config = config_for(temporary_.path(name));
    config.secret = Secret("0123456789abcdef0123456789abcdef");
    config.remote = parse_remote_url("redis+unix://" + server_.socket() + "?wait=60s");
    return Cache::open(config);
  }

 private:
  const TemporaryDirectory temporary_;
  const testing::RedisServer server_;
};

Fleet& fleet() {
  static Fleet one;
  return one;
}

void local_hit(benchmark::State& state) {
  const auto cache = fleet().machine("maker");
  for (auto _ : state) {
    auto entry = cache->find(sample_key(0));
    if (!entry) state.SkipWithError("the entry is not there");
    benchmark::DoNotOptimize(entry);
  }
}

// Without the file that is then written to the user's directory.
void remote_hit(benchmark::State& state) {
  const auto cache = fleet().machine("maker");
  const auto remote = cache->remote();
  const std::vector<Key> keys = {sample_key(0)};
  for (auto _ : state) {
    const auto found = remote->fetch(keys, Clock::now() + std::chrono::seconds(60));
    if (!found.front()) state.SkipWithError("the entry is not there");
  }
}

void remote_miss(benchmark::State& state) {
  const auto remote = fleet().machine("maker")->remote();
  const std::vector<Key> keys = {sample_key(kKernels)};
  for (auto _ : state) {
    benchmark::DoNotOptimize(remote->fetch(keys, Clock::now() + std::chrono::seconds(60)));
  }
}

// All kernels into an empty directory.
void prefetch(benchmark::State& state) {
  const std::vector<Key> keys = all_keys();
  int machines = 0;
  for (auto _ : state) {
    const auto cache = fleet().machine(fmt::format("prefetcher{}", machines++));
    cache->prefetch(keys);
    if (!cache->find(keys.back())) state.SkipWithError("the entry is not there");
  }
}

/// Compiles kernels that nobody has, for the host; the seconds that the compiler took for each.
double compile_kernels(int kernels) {
  static int count = 0;
  Specification specification;
  ArgumentSpec argument;
  argument.name = "x";
  argument.dtype = DType::f32;
  argument.shape = {64};
  specification.arguments.push_back(argument);
  std::vector<Function> functions;
  for (int i = 0; i < kernels; ++i) {
    functions.push_back(parse("made", fmt::format("tanh(x) * {}.25", ++count)));
  }
  std::vector<PrepareRequest> requests;
  for (const Function& function : functions) {
    requests.push_back({&function, &specification, {}, "cpu"});
  }
  double milliseconds = 0;
  for (const Preparation& one : prepare_requests(requests, {})) {
    milliseconds += one.get().compile_ms;
  }
  return milliseconds / 1000 / kernels;
}

void compile_one(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(compile_kernels(1));
}

/// What the simulation is made of, measured here once.
struct Times {
  double round_trip = 0;  ///< of a look-up that finds nothing
  double entry = 0;       ///< of an entry among many, for the server
  double compile = 0;     ///< of a kernel among several of a unit
  double entry_bytes = 0;

  static const Times& measured() {
    static const Times times = [] {
      Times made;
      const auto remote = fleet().machine("maker")->remote();
      const std::vector<Key> all = all_keys(), none = {sample_key(kKernels)};
      const auto time = [&](const std::vector<Key>& keys) {
        std::vector<double> samples;
        for (int i = 0; i < 11; ++i) {
          const auto start = Clock::now();
          benchmark::DoNotOptimize(remote->fetch(keys, start + std::chrono::seconds(60)));
          samples.push_back(Seconds(Clock::now() - start).count());
        }
        std::ranges::nth_element(samples, samples.begin() + 5);
        return samples[5];
      };
      made.round_trip = time(none);
      made.entry = time(all) / kKernels;
      made.compile = compile_kernels(bench::rounds(16, 2));
      made.entry_bytes =
          static_cast<double>(encode(sample_key(0), typical_entry(0)).size() + kMacBytes);
      return made;
    }();
    return times;
  }
};

struct ColdStart {
  std::size_t compiles = 0;
  double bytes = 0;
  double seconds = 0;
};

/// Threads of machines in the order of time. Each takes the next unit of its machine, asks for its
/// kernels, compiles those that no machine has begun, and asks again and again for the others.
class Simulation {
 public:
  Simulation(std::size_t machines, bool has_tier) : has_tier_(has_tier), machines_(machines) {
    for (Machine& machine : machines_) {
      machine.order.resize(kKernels);
      std::iota(machine.order.begin(), machine.order.end(), 0);
      if (has_tier) std::ranges::shuffle(machine.order, random_);
    }
  }

  ColdStart run() {
    for (std::size_t m = 0; m < machines_.size(); ++m) {
      for (int t = 0; t < kThreads; ++t) events_.push({0, m, {}, {}, 0});
    }
    while (!events_.empty()) {
      Event event = events_.top();
      events_.pop();
      result_.seconds = std::max(result_.seconds, event.time);
      step(event);
    }
    return result_;
  }

 private:
  static constexpr int kThreads = 4;
  static constexpr std::size_t kUnit = 8;
  struct Machine {
    std::vector<std::size_t> order;
    std::size_t next = 0;
  };
  struct Event {
    double time;
    std::size_t machine;
    std::vector<std::size_t> made;   ///< kernels that it has compiled by then
    std::vector<std::size_t> waits;  ///< kernels that others compile
    int turn;
    bool operator<(const Event& other) const { return time > other.time; }
  };

  // The server's answer to a request of that many commands and entries.
  double answered(double time, std::size_t commands, std::size_t entries) {
    const double work = static_cast<double>(commands) * times_.round_trip / 10 +
                        static_cast<double>(entries) * times_.entry;
    server_free_ = std::max(server_free_, time) + work;
    result_.bytes += static_cast<double>(entries) * times_.entry_bytes;
    return server_free_ + times_.round_trip;
  }

  // A request and what follows from it at once: the server takes them in the order of time.
  void step(Event& event) {
    if (!event.made.empty()) {
      if (has_tier_) {
        event.time = answered(event.time, event.made.size(), event.made.size());
        for (const std::size_t kernel : event.made) published_[kernel] = event.time;
      }
      event.made.clear();
      events_.push(event);
      return;
    }
    std::vector<std::size_t> unit = std::move(event.waits);
    event.waits.clear();
    if (unit.empty()) {
      Machine& machine = machines_[event.machine];
      for (; unit.size() < kUnit && machine.next < kKernels; ++machine.next) {
        unit.push_back(machine.order[machine.next]);
      }
      event.turn = 0;
    }
    if (unit.empty()) return;
    std::size_t fetched = 0;
    for (const std::size_t kernel : unit) {
      if (has_tier_ && published_[kernel] <= event.time) {
        ++fetched;
      } else if (has_tier_ && begun_[kernel]) {
        event.waits.push_back(kernel);
      } else {
        event.made.push_back(kernel);
        begun_[kernel] = true;
      }
    }
    if (has_tier_) event.time = answered(event.time, unit.size(), fetched);
    event.time += static_cast<double>(event.made.size()) * times_.compile;
    result_.compiles += event.made.size();
    if (event.made.empty() && !event.waits.empty()) {  // Cache::pause_for_others
      const double most = 0.005 * static_cast<double>(1 << std::min(event.turn++, 6));
      event.time += std::uniform_real_distribution<double>(most / 2, most)(random_);
    }
    events_.push(event);
  }

  const bool has_tier_;
  const Times& times_ = Times::measured();
  std::vector<Machine> machines_;
  std::vector<bool> begun_ = std::vector<bool>(kKernels);
  std::vector<double> published_ = std::vector<double>(kKernels, 1e300);
  std::priority_queue<Event> events_;
  double server_free_ = 0;
  std::minstd_rand random_{1};
  ColdStart result_;
};

void cold_start(benchmark::State& state, bool has_tier) {
  ColdStart result;
  for (auto _ : state) {
    result = Simulation(static_cast<std::size_t>(state.range(0)), has_tier).run();
  }
  state.counters["compiles"] = static_cast<double>(result.compiles);
  state.counters["MiB"] = result.bytes / (1 << 20);
  state.counters["seconds"] = result.seconds;
}

}  // namespace
}  // namespace kiln::cache

int main(int count, char** arguments) {
  using namespace kiln::cache;
  std::string reason = remote_unsupported({});
  if (kiln::testing::redis_program().empty()) {
    reason = "neither valkey-server nor redis-server is installed";
  }
  if (!reason.empty()) {
    fmt::print("remote_bench: Skipped\n{}\n", reason);
    return 0;
  }
  benchmark::RegisterBenchmark("local_hit", local_hit)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("remote_hit", remote_hit)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("remote_miss", remote_miss)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark(fmt::format("prefetch_{}", kKernels).c_str(), prefetch)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("compile", compile_one)->Unit(benchmark::kMillisecond);
  for (const bool has_tier : {false, true}) {
    for (const int machines : {1, 8, 64, 512}) {
      benchmark::RegisterBenchmark(has_tier ? "cold_start/remote" : "cold_start/alone", cold_start,
                                   has_tier)
          ->Arg(machines)
          ->Unit(benchmark::kMillisecond)
          ->Iterations(1);
    }
  }
  benchmark::Initialize(&count, arguments);
  benchmark::RunSpecifiedBenchmarks();
}
