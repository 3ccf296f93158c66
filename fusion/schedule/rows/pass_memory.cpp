// How operands get on chip: what is in shared memory, which of it is copied there past the
// registers, which weights are prefetched, and how many blocks that leaves a multiprocessor.
#include <algorithm>

#include "fusion/schedule/rows/pass_planner.hpp"

namespace kiln::fusion {
namespace {

// Vectors of weights in flight; more where rows are copied past the registers.
constexpr int kDistance = 2;
constexpr int kDistanceOfCopies = 4;

constexpr int kAligned = 16;  // bytes of the widest access

}  // namespace

void PassPlanner::choose_memory() {
  for (std::size_t i = 0; i < passes_.operands.size(); ++i) {
    RowOperand& operand = passes_.operands[i];
    if (operand.output || !schedule_.operands[i].in_registers) continue;
    for (int pass = 0; pass <= passes_.last; ++pass) {
      operand.in_registers = operand.in_registers || passes_.is_read(operand, pass);
    }
  }
  choose_smem();
  choose_prefetched();
  passes_.copies_async = copies_async();
  for (std::size_t i = 0; i < passes_.operands.size(); ++i) {
    passes_.operands[i].copied = passes_.copies_async && can_copy(i);
  }
  constexpr int kFew = 2;
  constexpr int kMany = 4;
  constexpr int kFewOfColumns = 8;
  const bool many_of_columns = rows_.columns != 0 && rows_.in_smem > kFewOfColumns;
  passes_.copies_together = rows_.keeps_chunks() || many_of_columns ? kMany : kFew;
  passes_.prefetch_distance = passes_.copies_async ? kDistanceOfCopies : kDistance;
  // Of a chunk, whose vectors are few, all at once where that leaves registers.
  constexpr int kFewKept = 4;
  const bool has_room = rows_.in_cluster() ? rows_.is_full() : rows_.register_vectors() <= kFewKept;
  passes_.unrolls_smem = (rows_.copied && !many_of_columns) || (rows_.keeps_chunks() && has_room);
  // Where every thread has a vector of the row, or the row has many chunks.
  passes_.clamps_loads = !rows_.is_full() && (rows_.full_vectors > 0 || rows_.keeps_chunks());
  const bool has_places = rows_.is_shifted() || rows_.axes > 1;  // of which chunks take many
  passes_.computes_missing = schedule_.backend == Backend::nvidia && passes_.clamps_loads &&
                             rows_.columns == 0 && !(rows_.keeps_chunks() && has_places);
  passes_.loads_words = loads_words();
  passes_.min_blocks = std::min(min_blocks(), most_blocks());
  // Trees of one chunk use two buffers in turn: where all have passed the barrier of one of them,
  // they have read the other one. Rows in shared memory leave room for one.
  passes_.tree_buffers = std::min(passes_.tree_buffers, passes_.uses_smem() ? 1 : 2);
}

// Shared memory is for inputs that more than one pass reads, and for what takes their places.
void PassPlanner::choose_smem() {
  if (rows_.in_smem == 0) return;
  for (std::size_t i = 0; i < passes_.operands.size(); ++i) {
    RowOperand& operand = passes_.operands[i];
    int passes = 0;
    for (int pass = 0; pass <= passes_.last && operand.in_registers; ++pass) {
      passes += passes_.is_read(operand, pass) ? 1 : 0;
    }
    const bool all = rows_.columns != 0 && passes > 0;  // columns wait for nothing else
    operand.in_registers = operand.in_registers && (passes > 1 || all || gives_place(i));
    operand.in_smem = operand.in_registers;
    if (operand.in_smem) {
      passes_.shared_bytes += rows_.in_smem * rows_.block() * passes_.vector_bytes(operand);
    }
  }
}

bool PassPlanner::gives_place(std::size_t operand) const {
  return std::ranges::any_of(
      passes_.places, [&](const Ids& places) { return std::ranges::count(places, operand) != 0; });
}

// Rows of which every thread has many vectors leave no registers for weights, which come from L2.
// The weights of the last pass are prefetched from before the first pass on, two vectors at a time.
// Layer_norm of 32,768 bf16, f16 and f32 goes from 0.89, 0.86 and 0.89 of a copy on an H200 to
// 0.93, 0.95 and 0.96.
void PassPlanner::choose_prefetched() {
  constexpr int kManyVectors = 8;
  constexpr int kMostThreads = 512;
  constexpr int kWide = 8;
  if (schedule_.backend != Backend::nvidia || rows_.vectors < kManyVectors || rows_.columns != 0 ||
      rows_.copied) {
    return;
  }
  if ((rows_.in_cluster() && rows_.vectors <= kManyVectors) || rows_.is_shifted() ||
      passes_.last == 0) {
    return;
  }
  if (rows_.block() > kMostThreads && schedule_.width >= kWide) return;  // no registers are left
  for (std::size_t i = 0; i < passes_.operands.size(); ++i) {
    const RowOperand& operand = passes_.operands[i];
    if (operand.output || operand.row_invariant || operand.in_registers ||
        !passes_.is_read(operand, passes_.last))
      continue;
    if (!is_weight(i)) return passes_.prefetched.clear();
    passes_.prefetched.push_back(i);
  }
}

// Whether what is in shared memory is copied there asynchronously, which leaves the registers to
// what is computed and lets threads work on a row as it arrives. Where all of a row is there,
// layer_norm of 32,768 bf16 and f16 goes from 0.94 and 0.945 of a copy on an H200 to 0.955 and
// 0.96. Two operands of rows of several chunks leave two blocks of a multiprocessor enough
// registers so: x + r and its rms_norm, of 65,536 to 262,144 bf16, go from 0.79-0.87 on an H100 to
// 0.85-0.94. They are loaded where a pass has four reductions, whose accumulators take registers
// too: such statistics of 65,536 bf16 go from 0.67 on an H200 to 0.55 otherwise. Two operands of
// rows of one chunk are copied where shared memory has a part of them: softmax of x + r of 32,768
// bf16 goes from 0.78 to 1.00, of gelu_tanh(x) * r from 0.65 to 0.87.
//
// One operand is better loaded at once: softmax of 262,144 bf16 reaches 0.91, and 0.87 so. It is
// copied where one block has all of a row of several chunks, and more takes registers: the ends of
// unaligned rows (softmax of 50,257 bf16 goes from 0.81 to 0.84, rms_norm from 0.75 to 0.81), or
// two sums in a pass (three statistics of 65,536 bf16 go from 0.58 to 0.67).
bool PassPlanner::copies_async() const {
  if (!passes_.uses_smem() || schedule_.backend != Backend::nvidia) return false;
  constexpr int kMostRegisters = 32;
  int copied = 0;
  int stored = 0;
  int registers = accumulators();
  for (std::size_t i = 0; i < passes_.operands.size(); ++i) {
    const RowOperand& operand = passes_.operands[i];
    if (!operand.in_smem) continue;
    ++stored;
    copied += can_copy(i) ? 1 : 0;
    registers += rows_.register_vectors() * passes_.vector_bytes(operand) / 4;
  }
  constexpr int kMostOfBlock = 80 << 10;
  const bool several = stored > 1 && registers <= kMostRegisters;
  const bool has_ends = stored == 1 && rows_.is_shifted() && !rows_.in_cluster();
  const bool is_long = rows_.keeps_chunks() || rows_.in_cluster() ||
                       (rows_.register_vectors() != 0 && passes_.shared_bytes > kMostOfBlock);
  const bool crowded = stored == 1 && passes_.most_trees > 1 && !rows_.in_cluster();
  if (rows_.copied || (is_long && several) || (rows_.keeps_chunks() && (has_ends || crowded))) {
    return copied != 0;
  }
  return rows_.register_vectors() == 0 && !passes_.prefetched.empty() && rows_.is_full() &&
         copied == 1 && stored == 1;
}

// The registers of a thread's partial results, of 32 bits, in the pass with most of them.
int PassPlanner::accumulators() const {
  int most = 0;
  for (int pass = 0; pass <= passes_.last; ++pass) {
    const auto p = static_cast<std::size_t>(pass);
    const auto trees = static_cast<int>(passes_.trees[p].size());
    const int others = static_cast<int>(passes_.reductions[p].size()) - trees;
    most = std::max(most, (trees * rows_.sets + others) * schedule_.width);
  }
  return most;
}

bool PassPlanner::can_copy(std::size_t i) const {
  constexpr int kLeast = 4;
  const OperandSchedule& operand = schedule_.operands[i];
  const int bytes = passes_.vector_bytes(passes_.operands[i]);
  return passes_.operands[i].in_smem && bytes >= kLeast && !operand.unaligned &&
         operand.access == Access::contiguous && operand.alignment >= std::min(kAligned, bytes);
}

// With part of a row in shared memory two blocks of 512 threads, each with half of the registers
// that the compiler would use; blocks of a cluster wait for each other: with three, 131,072 f32 go
// from 0.68 of a copy to 0.86 (rmsnorm). Else as many as have 64 KiB of rows in flight, and one
// less where that is many small blocks: more registers are then worth more than more blocks
// (softmax of 8,192 bf16 goes from 0.97 to 0.99).
int PassPlanner::min_blocks() const {
  constexpr int kUnderWay = 64 << 10;
  constexpr int kMany = 4;
  constexpr int kFewThreads = 256;
  constexpr int kWide = 8;
  const std::vector<RowOperand>& operands = passes_.operands;
  if (rows_.columns != 0) return rows_.min_blocks;
  if (passes_.uses_smem()) {
    constexpr int kMostThreads = 512;
    constexpr int kHalf = 104 << 10;  // of a multiprocessor's shared memory, beside partial results
    const auto stored = std::ranges::count_if(operands, &RowOperand::in_smem);
    if (passes_.copies_async && (rows_.copied || stored > 1)) {
      // A block that has a multiprocessor for itself may have all of its registers: compilers keep
      // some for others where nothing is said.
      return rows_.block() <= kMostThreads && passes_.shared_bytes <= kHalf ? 2 : 1;
    }
    // What a thread keeps and the lanes that it computes leave 64 registers for all else: for what
    // says where chunks end too, of which layer_norm of 50,257 bf16 spills 32 bytes.
    const int room = rows_.keeps_chunks() ? 28 : 36;
    const int registers = rows_.register_vectors() * 4 + schedule_.width;
    if (stored != 1 || rows_.block() > kMostThreads || registers > room) return 0;
    const bool counts = std::ranges::any_of(operands, [](const RowOperand& operand) {
      return operand.iota && !operand.row_invariant;  // an index takes registers too
    });
    return rows_.in_cluster() && rows_.vectors <= 8 && !counts ? 3 : 2;
  }
  const bool stores = std::ranges::any_of(
      operands, [](const RowOperand& operand) { return operand.output && !operand.row_invariant; });
  if (rows_.vectors < kMany || !stores || rows_.is_shifted()) return 0;
  if (rows_.vectors == kMany && rows_.block() > kFewThreads && schedule_.width < kWide) return 0;
  int bytes = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool of_row = !operands[i].output && operands[i].in_registers && !is_weight(i);
    if (of_row) bytes += rows_.block() * rows_.vectors * passes_.vector_bytes(operands[i]);
  }
  if (bytes == 0 || bytes > kUnderWay) return 0;
  const int blocks = std::max(2, kUnderWay / bytes);
  return blocks > kMany ? blocks - 1 : blocks;
}

// For how many blocks a multiprocessor has the registers that a thread needs at least: for what it
// keeps, for partial results, for what the last pass reads, its lanes, and two for each address.
// Demanded for more blocks, registers are spilled: rms_norm of 4,096 bf16 whose weights are f32
// stood at 0.59 of a copy on an H200.
int PassPlanner::most_blocks() const {
  constexpr int kRegisters = 1 << 16;
  constexpr int kTogether = 8;  // that a thread is given at a time
  constexpr int kOther = 4;     // such as where it is in the row
  int needed = kOther + passes_.most_trees * rows_.sets * schedule_.width + schedule_.width;
  for (const RowOperand& operand : passes_.operands) {
    if (operand.row_invariant) continue;
    needed += 2;
    if (operand.output) continue;
    const int words = passes_.vector_bytes(operand) / 4;
    if (operand.in_registers) {
      needed += rows_.register_vectors() * words;
    } else if (passes_.is_read(operand, passes_.last)) {
      needed += words;
    }
  }
  const int given = (needed + kTogether - 1) / kTogether * kTogether;
  return kRegisters / (rows_.block() * given);
}

// Loads in words take fewer instructions and more registers (preamble/strides.h): they are used if
// rows in shared memory leave registers free, or where exponentials are computed as terms of sums
// and instructions count.
bool PassPlanner::loads_words() const {
  if (methods_.has_terms()) return true;
  constexpr int kMostVectors = 8;
  constexpr int kMostThreads = 512;
  const bool left =
      passes_.prefetched.empty() || rows_.vectors > kMostVectors || passes_.copies_async;
  return passes_.uses_smem() && rows_.block() <= kMostThreads && left;
}

}  // namespace kiln::fusion
