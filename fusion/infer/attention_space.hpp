// Attention in a graph: softmax(f(sum(q * k over the depth))) weighted over the keys, as
//
//   product = sum of anything over the depth axis      [..., keys, 1]
//   scores  = any function of it, element by element
//   largest = max(scores), weights = exp(scores - largest), total = sum(weights) over the keys
//   result  = sum(weights / total * values) over the keys, or sum(weights * values)
//
// found by structure, whatever the axes' order and whatever scales, masks and caps the scores. Keys
// and values may be taken from where data says, each key's row from one place (Op::take). The
// iteration space of a kernel that computes one in one pass over keys and values, and in how many
// parts long rows of keys are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/bounds.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// What a node of an attention is needed for, as bits.
enum AttentionSide : std::uint8_t {
  kProductSide = 1,  ///< what is summed over the depth
  kScoreSide = 2,    ///< the scores, from the products on
  kValueSide = 4,    ///< what is weighted
  kResultSide = 8,   ///< what comes after the sums over the keys
  kEndSide = 16,     ///< where the keys end
};

/// One attention among the nodes of a graph. Axes are those of shapes that are brought to one rank.
struct AttentionNodes {
  NodeId product = 0;
  NodeId scores = 0;
  NodeId largest = 0;
  NodeId weights = 0;
  NodeId total = 0;
  NodeId values = 0;           ///< what the weights are multiplied by
  NodeId result = 0;           ///< a sum over the keys
  bool normalised = false;     ///< the weights are divided by their sum before they are multiplied
  std::size_t key = 0;         ///< the axis over which the softmax goes
  std::size_t depth = 0;       ///< that over which the products are summed
  std::size_t value = 0;       ///< that of the values' elements: may be `depth`
  std::vector<NodeId> inside;  ///< computed within, ascending: used by each other, but for
                               ///< `largest`, `total` and `result`
  Ends ends;                   ///< where the keys end: the same for all that runs over them, and
                               ///< for every element of a key or a value
  friend bool operator==(const AttentionNodes&, const AttentionNodes&) = default;
};

/// Every attention of a graph with those shapes. `kept` are nodes that are stored whatever kernel
/// computes them; empty: the outputs. `bounds` are those of the space of each node
/// (infer/bounds.hpp), or fewer where the others have none. What needs a result comes after all of
/// `inside`. Attention may end along the keys alone.
std::vector<AttentionNodes> find_attention(const TypedGraph& graph, std::span<const Dims> shapes,
                                           const std::vector<bool>& kept = {},
                                           std::span<const Ends> bounds = {});
/// Those of a graph in which bounds are ops.
std::vector<AttentionNodes> find_attention(const ShapedGraph& graph);

/// What a kernel runs over: the axes of its values, then the axis of the values' elements.
struct AttentionSpace {
  Dims shape;  ///< of `nodes.value` only the last axis has more than one element, unless that is
               ///< `nodes.depth`
  AttentionNodes nodes;
  std::vector<std::uint8_t> sides;  ///< of each node, as bits of AttentionSide
  std::int64_t splits = 1;          ///< parts of the keys, with results for each
  std::size_t value_axis() const { return shape.size() - 1; }
};

/// The space of a graph that is one attention, with functions of its results; nothing for others.
std::optional<AttentionSpace> attention_space(const TypedGraph& graph,
                                              std::span<const Dims> shapes);

/// Whether a kernel over `space` can have these extents in place of its own.
bool fits_attention(const AttentionSpace& space, const Dims& shape);

/// Keys are taken so many at a time.
inline constexpr std::int64_t kAttentionTile = 64;
/// In how many parts so many keys are cut, which are multiples of kAttentionTile long, but for the
/// last, and differ by one: a function of their number alone, so that results have the same bits in
/// every batch. A power of two from 1 to 64, so that few ranges of lengths are planned alike.
std::int64_t attention_splits(std::int64_t keys);

}  // namespace kiln::fusion
