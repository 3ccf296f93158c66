// See serve.hpp. What only a worker does to itself is here rather than in src/base: it asks who is
// at the other end of its socket, takes its end from its parent's, and limits its memory.
#include "jit/service/worker/serve.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/io.hpp"
#include "base/subprocess.hpp"
#include "base/temporary.hpp"
#include "jit/compilers/compiler.hpp"
#include "jit/compilers/protocol.hpp"
#include "jit/service/worker/fault.hpp"
#include "kiln/version.h"

namespace kiln::jit {
namespace {

// The end of the watch's pipe that the signal handler writes to.
int end_request = -1;

void ask_for_end(int) {
  const char byte = 0;
  if (write(end_request, &byte, 1) < 0) _exit(1);
}

// What ends with this process: empty until the parent has sent what it made for it.
struct Own {
  std::string directory;
  bool group = false;
};
Own own;

// Ends this process and the compilers that it started, and removes their files.
[[noreturn]] void end_everything() {
  if (!own.directory.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(own.directory, ignored);
  }
  if (own.group) kill(0, SIGKILL);
  _exit(1);
}

// The process at the other end of the socket; 0 if it has no number here, in another namespace.
pid_t process_at_socket() {
  int domain = 0;
  ucred peer{};
  socklen_t size = sizeof domain;
  bool known =
      getsockopt(kWorkerSocket, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
  size = sizeof peer;
  known = known && getsockopt(kWorkerSocket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (!known) {
    throw Error(Code::invalid_argument,
                fmt::format("--serve: descriptor {} is not kiln's socket; kiln starts its workers "
                            "itself, --compile compiles by hand",
                            kWorkerSocket));
  }
  return peer.pid;
}

// A compile cannot be interrupted, so another thread looks out for the parent's end: its socket
// closes, or, should a forked copy of the parent hold that open, the process itself has ended. The
// parent need not be the one that started this process: there may be a script between them.
void watch_parent(pid_t parent) {
  base::DescriptorPair end = base::make_pipe();
  if (!end.first) _exit(1);
  end_request = end.second.get();
  struct sigaction action {};
  action.sa_handler = ask_for_end;
  sigaction(SIGTERM, &action, nullptr);
  base::UniqueFd process;
  if (parent > 0) process = base::process_descriptor(parent);
  if (!process && parent > 0 && errno == ESRCH) end_everything();
  if (!process && parent == getppid()) {  // Linux before 5.3
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) end_everything();
  }
  std::thread([process = std::move(process), end = std::move(end)] {
    std::array<pollfd, 3> waiting = {
        {{kWorkerSocket, POLLRDHUP, 0}, {end.first.get(), POLLIN, 0}, {process.get(), POLLIN, 0}}};
    while (poll(waiting.data(), waiting.size(), -1) <= 0) {
    }
    end_everything();
  }).detach();
}

// What the parent had open without O_CLOEXEC is none of the compiler's business, and neither is the
// socket: a compiler that outlives this process must not hold it open.
void close_inherited() {
  fcntl(kWorkerSocket, F_SETFD, FD_CLOEXEC);
  base::close_inherited_from(kWorkerSocket + 1);
}

// Of what the process may write to, not of its address space: HIP and sanitizers reserve terabytes.
void limit_memory(std::uint64_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)bytes;
#else
  if (bytes == 0) return;
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

void send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(kWorkerSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) end_everything();
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

Message receive(FrameReader& frames) {
  std::array<char, 64 << 10> buffer;
  while (true) {
    if (auto message = frames.next()) return std::move(*message);
    const ssize_t got = recv(kWorkerSocket, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) end_everything();
    frames.feed({buffer.data(), static_cast<std::size_t>(got)});
  }
}

void answer(const Message& message) {
  std::string frame = encode_frame(message);
  fault_frame(frame);
  const std::size_t half = frame.size() / 2;
  send_all(std::string_view(frame).substr(0, half));
  fault(Step::in_answer);
  send_all(std::string_view(frame).substr(half));
}

// Takes over what the parent has made for this process.
void begin(FrameReader& frames) {
  const Message message = receive(frames);
  if (message.type != MessageType::start) {
    throw Error(Code::internal, "compile protocol: the first frame is not `start`");
  }
  const WorkerStart start = decode_worker_start(message.body);
  // Started in another way than kiln does it, this process may be in a group with others.
  if (static_cast<std::uint64_t>(getpgrp()) != start.group) setpgid(0, 0);
  own.directory = start.directory;
  own.group = static_cast<std::uint64_t>(getpgrp()) == start.group || getpgrp() == getpid();
  base::use_temporary_parent(start.directory);
}

}  // namespace

void serve(const WorkerArguments& arguments) {
  const pid_t parent = process_at_socket();
  close_inherited();
  FrameReader frames;
  begin(frames);
  watch_parent(parent);
  limit_memory(arguments.memory_bytes);
  fault(Step::started);
  send_all(encode_frame({MessageType::hello, 0, KILN_VERSION_STRING}));

  std::unique_ptr<Compiler> compiler;
  while (true) {
    std::optional<Error> unavailable;
    try {
      if (!compiler) compiler = open_compiler(arguments.kind, arguments.path);
    } catch (const Error& error) {
      unavailable = error;
    }
    fault(Step::before_read);
    const Message request = receive(frames);
    send_all(encode_frame({MessageType::accepted, request.id, {}}));
    fault(Step::after_read);
    const Message reply =
        compiler ? answer_request(*compiler, request)
                 : Message{MessageType::failed, request.id,
                           encode(Failure{unavailable->code(), unavailable->what(), ""})};
    std::fflush(nullptr);  // what the compiler printed belongs to this request
    fault(Step::before_answer);
    answer(reply);
    fault(Step::after_answer);
  }
}

}  // namespace kiln::jit
