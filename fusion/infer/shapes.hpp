// Shapes: what each value of a typed graph has, from the shapes of the arguments. Only graphs with
// reductions, shape ops or calls need them; where every op works element by element the outputs'
// shape says it all.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// Whether there are reductions or running results.
bool works_along_axes(const Graph& graph);
bool works_along_axes(const TypedGraph& graph);

/// Whether it has a custom call, which a text form does not say.
bool has_custom_calls(const Graph& graph);

/// The first op that only a Program can do, a shape op or a custom call; null if none.
const OpInfo* program_op(const Graph& graph);

/// Whether there are indexed ops (graph/indexed.hpp).
bool has_indexed(const Graph& graph);

/// The values of a tuple.
std::vector<NodeId> tuple_values(const TypedGraph& graph, NodeId tuple);

/// The graph with its shapes, where every iota runs over the shape of what it is a part of:
/// the value that is stored, reduced, reshaped or given to a call. An iota that is a part of
/// several is copied for each, and its axis is counted from the end. Throws as infer_shapes() does.
ShapedGraph shape_graph(const TypedGraph& graph, std::span<const Dims> arguments,
                        std::string_view function);

/// The shape of every node. `arguments` has one shape for each argument, an empty one for a scalar.
/// For graphs without iota. Operands are broadcast; a reduction keeps its axes with size one.
/// Throws Error(invalid_argument) that names `function` and the shapes that do not fit.
std::vector<Dims> infer_shapes(const TypedGraph& graph, std::span<const Dims> arguments,
                               std::string_view function);

/// The axes of `shape`, of which some have been reduced to size one, without those.
Dims without_axes(const Dims& shape, const std::vector<bool>& axes);

}  // namespace kiln::fusion
