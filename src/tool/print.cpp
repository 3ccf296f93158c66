#include "tool/print.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "base/environment.hpp"

namespace kiln::tool {
namespace {

bool coloured() {
  static const bool result = ::isatty(STDOUT_FILENO) == 1 && environment("NO_COLOR").empty();
  return result;
}

std::string paint(std::string_view text, int code) {
  return coloured() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

// Characters, not bytes, and without colours: what a cell takes on a screen.
std::size_t width(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++count;
    }
  }
  return count;
}

// No bound where standard output is no terminal: what a program reads is whole.
std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return SIZE_MAX;
  return size.ws_col;
}

}  // namespace

void write_error(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void print_json(const Json& value) {
  const std::string text = value.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::string bold(std::string_view text) { return paint(text, 1); }
std::string dim(std::string_view text) { return paint(text, 2); }
std::string red(std::string_view text) { return paint(text, 31); }

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be written as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_duration(std::int64_t seconds) {
  struct Unit {
    std::int64_t seconds;
    std::string_view one;
    std::string_view many;
  };
  constexpr Unit kUnits[] = {
      {365 * 86400, "year", "years"}, {86400, "day", "days"}, {3600, "h", "h"}, {60, "min", "min"}};
  for (const Unit& unit : kUnits) {
    const std::int64_t count = seconds / unit.seconds;
    if (count > 0) return fmt::format("{} {}", count, count == 1 ? unit.one : unit.many);
  }
  return fmt::format("{} s", std::max<std::int64_t>(seconds, 0));
}

std::string human_time(double microseconds) {
  if (microseconds < 1000) return fmt::format("{:.3g} us", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.3g} ms", microseconds / 1e3);
  return fmt::format("{:.3g} s", microseconds / 1e6);
}

std::string iso_time(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  if (::gmtime_r(&time, &utc) == nullptr) return fmt::format("{}", seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc);
}

std::string clip(std::string_view text, std::size_t columns) {
  const bool whole = width(text) <= columns;
  const std::size_t most = whole ? columns : columns - std::min<std::size_t>(columns, 3);
  std::string result;
  std::size_t count = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) != 0x80 && count++ == most) break;
    result += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  return whole ? result : result + "...";
}

Table::Table(std::vector<std::string> header) : has_header_(!header.empty()) {
  if (!has_header_) return;
  for (std::string& cell : header) cell = dim(cell);
  row(std::move(header));
}

void Table::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

void Table::align_right(std::size_t column) {
  if (right_.size() <= column) right_.resize(column + 1);
  right_[column] = true;
}

void Table::print() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  constexpr std::size_t kNarrowest = 16;  // a narrower last column says nothing; then it may wrap
  const std::size_t columns = terminal_columns();
  for (const auto& row : rows_) {
    std::string line;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width(row[i]), ' ');
      const bool right = i < right_.size() && right_[i];
      const bool fits = begin + width(row[i]) <= columns || begin + kNarrowest > columns;
      const bool clips = i > 0 && i + 1 == row.size() && !right && !fits && row[i][0] != '\x1b';
      line += (i ? "  " : "");
      line += clips ? clip(row[i], columns - begin) : right ? padding + row[i] : row[i] + padding;
      begin += widths[i] + 2;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

}  // namespace kiln::tool
