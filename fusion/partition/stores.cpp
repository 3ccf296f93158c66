#include "fusion/partition/stores.hpp"

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/operation_cost.hpp"
#include "fusion/graph/row_operation.hpp"
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
        of_indices_(facts.nodes.size(), false),
        steps_(&steps) {
    find_indices();
  }

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
      if (may_count(groups_[g])) {
        std::unordered_set<NodeId> own = needed;
        std::vector<bool> own_stored = stored;
        const StoredValues before = kernels_[g];
        if (collect(g, wanted, own, own_stored, true) && has_shapes(g)) {
          stored = std::move(own_stored);
          continue;
        }
        kernels_[g] = before;
      }
      collect(g, wanted, needed, stored, false);
    }
    return std::move(kernels_);
  }

 private:
  void find_indices() {
    for (NodeId id = 0; id < facts_.nodes.size(); ++id) {
      const TypedNode& node = facts_.nodes[id];
      const auto is_known = [&](NodeId operand) {
        const TypedNode& own = facts_.nodes[operand];
        return of_indices_[operand] || (is_leaf(own) && own.op != Op::input);
      };
      const auto is_index = [&](NodeId operand) { return of_indices_[operand]; };
      of_indices_[id] = counted_axis(facts_.graph, id).has_value() ||
                        (is_elementwise(node.op) && std::ranges::all_of(node.inputs(), is_known) &&
                         std::ranges::any_of(node.inputs(), is_index));
    }
  }
  bool has_indices() const { return std::ranges::find(of_indices_, true) != of_indices_.end(); }

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

  // Whether a value is made of one that takes fewer bytes by conversions and cheap operations with
  // what there is one of for each row, as numbers are of quantised ones and their scales; or by
  // conversions alone of one that takes no more. Those are read instead.
  bool widens(NodeId id) const {
    if (model_.is_alone(id)) return converts(id);
    const std::uint64_t own = stored_bytes(facts_.graph, id);
    std::uint64_t of_rows = 0;
    SizeSum traced;
    NodeId at = id;
    bool converted = true;  // and nothing else
    for (std::size_t operations = 0; operations <= model_.most_recomputed; ++operations) {
      const std::optional<RowOperation> operation = row_operation_of(at);
      if (!operation) return false;
      converted = converted && converts(at);
      at = operation->elements;
      if (operation->of_row) {
        of_rows += stored_bytes(facts_.graph, *operation->of_row);
        add_stored(traced, 1, *operation->of_row);
      }
      const NodeId read = facts_.read_of(at);
      const bool computed = home_[at] != kNoKernel;
      if (!computed && !facts_.is_deferred(read)) return false;
      add_stored(add_stored(SizeSum(), 1, read).add(1, traced), -1, id).decide();
      const std::uint64_t bytes = stored_bytes(facts_.graph, read) + of_rows;
      if (bytes < own || (converted && bytes == own)) return true;
      if (!computed) return false;
    }
    return false;
  }

  // One that any kernel can compute.
  std::optional<RowOperation> row_operation_of(NodeId id) const {
    const TypedNode& node = facts_.nodes[id];
    if (converts(id)) return RowOperation{node.operands[0], {}};
    if (!facts_.bounds(id).empty() || facts_.reads_iota(id)) return {};
    return row_operation(node, facts_.shapes[id], facts_.shapes);
  }

  bool converts(NodeId id) const {
    const TypedNode& node = facts_.nodes[id];
    return node.op == Op::promote && facts_.nodes[node.operands[0]].dtype != node.dtype;
  }

  // Whether a kernel may count indices that are stored.
  bool may_count(const Group& group) const {
    return has_indices() && !group.attention && group.running == 0 && !may_multiply(group);
  }

  // Whether it may be one of products, of packed numbers or with what rows share: those read
  // arrays.
  bool may_multiply(const Group& group) const {
    return std::ranges::any_of(group.arrays, [&](NodeId id) {
      return is_of_products(facts_, group, id) && !of_indices_[id];
    });
  }

  // Whether the values that a kernel reduces and stores have their shapes from what it reads, where
  // it counts indices, which have none.
  bool has_shapes(std::size_t g) const {
    if (groups_[g].reduced.empty()) return true;  // its results say
    std::unordered_map<NodeId, Dims> own;
    const auto is_whole = [&](NodeId id) { return own.at(id) == facts_.shapes[id]; };
    const Dims one(facts_.shapes.front().size(), 1);
    for (const NodeId id : kernels_[g].reads) own.emplace(id, facts_.shapes[id]);
    for (const NodeId id : kernels_[g].values) {
      const TypedNode& node = facts_.nodes[id];
      Dims shape = facts_.shapes[id];
      if (counted_axis(facts_.graph, id) || node.op == Op::iota) {
        shape = one;
      } else if (is_reduction(node.op)) {
        if (!is_whole(node.operands[0])) return false;
      } else if (is_elementwise(node.op) && node.arity > 0) {
        shape = one;
        for (const NodeId operand : node.inputs()) {
          shape = broadcast(shape, own.at(operand)).value_or(facts_.shapes[id]);
        }
      }
      own.emplace(id, std::move(shape));
    }
    return std::ranges::all_of(kernels_[g].results, is_whole);
  }

  // Everything that kernel `g` computes for what is wanted; marks as stored what it reads. With
  // `counts` it counts indices that are stored. Returns whether there are any.
  bool collect(std::size_t g, std::vector<NodeId> wanted, std::unordered_set<NodeId>& needed,
               std::vector<bool>& stored, bool counts) {
    bool found = false;
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
        if (counts && counted_axis(facts_.graph, operand)) {
          needed.insert(operand);
          found = true;
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
        if (foreign && (stored[operand] || !computes_again(operand, g, moved, stored, counts))) {
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
    return found;
  }

  // Whether a value of another kernel costs less to compute again than to store and read: a few
  // operations on arguments that take no more bytes than it, but for what lacks an axis of it as
  // places of rows do, each of them cheap or needed nowhere else, so that it moves. Of a value that
  // leaves the caches all operations may take as long as its way through memory does, of which each
  // reader spares its read and its share of the write; the results of reductions that it needs are
  // stored for it. So is what lacks an axis of it, for a value that moves.
  bool computes_again(NodeId id, std::size_t g, const std::unordered_set<NodeId>& moved,
                      const std::vector<bool>& stored, bool counts) const {
    if (model_.is_alone(id)) return false;
    std::vector<NodeId> wanted{id};
    std::unordered_set<NodeId> seen{id};
    std::size_t operations = 0;
    std::uint64_t bytes = 0;
    std::uint64_t beside = 0;  // of those, what lacks an axis of the value
    double cost = 0;
    bool cheap = true;
    // Places are few beside what is stored there.
    const std::size_t most = model_.most_recomputed * (facts_.says_places[id] ? 4 : 1);
    const bool large = stored_bytes(facts_.graph, id) >= model_.cached_bytes;
    const bool moves = is_computed_once(id, groups_[g]) && is_used_only(id, {}, moved, g, stored);
    SizeSum traced;         // what `bytes` is
    SizeSum traced_beside;  // what `beside` is
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
        if (is_small_beside(at, id)) {
          beside += bytes_of(facts_.graph, at);
          traced_beside.add(-bits(node.dtype) / 8.0, element_count(facts_.shapes[at]));
        }
      }
      if (is_leaf(node) || array || (counts && counted_axis(facts_.graph, at))) continue;
      if (at != id && stored[at] && home_[at] != static_cast<std::int64_t>(g)) {
        if (kernels_[g].reads.contains(at)) continue;
        bytes += stored_bytes(facts_.graph, at);
        add_stored(traced, 1, at);
        continue;
      }
      const bool foreign = at != id && home_[at] != static_cast<std::int64_t>(g);
      const bool stored_for_it = (has_axes(node.op) && large) || (moves && is_small_beside(at, id));
      if (foreign && stored_for_it) {
        bytes += 2 * stored_bytes(facts_.graph, at);
        add_stored(traced, 2, at);
        continue;
      }
      if (facts_.is_deferred(at) || has_axes(node.op)) return false;
      if (node.op == Op::put || !facts_.bounds(at).empty()) return false;
      if (node.op == Op::take && !takes_in(at, groups_[g])) return false;
      if (facts_.reads_iota(at) && !counts_in(at, groups_[g])) return false;
      if (node.op != Op::promote && ++operations > most) return false;
      cheap = cheap && info(node.op).cheap;
      cost += operation_cost(facts_.nodes, node);
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
    add_stored(SizeSum().add(1, traced).add(1, traced_beside), -1, id).decide();
    if (bytes - beside > own) return false;
    return cheap || std::ranges::all_of(seen, [&](NodeId at) {
             return !is_computed(facts_.nodes[at]) || facts_.is_conversion(at) ||
                    (at != id && stored[at]) || is_used_only(at, seen, moved, g, stored);
           });
  }

  // Whether a kernel computes each element of a value once, or once for each row that it reduces.
  bool is_computed_once(NodeId id, const Group& group) const {
    for (std::size_t k = 0; k < group.shape.size(); ++k) {
      const bool repeats = facts_.shapes[id][k] != group.shape[k];
      if (repeats && (group.reduced.empty() || !group.reduced[k])) return false;
    }
    return true;
  }

  // Whether a value has fewer elements than another, of which it lacks an axis: what is reduced
  // along it. No size decides.
  bool is_small_beside(NodeId id, NodeId other) const {
    const Dims& own = facts_.shapes[id];
    const Dims& others = facts_.shapes[other];
    for (std::size_t k = 1; k <= others.size(); ++k) {
      const bool lacks = k > own.size() || own[own.size() - k] == 1;
      if (lacks && others[others.size() - k] != 1) return true;
    }
    return false;
  }

  // Whether a kernel can take a value: places are the same for all of a row that is reduced.
  bool takes_in(NodeId id, const Group& group) const {
    const Dims& places = facts_.shapes[facts_.nodes[id].operands[1]];
    for (std::size_t k = 0; k < group.reduced.size(); ++k) {
      if (group.reduced[k] && places[k] != 1) return false;
    }
    return group.running == 0 && (group.reduced.empty() || !facts_.takes_packed(id));
  }

  // Whether a kernel can count an index: one that reduces counts rows, for the places of what it
  // stores.
  bool counts_in(NodeId id, const Group& group) const {
    if (group.running != 0) return false;
    if (group.reduced.empty()) return true;
    for (std::size_t k = 0; k < group.reduced.size(); ++k) {
      if (group.reduced[k] && facts_.shapes[id][k] != 1) return false;
    }
    return facts_.says_places[id];
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
  std::vector<bool> of_indices_;        ///< computed of stored indices alone
  std::vector<std::uint64_t> readers_;  ///< of each value
  std::uint64_t* steps_;
};

}  // namespace

bool is_of_products(const PartitionFacts& facts, const Group& group, NodeId array) {
  if (group.reduced.empty() || group.passes != 1) return false;
  bool shared = false;
  bool varies = false;
  for (std::size_t k = 0; k < group.reduced.size(); ++k) {
    const bool one = facts.shapes[array][k] == 1;
    shared = shared || (one && !group.reduced[k] && group.shape[k] != 1);
    varies = varies || (!one && group.reduced[k]);
  }
  return is_packed(facts.nodes[array].dtype) || (shared && varies);
}

std::vector<StoredValues> stored_values(const PartitionFacts& facts, const CostModel& model,
                                        std::span<const std::int64_t> home,
                                        std::span<const Group> kernels, std::uint64_t& steps) {
  return Stores(facts, model, home, kernels, steps).run();
}

}  // namespace kiln::fusion
