// Writes matrix-vector products (product_layout.hpp): the frame and stores (products.cpp), names,
// offsets and values (values.cpp), the loops that add up sums (sums.cpp), values of groups
// (groups.cpp), what is looked up by codes (codes.cpp), integer products (integers.cpp, on the CPU
// stages.cpp), matrix instructions (tiles.cpp), and what comes before the rows (prologue.cpp).
// Where values are computed is decided in product_values.hpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/schedule/products/product_loops.hpp"
#include "fusion/schedule/products/product_values.hpp"
#include "fusion/schedule/products/prologue.hpp"

namespace kiln::fusion {

class ProductEmitter : private ProductAxes {
 public:
  ProductEmitter(const TypedGraph& graph, const Schedule& schedule, const ProductLoops& loops,
                 Accuracy accuracy);
  KernelDescription run();

 private:
  /// A small integer as it was loaded; empty for other values.
  struct Lane {
    std::string text;
    bool liftable = false;  ///< scaled() takes it (preamble/products.h)
  };
  struct OperandText : NamedOperand {
    Scope scope;
    bool iota = false;  ///< no array but the number of a row or column along an axis
  };

  // The frame.
  void collect_operands();
  void collect_parameters();
  void shared_memory();
  /// The shared memory in which threads combine what they have of a sum.
  std::string slots_of(std::size_t sum) const;
  void find_item();
  void find_rows(int depth);
  void store_results();
  void emit_results(int depth);
  /// The node that says where an output is stored or an input read; null if none does.
  const NodeId* place_of(std::size_t i) const;
  /// The statement that stores an output.
  std::string store(std::size_t i, const std::string& of_row) const;

  // Loops over rows and columns, and the names within them.
  bool by_rows(const Scope& scope) const { return scope.rows && loops_.rows > 1; }
  std::string loops(const Scope& scope) const;
  std::string extents(const Scope& scope) const;
  std::string indices(const Scope& scope) const;
  bool by_columns(const Scope& scope) const { return scope.columns && !one_column_; }
  Scope every_result() const { return {Level::result, true, has_columns()}; }

  // The results of a thread, one after the other.
  int results() const { return loops_.rows * products_.columns; }
  std::string result_index() const;

  // Names and offsets.
  bool host() const { return schedule_.backend == Backend::host; }
  std::string at(std::uint32_t axis) const;
  bool is_used(const OperandText& operand) const;
  /// Whether threads side by side take neighbouring rows (preamble/products.h).
  bool goes_across() const { return products_.beside != 0; }
  /// CPU: whether the rows of a work item are as many as have lines of memory.
  bool takes_lines() const { return host() && products_.across; }
  std::string row_of_lines() const;

  /// The offset of an operand's row, in elements; empty for 0.
  std::string row_text(std::size_t i) const;
  /// The same by the row's coordinates, or what an iota gives there.
  std::string row_offset(std::size_t i) const;
  std::string row_number(const TypedNode& iota) const;
  /// The offset of `element` of the current group from the beginning of an operand's row; empty for
  /// 0.
  std::string in_group(std::size_t i, const std::string& element) const;
  std::string one_element(std::size_t i) const;

  // Vectors whose elements lie anywhere (preamble/products.h).
  void find_gathered(int depth);
  /// Of what functions load.
  int alignment_of(std::size_t i) const {
    constexpr int kGathered = 16;  // Gathered (preamble/products.h)
    return is_gathered(i) ? kGathered : schedule_.operands[i].alignment;
  }
  int gathered_run(std::size_t i, int width) const;
  std::string gathered(std::size_t i, int width, const std::string& first) const;
  std::string gathered_from(std::size_t i, const std::string& row) const;
  std::vector<std::string> gather(std::size_t i, int width, const std::string& first,
                                  const Scope& scope) const;
  std::string gathered_row(std::size_t i, const Scope& scope) const;

  // Writes the values of a level, for rows and columns as each depends on them.
  void emit_values(Level level, int depth);
  void emit_row_value(std::size_t id, int depth);
  /// The expression of a node that must be computed; else sets its value and returns nothing.
  std::string value_text(std::size_t id);
  void lane_of(std::size_t id, std::size_t i);
  std::string from_lane(const TypedNode& node) const;
  std::string scaled_lane(const TypedNode& node) const;

  // Vectors of floats (preamble/product_vectors.h) for plain arithmetic: SIMD vectors of small
  // weights on the CPU, pairs on AMD GPUs.
  bool in_pairs() const { return loops_.in_vectors && !host(); }
  /// For each value of an element the operand of packed weights, if it is computed from these and
  /// from values of rows and groups alone: there is one result for each of their codes.
  std::vector<std::optional<std::size_t>> packed_origins() const;
  std::string_view element_type(std::size_t id) const;
  std::string lanes() const;
  std::string_view each_lane() const {
    return loops_.in_vectors ? "KILN_EACH_VECTOR" : "KILN_EACH_LANE";
  }
  std::string_view each() const {
    return loops_.staged || takes_lines() ? "KILN_EACH_ROLLED"
           : loops_.in_vectors            ? "KILN_EACH_VECTOR"
                                          : "KILN_EACH";
  }

  // The loop over the elements of the rows, in turns (ProductSchedule::turns).
  bool sums_in_blocks(const TypedNode& node) const;
  /// CPU: whether groups, which vectors do not go beyond, are gone through in a loop of their own.
  bool goes_group_by_group() const { return host() && has_groups() && !products_.tree; }
  bool has_parts() const { return products_.lanes < schedule_.width; }
  std::string sums_type(const TypedNode& node) const;
  std::string turn_type(const TypedNode& node) const;
  std::string fold_of(std::string_view op, int lanes) const;
  void declare_results();
  void sum_up();
  void begin_turns();
  void end_turns();
  /// Writes the statement by which results become the totals of `lanes`, or of a turn and of those
  /// before it.
  void take_total(NodeId sum, const std::string& total);
  void recompute_non_finite();
  void begin_sums();
  void begin_vectors();
  void end_vectors();

  // Values of groups: on the CPU those of several groups at a time, which are declared before the
  // loop over groups.
  void group_values();
  void compute_group_values();
  void compute_group_values(bool of_rows);
  void load_group_value(std::size_t id);
  void begin_several_groups();
  void declare_of_group(std::string_view type, const std::string& name, const Scope& scope);
  void keep_of_group(std::string_view type, const std::string& name, const Scope& scope);
  std::string group_loops(const Scope& scope) const;
  std::string form_loops(const Scope& scope) const;
  std::string set_of_group(const std::string& name, const Scope& scope,
                           const std::string& value) const;
  std::string of_form(NodeId part) const;
  std::string group_indices(const Scope& scope) const;
  void for_each_vector();
  bool is_loaded(std::size_t i) const;
  bool has_packed_elements() const;
  Scope loaded_scope(std::size_t i) const;
  std::string row_and_first(std::size_t i, const std::string& first) const;
  void load(std::size_t i, int depth, int width, const std::string& first);
  void prefetch(std::size_t i, int depth, int width, const Scope& scope, const std::string& lanes);
  void row_invariant_elements();
  void rows_elements();
  void rows_values();
  void lane_values();
  void results_of_codes();

  // Groups of small weights (ProductForm).
  /// Where a value of a group is computed that depends on `parts`.
  Scope of_group(std::initializer_list<std::optional<NodeId>> parts) const;
  Scope of_zero_point(const ProductForm& form) const;
  Scope of_offset(const ProductForm& form) const;
  Scope of_activation(const ProductForm& form) const;
  void begin_groups();
  void begin_integers(NodeId sum);
  Scope of_scales(const ProductForm& form) const;
  /// The loop in which a value of an element is computed: that of a part of a vector, that of a row
  /// or that of a row's columns.
  enum class Loop : std::uint8_t { part, row, result };
  Loop loop_of(NodeId element) const;
  void add_activations(Loop loop);
  void end_groups();

  // Integer products (preamble/product_integers.h).
  void sum_integers();
  void load_integers();
  void add_integers(NodeId sum);
  std::string integer_vector(const ProductForm& form) const;

  // The same on the CPU, but where results are recomputed.
  bool in_stages() const { return loops_.staged && nodes_.in_integers(); }
  void sum_in_stages(const std::vector<NodeId>& sums);
  bool has_rest(NodeId sum) const;
  void stage_vectors(const std::vector<NodeId>& sums);
  void add_rests(NodeId sum);
  void multiply_staged(const std::vector<NodeId>& sums);
  std::string loops_beside(const Scope& scope) const;
  std::string extents_beside(const Scope& scope) const;
  std::string indices_beside(const Scope& scope) const;
  std::vector<std::size_t> weights_of(const std::vector<NodeId>& sums) const;
  void declare_beside(const std::vector<NodeId>& sums);
  void find_weights(const std::vector<NodeId>& sums, int depth, bool of_columns);
  void gather_weights(std::size_t weights, int depth);
  void transpose_weights(std::size_t weights, int depth);
  std::string beside(const std::string& name, const Scope& scope) const;
  void multiply(NodeId sum, const std::string& to);

  // What rows share, computed before them (prologue.cpp).
  bool has_prologue() const { return products_.prologue.threads != 0; }
  TypedGraph graph_before_rows() const;
  DType staged_dtype() const { return fusion::staged_dtype(graph_, *nodes_.staged()); }
  void declare_prologue();
  void define_loads(bool early);
  void define_prologue();
  std::string staged_column() const;
  std::vector<std::size_t> prologue_vectors() const;
  std::string prologue_lanes(std::size_t i) const;
  void emit_statistic(NodeId id);
  void emit_prologue_elements(NodeId of);
  void load_staged(int depth);

  // Tiles (preamble/product_tiles.h).
  void declare_tiles();
  void sum_tiles();
  void return_row(std::size_t i);
  void return_elements(std::size_t i);
  void rows_of_weights();
  void columns_of_vectors();
  void groups_of_rows();
  void store_tiles();
  void emit_recompute();
  void sum_split_k_tiles();
  void groups_of_split_k();
  /// Whether weights are loaded before the PDL wait, if a launch allows it.
  bool loads_before_pdl_wait() const;
  /// The operand of the groups' scales, and of their biases or zero points if they have any.
  std::size_t scales_of_groups() const;
  std::size_t offsets_of_groups() const;
  std::string tile_pointer(std::size_t i) const;
  std::string tile_column(NodeId x) const;
  std::string_view prologue_argument() const;
  /// A row of a tile is one of a sum: begins a function of such rows, with that sum's operands.
  bool has_two_sums() const { return products_.tiles.sums == 2; }
  std::string_view tile_row() const { return has_two_sums() ? "tile_row" : "row"; }
  std::string tile_rows() const;
  void pick_sum(int depth);
  /// What waves copy to shared memory at a time.
  std::string_view stage_type() const;
  /// Shared memory that the launch must provide.
  std::uint32_t staged_bytes() const;
  /// The nodes that `wanted` are computed from, themselves included.
  std::vector<bool> all_of(std::vector<NodeId> wanted) const;

  // From terms to sums.
  void combine(int depth);
  void carry_over(int depth, const std::string& guard);
  void end_sums();

  const TypedGraph& graph_;
  ProductValues nodes_;
  const RowSchedule& shares_;
  const ProductSchedule& products_;
  const ProductLoops& loops_;
  Accuracy accuracy_;
  NodeText node_text_;
  TypedGraph before_rows_;  ///< the prologue by itself, by which its values are computed
  NodeText prologue_text_;
  std::string_view index_;
  std::string_view signed_index_;
  bool in_row_ = false;       ///< of a loop over rows around what is being written
  bool one_column_ = false;   ///< c is a number there, not the index of a loop
  std::vector<bool> wanted_;  ///< nodes that are written there; empty: all
  KernelNames identifiers_;
  std::vector<OperandText> operands_;
  std::vector<std::string> values_;
  std::vector<std::string> storage_;  ///< of narrow numbers: the text of the storage type
  std::vector<std::string> names_;
  std::vector<Lane> lanes_;
  std::vector<bool> looked_up_;    ///< values that are found by the codes of packed weights
  bool in_groups_ = false;         ///< values of groups are those of several
  std::size_t before_groups_ = 0;  ///< where they are declared
  std::string group_declarations_;
  std::string first_;                                         ///< element of the current part
  ScratchVector<std::pair<std::size_t, std::size_t>> pairs_;  ///< operands of two sums in tiles
  KernelWriter out_{schedule_};
};

}  // namespace kiln::fusion
