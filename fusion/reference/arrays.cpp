#include "fusion/reference/arrays.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/reference/operation.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

using reference::Integer;
using reference::Value;
using Array = std::vector<Value>;

// Calls body(coordinates) for every element of `shape` in C order.
template <class Body>
void for_each_element(const Dims& shape, const Body& body) {
  if (element_count(shape) == 0) return;
  Dims at(shape.size(), 0);
  while (true) {
    body(at);
    std::size_t axis = shape.size();
    while (axis > 0 && ++at[axis - 1] == shape[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

// The element of an array of `own` shape that stands at `at` of a larger one, by broadcasting.
std::size_t element_at(const Dims& at, const Dims& own) {
  const std::size_t skipped = at.size() - own.size();
  std::int64_t index = 0;
  for (std::size_t k = 0; k < own.size(); ++k) {
    index = index * own[k] + (own[k] == 1 ? 0 : at[skipped + k]);
  }
  return static_cast<std::size_t>(index);
}

std::int64_t memory_index(const Dims& at, const ReferenceOperand& operand) {
  std::int64_t index = operand.offset;
  for (std::size_t k = 0; k < at.size(); ++k) index += at[k] * operand.strides[k];
  return index;
}

// ---- Reductions --------------------------------------------------------------------------------

bool is_integral(DType dtype) { return !is_floating(dtype) && kind(dtype) != Kind::complex; }

bool is_nan(const Value& value) { return std::isnan(value.real) || std::isnan(value.imag); }

// NaN comes before every number, and -0 is below +0.
bool comes_first(const Value& a, const Value& b, bool largest) {
  if (is_integral(a.dtype)) return largest ? a.integer > b.integer : a.integer < b.integer;
  if (is_nan(b)) return false;
  if (is_nan(a)) return true;
  if (a.real == b.real)
    return std::signbit(a.real) != std::signbit(b.real) && std::signbit(b.real) == largest;
  return largest ? a.real > b.real : a.real < b.real;
}

// What a reduction of nothing gives.
Value empty_result(const TypedNode& node, DType operand) {
  const long double infinity = std::numeric_limits<long double>::infinity();
  const bool largest = node.op == Op::reduce_max;
  switch (node.op) {
    case Op::prod:
      return is_integral(node.dtype) ? reference::from_integer(node.dtype, 1)
                                     : reference::from_real(node.dtype, 1);
    case Op::reduce_all: return reference::from_integer(node.dtype, 1);
    case Op::reduce_max:
    case Op::reduce_min: {
      if (is_floating(operand)) {
        return reference::from_real(operand, largest ? -infinity : infinity);
      }
      const bool is_signed = kind(operand) == Kind::signed_integer;
      const Integer half = Integer{1} << (bits(operand) - 1);
      const Integer least = is_signed ? -half : 0;
      const Integer most = is_signed ? half - 1 : 2 * half - 1;
      return reference::from_integer(operand, largest ? least : most);
    }
    default:
      return is_integral(node.dtype) ? reference::from_integer(node.dtype, 0)
                                     : reference::from_real(node.dtype, 0);
  }
}

struct Running {
  Value value;
  std::int64_t count = 0;
  std::int64_t position = 0;
};

void take(const TypedNode& node, Running& running, const Value& next) {
  const std::int64_t place = running.count++;
  Value& value = running.value;
  switch (node.op) {
    case Op::sum:
    case Op::mean:
      value.real += next.real;
      value.imag += next.imag;
      value = is_integral(node.dtype)
                  ? reference::from_integer(node.dtype, value.integer + next.integer)
                  : value;
      return;
    case Op::prod: {
      if (is_integral(node.dtype)) {
        value =
            reference::operate({Op::mul, node.dtype, 2}, std::array{value, next}, Rounding::each);
        return;
      }
      if (kind(node.dtype) != Kind::complex) {
        value.real *= next.real;  // an infinity times no imaginary part would be NaN
        return;
      }
      const long double real = value.real * next.real - value.imag * next.imag;
      value.imag = value.real * next.imag + value.imag * next.real;
      value.real = real;
      return;
    }
    case Op::reduce_any: value.integer |= next.integer; return;
    case Op::reduce_all: value.integer &= next.integer; return;
    case Op::reduce_max:
    case Op::reduce_min:
      if (place == 0 || comes_first(next, value, node.op == Op::reduce_max)) value = next;
      return;
    case Op::argmax:
    case Op::argmin: {
      // The first of equals, where -0 equals +0.
      const bool equal_zeros = !is_integral(next.dtype) && next.real == 0 && value.real == 0;
      if (place != 0 && (equal_zeros || !comes_first(next, value, node.op == Op::argmax))) return;
      value = next;
      running.position = place;
      return;
    }
    default: throw Error(Code::internal, "reference: not a reduction");
  }
}

Value finish(const TypedNode& node, Running running, Rounding rounding) {
  if (is_arg_reduction(node.op)) {
    return reference::from_integer(node.dtype, running.position);
  }
  Value result = running.value;
  result.pattern.reset();
  result.dtype = node.dtype;
  if (node.op == Op::mean) {
    result.real /= static_cast<long double>(running.count);
    result.imag /= static_cast<long double>(running.count);
  }
  if (is_integral(node.dtype)) return result;
  return reference::convert(result, node.dtype, rounding == Rounding::each);
}

// element(at) is an element of what is reduced, whose shape is `shape`.
template <class Element, class Left>
Array reduce(const TypedGraph& graph, const TypedNode& node, const Dims& result_shape,
             const Dims& shape, const Element& element, const Left& is_left_out) {
  std::vector<Running> running(static_cast<std::size_t>(element_count(result_shape)));
  const DType from = graph.nodes[node.operands[0]].dtype;
  for (Running& each : running) each.value = empty_result(node, from);
  std::size_t i = 0;
  for_each_element(shape, [&](const Dims& at) {
    if (is_left_out(i++)) return;
    take(node, running[element_at(at, result_shape)], element(at));
  });
  Array result;
  result.reserve(running.size());
  for (const Running& each : running) result.push_back(finish(node, each, graph.rounding));
  return result;
}

// ---- Running results ---------------------------------------------------------------------------

Value finish_one(const TypedNode& node, Value value, Rounding rounding) {
  value.dtype = node.dtype;
  if (is_integral(node.dtype)) return value;
  return reference::convert(value, node.dtype, rounding == Rounding::each);
}

TypedNode step_of(const TypedNode& node) {
  TypedNode step = node;
  step.op = node.op == Op::cumsum ? Op::sum : node.op == Op::cumprod ? Op::prod : Op::reduce_max;
  return step;
}

// Every element is what is before it along the axis and itself; element(at) is one of the operand.
template <class Element>
Array accumulate(const TypedGraph& graph, const TypedNode& node, const Dims& shape,
                 const Element& element) {
  const std::vector<bool> axes = resolve_axes(node.payload, shape.size(), "reference");
  Dims rows = shape;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    if (axes[k]) rows[k] = 1;
  }
  const TypedNode step = step_of(node);
  std::vector<Running> running(static_cast<std::size_t>(element_count(rows)));
  for (Running& each : running) {
    each.value = empty_result(step, graph.nodes[node.operands[0]].dtype);
  }
  Array result;
  result.reserve(static_cast<std::size_t>(element_count(shape)));
  for_each_element(shape, [&](const Dims& at) {
    Running& row = running[element_at(at, rows)];
    take(step, row, element(at));
    result.push_back(finish_one(node, row.value, graph.rounding));
  });
  return result;
}

// ---- The graph ---------------------------------------------------------------------------------

// What a long chain of elementwise values is cut into, so that it does not fill the stack.
constexpr int kMostNested = 64;

class ArrayEvaluation {
 public:
  ArrayEvaluation(const TypedGraph& graph, std::span<const Dims> shapes,
                  std::span<const ReferenceOperand> arguments)
      : graph_(graph), shapes_(shapes), arguments_(arguments) {
    choose_what_is_held();
  }

  /// Arrays of the nodes that are held, those of outputs among them.
  std::vector<Array> run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      arrays_.push_back(held_[id] ? array(id) : Array());
      beyond_.push_back(beyond(id));
    }
    return std::move(arrays_);
  }

  /// Whether an element of a node, at that place in C order, lies beyond an end.
  bool is_beyond(std::size_t id, std::size_t element) const {
    return std::ranges::any_of(beyond_[id], [&](const auto& axis) { return axis.second[element]; });
  }

 private:
  // A value whose elements are asked for once each, one after the other, is computed where they
  // are: what products sum would fill the memory.
  void choose_what_is_held() {
    const std::size_t count = graph_.nodes.size();
    std::vector<int> uses(count, 0);
    std::vector<NodeId> user(count, 0);
    for (const NodeId output : graph_.outputs) uses[output] += 2;
    for (std::size_t id = 0; id < count; ++id) {
      for (const NodeId operand : graph_.nodes[id].inputs()) {
        ++uses[operand];
        user[operand] = static_cast<NodeId>(id);
      }
    }
    held_.assign(count, true);
    std::vector<int> depth(count, 0);
    for (std::size_t id = 0; id < count; ++id) {
      if (uses[id] != 1 || !is_of_elements(graph_.nodes[id])) continue;
      const TypedNode& next = graph_.nodes[user[id]];
      const bool in_order = is_reduction(next.op) || is_scan(next.op) ||
                            (is_of_elements(next) && !is_shape_op(next.op));
      if (!in_order || (!is_reduction(next.op) && shapes_[user[id]] != shapes_[id])) continue;
      for (const NodeId operand : graph_.nodes[id].inputs()) {
        if (!held_[operand]) depth[id] = std::max(depth[id], depth[operand] + 1);
      }
      held_[id] = depth[id] >= kMostNested;
    }
  }

  // Whether each element follows from single elements of the operands.
  static bool is_of_elements(const TypedNode& node) {
    return !is_reduction(node.op) && !is_scan(node.op) && node.op != Op::take &&
           node.op != Op::put && node.op != Op::bound && node.op != Op::tuple &&
           node.op != Op::custom_call && node.op != Op::scalar;
  }

  // The element of a node that goes to `at` of what is computed of it.
  Value element(std::size_t id, const Dims& at) const {
    return held_[id] ? arrays_[id][element_at(at, shapes_[id])] : computed(id, at);
  }

  Array array(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    if (is_reduction(node.op)) {
      const NodeId operand = node.operands[0];
      return reduce(
          graph_, node, shapes_[id], shapes_[operand],
          [&](const Dims& at) { return element(operand, at); },
          [&](std::size_t place) { return is_beyond(operand, place); });
    }
    if (is_scan(node.op)) {
      const NodeId operand = node.operands[0];
      return accumulate(graph_, node, shapes_[operand],
                        [&](const Dims& at) { return element(operand, at); });
    }
    if (node.op == Op::take) return taken(id);
    if (node.op == Op::put) return updated(id);
    if (node.op == Op::bound) return arrays_[node.operands[0]];
    if (node.op == Op::tuple) return {};
    if (node.op == Op::custom_call) {
      throw Error(Code::unsupported,
                  "reference: what a custom call computes is known to the caller only");
    }
    if (node.op == Op::scalar) {
      const ReferenceOperand& argument = arguments_[node.payload];
      return {reference::scalar_value(
          graph_, node, reference::read(argument.data, argument.dtype, argument.offset))};
    }
    Array result;
    result.reserve(static_cast<std::size_t>(element_count(shapes_[id])));
    for_each_element(shapes_[id], [&](const Dims& at) { result.push_back(computed(id, at)); });
    return result;
  }

  // The element at `at` of a node of elements.
  Value computed(std::size_t id, const Dims& at) const {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) {
      const ReferenceOperand& argument = arguments_[node.payload];
      return reference::read(argument.data, argument.dtype, memory_index(at, argument));
    }
    if (node.op == Op::iota) {
      return reference::convert(reference::from_integer(DType::i64, place(at, shapes_[id], node)),
                                node.dtype, true);
    }
    if (is_shape_op(node.op)) return moved(id, at);
    std::array<Value, 3> operands;
    for (std::size_t i = 0; i < node.arity; ++i) operands[i] = element(node.operands[i], at);
    return reference::evaluate_node(graph_, node, std::span(operands).first(node.arity));
  }

  // The element is where the shape op takes it from.
  Value moved(std::size_t id, const Dims& at) const {
    const TypedNode& node = graph_.nodes[id];
    std::vector<Dims> operands;
    for (const NodeId operand : node.inputs()) operands.push_back(shapes_[operand]);
    Dims from;
    const std::size_t i =
        element_source(node.op, shape_list(graph_, node), operands, at, shapes_[id], from);
    return arrays_[node.operands[i]][element_at(from, operands[i])];
  }

  // ---- Ends given by data

  /// Of each axis, from the last one as 1, whether elements lie beyond an end along it.
  using Beyond = std::map<std::size_t, std::vector<bool>>;

  Beyond beyond(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    if (is_view_op(node.op)) return beyond_in_view(id, node);
    if (node.op == Op::concat) return beyond_in_parts(id, node);
    Beyond result;
    if (node.op == Op::put || node.op == Op::tuple) return result;
    for (std::size_t i = 0; i < node.arity; ++i) {
      const bool says = (node.op == Op::bound && i == 1) || (node.op == Op::take && i == 0);
      if (!says) add_beyond(id, node.operands[i], shift_of(node, i), result);
    }
    if (node.op != Op::bound) return result;
    const Dims& shape = shapes_[id];
    const std::size_t axis = indexed_axis(node.op, shape_list(graph_, node), shape, "reference");
    std::vector<bool>& own = axis_of(result, shape.size() - axis, id);
    std::size_t element = 0;
    for_each_element(shape, [&](const Dims& at) {
      const Integer end =
          arrays_[node.operands[1]][element_at(at, shapes_[node.operands[1]])].integer;
      own[element] = own[element] || at[axis] >= end;
      ++element;
    });
    return result;
  }

  // Axes of the array that follow those of places in what take gives.
  std::size_t shift_of(const TypedNode& node, std::size_t operand) const {
    if (node.op != Op::take || operand != 1) return 0;
    const Dims& array = shapes_[node.operands[0]];
    const std::size_t axis = indexed_axis(node.op, shape_list(graph_, node), array, "reference");
    return array.size() - 1 - axis;
  }

  std::vector<bool>& axis_of(Beyond& beyond, std::size_t axis, std::size_t id) const {
    std::vector<bool>& own = beyond[axis];
    own.resize(static_cast<std::size_t>(element_count(shapes_[id])), false);
    return own;
  }

  // What an operand's elements are beyond, the result's that come from them are: along the axes
  // that the result has.
  void add_beyond(std::size_t id, NodeId operand, std::size_t shift, Beyond& result) const {
    const Dims& shape = shapes_[id];
    const Dims& from = shapes_[operand];
    for (const auto& [axis, elements] : beyond_[operand]) {
      const std::size_t place = axis + shift;
      const bool reduced = is_reduction(graph_.nodes[id].op) && shape[shape.size() - place] == 1 &&
                           from[from.size() - axis] != 1;
      if (reduced) continue;
      std::vector<bool>& own = axis_of(result, place, id);
      std::size_t element = 0;
      for_each_element(shape, [&](const Dims& at) {
        const Dims inner(std::span<const std::int64_t>(at).first(at.size() - shift));
        own[element] = own[element] || elements[element_at(inner, from)];
        ++element;
      });
    }
  }

  // An axis is where a step along it is one along the bounded one and no other.
  Beyond beyond_in_view(std::size_t id, const TypedNode& node) const {
    Beyond result;
    const NodeId operand = node.operands[0];
    const std::vector<Dims> from{shapes_[operand]};
    const Dims& shape = shapes_[id];
    for (const auto& [axis, elements] : beyond_[operand]) {
      for (std::size_t k = 0; k < shape.size(); ++k) {
        if (shape[k] != from[0][from[0].size() - axis] || shape[k] == 1) continue;
        Dims at(shape.size(), 0);
        Dims first;
        Dims next;
        element_source(node.op, shape_list(graph_, node), from, at, shape, first);
        at[k] = 1;
        element_source(node.op, shape_list(graph_, node), from, at, shape, next);
        next[next.size() - axis] -= 1;
        if (next != first) continue;
        std::vector<bool>& own = axis_of(result, shape.size() - k, id);
        std::size_t element = 0;
        for_each_element(shape, [&](const Dims& place) {
          Dims source;
          element_source(node.op, shape_list(graph_, node), from, place, shape, source);
          own[element++] = elements[element_at(source, from[0])];
        });
        break;
      }
    }
    return result;
  }

  // An element of what is concatenated is beyond what it is beyond in its part.
  Beyond beyond_in_parts(std::size_t id, const TypedNode& node) const {
    Beyond result;
    std::vector<Dims> parts;
    for (const NodeId operand : node.inputs()) parts.push_back(shapes_[operand]);
    std::size_t element = 0;
    for_each_element(shapes_[id], [&](const Dims& at) {
      Dims from;
      const std::size_t i =
          element_source(node.op, shape_list(graph_, node), parts, at, shapes_[id], from);
      for (const auto& [axis, elements] : beyond_[node.operands[i]]) {
        axis_of(result, axis, id)[element] = elements[element_at(from, parts[i])];
      }
      ++element;
    });
    return result;
  }

  // ---- Places given by data

  // Where the element at `at` of what take gives of array and places is in the array; nothing for
  // a place that is not there.
  std::optional<Dims> place_in_array(const TypedNode& node, const Dims& at) const {
    const Dims& array = shapes_[node.operands[0]];
    const Dims& places = shapes_[node.operands[1]];
    const std::size_t axis = indexed_axis(node.op, shape_list(graph_, node), array, "reference");
    Dims at_place(places.size(), 0);
    for (std::size_t k = 0; k < places.size(); ++k) at_place[k] = at[axis + k];
    const Integer place = arrays_[node.operands[1]][element_at(at_place, places)].integer;
    if (place < 0 || place >= array[axis]) return std::nullopt;
    Dims from(array.size(), 0);
    for (std::size_t k = 0; k < array.size(); ++k) {
      from[k] = k < axis    ? at[k]
                : k == axis ? static_cast<std::int64_t>(place)
                            : at[k + places.size() - 1];
    }
    return from;
  }

  Array taken(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    const Value zero = is_integral(node.dtype) ? reference::from_integer(node.dtype, 0)
                                               : reference::from_real(node.dtype, 0);
    Array result;
    result.reserve(static_cast<std::size_t>(element_count(shapes_[id])));
    for_each_element(shapes_[id], [&](const Dims& at) {
      const std::optional<Dims> from = place_in_array(node, at);
      result.push_back(
          from ? arrays_[node.operands[0]][element_at(*from, shapes_[node.operands[0]])] : zero);
    });
    return result;
  }

  // Of several values for one place the last one stands.
  Array updated(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    const Dims& array = shapes_[id];
    const std::size_t axis = indexed_axis(node.op, shape_list(graph_, node), array, "reference");
    Array result = arrays_[node.operands[0]];
    for_each_element(taken_shape(array, shapes_[node.operands[1]], axis), [&](const Dims& at) {
      const std::optional<Dims> to = place_in_array(node, at);
      if (!to) return;
      result[element_at(*to, array)] =
          arrays_[node.operands[2]][element_at(at, shapes_[node.operands[2]])];
    });
    return result;
  }

  static std::int64_t place(const Dims& at, const Dims& shape, const TypedNode& iota) {
    const auto axis = static_cast<std::int64_t>(iota.payload);
    if (axis != kAllAxes) return at[static_cast<std::size_t>(axis) + (axis < 0 ? at.size() : 0)];
    std::int64_t place = 0;
    for (std::size_t k = 0; k < at.size(); ++k) place = place * shape[k] + at[k];
    return place;
  }

  const TypedGraph& graph_;
  std::span<const Dims> shapes_;
  std::span<const ReferenceOperand> arguments_;
  std::vector<bool> held_;
  std::vector<Array> arrays_;
  std::vector<Beyond> beyond_;
};

}  // namespace

void evaluate_arrays(const TypedGraph& graph, std::span<const Dims> shapes,
                     std::span<const ReferenceOperand> arguments,
                     std::span<const ReferenceOperand> outputs) {
  if (arguments.size() != graph.arguments.size() || outputs.size() != graph.outputs.size()) {
    throw Error(Code::internal, "reference: another number of operands than the graph has");
  }
  // All values are computed before the first is stored: an output may lie in an input's memory.
  ArrayEvaluation evaluation(graph, shapes, arguments);
  const std::vector<Array> arrays = evaluation.run();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NodeId id = graph.outputs[i];
    const ReferenceOperand& output = outputs[i];
    std::size_t element = 0;
    for_each_element(shapes[id], [&](const Dims& at) {
      const std::size_t place = element++;
      if (evaluation.is_beyond(id, place)) return;
      const Value stored = reference::convert(arrays[id][place], output.dtype, true);
      reference::write(output.data, stored, memory_index(at, output));
    });
  }
}

}  // namespace kiln::fusion
