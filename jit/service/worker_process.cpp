// See worker_process.hpp.
#include "jit/service/worker_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include "base/subprocess.hpp"
#include "jit/toolchain/environment.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeptOutput = 64 << 10;

[[noreturn]] void throw_errno(const char* what, int error) {
  throw Error(Code::io, fmt::format("compile worker: {}: {}", what, base::describe_errno(error)));
}

void set_nonblocking(const base::UniqueFd& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// Throws for an answer that cannot be read: its worker is not to be trusted with another request.
void check_body(const Message& message) {
  if (message.type == MessageType::done) {
    decode_compile_output(message.body);
  } else {
    decode_failure(message.body);
  }
}

}  // namespace

WorkerProcess::WorkerProcess(const Settings& settings, ToolchainKind kind, const std::string& path)
    : kind_(kind), path_(path), temporary_("kiln-worker") {
  start(settings);
}

WorkerProcess::~WorkerProcess() { finish(); }

void WorkerProcess::start(const Settings& settings) {
  auto [here, there] = base::make_socket_pair();
  if (!here) throw_errno("socketpair", errno);
  auto [read_end, write_end] = base::make_pipe();
  if (!read_end) throw_errno("pipe", errno);
  base::SpawnRequest program{
      .command = {settings.worker, "--serve", std::string(name(kind_)), path_,
                  std::to_string(settings.memory_bytes)},
      .environment = scrubbed_environment(temporary_.path()),
      .redirections = {{.descriptor = 0, .path = "/dev/null", .flags = O_RDONLY},
                       {.descriptor = 1, .copy_of = write_end.get()},
                       {.descriptor = 2, .copy_of = write_end.get()},
                       {.descriptor = kWorkerSocket, .copy_of = there.get()}},
      .own_group = true,
      .reset_signals = true};
  program.environment.insert(program.environment.end(), settings.worker_environment.begin(),
                             settings.worker_environment.end());
  pid_ = base::spawn(program, fmt::format("cannot start the compile worker {}", settings.worker),
                     "; KILN_WORKER names another, KILN_COMPILE=inprocess does without");
  socket_ = std::move(here);
  output_pipe_ = std::move(read_end);
  set_nonblocking(socket_);
  set_nonblocking(output_pipe_);
  const std::string begin =
      encode_frame({MessageType::start, 0,
                    encode(WorkerStart{temporary_.path(), static_cast<std::uint64_t>(pid_)})});
  // A worker that has ended already is found out about by its first request.
  if (send(socket_.get(), begin.data(), begin.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE &&
      errno != ECONNRESET) {
    const int send_error = errno;
    finish();
    throw_errno("send", send_error);
  }
}

std::string WorkerProcess::finish() {
  socket_.reset();
  if (pid_ < 0) return {};
  // The group first: once the process is reaped its number may be somebody else's.
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  const std::optional<int> status = base::wait_for(pid_);
  pid_ = -1;
  return status ? base::describe_ending(*status) : "ended";
}

void WorkerProcess::read_output() {
  std::array<char, 16 << 10> buffer;
  while (true) {
    const ssize_t got = read(output_pipe_.get(), buffer.data(), buffer.size());
    // At its end the pipe would stay readable for ever: it is no longer waited for.
    if (got == 0) output_pipe_.reset();
    if (got <= 0) return;
    output_.append(buffer.data(), static_cast<std::size_t>(got));
    if (output_.size() > 2 * kKeptOutput) output_.erase(0, output_.size() - kKeptOutput);
  }
}

// False when the other end is gone.
bool WorkerProcess::send_some(std::string& unsent) {
  const ssize_t sent = send(socket_.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  unsent.erase(0, static_cast<std::size_t>(sent));
  return true;
}

// False when the other end is gone.
bool WorkerProcess::receive_some() {
  std::array<char, 64 << 10> buffer;
  const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  frames_.feed({buffer.data(), static_cast<std::size_t>(got)});
  return true;
}

Exchange WorkerProcess::converse(MessageType type, std::string body, Clock::time_point end,
                                 int cancel) {
  Exchange exchange;
  const std::uint64_t id = next_id_++;
  std::string unsent = encode_frame({type, id, std::move(body)});
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      exchange.end = Exchange::End::timed_out;
      return exchange;
    }
    const short wanted = unsent.empty() ? POLLIN : POLLIN | POLLOUT;
    std::array<pollfd, 3> waiting = {
        {{socket_.get(), wanted, 0}, {output_pipe_.get(), POLLIN, 0}, {cancel, POLLIN, 0}}};
    if (poll(waiting.data(), waiting.size(), static_cast<int>(std::min<long>(left + 1, 1 << 30))) <
            0 &&
        errno != EINTR) {
      throw_errno("poll", errno);
    }
    if (waiting[1].revents != 0) read_output();
    if ((waiting[2].revents & POLLIN) != 0) {
      exchange.end = Exchange::End::cancelled;
      return exchange;
    }
    bool alive = true;
    if ((waiting[0].revents & POLLOUT) != 0 && !unsent.empty()) alive = send_some(unsent);
    if ((waiting[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) alive = receive_some() && alive;
    while (std::optional<Message> message = frames_.next()) {
      if (message->type == MessageType::hello && message->id == 0) continue;
      if (message->id != id) {
        throw Error(Code::internal,
                    fmt::format("compile protocol: an answer to request {}, asked was {}",
                                message->id, id));
      }
      if (message->type == MessageType::accepted && !exchange.accepted) {
        exchange.accepted = true;
      } else if (exchange.accepted &&
                 (message->type == MessageType::done || message->type == MessageType::failed)) {
        check_body(*message);
        exchange.end = Exchange::End::replied;
        exchange.reply = std::move(*message);
        return exchange;
      } else {
        throw Error(Code::internal,
                    fmt::format("compile protocol: an unexpected message of type {}",
                                static_cast<int>(message->type)));
      }
    }
    if (!alive) {
      exchange.end = Exchange::End::died;
      return exchange;
    }
  }
}

Exchange WorkerProcess::call(MessageType type, std::string body, std::chrono::milliseconds deadline,
                             int cancel) {
  output_.clear();
  Exchange exchange;
  try {
    exchange = converse(type, std::move(body), Clock::now() + deadline, cancel);
  } catch (const Error& error) {
    exchange.end = Exchange::End::garbage;
    exchange.accepted = true;  // not to be asked again
    exchange.what = error.what();
  }
  if (exchange.end == Exchange::End::died) {
    // A moment to end by itself, so that its own status is seen and not that of the signal that
    // follows.
    const bool ended = base::ends_before(pid_, Clock::now() + std::chrono::seconds(1));
    exchange.what = finish();
    if (!ended) exchange.what = "closed its socket without an answer";
  } else if (exchange.end != Exchange::End::replied) {
    finish();
  }
  if (exchange.end == Exchange::End::timed_out) {
    exchange.what = fmt::format("did not finish within {} ms and was stopped", deadline.count());
  } else if (exchange.end == Exchange::End::cancelled) {
    exchange.what = "was cancelled";
  }
  read_output();
  if (output_.size() > kKeptOutput) output_.erase(0, output_.size() - kKeptOutput);
  exchange.output = std::move(output_);
  return exchange;
}

}  // namespace kiln::jit
