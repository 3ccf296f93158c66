#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace kiln::base {

std::vector<std::string> split(std::string_view text, char separator, Parts which) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    std::string_view part = text.substr(at, end - at);
    if (which == Parts::trimmed) {
      part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
      part = part.substr(0, part.find_last_not_of(' ') + 1);
    }
    if (which == Parts::all || !part.empty()) parts.emplace_back(part);
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
