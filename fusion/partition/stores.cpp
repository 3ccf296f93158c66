#include "fusion/partition/stores.hpp"

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/size_trace.hpp"

namespace kiln::fusion {
namespace {

class Stores {
 public:
  Stores(const PartitionFacts& facts, const CostModel& model, std::span<const std::int64_t> home,
         std::span<const Group> groups, std::uint64_t& steps)
      : facts_(facts),
        model_(model),
        home_(home),
        groups_(groups),
        kernels_(groups.size()),
        users_(users_of(facts.nodes)),
        steps_(&steps) {}

  // A value that another kernel needs is a result of its own, or computed again there.
  std::vector<StoredValues> run() {
    count_readers();
    std::vector<bool> stored = facts_.kept;
    // From the last kernel to the first: what a kernel computes again, it needs the operands of.
    std::vector<std::vector<NodeId>> members(groups_.size());
    for (NodeId id = 0; id < facts_.nodes.size(); ++id) {
      if (home_[id] != kNoKernel) members[static_cast<std::size_t>(home_[id])].push_back(id);
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
      kernels_[g].results = wanted;
      read_ends(g, needed, stored);
      collect(g, wanted, needed, stored);
    }
    return std::move(kernels_);
  }

 private:
  // Kernels other than its own that use a value.
  void count_readers() {
    readers_.resize(users_.size());
    std::vector<std::int64_t> kernels;
    for (NodeId id = 0; id < users_.size(); ++id) {
      kernels.clear();
      for (const NodeId user : users_[id]) {
        if (home_[user] != kNoKernel && home_[user] != home_[id]) kernels.push_back(home_[user]);
      }
      std::ranges::sort(kernels);
      readers_[id] = std::max<std::uint64_t>(
          1, static_cast<std::uint64_t>(std::unique(kernels.begin(), kernels.end()) -
                                        kernels.begin()));
    }
  }

  // What says where axes of a kernel end is read by it.
  void read_ends(std::size_t g, std::unordered_set<NodeId>& needed, std::vector<bool>& stored) {
    for (const BoundedAxis& bound : groups_[g].bounds) {
      const NodeId end = bound.end;
      if (is_leaf(facts_.nodes[end]) || facts_.is_view_of_argument(end)) {
        needed.insert(end);
      } else {
        stored[facts_.array_of(end)] = true;
        kernels_[g].reads.insert(end);
      }
    }
  }

  void read_by_call(std::size_t g) {
    const PlacedCall& call = facts_.graph.calls[*groups_[g].call];
    kernels_[g].results = call.results;
    for (const NodeId input : call.inputs) {
      if (facts_.nodes[facts_.array_of(input)].op == Op::input) {
        kernels_[g].values.push_back(input);
      } else {
        kernels_[g].reads.insert(input);
      }
    }
  }

  // Whether a value is a conversion of one that takes no more bytes, which is read instead.
  bool widens(NodeId id) const {
    if (model_.is_alone(id)) return converts(id);
    const std::uint64_t own = stored_bytes(facts_.graph, id);
    for (NodeId at = id; converts(at);) {
      at = facts_.nodes[at].operands[0];
      if (home_[at] == kNoKernel) return false;
      add_stored(add_stored(SizeSum(), 1, at), -1, id).decide();
      if (stored_bytes(facts_.graph, at) <= own) return true;
    }
    return false;
  }

  bool converts(NodeId id) const {
    const TypedNode& node = facts_.nodes[id];
    return node.op == Op::promote && facts_.nodes[node.operands[0]].dtype != node.dtype;
  }

  // Everything that kernel `g` computes for what is wanted; marks as stored what it reads.
  void collect(std::size_t g, std::vector<NodeId> wanted, std::unordered_set<NodeId>& needed,
               std::vector<bool>& stored) {
    std::unordered_set<NodeId> moved;  // of other kernels, and used by this one alone
    while (!wanted.empty()) {
      const NodeId id = wanted.back();
      wanted.pop_back();
      ++*steps_;
      for (const NodeId operand : facts_.nodes[id].inputs()) {
        if (needed.contains(operand)) continue;
        if (facts_.is_view_of_argument(operand)) {
          needed.insert(operand);
          continue;
        }
        if (facts_.is_deferred(operand)) {
          stored[facts_.array_of(operand)] = true;
          kernels_[g].reads.insert(operand);
          continue;
        }
        const bool foreign =
            home_[operand] != kNoKernel && home_[operand] != static_cast<std::int64_t>(g);
        if (foreign && !stored[operand] && widens(operand)) {
          needed.insert(operand);
          wanted.push_back(operand);
          continue;
        }
        if (foreign && (stored[operand] || !computes_again(operand, g, moved, stored))) {
          stored[operand] = true;
          kernels_[g].reads.insert(operand);
          continue;
        }
        if (foreign && is_used_only(operand, {}, moved, g, stored)) moved.insert(operand);
        needed.insert(operand);
        wanted.push_back(operand);
      }
    }
    kernels_[g].values.assign(needed.begin(), needed.end());
    std::ranges::sort(kernels_[g].values);
  }

  // Whether a value of another kernel costs less to compute again than to store and read: a few
  // operations on arguments that take no more bytes than it, each of them cheap or needed nowhere
  // else, so that it moves. Of a value that leaves the caches all operations may take as long as
  // its way through memory does, of which each reader spares its read and its share of the write;
  // the results of reductions that it needs are stored for it.
  bool computes_again(NodeId id, std::size_t g, const std::unordered_set<NodeId>& moved,
                      const std::vector<bool>& stored) const {
    if (model_.is_alone(id)) return false;
    std::vector<NodeId> wanted{id};
    std::unordered_set<NodeId> seen{id};
    std::size_t operations = 0;
    std::uint64_t bytes = 0;
    double cost = 0;
    bool cheap = true;
    const bool large = stored_bytes(facts_.graph, id) >= model_.cached_bytes;
    SizeSum traced;  // what `bytes` is
    add_stored(SizeSum(), 1, id).add(-static_cast<double>(model_.cached_bytes), 1).decide();
    while (!wanted.empty()) {
      const NodeId at = wanted.back();
      wanted.pop_back();
      ++*steps_;
      const TypedNode& node = facts_.nodes[at];
      if (groups_[g].attention && is_indexed(node.op)) return false;
      const bool array = node.op == Op::input || facts_.is_view_of_argument(at);
      if (array && groups_[g].updates.contains(facts_.array_of(at))) return false;
      if (array && !groups_[g].arrays.contains(at)) {
        bytes += bytes_of(facts_.graph, at);
        traced.add(bits(node.dtype) / 8.0, element_count(facts_.shapes[at]));
      }
      if (is_leaf(node) || array) continue;
      if (at != id && stored[at] && home_[at] != static_cast<std::int64_t>(g)) {
        if (kernels_[g].reads.contains(at)) continue;
        bytes += stored_bytes(facts_.graph, at);
        add_stored(traced, 1, at);
        continue;
      }
      const bool foreign = at != id && home_[at] != static_cast<std::int64_t>(g);
      if (has_axes(node.op) && large && foreign) {
        bytes += 2 * stored_bytes(facts_.graph, at);
        add_stored(traced, 2, at);
        continue;
      }
      if (facts_.is_deferred(at) || has_axes(node.op)) return false;
      if (node.op == Op::put || !facts_.bounds(at).empty()) return false;
      if (node.op == Op::take && !takes_in(at, groups_[g])) return false;
      if (facts_.reads_iota(at) && (!groups_[g].reduced.empty() || groups_[g].running != 0))
        return false;
      if (node.op != Op::promote && ++operations > model_.most_recomputed) return false;
      cheap = cheap && info(node.op).cheap;
      cost += info(node.op).cost;
      for (const NodeId operand : node.inputs()) {
        if (seen.insert(operand).second) wanted.push_back(operand);
      }
    }
    const std::uint64_t own = stored_bytes(facts_.graph, id);
    const std::uint64_t spared = own + own / readers_[id];
    // Every further pass over the elements of rows computes it once more.
    const bool of_elements = facts_.shapes[id] == groups_[g].shape;
    const double further = of_elements ? cost * (groups_[g].passes - 1) * elements_of(id) : 0;
    const double share = 1 + 1 / static_cast<double>(readers_[id]);
    const double per_element = of_elements ? cost * (groups_[g].passes - 1) : 0;
    const std::int64_t elements = element_count(facts_.shapes[id]);
    add_stored(SizeSum().add(per_element, elements), -model_.operations_per_byte * share, id)
        .decide();
    if (further > model_.operations_per_byte * static_cast<double>(spared)) return false;
    if (large) {
      add_stored(SizeSum().add(1, traced), -share, id).decide();
      add_stored(
          SizeSum().add(cost + per_element, elements).add(model_.operations_per_byte, traced),
          -model_.operations_per_byte * share, id)
          .decide();
    }
    if (large && bytes < spared) {
      const auto saved = static_cast<double>(spared - bytes);
      if (cost * elements_of(id) + further <= model_.operations_per_byte * saved) return true;
    }
    add_stored(SizeSum().add(1, traced), -1, id).decide();
    if (bytes > own) return false;
    return cheap || std::ranges::all_of(seen, [&](NodeId at) {
             return !is_computed(facts_.nodes[at]) || facts_.is_conversion(at) ||
                    (at != id && stored[at]) || is_used_only(at, seen, moved, g, stored);
           });
  }

  // Whether a kernel can take a value: places are the same for all of a row that is reduced.
  bool takes_in(NodeId id, const Group& group) const {
    const Dims& places = facts_.shapes[facts_.nodes[id].operands[1]];
    for (std::size_t k = 0; k < group.reduced.size(); ++k) {
      if (group.reduced[k] && places[k] != 1) return false;
    }
    return group.running == 0 && (group.reduced.empty() || !facts_.takes_packed(id));
  }

  // The bytes of a stored value, for a trace.
  SizeSum& add_stored(SizeSum& sum, double times, NodeId id) const {
    return sum.add(times * bits(stored_dtype(facts_.graph, id)) / 8,
                   element_count(facts_.shapes[id]));
  }
  SizeSum add_stored(SizeSum&& sum, double times, NodeId id) const {
    return add_stored(sum, times, id);
  }

  double elements_of(NodeId id) const {
    return static_cast<double>(element_count(facts_.shapes[id]));
  }

  // Whether everything that uses a value is among those two sets or of kernel `g`.
  bool is_used_only(NodeId id, const std::unordered_set<NodeId>& by,
                    const std::unordered_set<NodeId>& moved, std::size_t g,
                    const std::vector<bool>& stored) const {
    return !stored[id] && std::ranges::all_of(users_[id], [&](NodeId user) {
      ++*steps_;
      return by.contains(user) || moved.contains(user) ||
             home_[user] == static_cast<std::int64_t>(g);
    });
  }

  const PartitionFacts& facts_;
  const CostModel& model_;
  std::span<const std::int64_t> home_;
  std::span<const Group> groups_;
  std::vector<StoredValues> kernels_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::uint64_t> readers_;  ///< of each value
  std::uint64_t* steps_;
};

}  // namespace

std::vector<StoredValues> stored_values(const PartitionFacts& facts, const CostModel& model,
                                        std::span<const std::int64_t> home,
                                        std::span<const Group> kernels, std::uint64_t& steps) {
  return Stores(facts, model, home, kernels, steps).run();
}

}  // namespace kiln::fusion
