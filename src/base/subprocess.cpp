// See subprocess.hpp. A command's output goes to files in memory: no pipe can fill up, no thread
// has to empty it, and no full disk cuts it short.
#include "base/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

namespace kiln::base {
namespace {

using Clock = std::chrono::steady_clock;

// posix_spawn's two kinds of instructions, released together.
class Instructions {
 public:
  explicit Instructions(const SpawnRequest& request) {
    posix_spawn_file_actions_init(&actions);
    for (const SpawnRequest::Redirection& one : request.redirections) {
      if (!one.path.empty()) {
        posix_spawn_file_actions_addopen(&actions, one.descriptor, one.path.c_str(), one.flags,
                                         0600);
      } else if (one.copy_of >= 0) {
        posix_spawn_file_actions_adddup2(&actions, one.copy_of, one.descriptor);
      } else {
        posix_spawn_file_actions_addclose(&actions, one.descriptor);
      }
    }
    posix_spawnattr_init(&attributes);
    int flags = 0;
    if (request.own_group) {
      posix_spawnattr_setpgroup(&attributes, 0);
      flags |= POSIX_SPAWN_SETPGROUP;
    }
    if (request.reset_signals) {
      sigset_t none;
      sigset_t all;
      sigemptyset(&none);
      sigfillset(&all);
      posix_spawnattr_setsigmask(&attributes, &none);
      posix_spawnattr_setsigdefault(&attributes, &all);
      flags |= POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    }
    posix_spawnattr_setflags(&attributes, static_cast<short>(flags));
  }
  ~Instructions() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;

  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
};

// As execve takes them, which writes to none.
std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

bool is_the_programs_fault(int error) {
  return error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR ||
         error == ELOOP || error == ENAMETOOLONG;
}

// What a command prints on one descriptor.
class Output {
 public:
  Output() {
#ifdef MFD_NOEXEC_SEAL
    // Some systems refuse memory files without this flag; older kernels do not know it.
    file_ = own_descriptor(::memfd_create("kiln-output", MFD_CLOEXEC | MFD_NOEXEC_SEAL));
    if (file_) return;
#endif
    file_ = own_descriptor(::memfd_create("kiln-output", MFD_CLOEXEC));
    if (!file_) fail("made");
  }
  int descriptor() const { return file_.get(); }
  std::string text() const {
    struct stat status {};
    std::string bytes;
    if (system_io().stat(file_.get(), status) != 0 ||
        !read_bytes(system_io(), file_.get(), 0, static_cast<std::uint64_t>(status.st_size),
                    bytes)) {
      fail("read");
    }
    return bytes;
  }

 private:
  [[noreturn]] static void fail(std::string_view what) {
    throw Error(Code::io, fmt::format("the memory file of a command's output cannot be {}: {}",
                                      what, describe_errno(errno)));
  }
  UniqueFd file_;
};

}  // namespace

pid_t spawn(const SpawnRequest& request, std::string_view failure, std::string_view advice) {
  const Instructions instructions(request);
  const std::vector<char*> arguments = pointers(request.command);
  const std::vector<char*> variables = pointers(request.environment);
  pid_t pid = -1;
  const int error = (request.on_path ? posix_spawnp : posix_spawn)(
      &pid, arguments[0], &instructions.actions, &instructions.attributes, arguments.data(),
      variables.data());
  if (error == 0) return pid;
  const bool its_fault = is_the_programs_fault(error);
  throw Error(its_fault ? Code::not_found : Code::io,
              fmt::format("{}: {}{}", failure, describe_errno(error), its_fault ? advice : ""));
}

std::optional<int> wait_for(pid_t pid) {
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = waitpid(pid, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  return reaped == pid ? std::optional(status) : std::nullopt;
}

UniqueFd process_descriptor(pid_t pid) {
#ifdef SYS_pidfd_open
  return own_descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#else
  (void)pid;
  errno = ENOSYS;
  return {};
#endif
}

bool ends_before(pid_t pid, Clock::time_point deadline) {
  const auto left = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  };
  const UniqueFd process = process_descriptor(pid);
  while (process) {
    pollfd ended{process.get(), POLLIN, 0};
    const long most = std::clamp<long>(left() + 1, 0, 1 << 30);
    if (poll(&ended, 1, static_cast<int>(most)) > 0) return true;
    if (left() < 0) return false;
  }
  while (true) {  // Linux before 5.3, or ended and reaped by the system
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return true;
    if (info.si_pid == pid) return true;
    if (left() < 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string describe_ending(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
}

CommandResult run_command(const std::vector<std::string>& command,
                          std::vector<std::string> environment,
                          std::chrono::milliseconds deadline) {
  const bool limited = deadline != std::chrono::milliseconds::max();
  const Output output;
  const Output errors;
  const SpawnRequest request{.command = command,
                             .environment = std::move(environment),
                             .redirections = {{0, "/dev/null", O_RDONLY},
                                              {.descriptor = 1, .copy_of = output.descriptor()},
                                              {.descriptor = 2, .copy_of = errors.descriptor()}},
                             .own_group = limited};
  const pid_t pid = spawn(request, fmt::format("cannot start {}", command[0]));
  CommandResult result;
  result.stopped = limited && !ends_before(pid, Clock::now() + deadline);
  if (result.stopped) kill(-pid, SIGKILL);
  // Where somebody else has taken the status, the command has ended all the same, and its callers
  // look at what it made.
  result.status = wait_for(pid).value_or(0);
  result.ending = result.stopped
                      ? fmt::format("did not end within {} ms and was stopped", deadline.count())
                      : describe_ending(result.status);
  result.output = output.text();
  result.errors = errors.text();
  return result;
}

}  // namespace kiln::base
