#include "fusion/schedule/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "fusion/graph/broadcast.hpp"

namespace kiln::fusion {
namespace {

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string list_of(std::span<const std::size_t> axes) {
  return fmt::format("{} {}", axes.size() == 1 ? "axis" : "axes", fmt::join(axes, ", "));
}

// ---- Axes --------------------------------------------------------------------------------------

std::string why_not_merged(const Layout& layout, std::span<const std::string> names,
                           std::size_t outer) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::int64_t want = layout.strides(i, outer + 1) * layout.shape[outer + 1];
    const std::int64_t have = layout.strides(i, outer);
    if (want == have) continue;
    if (have == 0) return fmt::format("{} repeats along it", names[i]);
    if (want == 0) return fmt::format("{} repeats along the next axis but not along it", names[i]);
    return fmt::format("{}'s stride along it is {}, not the {} of one longer axis", names[i], have,
                       want);
  }
  return "";
}

std::vector<std::string> explain_axes(const Dims& shape, std::span<const std::string> names,
                                      const Layout& layout) {
  std::vector<std::string> lines;
  std::vector<std::size_t> ones;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) ones.push_back(k);
  }
  if (!ones.empty()) {
    lines.push_back(fmt::format("{} of {}: dropped, one element", list_of(ones), to_string(shape)));
  }
  for (std::size_t k = 0; k < layout.axes.size(); ++k) {
    const CallAxes& from = layout.axes[k];
    if (from.empty()) continue;
    std::string line =
        fmt::format("{}: {}{}", list_of(from), from.size() > 1 ? "merged into one of " : "",
                    plural(layout.shape[k], "element"));
    if (k + 1 < layout.axes.size()) {
      line += fmt::format(", not merged with the next, since {}", why_not_merged(layout, names, k));
    } else {
      line += ", innermost";
    }
    lines.push_back(std::move(line));
  }
  if (layout.schedule.row_axes > 1) {
    lines.push_back(
        fmt::format("the {} innermost are one row, of which a work item has {} of the "
                    "first axis",
                    layout.schedule.row_axes, plural(layout.row_part, "element")));
  }
  return lines;
}

// ---- Width and index ---------------------------------------------------------------------------

std::string explain_width(std::span<const Operand> operands, std::span<const std::string> names,
                          const Layout& layout) {
  const Schedule& schedule = layout.schedule;
  const DeviceModel& model = device_model(schedule.backend);
  const std::string start = plural(schedule.width, "element") + " per work item";
  if (schedule.flat && schedule.vectors == 1) {
    return fmt::format("{}: results are stored in whole vectors, within which rows end", start);
  }
  if (schedule.flat) {
    return fmt::format(
        "{}, {} times: rows are too short, or too unaligned, for vectors of their own", start,
        schedule.vectors);
  }
  const std::int64_t inner = layout.shape[layout.shape.size() - 1];
  if (schedule.reduction.axes != 0 &&
      std::ranges::any_of(schedule.operands, [](const auto& o) { return is_staged(o.access); })) {
    return start + ": neighbouring threads take neighbours from shared memory";
  }
  if (schedule.row_axes > 1) {
    return fmt::format("up to {}: a part of a row of several axes", start);
  }
  if (model.work.vector_bytes == 0) {
    return fmt::format("{}: part of a row, which the compiler vectorises", start);
  }
  const auto bits_of = [&](std::size_t i) {
    return bits(operands[i].dtype) * schedule.operands[i].ways;
  };
  std::size_t narrowest = operands.size();
  std::size_t widest = 0;
  std::size_t stored = operands.size();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (bits(operands[i].dtype) > bits(operands[widest].dtype)) widest = i;
    if (operands[i].output && (stored == operands.size() || bits_of(i) > bits_of(stored)))
      stored = i;
    if (schedule.operands[i].access != Access::contiguous &&
        schedule.operands[i].access != Access::interleaved &&
        !is_staged(schedule.operands[i].access))
      continue;
    if (narrowest == operands.size() || bits_of(i) < bits_of(narrowest)) narrowest = i;
  }
  if (narrowest == operands.size()) {
    return start + ": no operand is contiguous, so a vector would save no access";
  }
  const int full = model.work.vector_bytes * 8 / bits_of(narrowest);
  if (schedule.width >= full) {
    return fmt::format("{}: {} bytes of {}, the narrowest contiguous operand", start,
                       model.work.vector_bytes * schedule.width / full, names[narrowest]);
  }
  if (inner < full) return fmt::format("{}: a row has only {}", start, inner);
  if (schedule.tile != 0 && schedule.width >= schedule.tile) {
    return fmt::format("{}: a tile's row", start);
  }
  if (stored != operands.size() &&
      schedule.width * bits_of(stored) == 8 * model.work.max_stored_bytes) {
    return fmt::format("{}: {} bytes of {}, so that neighbouring threads store whole cache lines",
                       start, model.work.max_stored_bytes, names[stored]);
  }
  return fmt::format("{}: more would take too many registers for {}, which is {} bits wide", start,
                     names[widest], bits(operands[widest].dtype));
}

std::string explain_index(std::span<const std::string> names, const Layout& layout) {
  if (!layout.schedule.wide_index) return "32 bits: no operand spans 2^31 elements";
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::int64_t span = 0;
    for (std::size_t k = 0; k < layout.shape.size(); ++k) {
      span += std::abs(layout.strides(i, k)) * (layout.shape[k] - 1);
    }
    if (span >= std::int64_t{1} << 31) {
      return fmt::format("64 bits: {} spans {} elements", names[i], span + 1);
    }
  }
  return "64 bits: there are 2^31 elements or more";
}

// ---- Attention
// -----------------------------------------------------------------------------------

std::vector<std::string> explain_attention(const Layout& layout) {
  const AttentionSchedule& own = layout.schedule.attention;
  std::vector<std::string> lines{
      fmt::format("attention over {} and {} to {}, in one pass over both: {} of {} that share them",
                  plural(layout.reduced, "key"), plural(own.keys.extent, "element"),
                  plural(own.values.extent, "element"), plural(layout.rows, "group"),
                  own.queries() == 1 ? "one query" : fmt::format("{} queries", own.queries()))};
  if (own.split) {
    const std::int64_t tiles = (layout.vectors + layout.splits - 1) / layout.splits;
    lines.push_back(fmt::format(
        "keys in {} of {}, which another kernel combines in their order: as many for any batch",
        plural(layout.splits, "part"), tiles * own.tile));
  } else {
    lines.push_back("keys in one part: a second kernel would cost more than it gains");
  }
  return lines;
}

std::string explain_attention_width(const Layout& layout) {
  const AttentionSchedule& own = layout.schedule.attention;
  if (layout.schedule.backend == Backend::host) {
    return fmt::format("{} at a time by one thread, whole rows", plural(own.tile, "key"));
  }
  return fmt::format("{} at a time by {}: {} share a key, {} each, and {} a value, {} each; {}",
                     plural(own.tile, "key"), plural(own.threads, "thread"), own.keys.threads,
                     plural(own.keys.lanes(), "element"), own.values.threads,
                     plural(own.values.lanes(), "element"),
                     own.prefetch ? "values are loaded before their weights are known"
                                  : "values are loaded once their weights are known");
}

// ---- Operands ----------------------------------------------------------------------------------

// What keeps the rows of an operand from starting at multiples of 16 bytes.
std::optional<std::string> what_misaligns(const Operand& operand, const Layout& layout,
                                          std::size_t index, std::size_t along) {
  const Schedule& schedule = layout.schedule;
  const std::int64_t width = std::max(1, bits(operand.dtype) / 8);
  const auto wanted = std::min<std::int64_t>(16, width * schedule.width * schedule.vectors);
  const bool begins_once = schedule.flat && !schedule.operands[index].addressed;
  for (std::size_t k = 0; k < layout.shape.size() && !begins_once; ++k) {
    const std::int64_t step = layout.strides(index, k) * width;
    if (k == along || step % wanted == 0) continue;
    return fmt::format("its rows start {} bytes apart, which is no multiple of {}", std::abs(step),
                       wanted);
  }
  const std::uint64_t first =
      (operand.address + static_cast<std::uint64_t>(layout.offsets[index] * width)) % 16;
  if (first % static_cast<std::uint64_t>(wanted) == 0) return std::nullopt;
  return fmt::format("its first element is at address {} modulo 16", first);
}

OperandReport explain_operand(const Operand& operand, std::span<const std::string> names,
                              const Layout& layout, std::size_t index) {
  const Schedule& schedule = layout.schedule;
  const OperandSchedule& own = schedule.operands[index];
  const std::size_t inner = layout.shape.size() - 1;
  OperandReport report;
  report.name = names[index];
  if (operand.iota) {
    report.access = "computed";
    report.reason = "it is an index, not an array, and takes no memory";
    return report;
  }
  const std::int64_t elements = element_count(layout.shape, layout.strides.of(index));
  report.bytes = static_cast<std::uint64_t>((elements * bits(operand.dtype) + 7) / 8);
  const int vector = std::max(1, schedule.width * own.ways * bits(operand.dtype) / 8);
  switch (own.access) {
    case Access::scalar:
      report.access = "one element";
      report.reason = "the same for the whole call";
      break;
    case Access::broadcast:
      report.access = "one element for each row";
      report.reason = "it repeats along the innermost axis";
      break;
    case Access::strided:
      report.access = "one element at a time";
      report.reason = fmt::format("its neighbours are {} elements apart along the innermost axis",
                                  layout.strides(index, inner));
      break;
    case Access::offsets:
      report.access = "one element at a time, at offsets from a table";
      report.reason =
          fmt::format("it is no range of memory along the {} axes of a row", schedule.row_axes);
      break;
    case Access::runs:
      report.bytes *= static_cast<std::uint64_t>(layout.reduced / layout.runs[index].length);
      report.access = fmt::format("one element for each run of {}",
                                  plural(layout.runs[index].length, "element"));
      report.reason = own.whole_runs ? "it repeats within rows, and no vector has parts of two runs"
                                     : "it repeats within rows";
      break;
    case Access::staged:
    case Access::staged_backwards:
      report.access = "through shared memory, 16 bytes at a time";
      report.reason =
          fmt::format("{}, and the rows of a block are one range of memory{}",
                      what_misaligns(operand, layout, index, inner)
                          .value_or("its rows are no whole number of vectors"),
                      own.access == Access::staged ? "" : ", which it runs through backwards");
      break;
    case Access::transposed:
      if (schedule.is_buffered(index)) {
        report.access = fmt::format("through a buffer of {}",
                                    schedule.reduction.buffered == 0
                                        ? "a row"
                                        : plural(schedule.reduction.buffered, "element"));
        report.reason = fmt::format(
            "its neighbours are {} elements apart along the innermost axis of the row, "
            "and {} along another one",
            layout.strides(index, inner),
            layout.strides(index, static_cast<std::size_t>(own.along)));
        break;
      }
      if (schedule.products.rows != 0) {
        report.access = fmt::format("{} at a time, {} bytes each",
                                    plural(schedule.products.rows, "row"), own.alignment);
        report.reason = "neighbours in memory are of neighbouring rows";
        break;
      }
      report.access =
          fmt::format("through tiles of {} by {}, {} bytes at a time", schedule.tile_rows,
                      schedule.tile, schedule.backend == Backend::host ? 16 : own.alignment);
      report.reason =
          fmt::format("it is contiguous along another axis ({})",
                      list_of(layout.axes[static_cast<std::size_t>(schedule.tile_axis)]));
      break;
    case Access::interleaved:
      report.access = fmt::format("element {} of every {}, all of which are {} at a time",
                                  own.way + 1, own.ways, operand.output ? "stored" : "loaded");
      report.reason = fmt::format("vectors of {} hold its elements too", names[own.first_way]);
      if (own.way == 0) report.reason = "other operands are interleaved with it";
      break;
    case Access::contiguous:
      if (schedule.backend == Backend::host) {
        report.access = "contiguous, full vectors";
        report.reason = "a CPU loads from any address";
        break;
      }
      const int at_once = std::min({own.alignment, vector, 16});
      report.access =
          fmt::format("contiguous, {} byte{} at a time", at_once, at_once == 1 ? "" : "s");
      if (at_once == 16) {
        report.reason = "the widest access of a GPU";
      } else {
        report.reason =
            what_misaligns(operand, layout, index, inner)
                .value_or(fmt::format("all of its {}", plural(schedule.width, "element")));
      }
      break;
  }
  return report;
}

}  // namespace

LayoutReport explain(const Dims& shape, std::span<const Operand> operands,
                     std::span<const std::string> names, const Layout& layout) {
  LayoutReport report;
  const Schedule& schedule = layout.schedule;
  const RowSchedule& rows = schedule.reduction;
  if (schedule.attention.threads != 0) {
    report.axes = explain_attention(layout);
  } else if (schedule.scan == ScanSchedule::along) {
    report.axes.push_back(fmt::format("{} of {}, each scanned by {}, a block of elements at a time",
                                      plural(layout.rows, "row"), plural(layout.reduced, "element"),
                                      plural(rows.threads, "thread")));
  } else if (schedule.scan == ScanSchedule::across) {
    report.axes.push_back(fmt::format("{} of {}, each scanned by one thread",
                                      plural(schedule.width, "column"),
                                      plural(layout.reduced / schedule.width, "element")));
  } else if (rows.axes == 0) {
    report.axes = explain_axes(shape, names, layout);
  } else if (schedule.products.rows != 0) {
    report.axes.push_back(fmt::format(
        "{} of {}, each reduced by {}, which take {} and {} at a time", plural(layout.rows, "row"),
        plural(layout.reduced, "element"), plural(rows.threads, "thread"),
        plural(schedule.products.rows, "row"), plural(schedule.products.columns, "column")));
    if (const PrologueSchedule& own = schedule.products.prologue; own.threads != 0) {
      report.axes.push_back(fmt::format(
          "each of {} first computes {} of {}, which all rows share: {} threads with {} "
          "each",
          plural(static_cast<std::int64_t>(layout.work_items), "block"),
          plural(schedule.products.columns, "vector"), plural(layout.reduced, "element"),
          own.threads, plural(own.elements, "element")));
    }
  } else {
    report.axes.push_back(fmt::format(
        "{} of {}, each reduced by {}{} and {}", plural(layout.rows / rows.joined, "row"),
        plural(layout.reduced, "element"), plural(rows.threads, "thread"),
        rows.joined > 1 ? fmt::format(" for each of its {} columns", rows.joined) : "",
        rows.vectors == 0 || schedule.backend == Backend::host ? "read once for each pass"
                                                               : "kept on chip"));
  }
  for (const int axis : schedule.bounds) {
    report.axes.push_back(
        fmt::format("one of {} ends where data says: what lies beyond is neither "
                    "read nor stored",
                    plural(layout.shape[static_cast<std::size_t>(axis)], "element")));
  }
  report.width = schedule.attention.threads != 0 ? explain_attention_width(layout)
                                                 : explain_width(operands, names, layout);
  report.index = explain_index(names, layout);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    report.operands.push_back(explain_operand(operands[i], names, layout, i));
    if (schedule.operands[i].prefetched) {
      report.operands.back().access +=
          fmt::format(", prefetched {} rows ahead", schedule.rows_ahead);
    }
    if (!operands[i].indexed.exists()) continue;
    report.operands.back().access += fmt::format(", where data says: one of {}, {} apart",
                                                 plural(operands[i].indexed.extent, "place"),
                                                 plural(operands[i].indexed.stride, "element"));
  }
  return report;
}

}  // namespace kiln::fusion
