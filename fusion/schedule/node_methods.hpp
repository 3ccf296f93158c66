// By which methods the values of a graph are computed: which functions may be cheaper ones, which
// quotients products, and which values are needed as they lie in memory. It follows from the graph,
// the accuracy and the backend, whatever the kernel's form; fusion/emit/node_text.hpp writes it.
#pragma once

#include <optional>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/device_model.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

class NodeMethods {
 public:
  /// `graph` must live as long as this.
  NodeMethods(const TypedGraph& graph, Accuracy accuracy, Backend backend);

  /// Narrow numbers pass from memory to memory, and are reinterpreted, without a conversion, which
  /// would not preserve every infinity and NaN. Whether `id` is needed in its storage type, and
  /// whether as a value.
  bool needs_storage(NodeId id) const { return needs_storage_[id]; }
  bool needs_value(NodeId id) const { return needs_value_[id]; }
  /// Whether a conversion rounds to a dtype that is not computed in, and its result in the storage
  /// type.
  bool rounds(const TypedNode& node) const;
  /// The operand of a rounding cast, since storing rounds as well; else the value itself.
  NodeId unrounded(NodeId id) const;

  /// Whether `id` ends only in 16 bits, so that Accuracy::storage allows a cheaper method.
  bool is_narrow(NodeId id) const { return narrow_[id] && may_be_narrow(graph_.nodes[id].dtype); }
  /// Whether `id` is an exponential that only sums take, and so may be computed by
  /// narrow::exp_term.
  bool is_term(NodeId id) const { return terms_[id]; }
  bool has_terms() const { return has_terms_; }
  /// Whether `id` is a quotient by a constant that need not be the correctly rounded one, so that
  /// it is a product with the reciprocal.
  bool is_loose(NodeId id) const { return loose_[id]; }
  /// Whether every NaN has its bits in the upper half of an f32: NaNs come only from arithmetic and
  /// from types of at most 16 bits.
  bool has_short_nans() const { return short_nans_; }

 private:
  void find_narrow();
  bool may_be_narrow(DType dtype) const;
  void find_terms();
  void find_loose();
  void find_storage();

  const TypedGraph& graph_;
  Accuracy accuracy_;
  Backend backend_;
  bool short_nans_;
  std::vector<bool> narrow_;
  std::vector<bool> terms_;
  bool has_terms_ = false;
  std::vector<bool> loose_;
  std::vector<bool> needs_storage_;
  std::vector<bool> needs_value_;
};

/// 1 / the constant, if it is a normal number as the constant is.
std::optional<TypedNode> reciprocal_of(const TypedNode& node);

}  // namespace kiln::fusion
