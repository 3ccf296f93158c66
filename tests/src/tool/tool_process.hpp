// Runs the tool as its users do: a process with arguments, an environment and a standard input.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/subprocess.hpp"
#include "tests/support/temporary_directory.hpp"

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
  ToolTest() { environment_["KILN_CACHE_DIR"] = path("cache"); }

  std::string path(std::string_view name) const { return directory_.path(name); }
  std::string put(std::string_view name, std::string_view bytes) const {
    return directory_.put(name, bytes);
  }
  static std::string read(const std::string& file) { return read_file(file); }

  /// Gives the tool what other tests found out about compilers, if they did: which targets hiprtc
  /// knows takes seconds.
  void share_toolchains() const {
    namespace fs = std::filesystem;
    const char* const shared = std::getenv("KILN_CACHE_DIR");
    if (shared == nullptr) return;
    fs::create_directory(path("cache"));
    fs::permissions(path("cache"), fs::perms::owner_all);
    std::error_code absent;
    fs::copy_file(fs::path(shared) / "toolchains.json", path("cache/toolchains.json"), absent);
  }

  /// Output goes through files, so that no amount of it can block the process.
  /// `sink` is a file to write to in place of what is read into Finished::out, `error_sink` one in
  /// place of Finished::err. Of the descriptors 0, 1 and 2 those in `closed` are closed.
  Finished run(std::vector<std::string> arguments, std::string_view input = {},
               const std::string& sink = {}, const std::string& error_sink = {},
               const std::vector<int>& closed = {}) const {
    arguments.insert(arguments.begin(), KILN_TOOL);
    const std::string in = put("stdin", input);
    const std::string out = sink.empty() ? path("stdout") : sink;
    const std::string err = error_sink.empty() ? path("stderr") : error_sink;
    constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
    base::SpawnRequest request{
        .command = std::move(arguments),
        .environment = variables_of(environment_),
        .redirections = {{0, in, O_RDONLY}, {1, out, kWrite}, {2, err, kWrite}}};
    for (const int fd : closed) request.redirections.push_back({.descriptor = fd});
    const int status = base::wait_for(base::spawn(request, "cannot start the tool")).value();
    return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
            sink.empty() ? read(out) : "", error_sink.empty() ? read(err) : ""};
  }

  /// What a process gets: these variables in place of what this one has, and the rest of that.
  static std::vector<std::string> variables_of(const std::map<std::string, std::string>& own) {
    std::vector<std::string> result;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text(*variable);
      // Settings of whoever runs the tests must not decide what they find.
      if (text.starts_with("KILN_CACHE") || text.starts_with("KILN_REMOTE")) continue;
      if (own.count(std::string(text.substr(0, text.find('='))))) continue;
      result.emplace_back(text);
    }
    for (const auto& [name, value] : own) result.push_back(name + "=" + value);
    return result;
  }

  const TemporaryDirectory directory_;
  std::map<std::string, std::string> environment_;  ///< in place of what this process has
};

}  // namespace kiln::testing
