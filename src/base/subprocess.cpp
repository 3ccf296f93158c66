// See subprocess.hpp. Output goes through files: no pipe can fill up and no thread has to empty it.
#include "base/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/io.hpp"
#include "base/temporary.hpp"

namespace kiln::base {
namespace {

using Clock = std::chrono::steady_clock;

// False when it is still running at `end`. Leaves it to be reaped.
bool ends_before(pid_t pid, Clock::time_point end) {
  const auto left = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  };
#ifdef SYS_pidfd_open
  const UniqueFd process = own_descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  while (process.get() >= 0) {
    pollfd ended{process.get(), POLLIN, 0};
    const long most = std::clamp<long>(left() + 1, 0, 1 << 30);
    if (poll(&ended, 1, static_cast<int>(most)) > 0) return true;
    if (left() < 0) return false;
  }
#endif
  while (true) {  // Linux before 5.3, or ended and reaped by the system
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
    if (info.si_pid == pid) return true;
    if (left() < 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Error start_error(std::string_view what, int error, std::string_view advice) {
  const bool is_its_fault = error == ENOENT || error == EACCES || error == ENOEXEC ||
                            error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG;
  return Error(
      is_its_fault ? Code::not_found : Code::io,
      fmt::format("cannot start {}: {}{}", what, std::strerror(error), is_its_fault ? advice : ""));
}

std::string describe_ending(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
}

CommandResult run_command(const std::vector<std::string>& command, const std::string& directory,
                          std::vector<std::string> environment,
                          std::chrono::milliseconds deadline) {
  const bool limited = deadline != std::chrono::milliseconds::max();
  const std::string output = fmt::format("{}/stdout", directory);
  const std::string errors = fmt::format("{}/stderr", directory);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (limited) {
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);

  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw start_error(command[0], error);
  CommandResult result;
  result.stopped = limited && !ends_before(pid, Clock::now() + deadline);
  if (result.stopped) kill(-pid, SIGKILL);
  while (waitpid(pid, &result.status, 0) < 0) {
    if (errno == EINTR) continue;
    // An application that ignores SIGCHLD, or reaps everything, has taken the status; the command
    // has ended all the same, and its callers look at what it made.
    if (errno == ECHILD) break;
    throw Error(Code::io, fmt::format("cannot wait for {}: {}", command[0], std::strerror(errno)));
  }
  result.ending = result.stopped
                      ? fmt::format("did not end within {} ms and was stopped", deadline.count())
                      : describe_ending(result.status);
  result.output = read_whole_file(output);
  result.errors = read_whole_file(errors);
  return result;
}

}  // namespace kiln::base
