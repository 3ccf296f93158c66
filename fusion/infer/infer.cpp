#include "fusion/infer/infer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/infer/literal_bits.hpp"
#include "fusion/infer/weak_types.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

// The second half of inference: typed nodes, made on demand in the dtype in which they are wanted.
class Inference {
 public:
  Inference(const Graph& graph, std::span<const ArgumentType> arguments, Rounding rounding,
            std::string_view function)
      : graph_(graph),
        arguments_(arguments),
        rounding_(rounding),
        function_(function),
        builder_(typed_) {
    typed_.arguments.assign(arguments.begin(), arguments.end());
    typed_.argument_names = graph.arguments();
    typed_.output_names = graph.output_names();
    typed_.rounding = rounding;
    typed_.tables = graph.tables();
  }

  TypedGraph run(std::span<const DType> outputs) {
    types_ = weak_types(graph_, arguments_, function_);
    find_stored();
    for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
      const NodeId id = graph_.outputs()[i];
      const DType natural = natural_dtype(id);
      const DType stored = outputs.empty() ? natural : outputs[i];
      check_put_output(i, stored);
      check_output_store(i, natural, stored);
      if (is_stored_as(id, stored)) {  // what only moves keeps every bit
        typed_.outputs.push_back(materialise(id, stored));
        continue;
      }
      NodeId value = materialise(id, types_[id].weak ? weak_store(id, stored) : natural);
      if (typed_.nodes[value].dtype != stored) value = convert(Op::cast, value, stored);
      typed_.outputs.push_back(value);
    }
    drop_dead_nodes(typed_);
    return std::move(typed_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(Code::invalid_argument, fmt::format("{}: {}", function_, message));
  }

  DType natural_dtype(NodeId id) const { return fusion::natural_dtype(types_[id]); }

  // A weak value that is stored directly is computed in the output's dtype if that holds its kind.
  DType weak_store(NodeId id, DType stored) const {
    const DType wide = compute_dtype(stored);
    return weak_dtype(types_[id].kind, wide) == wide ? wide : weak_dtype(types_[id].kind);
  }

  void check_output_store(std::size_t index, DType from, DType to) const {
    const std::string& output = graph_.output_names()[index];
    check_store(fmt::format("output {}{}", index, output.empty() ? "" : " '" + output + "'"), from,
                to);
  }

  void check_store(std::string_view place, DType from, DType to) const {
    const auto rank = [](DType dtype) {
      switch (kind(dtype)) {
        case Kind::boolean: return 0;
        case Kind::unsigned_integer:
        case Kind::signed_integer: return 1;
        case Kind::floating: return 2;
        case Kind::complex: return 3;
      }
      return 3;
    };
    if (rank(from) <= rank(to)) return;
    fail(fmt::format(
        "{}: the view's dtype is {}, which cannot hold the result's {}; write a cast to "
        "{}",
        place, name(to), name(from), name(to)));
  }

  // What is updated in place cannot become another dtype.
  void check_put_output(std::size_t index, DType stored) const {
    const NodeId id = graph_.outputs()[index];
    if (graph_[id].op != Op::put || types_[id].dtype == stored) return;
    fail(fmt::format("output {}: expected {}, the dtype of the array that put updates, got {}",
                     index, name(types_[id].dtype), name(stored)));
  }

  struct Want {
    NodeId id;
    DType dtype;
    bool expanded = false;
  };

  static std::uint64_t memo_key(NodeId id, DType dtype) {
    return std::uint64_t{id} << 8 | static_cast<std::uint64_t>(dtype);
  }

  // The typed node of `id` in `dtype`. A strong node exists once, in its own dtype, and is promoted
  // from there; a weak one is made in every dtype that is asked for. An explicit stack, because a
  // chain may be tens of thousands of nodes deep.
  NodeId materialise(NodeId root, DType root_dtype) {
    std::vector<Want> stack{{root, root_dtype}};
    while (!stack.empty()) {
      Want& want = stack.back();
      if (made_.contains(memo_key(want.id, want.dtype))) {
        stack.pop_back();
        continue;
      }
      const DType own_dtype = made_as(want.id, want.dtype);
      if (own_dtype != want.dtype && !is_stored_as(want.id, want.dtype)) {
        const auto own = made_.find(memo_key(want.id, own_dtype));
        if (own == made_.end()) {
          stack.push_back({want.id, own_dtype});
          continue;
        }
        made_[memo_key(want.id, want.dtype)] = convert(Op::promote, own->second, want.dtype);
        stack.pop_back();
        continue;
      }
      const Want current = want;
      if (!current.expanded) {
        want.expanded = true;
        const Node& node = graph_[current.id];
        for (std::size_t i = 0; i < node.arity; ++i) {
          stack.push_back({node.operands[i], operand_dtype(node, i, current.dtype)});
        }
        continue;
      }
      made_[memo_key(current.id, current.dtype)] = make(current.id, current.dtype);
      stack.pop_back();
    }
    return made_.at(memo_key(root, root_dtype));
  }

  // The dtype in which a node is computed for `wanted`. A weak operation takes that, unless it has
  // no meaning there, or none that gives it: sqrt(2) is no bool, bits are counted in no float, and
  // abs(-2) is no complex number.
  DType made_as(NodeId id, DType wanted) const {
    const WeakType& type = types_[id];
    // What is read at places given by data is read as it is stored.
    if (graph_[id].op == Op::take && stored_[id]) return *stored_[id];
    if (!type.weak) return type.dtype;
    const Rule rule = info(graph_[id].op).rule;
    if (rule == Rule::leaf) return wanted;
    const bool of_bits = rule == Rule::bitwise || rule == Rule::shift;
    const bool loses = weak_dtype(type.kind, wanted) != wanted;
    const Op op = graph_[id].op;
    // What bools have in place of arithmetic is not what numbers would give: True + True is True.
    if (type.kind == Kind::boolean && rule == Rule::same) return DType::boolean;
    const bool real_only = !takes_complex(op) || rule == Rule::component || op == Op::abs;
    if (kind(wanted) == Kind::complex && real_only) return weak_dtype(type.kind);
    if (loses || (of_bits && is_floating(wanted))) return weak_dtype(type.kind);
    return wanted;
  }

  // The dtype in which the elements of each value exist, whatever they are computed in: that of an
  // array argument, of a result, and of what shape ops make of those.
  void find_stored() {
    for (const Node& node : graph_.nodes()) {
      const WeakType& type = types_[stored_.size()];
      std::optional<DType> stored;
      if (node.op == Op::input && !arguments_[node.payload].scalar) {
        stored = arguments_[node.payload].dtype;
      } else if (is_indexed(node.op)) {
        stored = stored_[node.operands[0]];
      } else if (is_shape_op(node.op)) {
        stored = stored_[node.operands[0]];
        for (const NodeId operand : node.inputs()) {
          if (stored_[operand] != stored) stored.reset();
        }
      } else if (!type.weak) {
        stored = type.dtype;
      }
      stored_.push_back(stored);
    }
  }

  bool is_stored_as(NodeId id, DType dtype) const { return stored_[id] == dtype; }

  // The dtype in which `node`, whose result is wanted in `dtype`, takes its operand `i`.
  DType operand_dtype(const Node& node, std::size_t i, DType dtype) const {
    if (node.op == Op::tuple || node.op == Op::custom_call) return natural_dtype(node.operands[i]);
    switch (info(node.op).rule) {
      case Rule::leaf:
      case Rule::index: break;
      case Rule::random: return DType::u64;
      case Rule::indexed:
        if (i == 0) return dtype;
        if (i == 2)
          return types_[node.operands[2]].weak ? weak_store(node.operands[2], dtype)
                                               : natural_dtype(node.operands[2]);
        return natural_dtype(node.operands[1]);
      case Rule::convert: {
        // A literal under a cast is made in the cast's dtype, so that f64(0.1) is not f32's 0.1.
        const WeakType& operand = types_[node.operands[0]];
        // The bits of a value are those in memory.
        if (node.op == Op::bitcast && stored_[node.operands[0]]) return *stored_[node.operands[0]];
        if (node.op == Op::cast && operand.weak && !info(node.dtype).storage_only) {
          return weak_dtype(operand.kind, node.dtype) == node.dtype ? node.dtype
                                                                    : weak_dtype(operand.kind);
        }
        return natural_dtype(node.operands[0]);
      }
      case Rule::compare: {
        const WeakType common = common_type(types_, node, 0);
        return common.weak ? weak_dtype(common.kind) : common.dtype;
      }
      case Rule::logical: return DType::boolean;
      case Rule::predicate: return natural_dtype(node.operands[i]);
      case Rule::position: return fusion::natural_dtype(common_type(types_, node, 0));
      case Rule::select: return i == 0 ? DType::boolean : dtype;
      case Rule::shift: {
        // The count keeps its dtype: a negative one means 2^width of its own type.
        if (i == 0 || types_[node.operands[1]].weak) return dtype;
        return types_[node.operands[1]].dtype;
      }
      case Rule::component:
        return types_[node.operands[0]].weak ? dtype : types_[node.operands[0]].dtype;
      case Rule::same:
        if (node.op == Op::abs && types_[node.operands[0]].kind == Kind::complex) return DType::c64;
        return dtype;
      case Rule::integral:
      case Rule::floating:
      case Rule::accumulate:
      case Rule::bitwise: return dtype;
    }
    fail("internal: a leaf has no operands");
  }

  NodeId make(NodeId id, DType dtype) {
    const Node& node = graph_[id];
    TypedNode typed;
    typed.op = node.op;
    typed.dtype = dtype;
    if (node.op == Op::constant) {
      typed.payload = literal_bits({node.literal, node.payload}, dtype, rounding_, function_);
      return builder_.add(typed);
    }
    if (info(node.op).rule == Rule::leaf) return make_argument(node, dtype);
    if (node.op == Op::tuple) return make_tuple(node);
    if (node.op == Op::iota || !is_elementwise(node.op)) typed.payload = node.payload;
    if (dtype == DType::boolean) typed.op = info(node.op).on_bools.value_or(node.op);
    typed.arity = node.arity;
    for (std::size_t i = 0; i < node.arity; ++i) {
      typed.operands[i] = made_.at(memo_key(node.operands[i], operand_dtype(node, i, dtype)));
    }
    if (node.op == Op::bitcast) check_bitcast(typed);
    if (node.op == Op::put) typed.operands[2] = value_to_put(node, typed, dtype);
    if (is_times_one(node) && is_floating(dtype)) return typed.operands[0];
    return builder_.add(typed);
  }

  // The value that put stores, in the dtype of the array.
  NodeId value_to_put(const Node& node, const TypedNode& typed, DType dtype) {
    check_store("put", natural_dtype(node.operands[2]), dtype);
    const NodeId value = typed.operands[2];
    return typed_.nodes[value].dtype == dtype ? value : convert(Op::cast, value, dtype);
  }

  // x * 1.0 is how an integer is made a float; once it is one, the product changes no bit.
  bool is_times_one(const Node& node) const {
    const Node& factor = graph_[node.operands[1]];
    return node.op == Op::mul && factor.op == Op::constant && factor.literal == Kind::floating &&
           Literal{factor.literal, factor.payload}.as_double() == 1;
  }

  // Each value of a tuple is rounded to its dtype: whoever is called sees what is stored.
  NodeId make_tuple(const Node& node) {
    const NodeId value = node.operands[1];
    const DType dtype = natural_dtype(value);
    TypedNode typed;
    typed.op = Op::tuple;
    typed.dtype = kTupleDType;
    typed.arity = 2;
    typed.operands[1] = convert(Op::cast, made_.at(memo_key(value, dtype)), dtype);
    const bool first = graph_[node.operands[0]].op != Op::tuple;
    typed.operands[0] =
        first ? typed.operands[1] : made_.at(memo_key(node.operands[0], kTupleDType));
    return builder_.add(typed);
  }

  // An argument is loaded in its storage dtype; what is computed with starts one conversion later.
  NodeId make_argument(const Node& node, DType dtype) {
    const ArgumentType& argument = arguments_[node.payload];
    TypedNode typed;
    typed.op = argument.scalar ? Op::scalar : Op::input;
    typed.dtype = argument.weak ? dtype : argument.dtype;
    typed.payload = node.payload;
    const NodeId loaded = builder_.add(typed);
    return typed.dtype == dtype ? loaded : convert(Op::promote, loaded, dtype);
  }

  void check_bitcast(const TypedNode& node) const {
    const DType from = typed_.nodes[node.operands[0]].dtype;
    if (bits(from) != bits(node.dtype) || from == DType::boolean || node.dtype == DType::boolean) {
      fail(fmt::format("bitcast: expected a dtype of {} bits, got {} to {}", bits(from), name(from),
                       name(node.dtype)));
    }
  }

  NodeId convert(Op op, NodeId value, DType dtype) {
    TypedNode typed;
    typed.op = op;
    typed.dtype = dtype;
    typed.arity = 1;
    typed.operands[0] = value;
    return builder_.add(typed);
  }

  const Graph& graph_;
  std::span<const ArgumentType> arguments_;
  Rounding rounding_;
  std::string_view function_;
  std::vector<WeakType> types_;
  std::vector<std::optional<DType>> stored_;
  std::unordered_map<std::uint64_t, NodeId> made_;
  TypedGraph typed_;
  GraphBuilder builder_;  ///< of it
};

}  // namespace

TypedGraph infer(const Graph& graph, std::span<const ArgumentType> arguments,
                 std::span<const DType> outputs, Rounding rounding, std::string_view function) {
  if (arguments.size() != graph.arguments().size()) {
    throw Error(Code::invalid_argument, fmt::format("{}: expected {} arguments, got {}", function,
                                                    graph.arguments().size(), arguments.size()));
  }
  if (!outputs.empty() && outputs.size() != graph.outputs().size()) {
    throw Error(Code::invalid_argument, fmt::format("{}: expected {} outputs, got {}", function,
                                                    graph.outputs().size(), outputs.size()));
  }
  return Inference(graph, arguments, rounding, function).run(outputs);
}

}  // namespace kiln::fusion
