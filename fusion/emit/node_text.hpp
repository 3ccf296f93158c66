// The C++ expression of one node, given those of its operands: the operations, conversions and
// run-time scalars that all emitters share. Which statements there are, and where an element is
// loaded from, is up to each emitter.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/device_model.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

class NodeText {
 public:
  NodeText(const TypedGraph& graph, Accuracy accuracy, Backend backend);

  struct Expression {
    std::string text;
    bool same = false;  ///< another value's name or a literal: there is nothing to compute
  };
  /// The expression of a node that is neither an argument nor a reduction. `values` has the text of
  /// every node before it, `storage` the text of those that are also there in their storage type.
  Expression of(NodeId id, std::span<const std::string> values,
                std::span<const std::string> storage = {}) const;

  /// Narrow numbers pass from memory to memory, and are reinterpreted, without a conversion, which
  /// would not preserve every infinity and NaN. Whether `id` is needed in its storage type, and
  /// whether as a value.
  bool needs_storage(NodeId id) const { return needs_storage_[id]; }
  bool needs_value(NodeId id) const { return needs_value_[id]; }
  /// The expression that is stored to an output whose value is `id`.
  std::string store(NodeId id, std::span<const std::string> values,
                    std::span<const std::string> storage) const;
  /// The expression that is stored to an output on the CPU, where rounding to bf16 takes fewer
  /// instructions if every NaN has its bits in the upper half of an f32.
  std::string store_on_host(NodeId id, std::span<const std::string> values,
                            std::span<const std::string> storage) const;
  /// Whether a conversion rounds to a dtype that is not computed in, and its result in the storage
  /// type.
  bool rounds(const TypedNode& node) const;
  /// The operand of a rounding cast, since storing rounds as well; else the value itself.
  NodeId unrounded(NodeId id) const;
  std::string narrowed(const TypedNode& node, std::span<const std::string> values) const;
  /// The result of a bitcast or a copy in its storage type.
  std::string bits(const TypedNode& node, std::span<const std::string> values,
                   std::span<const std::string> storage) const;

  /// Whether `id` is an exponential that only sums take, and so may be computed by
  /// narrow::exp_term.
  bool is_term(NodeId id) const { return terms_[id]; }
  bool has_terms() const { return has_terms_; }

  /// The value of a run-time scalar that the kernel takes as `parameter`, and the dtype of that
  /// parameter: its node's, which a weak scalar takes from its partner. A scalar that is not used,
  /// or used in several dtypes, is passed as it was given.
  std::string scalar(const TypedNode& node, const std::string& parameter) const;
  DType scalar_dtype(std::size_t argument) const;

  /// Rounding::each rounds every result to its own dtype.
  std::string rounded(const TypedNode& node, std::string text) const;

 private:
  void find_narrow();
  bool may_be_narrow(DType dtype) const;
  void find_terms();
  void find_loose();
  void find_storage();
  Expression conversion(const TypedNode& node, std::span<const std::string> values) const;
  std::string operation(const TypedNode& node, std::span<const std::string> values) const;
  std::string_view qualifier(const TypedNode& node) const;

  const TypedGraph& graph_;
  Accuracy accuracy_;
  Backend backend_;
  bool short_nans_;
  std::vector<bool> narrow_;
  std::vector<bool> terms_;
  bool has_terms_ = false;
  std::vector<bool> loose_;  ///< quotients that need not be the correctly rounded ones
  std::vector<bool> needs_storage_;
  std::vector<bool> needs_value_;
};

}  // namespace kiln::fusion
