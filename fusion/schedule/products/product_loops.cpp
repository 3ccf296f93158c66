#include "fusion/schedule/products/product_loops.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/schedule/node_methods.hpp"
#include "fusion/schedule/products/product_values.hpp"
#include "fusion/schedule/products/prologue.hpp"

namespace kiln::fusion {
namespace {

class LoopPlanner : private ProductAxes {
 public:
  LoopPlanner(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy)
      : ProductAxes(schedule),
        graph_(graph),
        products_(schedule.products),
        nodes_(graph, schedule),
        methods_(graph, accuracy, schedule.backend) {}

  ProductLoops run() {
    loops_.rows = in_tiles() ? 1 : products_.rows;
    loops_.staged = is_host() && nodes_.in_integers();
    loops_.rows_beside = rows_beside();
    loops_.in_vectors = takes_vectors();
    // As many for any number of results, so that bits do not show what is computed beside.
    const bool by_lanes = is_host() && !loops_.in_vectors;
    loops_.lanes_per_sum = products_.tree ? schedule_.width : by_lanes ? products_.lanes : 1;
    loops_.several_groups = takes_groups();
    loops_.share_slots = !is_host() && !in_tiles() && bytes_of_slots() > most_slot_bytes();
    // If each block has one tile, there must be room for a block of the next kernel beside it,
    // whose weights are loaded while these are multiplied.
    const bool beside = schedule_.pdl && products_.tiles.single_tile;
    loops_.min_blocks = beside ? 2 : products_.tiles.min_blocks;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) loops_.added.push_back(is_added(id));
    for (std::size_t i = 0; i < schedule_.operands.size(); ++i) {
      loops_.by_part.push_back(is_by_part(i));
    }
    return std::move(loops_);
  }

 private:
  // Of the 48 KiB of a block, of which a prologue has some.
  std::int64_t most_slot_bytes() const {
    constexpr std::int64_t kMost = 32768;
    constexpr std::int64_t kOfBlock = 45056;  // but for what is little
    if (!nodes_.staged()) return kMost;
    const int element = bits(staged_dtype(graph_, *nodes_.staged())) / 8;
    return std::min(kMost, kOfBlock - products_.prologue.bytes(products_.columns, element));
  }

  bool is_host() const { return schedule_.backend == Backend::host; }

  // Of shared memory, in which waves combine what they have of each sum (preamble/products.h).
  std::int64_t bytes_of_slots() const {
    constexpr int kWave = 32;
    constexpr int kNear = 8;
    const int threads = schedule_.reduction.threads;
    const int together = std::clamp(kWave / std::max(1, products_.beside), 1, threads);
    const int groups = threads / together;
    const int lanes = products_.tree ? schedule_.width : 1;
    int slots = 0;
    if (products_.beside != 0) {
      slots = (groups * lanes + 1) * products_.beside;
    } else if (threads > kWave) {
      constexpr int kApart = kWave / kNear;
      const int kept = std::max(1, lanes / kApart);
      slots = groups * kNear * std::min(lanes, kApart) * kept;
    }
    std::int64_t bytes = 0;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!nodes_.is_summed(id)) continue;
      const int size = bits(compute_dtype(graph_.nodes[id].dtype)) / 8;
      bytes += std::int64_t{slots} * loops_.rows * products_.columns * size;
    }
    return bytes;
  }

  // As many rows side by side as have their sums in registers.
  int rows_beside() const {
    constexpr int kSums = 16;
    constexpr int kMost = 8;
    const auto sums = static_cast<int>(std::ranges::count_if(
        graph_.nodes, [](const TypedNode& node) { return is_reduction(node.op); }));
    int rows = loops_.staged ? std::min(loops_.rows, kMost) : 1;
    while (rows > 1 && rows * products_.columns * sums > kSums) rows /= 2;
    return rows;
  }

  // Where all values of elements are f32, or small integers that become f32.
  bool takes_vectors() const {
    if (in_tiles() || !nodes_.adds_vectors()) return false;
    if (is_host()) {
      if (schedule_.width < kLeastSimdWidth) return false;
    } else if (schedule_.backend != Backend::amd || products_.lanes % 2 != 0) {
      return false;
    }
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const bool element = nodes_.scope(id).level == Level::element;
      if (nodes_.is_in_main(id) && element && !is_vector(id)) return false;
    }
    return true;
  }

  bool is_vector(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    if (methods_.needs_storage(static_cast<NodeId>(id))) return false;
    if (is_small(id)) return true;
    if (compute_dtype(node.dtype) != DType::f32) return false;
    const bool converts = node.op == Op::promote || node.op == Op::cast;
    if (!converts || nodes_.is_vector(id)) return true;
    return is_small(node.operands[0]) ||
           (!methods_.rounds(node) &&
            compute_dtype(graph_.nodes[node.operands[0]].dtype) == DType::f32);
  }

  // Whether a node is a small integer before any computation.
  bool is_small(std::size_t id) const {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::promote) return is_integer(node.dtype) && is_small(node.operands[0]);
    return node.op == Op::input && is_integer(node.dtype) && bits(node.dtype) <= 8;
  }

  // Adding a product without rounding it first changes no bit of one that is exact. Of two that are
  // added to each other the second one is computed.
  bool is_added(std::size_t id) const {
    if (!loops_.in_vectors || !nodes_.is_in_main(id) || !nodes_.is_exact_product(id)) return false;
    int uses = 0;
    bool added = false;
    for (const TypedNode& node : graph_.nodes) {
      for (const NodeId operand : node.inputs()) uses += operand == id ? 1 : 0;
      if (node.op != Op::add || std::ranges::find(node.inputs(), id) == node.inputs().end())
        continue;
      const NodeId other = node.operands[node.operands[0] == id ? 1 : 0];
      if (other < id && loops_.added[other]) return false;
      added = true;
    }
    return added && uses == 1;
  }

  bool takes_groups() const {
    if (!is_host() || !has_groups() || !loops_.in_vectors || products_.tree) return false;
    bool any = false;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (nodes_.scope(id).level != Level::group) continue;
      if (methods_.needs_storage(static_cast<NodeId>(id))) return false;
      any = true;
    }
    return any;
  }

  // Of operands that rows share, and of vectors that take more registers than two.
  bool is_by_part(std::size_t i) const {
    constexpr int kMostBits = 256;
    if (is_across(i)) return is_host();
    const Scope scope = nodes_.operand_scope(i);
    return is_host() || !scope.rows || scope.columns ||
           schedule_.width * bits(dtype_of(i)) > kMostBits;
  }

  // Operands are the array arguments, the outputs and the iotas.
  DType dtype_of(std::size_t i) const {
    for (const ArgumentType& argument : graph_.arguments) {
      if (argument.scalar) continue;
      if (i-- == 0) return argument.dtype;
    }
    return i < graph_.outputs.size() ? graph_.nodes[graph_.outputs[i]].dtype : DType::i64;
  }

  const TypedGraph& graph_;
  const ProductSchedule& products_;
  const ProductValues nodes_;
  const NodeMethods methods_;
  ProductLoops loops_;
};

}  // namespace

ProductLoops product_loops(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy) {
  return LoopPlanner(graph, schedule, accuracy).run();
}

std::vector<std::string> explain_loops(std::span<const std::string> names, const Schedule& schedule,
                                       const ProductLoops& loops) {
  std::vector<std::string> lines;
  if (loops.staged) {
    lines.push_back(
        fmt::format("integer products, whose vectors are arranged for {} rows at a time and "
                    "multiplied for {} side by side",
                    loops.rows, loops.rows_beside));
  } else if (loops.in_vectors) {
    lines.push_back(schedule.backend == Backend::host ? "in SIMD vectors of floats"
                                                      : "in pairs of floats");
  }
  if (loops.several_groups) lines.push_back("values of several groups are computed at a time");
  std::string parts;
  for (std::size_t i = 0; i < loops.by_part.size() && i < names.size(); ++i) {
    const bool whole = !loops.by_part[i] && schedule.products.lanes < schedule.width;
    if (whole) parts += (parts.empty() ? "" : ", ") + names[i];
  }
  const bool is_product = schedule.products.tiles.steps_per_group == 0;
  if (is_product && !parts.empty()) {
    lines.push_back(fmt::format("whole vectors of {} are loaded before their {} parts", parts,
                                schedule.width / schedule.products.lanes));
  }
  if (schedule.backend == Backend::nvidia && loops.min_blocks != 0) {
    lines.push_back(fmt::format("registers for {} blocks to a multiprocessor", loops.min_blocks));
  }
  return lines;
}

}  // namespace kiln::fusion
