// The operands of an elementwise kernel: their names, the kernel's parameters, and the text that
// addresses their elements in memory and in registers. elementwise.cpp decides which statements
// there are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"

namespace kiln::fusion {

struct ElementOperand : NamedOperand {
  bool iota = false;      ///< no array, but an index
  std::int64_t axis = 0;  ///< of an iota, as in its node
};

class ElementOperands {
 public:
  ElementOperands(const TypedGraph& graph, const Schedule& schedule, const KernelNames& names);

  std::size_t size() const { return operands_.size(); }
  const ElementOperand& operator[](std::size_t i) const { return operands_[i]; }
  auto begin() const { return operands_.begin(); }
  auto end() const { return operands_.end(); }

  void add_parameters(KernelWriter& writer, const NodeText& node_text) const;

  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  bool tiled() const { return schedule_.tile != 0; }
  bool flat() const { return schedule_.flat && !tiled(); }
  /// Whether vectors of a tile may have elements of several of its rows.
  bool tile_runs() const { return schedule_.flat && tiled(); }
  /// Whether elements are counted over all axes and a work item has one vector, in which rows may
  /// end: where it has several, each vector is of one row.
  bool is_one_flat_vector() const { return schedule_.flat && schedule_.vectors == 1; }
  /// Whether the address of each vector follows from its coordinates.
  bool is_addressed(std::size_t i) const { return schedule_.operands[i].addressed; }
  /// The axes that a work item's number is split into, the fastest last.
  std::vector<std::uint32_t> outer_axes() const;
  std::string_view index() const { return schedule_.wide_index ? "u64" : "u32"; }
  std::string_view signed_index() const { return schedule_.wide_index ? "i64" : "i32"; }

  /// The innermost axis, or the first of several that are one row (Schedule::row_axes). The table
  /// of offsets begins at an element of it.
  std::uint32_t row_axis() const { return rank() - static_cast<std::uint32_t>(schedule_.row_axes); }
  bool has_outer_axes() const { return row_axis() > 0; }

  /// Whether an operand is an array that is loaded.
  bool is_read(std::size_t i) const;
  /// Whether there is one element for each lane.
  bool per_lane(std::size_t i) const;
  /// Whether it is loaded or stored in vectors.
  bool moves_in_vectors(std::size_t i) const;
  /// Whether its elements are in the vectors of another operand.
  bool is_within(std::size_t i) const { return schedule_.operands[i].way != 0; }

  /// The part of a pointer or of a place that data says, after what is before it; empty if none.
  std::string place_term(std::size_t i) const;
  Indexing indexing(std::size_t i) const { return schedule_.operands[i].indexing; }
  /// An element's offset in its row, where its place differs from lane to lane.
  std::string lane_place(std::size_t i) const;
  /// The pointer to a row, without the offset along the axis `but`.
  std::string row_pointer(std::size_t i, int but = -1) const;
  /// The pointer to an element, from coordinates along all axes.
  std::string element_pointer(std::size_t i) const;
  /// The offset of a row in elements, or the value of an iota there; empty for 0.
  std::string row_place(std::size_t i) const;
  /// Its stride along an axis, 0 where the kernel has no parameter for it.
  std::string stride_along(std::size_t i, std::uint32_t axis) const;
  std::string inner_stride(std::size_t i) const { return stride_along(i, rank() - 1); }
  /// The number of elements that are moved for each work item, and the first of them.
  std::string vector_size(std::size_t i) const;
  std::string vector_start(std::size_t i) const;
  /// The text of an operand's element in a lane.
  std::string lane_of(std::size_t i) const;

 private:
  /// How many axes say where a row, or a part of one, begins.
  std::uint32_t first_of_row() const { return row_axis() + (schedule_.row_axes > 1 ? 1 : 0); }

  const TypedGraph& graph_;
  const Schedule& schedule_;
  const KernelNames& names_;
  std::vector<ElementOperand> operands_;
};

}  // namespace kiln::fusion
