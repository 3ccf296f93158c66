// The operands of a kernel that computes elements: their names, the kernel's parameters, and where
// the text finds their elements in memory and in registers. Which statements there are is for
// elementwise.cpp.
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
  /// The axes that a work item's number is taken apart into, the fastest last.
  std::vector<std::uint32_t> outer_axes() const;
  std::string_view index() const { return schedule_.wide_index ? "u64" : "u32"; }
  std::string_view signed_index() const { return schedule_.wide_index ? "i64" : "i32"; }

  /// An array that is loaded.
  bool is_read(std::size_t i) const;
  /// One element for each lane.
  bool per_lane(std::size_t i) const;
  /// Its elements are moved in vectors.
  bool lies_in_rows(std::size_t i) const;
  /// Its elements lie in the vectors of another one.
  bool is_within(std::size_t i) const { return schedule_.operands[i].way != 0; }

  /// Where a row begins in memory, without what the axis `but` adds.
  std::string row_pointer(std::size_t i, int but = -1) const;
  /// Where a row begins among elements, or what a count is there; empty for 0.
  std::string row_place(std::size_t i) const;
  /// Whether the kernel takes its stride along an axis.
  bool has_stride(std::size_t operand, std::uint32_t axis) const;
  std::string stride_name(std::size_t operand, std::uint32_t axis) const;
  std::string stride_along(std::size_t i, std::uint32_t axis) const;
  std::string inner_stride(std::size_t i) const { return stride_along(i, rank() - 1); }
  /// The elements that are moved for each work item, and the first of them.
  std::string vector_size(std::size_t i) const;
  std::string vector_start(std::size_t i) const;
  /// What holds an operand's element of a lane.
  std::string lane_of(std::size_t i) const;

 private:
  const TypedGraph& graph_;
  const Schedule& schedule_;
  const KernelNames& names_;
  std::vector<ElementOperand> operands_;
};

}  // namespace kiln::fusion
