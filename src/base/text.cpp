#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace kiln::base {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string last_lines(std::string_view text, int count) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  if (lines <= count) return std::string(text);
  std::size_t start = text.size();
  for (int i = 0; i < count; ++i) start = text.rfind('\n', start - 1);
  return fmt::format("({} lines before)\n{}", lines - count, text.substr(start + 1));
}

}  // namespace kiln::base
