// The words of the text form: names, numbers and operators with the place they stand at, and the
// one way in which a place is shown to a person. What the words mean together is in text.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/graph.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {

enum class TokenKind : std::uint8_t { end, name, number, symbol };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  ///< as written; words such as `and` and `if` are symbols
  std::size_t offset = 0;
  Literal literal;  ///< of a number, True and False

  bool is(std::string_view symbol) const { return kind == TokenKind::symbol && text == symbol; }
};

/// The tokens of `text`, the last one of kind `end`. Throws Error(invalid_argument).
std::vector<Token> tokenize(std::string_view text);

/// True if a name of the text form may be written like this: an identifier that is no reserved
/// word.
bool is_name(std::string_view text);

/// "'...'" with at most 40 characters, for messages.
std::string quoted(std::string_view text);

/// "line 1, column 9".
std::string position(std::string_view text, std::size_t offset);

/// An error of `what` at `offset`: position, message, and the line with a mark below the place.
Error syntax_error(std::string_view text, std::size_t offset, std::string_view what,
                   Code code = Code::invalid_argument);

}  // namespace kiln::fusion
