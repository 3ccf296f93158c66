// How the tool writes: aligned columns, sizes and ages for people, colour only on a terminal, JSON.
// Text from elsewhere (metadata of a cache's entries, names of files, a compiler's log) cannot
// give a terminal commands: print(), Table and print_json() write control characters as escapes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::tool {

using Json = nlohmann::ordered_json;

/// How many columns the descriptor's terminal has; `otherwise` where it is none.
std::size_t terminal_columns(int descriptor, std::size_t otherwise);

/// The text with every control character, and those that change the direction of what follows, as
/// \n, \t or \u001b, and bytes that are not UTF-8 as \xff.
std::string printable(std::string_view text);

/// Writes lines for people: of control characters only newlines, tabs and the tool's own colours
/// stay; the others are written as printable() has them. Does not throw when it cannot be written
/// (closed, full, nobody reads): of standard output main() finds that out at the end, and without
/// standard error the exit code says what is wrong.
void print_text(std::FILE* file, std::string_view text);
template <class... Args>
void print(std::FILE* file, fmt::format_string<Args...> format, Args&&... args) {
  print_text(file, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  print_text(stdout, fmt::format(format, std::forward<Args>(args)...));
}

/// Flushes standard output. The errno of the first write to it that failed, or 0.
int output_error();

/// One value on standard output, indented. Text that is not UTF-8 is written with replacements.
void print_json(const Json& value);

/// An array as print_json() writes it, one element after another, so that only one is in memory.
class JsonArrayPrinter {
 public:
  ~JsonArrayPrinter();
  void print(const Json& element);

 private:
  bool empty_ = true;
};

/// The text in bold, dim or red if standard output is a terminal and NO_COLOR is not set.
std::string bold(std::string_view text);
std::string dim(std::string_view text);
std::string red(std::string_view text);

/// "1.5 MiB".
std::string human_bytes(std::uint64_t bytes);
/// "3 min", "2 days": of a time that has passed.
std::string human_duration(std::int64_t seconds);
/// "12.3 us", "4.56 ms".
std::string human_time(double microseconds);
/// "2024-05-31T12:00:00Z" of seconds since 1970.
std::string iso_time(std::int64_t seconds);
/// At most `columns` characters, with "..." for what is left out. Newlines and tabs become spaces,
/// other control characters are as in printable().
std::string clip(std::string_view text, std::size_t columns);

/// Rows whose columns are padded to the widest cell. On a terminal the last column ends where the
/// terminal does.
class Table {
 public:
  explicit Table(std::vector<std::string> header = {});
  void row(std::vector<std::string> cells);
  /// Numbers look better flush right.
  void align_right(std::size_t column);
  void print() const;

 private:
  std::vector<std::string> rows_;  ///< cells behind one another, each with a '\0' at its end
  std::vector<bool> right_;
  bool has_header_ = false;
};

}  // namespace kiln::tool
