#include "tool/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tool/print.hpp"

namespace kiln::tool {
namespace {

std::size_t columns() { return terminal_columns(STDERR_FILENO, 80); }

const std::string kClearLine = "\r\033[K";

// As it is, control characters too.
void write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Style Progress::style(bool json) {
  if (json) return Style::none;
  return ::isatty(STDERR_FILENO) == 1 ? Style::bar : Style::lines;
}

void Progress::step(std::string_view what) {
  ++done_;
  if (style_ == Style::lines) print(stderr, "{}/{} {}\n", done_, total_, what);
  if (style_ != Style::bar) return;
  // One column less, so that no terminal starts a line of its own.
  write(kClearLine + progress_bar(done_, total_, printable(what), columns() - 1));
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  write(kClearLine);
  shown_ = false;
}

Counter::Counter(std::string what, bool json)
    : what_(std::move(what)), shows_(Progress::style(json) == Progress::Style::bar) {}

std::function<void(std::uint64_t, std::uint64_t)> Counter::step() {
  if (!shows_) return {};
  return [this](std::uint64_t done, std::uint64_t total) {
    const std::uint64_t hundredths = 100 * done / std::max<std::uint64_t>(total, 1);
    if (shown_ && hundredths == last_) return;
    last_ = hundredths;
    shown_ = true;
    print(stderr, "\r\033[K{}", progress_bar(done, total, what_, columns() - 1));
    std::fflush(stderr);
  };
}

void Counter::clear() {
  if (!shown_) return;
  print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

std::string progress_bar(std::size_t done, std::size_t total, std::string_view what,
                         std::size_t columns) {
  constexpr std::size_t kWidth = 20;
  const std::size_t full = total == 0 ? kWidth : kWidth * std::min(done, total) / total;
  return clip(
      fmt::format("[{:#<{}}{:.<{}}] {}/{} {}", "", full, "", kWidth - full, done, total, what),
      columns);
}

}  // namespace kiln::tool
