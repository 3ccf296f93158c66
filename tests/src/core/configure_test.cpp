// Settings in code, and what there is to run on. A process is configured once, before anything
// reads a setting, so each test runs in a child, whose exit status says whether everything held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/subprocess.hpp"
#include "jit/service/compile.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/message.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kNoCompiler = 77;

/// Runs the checks in a child; true if it did not end for want of a compiler.
bool in_a_process(const std::function<void()>& checks) {
  const pid_t child = testing::fork_child([&] {
    checks();
    std::fflush(nullptr);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  const std::optional<int> status = base::wait_for(child);
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == kNoCompiler) return false;
  EXPECT_EQ(status, 0) << "see the failures above";
  return true;
}

/// In a child that has been configured: ends it where there is no compiler for the CPU.
void need_compiler() {
  if (!testing::has_toolchain(jit::ToolchainKind::host)) std::_Exit(kNoCompiler);
}

std::string refusal(const Configuration& configuration) {
  return testing::message_of([&] { configure(configuration); }, Code::invalid_argument);
}

/// y = 2x over enough elements for several parts.
bool doubles_correctly(const Function& doubled) {
  const std::size_t size = 100'000;
  std::vector<float> x(size, 3), y(size);
  const Dims shape{static_cast<std::int64_t>(size)};
  doubled({}, {View(x.data(), DType::f32, shape)}, {View(y.data(), DType::f32, shape)});
  return y == std::vector<float>(size, 6);
}

TEST(Configure, ComesBeforeTheEnvironment) {
  const testing::TemporaryDirectory directory;
  const bool ran = in_a_process([&] {
    ::setenv("KILN_CACHE_DIR", "/nowhere", 1);
    ::setenv("KILN_CACHE_MAX_SIZE", "1M", 1);
    ::setenv("KILN_COMPILE_JOBS", "7", 1);
    ::setenv("KILN_MEMORY_LIMIT", "1M", 1);
    ::setenv("KILN_CPU_THREADS", "7", 1);
    ::setenv("KILN_WORKER", "/nowhere", 1);
    std::vector<std::size_t> parts;
    std::string line;
    configure({.cache_directory = directory.path("cache"),
               .cache_max_size = 12345678,
               .jobs = 3,
               .worker = KILN_TEST_WORKER,
               .threads = 2,
               .memory_limit = 7654321,
               .executor =
                   [&](std::size_t count, const Task& task) {
                     parts.push_back(count);
                     std::vector<std::thread> threads;
                     for (std::size_t i = 0; i < count; ++i) {
                       threads.emplace_back([&task, i] { task(i); });
                     }
                     for (std::thread& thread : threads) thread.join();
                   },
               .log = [&](LogLevel, std::string_view text) { line = text; }});
    need_compiler();
    EXPECT_TRUE(doubles_correctly(parse("configured", "x * 2")));
    EXPECT_EQ(parts, std::vector<std::size_t>{2});
    EXPECT_EQ(jit::compile_jobs(), 3);
    EXPECT_EQ(device_info({}).compute_units, 2);
    EXPECT_EQ(statistics({}).memory_limit, 7654321U);
    const auto cache = cache::open();
    EXPECT_EQ(cache::directory(*cache), directory.path("cache"));
    EXPECT_EQ(cache::usage(*cache).max_size, 12345678U);
    EXPECT_EQ(cache::list(*cache).size(), 1U);
    log(LogLevel::info, "to the sink");
    EXPECT_EQ(line, "to the sink");
  });
  if (!ran) GTEST_SKIP() << "no compiler for the CPU";
}

TEST(Configure, WhatAnExecutorThrowsTheCallThrows) {
  const bool ran = in_a_process([] {
    bool throws = true;
    configure({.threads = 2, .executor = [&](std::size_t count, const Task& task) {
                 if (throws) throw std::runtime_error("no threads");
                 for (std::size_t i = count; i-- > 0;) task(i);
               }});
    need_compiler();
    const Function doubled = parse("thrown", "x * 2");
    try {
      doubles_correctly(doubled);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "no threads");
    }
    throws = false;
    EXPECT_TRUE(doubles_correctly(doubled));
  });
  if (!ran) GTEST_SKIP() << "no compiler for the CPU";
}

// What a call does whose options leave it to the process, and one whose options say it.
TEST(Configure, SaysWhatHappensOnAMiss) {
  const testing::TemporaryDirectory directory;
  const auto is_refused = [](const auto& call) {
    return !testing::message_of(call, Code::would_compile).empty();
  };
  const bool ran = in_a_process([&] {
    const Function before = parse("before", "x * 2");  // made before, called after
    configure({.cache_directory = directory.path("cache"), .on_miss = OnMiss::fail});
    need_compiler();
    float x = 3;
    const View view(&x, DType::f32, {1});
    EXPECT_TRUE(is_refused([&] { before({}, {view}, {view}); }));
    EXPECT_TRUE(is_refused([&] { program(before).run({}, {view}, {view}, {}); }));
    EXPECT_TRUE(is_refused([&] { program(before).bind({}, {view}, {view}, {}); }));
    EXPECT_TRUE(is_refused([&] { before.bind({}, {view}, {view}); }));
    EXPECT_TRUE(doubles_correctly(parse("own", "x * 2", {.on_miss = OnMiss::compile})));
    EXPECT_TRUE(doubles_correctly(before)) << "another of the same text has made the kernel";
  });
  in_a_process([&] {
    configure({.cache_directory = directory.path("other"),
               .fallback_memory = 16U << 20,
               .on_miss = OnMiss::fallback});
    EXPECT_TRUE(doubles_correctly(parse("served", "x * 2")));
    EXPECT_EQ(statistics({}).fallbacks, 1U);
  });
  in_a_process([] {
    EXPECT_THAT(refusal({.on_miss = OnMiss::configured}),
                HasSubstr("on_miss: expected compile, fail, background or fallback"));
    configure({.on_miss = OnMiss::fail});
    EXPECT_THAT(refusal({}), HasSubstr("on_miss was fail and is not set now"));
  });
  if (!ran) GTEST_SKIP() << "no compiler for the CPU";
}

TEST(Configure, AfterTheFirstUseSaysWhoWasFirst) {
  in_a_process([] {
    (void)cache::open("/somewhere");
    EXPECT_THAT(refusal({.jobs = 2}), AllOf(HasSubstr("the cache was the first"),
                                            HasSubstr("before anything else of kiln")));
  });
  in_a_process([] {
    (void)device_info({});
    EXPECT_THAT(refusal({}), HasSubstr("the CPU device was the first"));
  });
}

TEST(Configure, ASecondTimeTakesTheSameValuesAlone) {
  in_a_process([] {
    configure({.cache_directory = "/a", .jobs = 2}, "engine.cpp", 42);
    configure({.cache_directory = "/a", .jobs = 2});
    EXPECT_THAT(refusal({.cache_directory = "/a", .jobs = 3}),
                AllOf(HasSubstr("engine.cpp:42"), HasSubstr("jobs was 2 and is 3 now")));
    EXPECT_THAT(refusal({.jobs = 2}), HasSubstr("cache_directory was /a and is not set now"));
    EXPECT_THAT(refusal({.cache_directory = "/a", .jobs = 2, .log = [](auto, auto) {}}),
                HasSubstr("set_log"));
    EXPECT_EQ(cache::directory(*cache::open()), "/a");
    configure({.cache_directory = "/a", .jobs = 2});  // the same, though it is in use
  });
}

TEST(Configure, RefusesWhatMakesNoSenseAndChangesNothing) {
  in_a_process([] {
    EXPECT_THAT(refusal({.jobs = 0}), AllOf(HasSubstr("jobs"), HasSubstr("1 to 1024, got 0")));
    EXPECT_THAT(refusal({.threads = 4097}), AllOf(HasSubstr("threads"), HasSubstr("got 4097")));
    EXPECT_THAT(refusal({.worker = ""}), HasSubstr("worker"));
    configure({.jobs = 5});
    EXPECT_EQ(jit::compile_jobs(), 5);
  });
}

TEST(Configure, AnEmptyDirectoryKeepsNothingOnDisk) {
  in_a_process([] {
    configure({.cache_directory = "", .cache_readonly = {{"/layer"}}});
    EXPECT_THAT(testing::message_of([] { (void)cache::open(); }, Code::not_found),
                HasSubstr("kiln::configure()"));
  });
}

TEST(Devices, AreTheOnesThatCallsTake) {
  in_a_process([] {
    const std::vector<Device> all = devices();
    EXPECT_FALSE(all.empty());
    EXPECT_EQ(all.back(), Device());  // the CPU
    const DeviceInfo cpu = device_info({});
    EXPECT_FALSE(cpu.name.empty());
    EXPECT_EQ(cpu.target, jit::host_target());
    EXPECT_EQ(cpu.wave_size, 1);
    EXPECT_EQ(why_absent(DeviceType::cpu), "");
    EXPECT_THAT(testing::message_of(
                    [] {
                      device_info({DeviceType::cpu, 7});
                    },
                    Code::not_found),
                HasSubstr("there is no such device here"));
    for (const DeviceType type : {DeviceType::hip, DeviceType::cuda}) {
      EXPECT_EQ(why_absent(type).empty(), std::ranges::count(all, type, &Device::type) != 0);
    }
  });
}

TEST(Devices, CompileTargetsAreThoseOfTheCompilersThatAreHere) {
  const bool ran = in_a_process([] {  // of the others, as many as there are, to ask takes long
    ::setenv("KILN_HIPRTC", "/nowhere/libhiprtc.so", 1);
    ::setenv("KILN_NVRTC", "/nowhere/libnvrtc.so", 1);
    need_compiler();
    const std::vector<CompileTarget> targets = compile_targets();
    EXPECT_EQ(targets.size(), 1U);
    EXPECT_EQ(targets.front().name, jit::host_target());
    EXPECT_EQ(targets.front().compiler, jit::toolchain(jit::ToolchainKind::host).version);
  });
  if (!ran) GTEST_SKIP() << "no compiler for the CPU";
}

TEST(Version, IsOneEverywhere) {
  EXPECT_EQ(version(), KILN_VERSION_STRING);
  EXPECT_EQ(version(), KILN_TEST_VERSION);
  EXPECT_EQ(KILN_VERSION,
            KILN_VERSION_MAJOR * 10000 + KILN_VERSION_MINOR * 100 + KILN_VERSION_PATCH);
}

}  // namespace
}  // namespace kiln
