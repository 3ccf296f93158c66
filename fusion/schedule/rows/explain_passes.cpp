// The passes of a kernel over rows or columns, for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fusion/schedule/explain.hpp"

namespace kiln::fusion {
namespace {

std::string ops_of(const TypedGraph& graph, const PassSchedule::Ids& ids) {
  std::vector<std::string_view> ops;
  for (const std::size_t id : ids) ops.push_back(info(graph.nodes[id].op).name);
  return fmt::format("{}", fmt::join(ops, ", "));
}

// The names of operands for which something holds.
template <class Holds>
std::string names_where(std::span<const std::string> names, const PassSchedule& passes,
                        const Holds& holds) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < passes.operands.size(); ++i) {
    if (holds(passes.operands[i])) found.push_back(names[i]);
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

// "max; sum; stores": what each pass is for.
std::string purposes(const TypedGraph& graph, const PassSchedule& passes) {
  std::vector<std::string> each;
  for (int pass = 0; pass <= passes.last; ++pass) {
    const PassSchedule::Ids& own = passes.reductions[static_cast<std::size_t>(pass)];
    std::string purpose = ops_of(graph, own);
    const bool stores =
        pass == passes.last && std::ranges::any_of(passes.operands, [](const RowOperand& operand) {
          return operand.output && !operand.row_invariant;
        });
    if (stores) purpose += purpose.empty() ? "stores" : " and stores";
    each.push_back(std::move(purpose));
  }
  return fmt::format("{}", fmt::join(each, "; "));
}

}  // namespace

std::vector<std::string> explain_passes(const TypedGraph& graph, std::span<const std::string> names,
                                        const PassSchedule& passes) {
  const RowSchedule& rows = passes.rows;
  std::vector<std::string> lines{fmt::format("{}: {}", passes.last + 1, purposes(graph, passes))};
  PassSchedule::Ids cached;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    if (passes.is_cached(id)) cached.push_back(id);
  }
  if (!cached.empty()) {
    lines.push_back(fmt::format(
        "{} kept for later passes{}", ops_of(graph, cached),
        passes.caches_in_place() ? ", in the places of operands that nothing else needs" : ""));
  }
  if (passes.uses_smem()) {
    const bool all = rows.register_vectors() == 0;
    lines.push_back(fmt::format(
        "{} of {} in shared memory, {} bytes for each block, loaded through registers",
        all ? "all" : fmt::format("{} of {} vectors", rows.in_smem, rows.vectors),
        names_where(names, passes, [](const RowOperand& operand) { return operand.in_smem; }),
        passes.shared_bytes));
  }
  if (passes.copies_async) {
    lines.back().resize(lines.back().rfind(", "));
    lines.push_back(fmt::format(
        "{} copied there asynchronously, past the registers, and waited for {} vectors at a time",
        names_where(names, passes, [](const RowOperand& operand) { return operand.copied; }),
        passes.copies_together));
  }
  if (!passes.prefetched.empty()) {
    std::vector<std::string> weights;
    for (const std::size_t i : passes.prefetched) weights.push_back(names[i]);
    lines.push_back(
        fmt::format("{} loaded from before the first pass on, {} vectors ahead of the last one",
                    fmt::join(weights, ", "), passes.prefetch_distance));
  }
  if (passes.backend == Backend::nvidia && passes.min_blocks != 0) {
    lines.push_back(fmt::format("registers for {} block{} of {} threads to a multiprocessor",
                                passes.min_blocks, passes.min_blocks == 1 ? "" : "s",
                                rows.block()));
  }
  if (passes.row_group > 1) {
    lines.push_back(fmt::format("each over {} rows, before the next pass", passes.row_group));
  }
  return lines;
}

}  // namespace kiln::fusion
