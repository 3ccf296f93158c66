// The iteration space of a graph that reduces: which of its values are rows and which are one
// number per row, and whether one kernel can compute them all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// What a kernel runs over: the shape of whole values, and which of its axes are reduced. Values of
/// the graph have that shape, or that shape with size one along the reduced axes, or broadcast to
/// it.
struct ReduceSpace {
  Dims shape;
  std::vector<bool> reduced;
  std::string conflict;  ///< why one kernel cannot compute the graph; else empty
  int reductions = 0;    ///< in the graph
  int passes = 1;        ///< over the elements of a row: until the last reduction is known, and
                         ///< one that stores what depends on reductions
  int trees = 0;         ///< sums and products of floats in the pass with most of them
  int tree_bytes = 4;    ///< of the widest partial result of any of them
  std::vector<bool> read_again = {};  ///< of each array argument, whether several passes read it
  std::int64_t splits = 1;    ///< parts of each row, with a result for each: a split reduction
  bool gives_places = false;  ///< a reduction gives where in a row an element is
  Dims row_shape() const;     ///< `shape` with size one along the reduced axes
  Dims split_shape() const;   ///< the results': row_shape() with `splits` along one axis
};

/// The longest of the axes that are reduced from `from` to `to`, which a split reduction splits: it
/// has more elements than there are splits.
std::size_t split_axis(const Dims& from, const Dims& to);

/// Reductions over axes that already have size one become conversions. `shapes` is brought into
/// step.
TypedGraph drop_trivial_reductions(const TypedGraph& graph, std::vector<Dims>& shapes);

/// Whether the order shows in which a reduction takes elements.
bool sums_floats(const TypedNode& reduction);

/// The space of a graph without trivial reductions.
ReduceSpace reduce_space(const TypedGraph& graph, std::span<const Dims> shapes);

/// Whether a value of that shape is row-invariant: has one element for each row.
bool is_row_invariant(const Dims& shape, const ReduceSpace& space);

/// The axes of the graph's iotas that count along axes that are reduced.
std::vector<std::int64_t> iotas_within_rows(const TypedGraph& graph, const ReduceSpace& space);

/// Of each node, whether it is row-invariant, given which arguments are, and which iotas are not.
std::vector<bool> row_invariant_nodes(const TypedGraph& graph,
                                      const std::vector<bool>& row_invariant_arguments,
                                      std::span<const std::int64_t> iotas_within_rows);

}  // namespace kiln::fusion
