#include "fusion/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "fusion/broadcast.hpp"
#include "fusion/explain.hpp"
#include "fusion/partition_bytes.hpp"
#include "fusion/scan_layout.hpp"
#include "fusion/split_rows.hpp"

namespace kiln::fusion {
namespace {

constexpr std::int64_t kNone = -1;

bool is_leaf(const TypedNode& node) {
  return node.op == Op::input || node.op == Op::scalar || node.op == Op::constant ||
         node.op == Op::iota;
}

// Exact operations and conversions: a few instructions each.
bool is_cheap(const TypedNode& node) {
  if (has_axes(node.op)) return false;
  switch (info(node.op).rule) {
    case Rule::random: return false;
    case Rule::floating: return node.op == Op::copysign;
    case Rule::same:
      return node.op != Op::power && node.op != Op::floor_divide && node.op != Op::remainder &&
             node.op != Op::fmod;
    default: return true;
  }
}

// A kernel while it grows.
struct Group {
  Dims shape;
  std::vector<bool> reduced;
  std::int64_t pieces = 1;  // of a row
  std::size_t values = 0;
  std::unordered_set<NodeId> arrays;
  std::string reason;
  bool counts = false;
  std::size_t running = 0;  ///< the axis of running results, from 1; 0: there are none
  std::optional<std::size_t> call;

  Dims row_shape() const {
    Dims result = shape;
    for (std::size_t k = 0; k < reduced.size(); ++k) {
      if (reduced[k]) result[k] = 1;
    }
    return result;
  }
};

class Partitioner {
 public:
  Partitioner(const PlacedGraph& graph, const CostModel& model)
      : graph_(graph),
        nodes_(graph.graph.nodes),
        model_(model),
        home_(nodes_.size(), kNone),
        ready_(nodes_.size(), kNone) {}

  Partition run() {
    pad_shapes();
    find_kept();
    find_early();
    find_reduced();
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (early_[id] && !is_conversion(id)) place(id);
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (early_[id] || is_conversion(id) || floats(id)) continue;
      if (is_computed(nodes_[id])) {
        place(id);
      } else {
        ready_[id] = ready_after(id);
      }
    }
    find_results();
    Partition result;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!results_[g].empty()) result.kernels.push_back(part(g));
    }
    count_bytes(graph_, result);
    result.steps = steps_;
    return result;
  }

 private:
  void pad_shapes() {
    std::size_t rank = 0;
    for (const Dims& shape : graph_.shapes) rank = std::max(rank, shape.size());
    for (const Dims& shape : graph_.shapes) {
      Dims padded(rank, 1);
      std::copy(shape.begin(), shape.end(), padded.begin() + (rank - shape.size()));
      shapes_.push_back(std::move(padded));
    }
  }

  // What is stored whatever kernel computes it.
  void find_kept() {
    kept_.assign(nodes_.size(), false);
    seen_.assign(nodes_.size(), false);
    for (const TypedNode& node : nodes_) {
      if (node.op == Op::view) seen_[node.operands[0]] = true;
    }
    for (const auto* lists : {&graph_.stores, &graph_.joins}) {
      for (const auto& parts : *lists) {
        for (const PlacedPart& part : parts) kept_[part.value] = true;
      }
    }
    for (const PlacedCall& call : graph_.calls) {
      for (const NodeId input : call.inputs) kept_[viewed(graph_.graph, input)] = true;
    }
  }

  // What is read in one dtype and computed with in another has no kernel of its own: each reader
  // converts it.
  bool is_conversion(NodeId id) const {
    const TypedNode& node = nodes_[id];
    if (node.op != Op::promote || kept_[id] || seen_[id]) return false;
    const NodeId read = node.operands[0];
    const Op op = nodes_[read].op;
    return op == Op::input || op == Op::scalar || op == Op::constant || is_view_of_argument(read);
  }

  // What depends on arguments alone and is broadcast to something larger wherever it is needed: the
  // kernels for it come first, so that they are between no others.
  void find_early() {
    early_.assign(nodes_.size(), false);
    std::vector<bool> used(nodes_.size(), false);
    std::vector<bool> broadcast(nodes_.size(), true);
    ready_alone_.assign(nodes_.size(), false);
    std::vector<bool>& ready = ready_alone_;
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const TypedNode& node = nodes_[id];
      ready[id] = is_leaf(node) || is_view_of_argument(id) ||
                  (is_computed(node) && !has_axes(node.op) &&
                   std::ranges::all_of(node.inputs(), [&](NodeId x) { return ready[x]; }));
    }
    for (NodeId id = static_cast<NodeId>(nodes_.size()); id-- > 0;) {
      const TypedNode& node = nodes_[id];
      early_[id] = used[id] && broadcast[id] && ready[id] && !kept_[id] && is_computed(node);
      const bool computes = is_computed(node) && !has_axes(node.op);
      for (const NodeId operand : node.inputs()) {
        used[operand] = true;
        const bool larger = computes && shapes_[operand] != shapes_[id];
        if (!larger && !early_[id]) broadcast[operand] = false;
      }
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      early_[id] =
          early_[id] && std::ranges::all_of(nodes_[id].inputs(), [&](NodeId operand) {
            return !is_computed(nodes_[operand]) || early_[operand] || is_conversion(operand);
          });
    }
  }

  std::vector<bool> reduced_by(NodeId id) const {
    const Dims& from = shapes_[nodes_[id].operands[0]];
    std::vector<bool> axes(from.size());
    for (std::size_t k = 0; k < axes.size(); ++k) axes[k] = from[k] != shapes_[id][k];
    return axes;
  }

  // -- Where a value goes

  void place(NodeId id) {
    std::vector<NodeId> along = floating_operands(id);
    if (!along.empty() && !come_along(id, along)) {
      for (const NodeId operand : along) place(operand);
      along.clear();
    }
    std::int64_t latest = kNone;
    std::int64_t after = kNone;  // a kernel that must have ended
    std::vector<NodeId> operands;
    for (const NodeId each : along) add_inputs(each, operands);
    add_inputs(id, operands);
    for (const NodeId operand : operands) {
      ++steps_;
      latest = std::max(latest, home_[operand]);
      after = std::max(after, ready_[operand]);
    }
    const auto settle = [&](std::int64_t place) {
      for (const NodeId each : along) join(each, place);
      join(id, place);
    };
    const auto has_room = [&](std::int64_t place) {
      const Group& at = group(place);
      return along.empty() || (at.values + along.size() < model_.most_values &&
                               at.arrays.size() + arrays_among(operands) <= model_.most_arrays);
    };
    const auto why_not = [&](std::int64_t place) {
      std::string reason = obstacle(id, group(place));
      if (reason.empty() && !has_room(place)) {
        reason = fmt::format("the kernel before has {} values", group(place).values);
      }
      return reason;
    };
    std::string reason = "nothing before it";
    if (after >= latest && after != kNone) {
      reason = waiting_reason(id);
    } else if (latest != kNone) {
      reason = why_not(latest);
      if (reason.empty()) return settle(latest);
    }
    // A later kernel that reads the same array can compute this beside what it computes.
    const bool free = latest == kNone && after == kNone;
    for (const NodeId operand : operands) {
      const auto reader = last_reader_.find(array_of(operand));
      if (!model_.share_reads || reader == last_reader_.end()) continue;
      if (reader->second <= std::max(latest, after)) continue;
      std::string other = why_not(reader->second);
      if (other.empty()) return settle(reader->second);
      if (free) reason = std::move(other);
    }
    // What pieces of rows gave is joined by one kernel.
    const bool in_pieces = latest != kNone && group(latest).pieces > 1;
    if (in_pieces) {
      const auto joiner = joiners_.find(latest);
      if (joiner != joiners_.end() && joiner->second > after && why_not(joiner->second).empty()) {
        return settle(joiner->second);
      }
      joiners_[latest] = static_cast<std::int64_t>(groups_.size());
    }
    if (free && early_[id] && !groups_.empty()) {
      const auto last = static_cast<std::int64_t>(groups_.size()) - 1;
      if (why_not(last).empty()) return settle(last);
    }
    settle(begin_group(id, std::move(reason)));
  }

  // A value of arguments alone that only kernels read waits for the first of them, and is computed
  // there.
  bool floats(NodeId id) const {
    return ready_alone_[id] && is_computed(nodes_[id]) && !early_[id] && !kept_[id] && !seen_[id] &&
           !is_conversion(id) && !counts(id) && !(is_reduced_[id] && is_counted_[id]);
  }

  // The operands that still wait, and theirs; operands first.
  std::vector<NodeId> floating_operands(NodeId id) const {
    std::vector<NodeId> found;
    std::vector<NodeId> open{id};
    std::unordered_set<NodeId> known;
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      for (const NodeId operand : nodes_[at].inputs()) {
        if (home_[operand] != kNone || !floats(operand) || !known.insert(operand).second) continue;
        found.push_back(operand);
        open.push_back(operand);
      }
    }
    std::ranges::sort(found);
    return found;
  }

  bool come_along(NodeId id, const std::vector<NodeId>& along) const {
    std::vector<NodeId> operands;
    for (const NodeId each : along) add_inputs(each, operands);
    add_inputs(id, operands);
    return !has_axes(nodes_[id].op) && along.size() < model_.most_values &&
           arrays_among(operands) <= model_.most_arrays &&
           std::ranges::all_of(along, [&](NodeId x) { return shapes_[x] == shapes_[id]; });
  }

  std::size_t arrays_among(const std::vector<NodeId>& operands) const {
    std::unordered_set<NodeId> arrays;
    for (const NodeId operand : operands) {
      const bool array = nodes_[array_of(operand)].op == Op::input || is_deferred(operand) ||
                         home_[operand] != kNone;
      if (array) arrays.insert(read_of(operand));
    }
    return arrays.size();
  }

  void add_inputs(NodeId id, std::vector<NodeId>& operands) const {
    for (const NodeId operand : nodes_[id].inputs()) operands.push_back(operand);
  }

  // The kernel that must have ended before what is no computed value can be read.
  std::int64_t ready_after(NodeId id) {
    const TypedNode& node = nodes_[id];
    switch (node.op) {
      case Op::view: {
        const NodeId root = node.operands[0];
        return std::max(home_[root], ready_[root]);
      }
      case Op::join: {
        std::int64_t last = kNone;
        for (const PlacedPart& part : graph_.joins[node.payload]) {
          last = std::max(last, home_[part.value]);
        }
        return last;
      }
      case Op::opaque: return call(opaque_call(node.payload));
      default: return kNone;
    }
  }

  std::int64_t call(std::size_t index) {
    for (std::size_t g = groups_.size(); g-- > 0;) {
      if (groups_[g].call == index) return static_cast<std::int64_t>(g);
    }
    Group group;
    group.call = index;
    group.reason = "a call of the caller";
    groups_.push_back(std::move(group));
    return static_cast<std::int64_t>(groups_.size()) - 1;
  }

  Group& group(std::int64_t place) { return groups_[static_cast<std::size_t>(place)]; }

  // The array that a value is read from, in which several views lie.
  NodeId array_of(NodeId id) const { return viewed(graph_.graph, read_of(id)); }

  // What is read for a value.
  NodeId read_of(NodeId id) const { return is_conversion(id) ? nodes_[id].operands[0] : id; }

  // Stored by another kernel before this one begins, whatever kernel that is.
  bool is_deferred(NodeId id) const {
    const NodeId root = viewed(graph_.graph, id);
    const Op op = nodes_[root].op;
    return op == Op::join || op == Op::opaque || (root != id && op != Op::input);
  }

  bool is_view_of_argument(NodeId id) const {
    return nodes_[id].op == Op::view && nodes_[nodes_[id].operands[0]].op == Op::input;
  }

  std::string waiting_reason(NodeId id) const {
    for (const NodeId operand : nodes_[id].inputs()) {
      if (!is_deferred(operand)) continue;
      const Op op = nodes_[array_of(operand)].op;
      if (op == Op::opaque) return "it reads what a call of the caller gives";
      if (op == Op::join) return "it reads an array that is concatenated of several parts";
      return "it reads a view of a stored value";
    }
    return "nothing before it";
  }

  // Why the value cannot join the kernel; empty if it can.
  std::string obstacle(NodeId id, const Group& group) const {
    const TypedNode& node = nodes_[id];
    if (group.call) return "the kernel before is a call of the caller";
    if (group.values >= model_.most_values) {
      return fmt::format("the kernel before has {} values", group.values);
    }
    if (group.arrays.size() + node.arity > model_.most_arrays) {
      return fmt::format("the kernel before reads {} arrays", group.arrays.size());
    }
    if (group.pieces > 1 && reads_pieces(id, group)) return split_reason(group);
    if (group.counts && is_reduction(node.op)) {
      return fmt::format("{} reduces, the kernel before counts elements", info(node.op).name);
    }
    if (group.counts && is_reduced_[id] && !counts(id) && !narrows(id)) {
      return fmt::format("{} is reduced, and takes more bytes than what the kernel before counts",
                         info(node.op).name);
    }
    if (counts(id) && !group.reduced.empty()) {
      return fmt::format("{} counts elements, the kernel before reduces", info(node.op).name);
    }
    if (std::string reason = running_obstacle(id, group); !reason.empty()) return reason;
    if (is_reduction(node.op)) {
      const Dims& from = shapes_[node.operands[0]];
      if (from != group.shape) {
        return fmt::format("{} is over {}, the kernel before runs over {}", info(node.op).name,
                           to_string(from), to_string(group.shape));
      }
      if (!group.reduced.empty() && group.reduced != reduced_by(id)) {
        return fmt::format("{} reduces other axes than the kernel before", info(node.op).name);
      }
      if (!group.reduced.empty() && pieces_of(graph_.graph, shapes_, id) != group.pieces) {
        return split_reason(group);
      }
      return {};
    }
    const Dims& shape = shapes_[id];
    if (shape == group.shape) {
      return {};
    }
    if (!group.reduced.empty() && group.pieces == 1 && shape == group.row_shape()) return {};
    return fmt::format("{} has shape {}, the kernel before runs over {}", info(node.op).name,
                       to_string(shape), to_string(group.shape));
  }

  // Whether a value takes fewer bytes than any that it is computed from and that has its elements.
  bool narrows(NodeId id) const {
    return std::ranges::all_of(nodes_[id].inputs(), [&](NodeId operand) {
      return shapes_[operand] != shapes_[id] || !is_computed(nodes_[operand]) ||
             stored_bytes(graph_, id) < stored_bytes(graph_, operand);
    });
  }

  // Which values reductions depend on, and which depend on counts.
  void find_reduced() {
    is_reduced_.assign(nodes_.size(), false);
    is_counted_.assign(nodes_.size(), false);
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      is_counted_[id] = nodes_[id].op == Op::iota ||
                        (!has_axes(nodes_[id].op) &&
                         std::ranges::any_of(nodes_[id].inputs(),
                                             [&](NodeId operand) { return is_counted_[operand]; }));
    }
    for (NodeId id = static_cast<NodeId>(nodes_.size()); id-- > 0;) {
      if (!is_reduced_[id] && !is_reduction(nodes_[id].op)) continue;
      for (const NodeId operand : nodes_[id].inputs()) is_reduced_[operand] = true;
    }
  }

  // Running results go along one axis of a kernel, beside no reductions.
  std::string running_obstacle(NodeId id, const Group& group) const {
    const TypedNode& node = nodes_[id];
    if (group.running != 0 && (is_reduction(node.op) || counts(id))) {
      return fmt::format("{} {}, the kernel before has running results", info(node.op).name,
                         is_reduction(node.op) ? "reduces" : "counts elements");
    }
    if (!is_scan(node.op)) return {};
    if (!group.reduced.empty() || group.counts) {
      return fmt::format("{} runs along an axis, the kernel before {}", info(node.op).name,
                         group.counts ? "counts elements" : "reduces");
    }
    if (group.running != 0 && group.running != running_axis(id)) {
      return fmt::format("{} runs along another axis than the kernel before", info(node.op).name);
    }
    return {};
  }

  std::size_t running_axis(NodeId id) const { return scan_axis(nodes_[id], graph_.shapes[id]); }

  bool counts(NodeId id) const {
    return std::ranges::any_of(nodes_[id].inputs(),
                               [&](NodeId operand) { return nodes_[operand].op == Op::iota; });
  }

  // The values of the kernel that a piece of a row gives are only joined by another one.
  bool reads_pieces(NodeId id, const Group& group) const {
    return std::ranges::any_of(nodes_[id].inputs(), [&](NodeId operand) {
      return home_[operand] != kNone &&
             &groups_[static_cast<std::size_t>(home_[operand])] == &group &&
             pieces_of(graph_.graph, shapes_, operand) > 1;
    });
  }

  static std::string split_reason(const Group& group) {
    return fmt::format("the few long rows of {} are split over blocks", to_string(group.shape));
  }

  std::int64_t begin_group(NodeId id, std::string reason) {
    Group group;
    const TypedNode& node = nodes_[id];
    const bool reduces = is_reduction(node.op);
    group.shape = reduces ? shapes_[node.operands[0]] : shapes_[id];
    group.reason = std::move(reason);
    groups_.push_back(std::move(group));
    return static_cast<std::int64_t>(groups_.size()) - 1;
  }

  void join(NodeId id, std::int64_t place) {
    Group& group = groups_[static_cast<std::size_t>(place)];
    home_[id] = place;
    ++group.values;
    const TypedNode& node = nodes_[id];
    if (is_reduction(node.op)) {
      group.reduced = reduced_by(id);
      group.pieces = pieces_of(graph_.graph, shapes_, id);
    }
    if (is_scan(node.op)) group.running = running_axis(id);
    group.counts = group.counts || counts(id);
    for (const NodeId operand : node.inputs()) {
      const bool array = nodes_[array_of(operand)].op == Op::input || is_deferred(operand) ||
                         (home_[operand] != kNone && home_[operand] != place);
      if (!array) continue;
      group.arrays.insert(read_of(operand));
      last_reader_[array_of(operand)] = place;
    }
  }

  // -- What is stored

  // A value that another kernel needs is a result of its own, or computed again there.
  void find_results() {
    results_.resize(groups_.size());
    users_.resize(nodes_.size());
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      for (const NodeId operand : nodes_[id].inputs()) users_[operand].push_back(id);
    }
    std::vector<bool> stored = kept_;
    // From the last kernel to the first: what a kernel computes again, it needs the operands of.
    needs_.resize(groups_.size());
    std::vector<std::vector<NodeId>> members(groups_.size());
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (home_[id] != kNone) members[static_cast<std::size_t>(home_[id])].push_back(id);
    }
    for (std::size_t g = groups_.size(); g-- > 0;) {
      if (groups_[g].call) {
        read_by_call(g);
        continue;
      }
      std::unordered_set<NodeId> needed;
      for (const NodeId id : members[g]) {
        if (stored[id]) needed.insert(id);
      }
      std::vector<NodeId> wanted(needed.begin(), needed.end());
      std::ranges::sort(wanted);
      results_[g] = wanted;
      collect(g, wanted, needed, stored);
    }
  }

  void read_by_call(std::size_t g) {
    const PlacedCall& call = graph_.calls[*groups_[g].call];
    results_[g] = call.results;
    for (const NodeId input : call.inputs) {
      if (nodes_[array_of(input)].op == Op::input) {
        needs_[g].push_back(input);
      } else {
        reads_of_[g].insert(input);
      }
    }
  }

  // Whether a value is a conversion of one that takes fewer bytes, which is read instead.
  bool widens(NodeId id) const {
    const TypedNode& node = nodes_[id];
    if (node.op != Op::promote) return false;
    const NodeId from = node.operands[0];
    return home_[from] != kNone && stored_bytes(graph_, from) < stored_bytes(graph_, id);
  }

  // Everything that kernel `g` computes for what is wanted; marks as stored what it reads.
  void collect(std::size_t g, std::vector<NodeId> wanted, std::unordered_set<NodeId>& needed,
               std::vector<bool>& stored) {
    std::unordered_set<NodeId> moved;  // of other kernels, and used by this one alone
    while (!wanted.empty()) {
      const NodeId id = wanted.back();
      wanted.pop_back();
      ++steps_;
      for (const NodeId operand : nodes_[id].inputs()) {
        if (needed.contains(operand)) continue;
        if (is_view_of_argument(operand)) {
          needed.insert(operand);
          continue;
        }
        if (is_deferred(operand)) {
          stored[array_of(operand)] = true;
          reads_of_[g].insert(operand);
          continue;
        }
        const bool foreign =
            home_[operand] != kNone && home_[operand] != static_cast<std::int64_t>(g);
        if (foreign && !stored[operand] && widens(operand)) {
          needed.insert(operand);
          wanted.push_back(operand);
          continue;
        }
        if (foreign && (stored[operand] || !computes_again(operand, g, moved, stored))) {
          stored[operand] = true;
          reads_of_[g].insert(operand);
          continue;
        }
        if (foreign && is_used_only(operand, {}, moved, g, stored)) moved.insert(operand);
        needed.insert(operand);
        wanted.push_back(operand);
      }
    }
    needs_[g].assign(needed.begin(), needed.end());
    std::ranges::sort(needs_[g]);
  }

  // Whether a value of another kernel costs less to compute again than to store and read: a few
  // operations on arguments that take no more bytes than it, each of them cheap or needed nowhere
  // else, so that it moves. Of a value that leaves the caches all operations may take as long as
  // its way through memory does; the results of reductions that it needs are stored for it.
  bool computes_again(NodeId id, std::size_t g, const std::unordered_set<NodeId>& moved,
                      const std::vector<bool>& stored) const {
    std::vector<NodeId> wanted{id};
    std::unordered_set<NodeId> seen{id};
    std::size_t operations = 0;
    std::uint64_t bytes = 0;
    double cost = 0;
    bool cheap = true;
    const bool large = stored_bytes(graph_, id) >= model_.cached_bytes;
    while (!wanted.empty()) {
      const NodeId at = wanted.back();
      wanted.pop_back();
      ++steps_;
      const TypedNode& node = nodes_[at];
      const bool array = node.op == Op::input || is_view_of_argument(at);
      if (array && !groups_[g].arrays.contains(at)) bytes += bytes_of(graph_, at);
      if (is_leaf(node) || array) continue;
      if (at != id && stored[at] && home_[at] != static_cast<std::int64_t>(g)) {
        const auto reads = reads_of_.find(g);
        const bool read = reads != reads_of_.end() && reads->second.contains(at);
        bytes += read ? 0 : stored_bytes(graph_, at);
        continue;
      }
      if (has_axes(node.op) && large && home_[at] != static_cast<std::int64_t>(g)) {
        bytes += 2 * stored_bytes(graph_, at);
        continue;
      }
      if (is_deferred(at) || has_axes(node.op)) return false;
      if (counts(at) && (!groups_[g].reduced.empty() || groups_[g].running != 0)) return false;
      if (node.op != Op::promote && ++operations > model_.most_recomputed) return false;
      cheap = cheap && is_cheap(node);
      cost += cost_of(node.op);
      for (const NodeId operand : node.inputs()) {
        if (seen.insert(operand).second) wanted.push_back(operand);
      }
    }
    const std::uint64_t own = stored_bytes(graph_, id);
    if (large && bytes < 2 * own) {
      const auto saved = static_cast<double>(2 * own - bytes);
      if (cost * elements_of(id) <= model_.operations_per_byte * saved) return true;
    }
    if (bytes > own) return false;
    return cheap || std::ranges::all_of(seen, [&](NodeId at) {
             return !is_computed(nodes_[at]) || is_conversion(at) || (at != id && stored[at]) ||
                    is_used_only(at, seen, moved, g, stored);
           });
  }

  double elements_of(NodeId id) const {
    double elements = 1;
    for (const std::int64_t size : shapes_[id]) elements *= static_cast<double>(size);
    return elements;
  }

  // Whether everything that uses a value is among those two sets or of kernel `g`.
  bool is_used_only(NodeId id, const std::unordered_set<NodeId>& by,
                    const std::unordered_set<NodeId>& moved, std::size_t g,
                    const std::vector<bool>& stored) const {
    return !stored[id] && std::ranges::all_of(users_[id], [&](NodeId user) {
      ++steps_;
      return by.contains(user) || moved.contains(user) ||
             home_[user] == static_cast<std::int64_t>(g);
    });
  }

  KernelPart part(std::size_t g) const {
    KernelPart kernel;
    kernel.shape = groups_[g].shape;
    kernel.reason = groups_[g].reason;
    kernel.call = groups_[g].call;
    kernel.results = results_[g];
    bool reduces = false;
    for (const NodeId id : needs_[g]) {
      reduces = reduces || is_reduction(nodes_[id].op);
      kernel.values.push_back(id);
    }
    if (reduces) {
      kernel.reduced = groups_[g].reduced;
      kernel.pieces = groups_[g].pieces;
    }
    if (const auto reads = reads_of_.find(g); reads != reads_of_.end()) {
      kernel.reads.assign(reads->second.begin(), reads->second.end());
      std::ranges::sort(kernel.reads);
    }
    return kernel;
  }

  const PlacedGraph& graph_;
  const std::vector<TypedNode>& nodes_;
  const CostModel& model_;
  std::vector<Dims> shapes_;  ///< of one rank
  std::vector<bool> kept_;
  std::vector<bool> seen_;         ///< through a view
  std::vector<bool> ready_alone_;  ///< depends on arguments alone
  std::vector<bool> early_;
  std::vector<bool> is_reduced_;     ///< a reduction depends on it
  std::vector<bool> is_counted_;     ///< it depends on a count
  std::vector<std::int64_t> home_;   ///< of computed values: their kernel
  std::vector<std::int64_t> ready_;  ///< of others: the kernel that must have ended
  std::vector<Group> groups_;
  std::unordered_map<NodeId, std::int64_t> last_reader_;
  std::unordered_map<std::int64_t, std::int64_t> joiners_;  ///< of kernels over pieces
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::vector<NodeId>> results_;
  std::vector<std::vector<NodeId>> needs_;
  std::unordered_map<std::size_t, std::unordered_set<NodeId>> reads_of_;
  mutable std::uint64_t steps_ = 0;
};

}  // namespace

Partition partition(const PlacedGraph& graph, const CostModel& model) {
  return Partitioner(graph, model).run();
}

}  // namespace kiln::fusion
