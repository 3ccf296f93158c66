// The parser of the text form. Operators and operands wait on explicit stacks, never on the call
// stack, so the length of a chain has no limit and only brackets count as nesting. The printer is
// in text_print.cpp.
#include "fusion/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "fusion/composition.hpp"
#include "fusion/shape_ops.hpp"
#include "fusion/text_operators.hpp"
#include "fusion/text_tokens.hpp"

namespace kiln::fusion {
namespace {

constexpr int kMaxNesting = 1000;

/// Something that waits for its last operand or its closing bracket.
struct Pending {
  enum class Kind : std::uint8_t { prefix, infix, compare, if_, else_, parenthesis, call };
  Kind kind = Kind::prefix;
  int precedence = 0;             ///< of operators
  Op op = Op::neg;                ///< of prefix, infix and compare
  bool identity = false;          ///< of prefix: unary plus
  std::optional<NodeId> chain{};  ///< of compare: the conjunction of what stands to its left
  std::size_t first_operand = 0;  ///< of a bracket: where its operands begin
  std::string_view function{};    ///< of call
  std::optional<DType> dtype{};   ///< of a call of bitcast: its second argument
  std::size_t offset = 0;

  bool bracket() const { return kind == Kind::parenthesis || kind == Kind::call; }
};

class Parser {
 public:
  Parser(std::string_view text, std::span<const std::string> arguments)
      : text_(text), tokens_(tokenize(text)) {
    for (const std::string& name : arguments) {
      if (!is_name(name)) {
        throw Error(Code::invalid_argument, fmt::format("'{}' cannot name an argument", name));
      }
      graph_.argument(name);
    }
  }

  Graph run() {
    while (true) {
      const bool last = statement();
      if (last) break;
    }
    return std::move(graph_);
  }

 private:
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }

  [[noreturn]] void fail(const Token& token, std::string_view what) const {
    throw syntax_error(text_, token.offset, what);
  }
  [[noreturn]] void expected(std::string_view what) const {
    const Token& token = peek();
    fail(token, fmt::format("expected {}, found {}", what,
                            token.kind == TokenKind::end ? "the end" : quoted(token.text)));
  }

  /// One statement and the `;` after it; true if it was the last.
  bool statement() {
    const bool assigns = peek().kind == TokenKind::name && peek(1).is("=");
    const Token name = assigns ? take() : Token{};
    std::vector<NodeId> values;
    std::vector<std::string_view> names;
    if (assigns) {
      check_assignable(name);
      take();
      values.push_back(expression());
      names.push_back(name.text);
    } else {
      for (bool first = true; first || peek().is(","); first = false) {
        if (!first) take();
        const std::string_view lone = lone_name();  // names one output, the first
        const bool taken = std::find(names.begin(), names.end(), lone) != names.end();
        names.push_back(taken ? std::string_view{} : lone);
        values.push_back(expression());
      }
    }
    if (assigns && peek().is(",")) {
      fail(peek(), "expected ';' or the end, found ','; an assignment has one value");
    }
    const Token separator = peek();
    if (separator.is(";")) take();
    const bool last = peek().kind == TokenKind::end;
    if (!last && !assigns) {
      fail(separator, "expected the end, found ';'; only the last statement may do without a name");
    }
    if (assigns) values_[name.text] = values.front();
    if (last) {
      for (std::size_t i = 0; i < values.size(); ++i) graph_.add_output(values[i], names[i]);
    }
    return last;
  }

  /// The name of a statement that stands alone as an output; it becomes the output's name.
  std::string_view lone_name() const {
    const Token& after = peek(1);
    const bool alone = after.is(",") || after.is(";") || after.kind == TokenKind::end;
    if (!alone || peek().kind != TokenKind::name) return {};
    const auto bound = values_.find(peek().text);
    if (bound == values_.end()) return {};
    const Node& node = graph_[bound->second];
    const bool own_argument =
        node.op == Op::input && graph_.arguments()[node.payload] == peek().text;
    return own_argument ? std::string_view{} : peek().text;
  }

  void check_assignable(const Token& name) const {
    if (const std::string_view what = reserved_as(name.text); !what.empty()) {
      fail(name, fmt::format("cannot assign to '{}', which is {}", name.text, what));
    }
  }

  /// An expression up to a `,` or `;` outside of brackets, or the end.
  NodeId expression() {
    pending_.clear();
    operands_.clear();
    nesting_ = 0;
    do {
      operand();
    } while (infix());
    return operands_.back();
  }

  // Reads prefix operators and opening brackets, then one name or number.
  void operand() {
    while (true) {
      const Token& token = peek();
      if (const Operator* prefix = find_prefix(token)) {
        if (token.is("-") && negative_number()) return;
        push_prefix(token, *prefix);
      } else if (token.is("(")) {
        open({.kind = Pending::Kind::parenthesis, .offset = token.offset});
        take();
      } else if (token.kind == TokenKind::number) {
        operands_.push_back(graph_.constant(take().literal));
        return;
      } else if (token.kind == TokenKind::name && peek(1).is("(")) {
        open({.kind = Pending::Kind::call, .function = token.text, .offset = token.offset});
        take();
        take();
        if (peek().is(")")) return;  // a call without arguments: `infix` closes it
      } else if (token.kind == TokenKind::name) {
        named_operand();
        return;
      } else {
        expected("a value");
      }
    }
  }

  // `-1` is a literal, unless `**` follows, which binds tighter.
  bool negative_number() {
    const Token& number = peek(1);
    const bool arithmetic =
        number.kind == TokenKind::number && number.literal.kind != Kind::boolean;
    if (!arithmetic || peek(2).is("**")) return false;
    const Literal literal = number.literal;
    if (literal.kind == Kind::floating) {
      operands_.push_back(graph_.constant(Literal::floating(-literal.as_double())));
    } else {
      constexpr std::uint64_t kLowest = std::uint64_t{1} << 63;  // as a magnitude
      if (literal.bits > kLowest) {
        fail(number, fmt::format("the integer '-{}' is below the smallest i64", number.text));
      }
      operands_.push_back(
          graph_.constant(Literal::integer(static_cast<std::int64_t>(0 - literal.bits))));
    }
    at_ += 2;
    return true;
  }

  void push_prefix(const Token& token, const Operator& prefix) {
    if (token.is("not") && !pending_.empty() && !pending_.back().bracket() &&
        pending_.back().precedence > prefix.precedence) {
      fail(token, fmt::format("expected a value, found '{}'; put '{} ...' in parentheses",
                              token.text, token.text));
    }
    pending_.push_back({.kind = Pending::Kind::prefix,
                        .precedence = prefix.precedence,
                        .op = prefix.op,
                        .identity = token.is("+"),
                        .offset = token.offset});
    take();
  }

  void open(Pending bracket) {
    if (++nesting_ > kMaxNesting) {
      fail(peek(), fmt::format("more than {} brackets are open; name parts of the expression "
                               "(t = ...; ...)",
                               kMaxNesting));
    }
    bracket.first_operand = operands_.size();
    pending_.push_back(bracket);
  }

  void named_operand() {
    const Token token = peek();
    const auto bound = values_.find(token.text);
    if (bound != values_.end()) {
      operands_.push_back(bound->second);
    } else if (const auto dtype = parse_dtype(token.text)) {
      if (!is_dtype_argument()) {
        fail(token, fmt::format("'{}' is a dtype; write {}(...) to convert to it", token.text,
                                token.text));
      }
      pending_.back().dtype = *dtype;
    } else if (!reserved_as(token.text).empty()) {
      fail(token,
           fmt::format("'{}' is a function; write {}(...) to call it", token.text, token.text));
    } else {
      operands_.push_back(graph_.argument(token.text));
    }
    take();
  }

  // The last argument of bitcast and iota.
  bool is_dtype_argument() const {
    if (pending_.empty() || pending_.back().kind != Pending::Kind::call) return false;
    const Pending& call = pending_.back();
    const std::size_t before = operands_.size() - call.first_operand;
    const bool takes_dtype =
        (call.function == "bitcast" && before == 1) || (call.function == "iota" && before <= 1);
    return takes_dtype && !call.dtype && peek(1).is(")");
  }

  // Reads closing brackets, then one operator or separator that an operand must follow. False when
  // the expression has ended.
  bool infix() {
    while (peek().is(")") || peek().is("[")) {
      if (peek().is("[")) {
        subscripts();
      } else {
        close();
      }
    }
    const Token& token = peek();
    if (const Operator* op = find_infix(token)) {
      push_infix(token, *op);
    } else if (token.is("if")) {
      reduce_above(kTernaryPrecedence);
      if (!pending_.empty() && pending_.back().kind == Pending::Kind::if_) {
        fail(token, "expected 'else', found a second 'if'; put the inner one in parentheses");
      }
      push_ternary(Pending::Kind::if_);
    } else if (token.is("else")) {
      reduce_above(kTernaryPrecedence);
      if (pending_.empty() || pending_.back().kind != Pending::Kind::if_) {
        fail(token, "expected an operator, found 'else' without 'if'");
      }
      pending_.back().kind = Pending::Kind::else_;
    } else if (token.is(",") && nesting_ > 0) {
      reduce_to_bracket();
      if (pending_.back().kind == Pending::Kind::parenthesis) expected("')' or an operator");
    } else {
      return end_of_expression();
    }
    take();
    return true;
  }

  // x[...]: it binds tighter than everything, so it takes the last operand as it is.
  void subscripts() {
    const std::size_t offset = take().offset;
    std::vector<Subscript> items;
    do {
      if (!items.empty()) take();
      items.push_back(subscript_item());
    } while (peek().is(","));
    if (!peek().is("]")) expected("',', ':' or ']'");
    take();
    try {
      operands_.back() = subscript(graph_, operands_.back(), items);
    } catch (const Error& error) {
      throw syntax_error(text_, offset, error.what(), error.code());
    }
  }

  Subscript subscript_item() {
    Subscript item;
    if (peek().is("...")) {
      take();
      item.kind = Subscript::Kind::rest;
      return item;
    }
    if (peek().kind == TokenKind::name && peek().text == "None") {
      take();
      item.kind = Subscript::Kind::new_axis;
      return item;
    }
    if (!peek().is(":")) {
      item.start = subscript_number();
      if (!peek().is(":")) {
        item.kind = Subscript::Kind::element;
        return item;
      }
    }
    take();
    const auto given = [&] { return !peek().is(":") && !peek().is(",") && !peek().is("]"); };
    if (given()) item.stop = subscript_number();
    if (peek().is(":")) {
      take();
      if (given()) item.step = subscript_number();
    }
    return item;
  }

  std::int64_t subscript_number() {
    const bool negative = peek().is("-");
    const Token& number = peek(negative ? 1 : 0);
    if (number.kind != TokenKind::number || number.literal.kind != Kind::signed_integer) {
      expected("an integer, ':', '...' or None");
    }
    const auto value = static_cast<std::int64_t>(number.literal.bits);
    at_ += negative ? 2 : 1;
    return negative ? -value : value;
  }

  bool end_of_expression() {
    if (nesting_ > 0) {
      reduce_to_bracket();
      expected(fmt::format("an operator or the ')' that closes {} of {}",
                           pending_.back().kind == Pending::Kind::call
                               ? fmt::format("{}(", pending_.back().function)
                               : "'('",
                           position(text_, pending_.back().offset)));
    }
    const Token& token = peek();
    if (!token.is(",") && !token.is(";") && token.kind != TokenKind::end) {
      if (token.is("=")) fail(token, "expected an operator, found '='; '==' compares");
      expected("an operator, ';' or the end");
    }
    reduce_above(kTernaryPrecedence);
    while (!pending_.empty()) {
      if (pending_.back().kind == Pending::Kind::if_) expected("'else'");
      reduce();
    }
    return false;
  }

  void push_infix(const Token& token, const Operator& op) {
    const bool compares = op.precedence == kComparePrecedence;
    std::optional<NodeId> chain;
    while (!pending_.empty() && !pending_.back().bracket()) {
      Pending& top = pending_.back();
      if (op.right ? top.precedence <= op.precedence : top.precedence < op.precedence) break;
      if (compares && top.kind == Pending::Kind::compare) {
        // a < b < c: the middle operand stays for the second comparison.
        const NodeId middle = operands_.back();
        reduce();
        chain = operands_.back();
        operands_.back() = middle;
      } else {
        reduce();
      }
    }
    pending_.push_back({.kind = compares ? Pending::Kind::compare : Pending::Kind::infix,
                        .precedence = op.precedence,
                        .op = op.op,
                        .chain = chain,
                        .offset = token.offset});
  }

  void push_ternary(Pending::Kind kind) {
    pending_.push_back({.kind = kind, .precedence = kTernaryPrecedence, .offset = peek().offset});
  }

  void reduce_above(int precedence) {
    while (!pending_.empty() && !pending_.back().bracket() &&
           pending_.back().precedence > precedence) {
      reduce();
    }
  }

  void reduce_to_bracket() {
    while (!pending_.back().bracket()) {
      if (pending_.back().kind == Pending::Kind::if_) expected("'else'");
      reduce();
    }
  }

  /// Takes the last pending operator, which has all its operands, off the stack.
  void reduce() {
    const Pending top = pending_.back();
    pending_.pop_back();
    const std::size_t count = top.kind == Pending::Kind::prefix  ? 1
                              : top.kind == Pending::Kind::else_ ? 3
                                                                 : 2;
    const std::size_t first = operands_.size() - count;
    NodeId result = 0;
    if (top.kind == Pending::Kind::else_) {
      const NodeId ordered[] = {operands_[first + 1], operands_[first], operands_[first + 2]};
      result = graph_.apply(Op::where, ordered);
    } else if (top.identity) {
      result = operands_[first];
    } else {
      result = graph_.apply(top.op, std::span(operands_).subspan(first));
    }
    if (top.chain) {
      const NodeId both[] = {*top.chain, result};
      result = graph_.apply(Op::logical_and, both);
    }
    operands_.resize(first);
    operands_.push_back(result);
  }

  void close() {
    if (nesting_ == 0) fail(peek(), "expected an operator, ';' or the end, found ')' without '('");
    reduce_to_bracket();
    const Pending bracket = pending_.back();
    if (bracket.kind == Pending::Kind::call) call(bracket);
    pending_.pop_back();
    --nesting_;
    take();
  }

  void call(const Pending& bracket) {
    const std::vector<NodeId> arguments(
        operands_.begin() + static_cast<std::ptrdiff_t>(bracket.first_operand), operands_.end());
    operands_.resize(bracket.first_operand);
    try {
      operands_.push_back(result_of(bracket, arguments));
    } catch (const Error& error) {
      throw syntax_error(text_, bracket.offset, error.what(), error.code());
    }
  }

  NodeId result_of(const Pending& bracket, const std::vector<NodeId>& arguments) {
    if (bracket.function == "bitcast") {
      if (!bracket.dtype || arguments.size() != 1) {
        throw Error(Code::invalid_argument, "bitcast takes a value and a dtype: bitcast(x, u16)");
      }
      return graph_.bitcast(arguments[0], *bracket.dtype);
    }
    if (bracket.function == "iota") return iota(bracket, arguments);
    const auto dtype = parse_dtype(bracket.function);
    if (!dtype) return fusion::call(graph_, bracket.function, arguments);
    if (arguments.size() != 1) {
      throw Error(Code::invalid_argument, fmt::format("the cast {} takes 1 argument, {} given",
                                                      bracket.function, arguments.size()));
    }
    return graph_.cast(arguments[0], *dtype);
  }

  NodeId iota(const Pending& bracket, const std::vector<NodeId>& arguments) {
    std::int64_t axis = kAllAxes;
    if (!arguments.empty()) {
      const Node& node = graph_[arguments[0]];
      if (arguments.size() > 1 || node.op != Op::constant || node.literal != Kind::signed_integer) {
        throw Error(Code::invalid_argument,
                    "iota takes the number of an axis and a dtype, or neither: iota(-1, i64)");
      }
      axis = static_cast<std::int64_t>(node.payload);
    }
    return graph_.iota(axis, bracket.dtype.value_or(DType::i32));
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Graph graph_;
  std::unordered_map<std::string_view, NodeId> values_;  ///< of statements, by name
  std::vector<Pending> pending_;
  std::vector<NodeId> operands_;
  int nesting_ = 0;
};

}  // namespace

Graph parse(std::string_view text, std::span<const std::string> arguments) {
  return Parser(text, arguments).run();
}

}  // namespace kiln::fusion
