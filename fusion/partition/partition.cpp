#include "fusion/partition/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/attention_space.hpp"
#include "fusion/partition/bytes.hpp"
#include "fusion/partition/facts.hpp"
#include "fusion/partition/obstacles.hpp"
#include "fusion/partition/row_passes.hpp"
#include "fusion/partition/stores.hpp"
#include "fusion/passes/split_reductions.hpp"

namespace kiln::fusion {
namespace {

class Partitioner {
 public:
  Partitioner(const PlacedGraph& graph, const CostModel& model)
      : graph_(graph),
        nodes_(graph.graph.nodes),
        facts_(graph),
        model_(model),
        home_(nodes_.size(), kNoKernel),
        ready_(nodes_.size(), kNoKernel),
        attention_of_(nodes_.size(), kNone),
        obstacles_(facts_, model, home_, groups_),
        passes_(facts_, model, home_, steps_) {
    find_attentions();
    find_first_reductions();
  }

  Partition run() {
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (!facts_.is_stored_index(id)) continue;
      place(id);
      groups_.back().alone = true;
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (is_early(id) && !is_in_attention(id) && !facts_.is_conversion(id)) place(id);
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (is_in_attention(id)) {
        const AttentionNodes& own = attentions_[attention_of_[id]];
        if (id == own.inside.back()) place_attention(own);
        continue;
      }
      if (is_early(id) || floats(id) || home_[id] != kNoKernel) continue;
      if (is_computed(nodes_[id]) && !facts_.is_conversion(id)) {
        const std::size_t kernels = groups_.size();
        place(id);
        if (groups_.size() > kernels) place_beside(id);
      } else {
        ready_[id] = ready_after(id);
      }
    }
    Partition result;
    const std::vector<StoredValues> stored = stored_values(facts_, model_, home_, groups_, steps_);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!stored[g].results.empty()) result.kernels.push_back(part(groups_[g], stored[g]));
    }
    count_bytes(graph_, result);
    result.steps = steps_;
    return result;
  }

 private:
  // -- Attention

  static constexpr std::size_t kNone = ~std::size_t{0};

  void find_attentions() {
    if (!model_.fuse) return;
    std::vector<bool> kept = facts_.kept;
    for (NodeId id = 0; id < nodes_.size(); ++id) kept[id] = kept[id] || facts_.seen_as_view[id];
    attentions_ = find_attention(graph_.graph, facts_.shapes, kept, graph_.bounds);
    for (std::size_t i = 0; i < attentions_.size(); ++i) {
      for (const NodeId id : attentions_[i].inside) attention_of_[id] = i;
    }
  }

  bool is_in_attention(NodeId id) const { return attention_of_[id] != kNone; }

  // All of it is one kernel, after those of what it reads.
  void place_attention(const AttentionNodes& own) {
    for (const NodeId id : own.inside) {
      for (const NodeId operand : nodes_[id].inputs()) {
        if (home_[operand] == kNoKernel && !is_in_attention(operand) && floats(operand)) {
          place(operand);
        }
      }
    }
    const auto place = static_cast<std::int64_t>(groups_.size());
    Group group;
    group.shape = facts_.shapes[nodes_[own.result].operands[0]];
    group.reduced = facts_.reduced_by(own.result);
    group.splits = splits_of(graph_.graph, facts_.shapes, own.result);
    group.values = own.inside.size();
    group.attention = true;
    group.bounds = own.ends;
    const std::int64_t keys = facts_.shapes[own.scores][own.key];
    group.reason = fmt::format("attention over {} keys{}", keys,
                               group.splits > 1 ? fmt::format(", in {} parts", group.splits) : "");
    for (const NodeId id : own.inside) {
      home_[id] = place;
      for (const NodeId operand : nodes_[id].inputs()) {
        const bool array = facts_.is_in_memory(operand) ||
                           (home_[operand] != kNoKernel && !is_in_attention(operand));
        if (array) group.arrays.insert(facts_.read_of(operand));
      }
    }
    groups_.push_back(std::move(group));
  }

  // -- Where a value goes

  // `beside` is what others read that are to be in the same kernel.
  void place(NodeId id, std::span<const NodeId> beside = {}) {
    if (const std::optional<NodeId> wider = wider_reduction(id)) place(*wider);
    std::vector<NodeId> along = floating_operands(id);
    if (!along.empty() && !come_along(id, along)) {
      const std::vector<NodeId> all = operands_of(along, id);
      for (const NodeId operand : along) place(operand, all);
      along.clear();
    }
    std::int64_t latest = kNoKernel;
    std::int64_t after = kNoKernel;  // a kernel that must have ended
    const std::vector<NodeId> operands = operands_of(along, id);
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
      std::string reason = obstacles_.of(id, group(place));
      if (reason.empty()) reason = obstacles_.of_update(id, operands, group(place));
      if (reason.empty() && !has_room(place)) {
        reason = fmt::format("the kernel before has {} values", group(place).values);
      }
      if (reason.empty() && passes_.recomputes_too_much(id, place, group(place))) {
        reason = "storing its operands takes less than a further pass that computes them again";
      }
      return reason;
    };
    std::string reason = "nothing before it";
    if (after >= latest && after != kNoKernel) {
      reason = waiting_reason(id);
    } else if (latest != kNoKernel) {
      reason = why_not(latest);
      if (reason.empty()) return settle(latest);
    }
    // A later kernel that reads the same array can compute this beside what it computes.
    const bool free = latest == kNoKernel && after == kNoKernel;
    std::vector<NodeId> shared = operands;
    shared.insert(shared.end(), beside.begin(), beside.end());
    for (const NodeId operand : shared) {
      const auto reader = last_reader_.find(facts_.array_of(operand));
      if (!model_.share_reads || reader == last_reader_.end()) continue;
      if (reader->second <= std::max(latest, after)) continue;
      std::string other = why_not(reader->second);
      if (other.empty()) return settle(reader->second);
      if (free) reason = std::move(other);
    }
    // One kernel joins the results of a split reduction.
    const bool is_split = latest != kNoKernel && group(latest).splits > 1;
    if (is_split) {
      const auto joiner = joiners_.find(latest);
      if (joiner != joiners_.end() && joiner->second > after && why_not(joiner->second).empty()) {
        return settle(joiner->second);
      }
      joiners_[latest] = next_group();
      readers_of_joiner_[next_group()] = kNoKernel;
    }
    // Another goes over the elements again with what that gives, whatever it reads of each.
    const auto again = readers_of_joiner_.find(latest);
    if (again != readers_of_joiner_.end() && !is_split) {
      if (again->second > after && why_not(again->second).empty()) return settle(again->second);
      again->second = next_group();
    }
    if (free && is_early(id) && !groups_.empty()) {
      if (why_not(next_group() - 1).empty()) return settle(next_group() - 1);
    }
    settle(begin_group(id, std::move(reason)));
  }

  // Reductions of what depends on arguments alone, by the arrays that they read, those that read
  // most first.
  void find_first_reductions() {
    if (!model_.fuse || !model_.share_reads) return;
    std::vector<std::vector<NodeId>> arrays(nodes_.size());  // of which a value is computed
    std::vector<bool> anywhere(nodes_.size(), false);        // can be computed by any kernel
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const TypedNode& node = nodes_[id];
      const bool reduces =
          is_reduction(node.op) && !is_in_attention(id) && anywhere[node.operands[0]];
      anywhere[id] = facts_.alone[id] &&
                     (!is_computed(node) || facts_.is_conversion(id) || is_early(id) || floats(id));
      for (const NodeId operand : node.inputs()) anywhere[id] = anywhere[id] && anywhere[operand];
      if (!reduces && !(anywhere[id] && is_computed(node))) continue;
      for (const NodeId operand : node.inputs()) {
        const NodeId array = facts_.array_of(operand);
        if (nodes_[array].op == Op::input) arrays[id].push_back(array);
        const std::vector<NodeId>& own = arrays[operand];
        arrays[id].insert(arrays[id].end(), own.begin(), own.end());
      }
      std::ranges::sort(arrays[id]);
      const auto again = std::ranges::unique(arrays[id]);
      arrays[id].erase(again.begin(), again.end());
      if (arrays[id].size() > model_.most_arrays) arrays[id].clear();
      if (!reduces) continue;
      for (const NodeId array : arrays[id]) reductions_of_[array].push_back(id);
      reads_[id] = arrays[id];
    }
    for (auto& [array, reductions] : reductions_of_) {
      std::ranges::stable_sort(reductions, std::ranges::greater(),
                               [&](NodeId id) { return reads_.at(id).size(); });
    }
  }

  // A reduction that reads more arrays, some of them the same, over the same space. It goes first:
  // then one kernel reads the arrays of both, where a kernel that begins with fewer of them would
  // not be found by what reads the others.
  std::optional<NodeId> wider_reduction(NodeId id) {
    const auto own = reads_.find(id);
    if (own == reads_.end()) return {};
    std::optional<NodeId> widest;
    std::size_t most = own->second.size();
    for (const NodeId array : own->second) {
      for (const NodeId other : reductions_of_.at(array)) {
        ++steps_;
        if (reads_.at(other).size() <= most) break;
        if (home_[other] != kNoKernel || !is_over_same_space(other, id)) continue;
        widest = other;
        most = reads_.at(other).size();
      }
    }
    return widest;
  }

  // Other reductions of the same arrays over the same space share the kernel that a reduction
  // begins with: those that are met later would join a later kernel, one that reads the arrays
  // again since it waits for this one.
  void place_beside(NodeId id) {
    const auto own = reads_.find(id);
    if (own == reads_.end()) return;
    for (const NodeId array : own->second) {
      for (const NodeId other : reductions_of_.at(array)) {
        ++steps_;
        if (home_[other] == kNoKernel && is_over_same_space(other, id)) place(other);
      }
    }
  }

  bool is_over_same_space(NodeId one, NodeId other) const {
    return facts_.shapes[one] == facts_.shapes[other] &&
           facts_.shapes[nodes_[one].operands[0]] == facts_.shapes[nodes_[other].operands[0]];
  }

  // Those of several values and of the one that they come along with.
  std::vector<NodeId> operands_of(const std::vector<NodeId>& along, NodeId id) const {
    std::vector<NodeId> operands;
    const auto add = [&](NodeId value) {
      const auto inputs = nodes_[value].inputs();
      operands.insert(operands.end(), inputs.begin(), inputs.end());
      for (const BoundedAxis& bound : facts_.bounds(value)) operands.push_back(bound.end);
    };
    for (const NodeId each : along) add(each);
    add(id);
    return operands;
  }

  bool is_early(NodeId id) const { return model_.fuse && facts_.early[id]; }

  // A value of arguments alone that only kernels read waits for the first of them, and is computed
  // there.
  bool floats(NodeId id) const {
    return !model_.is_alone(id) && facts_.alone[id] && is_computed(nodes_[id]) &&
           !facts_.has_places(id) && facts_.bounds(id).empty() && !facts_.early[id] &&
           !facts_.kept[id] && !facts_.seen_as_view[id] && !facts_.is_conversion(id) &&
           !facts_.reads_iota(id) && !(facts_.reduced[id] && facts_.after_iota[id]);
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
        if (home_[operand] != kNoKernel || !floats(operand) || !known.insert(operand).second)
          continue;
        found.push_back(operand);
        open.push_back(operand);
      }
    }
    std::ranges::sort(found);
    return found;
  }

  bool come_along(NodeId id, const std::vector<NodeId>& along) const {
    const std::vector<NodeId> operands = operands_of(along, id);
    return !has_axes(nodes_[id].op) && along.size() < model_.most_values &&
           arrays_among(operands) <= model_.most_arrays &&
           std::ranges::all_of(along,
                               [&](NodeId x) { return facts_.shapes[x] == facts_.shapes[id]; });
  }

  std::size_t arrays_among(const std::vector<NodeId>& operands) const {
    std::unordered_set<NodeId> arrays;
    for (const NodeId operand : operands) {
      const bool array = facts_.is_in_memory(operand) || home_[operand] != kNoKernel;
      if (array) arrays.insert(facts_.read_of(operand));
    }
    return arrays.size();
  }

  // The kernel that must have ended before what is no computed value can be read.
  std::int64_t ready_after(NodeId id) {
    const TypedNode& node = nodes_[id];
    switch (node.op) {
      case Op::view: {
        if (facts_.is_view_of_indices(id)) return kNoKernel;
        const NodeId root = node.operands[0];
        return std::max(home_[root], ready_[root]);
      }
      case Op::join: {
        std::int64_t last = kNoKernel;
        for (const PlacedPart& part : graph_.joins[node.payload]) {
          last = std::max(last, home_[part.value]);
        }
        return last;
      }
      case Op::custom_call: return call(call_index(node.payload));
      case Op::promote: return ready_[node.operands[0]];
      default: return kNoKernel;
    }
  }

  std::int64_t call(std::size_t index) {
    for (std::size_t g = groups_.size(); g-- > 0;) {
      if (groups_[g].call == index) return static_cast<std::int64_t>(g);
    }
    Group group;
    group.call = index;
    group.reason = "a custom call";
    groups_.push_back(std::move(group));
    return static_cast<std::int64_t>(groups_.size()) - 1;
  }

  std::int64_t next_group() const { return static_cast<std::int64_t>(groups_.size()); }
  Group& group(std::int64_t place) { return groups_[static_cast<std::size_t>(place)]; }

  std::string waiting_reason(NodeId id) const {
    for (const NodeId operand : nodes_[id].inputs()) {
      if (!facts_.is_deferred(facts_.read_of(operand))) continue;
      const Op op = nodes_[facts_.array_of(operand)].op;
      if (op == Op::custom_call) return "it reads the result of a custom call";
      if (op == Op::join) return joined_reason(facts_.array_of(operand));
      return "it reads a view of a stored value";
    }
    return "nothing before it";
  }

  const char* joined_reason(NodeId join) const {
    if (updated_argument(graph_, join)) return "it reads an array that another kernel updates";
    return graph_.joins[nodes_[join].payload].size() == 1
               ? "it reads packed numbers that another kernel unpacks to a byte each"
               : "it reads an array that is concatenated of several parts";
  }

  std::int64_t begin_group(NodeId id, std::string reason) {
    Group group;
    const TypedNode& node = nodes_[id];
    const bool reduces = is_reduction(node.op);
    group.shape = reduces ? facts_.shapes[node.operands[0]] : facts_.shapes[id];
    group.reason = std::move(reason);
    group.alone = model_.is_alone(id);
    group.bounds = facts_.bounds(id);
    groups_.push_back(std::move(group));
    return next_group() - 1;
  }

  void join(NodeId id, std::int64_t place) {
    Group& group = groups_[static_cast<std::size_t>(place)];
    home_[id] = place;
    ++group.values;
    const TypedNode& node = nodes_[id];
    if (is_reduction(node.op)) {
      ++group.reductions;
      group.reduced = facts_.reduced_by(id);
      group.splits = splits_of(graph_.graph, facts_.shapes, id);
    }
    if (is_scan(node.op)) group.running = facts_.running_axis(id);
    group.has_iota = group.has_iota || facts_.reads_iota(id);
    group.packs = group.packs || facts_.stores_packed(id) || facts_.takes_packed(id);
    if (facts_.has_places(id))
      group.places.push_back(facts_.repeats_value(id) ? id : node.operands[1]);
    if (const auto updated = facts_.updates(id)) group.updates.insert(*updated);
    for (const NodeId operand : node.inputs()) {
      const bool array =
          facts_.is_in_memory(operand) || (home_[operand] != kNoKernel && home_[operand] != place);
      if (!array) continue;
      group.arrays.insert(facts_.read_of(operand));
      last_reader_[facts_.array_of(operand)] = place;
    }
    passes_.add(id, place, group);
  }

  KernelPart part(const Group& group, const StoredValues& stored) const {
    KernelPart kernel;
    kernel.shape = group.shape;
    kernel.reason = group.reason;
    kernel.call = group.call;
    kernel.results = stored.results;
    kernel.values = stored.values;
    kernel.reads.assign(stored.reads.begin(), stored.reads.end());
    const bool reduces =
        std::ranges::any_of(kernel.values, [&](NodeId id) { return is_reduction(nodes_[id].op); });
    if (reduces) {
      kernel.reduced = group.reduced;
      kernel.splits = group.splits;
    }
    kernel.bounds = group.bounds;
    return kernel;
  }

  const PlacedGraph& graph_;
  const std::vector<TypedNode>& nodes_;
  const PartitionFacts facts_;
  const CostModel& model_;
  std::vector<std::int64_t> home_;   ///< of computed values: their kernel
  std::vector<std::int64_t> ready_;  ///< of others: the kernel that must have ended
  std::vector<Group> groups_;
  std::vector<AttentionNodes> attentions_;
  std::vector<std::size_t> attention_of_;  ///< of each node, a position among those, or kNone
  std::unordered_map<NodeId, std::int64_t> last_reader_;
  std::unordered_map<NodeId, std::vector<NodeId>> reductions_of_;  ///< those that read an array
  std::unordered_map<NodeId, std::vector<NodeId>> reads_;  ///< the arrays of such a reduction
  std::unordered_map<std::int64_t, std::int64_t>
      joiners_;  ///< the kernel that joins the results of each split reduction
  std::unordered_map<std::int64_t, std::int64_t>
      readers_of_joiner_;  ///< of each of those, the last that began with what it gives
  std::uint64_t steps_ = 0;
  const Obstacles obstacles_;
  RowPasses passes_;
};

}  // namespace

Partition partition(const PlacedGraph& graph, const CostModel& model) {
  return Partitioner(graph, model).run();
}

}  // namespace kiln::fusion
