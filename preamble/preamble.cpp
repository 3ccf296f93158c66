#include "preamble/preamble.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include "preamble/tables.hpp"

namespace kiln::preamble {
namespace {

// The characters of a word; a number begins with a digit and is none.
struct Characters {
  constexpr Characters() {
    for (int c = 'a'; c <= 'z'; ++c) in_word[c] = in_word[c - 'a' + 'A'] = true;
    for (int c = '0'; c <= '9'; ++c) in_word[c] = true;
    in_word['_'] = true;
  }
  bool in_word[256] = {};
};
constexpr Characters kCharacters;

bool in_word(char c) { return kCharacters.in_word[static_cast<unsigned char>(c)]; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t index_of(Device device) { return static_cast<std::size_t>(device); }

const Name* find(std::string_view word, std::uint32_t hash) {
  for (std::size_t at = hash & (kSlotCount - 1);; at = (at + 1) & (kSlotCount - 1)) {
    if (kSlots[at] == 0) return nullptr;
    const Name& name = kNames[kSlots[at] - 1];
    if (name.name == word) return &name;
  }
}

const Name* find(std::string_view word) {
  std::uint32_t hash = kEmptyHash;
  for (const char c : word) hash = hashed(hash, c);
  return find(word, hash);
}

Headers asked_for_in(std::string_view line, Device device) {
  Headers headers;
  for (std::size_t at = 0; at < line.size();) {
    std::size_t end = at;
    std::uint32_t hash = kEmptyHash;
    for (; end < line.size() && in_word(line[end]); ++end) hash = hashed(hash, line[end]);
    const bool word = end != at && !is_digit(line[at]);
    if (const Name* const name = word ? find(line.substr(at, end - at), hash) : nullptr)
      headers |= name->asks_for[index_of(device)];
    at = end == at ? at + 1 : end;
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
  Headers headers;
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
    if (!headers.contains(i)) continue;
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
  return name == nullptr ? Headers() : name->declared_by[index_of(device)];
}

}  // namespace kiln::preamble
