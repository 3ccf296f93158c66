#include "fusion/infer/weak_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/text/operators.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

WeakType strong(DType dtype) { return {dtype, false, kind(dtype)}; }

// A value that was cast to a storage-only dtype goes on in the dtype it is computed in.
WeakType computed(const WeakType& value) {
  if (value.weak || !info(value.dtype).storage_only) return value;
  return strong(compute_dtype(value.dtype));
}

WeakType to_floating(WeakType value) {
  if (value.kind == Kind::floating || value.kind == Kind::complex) return value;
  return {DType::f32, value.weak, Kind::floating};
}

// Sums of small integers do not wrap.
DType accumulated_dtype(DType dtype) {
  if (kind(dtype) == Kind::unsigned_integer) return DType::u64;
  return kind(dtype) == Kind::signed_integer || kind(dtype) == Kind::boolean ? DType::i64 : dtype;
}

std::string describe(const WeakType& value) {
  constexpr std::string_view kNames[] = {"bool", "an integer", "an integer",
                                         "a floating-point number", "a complex number"};
  if (value.weak) return fmt::format("{} literal", kNames[static_cast<int>(value.kind)]);
  return std::string(name(value.dtype));
}

// As the text form writes it, and what it is called.
std::string symbol(const Node& node) {
  const std::string_view name = info(node.op).name;
  for (const std::span<const Operator> table : {std::span<const Operator>(kInfix), {kPrefix}}) {
    for (const Operator& entry : table)
      if (entry.op == node.op) return fmt::format("{} ({})", entry.text, name);
  }
  return std::string(name);
}

class WeakTypes {
 public:
  WeakTypes(const Graph& graph, std::span<const ArgumentType> arguments, std::string_view function)
      : graph_(graph), arguments_(arguments), function_(function) {}

  std::vector<WeakType> run() {
    types_.reserve(graph_.nodes().size());
    for (const Node& node : graph_.nodes()) types_.push_back(type_of(node));
    return std::move(types_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(Code::invalid_argument, fmt::format("{}: {}", function_, message));
  }

  WeakType common_of(const Node& node, std::size_t first) const {
    return common_type(types_, node, first);
  }

  WeakType type_of(const Node& node) const {
    if (node.op == Op::tuple) return strong(kTupleDType);
    if (node.op == Op::custom_call) return strong(result_dtype(node));
    for (const NodeId operand : node.inputs()) {
      if (types_[operand].kind == Kind::complex && !takes_complex(node.op)) {
        fail(
            fmt::format("{}: expected real numbers, got c64; take real(...), imag(...) or abs(...)",
                        info(node.op).name));
      }
    }
    switch (info(node.op).rule) {
      case Rule::leaf:
        if (node.op == Op::constant) return {DType::f32, true, node.literal};
        return type_of_argument(arguments_[node.payload]);
      case Rule::index:
      case Rule::convert: return strong(node.dtype);
      case Rule::random: return type_of_random(node);
      case Rule::compare: common_of(node, 0); return strong(DType::boolean);
      case Rule::predicate:
      case Rule::logical: return strong(DType::boolean);
      case Rule::shift: return type_of_shift(node);
      case Rule::select: return common_of(node, 1);
      case Rule::bitwise: return type_of_bitwise(node);
      case Rule::floating: return to_floating(type_of_arithmetic(node));
      case Rule::same: return type_of_arithmetic(node);
      case Rule::integral: return common_of(node, 0);
      case Rule::accumulate: return strong(accumulated_dtype(natural_dtype(common_of(node, 0))));
      case Rule::position: return type_of_position(node);
      case Rule::indexed: return type_of_indexed(node);
      case Rule::component: {
        const WeakType operand = types_[node.operands[0]];
        if (operand.dtype == DType::c64 && node.op != Op::conj && !operand.weak)
          return strong(DType::f32);
        return operand;
      }
    }
    fail("internal: an op without a dtype rule");
  }

  DType result_dtype(const Node& node) const {
    const CustomCall& call = graph_.tables()->calls[call_index(node.payload)];
    std::vector<DType> inputs;
    NodeId tuple = node.operands[0];
    for (; graph_[tuple].op == Op::tuple; tuple = graph_[tuple].operands[0]) {
      inputs.push_back(natural_dtype(types_[graph_[tuple].operands[1]]));
    }
    std::ranges::reverse(inputs);
    const std::vector<DType> results = call.dtypes(inputs);
    if (results.size() <= call_result(node.payload)) {
      fail(fmt::format("{}: dtypes: expected those of {} results or more, got {}", call.name,
                       call_result(node.payload) + 1, results.size()));
    }
    return results[call_result(node.payload)];
  }

  WeakType type_of_argument(const ArgumentType& argument) const {
    if (argument.weak) return {argument.dtype, true, kind(argument.dtype)};
    return strong(info(argument.dtype).storage_only ? compute_dtype(argument.dtype)
                                                    : argument.dtype);
  }

  WeakType type_of_position(const Node& node) const {
    if (types_[node.operands[0]].kind == Kind::complex) {
      fail(fmt::format("{}: complex numbers have no order", info(node.op).name));
    }
    return strong(DType::i64);
  }

  WeakType type_of_arithmetic(const Node& node) const {
    const WeakType common = common_of(node, 0);
    if (common.kind == Kind::boolean && !accepts(info(node.op), DType::boolean)) {
      fail(fmt::format("{}: expected numbers, got bool; cast an operand to the dtype you mean{}",
                       symbol(node), node.op == Op::sub ? ", or write ^ for exclusive or" : ""));
    }
    if (node.op == Op::abs && common.kind == Kind::complex) return strong(DType::f32);
    return common;
  }

  WeakType type_of_bitwise(const Node& node) const {
    const WeakType common = common_of(node, 0);
    if (common.kind == Kind::floating || common.kind == Kind::complex) {
      fail(fmt::format("{}: expected integers or bool, got {}", info(node.op).name,
                       describe(common)));
    }
    return common;
  }

  void expect_integers(const Node& node) const {
    for (const NodeId operand : node.inputs()) {
      const Kind operand_kind = types_[operand].kind;
      if (operand_kind != Kind::signed_integer && operand_kind != Kind::unsigned_integer) {
        fail(fmt::format("{}: expected integers, got {}", info(node.op).name,
                         describe(types_[operand])));
      }
    }
  }

  WeakType type_of_random(const Node& node) const {
    expect_integers(node);
    return strong(DType::f32);
  }

  // An array that is updated in place keeps its dtype, also one that is only for storage.
  WeakType type_of_indexed(const Node& node) const {
    const Kind places = types_[node.operands[1]].kind;
    if (places != Kind::signed_integer && places != Kind::unsigned_integer) {
      fail(fmt::format("{}: expected {} of an integer dtype, got {}", info(node.op).name,
                       node.op == Op::bound ? "an end" : "places",
                       describe(types_[node.operands[1]])));
    }
    if (node.op != Op::put) return computed(types_[node.operands[0]]);
    const ArgumentType& array = arguments_[graph_[node.operands[0]].payload];
    if (array.scalar) fail("put: expected an array to update, got a number");
    return strong(array.dtype);
  }

  WeakType type_of_shift(const Node& node) const {
    expect_integers(node);
    const WeakType value = computed(types_[node.operands[0]]);
    const WeakType count = computed(types_[node.operands[1]]);
    // A literal shifted by an array takes the array's dtype, as with every other op.
    return value.weak && !count.weak ? count : value;
  }

  const Graph& graph_;
  std::span<const ArgumentType> arguments_;
  std::string_view function_;
  std::vector<WeakType> types_;
};

}  // namespace

DType natural_dtype(const WeakType& type) { return type.weak ? weak_dtype(type.kind) : type.dtype; }

WeakType common_type(std::span<const WeakType> types, const Node& node, std::size_t first) {
  WeakType common = computed(types[node.operands[first]]);
  for (std::size_t i = first + 1; i < node.arity; ++i) {
    const WeakType other = computed(types[node.operands[i]]);
    if (common.weak && other.weak) {
      common.kind = std::max(common.kind, other.kind);
    } else if (common.weak || other.weak) {
      const WeakType& partner = common.weak ? other : common;
      const Kind literal = common.weak ? common.kind : other.kind;
      common = strong(weak_dtype(literal, partner.dtype));
    } else {
      common = strong(promote(common.dtype, other.dtype));
    }
  }
  return common;
}

std::vector<WeakType> weak_types(const Graph& graph, std::span<const ArgumentType> arguments,
                                 std::string_view function) {
  return WeakTypes(graph, arguments, function).run();
}

}  // namespace kiln::fusion
