// See subprocess.hpp. Output goes through files: no pipe can fill up and no thread has to empty it.
#include "base/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "jit/toolchain/environment.hpp"
#include "base/temporary.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {

std::string describe_ending(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
}

CommandResult run_command(const std::vector<std::string>& command, const std::string& directory) {
  const std::string output = fmt::format("{}/stdout", directory);
  const std::string errors = fmt::format("{}/stderr", directory);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  std::vector<std::string> variables = scrubbed_environment(directory);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(Code::not_found,
                fmt::format("cannot start {}: {}", command[0], std::strerror(error)));
  }
  CommandResult result;
  while (waitpid(pid, &result.status, 0) < 0) {
    if (errno == EINTR) continue;
    // An application that ignores SIGCHLD, or reaps everything, has taken the status; the command
    // has ended all the same, and its callers look at what it made.
    if (errno == ECHILD) break;
    throw Error(Code::io, fmt::format("cannot wait for {}: {}", command[0], std::strerror(errno)));
  }
  result.ending = describe_ending(result.status);
  result.output = read_whole_file(output);
  result.errors = read_whole_file(errors);
  return result;
}

}  // namespace kiln::jit
