// Writes elementwise kernels: the frame, indices and tiles (elementwise.cpp), loads and stores
// (access.cpp), and computed values (values.cpp). Operands are in operands.hpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fusion/emit/elementwise/operands.hpp"
#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/schedule/element_moves.hpp"

namespace kiln::fusion {

class ElementEmitter {
 public:
  ElementEmitter(const TypedGraph& graph, const Schedule& schedule,
                 std::span<const ElementMove> moves, Accuracy accuracy)
      : graph_(graph),
        schedule_(schedule),
        moves_(moves),
        accuracy_(accuracy),
        node_text_(graph, accuracy, schedule.backend),
        identifiers_(graph),
        operands_(graph, schedule, identifiers_),
        index_(operands_.index()),
        signed_index_(operands_.signed_index()),
        values_(graph.nodes.size()),
        storage_(graph.nodes.size()),
        words_(graph.nodes.size()),
        of_row_(graph.nodes.size(), false) {}
  KernelDescription run();

 private:
  template <class... Args>
  void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
    writer_.line(depth, format, std::forward<Args>(args)...);
  }

  // The frame, in the order in which the kernel reads.
  int block() const;
  void open();
  void emit_coordinates();
  // Several vectors per work item.
  bool is_multi_vector() const { return schedule_.vectors > 1; }
  void emit_outer_coordinates(int depth, std::string rest);
  void emit_offsets();
  void emit_prefetches();
  void emit_address(std::size_t i);
  void emit_addresses();
  void emit_tiles();
  bool through_tile(std::size_t i) const {
    return schedule_.operands[i].access == Access::transposed && operands_.is_read(i);
  }
  std::uint32_t tile_axis() const { return static_cast<std::uint32_t>(schedule_.tile_axis); }

  // What is loaded and stored.
  void emit_broadcast_loads(int depth);
  std::string straddling_text(std::size_t i) const;
  void emit_broadcast_load(int depth, std::size_t i);
  bool is_indexed_by(std::size_t i, Indexing indexing) const {
    return schedule_.operands[i].indexing == indexing;
  }
  // Places and ends that data says.
  void emit_ends();
  bool ends_in_row() const;
  void emit_row_places();
  void emit_place(int depth, std::size_t i);
  NodeId place_node(std::size_t i) const;
  bool collects(std::size_t i) const;
  std::string element_at_place(std::size_t i) const;
  void emit_lane_store(int depth, std::size_t i, NodeId id);
  std::size_t operand_of_input(NodeId id) const;
  void define_input(int depth, const ElementOperand& operand, std::string element);
  void emit_vector_loads();
  bool is_preloaded(std::size_t i) const;
  void emit_results();
  std::string looked_up(std::size_t i) const;
  NodeId input_of(std::size_t i) const;
  void emit_stores();

  // What is computed.
  void emit_iota_rows(int depth);
  void emit_lane(int depth);
  std::string element_text(std::size_t i, NodeId id) const;
  void emit_table();
  void emit_random_words();
  std::optional<std::size_t> iota_behind(NodeId id) const;
  std::string invariant_text(NodeId id) const;
  std::vector<bool> find_needed() const;
  void emit_node(std::size_t id);
  bool is_operand(NodeId id) const;
  void define(std::size_t id, const std::string& expression);
  void emit_input(std::size_t id, const TypedNode& node);
  std::string iota_text(const TypedNode& node) const;

  const TypedGraph& graph_;
  const Schedule& schedule_;
  const std::span<const ElementMove> moves_;  ///< of each operand
  Accuracy accuracy_;
  NodeText node_text_;
  KernelNames identifiers_;
  ElementOperands operands_;
  std::string_view index_;
  std::string_view signed_index_;
  std::vector<std::string> values_;
  std::vector<std::string> storage_;  ///< of narrow numbers: the text of the storage type
  std::vector<std::string> words_;    ///< of random numbers, those of a whole vector
  std::vector<bool> of_row_;          ///< nodes that are computed before the lanes
  std::vector<bool> loaded_;          ///< operands that have been for the whole row
  int depth_ = 4;                     ///< of the statements for each lane
  KernelWriter writer_{schedule_};
};

}  // namespace kiln::fusion
