// The C++ expression of one node, given those of its operands: the operations, conversions and
// run-time numbers that every kind of kernel writes alike. Which statements there are, and where an
// element is loaded from, is for the kernel's own emitter.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

class NodeText {
 public:
  NodeText(const TypedGraph& graph, Accuracy accuracy);

  struct Expression {
    std::string text;
    bool same = false;  ///< it is another value's name or a literal: there is nothing to compute
  };
  /// Of a node that is neither an argument nor a reduction; `values` has the text of every node
  /// before it, `stored` that of those that are there as they lie in memory too, if any are.
  Expression of(NodeId id, std::span<const std::string> values,
                std::span<const std::string> stored = {}) const;

  /// A narrow number passes from memory to memory, and is reinterpreted, without a conversion,
  /// which would not give every infinity and NaN back: whether `id` must be there as it lies in
  /// memory, and whether as a value.
  bool needs_stored(NodeId id) const { return needs_stored_[id]; }
  bool needs_value(NodeId id) const { return needs_value_[id]; }
  /// What is assigned to an element of the output that holds `id`.
  std::string store(NodeId id, std::span<const std::string> values,
                    std::span<const std::string> stored) const;
  /// The same on the host, where rounding to bf16 takes fewer instructions if every NaN has its
  /// bits in the upper half of an f32.
  std::string store_on_host(NodeId id, std::span<const std::string> values,
                            std::span<const std::string> stored) const;
  /// A conversion that rounds to a dtype that is not computed in, and its result as it lies in
  /// memory.
  bool rounds(const TypedNode& node) const;
  std::string narrowed(const TypedNode& node, std::span<const std::string> values) const;
  /// The result of a bitcast or a copy as it lies in memory.
  std::string bits(const TypedNode& node, std::span<const std::string> values,
                   std::span<const std::string> stored) const;

  /// Whether `id` is an exponential that only sums take and that is computed as a term of them.
  bool is_term(NodeId id) const { return terms_[id]; }

  /// The value of a run-time number that the kernel takes as `parameter`, and the dtype in which it
  /// takes it: that of its node, which a weak one takes from its partner. One that is not used, or
  /// used in several dtypes, enters as it came.
  std::string scalar(const TypedNode& node, const std::string& parameter) const;
  DType scalar_dtype(std::size_t argument) const;

  /// Rounding::each rounds every result to its own dtype.
  std::string rounded(const TypedNode& node, std::string text) const;

 private:
  void find_narrow();
  void find_terms();
  void find_loose();
  void find_stored();
  Expression conversion(const TypedNode& node, std::span<const std::string> values) const;
  std::string operation(const TypedNode& node, std::span<const std::string> values) const;
  std::string_view qualifier(const TypedNode& node) const;

  const TypedGraph& graph_;
  Accuracy accuracy_;
  bool short_nans_;
  std::vector<bool> narrow_;
  std::vector<bool> terms_;
  std::vector<bool> loose_;  ///< quotients that need not be the correctly rounded ones
  std::vector<bool> needs_stored_;
  std::vector<bool> needs_value_;
};

}  // namespace kiln::fusion
