// See serve.hpp.
#include "jit/service/worker/serve.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "jit/compilers/compiler.hpp"
#include "jit/compilers/protocol.hpp"
#include "jit/service/worker/fault.hpp"

namespace kiln::jit {
namespace {

constexpr int kSocket = 3;

// Written by the signal handler, read by the watch.
int end_pipe[2] = {-1, -1};

void ask_for_end(int) {
  const char byte = 0;
  if (write(end_pipe[1], &byte, 1) < 0) _exit(1);
}

// Ends this process and the compilers that it started, and removes their files.
[[noreturn]] void end_everything() {
  if (const char* directory = std::getenv("TMPDIR")) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  kill(0, SIGKILL);  // the group, of which this process is the leader
  _exit(1);
}

// A compile cannot be interrupted, so another thread looks out for the parent's end: its socket
// closes, or, should a forked copy of the parent hold that open, the kernel sends the signal.
void watch_parent(int parent) {
  if (pipe(end_pipe) != 0) _exit(1);
  struct sigaction action {};
  action.sa_handler = ask_for_end;
  sigaction(SIGTERM, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) end_everything();
  std::thread([] {
    std::array<pollfd, 2> waiting = {{{kSocket, POLLRDHUP, 0}, {end_pipe[0], POLLIN, 0}}};
    while (poll(waiting.data(), waiting.size(), -1) <= 0) {
    }
    end_everything();
  }).detach();
}

// What the parent had open without O_CLOEXEC is none of the compiler's business.
void close_inherited() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, kSocket + 1, ~0U, 0) == 0) return;
#endif
  for (int fd = kSocket + 1; fd < 4096; ++fd) close(fd);
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
    const ssize_t sent = send(kSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) end_everything();
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

Message receive(FrameReader& frames) {
  std::array<char, 64 << 10> buffer;
  while (true) {
    if (auto message = frames.next()) return std::move(*message);
    const ssize_t got = recv(kSocket, buffer.data(), buffer.size(), 0);
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

}  // namespace

int serve(const WorkerArguments& arguments) {
  close_inherited();
  watch_parent(arguments.parent);
  limit_memory(arguments.memory_bytes);
  fault(Step::started);
  send_all(encode_frame({MessageType::hello, 0, KILN_VERSION}));

  FrameReader frames;
  std::unique_ptr<Compiler> compiler;
  std::optional<Error> unavailable;
  try {
    compiler = open_compiler(arguments.kind, arguments.path);
  } catch (const Error& error) {
    unavailable = error;
  }
  while (true) {
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
