// What shape ops mean (shape_ops.hpp). How they are written is in shape_calls.cpp.
#include "fusion/graph/shape_ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/size_trace.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

// A list whose axes have been found, and whose slices have been cut to what is there.
class Resolved {
 public:
  Resolved(Op op, const ShapeList& list, std::span<const Dims> operands, std::string_view function)
      : op_(op), list_(list), operands_(operands), function_(function) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: {}", function_, info(op_).name, message));
  }

  const Dims& shape() const { return operands_[0]; }

  std::size_t axis(std::int64_t axis, std::size_t rank) const {
    const auto axes = static_cast<std::int64_t>(rank);
    if (axis < -axes || axis >= axes) {
      fail(fmt::format("expected an axis of {} ({} to {}), got {}", to_string(shape()), -axes,
                       axes - 1, axis));
    }
    return static_cast<std::size_t>(axis < 0 ? axis + axes : axis);
  }
  std::size_t axis() const { return axis(list_[0], shape().size()); }
  std::size_t new_axis() const { return axis(list_[0], shape().size() + 1); }

  // The order of the operand's axes in the result.
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> order(shape().size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (op_ == Op::swapaxes) {
      std::swap(order[axis(list_[0], order.size())], order[axis(list_[1], order.size())]);
    } else if (list_.empty()) {
      std::ranges::reverse(order);
    } else {
      if (list_.size() != order.size()) {
        fail(fmt::format("expected {} axes, as {} has, got {}", order.size(), to_string(shape()),
                         list_.size()));
      }
      std::vector<bool> seen(order.size(), false);
      for (std::size_t k = 0; k < order.size(); ++k) {
        order[k] = axis(list_[k], order.size());
        if (seen[order[k]]) fail(fmt::format("axis {} comes twice", list_[k]));
        seen[order[k]] = true;
      }
    }
    return order;
  }

  struct Range {
    std::int64_t first = 0;
    std::int64_t step = 1;
    std::int64_t count = 0;
  };
  Range range() const {
    const std::int64_t length = shape()[axis()];
    Range range{0, list_[3], 0};
    const bool down = range.step < 0;
    const auto place = [&](std::int64_t at, std::int64_t otherwise) {
      if (at == kOmitted) return otherwise;
      const std::int64_t from_front = at < 0 ? at + length : at;
      trace_order(from_front, down ? -1 : 0);
      trace_order(from_front, down ? length - 1 : length);
      return std::clamp<std::int64_t>(from_front, down ? -1 : 0, down ? length - 1 : length);
    };
    if (list_.size() > 4) {
      trace_order(list_[1], -length);
      trace_order(list_[1], length);
    }
    if (list_.size() > 4 && (list_[1] < -length || list_[1] >= length)) {
      fail(fmt::format("there is no element {} along axis {} of {}", list_[1], list_[0],
                       to_string(shape())));
    }
    range.first = place(list_[1], down ? length - 1 : 0);
    const std::int64_t end = place(list_[2], down ? -1 : length);
    const std::int64_t span = down ? range.first - end : end - range.first;
    // The span and not the step is negated: the least step has no positive counterpart.
    trace_order(span, 0);
    trace_order(span, 1);
    if (span > 1 && range.step != 1 && range.step != -1) trace_remainder(span - 1, range.step);
    range.count = span <= 0 ? 0 : (down ? 1 - span : span - 1) / range.step + 1;
    if (range.count == 0) range.first = 0;
    if (range.count <= 1) range.step = 1;  // a longer one might leave what 64 bits can count
    return range;
  }

  Dims reshaped() const {
    Dims result(std::span<const std::int64_t>{list_});
    std::optional<std::size_t> open;
    for (std::size_t k = 0; k < result.size(); ++k) {
      if (result[k] == 0) {
        if (k >= shape().size()) {
          fail(fmt::format("extent 0 at position {} stands for that axis of {}, which has none", k,
                           to_string(shape())));
        }
        result[k] = shape()[k];
      }
      if (result[k] == -1) {
        if (open) fail("more than one extent is -1");
        open = k;
      }
    }
    const std::int64_t size = element_count(shape());
    const std::int64_t known = size_of_known(result);
    if (!open) trace_order(known, size);
    if (open && known != 0) trace_divides(size, known);
    if (open) {
      if (known == 0 || size % known != 0) {
        fail(fmt::format("the {} elements of {} do not divide by {}", size, to_string(shape()),
                         known));
      }
      result[*open] = size / known;
    } else if (known != size) {
      fail(fmt::format("expected {} elements, as {} has, got {} of {}", size, to_string(shape()),
                       known, to_string(result)));
    }
    return result;
  }

  Dims concatenated() const {
    const Dims& a = operands_[0];
    const Dims& b = operands_[1];
    if (a.size() != b.size()) {
      fail(fmt::format("shapes {} and {} have different ranks", to_string(a), to_string(b)));
    }
    const std::size_t along = axis();
    Dims result = a;
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (k == along) {
        result[k] += b[k];
      } else if (a[k] != b[k]) {
        fail(fmt::format("shapes {} and {} differ along axis {}, not only along {}", to_string(a),
                         to_string(b), k, along));
      }
    }
    return result;
  }

 private:
  // The elements of `shape`, whose extents may be any; what is -1 does not count.
  std::int64_t size_of_known(const Dims& shape) const {
    if (std::ranges::find(shape, 0) != shape.end()) return 0;
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) {
      if (extent == -1) continue;
      if (size > std::numeric_limits<std::int64_t>::max() / extent) {
        fail(
            fmt::format("the shape {} has more elements than 64 bits can count", to_string(shape)));
      }
      size *= extent;
    }
    return size;
  }

  Op op_;
  const ShapeList& list_;
  std::span<const Dims> operands_;
  std::string_view function_;
};

Dims without(const Dims& dims, std::size_t axis) {
  Dims result(dims.size() - 1, 0);
  for (std::size_t k = 0; k < result.size(); ++k) result[k] = dims[k < axis ? k : k + 1];
  return result;
}

Dims with(const Dims& dims, std::size_t axis, std::int64_t value) {
  Dims result(dims.size() + 1, value);
  for (std::size_t k = 0; k < dims.size(); ++k) result[k < axis ? k : k + 1] = dims[k];
  return result;
}

Dims permuted(const Dims& dims, const std::vector<std::size_t>& order) {
  Dims result(dims.size(), 0);
  for (std::size_t k = 0; k < order.size(); ++k) result[k] = dims[order[k]];
  return result;
}

// The strides of `to` over elements that have `strides` over `from`: both shapes are taken apart
// into runs of axes with as many elements, and within a run the operand must be one longer axis.
std::optional<Dims> reshaped_strides(const Dims& from, const Dims& strides, const Dims& to) {
  Dims result(to.size(), 0);
  if (element_count(from) == 0) return result;
  std::size_t a = 0;
  std::size_t b = 0;
  while (a < from.size() || b < to.size()) {
    std::size_t a_end = a;
    std::size_t b_end = b;
    std::int64_t a_size = a_end < from.size() ? from[a_end++] : 1;
    std::int64_t b_size = b_end < to.size() ? to[b_end++] : 1;
    while (trace_order(a_size, b_size), a_size != b_size) {
      if (a_size < b_size) {
        a_size *= from[a_end++];
      } else {
        b_size *= to[b_end++];
      }
    }
    std::int64_t step = 0;
    std::optional<std::int64_t> next;
    for (std::size_t k = a_end; k-- > a;) {
      if (from[k] == 1) continue;
      if (!next) step = strides[k];
      if (next) trace_order(strides[k], *next);
      if (next && strides[k] != *next) return std::nullopt;
      next = strides[k] * from[k];
    }
    for (std::size_t k = b_end; k-- > b;) {
      result[k] = step;
      step *= to[k];
    }
    a = a_end;
    b = b_end;
  }
  return result;
}

}  // namespace

const ShapeList& shape_list(const TypedGraph& graph, const TypedNode& node) {
  return graph.tables->lists[node.payload];
}

Dims result_shape(Op op, const ShapeList& list, std::span<const Dims> operands,
                  std::string_view function) {
  const Resolved resolved(op, list, operands, function);
  const bool of_axes = op != Op::reshape && op != Op::transpose && op != Op::expand_dims;
  if (of_axes && operands[0].empty()) resolved.fail("expected an array with axes, got a number");
  switch (op) {
    case Op::reshape: return resolved.reshaped();
    case Op::transpose:
    case Op::swapaxes: return permuted(operands[0], resolved.order());
    case Op::slice: {
      Dims result = operands[0];
      result[resolved.axis()] = resolved.range().count;
      return result;
    }
    case Op::expand_dims: return with(operands[0], resolved.new_axis(), 1);
    case Op::squeeze: {
      const std::size_t axis = resolved.axis();
      if (operands[0][axis] != 1) {
        resolved.fail(fmt::format("expected an axis of one element, got axis {} of {}", list[0],
                                  to_string(operands[0])));
      }
      return without(operands[0], axis);
    }
    case Op::concat: return resolved.concatenated();
    default: resolved.fail("internal: not a shape op");
  }
}

std::size_t element_source(Op op, const ShapeList& list, std::span<const Dims> operands,
                           const Dims& at, const Dims& shape, Dims& from) {
  const Resolved resolved(op, list, operands, "reference");
  from = at;
  switch (op) {
    case Op::reshape: {
      std::int64_t place = 0;
      for (std::size_t k = 0; k < at.size(); ++k) place = place * shape[k] + at[k];
      from = Dims(operands[0].size(), 0);
      for (std::size_t k = from.size(); k-- > 0;) {
        from[k] = place % operands[0][k];
        place /= operands[0][k];
      }
      return 0;
    }
    case Op::transpose:
    case Op::swapaxes: {
      const std::vector<std::size_t> order = resolved.order();
      for (std::size_t k = 0; k < order.size(); ++k) from[order[k]] = at[k];
      return 0;
    }
    case Op::slice: {
      const std::size_t axis = resolved.axis();
      from[axis] = resolved.range().first + at[axis] * resolved.range().step;
      return 0;
    }
    case Op::expand_dims: from = without(at, resolved.new_axis()); return 0;
    case Op::squeeze: from = with(at, resolved.axis(), 0); return 0;
    default: {
      const std::size_t axis = resolved.axis();
      if (at[axis] < operands[0][axis]) return 0;
      from[axis] -= operands[0][axis];
      return 1;
    }
  }
}

std::optional<ArrayLayout> result_layout(Op op, const ShapeList& list, const Dims& operand,
                                         const Dims& shape, const ArrayLayout& layout) {
  const Resolved resolved(op, list, std::span(&operand, 1), "view");
  ArrayLayout result = layout;
  switch (op) {
    case Op::reshape: {
      std::optional<Dims> strides = reshaped_strides(operand, layout.strides, shape);
      if (!strides) return std::nullopt;
      result.strides = std::move(*strides);
      return result;
    }
    case Op::transpose:
    case Op::swapaxes: result.strides = permuted(layout.strides, resolved.order()); return result;
    case Op::slice: {
      const std::size_t axis = resolved.axis();
      const auto range = resolved.range();
      result.offset += range.first * layout.strides[axis];
      result.strides[axis] *= range.step;
      return result;
    }
    case Op::expand_dims:
      result.strides = with(layout.strides, resolved.new_axis(), 0);
      return result;
    case Op::squeeze: result.strides = without(layout.strides, resolved.axis()); return result;
    default: return std::nullopt;
  }
}

std::optional<ArrayLayout> layout_behind(const Dims& shape, const Dims& seen_shape,
                                         const ArrayLayout& seen, const ArrayLayout& wanted) {
  trace_order(seen.offset, 0);
  trace_order(element_count(shape), element_count(seen_shape));
  if (seen.offset != 0 || element_count(shape) != element_count(seen_shape) ||
      element_count(shape) == 0) {
    return std::nullopt;
  }
  // The axes that are seen, the one with the nearest neighbours first: together they must count
  // through the array without a gap.
  std::vector<std::size_t> axes;
  for (std::size_t k = 0; k < seen_shape.size(); ++k) {
    if (seen_shape[k] != 1) axes.push_back(k);
  }
  std::ranges::sort(axes, {}, [&](std::size_t k) { return seen.strides[k]; });
  for (std::size_t i = 1; i < axes.size(); ++i) {
    trace_order(seen.strides[axes[i - 1]], seen.strides[axes[i]]);
  }
  std::int64_t covered = 1;
  for (const std::size_t k : axes) {
    trace_order(seen.strides[k], covered);
    if (seen.strides[k] != covered) return std::nullopt;
    covered *= seen_shape[k];
  }
  // Each axis of the array is a part of one seen axis, or several whole ones and parts of such, one
  // after the other.
  ArrayLayout result{Dims(shape.size(), 0), wanted.offset};
  std::size_t at = 0;
  std::int64_t taken = 1;  // of axis axes[at]
  for (std::size_t k = shape.size(); k-- > 0;) {
    std::int64_t left = shape[k];
    std::int64_t next = 0;
    for (bool first = true; left > 1; first = false) {
      if (at == axes.size()) return std::nullopt;
      const std::int64_t extent = seen_shape[axes[at]] / taken;
      const std::int64_t stride = wanted.strides[axes[at]] * taken;
      const std::int64_t part = std::min(left, extent);
      trace_order(left, extent);
      trace_divides(left, part);
      trace_divides(extent, part);
      if (!first) trace_order(stride, next);
      if (left % part != 0 || extent % part != 0) return std::nullopt;
      if (!first && stride != next) return std::nullopt;
      if (first) result.strides[k] = stride;
      next = stride * part;
      left /= part;
      taken *= part;
      trace_order(left, 1);
      trace_order(taken, seen_shape[axes[at]]);
      if (taken == seen_shape[axes[at]]) {
        ++at;
        taken = 1;
      }
    }
  }
  return result;
}

}  // namespace kiln::fusion
