// Writes attention: the frame and what attend() is given (attention.cpp), values of keys and
// queries (values.cpp), and what is stored (results.cpp). A value of the graph is computed as far
// out as what it depends on allows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/infer/attention_space.hpp"
#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// What a value differs by within a work item, as bits.
enum Along : std::uint8_t { kQuery = 1, kKey = 2, kLane = 4 };

class AttentionEmitter {
 public:
  AttentionEmitter(const TypedGraph& graph, const AttentionSpace& space, const Schedule& schedule,
                   Accuracy accuracy);
  KernelDescription run();

 private:
  /// What is known at a place of the text.
  struct Known {
    std::vector<std::string> values;  ///< the text of each value, empty where it is not
    std::vector<bool> located;        ///< of each operand that is indexed, whether NAME_at is
  };

  /// The keys or the values: how threads share a row.
  struct Side {
    std::string_view lanes;  ///< the type RowLanes
    std::uint32_t axis = 0;
  };

  // -- Axes

  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  std::uint32_t key_axis() const { return rank() - 3; }
  std::uint32_t depth_axis() const { return rank() - 2; }
  std::uint32_t value_axis() const { return rank() - 1; }
  std::uint32_t first_query_axis() const;
  bool is_host() const { return schedule_.backend == Backend::host; }

  bool moves_along(std::size_t i, std::uint32_t axis) const;

  /// An operand's stride along the depth or the values' elements is 1 where it is contiguous.
  bool has_stride(std::size_t i, std::uint32_t axis) const;
  std::size_t iota_of(const TypedNode& node) const;
  std::size_t operand_of(const TypedNode& node) const;
  std::string name_of(std::size_t i) const;
  bool is_indexed(std::size_t i) const { return schedule_.operands[i].indexing != Indexing::none; }
  /// The value that says where an indexed operand is: the same for all queries and lanes.
  NodeId place_node(std::size_t i) const { return *graph_.place_of(false, operands_[i].argument); }
  /// Whether `id` is an operand's row for each key, which is loaded before it is computed with.
  bool is_row_of_key(NodeId id) const {
    return graph_.nodes[id].op == Op::input && moves_[id] == (kKey | kLane);
  }
  std::string stride_of(std::size_t i, std::uint32_t axis) const;
  /// What each value differs by, where `lanes` is the axis of the lanes of what it is needed for.
  void find_moves();
  void collect_parameters();

  // -- The frame

  static std::string lanes_text(const AttentionLanes& lanes);
  void declare_form();
  void begin_item();
  /// The keys of the work item: none where its part begins beyond the end.
  void emit_keys();
  /// Where an operand's element is for query `q` and a key.
  std::string place(std::size_t i) const;

  // -- Values

  /// What a value needs that has not been computed yet, operands first, itself included.
  std::vector<NodeId> missing(std::vector<NodeId> wanted) const;
  std::string element(const TypedNode& node, const std::string& text) const;
  /// An element of an operand, or 0 where it is not there.
  std::string loaded_element(const TypedNode& node, const std::string& text) const;
  /// Where an indexed operand's elements are: NAME_there, and from its first row NAME_at.
  void locate(int depth, std::size_t i);
  /// One number, in a statement of its own unless it is another one's name.
  void define(int depth, NodeId id);
  void name_value(int depth, NodeId id, const std::string& text);
  void emit_invariants();
  /// The lanes of an operand's row, as a vector of a GPU or part of the row on the CPU.
  std::string loaded_row(std::size_t i, std::string_view lanes, std::uint32_t axis) const;
  std::string row_type(std::size_t i, std::string_view lanes) const;
  Side key_side() const { return {"Keys", depth_axis()}; }
  Side value_side() const { return {"Values", value_axis()}; }

  /// A value that differs from lane to lane, or from query to query, as an array; `q` goes outside.
  void define_array(int depth, NodeId id, const Side& side);
  bool is_free(const TypedNode& node) const;
  std::string lane_text(NodeId id, const Side& side) const;
  std::string iota_stride(std::size_t i, std::uint32_t axis) const;
  /// Arrays of what does not differ from key to key.
  void emit_rows(std::span<const NodeId> ids, const Side& side);
  /// The rows of operands of a key or a value that all queries share.
  std::vector<std::size_t> shared_rows(std::span<const NodeId> ids) const;
  void emit_load(std::string_view what, std::span<const std::size_t> rows, const Side& side);
  /// Values of one key, as far as they are the same for all queries.
  void emit_of_key(std::span<const NodeId> ids, const Side& side);
  /// What is left of a value: an expression of `q` and `lane`, and the statements before it.
  std::string function_text(NodeId id, std::span<const NodeId> ids, const Side& side);

  // -- The parts

  void emit_products();
  void emit_score();
  void emit_values();
  void emit_call();

  // -- Results

  void emit_results();
  std::string stored(NodeId id) const;
  void emit_result_lanes(std::span<const NodeId> ids, const std::string& result);

  const TypedGraph& graph_;
  const AttentionSpace& space_;
  const Schedule& schedule_;
  const AttentionSchedule& own_;
  Accuracy accuracy_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  KernelNames identifiers_;
  const std::vector<NamedOperand>& operands_;
  const ScratchVector<std::int64_t> iotas_;
  const std::vector<std::string> names_;
  Known known_;
  std::vector<std::uint8_t> moves_;  ///< of each node, bits of Along
  std::vector<bool> after_;          ///< computed of results
  KernelWriter out_{schedule_};
};

}  // namespace kiln::fusion
