// What a partition asks about the values of a graph, whatever kernels they will be in: what is
// stored anyway, what depends on arguments alone, what reads an iota, what is only converted. Where
// values go is in partition.cpp, and what of them is stored in stores.cpp.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "fusion/partition/partition.hpp"

namespace kiln::fusion {

/// No operands.
bool is_leaf(const TypedNode& node);

/// Of what is seen of a stored index (passes/store_iotas.cpp), the axis along which it counts,
/// from the end. Nothing of other values, and of parts of an index.
std::optional<std::int64_t> counted_axis(const PlacedGraph& graph, NodeId id);

/// Which values an operation or a call reads through a view.
std::vector<bool> seen_as_views(const PlacedGraph& graph);

struct PartitionFacts {
  explicit PartitionFacts(const PlacedGraph& placed);

  const PlacedGraph& graph;
  const std::vector<TypedNode>& nodes;
  std::vector<Dims> shapes;        ///< of one rank
  std::vector<bool> kept;          ///< stored whatever kernel computes it
  std::vector<bool> seen_as_view;  ///< read through a view
  std::vector<bool> alone;         ///< depends on arguments and stored indices alone
  std::vector<bool> early;         ///< computed before all others: see find_early()
  std::vector<bool> reduced;       ///< a reduction depends on it
  std::vector<bool> after_iota;    ///< of an iota that is not stored, and no reduction between
  std::vector<bool> says_places;   ///< computed for nothing but where put stores

  /// What is read in one dtype and computed with in another: each reader converts it.
  bool is_conversion(NodeId id) const;
  bool is_view_of_argument(NodeId id) const;
  bool is_view_of_indices(NodeId id) const;
  /// An index that the pass store_iotas stores; kernels before all others do.
  bool is_stored_index(NodeId id) const;
  /// Stored by another kernel before the one that reads it begins, whatever kernel that is.
  bool is_deferred(NodeId id) const;
  /// Read from an argument or a deferred array, perhaps in another dtype.
  bool is_in_memory(NodeId id) const;
  /// What is read for a value, and the array that this is in.
  NodeId read_of(NodeId id) const;
  NodeId array_of(NodeId id) const;
  /// Stored with two elements in each byte, which no kernel does that reduces or runs along an
  /// axis.
  bool stores_packed(NodeId id) const;
  /// Reads packed numbers, two in each byte, at places that are data.
  bool takes_packed(NodeId id) const;
  /// Reads or stores at places that are data.
  bool has_places(NodeId id) const { return nodes[id].op == Op::take || nodes[id].op == Op::put; }
  /// Whether what put stores has fewer elements than there are places for.
  bool repeats_value(NodeId id) const {
    return nodes[id].op == Op::put && shapes[nodes[id].operands[0]] != shapes[id];
  }
  /// PlacedGraph::bounds; none where there are none.
  const std::vector<BoundedAxis>& bounds(NodeId id) const {
    return id < graph.bounds.size() ? graph.bounds[id] : no_bounds_;
  }
  /// The argument that a value of put updates; nothing for any other.
  std::optional<NodeId> updates(NodeId id) const;
  /// Whether one of its operands is an iota.
  bool reads_iota(NodeId id) const;
  /// Whether a value takes fewer bytes than any that it is computed from and that has its elements.
  bool narrows(NodeId id) const;
  /// The axes that a reduction reduces, and that of a running result, from 1.
  std::vector<bool> reduced_by(NodeId id) const;
  std::size_t running_axis(NodeId id) const;

 private:
  void pad_shapes();
  void find_kept();
  void find_early();
  void find_alone();
  void find_reduced();
  void find_updates();
  void find_places();

  std::vector<BoundedAxis> no_bounds_;
  std::map<NodeId, NodeId> updates_;  ///< of values of put, the argument
};

}  // namespace kiln::fusion
