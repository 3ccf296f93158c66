#include "fusion/schedule/attention/attention_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {
namespace {

// A thread has one vector of 16 bytes of a row where it can, and those of several keys in flight.
// Its lanes are the same where elements are read one by one: how rows lie in memory is not to show
// in the bits of a result (numerics.md). What a group of queries takes is in registers: a number
// for each query and lane, twice.
constexpr int kRowVectorBits = 128;
constexpr int kMostWidth = 16;
constexpr int kMostShared = 32;    // threads of a row: those of the smallest wave
constexpr int kNumberLanes = 16;   // of a thread, where no operand has rows
constexpr int kRowsAtOnce = 8;     // keys that a block takes at once
constexpr int kLeastThreads = 64;  // of a block: those of the largest wave
constexpr int kMostBlockThreads = 256;
constexpr int kMostQueries = 8;
constexpr int kQueryLanes = 64;     // registers for all queries
constexpr int kPrefetchLanes = 32;  // the most of them beside values that wait
constexpr int kBytesAhead = 128;    // that a thread loads before it computes

using Axis = MergedAxis;
using Axes = ScratchVector<Axis>;
using OperandList = ShortList<std::size_t, 8>;

class AttentionPlanner {
 public:
  AttentionPlanner(const AttentionSpace& space, const Sizes& shape,
                   std::span<const SizedOperand> operands, Backend backend,
                   std::span<const AxisBound> bounds, SizedLayout& layout)
      : space_(space),
        shape_(shape),
        operands_(operands),
        backend_(backend),
        bounds_(bounds),
        layout_(layout) {}

  void run() {
    layout_.schedule.backend = backend_;
    reserve_operands(layout_, operands_.size());
    layout_.split_strides.reserve(operands_.size());
    layout_.indexed.reserve(operands_.size());
    find_rows();
    plan_lanes();
    plan_queries();
    add_work_items();
    add_operands();
    take_axes(layout_, axes_);
  }

 private:
  AttentionSchedule& own() { return layout_.schedule.attention; }
  bool is_host() const { return backend_ == Backend::host; }

  Size depth_stride(const SizedOperand& operand) const {
    return operand.strides[space_.nodes.depth];
  }
  Size value_stride(const SizedOperand& operand) const {
    return operand.strides[space_.value_axis()];
  }

  // -- Operands

  // Whether one of some operands, as bits, moves along an axis of the call.
  bool any_moves(std::uint64_t operands, std::size_t axis) const {
    for (; operands != 0; operands &= operands - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(operands));
      if (i < operands_.size() && operands_[i].strides[axis] != 0) return true;
    }
    return false;
  }

  // Arrays of a row for each key, along the depth and along the values' elements.
  void find_rows() {
    const std::size_t key = space_.nodes.key;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const SizedOperand& operand = operands_[i];
      if (operand.iota || operand.output) continue;
      if (operand.strides[key] == 0 && !any_moves(operand.index_operands, key)) continue;
      if (depth_stride(operand) != 0) deep_rows_.push_back(i);
      if (value_stride(operand) != 0) wide_rows_.push_back(i);
    }
  }

  // -- Threads

  void plan_lanes() {
    AttentionSchedule& attention = own();
    attention.tile = static_cast<int>(kAttentionTile);
    attention.threads = 1;
    attention.keys = lanes_along(space_.nodes.depth, deep_rows_);
    attention.values = lanes_along(space_.value_axis(), wide_rows_);
    if (is_host()) return;
    const int most = std::max(attention.keys.threads, attention.values.threads);
    attention.threads = std::clamp(most * kRowsAtOnce, kLeastThreads, kMostBlockThreads);
    for (AttentionLanes* const lanes : {&attention.keys, &attention.values}) {
      lanes->threads = std::max(lanes->threads, attention.threads / attention.tile);
      lanes->vectors = parts(lanes->extent, lanes->width * lanes->threads);
    }
    const bool all_keys = load_together(attention.keys, deep_rows_);
    const bool all_values = load_together(attention.values, wide_rows_);
    loads_whole_tile_ = all_keys && all_values;
  }

  static int parts(int size, int part) { return (size + part - 1) / part; }

  // Of rows along an axis; `rows`: the operands that have such.
  AttentionLanes lanes_along(std::size_t axis, const OperandList& rows) const {
    AttentionLanes lanes;
    lanes.extent = static_cast<int>(shape_[axis]);
    if (is_host()) {
      lanes.width = lanes.extent;
      return lanes;
    }
    int narrowest = 0;
    for (const std::size_t i : rows) {
      const int own = bits(operands_[i].dtype);
      narrowest = narrowest == 0 ? own : std::min(narrowest, own);
    }
    const auto shared_by = [&](int each) {
      const int wanted = parts(lanes.extent, each);
      return std::min(kMostShared, static_cast<int>(std::bit_ceil(static_cast<unsigned>(wanted))));
    };
    if (narrowest == 0) {
      lanes.threads = shared_by(kNumberLanes);
    } else {
      lanes.width = std::min(kMostWidth, kRowVectorBits / narrowest);
      while (lanes.extent % lanes.width != 0) lanes.width /= 2;
      lanes.threads = shared_by(lanes.width);
    }
    return lanes;
  }

  // How many keys' rows a thread loads before it computes, and whether that is all of a tile.
  bool load_together(AttentionLanes& lanes, const OperandList& rows) {
    int bytes = 1;
    for (const std::size_t i : rows) bytes += lanes.lanes() * bits(operands_[i].dtype) / 8;
    const int each = own().tile * lanes.threads / own().threads;
    lanes.together = std::min(each, static_cast<int>(std::bit_floor(static_cast<unsigned>(
                                        std::max(1, (kBytesAhead + lanes.lanes()) / bytes)))));
    return lanes.together == each;
  }

  // -- Queries

  // Along axes where neither keys nor values move, nor their end, nor places that data says,
  // queries share a block.
  void plan_queries() {
    Axes outer;
    Axes shared;
    outer.reserve(shape_.size() + 1);  // with those of a group, and the three that all have
    shared.reserve(shape_.size());
    for (std::size_t k = 0; k + 1 < shape_.size(); ++k) {
      const bool inner = k == space_.nodes.key || k == space_.nodes.depth;
      if (inner || shape_[k] == 1) continue;
      add_axis(moves_along(k) ? outer : shared, shape_, k, operands_);
    }
    merge(outer);
    merge(shared);
    const int lanes = is_host() ? 1 : std::max(own().keys.lanes(), own().values.lanes());
    const Axes group = take_group(shared, std::clamp(kQueryLanes / lanes, 1, kMostQueries));
    // Blocks that read the same keys follow each other.
    std::ranges::move(shared, std::back_inserter(outer));
    if (outer.empty()) outer.push_back({1, SizedStrides(operands_.size(), 0), {}});
    own().group_axes = static_cast<int>(group.size());
    for (std::size_t k = 0; k < group.size(); ++k) {
      own().group[own().group.size() - group.size() + k] = static_cast<int>(group[k].size);
    }
    // What many queries need leaves no registers for values that wait for their weights.
    own().prefetch = loads_whole_tile_ && own().queries() * lanes <= kPrefetchLanes;
    axes_ = std::move(outer);
    axes_.reserve(axes_.size() + group.size() + 3);
    std::ranges::move(group, std::back_inserter(axes_));
    for (const std::size_t k : {space_.nodes.key, space_.nodes.depth, space_.value_axis()}) {
      add_axis(axes_, shape_, k, operands_);
    }
  }

  // Whether keys or values move along an axis of the call, or their end, or places.
  bool moves_along(std::size_t k) const {
    for (const OperandList* const rows : {&deep_rows_, &wide_rows_}) {
      for (const std::size_t i : *rows) {
        if (operands_[i].strides[k] != 0) return true;
      }
    }
    std::uint64_t deciding = 0;
    for (const AxisBound& bound : bounds_) deciding |= bound.operands;
    for (const SizedOperand& operand : operands_) deciding |= operand.index_operands;
    return any_moves(deciding, k);
  }

  // Takes the innermost axes, or a part of one, of at most so many queries together.
  Axes take_group(Axes& shared, Size most) {
    Axes group;
    group.reserve(own().group.size());
    while (!shared.empty() && group.size() < own().group.size()) {
      Axis& rest = shared.back();
      Size together = std::min(most, rest.size);
      while (rest.size % together != 0) together -= 1;
      if (together == 1) break;
      most /= together;
      if (together == rest.size) {
        group.insert(group.begin(), std::move(rest));
        shared.pop_back();
        continue;
      }
      Axis part = rest;
      part.size = together;
      group.insert(group.begin(), std::move(part));
      rest.size /= together;
      for (Size& stride : rest.strides) stride *= together;
      break;
    }
    return group;
  }

  // -- The layout

  void add_work_items() {
    Schedule& schedule = layout_.schedule;
    schedule.rank = static_cast<int>(axes_.size());
    schedule.width = own().keys.width;
    const std::size_t inner = static_cast<std::size_t>(own().group_axes) + 3;
    Size units = 1;
    for (std::size_t k = 0; k + inner < axes_.size(); ++k) units *= axes_[k].size;
    own().split = space_.splits > 1;
    layout_.splits = space_.splits;
    const Size keys = shape_[space_.nodes.key];
    layout_.reduced = keys;
    layout_.vectors = (keys + own().tile - 1) / own().tile;
    layout_.rows = units;
    layout_.units = units * space_.splits;
    layout_.work_items = layout_.units;
    schedule.wide_index =
        needs_wide_index(axes_, operands_, layout_.work_items, own().values.extent) ||
        keys >= std::int64_t{1} << 30;
    layout_.axes.reserve(axes_.size());
    for (const Axis& axis : axes_) layout_.axes.push_back(axis.from);
    schedule.bounds = bounded_axes(axes_, bounds_);
  }

  void add_operands() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      OperandSchedule& operand = layout_.schedule.operands.emplace_back();
      const bool deep = depth_stride(operands_[i]) != 0;
      const bool wide = value_stride(operands_[i]) != 0;
      const auto is_unit = [](Size stride) { return stride == 0 || stride == 1; };
      const bool vectors = (deep || wide) && is_unit(depth_stride(operands_[i])) &&
                           is_unit(value_stride(operands_[i]));
      operand.access = vectors        ? Access::contiguous
                       : deep || wide ? Access::strided
                                      : Access::broadcast;
      operand.alignment = std::max(1, bits(operands_[i].dtype) / 8);
      operand.indexing = operands_[i].indexed.exists() ? Indexing::row : Indexing::none;
      if (!is_host() && vectors) operand.alignment = alignment(i, deep, wide);
      operand.outer_axes = outer_axes_of(axes_, i);
      if (wide) operand.outer_axes |= std::uint64_t{1} << (axes_.size() - 1);
      layout_.offsets.push_back(operands_[i].offset);
      layout_.split_strides.push_back(operands_[i].split_stride);
      layout_.indexed.push_back(operands_[i].indexed);
    }
  }

  int alignment(std::size_t i, bool deep, bool wide) {
    const SizedOperand& operand = operands_[i];
    Size strides = operand.split_stride;
    for (std::size_t k = 0; k + 2 < axes_.size(); ++k) strides |= axes_[k].strides[i];
    const auto least = [&](int width) {
      return alignment_of(operand, operand.offset, strides, width);
    };
    const int most = kRowVectorBits / 8;
    return std::min(deep ? least(own().keys.width) : most, wide ? least(own().values.width) : most);
  }

  const AttentionSpace& space_;
  const Sizes& shape_;
  const std::span<const SizedOperand> operands_;
  const Backend backend_;
  const std::span<const AxisBound> bounds_;
  SizedLayout& layout_;
  OperandList deep_rows_;
  OperandList wide_rows_;
  bool loads_whole_tile_ = false;
  Axes axes_;
};

}  // namespace

SizedLayout plan_attention(const AttentionSpace& space, const Sizes& shape,
                           std::span<const SizedOperand> operands, Backend backend,
                           std::span<const AxisBound> bounds) {
  SizedLayout layout;
  AttentionPlanner(space, shape, operands, backend, bounds, layout).run();
  return layout;
}

}  // namespace kiln::fusion
