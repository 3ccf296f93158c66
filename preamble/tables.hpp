// What embed.cpp writes of the headers, and preamble.cpp reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "preamble/preamble.hpp"

namespace kiln::preamble {

// One for each Device.
using HeadersByDevice = std::array<Headers, 3>;

// Lines of a header, for the devices whose bits are set.
struct Piece {
  unsigned devices;
  std::string_view text;
};
extern const Piece kPieces[];

struct Header {
  std::string_view name;
  HeadersByDevice needs;  ///< itself and what it includes, directly or not
  std::size_t first_piece;
  std::size_t end_piece;
};
// In the order in which they build on each other; place i of Headers is kHeaders[i].
extern const Header kHeaders[];
extern const std::size_t kHeaderCount;

struct Name {
  std::string_view name;
  HeadersByDevice declared_by;
  HeadersByDevice asks_for;  ///< of these those that a text with this word needs, and all they need
};
extern const Name kNames[];

// Names by hash: open addressing with linear probing over a power of two, not more than half full.
// A slot is empty (0) or has the place in kNames, counted from 1.
extern const std::uint16_t kSlots[];
extern const std::size_t kSlotCount;

// The hash of a word (FNV-1a) grows with each of its characters.
constexpr std::uint32_t kEmptyHash = 0x811c9dc5;
constexpr std::uint32_t hashed(std::uint32_t hash, char c) {
  return (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
}

}  // namespace kiln::preamble
