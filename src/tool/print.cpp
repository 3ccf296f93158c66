#include "tool/print.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "base/environment.hpp"

namespace kiln::tool {
namespace {

bool coloured() {
  static const bool result = ::isatty(STDOUT_FILENO) == 1 && base::environment("NO_COLOR").empty();
  return result;
}

constexpr std::array<std::string_view, 4> kColours = {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"};

std::string paint(std::string_view text, int code) {
  return coloured() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

// One character of UTF-8 at the start of a text: its bytes, 0 if they are not UTF-8.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;
};

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const std::size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return {};
  char32_t code = byte(0) & (0x7f >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kSmallest[bytes] || code > 0x10ffff || surrogate ? Character{}
                                                                 : Character{code, bytes};
}

// The C0 and C1 controls and delete; line and paragraph separators; what reorders a line.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string escape(char32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
}

// Printable, but for the control characters in `kept` and, if they may stay, the tool's own
// colours.
std::string shown(std::string_view text, std::string_view kept, bool colours) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    if (text[0] == '\x1b' && colours) {
      const auto* const colour = std::ranges::find_if(
          kColours, [&](std::string_view known) { return text.starts_with(known); });
      if (colour != kColours.end()) {
        result += *colour;
        text.remove_prefix(colour->size());
        continue;
      }
    }
    const Character character = first_character(text);
    const std::size_t bytes = std::max<std::size_t>(character.bytes, 1);
    if (character.bytes == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (is_control(character.code) && kept.find(text[0]) == kept.npos) {
      result += escape(character.code);
    } else {
      result += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return result;
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

// No cell has a '\0' in it: it would be escaped.
std::vector<std::string_view> cells_of(std::string_view row) {
  std::vector<std::string_view> cells;
  while (!row.empty()) {
    cells.push_back(row.substr(0, row.find('\0')));
    row.remove_prefix(cells.back().size() + 1);
  }
  return cells;
}

// Why standard output could not be written; of what is buffered it is known only later.
int first_output_error = 0;

}  // namespace

std::size_t terminal_columns(int descriptor, std::size_t otherwise) {
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : otherwise;
}

std::string printable(std::string_view text) { return shown(text, "", false); }

void print_text(std::FILE* file, std::string_view text) {
  const std::string lines = shown(text, "\n\t", coloured());
  if (std::fwrite(lines.data(), 1, lines.size(), file) < lines.size() && file == stdout) {
    if (first_output_error == 0) first_output_error = errno;
  }
}

int output_error() {
  if (std::fflush(stdout) != 0 && first_output_error == 0) first_output_error = errno;
  return first_output_error != 0 || std::ferror(stdout) == 0 ? first_output_error : EIO;
}

void print_json(const Json& value) {
  print("{}\n", value.dump(2, ' ', false, Json::error_handler_t::replace));
}

JsonArrayPrinter::~JsonArrayPrinter() { print_text(stdout, empty_ ? "[]\n" : "\n]\n"); }

void JsonArrayPrinter::print(const Json& element) {
  std::string text = element.dump(2, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 3) {
    text.insert(at + 1, "  ");
  }
  print_text(stdout, (empty_ ? "[\n  " : ",\n  ") + text);
  empty_ = false;
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
  std::string line(text);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  line = printable(line);
  if (width(line) <= columns) return line;
  const std::size_t most = columns - std::min<std::size_t>(columns, 3);
  std::size_t count = 0;
  const auto end = std::ranges::find_if(line, [&](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80 && count++ == most;
  });
  line.erase(end, line.end());
  return line + "...";
}

Table::Table(std::vector<std::string> header) : has_header_(!header.empty()) {
  if (!has_header_) return;
  for (std::string& cell : header) cell = dim(cell);
  row(std::move(header));
}

void Table::row(std::vector<std::string> cells) {
  std::string row;
  for (const std::string& cell : cells) row += shown(cell, "", coloured()) + '\0';
  row.shrink_to_fit();
  rows_.push_back(std::move(row));
}

void Table::align_right(std::size_t column) {
  if (right_.size() <= column) right_.resize(column + 1);
  right_[column] = true;
}

void Table::print() const {
  std::vector<std::size_t> widths;
  for (const std::string& packed : rows_) {
    const std::vector<std::string_view> row = cells_of(packed);
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  constexpr std::size_t kNarrowest = 16;  // a narrower last column says nothing; then it may wrap
  // No bound where standard output is no terminal: what a program reads is whole.
  const std::size_t columns = terminal_columns(STDOUT_FILENO, SIZE_MAX);
  for (const std::string& packed : rows_) {
    const std::vector<std::string_view> row = cells_of(packed);
    std::string line;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width(row[i]), ' ');
      const bool right = i < right_.size() && right_[i];
      const bool fits = begin + width(row[i]) <= columns || begin + kNarrowest > columns;
      const bool clips = i > 0 && i + 1 == row.size() && !right && !fits && row[i][0] != '\x1b';
      line += (i ? "  " : "");
      if (right) line += padding;
      line += clips ? clip(row[i], columns - begin) : std::string(row[i]);
      if (!right && !clips) line += padding;
      begin += widths[i] + 2;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    print_text(stdout, line + "\n");
  }
}

}  // namespace kiln::tool
