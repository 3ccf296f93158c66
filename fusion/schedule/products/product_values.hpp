// Where the values of a kernel of products are computed (product_layout.hpp), and which ways round
// an operation it takes: products that are only added up, sums of small integers that are scaled
// once for each group. The text is for emit/products/products.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/products/product_form.hpp"

namespace kiln::fusion {

/// The axes of such a kernel: batches, columns if there are several, rows, then the reduced ones.
class ProductAxes {
 public:
  explicit ProductAxes(const Schedule& schedule) : schedule_(schedule) {}
  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  std::uint32_t inner() const { return rank() - 1; }
  std::uint32_t first_reduced() const {
    return rank() - static_cast<std::uint32_t>(schedule_.reduction.axes);
  }
  std::uint32_t row_axis() const { return first_reduced() - 1; }
  bool has_columns() const { return schedule_.products.columns > 1; }
  bool in_tiles() const { return schedule_.products.tiles.vectors_per_group > 0; }
  std::uint32_t batch_axes() const { return row_axis() - (has_columns() ? 1 : 0); }
  bool has_lines() const { return schedule_.reduction.axes > 1; }
  bool has_stride(std::size_t operand, std::uint32_t axis) const {
    return axis != inner() && (schedule_.operands[operand].outer_axes >> axis & 1) != 0;
  }

 protected:
  const Schedule& schedule_;
};

/// How often a value is computed within a row, and whether after the reductions. A line is what is
/// contiguous of the reduced elements: a group of weights that share a scale.
enum class Level : std::uint8_t { row, line, element, result };

struct Place {
  Level level = Level::row;
  bool rows = false;     ///< one for each of the thread's rows
  bool columns = false;  ///< and of its columns
};

inline bool adds(const TypedNode& node) { return node.op == Op::sum || node.op == Op::mean; }

class ProductValues : private ProductAxes {
 public:
  ProductValues(const TypedGraph& graph, const Schedule& schedule);

  /// Of a node, and of an operand of the schedule.
  const Place& place(std::size_t id) const { return places_[id]; }
  Place operand_place(std::size_t operand) const;
  /// Of the operand that an input node reads.
  std::size_t operand_of(const TypedNode& input) const;

  /// A product that is added without being rounded.
  bool is_in_sum(std::size_t id) const { return in_sum_[id]; }
  /// A value with one for each element that is computed.
  bool is_wanted(std::size_t id) const { return wanted_[id]; }
  /// How a sum is added up group by group, if it is.
  const std::optional<ProductForm>& form(std::size_t id) const { return forms_[id]; }
  bool has_forms() const;
  /// The only sum, if its terms are 4- or 8-bit numbers times an argument of 16-bit floats: what
  /// tiles can add up.
  std::optional<NodeId> tile_sum() const;
  /// That argument of a sum.
  NodeId tile_vector(NodeId sum) const;
  /// Whether numbers that are not finite would show in every result: then scaled() may be used
  /// (preamble/products.h).
  bool is_quick() const { return quick_; }
  /// From here on every term is computed as it is written.
  void go_carefully();

 private:
  void place_values();
  void find_products();
  void find_forms();
  void find_wanted();
  void find_quick_way();
  bool scales_lane(const TypedNode& node) const;

  const TypedGraph& graph_;
  std::vector<Place> places_;
  std::vector<bool> in_sum_;
  std::vector<bool> wanted_;
  std::vector<std::optional<ProductForm>> forms_;
  bool quick_ = false;
};

}  // namespace kiln::fusion
