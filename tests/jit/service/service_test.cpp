// The compile service's promises about scheduling, cancelling and leaving nothing behind,
// with a fake compiler that waits where the test wants it to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/jit/service/fixtures.hpp"

namespace kiln::jit {
namespace {

using test::error_of;
using test::Gate;
using ::testing::HasSubstr;
using ::testing::Not;

class CompileService : public test::ServiceTest {};

// Compilers get the environment as it was when it was first asked for, which may be any test here.
constexpr const char* kEarlyPath = "/nonexistent/early";
[[maybe_unused]] const int early = setenv("CPATH", kEarlyPath, 1);

TEST_F(CompileService, gives_each_caller_its_own_code_and_reuses_a_warm_worker) {
  settings_.jobs = 1;
  Service service(settings_);
  for (const char* entry : {"a", "b", "c"}) {
    const CompileRequest wanted = request(entry);
    EXPECT_EQ(service.compile_async(wanted).get().code, wanted.source);
  }
  EXPECT_EQ(service.counters().workers_started, 1U);
  EXPECT_EQ(service.counters().exchanges, 3U);
}

TEST_F(CompileService, hundreds_of_threads_with_overlapping_keys_all_get_the_right_code) {
  Service service(settings_);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 300; ++i) {
    threads.emplace_back([&, i] {
      const CompileRequest wanted = request(fmt::format("k{}", i % 20));
      if (service.compile_async(wanted).get().code != wanted.source) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(service.counters().workers_started, 2U);
}

TEST_F(CompileService, two_workers_compile_at_the_same_time) {
  Service service(settings_);
  const Gate one(file("one"));
  const Gate two(file("two"));
  const CompileHandle first = service.compile_async(request("one", one.script()));
  const CompileHandle second = service.compile_async(request("two", two.script()));
  one.wait_entered();
  two.wait_entered();  // would never come if the first had to end before
  two.release();
  second.get();
  EXPECT_FALSE(first.ready());
  one.release();
  first.get();
}

TEST_F(CompileService, what_somebody_waits_for_overtakes_the_background) {
  settings_.jobs = 1;
  Service service(settings_);
  const Gate gate(file("gate"));
  const std::string order = file("order");
  const auto ordered = [&](const std::string& entry, bool background) {
    CompileRequest made = request(entry, fmt::format("echo {} >> {}", entry, order));
    made.background = background;
    return made;
  };
  const CompileHandle blocker = service.compile_async(request("blocker", gate.script()));
  gate.wait_entered();
  std::vector<CompileHandle> handles;
  handles.push_back(service.compile_async(ordered("background1", true)));
  handles.push_back(service.compile_async(ordered("background2", true)));
  handles.push_back(service.compile_async(ordered("background3", true)));
  handles.push_back(service.compile_async(ordered("waited1", false)));
  handles[2].raise_priority();
  gate.release();
  for (const CompileHandle& handle : handles) handle.get();
  EXPECT_EQ(base::read_whole_file(order), "waited1\nbackground3\nbackground1\nbackground2\n");
}

TEST_F(CompileService, a_queued_compile_that_is_cancelled_never_starts) {
  settings_.jobs = 1;
  Service service(settings_);
  const Gate gate(file("gate"));
  const CompileHandle blocker = service.compile_async(request("blocker", gate.script()));
  gate.wait_entered();
  CompileHandle unwanted = service.compile_async(request("unwanted"));
  unwanted.cancel();
  const Error error = error_of([&] { unwanted.get(); });
  EXPECT_EQ(error.code(), Code::compile_failed);
  EXPECT_THAT(error.what(), HasSubstr("'f_unwanted' (module unwanted) for cpu was cancelled"));
  gate.release();
  blocker.get();
  EXPECT_EQ(service.counters().exchanges, 1U);
}

TEST_F(CompileService, a_running_compile_that_is_cancelled_is_stopped_with_its_compiler) {
  settings_.jobs = 1;
  Service service(settings_);
  const Gate gate(file("gate"));
  CompileHandle handle = service.compile_async(request("running", gate.script()));
  const test::ProcessWatch compiler_end(gate.wait_entered());
  handle.cancel();
  handle.cancel();  // twice is once
  EXPECT_THAT(error_of([&] { handle.get(); }).what(), HasSubstr("was cancelled"));
  EXPECT_TRUE(compiler_end.ends());
  EXPECT_EQ(service.compile_async(request("next")).get().code, request("next").source);
}

TEST_F(CompileService, ending_the_service_ends_what_runs_and_drops_what_waits) {
  settings_.jobs = 1;
  const Gate gate(file("gate"));
  CompileHandle running;
  CompileHandle queued;
  {
    Service service(settings_);
    running = service.compile_async(request("running", gate.script()));
    queued = service.compile_async(request("queued"));
    gate.wait_entered();
  }
  EXPECT_THAT(error_of([&] { running.get(); }).what(), HasSubstr("cancelled"));
  EXPECT_THAT(error_of([&] { queued.get(); }).what(), HasSubstr("cancelled"));
}

TEST_F(CompileService, idle_workers_end) {
  settings_.idle = std::chrono::milliseconds(1);
  Service service(settings_);
  service.compile_async(request("a")).get();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (service.idle_workers() > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(service.idle_workers(), 0U);
}

TEST_F(CompileService, leaves_no_descriptor_no_process_and_no_file_behind) {
  const std::string temporary = file("tmp");
  std::filesystem::create_directory(temporary);
  const char* before_value = getenv("TMPDIR");
  const std::string before = before_value != nullptr ? before_value : "/tmp";
  setenv("TMPDIR", temporary.c_str(), 1);
  const std::size_t descriptors = test::open_descriptors();
  {
    Service service(settings_);
    const char* const wanted_compiles = std::getenv("KILN_TEST_COMPILES");
    const int compiles = wanted_compiles == nullptr ? 100 : std::atoi(wanted_compiles);
    for (int i = 0; i < compiles; ++i) {
      const CompileRequest wanted = request(fmt::format("k{}", i), i % 10 == 9 ? "exit 3" : ":");
      const CompileHandle handle = service.compile_async(wanted);
      if (i % 10 == 9) {
        EXPECT_EQ(error_of([&] { handle.get(); }).code(), Code::compile_failed);
      } else {
        EXPECT_EQ(handle.get().code, wanted.source);
      }
    }
  }
  setenv("TMPDIR", before.c_str(), 1);
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(CompileService, compilers_see_the_environment_of_the_keys_and_a_directory_of_their_own) {
  setenv("KILN_TEST_STRAY_VARIABLE", "stray", 1);
  const auto recorded = compiler_environment();
  // What the application sets after a key was made is not what that key was made of.
  setenv("CPATH", "/nonexistent/later", 1);
  setenv("LIBRARY_PATH", "/nonexistent/later", 1);
  Service service(settings_);
  service.compile_async(request("env", fmt::format("env > {}", file("env")))).get();
  EXPECT_EQ(compiler_environment(), recorded);
  setenv("CPATH", kEarlyPath, 1);
  unsetenv("LIBRARY_PATH");
  const std::string seen = base::read_whole_file(file("env"));
  EXPECT_THAT(seen, Not(HasSubstr("stray")));
  EXPECT_THAT(seen, Not(HasSubstr("later")));
  EXPECT_THAT(seen, HasSubstr(fmt::format("CPATH={}\n", kEarlyPath)));
  EXPECT_THAT(seen, HasSubstr("AMD_COMGR_CACHE=0"));
  EXPECT_THAT(seen, HasSubstr("/kiln-worker-"));
  EXPECT_THAT(recorded, ::testing::Contains(::testing::Pair("CPATH", kEarlyPath)));
}

TEST_F(CompileService, works_in_a_process_that_ignores_its_children) {
  struct Ignored {
    void (*before)(int) = std::signal(SIGCHLD, SIG_IGN);
    ~Ignored() { std::signal(SIGCHLD, before); }
  } const ignored;
  Service service(settings_);
  EXPECT_EQ(service.compile_async(request("a")).get().code, request("a").source);
  EXPECT_EQ(error_of([&] { service.compile_async(request("b", "exit 1")).get(); }).code(),
            Code::compile_failed);
}

TEST_F(CompileService, a_worker_that_is_not_there_is_named) {
  settings_.worker = "/nonexistent/kiln-compile-worker";
  Service service(settings_);
  const Error error = error_of([&] { service.compile_async(request("a")).get(); });
  EXPECT_EQ(error.code(), Code::not_found);
  EXPECT_THAT(error.what(), HasSubstr("/nonexistent/kiln-compile-worker"));
  EXPECT_THAT(error.what(), HasSubstr("KILN_WORKER"));
}

TEST_F(CompileService, in_process_gives_the_same_results_and_errors_without_a_worker) {
  settings_.in_process = true;
  Service service(settings_);
  EXPECT_EQ(service.compile_async(request("a")).get().code, request("a").source);
  const Error error =
      error_of([&] { service.compile_async(request("b", "echo why >&2; exit 3")).get(); });
  EXPECT_EQ(error.code(), Code::compile_failed);
  EXPECT_THAT(error.what(), HasSubstr("exited with status 3"));
  EXPECT_THAT(error.what(), HasSubstr("why"));
  EXPECT_EQ(service.counters().workers_started, 0U);
}

TEST_F(CompileService, refuses_an_empty_source_or_entry) {
  Service service(settings_);
  CompileRequest nothing = request("a");
  nothing.source.clear();
  EXPECT_EQ(error_of([&] { service.compile_async(nothing); }).code(), Code::invalid_argument);
  EXPECT_EQ(error_of([&] { service.compile_async(request("")); }).code(), Code::invalid_argument);
}

TEST_F(CompileService, a_dump_holds_what_is_needed_to_repeat_the_compile_by_hand) {
  settings_.dump = file("dump");
  Service service(settings_);
  service.compile_async(request("good")).get();
  EXPECT_THROW(service.compile_async(request("bad", "echo oh no >&2; exit 1")).get(), Error);
  EXPECT_EQ(base::read_whole_file(file("dump/good.cpu.cpp")), request("good").source);
  EXPECT_THAT(base::read_whole_file(file("dump/bad.cpu.log")), HasSubstr("oh no"));
  std::filesystem::remove(file("dump/good.cpu.so"));
  EXPECT_EQ(std::system(("sh " + file("dump/good.cpu.command") + " 2>/dev/null").c_str()), 0);
  EXPECT_EQ(base::read_whole_file(file("dump/good.cpu.so")), request("good").source);
}

}  // namespace
}  // namespace kiln::jit
