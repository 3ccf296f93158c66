// The failures of the tests' worker. KILN_WORKER_FAULT is STEP:ACTION[:FILE]; with FILE, only the
// process that manages to create that file fails, so that the next worker is a healthy one.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "jit/service/worker/fault.hpp"

namespace kiln::jit {
namespace {

struct Fault {
  std::string step;
  std::string action;
  std::string file;
};

const Fault& wanted() {
  static const Fault fault = [] {
    Fault parsed;
    const char* variable = std::getenv("KILN_WORKER_FAULT");
    std::string text = variable != nullptr ? variable : "";
    for (std::string* part : {&parsed.step, &parsed.action, &parsed.file}) {
      *part = text.substr(0, text.find(':'));
      text.erase(0, part->size() + 1 <= text.size() ? part->size() + 1 : text.size());
    }
    return parsed;
  }();
  return fault;
}

bool is_due(Step step) {
  static const std::map<Step, std::string> names = {
      {Step::started, "started"},       {Step::before_read, "before_read"},
      {Step::after_read, "after_read"}, {Step::before_answer, "before_answer"},
      {Step::in_answer, "in_answer"},   {Step::after_answer, "after_answer"}};
  if (wanted().step != names.at(step)) return false;
  if (wanted().file.empty()) return true;
  const int fd = open(wanted().file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void write_bytes(const std::string& bytes) {
  if (send(kWorkerSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) _exit(9);
}

void flood() {
  std::string line(1023, 'x');
  line += '\n';
  for (int i = 0; i < 20'000; ++i) {
    if (write(2, line.data(), line.size()) < 0) _exit(9);
  }
  constexpr std::string_view kLast = "the last words\n";
  if (write(1, kLast.data(), kLast.size()) < 0) _exit(9);
}

[[noreturn]] void hang() {
  while (true) pause();
}

void fill_memory() {
  std::vector<char*> blocks;
  while (true) {
    blocks.push_back(new char[1 << 20]);  // ends in std::bad_alloc, which nobody catches
    std::memset(blocks.back(), 1, 1 << 20);
  }
}

}  // namespace

void fault(Step step) {
  if (!is_due(step)) return;
  const std::string& action = wanted().action;
  if (action == "kill") raise(SIGKILL);
  if (action == "segv") raise(SIGSEGV);
  if (action == "abort") std::abort();
  if (action == "exit") _exit(0);
  if (action == "hang") hang();
  if (action == "oom") fill_memory();
  if (action == "flood") flood();
  if (action == "garbage") write_bytes(std::string(100, '?'));
  if (action == "close") {
    shutdown(kWorkerSocket, SHUT_WR);
    hang();
  }
}

// The frame's header, after four bytes of magic: version (2), type (2), id (8), length (8).
void fault_frame(std::string& frame) {
  const std::string& action = wanted().action;
  if (wanted().step != "frame") return;
  if (action == "id") frame[8] = static_cast<char>(frame[8] + 1);
  if (action == "version") frame[4] = 99;
  if (action == "type") frame[6] = 99;
  if (action == "length") frame[23] = 99;
  if (action == "truncated") frame[frame.size() - 16] = 99;  // the log's length
  if (action == "twice") frame += frame;
}

}  // namespace kiln::jit
