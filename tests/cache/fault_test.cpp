// Every system call of every operation fails in every way a disk can fail, reads and writes stop
// short, and the process dies at every step. Afterwards the answer is right, or a miss; what else
// is in the directory is as it was; and the next process neither notices nor waits.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstring>
#include <functional>

#include "base/subprocess.hpp"
#include "cache/bundle.hpp"
#include "fault_io.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"
#include "tests/support/child_process.hpp"

namespace kiln::cache {
namespace {

constexpr std::int64_t kYear = 365LL * 24 * 3600 * 1'000'000'000;

// One operation on a directory that was prepared for it.
struct Scenario {
  const char* name;
  std::function<void(const std::string& directory)> prepare;
  std::function<void(Cache&)> run;  ///< checks what it gets
  bool has_bystander = true;        ///< entry 2 is there before and must be there after
  std::size_t bad = 0;              ///< how many entries there are that belong in quarantine
  /// A cache or bundle beside the directory that is only read: the same path and this.
  std::string readonly = {};
  /// What must hold beside what holds for all.
  std::function<void(const std::string& directory)> afterwards = [](const std::string&) {};
};

void publish_samples(const std::string& directory) {
  Config config = config_for(directory);
  config.io = std::make_shared<FaultIo>();  // for its sync
  const auto cache = Cache::open(config);
  ASSERT_TRUE(cache->publish(sample_key(1), sample_entry(1)));
  ASSERT_TRUE(cache->publish(sample_key(2), sample_entry(2)));
}

void publish_sample(const std::string& directory, std::uint64_t number) {
  Config config = config_for(directory);
  config.io = std::make_shared<FaultIo>();
  ASSERT_TRUE(Cache::open(config)->publish(sample_key(number), sample_entry(number)));
}

/// A bundle of both samples beside the directory, which has the second.
void make_bundle(const std::string& directory) {
  publish_samples(directory + "-other");
  Config config = config_for(directory + "-other");
  config.io = std::make_shared<FaultIo>();
  export_bundle(*Cache::open(config), directory + ".kilnpack", {});
  publish_sample(directory, 2);
}

/// Whole, or not there.
void expect_whole_bundle(const std::string& directory) {
  const std::string path = directory + ".kilnpack";
  if (!fs::exists(path)) return;
  const BundleIndex index = check_bundle(read_file(path), {});
  EXPECT_EQ(index.reason, "");
  EXPECT_FALSE(index.items.empty());
}

void expect_right(const std::optional<Entry>& entry, std::uint64_t number) {
  if (!entry) return;
  EXPECT_EQ(entry->code, sample_entry(number).code);
}

void get_and_check(Cache& cache, std::uint64_t number) {
  const Fetched fetched = fetch(cache, sample_key(number), [&] { return sample_entry(number); });
  EXPECT_EQ(fetched.entry.code, sample_entry(number).code);
}

void damage(const std::string& directory, std::uint64_t number) {
  const std::string path = path_of(directory, sample_key(number));
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(path, bytes);
}

/// What somebody asked for may fail, with an Error of the right kind.
void or_say_why(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io) << error.what();
  }
}

std::vector<Scenario> scenarios() {
  const auto make_old = [](const std::string& directory) {
    publish_samples(directory);
    const auto old = fs::file_time_type::clock::now() - std::chrono::hours(48);
    fs::last_write_time(path_of(directory, sample_key(1)), old);
    write_text(directory + "/" + sample_key(2).hex().substr(0, 2) + "/.tmp-left", "torn");
    fs::last_write_time(directory + "/" + sample_key(2).hex().substr(0, 2) + "/.tmp-left", old);
  };
  return {
      {"publish into nothing", [](const std::string&) {},
       [](Cache& cache) { cache.publish(sample_key(1), sample_entry(1)); }, false},
      {"publish over another", publish_samples,
       [](Cache& cache) { cache.publish(sample_key(1), sample_entry(1)); }},
      {"publish beside what a dead process left", make_old,
       [](Cache& cache) { cache.publish(sample_key(2), sample_entry(2)); }},
      {"find", publish_samples, [](Cache& cache) { expect_right(cache.find(sample_key(1)), 1); }},
      {"find what was not used for long", make_old,
       [](Cache& cache) { expect_right(cache.find(sample_key(1)), 1); }},
      {"find what is damaged",
       [](const std::string& directory) {
         publish_samples(directory);
         damage(directory, 1);
       },
       [](Cache& cache) { EXPECT_FALSE(cache.find(sample_key(1))); }, true, 1},
      {"get from nothing", [](const std::string&) {}, [](Cache& cache) { get_and_check(cache, 1); },
       false},
      {"get what is there", publish_samples, [](Cache& cache) { get_and_check(cache, 1); }},
      {"get what is damaged",
       [](const std::string& directory) {
         publish_samples(directory);
         damage(directory, 1);
       },
       [](Cache& cache) { get_and_check(cache, 1); }, true, 1},
      {"reject", publish_samples,
       [](Cache& cache) { cache.reject(sample_key(1), "the driver says no"); }, true, 1},
      {"get from a directory that is only read",
       [](const std::string& directory) {
         publish_samples(directory + "-other");
         publish_sample(directory, 2);
       },
       [](Cache& cache) { get_and_check(cache, 1); }, true, 0, "-other"},
      {"get from a bundle", make_bundle, [](Cache& cache) { get_and_check(cache, 1); }, true, 0,
       ".kilnpack"},
      {"export", publish_samples,
       [](Cache& cache) {
         try {
           export_bundle(cache, cache.config().directory + ".kilnpack", {});
         } catch (const Error& error) {  // what cannot be listed is logged, and is not found
           EXPECT_TRUE(error.code() == Code::io || error.code() == Code::not_found);
         }
       },
       true, 0, "", expect_whole_bundle},
      {"import", make_bundle,
       [](Cache& cache) {
         or_say_why([&] { import_bundle(cache, cache.config().directory + ".kilnpack"); });
       },
       true, 0, "", expect_whole_bundle},
      {"list", publish_samples,
       [](Cache& cache) { or_say_why([&] { EXPECT_LE(list(cache).size(), 2u); }); }},
      {"verify and repair",
       [](const std::string& directory) {
         publish_samples(directory);
         damage(directory, 1);
       },
       [](Cache& cache) { or_say_why([&] { verify(cache, true); }); }, true, 1},
      {"trim", publish_samples,
       [](Cache& cache) { or_say_why([&] {
                            trim(cache, {std::uint64_t{1}, {}, {}, false});
                          }); },
       false},
  };
}

/// Runs the scenario with `io`; true if no descriptor is left open.
void run(const Scenario& scenario, const std::string& directory,
         const std::shared_ptr<FaultIo>& io) {
  {
    Config config = config_for(directory);
    config.io = io;
    if (!scenario.readonly.empty()) config.readonly = {directory + scenario.readonly};
    const auto cache = Cache::open(config);
    EXPECT_NO_THROW(scenario.run(*cache));
  }
  EXPECT_EQ(io->open_descriptors(), 0);
}

/// What must hold afterwards for a process that knows nothing of what happened.
void expect_healthy(const std::string& directory, const Scenario& scenario,
                    const std::string& what) {
  SCOPED_TRACE(what);
  scenario.afterwards(directory);
  Config config = config_for(directory);
  const auto io = std::make_shared<FaultIo>();
  io->on_pause = [&] { ADD_FAILURE() << "waited for somebody who is gone"; };
  config.io = io;
  const auto cache = Cache::open(config);
  if (scenario.has_bystander) {
    EXPECT_TRUE(cache->find(sample_key(2)));
  }
  for (const std::uint64_t number : {1, 2}) {
    get_and_check(*cache, number);
    EXPECT_TRUE(cache->find(sample_key(number)));
  }
  // Much later, nothing of it is left to see.
  io->clock_offset = kYear;
  verify(*cache, true);
  const Verification verification = verify(*cache, false);
  EXPECT_EQ(verification.entries, 2u);
  EXPECT_TRUE(verification.problems.empty())
      << verification.problems[0].path << " " << verification.problems[0].reason;
  EXPECT_EQ(count_files(directory, ".tmp"), 0u);
  EXPECT_EQ(count_files(directory, ".lock"), 0u);
  // Nobody ever saw half an entry, and nothing good was taken for bad.
  EXPECT_LE(count_quarantined(directory), scenario.bad);
}

class Fault : public ::testing::TestWithParam<std::size_t> {
 protected:
  Fault() : scenario_(scenarios()[GetParam()]) {}

  /// A fresh directory, the fault, and the check. The number of calls it made.
  int attempt(const std::shared_ptr<FaultIo>& io, const std::string& what) {
    const TemporaryDirectory temporary(fast_directory(16 << 20));
    const std::string directory = temporary.path("kiln");
    scenario_.prepare(directory);
    {
      SCOPED_TRACE(what);
      run(scenario_, directory, io);
    }
    expect_healthy(directory, scenario_, what);
    ++cases_;
    return io->calls();
  }
  void TearDown() override { std::printf("%d cases\n", cases_); }

  const Scenario scenario_;
  int cases_ = 0;
  LogRecord log_;
};

TEST_P(Fault, OfEachCallIsAMissAtWorst) {
  const int calls = attempt(std::make_shared<FaultIo>(), "no fault");
  ASSERT_GT(calls, 5);
  for (const int error : {ENOSPC, EIO, EACCES, EROFS, EMFILE, EINTR, ESTALE, ENOENT, EDQUOT}) {
    for (int first = 0; first < calls; ++first) {
      for (const int count : {1, 1'000'000}) {
        if (error == EINTR && count > 1) continue;  // a signal storm without end is not a fault
        const auto io = std::make_shared<FaultIo>();
        io->first = first;
        io->count = count;
        io->error = error;
        attempt(io, std::string(scenario_.name) + ": " + std::strerror(error) + " at call " +
                        std::to_string(first) + (count > 1 ? " and all later ones" : ""));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Fault, ShortReadsAndWritesChangeNothing) {
  for (const std::size_t chunk : {1, 7, 64, 1000}) {
    const auto io = std::make_shared<FaultIo>();
    io->chunk = chunk;
    attempt(io, std::string(scenario_.name) + ": " + std::to_string(chunk) + " bytes at a time");
  }
}

TEST_P(Fault, AKillAtEachCallLosesNothing) {
  const int calls = attempt(std::make_shared<FaultIo>(), "no fault");
  for (int first = 0; first < calls; ++first) {
    for (const auto kill : {FaultIo::Kill::before, FaultIo::Kill::after}) {
      const TemporaryDirectory temporary(fast_directory(16 << 20));
      const std::string directory = temporary.path("kiln");
      scenario_.prepare(directory);
      const pid_t child = kiln::testing::fork_child([&] {
        const auto io = std::make_shared<FaultIo>();
        io->first = first;
        io->kill = kill;
        run(scenario_, directory, io);
        return 0;  // not reached when every call was counted right
      });
      const int status = base::wait_for(child).value();
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "call " << first;
      expect_healthy(directory, scenario_,
                     std::string(scenario_.name) + ": killed at call " + std::to_string(first) +
                         (kill == FaultIo::Kill::before ? ", before" : ", after"));
      ++cases_;
      if (HasFailure()) return;
    }
  }
}

/// The numbers of the calls of that name when an entry is published into nothing and found.
std::vector<int> calls_named(const std::string& name) {
  const TemporaryDirectory temporary(fast_directory(16 << 20));
  Config config = config_for(temporary.path("kiln"));
  const auto io = std::make_shared<FaultIo>();
  config.io = io;
  const auto cache = Cache::open(config);
  EXPECT_TRUE(cache->publish(sample_key(), sample_entry()));
  EXPECT_TRUE(cache->find(sample_key()));
  std::vector<int> numbers;
  for (std::size_t i = 0; i < io->history().size(); ++i) {
    if (io->history()[i] == name) numbers.push_back(static_cast<int>(i));
  }
  return numbers;
}

TEST(Signals, InterruptNothing) {
  for (const char* name : {"open", "read", "write", "sync"}) {
    const std::vector<int> calls = calls_named(name);
    EXPECT_FALSE(calls.empty()) << name;
    for (const int call : calls) {
      const TemporaryDirectory temporary(fast_directory(16 << 20));
      Config config = config_for(temporary.path("kiln"));
      const auto io = std::make_shared<FaultIo>();
      io->first = call;
      io->error = EINTR;
      config.io = io;
      const auto cache = Cache::open(config);
      EXPECT_TRUE(cache->publish(sample_key(), sample_entry())) << name << " at call " << call;
      EXPECT_TRUE(cache->find(sample_key())) << name << " at call " << call;
    }
  }
}

TEST(FailedPublish, LeavesNoTemporaryFile) {
  for (const char* name : {"write", "sync", "rename"}) {
    const TemporaryDirectory temporary(fast_directory(16 << 20));
    Config config = config_for(temporary.path("kiln"));
    const auto io = std::make_shared<FaultIo>();
    io->first = calls_named(name).at(0);
    io->error = ENOSPC;
    config.io = io;
    const LogRecord quiet;
    EXPECT_FALSE(Cache::open(config)->publish(sample_key(), sample_entry())) << name;
    EXPECT_EQ(count_files(temporary.path(), ".tmp"), 0u) << name;
  }
}

TEST(StaleHandle, OfANetworkFileSystemIsAMissAndThenOpenedAgain) {
  const TemporaryDirectory temporary(fast_directory(16 << 20));
  const std::string directory = temporary.path("kiln");
  publish_samples(directory);
  LogRecord log;
  Config config = config_for(directory);
  const auto io = std::make_shared<FaultIo>();
  config.io = io;
  const auto cache = Cache::open(config);
  EXPECT_TRUE(cache->find(sample_key(1)));
  fs::rename(directory, temporary.path("old"));  // the handle still works, and is of the wrong one
  publish_samples(directory);
  fs::remove_all(temporary.path("old"));
  EXPECT_FALSE(cache->find(sample_key(1)));
  io->first = io->calls();
  io->error = ESTALE;
  EXPECT_FALSE(cache->find(sample_key(1)));
  EXPECT_TRUE(cache->find(sample_key(1)));
}

INSTANTIATE_TEST_SUITE_P(Operations, Fault, ::testing::Range(std::size_t{0}, scenarios().size()),
                         [](const auto& instance) {
                           std::string name = scenarios()[instance.param].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace kiln::cache
