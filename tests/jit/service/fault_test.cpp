// Workers that fail, for real, in every way and at every step of the conversation: the one compile
// fails with an error that says what happened, or is repeated where that is harmless, and
// everything else goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/subprocess.hpp"
#include "tests/jit/service/fixtures.hpp"

extern char** environ;

namespace kiln::jit {
namespace {

using test::error_of;
using test::Gate;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class CompileFault : public test::ServiceTest {
 protected:
  // Every worker fails as `fault` says: gives the error of a compile.
  Error failure(const std::string& fault) {
    set_fault(fault);
    Service service(settings_);
    return error_of([&] { service.compile_async(request("victim")).get(); });
  }

  // The first worker fails, later ones are healthy.
  std::string once(const std::string& fault) { return fault + ":" + file("once"); }

  static void expect_names_the_request(const Error& error) {
    EXPECT_EQ(error.code(), Code::compile_failed) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("'f_victim' (module victim) for cpu"));
  }
};

struct Death {
  const char* action;
  const char* words;  // in the message
};

class CompileDeath : public CompileFault,
                     public ::testing::WithParamInterface<std::tuple<const char*, Death>> {};

TEST_P(CompileDeath, is_reported_with_its_cause_and_hurts_nobody_else) {
  const auto& [step, death] = GetParam();
  const bool had_read =
      std::string_view(step) != "started" && std::string_view(step) != "before_read";
  set_fault(once(fmt::format("{}:{}", step, death.action)));
  Service service(settings_);
  if (had_read) {
    const Error error = error_of([&] { service.compile_async(request("victim")).get(); });
    expect_names_the_request(error);
    EXPECT_THAT(error.what(), HasSubstr(death.words));
  } else {
    // It cannot have died of a request that it had not read.
    EXPECT_EQ(service.compile_async(request("victim")).get().code, request("victim").source);
    EXPECT_EQ(service.counters().workers_started, 2U);
  }
  EXPECT_EQ(service.compile_async(request("next")).get().code, request("next").source);
}

INSTANTIATE_TEST_SUITE_P(
    EveryStep, CompileDeath,
    ::testing::Combine(::testing::Values("started", "before_read", "after_read", "before_answer",
                                         "in_answer"),
                       ::testing::Values(Death{"kill", "killed by signal 9 (Killed)"},
                                         Death{"segv", "killed by signal 11 (Segmentation fault)"},
                                         Death{"abort", "killed by signal 6 (Aborted)"},
                                         Death{"exit", "exited with status 0"})),
    [](const auto& info) {
      return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param).action);
    });

TEST_F(CompileFault, a_worker_that_dies_after_its_answer_is_replaced_unseen) {
  settings_.jobs = 1;
  set_fault("after_answer:segv");
  Service service(settings_);
  for (const char* entry : {"a", "b", "c"}) {
    EXPECT_EQ(service.compile_async(request(entry)).get().code, request(entry).source);
  }
}

TEST_F(CompileFault, a_worker_that_never_gets_to_read_is_tried_twice_and_reported) {
  const Error error = failure("started:segv");
  expect_names_the_request(error);
  EXPECT_THAT(error.what(), HasSubstr("Segmentation fault"));
}

TEST_F(CompileFault, a_hang_ends_at_the_deadline) {
  settings_.deadline = std::chrono::milliseconds(300);
  for (const char* step : {"started", "before_read", "after_read", "in_answer"}) {
    const Error error = failure(fmt::format("{}:hang", step));
    expect_names_the_request(error);
    EXPECT_THAT(error.what(), HasSubstr("did not finish within 300 ms"));
  }
}

TEST_F(CompileFault, memory_is_limited) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's worker has no memory limit";
#endif
  settings_.memory_bytes = 200 << 20;
  const Error error = failure("after_read:oom");
  expect_names_the_request(error);
  EXPECT_THAT(error.what(), HasSubstr("bad_alloc"));  // its last words
}

TEST_F(CompileFault, garbage_is_no_answer) {
  for (const char* step : {"started", "after_read", "before_answer", "in_answer"}) {
    const Error error = failure(fmt::format("{}:garbage", step));
    EXPECT_THAT(error.what(), HasSubstr("compile protocol")) << step;
  }
}

TEST_F(CompileFault, a_frame_that_lies_is_no_answer) {
  const std::pair<const char*, const char*> cases[] = {
      {"id", "an answer to request 2, asked was 1"},
      {"version", "version 99"},
      {"type", "a message of type 99"},
      {"length", "bytes"},
      {"truncated", "compile protocol: a body of 35 bytes is shorter than its fields"}};
  for (const auto& [action, words] : cases) {
    EXPECT_THAT(failure(fmt::format("frame:{}", action)).what(), HasSubstr(words));
  }
}

TEST_F(CompileFault, an_answer_given_twice_does_not_answer_the_next_request) {
  settings_.jobs = 1;
  set_fault("frame:twice");
  Service service(settings_);
  EXPECT_EQ(service.compile_async(request("first")).get().code, request("first").source);
  try {
    EXPECT_EQ(service.compile_async(request("second")).get().code, request("second").source);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("an answer to request 1, asked was 2"));
  }
}

TEST_F(CompileFault, a_socket_that_is_closed_early_is_reported) {
  const Error error = failure("after_read:close");
  expect_names_the_request(error);
  EXPECT_THAT(error.what(), HasSubstr("closed its socket without an answer"));
}

TEST_F(CompileFault, a_flood_on_stderr_is_cut_to_its_last_words) {
  set_fault("after_read:flood");
  Service service(settings_);
  const CompileResult result = service.compile_async(request("victim")).get();
  EXPECT_EQ(result.code, request("victim").source);
  EXPECT_THAT(result.log, HasSubstr("the last words"));
  EXPECT_LE(result.log.size(), 80U << 10);
}

// --- the parent's death ---

class CompileParentDeath : public CompileFault, public ::testing::WithParamInterface<bool> {};

TEST_P(CompileParentDeath, by_kill_9_leaves_no_worker_no_compiler_and_no_file) {
  const std::string gate = file("gate");
  for (const char* suffix : {"", ".entered", ".forked"})
    ASSERT_EQ(mkfifo((gate + suffix).c_str(), 0600), 0);
  std::vector<std::string> arguments = {KILN_TEST_PARENT, KILN_TEST_WORKER, compiler_, gate};
  if (GetParam()) arguments.emplace_back("fork");
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  const pid_t parent = base::spawn({.command = arguments, .environment = variables}, "no parent");

  std::ifstream entered(gate + ".entered");
  int worker = 0;
  int compiler = 0;
  std::string temporary;
  entered >> worker >> compiler >> temporary;
  int copy = 0;
  if (GetParam()) std::ifstream(gate + ".forked") >> copy;
  ASSERT_GT(worker, 1);
  const test::ProcessWatch worker_end(worker);
  const test::ProcessWatch compiler_end(compiler);
  ASSERT_TRUE(std::filesystem::exists(temporary));

  kill(parent, SIGKILL);
  EXPECT_EQ(base::wait_for(parent), SIGKILL);
  EXPECT_TRUE(worker_end.ends());
  EXPECT_TRUE(compiler_end.ends());
  EXPECT_FALSE(std::filesystem::exists(temporary));
  if (copy > 0) kill(copy, SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithout, CompileParentDeath, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "a_forked_copy" : "alone"; });

}  // namespace
}  // namespace kiln::jit
