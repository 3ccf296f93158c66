// The C++ expression of one node, given those of its operands: the operations, conversions and
// run-time scalars that all emitters share. Which statements there are, and where an element is
// loaded from, is up to each emitter; by which method a value is computed, to NodeMethods.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/device_model.hpp"
#include "fusion/schedule/node_methods.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

class NodeText : public NodeMethods {
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

  /// The expression that is stored to an output whose value is `id`.
  std::string store(NodeId id, std::span<const std::string> values,
                    std::span<const std::string> storage) const;
  /// The expression that is stored to an output on the CPU, where rounding to bf16 takes fewer
  /// instructions if every NaN has its bits in the upper half of an f32.
  std::string store_on_host(NodeId id, std::span<const std::string> values,
                            std::span<const std::string> storage) const;
  std::string narrowed(const TypedNode& node, std::span<const std::string> values) const;
  /// The result of a bitcast or a copy in its storage type.
  std::string bits(const TypedNode& node, std::span<const std::string> values,
                   std::span<const std::string> storage) const;

  /// The value of a run-time scalar that the kernel takes as `parameter`, and the dtype of that
  /// parameter: its node's, which a weak scalar takes from its partner. A scalar that is not used,
  /// or used in several dtypes, is passed as it was given.
  std::string scalar(const TypedNode& node, const std::string& parameter) const;
  DType scalar_dtype(std::size_t argument) const;

  /// Rounding::each rounds every result to its own dtype.
  std::string rounded(const TypedNode& node, std::string text) const;

 private:
  Expression conversion(const TypedNode& node, std::span<const std::string> values) const;
  std::string cast(const TypedNode& node, std::string_view type,
                   std::span<const std::string> values) const;
  std::string operation(const TypedNode& node, std::span<const std::string> values) const;
  std::string_view qualifier(const TypedNode& node) const;

  const TypedGraph& graph_;
  Accuracy accuracy_;
};

}  // namespace kiln::fusion
