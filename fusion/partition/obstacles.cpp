#include "fusion/partition/obstacles.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/split_reductions.hpp"

namespace kiln::fusion {
namespace {

constexpr const char* kAloneReason =
    "in fewer kernels values would live longer, and need more workspace";

std::string split_reason(const Group& group) {
  return fmt::format("the few long rows of {} are split over blocks", to_string(group.shape));
}

}  // namespace

std::string Obstacles::of(NodeId id, const Group& group) const {
  const TypedNode& node = facts_.nodes[id];
  if (group.call) return "the kernel before is a custom call";
  if (group.attention) {
    return group.splits > 1 ? "it joins the parts of an attention"
                            : "the kernel before is an attention";
  }
  if (model_.is_alone(id) || group.alone) return kAloneReason;
  if (group.values >= model_.most_values) {
    return fmt::format("the kernel before has {} values", group.values);
  }
  if (group.arrays.size() + node.arity > model_.most_arrays) {
    return fmt::format("the kernel before reads {} arrays", group.arrays.size());
  }
  if (group.splits > 1 && reads_splits(id, group)) return split_reason(group);
  if (group.has_iota && is_reduction(node.op)) {
    return fmt::format("{} reduces, the kernel before reads an iota", info(node.op).name);
  }
  if (group.has_iota && facts_.reduced[id] && !facts_.reads_iota(id) && !facts_.narrows(id)) {
    return fmt::format(
        "{} is reduced, and takes more bytes than what the kernel before makes of an iota",
        info(node.op).name);
  }
  if (facts_.reads_iota(id) && !group.reduced.empty()) {
    return fmt::format("{} reads an iota, the kernel before reduces", info(node.op).name);
  }
  if (std::string reason = of_places(id, group); !reason.empty()) return reason;
  if (group.packs && has_axes(node.op) && group.reduced.empty()) {
    return fmt::format("{} {}, the kernel before stores packed numbers", info(node.op).name,
                       is_reduction(node.op) ? "reduces" : "runs along an axis");
  }
  if (facts_.stores_packed(id) && (!group.reduced.empty() || group.running != 0) &&
      !packs_rows(id, group)) {
    return fmt::format("{} gives packed numbers to store, the kernel before {}", info(node.op).name,
                       group.running != 0 ? "has running results" : "reduces");
  }
  if (std::string reason = of_running(id, group); !reason.empty()) return reason;
  if (std::string reason = of_bounds(id, group); !reason.empty()) return reason;
  if (group.reductions >= model_.most_products && reads_more_products(id, group)) {
    return fmt::format("the kernel before has {} sums of products", group.reductions);
  }
  if (is_reduction(node.op)) {
    const Dims& from = facts_.shapes[node.operands[0]];
    if (from != group.shape) {
      return fmt::format("{} is over {}, the kernel before runs over {}", info(node.op).name,
                         to_string(from), to_string(group.shape));
    }
    if (!group.reduced.empty() && group.reduced != facts_.reduced_by(id)) {
      return fmt::format("{} reduces other axes than the kernel before", info(node.op).name);
    }
    if (!group.reduced.empty() &&
        splits_of(facts_.graph.graph, facts_.shapes, id) != group.splits) {
      return split_reason(group);
    }
    return {};
  }
  const Dims& shape = facts_.shapes[id];
  if (shape == group.shape) {
    return {};
  }
  if (!group.reduced.empty() && group.splits == 1 && shape == group.row_shape()) return {};
  return fmt::format("{} has shape {}, the kernel before runs over {}", info(node.op).name,
                     to_string(shape), to_string(group.shape));
}

// Whether a value reads another matrix, beside one of products: an array that takes no fewer bytes
// than what of those of the kernel is read again in a kernel of its own.
bool Obstacles::reads_more_products(NodeId id, const Group& group) const {
  const auto is_product = [&](NodeId array) { return is_of_products(facts_, group, array); };
  if (std::ranges::none_of(group.arrays, is_product)) return false;
  const auto is_of_elements = [&](NodeId operand) {
    for (std::size_t k = 0; k < group.reduced.size(); ++k) {
      if (group.reduced[k] && facts_.shapes[operand][k] != 1) return true;
    }
    return false;
  };
  bool reads = false;
  SizeSum traced;
  double bytes = 0;
  for (const NodeId operand : facts_.nodes[id].inputs()) {
    const std::int64_t home = home_[operand];
    const bool array = facts_.is_in_memory(operand) ||
                       (home != kNoKernel && &groups_[static_cast<std::size_t>(home)] != &group);
    if (!array || !is_of_elements(operand)) continue;
    const NodeId read = facts_.read_of(operand);
    const bool again = group.arrays.contains(read);
    const double share = (again ? -1 : 1) * bits(facts_.nodes[read].dtype) / 8.0;
    reads = reads || !again;
    bytes += share * static_cast<double>(element_count(facts_.shapes[read]));
    traced.add(share, element_count(facts_.shapes[read]));
  }
  if (reads) traced.decide();
  return reads && bytes >= 0;
}

// Whether a kernel that reduces one axis stores packed elements of its rows, two with each byte, as
// they lie in C order.
bool Obstacles::packs_rows(NodeId id, const Group& group) const {
  const bool rows = group.running == 0 && group.splits == 1 && group.bounds.empty() &&
                    !facts_.has_places(id) && facts_.shapes[id] == group.shape &&
                    std::ranges::count(group.reduced, true) == 1;
  if (!rows) return false;
  trace_remainder(group.shape[group.shape.size() - 1], 2);
  if (group.shape[group.shape.size() - 1] % 2 != 0) return false;
  const auto is_part = [&](const std::vector<PlacedPart>& parts) {
    return std::ranges::find(parts, id, &PlacedPart::value) != parts.end();
  };
  if (std::ranges::any_of(facts_.graph.joins, is_part)) return false;
  return std::ranges::all_of(facts_.graph.stores, [&](const std::vector<PlacedPart>& parts) {
    return std::ranges::all_of(parts, [&](const PlacedPart& part) {
      return part.value != id || is_contiguous(part.layout, facts_.graph.shapes[id]);
    });
  });
}

// All values of a kernel end where it ends; what there is one of for each row has no reduced
// axes.
std::string Obstacles::of_bounds(NodeId id, const Group& group) const {
  const bool of_row = !is_reduction(facts_.nodes[id].op) && !group.reduced.empty() &&
                      facts_.shapes[id] != group.shape;
  std::vector<BoundedAxis> expected = group.bounds;
  if (of_row) {
    std::erase_if(expected, [&](const BoundedAxis& bound) {
      return group.reduced[static_cast<std::size_t>(
          static_cast<std::int64_t>(group.reduced.size()) + bound.axis)];
    });
  }
  if (facts_.bounds(id) == expected) return {};
  return fmt::format("{} ends elsewhere than the kernel before", info(facts_.nodes[id].op).name);
}

// Places that are data are the same for all of a row that is reduced, and of no kernel with
// running results.
std::string Obstacles::of_places(NodeId id, const Group& group) const {
  const TypedNode& node = facts_.nodes[id];
  const auto varies = [&](NodeId place, const std::vector<bool>& reduced) {
    for (std::size_t k = 0; k < reduced.size(); ++k) {
      if (reduced[k] && facts_.shapes[place][k] != 1) return true;
    }
    return false;
  };
  if (facts_.has_places(id)) {
    if (group.running != 0) {
      return fmt::format("{} has places that are data, the kernel before has running results",
                         info(node.op).name);
    }
    const NodeId place = node.operands[1];
    const bool of_group =
        home_[place] != kNoKernel && &groups_[static_cast<std::size_t>(home_[place])] == &group;
    if (of_group && !group.reduced.empty() && !facts_.alone[place]) {
      return fmt::format("the places of {} are computed by the kernel before, which reduces",
                         info(node.op).name);
    }
    if (varies(place, group.reduced)) {
      return fmt::format("the places of {} differ along axes that the kernel before reduces",
                         info(node.op).name);
    }
    if (facts_.takes_packed(id) && !group.reduced.empty()) {
      return "take reads packed numbers, the kernel before reduces";
    }
    if (facts_.repeats_value(id) && !group.reduced.empty()) {
      return "put repeats its value along axes, the kernel before reduces";
    }
  }
  if (group.places.empty() || !has_axes(node.op)) return {};
  if (is_scan(node.op)) {
    return fmt::format("{} runs along an axis, the kernel before has places that are data",
                       info(node.op).name);
  }
  const std::vector<bool> reduced = facts_.reduced_by(id);
  for (const NodeId place : group.places) {
    if (!varies(place, reduced)) continue;
    return fmt::format("{} reduces axes along which places differ in the kernel before",
                       info(node.op).name);
  }
  return {};
}

// What is read of an array that is updated in place is read by a kernel before that one.
std::string Obstacles::of_update(NodeId id, const std::vector<NodeId>& operands,
                                 const Group& group) const {
  if (const auto updated = facts_.updates(id)) {
    for (const NodeId array : group.arrays) {
      if (viewed(facts_.graph.graph, array) == *updated) {
        return "the kernel before reads the array that put updates";
      }
    }
  }
  for (const NodeId operand : operands) {
    if (group.updates.contains(facts_.array_of(operand))) {
      return "the kernel before updates an array that is read";
    }
  }
  return {};
}

// Running results go along one axis of a kernel, beside no reductions.
std::string Obstacles::of_running(NodeId id, const Group& group) const {
  const TypedNode& node = facts_.nodes[id];
  if (group.running != 0 && (is_reduction(node.op) || facts_.reads_iota(id))) {
    return fmt::format("{} {}, the kernel before has running results", info(node.op).name,
                       is_reduction(node.op) ? "reduces" : "reads an iota");
  }
  if (!is_scan(node.op)) return {};
  if (!group.reduced.empty() || group.has_iota) {
    return fmt::format("{} runs along an axis, the kernel before {}", info(node.op).name,
                       group.has_iota ? "reads an iota" : "reduces");
  }
  if (group.running != 0 && group.running != facts_.running_axis(id)) {
    return fmt::format("{} runs along another axis than the kernel before", info(node.op).name);
  }
  return {};
}

// Whether a value reads what a split of a row gave: another kernel has to join those.
bool Obstacles::reads_splits(NodeId id, const Group& group) const {
  return std::ranges::any_of(facts_.nodes[id].inputs(), [&](NodeId operand) {
    return home_[operand] != kNoKernel &&
           &groups_[static_cast<std::size_t>(home_[operand])] == &group &&
           splits_of(facts_.graph.graph, facts_.shapes, operand) > 1;
  });
}

}  // namespace kiln::fusion
