// Descriptions of schedules: in the comment of a kernel, and where kernels are listed.
#include <fmt/format.h>

#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {
namespace {

std::string describe(const RowSchedule& rows, Backend backend) {
  if (rows.axes == 0) return "";
  std::string text;
  if (backend != Backend::host) {
    text += fmt::format(", {} thread{} and {} per {}", rows.threads, rows.threads == 1 ? "" : "s",
                        rows.vectors == 0   ? "a loop"
                        : rows.vectors == 1 ? "1 vector each"
                                            : fmt::format("{} vectors each", rows.vectors),
                        rows.columns == 0 ? "row" : "column");
    if (rows.cluster_blocks > 1) {
      text += fmt::format(", in a cluster of {} blocks", rows.cluster_blocks);
    }
    if (rows.chunk_blocks > 1) text += fmt::format(", {} to a chunk", rows.chunk_blocks);
    if (rows.copied) {
      text += ", copied to shared memory";
    } else if (rows.in_smem > 0) {
      text += fmt::format(", {} of them in shared memory", rows.in_smem);
    }
    if (rows.rows > 1) text += fmt::format(", {} rows per block", rows.rows);
    if (rows.columns > 0) text += fmt::format(", {} vectors of columns per block", rows.columns);
    if (rows.joined > 1) text += fmt::format(", {} columns joined", rows.joined);
    if (rows.folded > 0) {
      text += fmt::format(", {} vector{} folded", rows.folded, rows.folded == 1 ? "" : "s");
    }
    if (rows.chunks != ColumnChunks::one) text += ", in chunks";
    if (rows.chunks == ColumnChunks::many && rows.vectors == 0) text += " on a stack";
  } else if (rows.columns > 0) {
    text += ", columns";
  }
  if (rows.split) text += ", split reduction";
  if (rows.phase >= 0) text += ", unaligned rows";
  if (rows.row_step != 0) text += fmt::format(", every {} rows in a block", rows.row_step);
  return text;
}

// What differs from "threads per row": keys of a tile are taken by all threads of a block.
std::string describe(const AttentionSchedule& attention, Backend backend) {
  std::string text =
      fmt::format("attention, {} quer{} per work item, {} keys at a time", attention.queries(),
                  attention.queries() == 1 ? "y" : "ies", attention.tile);
  if (backend != Backend::host) {
    text += fmt::format(", {} threads, {} per key and {} per value", attention.threads,
                        attention.keys.threads, attention.values.threads);
  }
  if (attention.prefetch) text += ", values prefetched";
  if (attention.split) text += ", keys split over blocks";
  return text;
}

}  // namespace

std::string describe(const Schedule& schedule, std::span<const std::string> names) {
  static constexpr std::string_view kAccess[] = {"scalar",
                                                 "contiguous",
                                                 "broadcast along rows",
                                                 "strided",
                                                 "transposed",
                                                 "interleaved",
                                                 "by runs",
                                                 "staged in shared memory",
                                                 "staged in shared memory backwards",
                                                 "at offsets of a table"};
  std::string text = fmt::format("{} {}, {} element{} per work item, {}-bit indices", schedule.rank,
                                 schedule.rank == 1 ? "axis" : "axes", schedule.width,
                                 schedule.width == 1 ? "" : "s", schedule.wide_index ? 64 : 32);
  if (schedule.attention.threads != 0) {
    text = fmt::format("{}, {}-bit indices", describe(schedule.attention, schedule.backend),
                       schedule.wide_index ? 64 : 32);
  }
  if (schedule.vectors > 1) {
    text += fmt::format(", {} vectors each, interleaved over {} work items", schedule.vectors,
                        schedule.threads);
  }
  if (schedule.flat) text += ", counted over all axes";
  if (schedule.products.rows == 0) text += describe(schedule.reduction, schedule.backend);
  if (schedule.products.rows != 0) {
    text += fmt::format(", {} thread{} per row, {} row{} and {} column{} at a time",
                        schedule.reduction.threads, schedule.reduction.threads == 1 ? "" : "s",
                        schedule.products.rows, schedule.products.rows == 1 ? "" : "s",
                        schedule.products.columns, schedule.products.columns == 1 ? "" : "s");
    if (schedule.products.beside != 0) {
      text += fmt::format(", {} threads beside each other on other rows", schedule.products.beside);
    }
    if (schedule.products.tiles.steps_per_group != 0) {
      text += ", by matrix instructions";
      if (const int tiles = schedule.products.tiles.beside; tiles != 0) {
        text += fmt::format(", {} tile{} beside each other", tiles, tiles == 1 ? "" : "s");
      }
    } else {
      if (schedule.products.turns > 1) {
        text += fmt::format(", in {} turns", schedule.products.turns);
      }
      if (schedule.products.tree) text += ", added up as rows are";
      if (const int loaded = schedule.products.in_flight; loaded > 1) {
        text += fmt::format(", {} vectors loaded at a time", loaded);
      }
    }
    if (const PrologueSchedule& own = schedule.products.prologue; own.threads != 0) {
      text += fmt::format(", vectors computed first by {} threads of a block, {} element{} each",
                          own.threads, own.elements, own.elements == 1 ? "" : "s");
    }
  }
  if (schedule.scan == ScanSchedule::along) {
    text += fmt::format(", scan along rows, {} thread{} per row", schedule.reduction.threads,
                        schedule.reduction.threads == 1 ? "" : "s");
    if (schedule.reduction.ragged) text += ", the last vector of a row in part";
  }
  if (schedule.scan == ScanSchedule::across) {
    text += ", scan across rows";
    if (schedule.reduction.batch > 1) {
      text += fmt::format(", {} loaded at a time", schedule.reduction.batch);
    }
  }
  if (schedule.row_axes > 1) text += fmt::format(", {} axes as one row", schedule.row_axes);
  if (schedule.streamed) text += ", streamed";
  if (schedule.table) text += ", by lookup table";
  if (schedule.tile != 0) {
    text += fmt::format(", in tiles of {} by {}", schedule.tile_rows, schedule.tile);
    if (schedule.min_blocks != 0) {
      text += fmt::format(", {} blocks per multiprocessor", schedule.min_blocks);
    }
  }
  for (std::size_t i = 0; i < schedule.operands.size(); ++i) {
    const OperandSchedule& operand = schedule.operands[i];
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
    if (operand.unaligned) text += ", straddling vectors";
    if (operand.addressed) text += ", by coordinates";
    if (operand.preloaded) text += ", preloaded";
    if (operand.indexing == Indexing::row) text += ", rows by index";
    if (operand.indexing == Indexing::lane) text += ", by index";
  }
  return text;
}

}  // namespace kiln::fusion
