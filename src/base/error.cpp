#include "kiln/error.hpp"

#include <cstdio>
#include <memory>
#include <mutex>
#include <set>

namespace kiln {
namespace {

void print_warning(LogLevel level, std::string_view message) {
  if (level == LogLevel::warning) {
    std::fprintf(stderr, "kiln: %.*s\n", static_cast<int>(message.size()), message.data());
  }
}

struct LogState {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink = std::make_shared<const LogSink>(print_warning);
  std::set<std::string, std::less<>> logged;
};

// Never destroyed: threads of the caller may still log while the process ends.
LogState& state() {
  static auto* const instance = new LogState;
  return *instance;
}

}  // namespace

std::string_view name(Code code) {
  switch (code) {
    case Code::invalid_argument: return "invalid_argument";
    case Code::unsupported: return "unsupported";
    case Code::not_found: return "not_found";
    case Code::compile_failed: return "compile_failed";
    case Code::would_compile: return "would_compile";
    case Code::device: return "device";
    case Code::io: return "io";
    case Code::internal: return "internal";
  }
  return "unknown";
}

void set_log(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::make_shared<const LogSink>(std::move(sink));
}

void log(LogLevel level, std::string_view message) {
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard lock(state().mutex);
    sink = state().sink;
  }
  if (*sink) (*sink)(level, message);
}

void log_once(LogLevel level, std::string_view key, std::string_view message) {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().logged.emplace(key).second) return;
  }
  log(level, message);
}

}  // namespace kiln
