// Statements, names and calls of the text form. The printer is in print.cpp.
#include "fusion/text/text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/composition.hpp"
#include "fusion/text/parser.hpp"

namespace kiln::fusion {

Parser::Parser(std::string_view text, std::span<const std::string> arguments)
    : text_(text), tokens_(tokenize(text)) {
  for (const std::string& name : arguments) {
    if (!is_name(name)) {
      throw Error(Code::invalid_argument, fmt::format("'{}' cannot name an argument", name));
    }
    graph_.argument(name);
  }
}

Graph Parser::run() {
  while (true) {
    const bool last = statement();
    if (last) break;
  }
  return std::move(graph_);
}

void Parser::fail(const Token& token, std::string_view what) const {
  throw syntax_error(text_, token.offset, what);
}

void Parser::expected(std::string_view what) const {
  const Token& token = peek();
  fail(token, fmt::format("expected {}, found {}", what,
                          token.kind == TokenKind::end ? "the end" : quoted(token.text)));
}

bool Parser::statement() {
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

std::string_view Parser::lone_name() const {
  const Token& after = peek(1);
  const bool alone = after.is(",") || after.is(";") || after.kind == TokenKind::end;
  if (!alone || peek().kind != TokenKind::name) return {};
  const auto bound = values_.find(peek().text);
  if (bound == values_.end()) return {};
  const Node& node = graph_[bound->second];
  const bool own_argument = node.op == Op::input && graph_.arguments()[node.payload] == peek().text;
  return own_argument ? std::string_view{} : peek().text;
}

void Parser::check_assignable(const Token& name) const {
  if (const std::string_view what = reserved_as(name.text); !what.empty()) {
    fail(name, fmt::format("cannot assign to '{}', which is {}", name.text, what));
  }
}

void Parser::call(const Pending& bracket) {
  const std::vector<NodeId> arguments(
      operands_.begin() + static_cast<std::ptrdiff_t>(bracket.first_operand), operands_.end());
  operands_.resize(bracket.first_operand);
  try {
    operands_.push_back(result_of(bracket, arguments));
  } catch (const Error& error) {
    throw syntax_error(text_, bracket.offset, error.what(), error.code());
  }
}

NodeId Parser::result_of(const Pending& bracket, const std::vector<NodeId>& arguments) {
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

NodeId Parser::iota(const Pending& bracket, const std::vector<NodeId>& arguments) {
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

Graph parse(std::string_view text, std::span<const std::string> arguments) {
  return Parser(text, arguments).run();
}

}  // namespace kiln::fusion
