// The text of a kernel whose rows share operands (product_layout.hpp), as its parts build it: the
// frame and what is stored (products.cpp), names, places and values (values.cpp),
// the loops in which the sums are added up (sums.cpp), and the tiles that some are
// added up in instead (tiles.cpp). Where values belong is decided before, in
// product_values.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/schedule/products/product_values.hpp"

namespace kiln::fusion {

class ProductEmitter : private ProductAxes {
 public:
  ProductEmitter(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy);
  KernelDescription run(std::string_view function, std::string_view expression);

 private:
  /// A small integer as it was loaded; empty for other values.
  struct Lane {
    std::string text;
    bool liftable = false;  ///< scaled() takes it (preamble/products.h)
  };
  struct OperandText : NamedOperand {
    Place place;
  };

  // The frame.
  void place_operands();
  void collect_parameters();
  void comment(std::string_view function, std::string_view expression);
  void shared_memory();
  void find_item();
  void find_rows(int depth);
  void store_results();
  void emit_results(int depth);
  /// The statement that stores an output.
  std::string store(std::size_t i, const std::string& row) const;

  // Loops over rows and columns, and the names within them.
  bool by_rows(const Place& place) const { return place.rows && rows_ > 1; }
  std::string loops(const Place& place) const;
  std::string extents(const Place& place) const;
  std::string indices(const Place& place) const;
  bool by_columns(const Place& place) const { return place.columns && !one_column_; }
  Place every_result() const { return {Level::result, true, has_columns()}; }

  // The results of a thread, one after the other.
  int results() const { return rows_ * products_.columns; }
  std::string result_index() const;

  // Names and places.
  bool host() const { return schedule_.backend == Backend::host; }
  const std::string& name_of(std::size_t id);
  std::string stride_name(std::size_t operand, std::uint32_t axis) const;
  std::string at(std::uint32_t axis) const;
  bool is_used(const OperandText& operand) const;

  /// Where the row of an operand begins, in elements; empty for 0.
  std::string row_text(std::size_t i) const;
  /// Where from the beginning of an operand's row the line lies that the loop is at, and `element`
  /// of it; empty for 0.
  std::string in_line(std::size_t i, const std::string& element) const;
  std::string place_text(std::size_t i, const std::string& element) const;
  std::string one_element(std::size_t i) const;

  // Values.
  /// What is there once for each row or line, of rows and columns as it depends on them.
  void emit_values(Level level, int depth);
  /// The expression of a node that has to be computed; otherwise sets its value and returns
  /// nothing.
  std::string value_text(std::size_t id);
  void lane_of(std::size_t id, std::size_t i);
  std::string from_lane(const TypedNode& node) const;
  std::string scaled_lane(const TypedNode& node) const;

  // Whole vectors (preamble/products.h), where the host has packed weights and plain arithmetic.
  bool takes_vectors() const;
  bool is_vector(std::size_t id) const;
  bool is_small(std::size_t id) const;
  bool is_exact_product(std::size_t id) const;
  /// Added to what its only user adds to it, without being rounded, which changes no bit.
  bool is_added(std::size_t id) const;
  std::string_view element_type(std::size_t id) const;
  std::string lanes() const;
  std::string_view each_lane() const { return vectors_ ? "KILN_EACH_VECTOR" : "KILN_EACH_LANE"; }
  std::string_view each() const { return vectors_ ? "KILN_EACH_VECTOR" : "KILN_EACH"; }

  // The loop over the elements of the rows.
  bool in_stretches(const TypedNode& node) const;
  void declare_results();
  void sum_up();
  void sum_up_carefully();
  void begin_sums();
  bool in_parts(std::size_t i) const;
  void for_each_vector();
  bool is_loaded(std::size_t i) const;
  Place held(std::size_t i) const;
  void load(std::size_t i, int depth, int width, const std::string& first);
  void shared_elements();
  void rows_elements();
  void rows_values();
  void lane_values();

  // Groups of small integers (ProductForm).
  Place by_row() const { return {Level::line, true, false}; }
  Place of_shared(const ProductForm& form) const;
  void begin_groups();
  void add_shared();
  void end_groups();

  // Tiles (preamble/product_tiles.h).
  void name_tiles();
  void sum_up_in_tiles();
  void rows_of_weights();
  void columns_of_vectors();
  void lines_of_rows();
  void store_tiles();
  void add_tiles_again();
  void sum_up_in_parts();
  void lines_of_parts();
  /// Whether weights are read before the kernel waits for those ahead of it, if a launch says so.
  bool reads_early() const;
  /// The operand of a line's scale, and of its bias or point if there is one.
  std::size_t scales_of_lines() const;
  std::size_t rests_of_lines() const;
  std::string tile_pointer(std::size_t i) const;
  /// Of the weights of two tiles, in the memory that a launch gives a block.
  std::uint32_t held_bytes() const;
  /// Which nodes `wanted` are computed from, themselves included.
  std::vector<bool> all_of(std::vector<NodeId> wanted) const;

  // From terms to sums.
  void joins(int depth);
  void carry_over(int depth, const std::string& guard);
  void end_sums();

  const TypedGraph& graph_;
  ProductValues nodes_;
  const RowSchedule& shares_;
  const ProductSchedule& products_;
  Accuracy accuracy_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  bool vectors_ = false;
  int lanes_per_sum_ = 1;     ///< or vectors
  int rows_ = 1;              ///< that a thread has in the part of the text that is written
  bool one_column_ = false;   ///< there c is a number, not a loop's
  std::vector<bool> wanted_;  ///< there these nodes are; empty: all
  KernelNames identifiers_;
  std::vector<OperandText> operands_;
  std::vector<std::string> values_;
  std::vector<std::string> stored_;  ///< of narrow numbers, as they lie in memory
  std::vector<std::string> names_;
  std::vector<Lane> lanes_;
  std::string first_;  ///< element of the part
  KernelWriter out_{schedule_};
};

}  // namespace kiln::fusion
