// Runs the tool as its users do: a process with arguments, an environment and a standard input.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

extern char** environ;

namespace kiln::testing {

struct Finished {
  int code = -1;  ///< 128 + the signal of one that was killed
  std::string out;
  std::string err;
};

/// A directory of its own for each test, and the tool in it.
class ToolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kiln-tool-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    environment_["KILN_CACHE_DIR"] = path("cache");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(std::string_view name) const { return (directory_ / name).string(); }

  std::string put(std::string_view name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  static std::string read(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  /// Output goes through files, so that no amount of it can block the process.
  /// `sink` is a file to write to in place of what is read into Finished::out, `error_sink` one in
  /// place of Finished::err. Of the descriptors 0, 1 and 2 those in `closed` are closed.
  Finished run(std::vector<std::string> arguments, std::string_view input = {},
               const std::string& sink = {}, const std::string& error_sink = {},
               const std::vector<int>& closed = {}) const {
    arguments.insert(arguments.begin(), KILN_TOOL);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables = variables_of();
    std::vector<char*> envp;
    for (std::string& variable : variables) envp.push_back(variable.data());
    envp.push_back(nullptr);

    const std::string in = put("stdin", input);
    const std::string out = sink.empty() ? path("stdout") : sink;
    const std::string err = error_sink.empty() ? path("stderr") : error_sink;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kWrite, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kWrite, 0600);
    for (const int fd : closed) posix_spawn_file_actions_addclose(&actions, fd);
    pid_t process = 0;
    const int error =
        ::posix_spawn(&process, KILN_TOOL, &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0) << KILN_TOOL;
    if (error != 0) return {};
    int status = 0;
    ::waitpid(process, &status, 0);
    return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
            sink.empty() ? read(out) : "", error_sink.empty() ? read(err) : ""};
  }

  std::filesystem::path directory_;
  std::map<std::string, std::string> environment_;  ///< in place of what this process has

 private:
  std::vector<std::string> variables_of() const {
    std::vector<std::string> result;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text(*variable);
      // Settings of whoever runs the tests must not decide what they find.
      if (text.starts_with("KILN_CACHE")) continue;
      if (environment_.count(std::string(text.substr(0, text.find('='))))) continue;
      result.emplace_back(text);
    }
    for (const auto& [name, value] : environment_) result.push_back(name + "=" + value);
    return result;
  }
};

}  // namespace kiln::testing
