#include "fusion/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "fusion/broadcast.hpp"

namespace kiln::fusion {
namespace {

constexpr std::int64_t kNone = -1;

bool is_leaf(const TypedNode& node) {
  return node.op == Op::input || node.op == Op::scalar || node.op == Op::constant;
}

// Exact operations and conversions: a few instructions each.
bool is_cheap(const TypedNode& node) {
  if (is_reduction(node.op)) return false;
  switch (info(node.op).rule) {
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
  std::size_t values = 0;
  std::unordered_set<NodeId> arrays;
  std::string reason;

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
  Partitioner(const ShapedGraph& graph, const CostModel& model)
      : graph_(graph), nodes_(graph.graph.nodes), model_(model), home_(nodes_.size(), kNone) {}

  Partition run() {
    pad_shapes();
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (!is_leaf(nodes_[id])) place(id);
    }
    find_results();
    Partition result;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!results_[g].empty()) result.kernels.push_back(part(g));
    }
    copy_leaves(result);
    count_bytes(result);
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

  std::vector<bool> reduced_by(NodeId id) const {
    const Dims& from = shapes_[nodes_[id].operands[0]];
    std::vector<bool> axes(from.size());
    for (std::size_t k = 0; k < axes.size(); ++k) axes[k] = from[k] != shapes_[id][k];
    return axes;
  }

  // -- Where a value goes

  void place(NodeId id) {
    const std::int64_t latest = latest_operand(id);
    std::string reason = "nothing before it";
    if (latest != kNone) {
      reason = obstacle(id, groups_[static_cast<std::size_t>(latest)]);
      if (reason.empty()) return join(id, latest);
    }
    // A later kernel that reads the same array can compute this beside what it computes.
    for (const NodeId operand : nodes_[id].inputs()) {
      const auto reader = last_reader_.find(operand);
      if (reader == last_reader_.end() || reader->second < latest) continue;
      if (reader->second == latest) continue;
      std::string other = obstacle(id, groups_[static_cast<std::size_t>(reader->second)]);
      if (other.empty()) return join(id, reader->second);
      if (latest == kNone) reason = std::move(other);
    }
    begin_group(id, std::move(reason));
  }

  // The last kernel that something must come out of before this can be computed. What is cheap
  // enough to be computed again is no reason to wait.
  std::int64_t latest_operand(NodeId id) const {
    std::int64_t latest = kNone;
    for (const NodeId operand : nodes_[id].inputs()) latest = std::max(latest, home_[operand]);
    return latest;
  }

  // Why the value cannot join the kernel; empty if it can.
  std::string obstacle(NodeId id, const Group& group) const {
    const TypedNode& node = nodes_[id];
    if (group.values >= model_.most_values) {
      return fmt::format("the kernel before has {} values", group.values);
    }
    if (group.arrays.size() + node.arity > model_.most_arrays) {
      return fmt::format("the kernel before reads {} arrays", group.arrays.size());
    }
    if (is_reduction(node.op)) {
      const Dims& from = shapes_[node.operands[0]];
      if (from != group.shape) {
        return fmt::format("{} is over {}, the kernel before runs over {}", info(node.op).name,
                           to_string(from), to_string(group.shape));
      }
      if (!group.reduced.empty() && group.reduced != reduced_by(id)) {
        return fmt::format("{} reduces other axes than the kernel before", info(node.op).name);
      }
      if (is_split(group) && depends_on_rows(id, group)) return split_reason(group);
      return {};
    }
    const Dims& shape = shapes_[id];
    if (shape == group.shape) {
      return is_split(group) && depends_on_rows(id, group) ? split_reason(group) : std::string();
    }
    if (!group.reduced.empty() && shape == group.row_shape()) return {};
    return fmt::format("{} has shape {}, the kernel before runs over {}", info(node.op).name,
                       to_string(shape), to_string(group.shape));
  }

  // Few long rows are shared out to many blocks, so their sums are known only when all have ended.
  bool is_split(const Group& group) const {
    if (group.reduced.empty()) return false;
    std::int64_t rows = 1;
    std::int64_t length = 1;
    for (std::size_t k = 0; k < group.reduced.size(); ++k) {
      (group.reduced[k] ? length : rows) *= group.shape[k];
    }
    return rows < model_.few_rows && length > model_.long_row;
  }

  bool depends_on_rows(NodeId id, const Group& group) const {
    const Dims rows = group.row_shape();
    return std::ranges::any_of(nodes_[id].inputs(), [&](NodeId operand) {
      return home_[operand] != kNone &&
             &groups_[static_cast<std::size_t>(home_[operand])] == &group &&
             shapes_[operand] == rows;
    });
  }

  static std::string split_reason(const Group& group) {
    return fmt::format("the few long rows of {} are split over blocks", to_string(group.shape));
  }

  void begin_group(NodeId id, std::string reason) {
    Group group;
    const TypedNode& node = nodes_[id];
    const bool reduces = is_reduction(node.op);
    group.shape = reduces ? shapes_[node.operands[0]] : shapes_[id];
    group.reason = std::move(reason);
    groups_.push_back(std::move(group));
    join(id, static_cast<std::int64_t>(groups_.size()) - 1);
  }

  void join(NodeId id, std::int64_t place) {
    Group& group = groups_[static_cast<std::size_t>(place)];
    home_[id] = place;
    ++group.values;
    const TypedNode& node = nodes_[id];
    if (is_reduction(node.op)) group.reduced = reduced_by(id);
    for (const NodeId operand : node.inputs()) {
      const bool array =
          nodes_[operand].op == Op::input || (home_[operand] != kNone && home_[operand] != place);
      if (!array) continue;
      group.arrays.insert(operand);
      last_reader_[operand] = place;
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
    std::vector<bool> stored(nodes_.size(), false);
    for (const NodeId output : graph_.graph.outputs) stored[output] = true;
    // From the last kernel to the first: what a kernel computes again, it needs the operands of.
    needs_.resize(groups_.size());
    std::vector<std::vector<NodeId>> members(groups_.size());
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (home_[id] != kNone) members[static_cast<std::size_t>(home_[id])].push_back(id);
    }
    for (std::size_t g = groups_.size(); g-- > 0;) {
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

  // Everything that kernel `g` computes for what is wanted; marks as stored what it reads.
  void collect(std::size_t g, std::vector<NodeId> wanted, std::unordered_set<NodeId>& needed,
               std::vector<bool>& stored) {
    std::unordered_set<NodeId> moved;  // of other kernels, and used by this one alone
    while (!wanted.empty()) {
      const NodeId id = wanted.back();
      wanted.pop_back();
      for (const NodeId operand : nodes_[id].inputs()) {
        if (needed.contains(operand)) continue;
        const bool foreign =
            home_[operand] != kNone && home_[operand] != static_cast<std::int64_t>(g);
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
  // else, so that it moves.
  bool computes_again(NodeId id, std::size_t g, const std::unordered_set<NodeId>& moved,
                      const std::vector<bool>& stored) const {
    std::vector<NodeId> wanted{id};
    std::unordered_set<NodeId> seen{id};
    std::size_t operations = 0;
    std::uint64_t bytes = 0;
    bool cheap = true;
    while (!wanted.empty()) {
      const NodeId at = wanted.back();
      wanted.pop_back();
      const TypedNode& node = nodes_[at];
      if (node.op == Op::input && !groups_[g].arrays.contains(at)) bytes += bytes_of(graph_, at);
      if (is_leaf(node)) continue;
      if (is_reduction(node.op) || ++operations > model_.most_recomputed) return false;
      cheap = cheap && is_cheap(node);
      for (const NodeId operand : node.inputs()) {
        if (seen.insert(operand).second) wanted.push_back(operand);
      }
    }
    if (bytes > bytes_of(graph_, id)) return false;
    return cheap || std::ranges::all_of(seen, [&](NodeId at) {
             return is_leaf(nodes_[at]) || is_used_only(at, seen, moved, g, stored);
           });
  }

  // Whether everything that uses a value is among those two sets or of kernel `g`.
  bool is_used_only(NodeId id, const std::unordered_set<NodeId>& by,
                    const std::unordered_set<NodeId>& moved, std::size_t g,
                    const std::vector<bool>& stored) const {
    return !stored[id] && std::ranges::all_of(users_[id], [&](NodeId user) {
      return by.contains(user) || moved.contains(user) ||
             home_[user] == static_cast<std::int64_t>(g);
    });
  }

  KernelPart part(std::size_t g) const {
    KernelPart kernel;
    kernel.shape = groups_[g].shape;
    kernel.reason = groups_[g].reason;
    kernel.results = results_[g];
    bool reduces = false;
    for (const NodeId id : needs_[g]) {
      reduces = reduces || is_reduction(nodes_[id].op);
      kernel.values.push_back(id);
    }
    if (reduces) kernel.reduced = groups_[g].reduced;
    if (const auto reads = reads_of_.find(g); reads != reads_of_.end()) {
      kernel.reads.assign(reads->second.begin(), reads->second.end());
      std::ranges::sort(kernel.reads);
    }
    return kernel;
  }

  // An output that is an argument or a constant is copied, by a kernel of its own.
  void copy_leaves(Partition& result) const {
    std::unordered_set<NodeId> copied;
    for (const NodeId output : graph_.graph.outputs) {
      if (home_[output] != kNone || !copied.insert(output).second) continue;
      KernelPart kernel;
      kernel.values = {output};
      kernel.results = {output};
      kernel.shape = shapes_[output];
      kernel.reason = "an output that nothing is computed for";
      result.kernels.push_back(std::move(kernel));
    }
  }

  // -- Bytes

  void count_bytes(Partition& result) const {
    for (KernelPart& kernel : result.kernels) {
      for (const NodeId id : kernel.values) {
        if (nodes_[id].op == Op::input) kernel.bytes += bytes_of(graph_, id);
      }
      for (const NodeId id : kernel.reads) kernel.bytes += bytes_of(graph_, id);
      for (const NodeId id : kernel.results) kernel.bytes += bytes_of(graph_, id);
      result.bytes += kernel.bytes;
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const TypedNode& node = nodes_[id];
      if (node.op == Op::input) result.lower_bound += bytes_of(graph_, id);
      if (is_leaf(node) || node.op == Op::promote) continue;
      result.op_by_op += bytes_of(graph_, id);
      for (const NodeId operand : node.inputs()) {
        if (nodes_[operand].op != Op::constant) result.op_by_op += bytes_of(graph_, operand);
      }
    }
    for (const NodeId output : graph_.graph.outputs) result.lower_bound += bytes_of(graph_, output);
  }

  const ShapedGraph& graph_;
  const std::vector<TypedNode>& nodes_;
  const CostModel& model_;
  std::vector<Dims> shapes_;  ///< of one rank
  std::vector<std::int64_t> home_;
  std::vector<Group> groups_;
  std::unordered_map<NodeId, std::int64_t> last_reader_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::vector<NodeId>> results_;
  std::vector<std::vector<NodeId>> needs_;
  std::unordered_map<std::size_t, std::unordered_set<NodeId>> reads_of_;
};

}  // namespace

DType stored_dtype(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  const bool rounded =
      graph.rounding == Rounding::each || node.op == Op::cast || node.op == Op::input;
  return rounded ? node.dtype : compute_dtype(node.dtype);
}

std::uint64_t bytes_of(const ShapedGraph& graph, NodeId id) {
  std::uint64_t size = 1;
  for (const std::int64_t extent : graph.shapes[id]) size *= static_cast<std::uint64_t>(extent);
  return (size * static_cast<std::uint64_t>(bits(graph.graph.nodes[id].dtype)) + 7) / 8;
}

Partition partition(const ShapedGraph& graph, const CostModel& model) {
  return Partitioner(graph, model).run();
}

}  // namespace kiln::fusion
