// Variants in words, for people and for what is compared of kernels.
#include <fmt/format.h>

#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {
namespace {

std::string describe(const RowVariant& rows, Family family) {
  if (rows.axes == 0) return "";
  std::string text;
  if (family != Family::host) {
    text += fmt::format(", {} thread{} and {} per {}", rows.threads, rows.threads == 1 ? "" : "s",
                        rows.vectors == 0   ? "a loop"
                        : rows.vectors == 1 ? "1 vector each"
                                            : fmt::format("{} vectors each", rows.vectors),
                        rows.columns == 0 ? "row" : "column");
    if (rows.blocks > 1) text += fmt::format(", in {} blocks", rows.blocks);
    if (rows.stored > 0) text += fmt::format(", {} of them in shared memory", rows.stored);
    if (rows.rows > 1) text += fmt::format(", {} rows per block", rows.rows);
    if (rows.columns > 0) text += fmt::format(", {} vectors of columns per block", rows.columns);
  } else if (rows.columns > 0) {
    text += ", columns";
  }
  if (rows.pieces) text += ", in pieces";
  if (rows.phase >= 0) text += ", rows begin within vectors";
  if (rows.apart != 0) text += fmt::format(", those of a block {} apart", rows.apart);
  return text;
}

}  // namespace

std::string describe(const Variant& variant, std::span<const std::string> names) {
  static constexpr std::string_view kAccess[] = {"scalar",  "contiguous", "broadcast along rows",
                                                 "strided", "transposed", "interleaved"};
  std::string text = fmt::format("{} {}, {} element{} per work item, {}-bit indices", variant.rank,
                                 variant.rank == 1 ? "axis" : "axes", variant.width,
                                 variant.width == 1 ? "" : "s", variant.wide_index ? 64 : 32);
  if (variant.vectors > 1) {
    text += fmt::format(", {} times, {} work items in turns", variant.vectors, variant.threads);
  }
  if (variant.products.rows == 0) text += describe(variant.reduction, variant.family);
  if (variant.products.rows != 0) {
    text += fmt::format(", {} thread{} per row, {} row{} and {} column{} at a time",
                        variant.reduction.threads, variant.reduction.threads == 1 ? "" : "s",
                        variant.products.rows, variant.products.rows == 1 ? "" : "s",
                        variant.products.columns, variant.products.columns == 1 ? "" : "s");
    if (variant.products.tiles.sharers != 0) text += ", in tiles of products";
  }
  if (variant.scan == ScanVariant::along) {
    text += fmt::format(", running along rows, {} thread{} to each", variant.reduction.threads,
                        variant.reduction.threads == 1 ? "" : "s");
  }
  if (variant.scan == ScanVariant::across) text += ", running across rows";
  if (variant.streamed) text += ", streamed";
  if (variant.table) text += ", looked up in a table";
  if (variant.tile != 0) text += fmt::format(", in tiles of {0} by {0}", variant.tile);
  for (std::size_t i = 0; i < variant.operands.size(); ++i) {
    const OperandVariant& operand = variant.operands[i];
    text += fmt::format("; {}: {}", i < names.size() ? names[i] : fmt::format("#{}", i),
                        kAccess[static_cast<std::size_t>(operand.access)]);
    if (operand.access == Access::interleaved) {
      text += fmt::format(", {} of {}", operand.way + 1, operand.ways);
    }
    const bool vectors = operand.access == Access::contiguous ||
                         operand.access == Access::transposed ||
                         (operand.access == Access::interleaved && operand.way == 0);
    if (vectors && operand.alignment != 0) {
      text += fmt::format(", aligned to {}", operand.alignment);
    }
    if (operand.between) text += ", between vectors";
  }
  return text;
}

}  // namespace kiln::fusion
