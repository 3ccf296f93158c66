#include "fusion/emit/rows/reduction_emitter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/schedule/rows/row_sharing.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {

ReductionEmitter::ReductionEmitter(const TypedGraph& graph, const Schedule& schedule,
                                   Accuracy accuracy)
    : graph_(graph),
      schedule_(schedule),
      rows_(schedule.reduction),
      node_text_(graph, accuracy),
      index_(schedule.wide_index ? "u64" : "u32"),
      signed_index_(schedule.wide_index ? "i64" : "i32"),
      identifiers_(graph),
      accuracy_(accuracy) {}

KernelDescription ReductionEmitter::run(std::string_view function, std::string_view expression) {
  find_operands();
  order_passes();
  collect_parameters();
  comment(function, expression);
  out_.line(0, "namespace kiln {{");
  out_.line(0, "");
  out_.signature(rows_.block(), dense_blocks(), rows_.cluster_blocks);
  out_.await_prerequisites(1);
  if (!in_parts()) {
    out_.line(1, "constexpr Width<{}> width{{}};", schedule_.width);
  } else if (!rows_.ragged) {
    out_.line(1, "constexpr AllLanes<{}> part{{}};", schedule_.width);
  }
  if (is_shifted()) out_.line(1, "constexpr Width<1> one{{}};");
  shared_memory();
  if (rows_at_once() > 1) {
    emit_in_turns();
  } else {
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    place();
    hold_inputs();
    count_own();
    for (int pass = 0; pass <= last_pass_; ++pass) {
      row_values(pass);
      emit_pass(pass);
    }
    row_values(last_pass_ + 1);
    store_row_values();
    out_.line(1, "}}");
  }
  out_.line(0, "}}");
  out_.line(0, "");
  out_.line(0, "}}  // namespace kiln");
  out_.host_entry(schedule_.streamed ? "finish_streams();" : "");
  KernelDescription kernel = out_.finish(static_cast<std::uint32_t>(rows_.block()));
  kernel.shared_bytes = static_cast<std::uint32_t>(shared_bytes_);
  return kernel;
}

// ---- Operands and passes ------------------------------------------------------------------------

void ReductionEmitter::find_operands() {
  for (const NamedOperand& operand : identifiers_.operands()) operands_.push_back({operand});
  if (operands_.size() != schedule_.operands.size()) {
    throw Error(Code::internal,
                "emit_rows: the schedule has another number of operands than the graph");
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    operands_[i].row_invariant = schedule_.operands[i].row_invariant;
  }
}

void ReductionEmitter::order_passes() {
  std::vector<bool> uniform(graph_.arguments.size(), true);
  for (const OperandText& operand : operands_) {
    if (!operand.output) uniform[operand.argument] = operand.row_invariant;
  }
  uniform_ = row_invariant_nodes(graph_, uniform);
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
  join_reductions();
  keep_functions();
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].output || !schedule_.operands[i].in_registers) continue;
    for (int pass = 0; pass <= last_pass_; ++pass) {
      operands_[i].in_registers = operands_[i].in_registers || is_read(operands_[i], pass);
    }
  }
  choose_stored();
  choose_ahead();
  values_.resize(graph_.nodes.size());
  stored_.resize(graph_.nodes.size());
  names_.resize(graph_.nodes.size());
}

// Where the threads of a row have much to do between one meeting and the next, one less is worth
// what moving a result to another centre takes.
void ReductionEmitter::join_reductions() {
  constexpr int kManyVectors = 4;
  constexpr int kWave = 32;
  if (is_host() || rows_.columns != 0 || rows_.vectors < kManyVectors) return;
  if (accuracy_ != Accuracy::storage) return;
  joined_ = joined_reductions(graph_, pass_, uniform_, last_pass_);
  // Parts of different numbers of elements take a division where they meet.
  if (is_shifted() && rows_.threads <= kWave) {
    std::erase_if(joined_, [](const JoinedReductions& pair) { return pair.squares; });
  }
}

const JoinedReductions* ReductionEmitter::joined_by(std::size_t id) const {
  const auto found = std::ranges::find_if(joined_, [&](const JoinedReductions& pair) {
    return pair.centre == id || pair.around == id;
  });
  return found == joined_.end() ? nullptr : &*found;
}

// How many of a row's elements a thread has, where a mean of its own depends on that.
void ReductionEmitter::count_own() {
  if (std::ranges::none_of(joined_, &JoinedReductions::squares)) return;
  std::string count = fmt::format("{}", rows_.full_vectors * schedule_.width);
  for (int slot = rows_.full_vectors; slot < rows_.vectors; ++slot) {
    count +=
        fmt::format(" + ({} + thread < vectors ? {} : 0)", slot * rows_.threads, schedule_.width);
  }
  if (is_shifted()) count += " + (at_end ? 1 : 0)";
  out_.line(2, "const f32 own_count = f32({});", count);
}

// Shared memory is for what more than one pass reads.
void ReductionEmitter::choose_stored() {
  if (rows_.in_smem == 0) return;
  for (OperandText& operand : operands_) {
    int passes = 0;
    for (int pass = 0; pass <= last_pass_ && operand.in_registers; ++pass) {
      passes += is_read(operand, pass) ? 1 : 0;
    }
    operand.in_registers = passes > 1;
    operand.in_smem = operand.in_registers;
    if (operand.in_smem)
      shared_bytes_ += rows_.in_smem * threads_of_block() * vector_bytes(operand);
  }
}

int ReductionEmitter::vector_bytes(const OperandText& operand) const {
  return schedule_.width * std::max(1, bits(operand.dtype) / 8);
}

// How many blocks a multiprocessor of NVIDIA's is to have room for; 0: as many as happen to. With
// part of a row in shared memory two blocks of 512 threads, of which each has half of what the
// compiler would give it; those of a cluster wait for each other: with three, 131,072 f32 go from
// 0.68 of a copy to 0.86 (rmsnorm). Else as many as have 64 KiB of rows under way, and for many
// small blocks less: what the compiler then does with more registers is worth more than more blocks
// (softmax of 8,192 bf16 goes from 0.97 to 0.99).
int ReductionEmitter::dense_blocks() const {
  constexpr int kUnderWay = 64 << 10;
  constexpr int kMany = 4;
  constexpr int kFewThreads = 256;
  constexpr int kWide = 8;
  if (has_stored()) {
    const auto stored = std::ranges::count_if(operands_, &OperandText::in_smem);
    if (stored != 1 || rows_.block() > 512 || in_registers() > 7) return 0;
    return in_cluster() && rows_.vectors <= 8 ? 3 : 2;
  }
  const bool stores = std::ranges::any_of(operands_, [](const OperandText& operand) {
    return operand.output && !operand.row_invariant;
  });
  if (rows_.columns != 0 || rows_.vectors < kMany || !stores || is_shifted()) return 0;
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

void ReductionEmitter::find_needed() {
  needed_.clear();
  for (int pass = 0; pass <= last_pass_; ++pass) needed_.push_back(needed_in(pass));
}

// Where a thread's part of a row is in registers, what a function has given stays there too, if a
// later pass needs it again: the exponentials of a softmax. Outermost first, since what leads to a
// value that is kept is not needed again. On the host it is in the caches.
void ReductionEmitter::keep_functions() {
  constexpr int kMostRegisters = 64;
  constexpr int kMostOnHost = 1 << 17;
  kept_.assign(graph_.nodes.size(), -1);
  find_needed();
  if (rows_.vectors == 0 || rows_.columns != 0 || rows_.in_smem != 0) return;
  int left = (is_host() ? kMostOnHost : kMostRegisters) / (rows_.vectors * schedule_.width);
  for (std::size_t id = graph_.nodes.size(); id-- > 0 && left > 0;) {
    const TypedNode& node = graph_.nodes[id];
    const bool function = info(node.op).rule == Rule::floating;
    if (!function || compute_dtype(node.dtype) != DType::f32 || is_quick(id)) continue;
    int first = -1;
    int uses = 0;
    for (int pass = last_pass_; pass >= 0; --pass) {
      if (!needed_[static_cast<std::size_t>(pass)][id]) continue;
      first = pass;
      ++uses;
    }
    if (uses < 2) continue;
    kept_[id] = first;
    --left;
    find_needed();
  }
}

// Whether an exponential is had again sooner than it is kept: then its argument stays where it is,
// and no factor moves it to the row's maximum. On an H200 softmax goes from 0.97 of a copy to 0.99
// (4,096 bf16 and f32), and with more threads from 0.98 to 0.93 (16,384 bf16).
bool ReductionEmitter::is_quick(std::size_t id) const {
  constexpr int kFewThreads = 256;
  return schedule_.backend == Backend::nvidia && rows_.block() <= kFewThreads &&
         std::ranges::any_of(joined_, [&](const JoinedReductions& pair) {
           return !pair.squares && pair.exponential == id;
         });
}

// The values with an element for each of the row's that a pass computes or has kept.
std::vector<bool> ReductionEmitter::needed_in(int pass) const {
  std::vector<bool> needed(graph_.nodes.size(), false);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (reduces_in(id, pass)) needed[graph_.nodes[id].operands[0]] = true;
  }
  for (const OperandText& operand : operands_) {
    if (operand.output && !operand.row_invariant && pass == last_pass_)
      needed[operand.value] = true;
  }
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    if (!needed[id] || uniform_[id] || is_kept_for(id, pass)) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) needed[operand] = true;
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (uniform_[id]) needed[id] = false;
  }
  return needed;
}

bool ReductionEmitter::reduces_in(std::size_t id, int pass) const {
  return is_reduction(graph_.nodes[id].op) && pass_[id] == pass + 1;
}

bool ReductionEmitter::is_read(const OperandText& operand, int pass) const {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input && node.payload == operand.argument &&
        needed_[static_cast<std::size_t>(pass)][id]) {
      return true;
    }
  }
  return false;
}

bool ReductionEmitter::is_used(const OperandText& operand) const {
  return std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
    return node.op == Op::input && node.payload == operand.argument;
  });
}

// What a reduction's partial results are.
std::string ReductionEmitter::partial_type(const TypedNode& node) const {
  if (!is_place(node.op)) return std::string(compute_type(node.dtype));
  return fmt::format("Found<{}, {}>", compute_type(graph_.nodes[node.operands[0]].dtype), index_);
}

// Where rounding errors would add up over a long row.
bool ReductionEmitter::in_stretches(const TypedNode& node) const {
  const bool adds = node.op == Op::sum || node.op == Op::mean || node.op == Op::prod;
  const bool is_long = rows_.vectors == 0 || rows_.vectors > kStretchVectors;
  return is_long && adds && !is_integer(node.dtype);
}

// ---- Parameters ---------------------------------------------------------------------------------

bool ReductionEmitter::has_stride(std::size_t operand, std::uint32_t axis) const {
  const OperandSchedule& schedule = schedule_.operands[operand];
  if (axis == inner()) return schedule.access == Access::strided;
  return (schedule.outer_axes >> axis & 1) != 0;
}

std::string ReductionEmitter::stride_name(std::size_t operand, std::uint32_t axis) const {
  return fmt::format("{}_stride_{}", operands_[operand].name, axis);
}

void ReductionEmitter::collect_parameters() {
  using P = Parameter::Kind;
  identifiers_.add_pointers(out_);
  identifiers_.add_scalars(out_, node_text_);
  out_.add_count(P::size, "size");
  if (!is_shifted()) out_.add_count(P::vectors, "vectors");
  out_.add_count(P::length, "length");
  numbers();
  for (std::uint32_t k = 1; k < inner(); ++k) {
    if (k != first_reduced()) out_.add_divisor(P::extent, fmt::format("extent_{}", k), k);
  }
  if (rows_.split) {
    out_.add_divisor(P::splits, "pieces");
    out_.add_count(P::split_vectors, "piece_vectors");
  }
  if (rows_.rows > 1) out_.add_count(P::row_count, "row_count");
  out_.add_count(P::work_items, "work_items");
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    for (std::uint32_t k = 0; k < rank(); ++k) {
      if (has_stride(i, k)) out_.add_offset(P::stride, stride_name(i, k), i, k);
    }
    if (rows_.split && operands_[i].output && operands_[i].row_invariant) {
      out_.add_offset(P::split_stride, operands_[i].name + "_stride_piece", i);
    }
  }
}

// ---- Text, in the order in which the kernel reads -----------------------------------------------

void ReductionEmitter::comment(std::string_view function, std::string_view expression) {
  out_.comment(function, expression, identifiers_.commented(), schedule_, graph_.rounding,
               accuracy_);
}

const std::string& ReductionEmitter::name_of(std::size_t id) {
  if (names_[id].empty()) names_[id] = fmt::format("v{}", id);
  return names_[id];
}

// The number `unit` is that of a piece of a row; without pieces, that of the row.
void ReductionEmitter::piece_of(std::string_view unit, std::string_view row) {
  if (!rows_.split) {
    out_.line(2, "const {} {} = {};", index_, row, unit);
    return;
  }
  out_.line(2, "const {} {} = divide({}, pieces);", index_, row, unit);
  out_.line(2, "const {} piece = {} - {} * pieces.divisor;", index_, unit, row);
}

void ReductionEmitter::piece_bounds() {
  if (!rows_.split) return;
  out_.line(2, "const {} begin = piece * piece_vectors;", index_);
  out_.line(2, "const {} end = least(begin + piece_vectors, vectors);", index_);
}

void ReductionEmitter::row_pointers() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    std::string at = offset(i, 0, first_reduced());
    if (rows_.split && operand.output && operand.row_invariant) {
      at += fmt::format(" + {}(piece) * {}_stride_piece", signed_index_, operand.name);
    }
    out_.line(2, "{}{}* const {}_row = {}_data{};", operand.output ? "" : "const ",
              storage_type(operand.dtype), operand.name, operand.name, at);
  }
}

std::string ReductionEmitter::offset(std::size_t operand, std::uint32_t from,
                                     std::uint32_t to) const {
  std::string text;
  for (std::uint32_t k = from; k < to; ++k) {
    if (has_stride(operand, k)) {
      text += fmt::format(" + {}(at_{}) * {}", signed_index_, k, stride_name(operand, k));
    }
  }
  return text;
}

std::string ReductionEmitter::line_text(std::size_t operand) const {
  return operands_[operand].name + "_row" + offset(operand, first_reduced(), inner());
}

// Where rows are long enough to lie in shared memory, registers are left for it; and where their
// exponentials are computed as terms, instructions count.
bool ReductionEmitter::loads_words() const {
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (node_text_.is_term(id)) return true;
  }
  const bool left = ahead_.empty() || rows_.vectors > 8 || copies_rows();
  return has_stored() && rows_.block() <= 512 && left;
}

std::string ReductionEmitter::last_vector() const {
  if (rows_.split) return "end";
  return is_full() ? fmt::format("{}", rows_.threads * rows_.vectors) : "vectors";
}

}  // namespace kiln::fusion
