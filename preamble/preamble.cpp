#include "preamble/preamble.hpp"

#include <algorithm>
#include <span>

#include "preamble/tables.hpp"

namespace kiln::preamble {
namespace {

bool starts_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_word(char c) { return starts_word(c) || (c >= '0' && c <= '9'); }

std::size_t index_of(Device device) { return static_cast<std::size_t>(device); }

const Name* find(std::string_view word) {
  const std::span names(kNames, kNameCount);
  const auto found = std::ranges::lower_bound(names, word, {}, &Name::name);
  return found != names.end() && found->name == word ? &*found : nullptr;
}

Headers asked_for_in(std::string_view line, Device device) {
  Headers headers = 0;
  for (std::size_t at = 0; at < line.size();) {
    std::size_t end = at;
    while (end < line.size() && in_word(line[end])) ++end;
    const bool word = end != at && starts_word(line[at]);
    if (const Name* const name = word ? find(line.substr(at, end - at)) : nullptr)
      headers |= name->asks_for[index_of(device)];
    at = std::max(end, at + 1);
  }
  return headers;
}

// Whether a line that begins a token is nothing but a comment, also where it is within one of
// several lines or a raw string. Where that takes a tokeniser to say, it is read as code.
bool is_comment(std::string_view line) {
  const std::size_t start = line.find_first_not_of(" \t");
  return start != line.npos && line.substr(start).starts_with("//") && line.find("*/") == line.npos;
}

}  // namespace

Headers all(Device device) {
  Headers headers = 0;
  for (std::size_t i = 0; i < kHeaderCount; ++i) headers |= kHeaders[i].needs[index_of(device)];
  return headers;
}

Headers needed_by(std::string_view kernel, Device device) {
  if (kernel.find("##") != kernel.npos) return all(device);
  Headers headers = kHeaders[0].needs[index_of(device)];
  bool joined = false;  // to the line before, by a backslash
  while (!kernel.empty()) {
    const std::string_view line = kernel.substr(0, kernel.find('\n'));
    kernel.remove_prefix(std::min(line.size() + 1, kernel.size()));
    if (joined || !is_comment(line)) headers |= asked_for_in(line, device);
    joined = line.ends_with('\\') || line.ends_with("\\\r");
  }
  return headers;
}

std::string text(Headers headers, Device device) {
  std::string text;
  for (std::size_t i = 0; i < kHeaderCount; ++i) {
    if ((headers >> i & 1) == 0) continue;
    const std::size_t count = kHeaders[i].end_piece - kHeaders[i].first_piece;
    for (const Piece& piece : std::span(kPieces + kHeaders[i].first_piece, count)) {
      if ((piece.devices >> index_of(device) & 1) != 0) text += piece.text;
    }
  }
  return text;
}

std::size_t header_count() { return kHeaderCount; }
std::string_view header_name(std::size_t index) { return kHeaders[index].name; }

Headers needs_of(std::size_t index, Device device) {
  return kHeaders[index].needs[index_of(device)];
}

Headers declared_by(std::string_view word, Device device) {
  const Name* const name = find(word);
  return name == nullptr ? 0 : name->declared_by[index_of(device)];
}

}  // namespace kiln::preamble
