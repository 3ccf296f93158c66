// Where the values of a matrix-vector product are computed (product_layout.hpp), and which
// computations take a cheaper form: products that are only added up, and sums of small integers
// that are scaled once for each group. emit/products/products.cpp writes the text.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/products/product_form.hpp"

namespace kiln::fusion {

/// The axes of such a kernel: batches, columns if there are several, rows, then the reduced ones.
class ProductAxes {
 public:
  explicit ProductAxes(const Schedule& schedule) : schedule_(schedule) {}
  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  /// The first of those that vectors go along.
  std::uint32_t inner() const {
    return rank() - static_cast<std::uint32_t>(schedule_.products.vector_axes);
  }
  std::uint32_t first_reduced() const {
    return rank() - static_cast<std::uint32_t>(schedule_.reduction.axes);
  }
  std::uint32_t row_axis() const { return first_reduced() - 1; }
  bool has_columns() const { return schedule_.products.columns > 1; }
  bool in_tiles() const { return schedule_.products.tiles.steps_per_group > 0; }
  std::uint32_t batch_axes() const { return row_axis() - (has_columns() ? 1 : 0); }
  bool has_groups() const { return schedule_.reduction.axes > schedule_.products.vector_axes; }
  bool has_stride(std::size_t operand, std::uint32_t axis) const {
    return schedule_.has_stride(operand, axis);
  }
  /// Whether the elements of an operand's vectors lie anywhere (preamble/products.h).
  bool is_gathered(std::size_t operand) const {
    return schedule_.operands[operand].access == Access::strided ||
           schedule_.operands[operand].access == Access::transposed;
  }
  /// Whether each of them is loaded for all rows of a thread at once.
  bool is_across(std::size_t operand) const {
    return schedule_.operands[operand].access == Access::transposed && !in_tiles();
  }
  /// Whether lines of neighbouring rows are copied, for matrix instructions.
  bool is_in_lines(std::size_t operand) const {
    return schedule_.operands[operand].access == Access::transposed && in_tiles();
  }

 protected:
  const Schedule& schedule_;
};

/// The CPU adds up in SIMD vectors of so many floats at least.
inline constexpr int kLeastSimdWidth = 16;

/// Whether a reduction adds its terms up.
inline bool adds(const TypedNode& node) { return node.op == Op::sum || node.op == Op::mean; }

class ProductValues : private ProductAxes {
 public:
  ProductValues(const TypedGraph& graph, const Schedule& schedule);

  /// The scope of a node, and of an operand of the schedule.
  const Scope& scope(std::size_t id) const { return scopes_[id]; }
  Scope operand_scope(std::size_t operand) const;
  /// The index of the operand that an input node reads.
  std::size_t operand_of(const TypedNode& input) const;

  /// Whether a node is a product that is added to a sum without being rounded.
  bool is_in_sum(std::size_t id) const { return in_sum_[id]; }
  /// Whether a node is a product that f32 holds exactly: of a small integer by a narrow float, or
  /// of two f16.
  bool is_exact_product(std::size_t id) const;
  /// Whether a value is computed, of those with one for each element.
  bool is_wanted(std::size_t id) const { return wanted_[id]; }
  /// The vector that every block computes before its rows, from statistics of vectors, and keeps in
  /// shared memory; null if there is none.
  const std::optional<NodeId>& staged() const { return staged_; }
  /// Whether a node is such a statistic: a reduction of which another one is made.
  bool is_statistic(std::size_t id) const { return statistics_[id]; }
  /// Whether a node is computed before the rows, or with them. Some are both.
  bool is_in_prologue(std::size_t id) const { return in_prologue_[id]; }
  bool is_in_main(std::size_t id) const { return in_main_[id]; }
  /// Whether a vector of a row is loaded: an argument, or what is staged.
  bool is_vector(std::size_t id) const {
    return graph_.nodes[id].op == Op::input || staged_ == static_cast<NodeId>(id);
  }
  /// The form of a sum that is added up group by group, if it is.
  const std::optional<ProductForm>& form(std::size_t id) const { return forms_[id]; }
  bool has_forms() const;
  /// Whether every reduction adds integer products up (preamble/product_integers.h).
  bool in_integers() const { return in_integers_; }
  /// Whether all that reductions take are sums, products and conversions, which they add up as
  /// f32: what SIMD vectors may compute (product_loops.cpp).
  bool adds_vectors() const;
  /// The only sum, or the first of two alike, if its terms are 8-bit or 4-bit weights times an
  /// vector of 16-bit floats: what matrix instructions add up.
  std::optional<NodeId> tile_sum() const;
  /// The other sum, if there are two.
  std::optional<NodeId> second_tile_sum() const;
  /// What the two sums read of each row: operands of the first, and those of the second in their
  /// place.
  ScratchVector<std::pair<std::size_t, std::size_t>> paired_operands() const;
  /// The vector of 16-bit floats of such a sum, an argument or staged.
  NodeId tile_vector(NodeId sum) const;
  /// Whether numbers that are not finite would show in every result, so that scaled()
  /// (preamble/products.h) may be used and results that are not finite be recomputed.
  bool has_fast_path() const { return fast_path_; }
  /// Afterwards every term is computed as it is written, of one sum alone if `only` is given: for
  /// the code that recomputes results.
  void disable_fast_path(std::optional<NodeId> only = {});
  /// Whether a node is a reduction, and of those that are computed.
  bool is_summed(std::size_t id) const {
    return is_reduction(graph_.nodes[id].op) && !statistics_[id] && (!only_ || *only_ == id);
  }

 private:
  std::size_t operand_of_iota(const TypedNode& iota) const;
  void find_scopes();
  void find_staged();
  void find_products();
  void find_forms();
  void find_integer_forms();
  void find_wanted();
  void find_fast_path();
  bool scales_lane(const TypedNode& node) const;
  bool is_dequantised_at_once(const ProductForm& form) const;
  bool are_alike(NodeId a, NodeId b,
                 ScratchVector<std::pair<std::size_t, std::size_t>>& pairs) const;

  const TypedGraph& graph_;
  ScratchVector<Scope> scopes_;
  ScratchVector<bool> statistics_;
  std::optional<NodeId> staged_;
  ScratchVector<bool> in_prologue_;
  ScratchVector<bool> in_main_;
  ScratchVector<bool> in_sum_;
  ScratchVector<bool> wanted_;
  ScratchVector<std::optional<ProductForm>> forms_;
  bool in_integers_ = false;
  bool fast_path_ = false;
  std::optional<NodeId> only_;  ///< of the sums
};

}  // namespace kiln::fusion
