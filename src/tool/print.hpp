// How the tool writes: aligned columns, sizes and ages for people, colour only on a terminal, JSON.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::tool {

using Json = nlohmann::ordered_json;

/// To standard error, unbuffered. That it cannot be written (closed, full, nobody reads) is no reason
/// to fail: what the tool was asked for may be done, and its exit code says so.
void write_error(std::string_view text);
template <class... T>
void print_error(fmt::format_string<T...> format, T&&... arguments) {
  write_error(fmt::format(format, std::forward<T>(arguments)...));
}

/// One value on standard output, indented. Text that is not UTF-8 is written with replacements. Does
/// not throw when it cannot be written, which main() finds out at the end.
void print_json(const Json& value);

/// The text in bold, dim or red if standard output is a terminal and NO_COLOR is not set (or empty).
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
/// At most `columns` characters, with "..." for what is left out; control characters become spaces.
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
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
  bool has_header_ = false;
};

}  // namespace kiln::tool
