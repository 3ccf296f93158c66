// Shape ops: reshape, transpose, swapaxes, slice, expand_dims, squeeze and concat, which move
// elements and compute nothing. What their parameters mean is here and nowhere else: the shape of
// the result, the place that each element comes from, and the strides of a view that does the same.
//
//   reshape      extents; -1 is what is left, 0 the extent of the operand's axis at that place
//   transpose    axes in their new order; none: reversed
//   swapaxes     two axes
//   slice        axis, start, stop, step as in Python (kOmitted: left out); a fifth entry means
//                that start must be an element
//   expand_dims  where the new axis of one element is in the result
//   squeeze      an axis of one element, which goes
//   concat       the axis along which the second operand follows the first
// Axes may be negative, from the end.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fusion/graph/indexed_axis.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

using ShapeList = std::vector<std::int64_t>;

inline constexpr std::int64_t kOmitted = INT64_MIN;

/// Where the elements of a value lie: in elements, from the first one of some array.
struct ArrayLayout {
  Dims strides;
  std::int64_t offset = 0;
  IndexedAxis indexed{};  ///< of what is read or written at places that data says
  friend bool operator==(const ArrayLayout&, const ArrayLayout&) = default;
};

/// The parameters of a shape op.
const ShapeList& shape_list(const TypedGraph& graph, const TypedNode& node);

/// The result's shape. Throws Error(invalid_argument) that names `function`, the op, what was
/// expected and what was given.
Dims result_shape(Op op, const ShapeList& list, std::span<const Dims> operands,
                  std::string_view function);

/// Which operand the element at `at` of the result is of, and where there (written to `from`).
std::size_t element_source(Op op, const ShapeList& list, std::span<const Dims> operands,
                           const Dims& at, const Dims& shape, Dims& from);

/// The layout of the result where the operand has `layout`; nothing if strides cannot express it.
/// Not for concat.
std::optional<ArrayLayout> result_layout(Op op, const ShapeList& list, const Dims& operand,
                                         const Dims& shape, const ArrayLayout& layout);

/// Elements of a C-ordered array of `shape` are seen through `seen` over `seen_shape`, all of them
/// and each once. If they are to be seen at `wanted`, where does the array itself have to lie?
/// Nothing if no strides do it, or if not all elements are seen.
std::optional<ArrayLayout> layout_behind(const Dims& shape, const Dims& seen_shape,
                                         const ArrayLayout& seen, const ArrayLayout& wanted);

// ---- Building ----------------------------------------------------------------------------------

NodeId reshape(Graph& graph, NodeId value, std::span<const std::int64_t> extents);
NodeId transpose(Graph& graph, NodeId value, std::span<const std::int64_t> axes);
NodeId swapaxes(Graph& graph, NodeId value, std::int64_t a, std::int64_t b);
NodeId slice(Graph& graph, NodeId value, std::int64_t axis, std::int64_t start, std::int64_t stop,
             std::int64_t step);
/// The elements at `index` along `axis`, which goes.
NodeId select(Graph& graph, NodeId value, std::int64_t axis, std::int64_t index);
NodeId expand_dims(Graph& graph, NodeId value, std::int64_t axis);
NodeId squeeze(Graph& graph, NodeId value, std::int64_t axis);
NodeId concat(Graph& graph, std::int64_t axis, std::span<const NodeId> values);
/// concat() along a new axis.
NodeId stack(Graph& graph, std::int64_t axis, std::span<const NodeId> values);

/// One item between the brackets of x[...].
struct Subscript {
  enum class Kind : std::uint8_t { slice, index, new_axis, rest };
  Kind kind = Kind::slice;
  std::int64_t start = kOmitted;
  std::int64_t stop = kOmitted;
  std::int64_t step = 1;
  std::optional<NodeId> end{};  ///< of a slice `:n` whose stop is a value (indexed.hpp)
};
/// NumPy's basic indexing, and bounds. Throws Error(invalid_argument) for more than one `...`.
NodeId subscript(Graph& graph, NodeId value, std::span<const Subscript> items);

/// The shape op of that name as the text form writes it: reshape(x, extent...), transpose(x,
/// axis...), swapaxes(x, a, b), slice(x, axis, start, stop, step = 1), expand_dims(x, axis),
/// squeeze(x, axis), concat(axis, x...), stack(axis, x...), numbers being integer literals.
std::optional<NodeId> call_shape_op(Graph& graph, std::string_view function,
                                    std::span<const NodeId> arguments);
std::span<const std::string_view> shape_op_names();

}  // namespace kiln::fusion
