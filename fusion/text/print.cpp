// The printer of the text form: decides which values become statements, then writes them with as
// few parentheses as the parser needs. It keeps a stack of its own, so that no graph is too deep.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include "fusion/graph/describe.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/text/operators.hpp"
#include "fusion/text/text.hpp"

namespace kiln::fusion {
namespace {

/// More brackets than this around a value, and it becomes a statement.
constexpr int kMaxBrackets = 100;

const Operator* infix_of(Op op) {
  const auto* found = std::find_if(std::begin(kInfix), std::end(kInfix),
                                   [op](const Operator& entry) { return entry.op == op; });
  return found == std::end(kInfix) ? nullptr : found;
}

const Operator* prefix_of(Op op) {
  const auto* found = std::find_if(std::begin(kPrefix), std::end(kPrefix),
                                   [op](const Operator& entry) { return entry.op == op; });
  return found == std::end(kPrefix) ? nullptr : found;
}

bool is_leaf(const Node& node) { return node.arity == 0; }

std::string iota_text(const Node& node) {
  const auto axis = static_cast<std::int64_t>(node.payload);
  const bool all = axis == kAllAxes;
  std::string text = all ? "iota(" : fmt::format("iota({}", axis);
  if (node.dtype != DType::i32) text += fmt::format("{}{}", all ? "" : ", ", name(node.dtype));
  return text + ')';
}

// The third operand of uniform and normal where it is the one that may be left out.
bool is_default_place(const Node& node) {
  return node.op == Op::iota && static_cast<std::int64_t>(node.payload) == kAllAxes &&
         node.dtype == DType::u64;
}

bool is_ternary(const Node& node, bool ternaries) { return ternaries && node.op == Op::where; }

int precedence_of(const Node& node, std::string_view constant, bool ternaries) {
  if (node.op == Op::constant) {
    return constant.front() == '-' ? kPrefixPrecedence : kLeafPrecedence;
  }
  if (const Operator* op = infix_of(node.op)) return op->precedence;
  if (const Operator* op = prefix_of(node.op)) return op->precedence;
  return is_ternary(node, ternaries) ? kTernaryPrecedence : kLeafPrecedence;
}

/// True if an operand of `precedence` needs parentheses as operand `index` of `parent`.
bool needs_parentheses(const Node& parent, std::size_t index, const Node& operand, int precedence,
                       bool ternaries) {
  if (is_ternary(parent, ternaries)) return index < 2 && precedence <= kTernaryPrecedence;
  if (const Operator* op = infix_of(parent.op)) {
    if (op->op == Op::power) {
      return index == 0 ? precedence <= kPowerPrecedence : precedence < kPrefixPrecedence;
    }
    const bool strict = index == 1 || op->precedence == kComparePrecedence;
    return strict ? precedence <= op->precedence : precedence < op->precedence;
  }
  if (parent.op == Op::slice) return precedence < kLeafPrecedence;
  if (const Operator* op = prefix_of(parent.op)) {
    // -1 would be read as a literal.
    return operand.op == Op::constant || precedence < op->precedence;
  }
  return false;
}

// The integers that a shape op is called with, as text, or its subscript: of a slice its range, or
// the one index that is selected.
std::string parameter_text(Op op, const ShapeList& list, bool selects) {
  std::string text;
  if (op != Op::slice) {
    for (const std::int64_t number : list) text += fmt::format(", {}", number);
    return text;
  }
  const auto place = [](std::int64_t at) {
    return at == kOmitted ? std::string() : fmt::format("{}", at);
  };
  std::string range = place(list[1]);
  if (!selects) {
    range += fmt::format(":{}", place(list[2]));
    if (list[3] != 1) range += fmt::format(":{}", list[3]);
  }
  for (std::int64_t k = 0; k < list[0]; ++k) text += ":, ";
  if (list[0] < 0) text += "..., ";
  text += range;
  for (std::int64_t k = list[0] + 1; k < 0; ++k) text += ", :";
  return text;
}

class Printer {
 public:
  /// `ternaries`: a select is written `a if c else b`, which reads the condition second.
  Printer(const Graph& graph, bool ternaries)
      : graph_(graph),
        ternaries_(ternaries),
        names_(graph.nodes().size()),
        uses_(graph.nodes().size()),
        first_use_(graph.arguments().size()) {}

  std::string run() {
    count_uses();
    name_outputs();
    name_shared();
    for (NodeId id = 0; id < names_.size(); ++id) {
      if (names_[id].empty() || is_leaf(graph_[id])) continue;
      if (last_is_assignment() && id == graph_.outputs()[0]) continue;
      assign(names_[id], [&] { expression(id); });
    }
    save_shadowed_arguments();
    for (const auto& alias : aliases_) {
      assign(alias.first, [&] { reference(alias.second); });
    }
    if (last_is_assignment()) {
      assign(graph_.output_names()[0], [&] { expression(graph_.outputs()[0]); });
      text_.erase(text_.size() - 2);
    } else {
      outputs();
    }
    return text_;
  }

  /// True if the text alone brings the arguments in their order.
  bool ordered() const { return misplaced() == 0; }

  /// `a = a; ` for arguments that the text would otherwise bring in another order, or not at all:
  /// an argument's position is the position of its first use.
  std::string argument_order() const {
    std::string text;
    const std::size_t count = misplaced();
    for (std::size_t i = 0; i < count; ++i) {
      text += fmt::format("{0} = {0}; ", graph_.arguments()[i]);
    }
    return text;
  }

 private:
  // Whether a value is `x[i]`, which is a squeeze of a slice that must not be empty (select in
  // shape_calls.hpp). No call gives such a slice.
  bool is_select(NodeId id) const {
    const Node& node = graph_[id];
    if (node.op != Op::squeeze) return false;
    const Node& slice = graph_[node.operands[0]];
    return slice.op == Op::slice && list_of(slice).size() > 4 &&
           list_of(node) == ShapeList{list_of(slice)[0]};
  }

  /// The node that is written for a value: `x[i]` is one, of x.
  const Node& written(NodeId id) const {
    return is_select(id) ? graph_[graph_[id].operands[0]] : graph_[id];
  }

  bool named(std::size_t output) const { return !output_names_[output].empty(); }
  bool last_is_assignment() const { return graph_.outputs().size() == 1 && named(0); }

  /// How often each live value is read; an output reads its value once. A list has no name of its
  /// own: each result of a call writes it, and reads its values.
  void count_uses() {
    for (const NodeId output : graph_.outputs()) ++uses_[output];
    for (NodeId id = static_cast<NodeId>(uses_.size()); id-- > 0;) {
      if (uses_[id] == 0) continue;
      const std::uint32_t times = graph_[id].op == Op::tuple ? uses_[id] : 1;
      for (const NodeId operand : written(id).inputs()) uses_[operand] += times;
    }
  }

  // An output's name is its statement's name. It is assigned at the end when its value has another
  // name already, or when an argument of the same name may still be read.
  void name_outputs() {
    taken_.insert(graph_.arguments().begin(), graph_.arguments().end());
    std::unordered_set<std::string_view> arguments(taken_.begin(), taken_.end());
    std::unordered_set<std::string_view> seen;
    output_names_ = graph_.output_names();
    for (std::size_t i = 0; i < output_names_.size(); ++i) {
      const std::string& name = output_names_[i];
      if (!is_name(name) || !reserved_as(name).empty() || !seen.insert(name).second) {
        output_names_[i].clear();
        continue;
      }
      taken_.insert(name);
      if (last_is_assignment()) break;
      const NodeId value = graph_.outputs()[i];
      if (is_leaf(graph_[value]) || !names_[value].empty() || arguments.count(name)) {
        aliases_.emplace_back(name, value);
        shadows_ |= arguments.count(name) > 0;
        ++uses_[value];
      } else {
        names_[value] = name;
      }
    }
  }

  // Before a name of an output hides an argument: outputs that are arguments get names of their
  // own.
  void save_shadowed_arguments() {
    if (!shadows_) return;
    for (const NodeId value : graph_.outputs()) {
      if (graph_[value].op != Op::input || !names_[value].empty()) continue;
      std::string name = fresh_name();
      assign(name, [&] { visit(value); });
      names_[value] = std::move(name);
    }
  }

  /// Names what is read twice, and what would stand inside too many brackets.
  void name_shared() {
    std::vector<int> depth(names_.size());
    for (NodeId id = 0; id < names_.size(); ++id) {
      const Node& node = written(id);
      if (uses_[id] == 0 || is_leaf(node)) continue;
      const bool call = !infix_of(node.op) && !prefix_of(node.op) &&
                        !is_ternary(node, ternaries_) && node.op != Op::slice;
      for (std::size_t i = 0; i < node.arity; ++i) {
        const NodeId operand = node.operands[i];
        const Node& value = graph_[operand];
        if (is_leaf(value) || !names_[operand].empty()) continue;
        const bool brackets =
            call ||
            needs_parentheses(node, i, value, precedence_of(value, "0", ternaries_), ternaries_);
        if (depth[operand] + brackets > kMaxBrackets) {
          names_[operand] = fresh_name();
        } else {
          depth[id] = std::max(depth[id], depth[operand] + brackets);
        }
      }
      const bool last = last_is_assignment() && id == graph_.outputs()[0];
      const bool alone = uses_[id] > 1 && node.op != Op::tuple;
      if (names_[id].empty() && alone && !last) names_[id] = fresh_name();
    }
  }

  std::string fresh_name() {
    while (true) {
      std::string name = fmt::format("t{}", next_name_++);
      if (taken_.insert(name).second) return name;
    }
  }

  template <class Body>
  void assign(const std::string& name, Body body) {
    text_ += name;
    text_ += " = ";
    body();
    text_ += "; ";
  }

  void outputs() {
    for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
      const NodeId value = graph_.outputs()[i];
      if (i > 0) text_ += ", ";
      if (named(i)) {
        text_ += output_names_[i];
      } else if (!names_[value].empty()) {
        text_ += fmt::format("({})", names_[value]);  // a bare name would name the output
      } else {
        visit(value);
      }
    }
  }

  void reference(NodeId value) {
    if (names_[value].empty()) {
      visit(value);
    } else {
      text_ += names_[value];
    }
  }

  /// Writes a value where it is used: its name, or what it is.
  void visit(NodeId id) { write({Step{id}}); }

  /// Writes what a value is.
  void expression(NodeId id) {
    std::vector<Step> steps;
    push_expression(steps, id);
    write(std::move(steps));
  }

  using Step = std::variant<NodeId, std::string_view>;

  void write(std::vector<Step> steps) {
    while (!steps.empty()) {
      const Step step = steps.back();
      steps.pop_back();
      if (const auto* text = std::get_if<std::string_view>(&step)) {
        text_ += *text;
        continue;
      }
      const NodeId id = std::get<NodeId>(step);
      const Node& node = graph_[id];
      if (node.op == Op::input) {
        const std::string& name = graph_.arguments()[node.payload];
        text_ += name;
        if (first_use_[node.payload] == 0) first_use_[node.payload] = ++used_;
      } else if (node.op == Op::constant) {
        text_ += constant_text({node.literal, node.payload});
      } else if (node.op == Op::iota) {
        text_ += iota_text(node);
      } else if (!names_[id].empty()) {
        text_ += names_[id];
      } else {
        push_expression(steps, id);
      }
    }
  }

  // Pushes the parts of a value, the last one first.
  void push_expression(std::vector<Step>& steps, NodeId id) const {
    const Node& node = written(id);
    if (is_leaf(node)) {
      steps.push_back(id);
    } else if (const Operator* infix = infix_of(node.op)) {
      push_operand(steps, node, 1);
      steps.insert(steps.end(), {Step{" "}, Step{infix->text}, Step{" "}});
      push_operand(steps, node, 0);
    } else if (const Operator* prefix = prefix_of(node.op)) {
      push_operand(steps, node, 0);
      if (prefix->op == Op::logical_not) steps.emplace_back(" ");
      steps.emplace_back(prefix->text);
    } else if (is_ternary(node, ternaries_)) {
      push_operand(steps, node, 2);
      steps.emplace_back(" else ");
      push_operand(steps, node, 0);
      steps.emplace_back(" if ");
      push_operand(steps, node, 1);
    } else if (node.op == Op::slice) {
      steps.emplace_back("]");
      steps.emplace_back(kept(parameter_text(node.op, list_of(node), is_select(id))));
      steps.emplace_back("[");
      push_operand(steps, node, 0);
    } else if (node.op == Op::tuple) {
      push_tuple(steps, node);
    } else {
      push_call(steps, node);
    }
  }

  const ShapeList& list_of(const Node& node) const { return graph_.tables()->lists[node.payload]; }

  // Text that lives as long as the printer, for a step.
  std::string_view kept(std::string text) const { return kept_.emplace_back(std::move(text)); }

  // The values that a custom call takes. What a tuple of one value extends is that value.
  void push_tuple(std::vector<Step>& steps, const Node& node) const {
    steps.emplace_back(node.operands[1]);
    if (graph_[node.operands[0]].op != Op::tuple) return;
    steps.emplace_back(", ");
    steps.emplace_back(node.operands[0]);
  }

  std::string_view name_of_call(const Node& node) const {
    if (node.op == Op::cast) return name(node.dtype);
    if (node.op != Op::custom_call) return info(node.op).name;
    const std::size_t result = call_result(node.payload);
    const std::string& name = graph_.tables()->calls[call_index(node.payload)].name;
    return result == 0 ? std::string_view(name) : kept(fmt::format("{}.{}", name, result));
  }

  void push_operand(std::vector<Step>& steps, const Node& parent, std::size_t index) const {
    const NodeId id = parent.operands[index];
    const Node& node = graph_[id];
    int precedence = kLeafPrecedence;
    if (node.op == Op::constant) {
      precedence = precedence_of(node, constant_text({node.literal, node.payload}), ternaries_);
    } else if (names_[id].empty()) {
      precedence = precedence_of(node, {}, ternaries_);
    }
    const bool brackets = needs_parentheses(parent, index, node, precedence, ternaries_);
    if (brackets) steps.emplace_back(")");
    steps.emplace_back(id);
    if (brackets) steps.emplace_back("(");
  }

  void push_call(std::vector<Step>& steps, const Node& node) const {
    steps.emplace_back(")");
    if (node.op == Op::bitcast) {
      steps.emplace_back(name(node.dtype));
      steps.emplace_back(", ");
    }
    if (has_axes(node.op)) {
      const std::vector<int> axes = axes_of(node.payload);
      for (std::size_t i = axes.size(); i-- > 0;) {
        steps.emplace_back(axis_text(axes[i]));
        steps.emplace_back(", ");
      }
    }
    if (has_list(node.op) && node.op != Op::concat) {
      steps.emplace_back(kept(parameter_text(node.op, list_of(node), false)));
    }
    std::size_t count = node.arity;
    if (info(node.op).rule == Rule::random && is_default_place(graph_[node.operands[2]])) --count;
    for (std::size_t i = count; i-- > 0;) {
      steps.emplace_back(node.operands[i]);
      if (i > 0) steps.emplace_back(", ");
    }
    if (node.op == Op::concat) steps.emplace_back(kept(fmt::format("{}, ", list_of(node)[0])));
    steps.emplace_back("(");
    steps.emplace_back(name_of_call(node));
  }

  /// How many arguments, from the first, the text brings out of order or not at all.
  std::size_t misplaced() const {
    std::size_t count = graph_.arguments().size();
    std::size_t next = used_ + 1;
    while (count > 0 && first_use_[count - 1] != 0 && first_use_[count - 1] < next) {
      next = first_use_[--count];
    }
    return count;
  }

  const Graph& graph_;
  bool ternaries_;
  std::vector<std::string> names_;  ///< of values that are statements
  std::vector<std::uint32_t> uses_;
  std::vector<std::string> output_names_;
  std::vector<std::pair<std::string, NodeId>> aliases_;  ///< assigned after everything else
  std::unordered_set<std::string> taken_;
  bool shadows_ = false;  ///< an output's name is an argument's name
  int next_name_ = 0;
  std::vector<std::size_t> first_use_;  ///< of arguments: 1 for the first one read, 0 for never
  std::size_t used_ = 0;
  mutable std::deque<std::string> kept_;
  std::string text_;
};

}  // namespace

std::string to_text(const Graph& graph) {
  Printer calls(graph, false);
  std::string text = calls.run();
  if (calls.ordered()) return text;
  Printer ternaries(graph, true);
  std::string other = ternaries.run();
  return ternaries.ordered() ? other : calls.argument_order() + text;
}

std::string to_short_text(const Graph& graph) { return Printer(graph, false).run(); }

}  // namespace kiln::fusion
