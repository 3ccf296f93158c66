#include "fusion/emit/elementwise/operands.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {

ElementOperands::ElementOperands(const TypedGraph& graph, const Schedule& schedule,
                                 const KernelNames& names)
    : graph_(graph), schedule_(schedule), names_(names) {
  for (const NamedOperand& operand : names.operands()) operands_.push_back({operand});
  for (const std::int64_t axis : iota_axes(graph)) {
    const std::string name = iota_name(axis);
    operands_.push_back({{name, name, 0, 0, DType::i64, false}, true, axis});
  }
  if (operands_.size() != schedule_.operands.size()) {
    throw Error(Code::internal,
                "emit: the schedule and the graph differ in their number of operands");
  }
}

void ElementOperands::add_parameters(KernelWriter& writer, const NodeText& node_text) const {
  using P = Parameter::Kind;
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    const ElementOperand& operand = operands_[i];
    if (operand.iota || is_within(i)) continue;
    writer.add_pointer(i, operand.dtype, operand.output, operand.name);
  }
  names_.add_scalars(writer, node_text);
  writer.add_count(P::size, "size");
  if (has_outer_axes() && !flat()) writer.add_divisor(P::columns, "columns");
  if (schedule_.row_axes > 1) {
    writer.add_count(P::row_part, "row_part");
    for (std::uint32_t k = row_axis() + 1; k < rank(); ++k) {
      writer.add_divisor(P::extent, fmt::format("extent_{}", k), k);
    }
  }
  const std::vector<std::uint32_t> outer = outer_axes();
  if (tiled()) {
    writer.add_count(P::rows, "rows");
    if (!outer.empty()) writer.add_divisor(P::strips, "strips");
    if (tile_runs())
      writer.add_divisor(P::extent, fmt::format("extent_{}", rank() - 1), rank() - 1);
  }
  for (std::size_t n = 1; n < outer.size(); ++n) {
    writer.add_divisor(P::extent, fmt::format("extent_{}", outer[n]), outer[n]);
  }
  writer.add_count(P::work_items, "work_items");
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    if (schedule_.operands[i].start) {
      writer.add_offset(P::start, operands_[i].name + "_start", i);
    }
    for (std::uint32_t k = 0; k < rank(); ++k) {
      if (!schedule_.has_stride(i, k) || is_within(i)) continue;
      writer.add_offset(P::stride, operands_[i].stride_name(k), i, k);
    }
    if (indexing(i) != Indexing::none) {
      writer.add_offset(P::place_stride, operands_[i].name + "_place_stride", i);
      writer.add_offset(P::place_count, operands_[i].name + "_places", i);
    }
  }
}

std::vector<std::uint32_t> ElementOperands::outer_axes() const {
  std::vector<std::uint32_t> axes;
  for (std::uint32_t k = 0; k < (flat() ? rank() : row_axis()); ++k) {
    if (!tiled() || k != static_cast<std::uint32_t>(schedule_.tile_axis)) axes.push_back(k);
  }
  return axes;
}

bool ElementOperands::is_read(std::size_t i) const {
  const ElementOperand& operand = operands_[i];
  return !operand.output && !operand.iota &&
         std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
           return node.op == Op::input && node.payload == operand.argument;
         });
}

bool ElementOperands::per_lane(std::size_t i) const {
  const Access access = schedule_.operands[i].access;
  return (access != Access::broadcast && access != Access::scalar) || is_addressed(i) ||
         indexing(i) == Indexing::lane;
}

bool ElementOperands::moves_in_vectors(std::size_t i) const {
  return schedule_.operands[i].moves_in_vectors();
}

std::string ElementOperands::place_term(std::size_t i) const {
  return indexing(i) == Indexing::row ? operands_[i].name + "_at" : std::string();
}

std::string ElementOperands::lane_place(std::size_t i) const {
  const std::string& name = operands_[i].name;
  std::string place = name + "_at";
  switch (schedule_.operands[i].access) {
    case Access::contiguous: place += fmt::format(" + {}(first + lane)", signed_index()); break;
    case Access::strided:
      place += fmt::format(" + {}(first + lane) * {}", signed_index(), inner_stride(i));
      break;
    default: break;
  }
  return place;
}

std::string ElementOperands::row_pointer(std::size_t i, int but) const {
  std::string pointer = operands_[i].name + "_data";
  if (is_packed(operands_[i].dtype)) {
    const std::string place = row_place(i);
    return fmt::format("packed({}, {})", pointer,
                       place.empty() ? fmt::format("{}(0)", signed_index()) : place);
  }
  for (std::uint32_t k = 0; k < first_of_row(); ++k) {
    if (schedule_.has_stride(i, k) && static_cast<int>(k) != but)
      pointer += fmt::format(" + {}(at_{}) * {}", signed_index(), k, operands_[i].stride_name(k));
  }
  if (const std::string at = place_term(i); !at.empty()) pointer += " + " + at;
  return pointer;
}

std::string ElementOperands::element_pointer(std::size_t i) const {
  const std::uint32_t inner = rank() - 1;
  switch (schedule_.operands[i].access) {
    case Access::contiguous: return fmt::format("{} + at_{}", row_pointer(i), inner);
    case Access::strided:
      return fmt::format("{} + {}(at_{}) * {}", row_pointer(i), signed_index(), inner,
                         operands_[i].stride_name(inner));
    default: return row_pointer(i);
  }
}

std::string ElementOperands::row_place(std::size_t i) const {
  std::string row = schedule_.operands[i].start ? operands_[i].name + "_start" : "";
  for (std::uint32_t k = 0; k + 1 < rank(); ++k) {
    if (!schedule_.has_stride(i, k)) continue;
    row += fmt::format("{}{}(at_{}) * {}", row.empty() ? "" : " + ", signed_index(), k,
                       operands_[i].stride_name(k));
  }
  if (const std::string at = place_term(i); !at.empty()) {
    row += row.empty() ? at : " + " + at;
  }
  return row;
}

std::string ElementOperands::stride_along(std::size_t i, std::uint32_t axis) const {
  return schedule_.has_stride(i, axis) ? operands_[i].stride_name(axis)
                                       : fmt::format("{}(0)", signed_index());
}

std::string ElementOperands::vector_size(std::size_t i) const {
  const int ways = schedule_.operands[i].ways;
  return ways == 1 ? "width.size" : fmt::format("{} * width.size", ways);
}

std::string ElementOperands::vector_start(std::size_t i) const {
  const int ways = schedule_.operands[i].ways;
  return ways == 1 ? "first" : fmt::format("{} * first", ways);
}

std::string ElementOperands::lane_of(std::size_t i) const {
  const OperandSchedule& schedule = schedule_.operands[i];
  if (schedule.ways == 1) return operands_[i].name + "_lanes[lane]";
  return fmt::format("{}_lanes[{} * lane{}]", operands_[schedule.first_way].name, schedule.ways,
                     schedule.way == 0 ? "" : fmt::format(" + {}", schedule.way));
}

}  // namespace kiln::fusion
