// What embed.cpp writes of the headers, and preamble.cpp reads.
#pragma once

#include <array>
#include <cstddef>
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
// In the order in which they build on each other; bit i of a Headers is kHeaders[i].
extern const Header kHeaders[];
extern const std::size_t kHeaderCount;

struct Name {
  std::string_view name;
  HeadersByDevice declared_by;
  HeadersByDevice asks_for;  ///< of these those that a text with this word needs, and all they need
};
// Sorted by name.
extern const Name kNames[];
extern const std::size_t kNameCount;

}  // namespace kiln::preamble
