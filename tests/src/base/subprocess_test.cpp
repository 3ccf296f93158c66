// Programs that are started: how each way of ending is told.
#include "base/subprocess.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::base {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

CommandResult run(const std::string& line,
                  std::chrono::milliseconds deadline = std::chrono::milliseconds::max()) {
  return run_command({"/bin/sh", "-c", line}, {"NAME=value"}, deadline);
}

TEST(Commands, GiveWhatTheyPrinted) {
  const CommandResult result = run("cat; echo out; echo $NAME >&2");
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "value\n");
  EXPECT_EQ(result.ending, "exited with status 0");
}

TEST(Commands, ThatExitWithAStatusHaveFailed) {
  const CommandResult result = run("exit 7");
  EXPECT_FALSE(result.succeeded());
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.ending, "exited with status 7");
}

TEST(Commands, ThatASignalKilledHaveFailed) {
  const CommandResult result = run("kill -KILL $$");
  EXPECT_FALSE(result.succeeded());
  EXPECT_THAT(result.ending, StartsWith("was killed by signal 9"));
}

TEST(Commands, AreStoppedAtTheirDeadlineWithWhatTheyStarted) {
  DescriptorPair pipe = make_pipe();  // whose end is reached when nobody has the other one
  ASSERT_EQ(::fcntl(pipe.second.get(), F_SETFD, 0), 0);
  const CommandResult result = run("sleep 1000 & wait", std::chrono::milliseconds(100));
  EXPECT_TRUE(result.stopped);
  EXPECT_FALSE(result.succeeded());
  EXPECT_EQ(result.ending, "did not end within 100 ms and was stopped");
  pipe.second.reset();
  pollfd end{pipe.first.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 60'000), 1) << "the background command goes on";
}

TEST(Commands, ThatEndInTimeAreNotStopped) {
  const CommandResult result = run("exit 3", kProbeDeadline);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.ending, "exited with status 3");
}

TEST(Spawn, OfAProgramThatIsNotThereGivesTheReasonAndTheAdvice) {
  try {
    spawn({.command = {"/nowhere/program"}, .environment = {}}, "cannot start it", "; try another");
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_THAT(error.what(), AllOf(StartsWith("cannot start it: "), HasSubstr("No such file"),
                                    EndsWith("; try another")));
  }
}

TEST(Spawn, OfAFileThatIsNoProgramGivesTheReason) {
  const testing::TemporaryDirectory directory;
  try {
    spawn({.command = {directory.put("text", "no program")}, .environment = {}}, "cannot start it");
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_THAT(error.what(), HasSubstr("Permission denied"));
  }
}

TEST(Spawn, ReplacesDescriptors) {
  const testing::TemporaryDirectory directory;
  const DescriptorPair pipe = make_pipe();
  const std::string input = directory.put("input", "text");
  const pid_t pid = spawn({.command = {"cat"},
                           .environment = {},
                           .redirections = {{.descriptor = 0, .path = input, .flags = O_RDONLY},
                                            {.descriptor = 1, .copy_of = pipe.second.get()}},
                           .on_path = true},
                          "cannot start cat");
  EXPECT_EQ(wait_for(pid), 0);
  char text[8] = {};
  EXPECT_EQ(::read(pipe.first.get(), text, sizeof text), 4);
  EXPECT_STREQ(text, "text");
}

TEST(WaitFor, AChildThatWasReapedGivesNothing) {
  const pid_t pid = spawn({.command = {"/bin/sh", "-c", ":"}, .environment = {}}, "no shell");
  EXPECT_EQ(wait_for(pid), 0);
  EXPECT_EQ(wait_for(pid), std::nullopt);
}

}  // namespace
}  // namespace kiln::base
