#include "fusion/emit/rows/reduction_emitter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {

ReductionEmitter::ReductionEmitter(const TypedGraph& graph, const Schedule& schedule,
                                   Accuracy accuracy)
    : graph_(graph),
      schedule_(schedule),
      rows_(schedule.reduction),
      node_text_(graph, accuracy, schedule.backend),
      index_(schedule.wide_index ? "u64" : "u32"),
      signed_index_(schedule.wide_index ? "i64" : "i32"),
      identifiers_(graph),
      kept_to_(schedule.reduction.vectors),
      accuracy_(accuracy) {
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].op == Op::input) input_nodes_[graph.nodes[id].payload].push_back(id);
  }
}

KernelDescription ReductionEmitter::run() {
  find_operands();
  order_passes();
  collect_parameters();
  out_.open(identifiers_.commented(), schedule_, graph_.rounding, accuracy_);
  out_.signature(rows_.block(), dense_blocks(), rows_.cluster_blocks);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].output || operands_[i].iota || !is_prefetched(schedule_, i)) continue;
    out_.line(1, "prefetch_into_l2({}_data, u64(size) * {});", operands_[i].name,
              bits(operands_[i].dtype) / 8);
  }
  out_.pdl_wait(1);
  if (!in_parts()) {
    out_.line(1, "constexpr Width<{}> width{{}};", schedule_.width);
  } else if (!rows_.ragged) {
    out_.line(1, "constexpr AllLanes<{}> part{{}};", schedule_.width);
  }
  if (is_shifted()) out_.line(1, "constexpr Width<1> one{{}};");
  shared_memory();
  if (row_group_size() > 1) {
    emit_row_groups();
  } else {
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    locate_rows();
    load_inputs();
    for (int pass = 0; pass <= last_pass_; ++pass) {
      row_values(pass);
      emit_pass(pass);
    }
    row_values(last_pass_ + 1);
    store_row_values();
    out_.line(1, "}}");
  }
  out_.close(schedule_.streamed ? "finish_streams();" : "");
  KernelDescription kernel = out_.finish(static_cast<std::uint32_t>(rows_.block()));
  kernel.shared_bytes = static_cast<std::uint32_t>(shared_bytes_);
  return kernel;
}

// ---- Operands and passes ------------------------------------------------------------------------

void ReductionEmitter::find_operands() {
  for (const NamedOperand& operand : identifiers_.operands()) operands_.push_back({operand});
  for (const std::int64_t axis : iota_axes(graph_)) {
    const std::string name = iota_name(axis);
    operands_.push_back({{name, name, graph_.arguments.size(), 0, DType::i64, false}, true, axis});
  }
  if (operands_.size() != schedule_.operands.size()) {
    throw Error(Code::internal,
                "emit_rows: the schedule and the graph differ in their number of operands");
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    operands_[i].row_invariant = schedule_.operands[i].row_invariant;
    if (operands_[i].output) store_unrounded(i);
  }
}

// Vectors that are rounded when they are stored take the operand of a cast that rounds.
void ReductionEmitter::store_unrounded(std::size_t i) {
  OperandText& operand = operands_[i];
  const NodeId rounded = operand.value;
  operand.unrounded = converts_vectors(i);
  if (!operand.unrounded && !converts_in_blocks(i)) return;
  operand.value = node_text_.unrounded(rounded);
  if (!operand.unrounded && !converts_in_blocks(i)) operand.value = rounded;
}

bool ReductionEmitter::converts_vectors(std::size_t i) const {
  const OperandText& operand = operands_[i];
  return schedule_.backend == Backend::nvidia && operand.output && !operand.row_invariant &&
         (operand.dtype == DType::f8e4m3 || operand.dtype == DType::f8e5m2) &&
         schedule_.operands[i].access == Access::contiguous &&
         !node_text_.needs_storage(operand.value) &&
         compute_dtype(graph_.nodes[node_text_.unrounded(operand.value)].dtype) == DType::f32;
}

void ReductionEmitter::order_passes() {
  std::vector<bool> row_invariant(graph_.arguments.size(), true);
  std::vector<std::int64_t> within;
  for (const OperandText& operand : operands_) {
    if (operand.iota && !operand.row_invariant) within.push_back(operand.axis);
    if (!operand.output && !operand.iota) row_invariant[operand.argument] = operand.row_invariant;
  }
  row_invariant_ = row_invariant_nodes(graph_, row_invariant, within);
  pass_.assign(graph_.nodes.size(), 0);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    for (const NodeId operand : node.inputs()) pass_[id] = std::max(pass_[id], pass_[operand]);
    if (!is_reduction(node.op)) continue;
    last_pass_ = std::max(last_pass_, pass_[id]);
    ++pass_[id];
  }
  for (const OperandText& operand : operands_) {
    if (operand.output && !operand.row_invariant)
      last_pass_ = std::max(last_pass_, pass_[operand.value]);
  }
  const auto passes = static_cast<std::size_t>(last_pass_) + 1;
  reductions_.resize(passes);
  row_values_.resize(passes + 1);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const auto after = static_cast<std::size_t>(pass_[id]);
    if (is_reduction(graph_.nodes[id].op)) {
      reductions_[after - 1].push_back(id);
    } else if (row_invariant_[id]) {
      row_values_[after].push_back(id);
    }
  }
  find_needed();
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].output || !schedule_.operands[i].in_registers) continue;
    for (int pass = 0; pass <= last_pass_; ++pass) {
      operands_[i].in_registers = operands_[i].in_registers || is_read(operands_[i], pass);
    }
  }
  choose_smem();
  choose_prefetched();
  values_.resize(graph_.nodes.size());
  storage_.resize(graph_.nodes.size());
  names_ = value_names(graph_);
  std::vector<NodeId> places;
  for (const IndexedOperand& operand : graph_.indexed) places.push_back(operand.place);
  for (const BoundedAxis& bound : graph_.bounds) places.push_back(bound.end);
  of_place_ = live_nodes(graph_.nodes, places);
}

// Shared memory is for inputs that more than one pass reads, and for what takes their places.
void ReductionEmitter::choose_smem() {
  if (rows_.in_smem == 0) return;
  for (OperandText& operand : operands_) {
    int passes = 0;
    for (int pass = 0; pass <= last_pass_ && operand.in_registers; ++pass) {
      passes += is_read(operand, pass) ? 1 : 0;
    }
    const auto i = static_cast<std::size_t>(&operand - operands_.data());
    operand.in_registers = operand.in_registers && (passes > 1 || gives_place(i));
    operand.in_smem = operand.in_registers;
    if (operand.in_smem)
      shared_bytes_ += rows_.in_smem * threads_of_block() * vector_bytes(operand);
  }
}

int ReductionEmitter::vector_bytes(const OperandText& operand) const {
  return schedule_.width * std::max(1, bits(operand.dtype) / 8);
}

// How many blocks an NVIDIA multiprocessor must have room for; 0: no such demand. With part of a
// row in shared memory two blocks of 512 threads, each with half of the registers that the compiler
// would use; blocks of a cluster wait for each other: with three, 131,072 f32 go from 0.68 of a
// copy to 0.86 (rmsnorm). Else as many as have 64 KiB of rows in flight, and one less where that is
// many small blocks: more registers are then worth more than more blocks (softmax of 8,192 bf16
// goes from 0.97 to 0.99).
int ReductionEmitter::dense_blocks() const {
  constexpr int kUnderWay = 64 << 10;
  constexpr int kMany = 4;
  constexpr int kFewThreads = 256;
  constexpr int kWide = 8;
  if (uses_smem()) {
    constexpr int kMostThreads = 512;
    constexpr int kHalf = 104 << 10;  // of a multiprocessor's shared memory, beside partial results
    const auto stored = std::ranges::count_if(operands_, &OperandText::in_smem);
    if (copies_rows_async() && (rows_.copied || stored > 1)) {
      return rows_.block() <= kMostThreads && shared_bytes_ <= kHalf ? 2 : 0;
    }
    // What a thread keeps and the lanes that it computes leave 64 registers for all else: for what
    // says where chunks end too, of which layer_norm of 50,257 bf16 spills 32 bytes.
    const int room = keeps_chunks() ? 28 : 36;
    const int registers = register_vectors() * 4 + schedule_.width;
    if (stored != 1 || rows_.block() > 512 || registers > room) return 0;
    const bool counts = std::ranges::any_of(operands_, [](const OperandText& operand) {
      return operand.iota && !operand.row_invariant;  // an index takes registers too
    });
    return in_cluster() && rows_.vectors <= 8 && !counts ? 3 : 2;
  }
  const bool stores = std::ranges::any_of(operands_, [](const OperandText& operand) {
    return operand.output && !operand.row_invariant;
  });
  if (rows_.columns != 0) return rows_.min_blocks;
  if (rows_.vectors < kMany || !stores || is_shifted()) return 0;
  if (rows_.vectors == kMany && rows_.block() > kFewThreads && schedule_.width < kWide) return 0;
  int bytes = 0;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const bool of_row = !operands_[i].output && operands_[i].in_registers && !is_weight(i);
    if (of_row) bytes += rows_.block() * rows_.vectors * vector_bytes(operands_[i]);
  }
  if (bytes == 0 || bytes > kUnderWay) return 0;
  const int blocks = std::max(2, kUnderWay / bytes);
  return blocks > kMany ? blocks - 1 : blocks;
}

// The passes that compute each value that varies within the row, or read it from its cache. What is
// cached is chosen as far as there is room for it.
void ReductionEmitter::find_needed() {
  std::vector<bool> has_room(graph_.nodes.size(), true);
  while (true) {
    walk_passes(has_room);
    const std::optional<std::size_t> homeless = caches_in_place() ? place_cached() : std::nullopt;
    if (!homeless) return;
    has_room[*homeless] = false;
  }
}

// One walk from the results to the arguments. On the way the results of functions that a later pass
// needs again, such as the exponentials of a softmax, are cached: in registers if a thread's part
// of a row is there, on the CPU in its caches. Outermost functions come first, since the operands
// of a cached value are not needed again.
void ReductionEmitter::walk_passes(const std::vector<bool>& has_room) {
  std::vector<std::vector<int>> passes(graph_.nodes.size());
  for (int pass = 0; pass <= last_pass_; ++pass) {
    for (const std::size_t id : reductions_in(pass))
      passes[graph_.nodes[id].operands[0]].push_back(pass);
  }
  for (const OperandText& operand : operands_) {
    if (operand.output && !operand.row_invariant) passes[operand.value].push_back(last_pass_);
  }
  cached_in_.assign(graph_.nodes.size(), -1);
  needed_.assign(reductions_.size(), {});
  read_.assign(reductions_.size(), {});
  int left = most_cached();
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    const TypedNode& node = graph_.nodes[id];
    std::vector<int> own = std::move(passes[id]);
    if (row_invariant_[id]) continue;
    std::ranges::sort(own);
    own.erase(std::ranges::unique(own).begin(), own.end());
    if (own.size() > 1 && left > 0 && has_room[id] && is_worth_caching(id)) {
      cached_in_[id] = own.front();
      --left;
    }
    for (const int pass : own) {
      const auto p = static_cast<std::size_t>(pass);
      needed_[p].push_back(id);
      if (node.op == Op::input) read_[p].insert(node.payload);
      if (is_cached_for(id, pass)) continue;
      for (const NodeId operand : node.inputs()) passes[operand].push_back(pass);
    }
  }
  for (std::vector<std::size_t>& ids : needed_) std::ranges::reverse(ids);
}

// How many values a thread can cache.
int ReductionEmitter::most_cached() const {
  constexpr int kMostRegisters = 64;
  constexpr int kMostOnHost = 1 << 17;
  if (rows_.vectors == 0 || (is_host() && rows_.columns != 0)) return 0;
  return (is_host() ? kMostOnHost : kMostRegisters) /
         std::max(1, register_vectors() * schedule_.width);
}

bool ReductionEmitter::is_worth_caching(std::size_t id) const {
  const TypedNode& node = graph_.nodes[id];
  if (compute_dtype(node.dtype) != DType::f32) return false;
  if (caches_in_place()) return saves_in_place(id);
  return info(node.op).rule == Rule::floating;
}

bool ReductionEmitter::is_needed(std::size_t id, int pass) const {
  return std::ranges::binary_search(needed_in(pass), id);
}

bool ReductionEmitter::is_read(const OperandText& operand, int pass) const {
  return read_[static_cast<std::size_t>(pass)].contains(operand.argument);
}

bool ReductionEmitter::is_used(const OperandText& operand) const {
  return input_nodes_.contains(operand.argument);
}

// The type of a reduction's partial results.
std::string ReductionEmitter::partial_type(const TypedNode& node) const {
  if (!is_arg_reduction(node.op)) return std::string(compute_type(node.dtype));
  return fmt::format("Found<{}, {}>", compute_type(graph_.nodes[node.operands[0]].dtype), index_);
}

// On the CPU a row of one vector has a lane for each residue.
bool ReductionEmitter::sums_in_tree(const TypedNode& node) const {
  if (rows_.columns != 0) return sums_floats(node);
  if (!is_host()) return has_row_trees() && sums_floats(node);
  const bool of_one_vector = in_parts() && rows_.vectors == 1;
  return sums_floats(node) && !of_one_vector;
}

int ReductionEmitter::chunks_kept() const {
  const int chunks = (rows_.vectors + chunk_slots() - 1) / chunk_slots();
  if (in_cluster()) return chunks;
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(chunks)));
}

int ReductionEmitter::most_trees() const {
  std::size_t most = 0;
  for (int pass = 0; pass <= last_pass_; ++pass) most = std::max(most, trees_in(pass).size());
  return static_cast<int>(most);
}

int ReductionEmitter::chunks_together() const {
  constexpr int kMost = 8;
  constexpr int kSharedBytes = 32 << 10;
  constexpr int kApart = 4;  // lanes of a wave whose vectors are far apart
  const int left = std::max(1, schedule_.width / kApart) * threads_of_block() * partial_bytes();
  return std::clamp(kSharedBytes / (left * std::max(1, most_trees())), 1, kMost);
}

// Of the widest partial result that is combined in the order of a tree.
int ReductionEmitter::partial_bytes() const {
  int bytes = 1;
  for (const TypedNode& node : graph_.nodes) {
    if (!is_reduction(node.op) || !sums_in_tree(node)) continue;
    bytes = std::max(bytes, bits(compute_dtype(node.dtype)) / 8);
  }
  return bytes;
}

// The number in the row of a vector that a thread keeps. Of a short chunk fewer threads have any.
std::string ReductionEmitter::slot_vector(std::string_view slot) const {
  if (keeps_chunks() && !is_full()) {
    if (kept_part_ < 0) return fmt::format("kept.vector({})", slot);
    if (kept_part_ == 0) return fmt::format("kept.vector<0>({})", slot);
    return fmt::format("kept.vector<{}>({} - {})", kept_part_, slot, kept_from_);
  }
  return fmt::format("{}({}) * {} + thread", index_, slot, slot_step());
}

// The start of a call for each chunk of a row or column of `length` elements, or of its part.
std::string ReductionEmitter::each_chunk(std::string_view length) const {
  if (!rows_.split) return fmt::format("for_each_chunk({}, ", length);
  if (rows_.columns != 0) {
    return fmt::format("for_each_chunk_of<{}>({}, part.chunk, part.chunks, ", index_, length);
  }
  return fmt::format("for_each_chunk_of<{}>({}, split, splits.divisor, ", index_, length);
}

// ---- Parameters ---------------------------------------------------------------------------------

void ReductionEmitter::collect_parameters() {
  using P = Parameter::Kind;
  identifiers_.add_pointers(out_);
  identifiers_.add_scalars(out_, node_text_);
  out_.add_count(P::size, "size");
  if (!is_shifted()) out_.add_count(P::vectors, "vectors");
  out_.add_count(P::length, "length");
  add_counts();
  for (std::uint32_t k = 1; k < inner(); ++k) {
    if (k != first_reduced()) out_.add_divisor(P::extent, fmt::format("extent_{}", k), k);
  }
  if (rows_.split) {
    out_.add_divisor(P::splits, "splits");
    out_.add_count(P::split_vectors, "split_vectors");
  }
  if (rows_.rows > 1) out_.add_count(P::row_count, "row_count");
  out_.add_count(P::work_items, "work_items");
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    for (std::uint32_t k = 0; k < rank(); ++k) {
      if (schedule_.has_stride(i, k)) out_.add_offset(P::stride, operands_[i].stride_name(k), i, k);
    }
    if (schedule_.operands[i].access == Access::runs) {
      out_.add_divisor(P::run, operands_[i].name + "_run", 0, i);
      out_.add_offset(P::run_stride, operands_[i].name + "_run_stride", i);
    }
    if (is_indexed(i)) {
      out_.add_offset(P::place_stride, operands_[i].name + "_place_stride", i);
      out_.add_offset(P::place_count, operands_[i].name + "_places", i);
    }
    if (rows_.split && operands_[i].output && operands_[i].row_invariant) {
      out_.add_offset(P::split_stride, operands_[i].name + "_stride_split", i);
    }
  }
}

// ---- Text, in the order in which the kernel reads -----------------------------------------------

// `unit` is the number of a split of a row, or of the row if the reduction is not split.
void ReductionEmitter::locate_split(std::string_view unit, std::string_view row) {
  if (!rows_.split) {
    out_.line(2, "const {} {} = {};", index_, row, unit);
    return;
  }
  out_.line(2, "const {} {} = divide({}, splits);", index_, row, unit);
  out_.line(2, "const {} split = {} - {} * splits.divisor;", index_, unit, row);
}

void ReductionEmitter::split_bounds() {
  if (!rows_.split || !trees_in(0).empty()) return;
  out_.line(2, "const {} begin = split * split_vectors;", index_);
  out_.line(2, "const {} end = least(begin + split_vectors, vectors);", index_);
}

void ReductionEmitter::row_pointers() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_indexed(i) && !located_[i] && !operands_[i].iota) row_pointer(i, "");
  }
}

void ReductionEmitter::row_pointer(std::size_t i, std::string_view place) {
  const OperandText& operand = operands_[i];
  std::string at = offset(i, 0, first_reduced());
  if (rows_.split && operand.output && operand.row_invariant) {
    at += fmt::format(" + {}(split) * {}_stride_split", signed_index_, operand.name);
  }
  located_[i] = true;
  out_.line(2, "{}{}* const {}_row = {}_data{}{};", operand.output ? "" : "const ",
            storage_type(operand.dtype), operand.name, operand.name, at, place);
}

// Where the segments of a row are.
void ReductionEmitter::row_segments() {
  if (!in_segments()) return;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    const std::string& name = operand.name;
    if (operand.iota && !operand.row_invariant) {
      out_.line(2, "const auto {}_in_row = [&]({} place) KILN_INLINED {{", name, index_);
      out_.line(3, "const {} segment = divide(place, extent_{});", index_, inner());
      out_.line(3, "const {0} first = place - segment * extent_{1}.divisor;", index_, inner());
      out_.coordinates(3, index_, "segment", first_reduced(), inner());
      out_.line(3, "return {}(0){}{};", signed_index_, offset(i, first_reduced(), inner()),
                lane_offset(i, "first"));
      out_.line(2, "}};");
    }
    if (operand.row_invariant || operand.iota || !(operand.output || is_used(operand))) continue;
    out_.line(2, "const auto {}_start = [&]({} segment) KILN_INLINED {{", name, index_);
    out_.coordinates(3, index_, "segment", first_reduced(), inner());
    out_.line(3, "return {}(0){};", signed_index_, offset(i, first_reduced(), inner()));
    out_.line(2, "}};");
    const bool contiguous = schedule_.operands[i].access == Access::contiguous;
    const std::string stride = contiguous ? "" : ", " + operand.stride_name(inner());
    out_.line(2, "const auto {0}_segments = {1}_segments({0}_row, extent_{2}, {0}_start{3});", name,
              contiguous ? "contiguous" : "strided", inner(), stride);
  }
}

const NodeId& ReductionEmitter::place_node(std::size_t i) const {
  const OperandText& operand = operands_[i];
  if (!operand.output) return *graph_.place_of(false, operand.argument);
  const auto first = std::ranges::find_if(operands_, &OperandText::output);
  return *graph_.place_of(true, i - static_cast<std::size_t>(first - operands_.begin()));
}

// An element that is not there is read as the first one, and taken for 0.
void ReductionEmitter::locate_indexed(std::size_t i) {
  const std::string& name = operands_[i].name;
  const std::string& place = values_[place_node(i)];
  out_.line(2, "const bool {0}_there = is_place({1}, {0}_places);", name, place);
  row_pointer(i, fmt::format(" + place_offset({0}_there, {1}, {0}_place_stride)", name, place));
}

// What values say of rows, with what they are computed from: one element for each row. Of operands
// at places those first that say the places of others.
void ReductionEmitter::row_cone(const std::vector<NodeId>& roots) {
  const std::vector<bool> cone = live_nodes(graph_.nodes, roots);
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (!cone[id] || known_[id]) continue;
    known_[id] = true;
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) {
      const auto operand = std::ranges::find_if(
          operands_, [&](const OperandText& o) { return !o.output && o.argument == node.payload; });
      const auto i = static_cast<std::size_t>(operand - operands_.begin());
      if (is_indexed(i)) {
        locate_indexed(i);
      } else if (!located_[i]) {
        row_pointer(i, "");
      }
      define_input(id, 2, operand->name, fmt::format("*{}_row", operand->name));
    }
    emit_value(id, 2);
  }
}

void ReductionEmitter::row_places() {
  std::vector<NodeId> places;
  for (const IndexedOperand& operand : graph_.indexed) places.push_back(operand.place);
  row_cone(places);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (is_indexed(i) && !located_[i]) locate_indexed(i);
  }
}

bool ReductionEmitter::ends_rows() const {
  return std::ranges::any_of(schedule_.bounds, [&](int axis) {
    return static_cast<std::uint32_t>(axis) < first_reduced();
  });
}

// A row beyond an end is left out: by all threads of a block that has one row, else it is computed
// as another one and not stored. Where the reduced axis ends, or the columns do, numbers of the
// whole row are those of this one.
void ReductionEmitter::row_ends() {
  located_.assign(operands_.size(), false);
  known_.assign(graph_.nodes.size(), false);
  if (graph_.bounds.empty()) return;
  std::vector<NodeId> ends;
  for (const BoundedAxis& bound : graph_.bounds) ends.push_back(bound.end);
  row_cone(ends);
  std::string length;
  std::string columns;
  for (std::size_t b = 0; b < graph_.bounds.size(); ++b) {
    const std::string& end = values_[graph_.bounds[b].end];
    const auto axis = static_cast<std::uint32_t>(schedule_.bounds[b]);
    if (axis < first_reduced()) {
      const std::string within = fmt::format("at_{} < end_within({}, {}(-1))", axis, end, index_);
      if (!change_rows()) {
        out_.line(2, "if (!({})) continue;", within);
      } else {
        out_.line(2, "active = active && {};", within);
        out_.line(2, "at_{0} = {1} ? at_{0} : 0;", axis, within);
      }
    } else if (rows_.columns != 0 && axis == inner()) {
      columns = fmt::format("end_within({}, {})", end, columns.empty() ? "size" : columns);
    } else {
      length = fmt::format("end_within({}, {})", end, length.empty() ? "length" : length);
    }
  }
  if (!length.empty()) {
    out_.line(2, "const {} row_end = {};", index_, length);
    out_.line(2, "const {} length = row_end;", index_);
    if (rows_.columns != 0) {
      out_.line(2, "const {} vectors = row_end;", index_);
    } else {
      out_.line(2, "const {} size = row_end;", index_);
      out_.line(2, "const {0} vectors = (row_end + {1}) / {2};", index_, schedule_.width - 1,
                schedule_.width);
    }
  }
  if (columns.empty()) return;
  out_.line(2, "const {} column_end = {};", index_, columns);
  out_.line(2, "const {} size = column_end;", index_);
}

std::string ReductionEmitter::offset(std::size_t operand, std::uint32_t from,
                                     std::uint32_t to) const {
  std::string text;
  for (std::uint32_t k = from; k < to; ++k) {
    if (schedule_.has_stride(operand, k)) {
      text += fmt::format(" + {}(at_{}) * {}", signed_index_, k, operands_[operand].stride_name(k));
    }
  }
  return text;
}

std::string ReductionEmitter::index_text(const TypedNode& iota) const {
  const auto operand = std::ranges::find_if(
      operands_, [&](const OperandText& o) { return o.iota && o.axis == iota_axis(iota); });
  const auto i = static_cast<std::size_t>(operand - operands_.begin());
  const std::string place = fmt::format("first + {}(lane)", index_);
  std::string text = offset(i, 0, first_reduced());
  if (!operand->row_invariant && in_segments()) {
    text += fmt::format(" + {}_in_row({})", operand->name, place);
  } else {
    if (!operand->row_invariant) text += offset(i, first_reduced(), inner());
    if (rows_.columns != 0 || !operand->row_invariant) text += lane_offset(i, place);
  }
  return node_text_.rounded(
      iota, fmt::format("to<{}>({}(0){})", compute_type(iota.dtype), signed_index_, text));
}

std::string ReductionEmitter::lane_offset(std::size_t operand, std::string_view place) const {
  switch (schedule_.operands[operand].access) {
    case Access::contiguous: return fmt::format(" + {}({})", signed_index_, place);
    case Access::strided:
      return fmt::format(" + {}({}) * {}", signed_index_, place,
                         operands_[operand].stride_name(inner()));
    default: return "";
  }
}

std::string ReductionEmitter::line_text(std::size_t operand) const {
  if (in_segments()) return operands_[operand].name + "_segments";
  return operands_[operand].name + "_row" + offset(operand, first_reduced(), inner());
}

// Loads in words take fewer instructions and more registers (preamble/strides.h): they are used if
// rows in shared memory leave registers free, or where exponentials are computed as terms of sums
// and instructions count.
bool ReductionEmitter::loads_words() const {
  if (node_text_.has_terms()) return true;
  const bool left = prefetched_.empty() || rows_.vectors > 8 || copies_rows_async();
  return uses_smem() && rows_.block() <= 512 && left;
}

std::string ReductionEmitter::last_vector() const {
  if (rows_.split && !in_row_chunk_) return "end";
  return is_full() ? fmt::format("{}", rows_.threads * rows_.vectors) : "vectors";
}

// The number of a vector of a batch.
std::string ReductionEmitter::batch_vector() const {
  if (rows_.vectors != 0) return slot_vector("base + step");
  return fmt::format("batch + {}(step) * {}", index_, vector_step());
}

// From a vector of a thread to its next one, where it keeps none.
std::string ReductionEmitter::vector_step() const {
  return in_row_tree_ && rows_.vectors == 0 ? "threads" : fmt::format("{}", rows_.threads);
}

}  // namespace kiln::fusion
