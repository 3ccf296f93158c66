// The parser of the text form: statements, names and calls (text.cpp), and expressions
// (expression.cpp). Operators and operands wait on explicit stacks, never on the call stack,
// so the length of a chain has no limit and only brackets count as nesting.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fusion/graph/shape_ops.hpp"
#include "fusion/text/operators.hpp"
#include "fusion/text/text.hpp"
#include "fusion/text/tokens.hpp"

namespace kiln::fusion {

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
  Parser(std::string_view text, std::span<const std::string> arguments);
  Graph run();

 private:
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }

  // Statements, names and calls.
  [[noreturn]] void fail(const Token& token, std::string_view what) const;
  [[noreturn]] void expected(std::string_view what) const;
  /// One statement and the `;` after it; true if it was the last.
  bool statement();
  /// The name of a statement that stands alone as an output; it becomes the output's name.
  std::string_view lone_name() const;
  void check_assignable(const Token& name) const;
  void call(const Pending& bracket);
  NodeId result_of(const Pending& bracket, const std::vector<NodeId>& arguments);
  NodeId iota(const Pending& bracket, const std::vector<NodeId>& arguments);

  // Expressions.
  /// An expression up to a `,` or `;` outside of brackets, or the end.
  NodeId expression();
  void operand();
  bool negative_number();
  void push_prefix(const Token& token, const Operator& prefix);
  void open(Pending bracket);
  void named_operand();
  bool is_dtype_argument() const;
  bool infix();
  void subscripts();
  Subscript subscript_item();
  std::int64_t subscript_number();
  bool end_of_expression();
  void push_infix(const Token& token, const Operator& op);
  void push_ternary(Pending::Kind kind);
  void reduce_above(int precedence);
  void reduce_to_bracket();
  /// Takes the last pending operator, which has all its operands, off the stack.
  void reduce();
  void close();

  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Graph graph_;
  std::unordered_map<std::string_view, NodeId> values_;  ///< of statements, by name
  std::vector<Pending> pending_;
  std::vector<NodeId> operands_;
  int nesting_ = 0;
};

}  // namespace kiln::fusion
