// The pass that makes one sum of the sum of groups' sums (passes.hpp): of sum(sum(q * x, -1) * s,
// -2) the terms are q * x * s, and one kernel reduces both axes; of sum(sum(q * x, -1) * s +
// sum(x, -1) * b, -2) they are (q * s + b) * x.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

// Whole numbers up to here have exact sums in f32.
constexpr double kMostExact = 1 << 24;

constexpr std::size_t kMostBetween = 16;  ///< between a sum and those of its groups

// The largest magnitude that integers of a few bits can have, and what is computed of them.
class Magnitudes {
 public:
  explicit Magnitudes(const TypedGraph& graph) : most_(graph.nodes.size()) {
    for (NodeId id = 0; id < most_.size(); ++id) most_[id] = of(graph, graph.nodes[id]);
  }

  /// Nothing where it is not known to be below what the dtype holds.
  const std::optional<double>& operator[](NodeId id) const { return most_[id]; }

 private:
  std::optional<double> of(const TypedGraph& graph, const TypedNode& node) const {
    if (!is_integer(node.dtype)) return std::nullopt;
    const bool is_signed = kind(node.dtype) == Kind::signed_integer;
    const double largest = std::ldexp(1.0, bits(node.dtype) - (is_signed ? 1 : 0));
    if (bits(node.dtype) <= 8) return largest;
    const auto operand = [&](std::size_t i) { return most_[node.operands[i]]; };
    std::optional<double> result;
    if (node.op == Op::constant) {
      result = std::abs(static_cast<double>(static_cast<std::int64_t>(node.payload)));
    } else if (node.op == Op::promote || node.op == Op::cast) {
      if (is_integer(graph.nodes[node.operands[0]].dtype)) result = operand(0);
    } else if ((node.op == Op::add || node.op == Op::sub) && operand(0) && operand(1)) {
      result = *operand(0) + *operand(1);
    } else if (node.op == Op::mul && operand(0) && operand(1)) {
      result = *operand(0) * *operand(1);
    }
    // A negative number has no place among unsigned ones.
    return is_signed && result && *result < largest ? result : std::nullopt;
  }

  std::vector<std::optional<double>> most_;
};

class SumJoining {
 public:
  explicit SumJoining(const ShapedGraph& from)
      : from_(from),
        to_(from),
        users_(users_of(from.graph.nodes)),
        uses_(use_counts(from.graph)),
        magnitudes_(from.graph) {}

  ShapedGraph run() {
    if (has_bounds(from_)) bounds_ = infer_bounds(from_, "sum");
    for (NodeId id = 0; id < uses_.size(); ++id) {
      // An axis that ends where data says is reduced by itself.
      const bool ends = !bounds_.empty() && !bounds_[node(id).operands[0]].empty();
      if (node(id).op == Op::sum && !ends) find_sum_of(id);
    }
    for (NodeId id = 0; id < uses_.size(); ++id) {
      if (node(id).op == Op::sum && is_floating(node(id).dtype) && !ways_.contains(id)) {
        find_groups_of(id);
      }
    }
    if (ways_.empty() && groups_.empty()) return from_;
    return to_.run([&](NodeId id) {
      if (const auto groups = groups_.find(id); groups != groups_.end()) {
        return join_groups(id, groups->second);
      }
      const auto way = ways_.find(id);
      return way == ways_.end() ? to_.copy(id) : join(id, way->second);
    });
  }

 private:
  // Groups' sums that are added up together, and what all of their terms are products with.
  struct Groups {
    std::vector<NodeId> sums;
    NodeId factor;
  };

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }
  NodeId terms(NodeId sum) const { return node(sum).operands[0]; }

  // Follows what is made of the sums of groups alone, by products with what there is one of for
  // each group and by conversions, to the sum of that.
  void find_sum_of(NodeId groups) {
    std::vector<NodeId> way{groups};
    while (uses_[way.back()] == 1 && users_[way.back()].size() == 1) {
      const NodeId user = users_[way.back()].front();
      if (node(user).op == Op::sum) {
        const bool joins =
            is_floating(node(user).dtype) && reduces_the_last(user, groups) && is_exact(groups);
        if (joins) ways_.emplace(user, std::move(way));
        return;
      }
      const bool scales = node(user).op == Op::mul || converts(user);
      if (!scales || !is_floating(node(user).dtype) || shape(user) != shape(groups)) return;
      way.push_back(user);
    }
  }

  // Of a sum of several groups' sums, each times what there is one of for its group, as
  // sum(sum(q * x, -1) * s + sum(x, -1) * b, -2) is: the groups' sums.
  void find_groups_of(NodeId sum) {
    std::vector<NodeId> groups;
    std::vector<NodeId> open{terms(sum)};
    std::size_t operations = 0;
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      const TypedNode& own = node(at);
      if (uses_[at] != 1 || ++operations > kMostBetween) return;
      if (own.op == Op::sum) {
        const bool ends = !bounds_.empty() && !bounds_[terms(at)].empty();
        const bool joins = !ends && is_floating(own.dtype) && reduces_the_last(sum, at) &&
                           (groups.empty() || reduced(at) == reduced(groups.front()));
        if (!joins) return;
        groups.push_back(at);
      } else if (own.op == Op::add || own.op == Op::sub) {
        open.insert(open.end(), {own.operands[0], own.operands[1]});
      } else if (const auto made = made_of_sum(at)) {
        open.push_back(own.operands[*made]);
      } else {
        return;
      }
    }
    const std::optional<NodeId> factor = common_factor(groups);
    if (groups.size() > 1 && factor) groups_.emplace(sum, Groups{std::move(groups), *factor});
  }

  // The operand of a product or conversion that is made of a group's sum.
  std::optional<std::size_t> made_of_sum(NodeId id) const {
    const TypedNode& own = node(id);
    if (!is_floating(own.dtype)) return {};
    if (converts(id)) return 0;
    if (own.op != Op::mul) return {};
    for (const std::size_t i : {0u, 1u}) {
      NodeId at = own.operands[i];
      while (converts(at)) at = node(at).operands[0];
      const Op op = node(at).op;
      if (op == Op::sum || op == Op::add || op == Op::sub || op == Op::mul) return i;
    }
    return {};
  }

  NodeId unconverted(NodeId id) const {
    while (node(id).op == Op::promote) id = node(id).operands[0];
    return id;
  }

  // What the terms of all groups are, or are a product with: the activations of weights.
  std::optional<NodeId> common_factor(const std::vector<NodeId>& groups) const {
    if (groups.empty()) return {};
    const NodeId first = unconverted(terms(groups.front()));
    std::vector<NodeId> candidates{first};
    if (node(first).op == Op::mul) {
      candidates = {node(first).operands[0], node(first).operands[1]};
    }
    for (const NodeId candidate : candidates) {
      const auto has_it = [&](NodeId group) {
        return is_factor(unconverted(candidate), terms(group));
      };
      if (std::ranges::all_of(groups, has_it)) return unconverted(candidate);
    }
    return {};
  }

  bool is_factor(NodeId factor, NodeId product) const {
    const NodeId own = unconverted(product);
    if (own == factor) return true;
    return node(own).op == Op::mul && (unconverted(node(own).operands[0]) == factor ||
                                       unconverted(node(own).operands[1]) == factor);
  }

  // A cast to a narrow float rounds each group's sum.
  bool converts(NodeId id) const {
    return node(id).op == Op::promote || (node(id).op == Op::cast && bits(node(id).dtype) >= 32);
  }

  std::vector<bool> reduced(NodeId sum) const {
    std::vector<bool> axes(shape(sum).size());
    for (std::size_t k = 0; k < axes.size(); ++k) axes[k] = shape(sum)[k] != shape(terms(sum))[k];
    return axes;
  }

  // Whether two sums reduce all axes from one on.
  bool reduces_the_last(NodeId sum, NodeId groups) const {
    const Dims& whole = shape(terms(groups));
    if (whole.size() != shape(sum).size()) return false;
    const std::vector<bool> outer = reduced(sum);
    const std::vector<bool> inner = reduced(groups);
    bool begun = false;
    for (std::size_t k = 0; k < whole.size(); ++k) {
      const bool reduces = outer[k] || inner[k];
      if (begun && !reduces && whole[k] != 1) return false;
      begun = begun || reduces;
    }
    return begun;
  }

  // Whether what a group's sum gives is what its terms come to as floats too.
  bool is_exact(NodeId groups) const {
    if (is_floating(node(groups).dtype)) return true;
    const std::optional<double>& most = magnitudes_[terms(groups)];
    if (!most) return false;
    const std::int64_t results = std::max<std::int64_t>(1, element_count(shape(groups)));
    const std::int64_t all = element_count(shape(terms(groups)));
    SizeSum().add(*most, all).add(-kMostExact, results).decide();
    return *most * static_cast<double>(all) <= kMostExact * static_cast<double>(results);
  }

  // What a sum's terms are without their common factor; nothing for 1.
  std::optional<NodeId> without_factor(NodeId id, const Groups& groups) {
    TypedNode own = node(id);
    if (own.op == Op::sum) {
      const NodeId product = unconverted(terms(id));
      if (product == groups.factor) return std::nullopt;
      const auto& factors = node(product).operands;
      const bool first = unconverted(factors[0]) == groups.factor;
      return to_.converted(to_.moved(factors[first ? 1 : 0]), own.dtype);
    }
    if (own.op == Op::add || own.op == Op::sub) {
      for (std::size_t i = 0; i < 2; ++i) {
        const auto part = without_factor(own.operands[i], groups);
        own.operands[i] = part ? *part : to_.converted(to_.number(1, DType::f32), own.dtype);
      }
      return add(own);
    }
    const std::size_t made = made_of_sum(id).value();
    const auto part = without_factor(own.operands[made], groups);
    if (own.op != Op::mul) return part ? std::optional(to_.converted(*part, own.dtype)) : part;
    const NodeId other = to_.moved(own.operands[1 - made]);
    if (!part) return other;
    own.operands = {*part, other, 0};
    return add(own);
  }

  NodeId add(const TypedNode& own) {
    Dims shape;
    for (const NodeId operand : own.inputs()) {
      shape = broadcast(shape, to_.shape(operand)).value();
    }
    return to_.add(own, shape);
  }

  NodeId join_groups(NodeId sum, const Groups& groups) {
    const NodeId root = terms(sum);
    const DType dtype = node(root).dtype;
    const auto weights = without_factor(root, groups);
    const NodeId factor = to_.converted(to_.moved(groups.factor), dtype);
    const NodeId all =
        weights ? add({Op::mul, dtype, 2, {to_.converted(*weights, dtype), factor, 0}, 0}) : factor;
    const std::vector<bool> outer = reduced(sum);
    const std::vector<bool> inner = reduced(groups.sums.front());
    return sum_over(sum, all, outer, inner);
  }

  NodeId join(NodeId sum, const std::vector<NodeId>& way) {
    const NodeId groups = way.front();
    const Dims& whole = shape(terms(groups));
    NodeId value = to_.moved(terms(groups));
    for (std::size_t i = 1; i < way.size(); ++i) {
      TypedNode copy = to_.moved_node(way[i]);
      for (std::size_t k = 0; k < copy.arity; ++k) {
        if (node(way[i]).operands[k] == way[i - 1]) copy.operands[k] = value;
      }
      value = to_.add(copy, whole);
    }
    return sum_over(sum, value, reduced(sum), reduced(groups));
  }

  // The sum of new terms over all axes that were reduced.
  NodeId sum_over(NodeId sum, NodeId value, const std::vector<bool>& outer,
                  const std::vector<bool>& inner) {
    std::vector<int> axes;
    for (std::size_t k = 0; k < outer.size(); ++k) {
      if (outer[k] || inner[k])
        axes.push_back(static_cast<int>(k) - static_cast<int>(outer.size()));
    }
    TypedNode all = node(sum);
    all.operands[0] = value;
    all.payload = axis_set(axes, "sum");
    return to_.add(all, shape(sum));
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::size_t> uses_;
  Magnitudes magnitudes_;
  std::vector<Ends> bounds_;                    ///< of each node; none if nothing is bounded
  std::map<NodeId, std::vector<NodeId>> ways_;  ///< to each sum, from the sum of a group on
  std::map<NodeId, Groups> groups_;             ///< of sums of several
};

}  // namespace

ShapedGraph join_sums(const ShapedGraph& graph) {
  // Rounding::each promises the bits that every op gives when it is alone.
  if (graph.graph.rounding == Rounding::each) return graph;
  return SumJoining(graph).run();
}

}  // namespace kiln::fusion
