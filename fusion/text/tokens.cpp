// Splits the text form into tokens and formats the place of an error.
#include "fusion/text/tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace kiln::fusion {
namespace {

// Longest first, so that the first match is the right one.
constexpr std::string_view kSymbols[] = {"...", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "+",
                                         "-",   "*",  "/",  "%",  "&",  "|",  "^",  "~",  "<",  ">",
                                         "(",   ")",  ",",  ";",  "=",  "[",  "]",  ":"};
constexpr std::string_view kWords[] = {"and", "or", "not", "if", "else"};

// What people write who come from another language, and what it is called here.
constexpr std::pair<std::string_view, std::string_view> kForeign[] = {
    {"&&", "write 'and'"},
    {"||", "write 'or'"},
    {"?", "write 'a if condition else b' or where(condition, a, b)"},
    {"!", "write 'not' or '!='"},
    {".", "names hold letters, digits and '_'"},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return starts_name(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    while (true) {
      while (at_ < text_.size() && is_space(text_[at_])) ++at_;
      if (at_ == text_.size()) break;
      tokens.push_back(next());
    }
    tokens.push_back({TokenKind::end, {}, text_.size(), {}});
    return tokens;
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  Token next() {
    const char c = peek();
    if (starts_name(c)) return word();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    for (const auto& [foreign, advice] : kForeign) {
      const std::string_view rest = text_.substr(at_);
      if (!rest.starts_with(foreign) || rest.starts_with("!=") || rest.starts_with("...")) continue;
      throw syntax_error(text_, at_, fmt::format("'{}' is not an operator; {}", foreign, advice));
    }
    for (const std::string_view symbol : kSymbols) {
      if (text_.substr(at_).starts_with(symbol)) return take(TokenKind::symbol, symbol.size());
    }
    const auto byte = static_cast<unsigned char>(c);
    throw syntax_error(text_, at_,
                       byte >= 0x20 && byte < 0x7f
                           ? fmt::format("expected a name, a number or an operator, found '{}'", c)
                           : fmt::format("expected a name, a number or an operator, found the byte "
                                         "0x{:02x}",
                                         byte));
  }

  Token take(TokenKind kind, std::size_t length) {
    const Token token{kind, text_.substr(at_, length), at_, {}};
    at_ += length;
    return token;
  }

  Token word() {
    std::size_t length = 1;
    while (continues_name(peek(length))) ++length;
    Token token = take(TokenKind::name, length);
    if (std::find(std::begin(kWords), std::end(kWords), token.text) != std::end(kWords)) {
      token.kind = TokenKind::symbol;
    } else if (token.text == "inf" || token.text == "nan") {
      token.kind = TokenKind::number;
      token.literal =
          Literal::floating(token.text == "inf" ? std::numeric_limits<double>::infinity()
                                                : std::numeric_limits<double>::quiet_NaN());
    } else if (token.text == "True" || token.text == "False") {
      token.kind = TokenKind::number;
      token.literal = Literal::boolean(token.text == "True");
    }
    return token;
  }

  Token number() {
    const bool hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    const auto digit = hex ? is_hex_digit : is_digit;
    const char exponent = hex ? 'p' : 'e';
    const std::size_t start = hex ? 2 : 0;
    std::size_t length = start;
    bool floating = false;
    while (digit(peek(length))) ++length;
    const std::size_t whole = length - start;
    std::size_t fraction = 0;
    if (peek(length) == '.') {
      floating = true;
      ++length;
      while (digit(peek(length))) ++length, ++fraction;
    }
    if (whole + fraction == 0) throw syntax_error(text_, at_, "expected hex digits after '0x'");
    if ((peek(length) | 0x20) == exponent) {
      floating = true;
      ++length;
      if (peek(length) == '+' || peek(length) == '-') ++length;
      if (!is_digit(peek(length))) {
        throw syntax_error(text_, at_ + length, "expected the digits of an exponent");
      }
      while (is_digit(peek(length))) ++length;
    }
    if (continues_name(peek(length)) || peek(length) == '.') {
      throw syntax_error(text_, at_ + length,
                         fmt::format("unexpected '{}' after the number {}", peek(length),
                                     quoted(text_.substr(at_, length))));
    }
    Token token = take(TokenKind::number, length);
    const std::string_view digits = token.text.substr(start);
    token.literal = floating ? float_literal(token, digits, hex) : int_literal(token, digits, hex);
    return token;
  }

  Literal int_literal(const Token& token, std::string_view digits, bool hex) const {
    if (!hex && digits.size() > 1 && digits.front() == '0' &&
        digits.find_first_not_of('0') != digits.npos) {
      throw syntax_error(text_, token.offset,
                         fmt::format("the integer {} begins with 0; write it without, or with 0x",
                                     quoted(token.text)));
    }
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      throw syntax_error(text_, token.offset,
                         fmt::format("the integer {} is above the largest u64, {}; write it with "
                                     "'.0' for a float",
                                     quoted(token.text), ~std::uint64_t{0}));
    }
    return value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
               ? Literal::unsigned_integer(value)
               : Literal::integer(static_cast<std::int64_t>(value));
  }

  Literal float_literal(const Token& token, std::string_view digits, bool hex) const {
    double value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value,
                        hex ? std::chars_format::hex : std::chars_format::general);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      throw syntax_error(text_, token.offset,
                         fmt::format("the number {} is outside the range of f64 (write inf or 0.0 "
                                     "if that is meant)",
                                     quoted(token.text)));
    }
    return Literal::floating(value);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) { return Tokenizer(text).run(); }

bool is_name(std::string_view text) {
  if (text.empty() || !starts_name(text.front())) return false;
  if (!std::all_of(text.begin(), text.end(), continues_name)) return false;
  const std::vector<Token> tokens = tokenize(text);
  return tokens.front().kind == TokenKind::name;
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 40;
  if (text.size() <= kMost) return fmt::format("'{}'", text);
  return fmt::format("'{}...' ({} characters)", text.substr(0, kMost - 3), text.size());
}

std::string position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == before.npos ? offset + 1 : offset - newline;
  return fmt::format("line {}, column {}", line, column);
}

Error syntax_error(std::string_view text, std::size_t offset, std::string_view what, Code code) {
  constexpr std::size_t kContext = 32;
  offset = std::min(offset, text.size());
  const std::size_t newline = text.substr(0, offset).rfind('\n');
  std::size_t begin = newline == text.npos ? 0 : newline + 1;
  std::size_t end = std::min(text.find('\n', offset), text.size());
  const bool clipped_before = offset - begin > kContext;
  const bool clipped_after = end - offset > kContext;
  if (clipped_before) begin = offset - kContext;
  if (clipped_after) end = offset + kContext;

  const std::string message = fmt::format("parse: {}: {}", position(text, offset), what);
  if (begin == end) return Error(code, message);
  std::string excerpt = clipped_before ? "  ..." : "  ";
  const std::size_t mark = excerpt.size() + (offset - begin);
  for (const char c : text.substr(begin, end - begin)) {
    excerpt += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  if (clipped_after) excerpt += "...";
  return Error(code, fmt::format("{}\n{}\n{:>{}}", message, excerpt, '^', mark + 1));
}

}  // namespace kiln::fusion
