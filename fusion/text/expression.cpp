// Expressions of the text form: operators by precedence, brackets, subscripts.
#include <fmt/format.h>

#include "fusion/text/parser.hpp"

namespace kiln::fusion {
namespace {

constexpr int kMaxNesting = 1000;

}  // namespace

NodeId Parser::expression() {
  pending_.clear();
  operands_.clear();
  nesting_ = 0;
  do {
    operand();
  } while (infix());
  return operands_.back();
}

// Reads prefix operators and opening brackets, then one name or number.
void Parser::operand() {
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

// `-1` is a literal, unless `**` or a subscript follows, which bind tighter.
bool Parser::negative_number() {
  const Token& number = peek(1);
  const bool arithmetic = number.kind == TokenKind::number && number.literal.kind != Kind::boolean;
  if (!arithmetic || peek(2).is("**") || peek(2).is("[")) return false;
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

void Parser::push_prefix(const Token& token, const Operator& prefix) {
  if (token.is("not") && !pending_.empty() && !pending_.back().bracket() &&
      pending_.back().precedence > prefix.precedence) {
    fail(token, fmt::format("expected a value, found '{}'; put '{} ...' in parentheses", token.text,
                            token.text));
  }
  pending_.push_back({.kind = Pending::Kind::prefix,
                      .precedence = prefix.precedence,
                      .op = prefix.op,
                      .identity = token.is("+"),
                      .offset = token.offset});
  take();
}

void Parser::open(Pending bracket) {
  if (++nesting_ > kMaxNesting) {
    fail(peek(), fmt::format("more than {} brackets are open; name parts of the expression "
                             "(t = ...; ...)",
                             kMaxNesting));
  }
  bracket.first_operand = operands_.size();
  pending_.push_back(bracket);
}

void Parser::named_operand() {
  const Token token = peek();
  const auto bound = values_.find(token.text);
  if (bound != values_.end()) {
    operands_.push_back(bound->second);
  } else if (const auto dtype = parse_dtype(token.text)) {
    if (!is_dtype_argument()) {
      fail(token,
           fmt::format("'{}' is a dtype; write {}(...) to convert to it", token.text, token.text));
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
bool Parser::is_dtype_argument() const {
  if (pending_.empty() || pending_.back().kind != Pending::Kind::call) return false;
  const Pending& call = pending_.back();
  const std::size_t before = operands_.size() - call.first_operand;
  const bool takes_dtype =
      (call.function == "bitcast" && before == 1) || (call.function == "iota" && before <= 1);
  return takes_dtype && !call.dtype && peek(1).is(")");
}

// Reads closing brackets, then one operator or separator that an operand must follow. False when
// the expression has ended.
bool Parser::infix() {
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
void Parser::subscripts() {
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

Subscript Parser::subscript_item() {
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
      item.kind = Subscript::Kind::index;
      return item;
    }
  }
  take();
  const auto given = [&] { return !peek().is(":") && !peek().is(",") && !peek().is("]"); };
  if (item.start == kOmitted && peek().kind == TokenKind::name) {
    named_operand();
    item.end = operands_.back();
    operands_.pop_back();
    if (!peek().is(",") && !peek().is("]"))
      expected("',' or ']': a stop that is a value bounds the axis");
    return item;
  }
  if (given()) item.stop = subscript_number();
  if (peek().is(":")) {
    take();
    if (given()) item.step = subscript_number();
  }
  return item;
}

std::int64_t Parser::subscript_number() {
  const bool negative = peek().is("-");
  const Token& number = peek(negative ? 1 : 0);
  if (number.kind != TokenKind::number || number.literal.kind != Kind::signed_integer) {
    expected("an integer, ':', '...' or None; a value may only be a stop, [:n]");
  }
  const auto value = static_cast<std::int64_t>(number.literal.bits);
  at_ += negative ? 2 : 1;
  return negative ? -value : value;
}

bool Parser::end_of_expression() {
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

void Parser::push_infix(const Token& token, const Operator& op) {
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

void Parser::push_ternary(Pending::Kind kind) {
  pending_.push_back({.kind = kind, .precedence = kTernaryPrecedence, .offset = peek().offset});
}

void Parser::reduce_above(int precedence) {
  while (!pending_.empty() && !pending_.back().bracket() &&
         pending_.back().precedence > precedence) {
    reduce();
  }
}

void Parser::reduce_to_bracket() {
  while (!pending_.back().bracket()) {
    if (pending_.back().kind == Pending::Kind::if_) expected("'else'");
    reduce();
  }
}

void Parser::reduce() {
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

void Parser::close() {
  if (nesting_ == 0) fail(peek(), "expected an operator, ';' or the end, found ')' without '('");
  reduce_to_bracket();
  const Pending bracket = pending_.back();
  if (bracket.kind == Pending::Kind::call) call(bracket);
  pending_.pop_back();
  --nesting_;
  take();
}

}  // namespace kiln::fusion
