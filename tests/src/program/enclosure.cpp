#include "tests/src/program/enclosure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/reference/operation.hpp"
#include "tests/support/numbers.hpp"

namespace kiln::testing {
namespace {

using fusion::Op;
using fusion::TypedGraph;
using fusion::TypedNode;
using fusion::reference::Integer;
using fusion::reference::Value;
using Ranges = std::vector<Range>;

bool is_real(DType dtype) { return is_floating(dtype); }

bool is_below(const Value& a, const Value& b) {
  return is_real(a.dtype) ? a.real < b.real : a.integer < b.integer;
}

bool is_point(const Range& range) {
  return !is_below(range.low, range.high) && !is_below(range.high, range.low);
}

bool is_finite(const Value& value) { return !is_real(value.dtype) || std::isfinite(value.real); }

Range nothing_known(DType dtype) {
  Value value;
  value.dtype = dtype;
  return {value, value, true};
}

// ---- Shapes ------------------------------------------------------------------------------------

std::size_t size_of(const Dims& shape) {
  std::size_t size = 1;
  for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  return size;
}

// The coordinates of element `n` in C order.
Dims coordinates(std::size_t n, const Dims& shape) {
  Dims at(shape.size(), 0);
  for (std::size_t k = shape.size(); k-- > 0;) {
    at[k] = static_cast<std::int64_t>(n) % shape[k];
    n /= static_cast<std::size_t>(shape[k]);
  }
  return at;
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

// ---- Rounding ----------------------------------------------------------------------------------

// One unit in the last place of a number of that size.
long double unit_of(long double size, DType dtype) {
  int digits = 24;
  int least = -126;
  if (dtype == DType::f16) {
    digits = 11;
    least = -14;
  } else if (dtype == DType::bf16) {
    digits = 8;
  } else if (dtype == DType::f64) {
    digits = 53;
    least = -1022;
  }
  const int exponent = size == 0 ? least : std::max(std::ilogb(size), least);
  return std::ldexp(1.0L, exponent - digits + 1);
}

bool is_always_rounded(const fusion::Bounds& bounds) {
  return std::max({bounds.own, bounds.libm, bounds.cuda, bounds.hip}) <= 0.5;
}

// Ops that, while no operand changes its sign, rise or fall with each of them: over a box they are
// largest and smallest at its corners.
bool goes_one_way(Op op) {
  switch (op) {
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::erfinv:
    case Op::lgamma:
    case Op::bitcast:
    case Op::bitwise_not:
    case Op::popcount:
    case Op::clz:
    case Op::floor_divide:
    case Op::remainder:
    case Op::fmod:
    case Op::atan2:
    case Op::copysign:
    case Op::equal:
    case Op::not_equal:
    case Op::bitwise_and:
    case Op::bitwise_or:
    case Op::bitwise_xor:
    case Op::left_shift:
    case Op::right_shift:
    case Op::uniform:
    case Op::normal: return false;
    default: return true;
  }
}

// What integers may be known of by bounds: the others may wrap.
bool keeps_integers(Op op) {
  switch (op) {
    case Op::maximum:
    case Op::minimum:
    case Op::fmax:
    case Op::fmin:
    case Op::clip:
    case Op::where:
    case Op::cast:
    case Op::promote: return true;
    default:
      return fusion::info(op).rule == fusion::Rule::compare ||
             fusion::info(op).rule == fusion::Rule::logical;
  }
}

// ---- The graph ---------------------------------------------------------------------------------

class Enclosure {
 public:
  Enclosure(const fusion::ShapedGraph& graph, std::span<const HostArray> arguments,
            const Options& options, DeviceType device)
      : graph_(graph.graph),
        shapes_(graph.shapes),
        arguments_(arguments),
        options_(options),
        device_(device) {}

  std::vector<Ranges> run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) values_.push_back(value(id));
    std::vector<Ranges> outputs;
    for (const fusion::NodeId output : graph_.outputs) outputs.push_back(values_[output]);
    return outputs;
  }

 private:
  bool once() const { return options_.rounding == Rounding::once; }

  DType computed_in(DType dtype) const { return once() ? fusion::compute_dtype(dtype) : dtype; }

  Ranges value(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) return read(id);
    if (node.op == Op::iota) return count(id);
    if (fusion::is_shape_op(node.op)) return move(id);
    if (fusion::is_reduction(node.op)) return reduce(id);
    if (fusion::is_scan(node.op)) return run_along(id);
    Ranges result;
    const std::size_t size = size_of(shapes_[id]);
    for (std::size_t n = 0; n < size; ++n) {
      const Dims at = coordinates(n, shapes_[id]);
      std::array<const Range*, 3> operands{};
      for (std::size_t i = 0; i < node.arity; ++i) {
        const fusion::NodeId operand = node.operands[i];
        operands[i] = &values_[operand][element_at(at, shapes_[operand])];
      }
      result.push_back(element(node, std::span(operands).first(node.arity)));
    }
    return result;
  }

  Ranges read(std::size_t id) const {
    const HostArray& array = arguments_[graph_.nodes[id].payload];
    Ranges result;
    for (std::int64_t n = 0; n < array.size(); ++n) {
      const Value value = fusion::reference::read(array.bytes.data() + array.first, array.dtype,
                                                  array.offset + place_of(array, n));
      result.push_back({value, value});
    }
    return result;
  }

  Ranges count(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    const auto axis = static_cast<std::int64_t>(node.payload);
    Ranges result;
    for (std::size_t n = 0; n < size_of(shapes_[id]); ++n) {
      auto place = static_cast<std::int64_t>(n);
      if (axis != fusion::kAllAxes) {
        const Dims at = coordinates(n, shapes_[id]);
        place = at[static_cast<std::size_t>(axis) + (axis < 0 ? at.size() : 0)];
      }
      const Value value = fusion::reference::convert(
          fusion::reference::from_integer(DType::i64, place), node.dtype, true);
      result.push_back({value, value});
    }
    return result;
  }

  Ranges move(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    std::vector<Dims> operands;
    for (const fusion::NodeId operand : node.inputs()) operands.push_back(shapes_[operand]);
    Ranges result;
    for (std::size_t n = 0; n < size_of(shapes_[id]); ++n) {
      Dims from;
      const std::size_t i =
          fusion::element_source(node.op, fusion::shape_list(graph_, node), operands,
                                 coordinates(n, shapes_[id]), shapes_[id], from);
      result.push_back(values_[node.operands[i]][element_at(from, operands[i])]);
    }
    return result;
  }

  // -- Element by element

  Value exact(const TypedNode& node, std::span<const Value> operands) const {
    Value result;
    switch (node.op) {
      case Op::constant:
      case Op::cast:
      case Op::promote:
      case Op::bitcast: result = fusion::reference::evaluate_node(graph_, node, operands); break;
      default: {
        TypedNode computed = node;
        if (node.op != Op::nextafter) computed.dtype = computed_in(node.dtype);
        result = fusion::reference::operate(computed, operands, options_.rounding);
        result.dtype = node.dtype;
      }
    }
    result.pattern.reset();
    return result;
  }

  Range element(const TypedNode& node, std::span<const Range* const> operands) const {
    if (node.op == Op::where && !operands[0]->unknown && is_point(*operands[0])) {
      return *operands[operands[0]->low.integer != 0 ? 1 : 2];
    }
    bool points = true;
    for (const Range* operand : operands) {
      if (operand->unknown) return nothing_known(node.dtype);
      points = points && is_point(*operand);
    }
    if (!points && (node.op == Op::equal || node.op == Op::not_equal)) {
      return compare(node, *operands[0], *operands[1]);
    }
    if (!points && (node.op == Op::sin || node.op == Op::cos)) return wave(node, *operands[0]);
    if (!points && !may_use_corners(node, operands)) return nothing_known(node.dtype);
    return rounded(node, corners(node, operands), operands);
  }

  bool may_use_corners(const TypedNode& node, std::span<const Range* const> operands) const {
    if (!goes_one_way(node.op)) return false;
    for (const Range* operand : operands) {
      if (!is_real(operand->low.dtype) && !is_point(*operand) && !keeps_integers(node.op))
        return false;
    }
    const auto has_zero = [](const Range& range) { return range.low.real <= 0; };
    if (node.op == Op::power) return is_real(node.dtype) && !has_zero(*operands[0]);
    if (node.op != Op::cast && node.op != Op::promote) return true;
    // A conversion of integers that wraps does not keep their order.
    const Range& from = *operands[0];
    if (is_real(from.low.dtype) || !is_integer(node.dtype)) return true;
    return exact(node, std::span(&from.low, 1)).integer == from.low.integer &&
           exact(node, std::span(&from.high, 1)).integer == from.high.integer;
  }

  // The smallest and the largest result over the box of the operands.
  Range corners(const TypedNode& node, std::span<const Range* const> operands) const {
    std::array<std::vector<Value>, 3> ends;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Range& range = *operands[i];
      ends[i].push_back(range.low);
      if (is_point(range)) continue;
      ends[i].push_back(range.high);
      Value zero;
      zero.dtype = range.low.dtype;
      if (is_below(range.low, zero) && is_below(zero, range.high)) ends[i].push_back(zero);
    }
    Range hull;
    bool first = true;
    std::array<std::size_t, 3> chosen{};
    while (true) {
      std::array<Value, 3> given;
      for (std::size_t i = 0; i < operands.size(); ++i) given[i] = ends[i][chosen[i]];
      const Value value = exact(node, std::span(given).first(operands.size()));
      if (!is_finite(value)) return nothing_known(node.dtype);
      if (first || is_below(value, hull.low)) hull.low = value;
      if (first || is_below(hull.high, value)) hull.high = value;
      first = false;
      std::size_t i = 0;
      while (i < operands.size() && ++chosen[i] == ends[i].size()) chosen[i++] = 0;
      if (i == operands.size()) return hull;
    }
  }

  // A result with the error that its op may have. Under Rounding::once it may also keep digits
  // that a rounding would take, as part of a fused multiply-add does.
  Range rounded(const TypedNode& node, Range range, std::span<const Range* const> operands) const {
    const fusion::OpInfo& info = fusion::info(node.op);
    const bool converts = info.rule == fusion::Rule::convert || info.rule == fusion::Rule::leaf;
    if (range.unknown || !is_real(node.dtype) || converts) return range;
    const DType in = computed_in(node.dtype);
    const auto bound = fusion::error_bound(info, in, options_.accuracy, device_);
    if (!bound) return nothing_known(node.dtype);
    if (*bound == 0) return range;
    // A 16-bit result may take cheaper functions and quotients on its way, all within its bound.
    const bool cheaper = once() && options_.accuracy == Accuracy::storage && bits(node.dtype) == 16;
    const bool quotient = node.op == Op::div || node.op == Op::reciprocal || node.op == Op::sqrt;
    const bool rounds = is_always_rounded(in == DType::f64 ? info.f64 : info.f32);
    if (rounds && !(cheaper && quotient)) {
      if (!once()) return range;
      range.low.real = std::min(range.low.real, fusion::reference::round_to(range.low.real, in));
      range.high.real = std::max(range.high.real, fusion::reference::round_to(range.high.real, in));
      return range;
    }
    std::array<long double, 3> largest{};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Range& operand = *operands[i];
      const bool low = std::fabs(operand.low.real) > std::fabs(operand.high.real);
      largest[i] = low ? operand.low.real : operand.high.real;
    }
    const long double size =
        std::max({std::fabs(range.low.real), std::fabs(range.high.real),
                  fusion::largest_term(node.op, std::span(largest).first(operands.size()))});
    const long double unit = unit_of(size, in);
    const long double by = static_cast<long double>(*bound + 0.5) * unit;
    if (!cheaper) return widened(range, by);
    const long double allowed = fusion::kStorageBound - 0.5L;
    return widened(range, std::max(by, allowed * unit_of(size, node.dtype) + unit));
  }

  static Range widened(Range range, long double by) {
    range.low.real -= by;
    range.high.real += by;
    if (!is_finite(range.low) || !is_finite(range.high)) return nothing_known(range.low.dtype);
    return range;
  }

  static Range compare(const TypedNode& node, const Range& a, const Range& b) {
    const bool apart = is_below(a.high, b.low) || is_below(b.high, a.low);
    const Value no = fusion::reference::from_integer(DType::boolean, 0);
    const Value yes = fusion::reference::from_integer(DType::boolean, 1);
    if (!apart) return {no, yes};
    return node.op == Op::equal ? Range{no, no} : Range{yes, yes};
  }

  // Neither goes faster than its operand.
  Range wave(const TypedNode& node, const Range& x) const {
    Value middle = x.low;
    middle.pattern.reset();
    middle.real = (x.low.real + x.high.real) / 2;
    const Value value = exact(node, std::span(&middle, 1));
    const long double half = (x.high.real - x.low.real) / 2;
    Range result = widened({value, value}, half + unit_of(1, computed_in(node.dtype)));
    if (result.unknown) return result;
    const Range* const operand = &x;
    return rounded(node, result, std::span(&operand, 1));
  }

  // -- Along axes

  // What has been taken of a row. The terms' sizes are added for the roundings of a sum.
  struct Row {
    std::size_t count = 0;
    Range range;
    long double size = 0;
    bool unknown = false;
    std::vector<Range> places;  ///< of argmax and argmin: the elements
  };

  Row empty_row(const TypedNode& node) const {
    Row row;
    row.range = nothing_known(node.dtype);
    const Op op = step_of(node.op);
    if (op == Op::prod || op == Op::reduce_all) {
      row.range.low.real = row.range.high.real = 1;
      row.range.low.integer = row.range.high.integer = 1;
    }
    row.range.unknown = op == Op::reduce_max || op == Op::reduce_min || op == Op::mean ||
                        op == Op::argmax || op == Op::argmin;
    return row;
  }

  static Op step_of(Op op) {
    switch (op) {
      case Op::cumsum: return Op::sum;
      case Op::cumprod: return Op::prod;
      case Op::cummax: return Op::reduce_max;
      default: return op;
    }
  }

  void take(const TypedNode& node, Row& row, const Range& next) const {
    const bool first = row.count++ == 0;
    row.unknown = row.unknown || next.unknown;
    if (row.unknown) return;
    Range& range = row.range;
    switch (step_of(node.op)) {
      case Op::sum:
      case Op::mean:
        range.unknown = false;
        row.size += std::max(std::fabs(next.low.real), std::fabs(next.high.real));
        range.low.real += next.low.real;
        range.high.real += next.high.real;
        take_integer(node, row, next, range.low.integer + next.low.integer);
        return;
      case Op::prod: {
        take_integer(node, row, next, range.low.integer * next.low.integer);
        const long double ends[] = {range.low.real * next.low.real, range.low.real * next.high.real,
                                    range.high.real * next.low.real,
                                    range.high.real * next.high.real};
        range.low.real = *std::ranges::min_element(ends);
        range.high.real = *std::ranges::max_element(ends);
        return;
      }
      case Op::reduce_any:
        range.low.integer |= next.low.integer;
        range.high.integer |= next.high.integer;
        return;
      case Op::reduce_all:
        range.low.integer &= next.low.integer;
        range.high.integer &= next.high.integer;
        return;
      case Op::reduce_max:
        if (first || is_below(range.low, next.low)) range.low = next.low;
        if (first || is_below(range.high, next.high)) range.high = next.high;
        range.unknown = false;
        return;
      case Op::reduce_min:
        if (first || is_below(next.low, range.low)) range.low = next.low;
        if (first || is_below(next.high, range.high)) range.high = next.high;
        range.unknown = false;
        return;
      default: row.places.push_back(next); range.unknown = false;
    }
  }

  static void take_integer(const TypedNode& node, Row& row, const Range& next, Integer result) {
    if (is_real(node.dtype)) return;
    row.unknown = row.unknown || !is_point(next);
    row.range.low = row.range.high = fusion::reference::from_integer(node.dtype, result);
  }

  Range finish(const TypedNode& node, const Row& row) const {
    if (row.unknown || row.range.unknown) return nothing_known(node.dtype);
    const Op op = step_of(node.op);
    if (op == Op::argmax || op == Op::argmin) return place(node, row.places);
    Range result = row.range;
    result.low.dtype = result.high.dtype = node.dtype;
    result.low.pattern.reset();
    result.high.pattern.reset();
    const bool computes = op == Op::sum || op == Op::mean || op == Op::prod;
    if (!is_real(node.dtype) || !computes) return result;
    // A rounding for every term, and some for the way in which several threads share them.
    const DType in = fusion::compute_dtype(node.dtype);
    const long double half_unit = unit_of(1, in) / 2;
    const auto roundings = static_cast<long double>(row.count + 8);
    long double size = row.size;
    if (op == Op::prod) {
      size = std::max(std::fabs(result.low.real), std::fabs(result.high.real));
    }
    result = widened(result, roundings * half_unit * size + unit_of(0, in));
    if (result.unknown) return result;
    if (op == Op::mean) {
      result.low.real /= static_cast<long double>(row.count);
      result.high.real /= static_cast<long double>(row.count);
      const long double larger = std::max(std::fabs(result.low.real), std::fabs(result.high.real));
      result = widened(result, 2 * unit_of(larger, in));
    }
    if (!once()) {
      result.low = fusion::reference::convert(result.low, node.dtype, true);
      result.high = fusion::reference::convert(result.high, node.dtype, true);
    }
    if (!is_finite(result.low) || !is_finite(result.high)) return nothing_known(node.dtype);
    return result;
  }

  // The first of equals; any of those that may be the largest.
  static Range place(const TypedNode& node, const std::vector<Range>& row) {
    const bool largest = node.op == Op::argmax;
    std::size_t best = 0;  // the one with the best of the worse ends
    for (std::size_t i = 1; i < row.size(); ++i) {
      const bool better =
          largest ? is_below(row[best].low, row[i].low) : is_below(row[i].high, row[best].high);
      if (better) best = i;
    }
    std::size_t first = row.size();
    std::size_t last = 0;
    bool points = true;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool worse =
          largest ? is_below(row[i].high, row[best].low) : is_below(row[best].high, row[i].low);
      if (worse) continue;
      first = std::min(first, i);
      last = i;
      points = points && is_point(row[i]);
    }
    const auto as_value = [&](std::size_t i) {
      return fusion::reference::from_integer(node.dtype, static_cast<Integer>(i));
    };
    return {as_value(first), as_value(points ? first : last)};
  }

  Ranges reduce(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    const Dims& shape = shapes_[node.operands[0]];
    std::vector<Row> rows(size_of(shapes_[id]), empty_row(node));
    for (std::size_t n = 0; n < size_of(shape); ++n) {
      take(node, rows[element_at(coordinates(n, shape), shapes_[id])],
           values_[node.operands[0]][n]);
    }
    Ranges result;
    for (const Row& row : rows) result.push_back(finish(node, row));
    return result;
  }

  Ranges run_along(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    const Dims& shape = shapes_[id];
    Dims across = shape;
    const std::vector<bool> axes = fusion::resolve_axes(node.payload, shape.size(), "enclosure");
    for (std::size_t k = 0; k < axes.size(); ++k) {
      if (axes[k]) across[k] = 1;
    }
    std::vector<Row> rows(size_of(across), empty_row(node));
    Ranges result;
    for (std::size_t n = 0; n < size_of(shape); ++n) {
      Row& row = rows[element_at(coordinates(n, shape), across)];
      take(node, row, values_[node.operands[0]][n]);
      result.push_back(finish(node, row));
    }
    return result;
  }

  const TypedGraph& graph_;
  const std::vector<Dims>& shapes_;
  std::span<const HostArray> arguments_;
  Options options_;
  DeviceType device_;
  std::vector<Ranges> values_;
};

double as_double(const Value& value) {
  return is_real(value.dtype) ? static_cast<double>(value.real)
                              : static_cast<double>(value.integer);
}

}  // namespace

std::vector<std::vector<Range>> enclose(const fusion::ShapedGraph& graph,
                                        std::span<const HostArray> arguments,
                                        const Options& options, DeviceType device) {
  return Enclosure(graph, arguments, options, device).run();
}

Compared& Compared::operator+=(const Compared& other) {
  elements += other.elements;
  unknown += other.unknown;
  wide += other.wide;
  return *this;
}

std::string outside(std::span<const Range> ranges, const HostArray& got, Compared& compared) {
  if (static_cast<std::int64_t>(ranges.size()) != got.size()) return "it has another size";
  for (std::size_t n = 0; n < ranges.size(); ++n) {
    ++compared.elements;
    const Range& range = ranges[n];
    const Value low = fusion::reference::convert(range.low, got.dtype, true);
    const Value high = fusion::reference::convert(range.high, got.dtype, true);
    if (range.unknown || !is_finite(low) || !is_finite(high)) {
      ++compared.unknown;
      continue;
    }
    const double width = as_double(range.high) - as_double(range.low);
    compared.wide += width > 0.01 * std::max(1.0, std::fabs(as_double(range.high))) ? 1 : 0;
    const Value value = fusion::reference::decode(
        got.dtype, get_bits(got, place_of(got, static_cast<std::int64_t>(n))));
    const bool between = !is_below(value, low) && !is_below(high, value) &&
                         !(is_real(got.dtype) && std::isnan(value.real));
    if (between) continue;
    return fmt::format("element {} is {}, expected {} to {}", n, as_double(value), as_double(low),
                       as_double(high));
  }
  return {};
}

}  // namespace kiln::testing
