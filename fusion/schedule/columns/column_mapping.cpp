#include "fusion/schedule/columns/column_mapping.hpp"

#include <algorithm>
#include <bit>

#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/residency.hpp"

namespace kiln::fusion {
namespace {

// Vectors of a column that a thread keeps. Those of unaligned columns are short, and there are
// more.
int most_kept(int width) { return width <= 2 ? 64 / width : 8; }

// The residues that a thread of columns adds up side by side: a vector of each, or those which are
// folded.
int residues_in_batch(int folded, const VectorBytes& bytes, const RowModel& model) {
  constexpr int kFoldedBytes = 64;  // in flight, where lanes of a row make short vectors
  constexpr int kLeastBytes = 32;   // of short vectors, as those of unaligned columns are
  constexpr int kMost = 16;
  const int all = std::max(1, bytes.rows + bytes.weights + bytes.once);
  if (folded == 0) {
    return std::max(vectors_in_flight(bytes, model),
                    power_of_two_to(std::clamp(kLeastBytes / all, 1, kMost)));
  }
  return power_of_two_to(std::max(1, kFoldedBytes / all / folded));
}

constexpr int kLineBytes = 128;
constexpr int kLine = 8;  // vectors of 16 bytes

// Vectors of columns that are a line, or more of long ones.
int vectors_of_line(const ColumnSpace& space) {
  return std::max(kLine, kLineBytes / std::max(1, space.vector_bytes));
}

// Vectors of columns side by side in a block where `threads` keep each column: a line, so that as
// many threads of a column as can be are in one wave, which combines what they have without shared
// memory. Where columns have a thread each, a block has but one strip.
int strip_of_kept(int line, int threads, const RowModel& model) {
  return threads == 1 ? std::max(line, model.block) : line;
}

// As many threads for each column as fill the device, if a block has `strip` vectors of columns
// side by side. Each has at least a batch to read.
int threads_that_fill(const ColumnSpace& space, int strip, const RowModel& model) {
  const int filling = std::min(power_of_two_to(model.threads / std::max<Size>(space.count, 1)),
                               model.max_threads / strip);
  // All columns that are long enough are planned alike, so that they share a tape (size.hpp).
  const Size batches = space.length / model.batch;
  return batches > filling / 2 ? filling : power_of_two_from(batches);
}

// How many groups of residues a thread of a column that is not kept adds up one after the other.
int groups_of(const ColumnSpace& space, int threads, int batch) {
  return std::max(1, space.residues / (threads * batch));
}

// Numbers that a thread has of its sums: of `beside` residues side by side, and of one group of
// residues of each size (preamble/columns.h).
int sums_of(const ColumnSpace& space, int beside, int groups) {
  return space.trees * space.width * (beside + std::countr_zero(static_cast<unsigned>(groups)));
}

constexpr int kLeastElements = 8;  // of a thread, which combines its sums with others in the end

// How many threads keep a column, and the columns side by side that a block keeps, in vectors. A
// strip of 0: too many threads, or too narrow a strip.
struct KeptColumns {
  int threads = 0;
  int strip = 0;
  Size each = 0;  ///< vectors of a thread, at most
};

// Of columns that several passes read, up to `most_bytes` in a thread.
KeptColumns kept_columns(const ColumnSpace& space, int joined, int bytes, int most_bytes,
                         int most_vectors, const RowModel& model) {
  const int most_each = std::clamp(power_of_two_to(most_bytes / bytes), 1, most_vectors);
  const int threads = power_of_two_from((space.length + most_each - 1) / most_each);
  // No two threads have elements of one residue.
  const Size elements = space.length * joined;
  const bool whole = space.folded != 0
                         ? elements <= kTreeChunk && threads <= space.residues &&
                               std::has_single_bit(static_cast<unsigned>(space.folded))
                         : elements <= 2 * kLeastResidues ||
                               threads * joined <= power_of_two_from(elements) / kTreeTerms;
  const bool fills =
      space.forced.keeps_columns || threads_that_fill(space, kLine, model) <= threads;
  if (!fills || threads > model.max_threads || !whole) return {};
  const int few = power_of_two_from(space.across);
  const int line = std::max(1, kLineBytes / space.vector_bytes);
  const int most = model.max_threads / threads;
  const int strip = space.forced.columns != 0
                        ? std::min({few, space.forced.columns, most})
                        : std::min({few, strip_of_kept(line, threads, model), most});
  const bool wide = strip == few || strip >= std::max(1, line / 2) || space.forced.columns != 0;
  return {threads, wide ? strip : 0, (space.length + threads - 1) / threads};
}

// Of columns that one pass reads. Threads that have all of their loads in flight from the start
// need few of them: so are short columns read over which a loop would have too many sums, or too
// little in flight. An H100 runs two sums of 77 rows of bf16 at 0.23 of a copy with 112 numbers of
// sums in a thread, and at 0.99 so.
KeptColumns short_columns(const ColumnSpace& space, int joined, int bytes, int batch,
                          const RowModel& model) {
  constexpr int kMostBytes = 192;
  constexpr int kLeastInFlight = 32;
  const int fill = threads_that_fill(space, kLine, model);
  const bool loops = batch * bytes >= kLeastInFlight &&
                     sums_of(space, batch, groups_of(space, fill, batch)) <= model.sums;
  int threads = std::max(fill, power_of_two_to(space.length / kLeastElements));
  const auto each = [&] { return (space.length + threads - 1) / threads; };
  while (each() * bytes > kMostBytes && threads < model.max_threads) threads *= 2;
  if (loops || space.trees == 0 || space.folded != 0 ||
      space.length * joined > 2 * kLeastResidues || threads > model.max_threads / kLine ||
      each() > model.max_vectors) {
    return {};
  }
  const int line = std::min(vectors_of_line(space), std::max(kLine, model.max_threads / threads));
  const int strip = std::min(power_of_two_from(space.across), strip_of_kept(line, threads, model));
  return {threads, strip, each()};
}

// What a thread keeps of columns in registers is as little as lets a multiprocessor have several
// blocks: with more an H100 spills sums of two inputs of 1,024 rows, and goes from 0.57 of a copy
// to 0.29; one input goes from 0.48 to 0.88 (norm and softmax of 320 rows). But one block that
// keeps all is better than reading columns again: softmax of 2,048 rows of f32 goes from 0.50 to
// 0.94, three statistics of 1,024 rows of f16 from 0.38 to 0.83.
constexpr int kFewBytes = 128;

KeptColumns columns_on_chip(const ColumnSpace& space, int joined, const VectorBytes& in_vector,
                            const RowModel& model) {
  if (!space.keeps) return {};
  const int bytes = std::max(1, on_chip_bytes(in_vector));
  if (space.passes == 1) {
    return short_columns(space, joined, bytes, residues_in_batch(0, in_vector, model), model);
  }
  const KeptColumns kept =
      kept_columns(space, joined, bytes, kFewBytes, most_kept(space.width), model);
  if (kept.strip != 0) return kept;
  return kept_columns(space, joined, bytes, model.register_bytes, model.max_vectors, model);
}

// A device with a smaller share of its threads at work waits for memory. The sum of a transposed
// bf16[32768,8192], whose 512 parts are 64 vectors of columns, goes from 0.13 of a copy to 0.35 on
// an H200.
constexpr int kIdleShare = 8;
constexpr int kBusyShare = 4;

// Maps columns of which nothing is kept to threads: as many to each as fill the device, and more
// where their sums take too many registers, as long as combining these costs less than they save.
// Blocks have a cache line of columns. Where there are few of these, two blocks of a cluster share
// each, or, where there are no clusters, blocks have half of one: softmax of 65,536 rows of 4,096
// bf16 goes from 0.26 of a copy to 0.39.
void share_columns(RowSchedule& rows, const ColumnSpace& space, const VectorBytes& in_vector,
                   const RowModel& model) {
  const bool few = 4 * space.count * threads_that_fill(space, kLine, model) < model.threads;
  constexpr int kBlocks = 2;
  const int most_of_line = kBlocks * model.max_threads / kLine;
  const int batch = residues_in_batch(space.folded, in_vector, model);
  const int whole = vectors_of_line(space);
  const bool in_pairs =
      few && whole == kLine && space.clusters && space.passes > 1 && space.forced.columns == 0 &&
      space.length / kLeastElements >= most_of_line && space.residues / batch >= most_of_line;
  const int line = few && !in_pairs ? whole / 2 : whole;
  int strip = space.folded == 0 ? line : std::min(line, power_of_two_from(space.across));
  // Where even so few threads share all columns that the device is idle, more share each; of short
  // vectors, which are less than a sector where eight are side by side, sooner.
  const auto most_threads = [&] { return space.count * (model.max_threads / strip); };
  while (strip > kLine && kBusyShare * most_threads() < model.threads) strip /= 2;
  while (strip > 1 && kIdleShare * most_threads() < model.threads) strip /= 2;
  if (space.forced.columns != 0) strip = space.forced.columns;
  const auto groups = [&] { return groups_of(space, rows.threads, batch); };
  const Size most = std::min<Size>(
      {model.max_threads / strip, space.length / kLeastElements, space.residues / batch});
  rows.threads = threads_that_fill(space, strip, model);
  while (2 * rows.threads <= most && sums_of(space, batch, groups()) > model.sums) {
    rows.threads *= 2;
  }
  if (space.forced.threads != 0) {
    rows.threads = std::min(space.forced.threads, model.max_threads / strip);
  }
  // Each thread of a column has residues of its own.
  if (in_pairs && rows.threads * strip == model.max_threads &&
      kBlocks * rows.threads * batch <= space.residues) {
    rows.cluster_blocks = kBlocks;
    rows.threads *= kBlocks;
  }
  rows.groups = groups();
  const int widest =
      space.forced.columns != 0 ? strip : std::max(strip, model.block / rows.threads);
  rows.columns = std::min(power_of_two_from(space.across), widest);
  rows.rows = std::max(1, model.block / (rows.columns * rows.block_threads()));
}

// The part of a copy's speed, in thousandths, at which columns are read again by each pass: so much
// of a copy's speed is left where blocks read whole lines.
std::int64_t share_of_reading_again(const ColumnSpace& space, const MovedBytes& bytes) {
  constexpr std::int64_t kOfLines = 900;
  const int once = bytes.kept + bytes.stored;
  return kOfLines * once / (once + (space.passes - 1) * bytes.again);
}

// Of a thread's vectors, beside which the compiler has registers for sums.
constexpr int kBytesInRegisters[] = {0, 48, 96, 128};

// Blocks that keep columns in shared memory, and some of each in registers.
struct CopiedColumns {
  int strip = 0;      ///< vectors of columns side by side
  int blocks = 0;     ///< of a cluster
  int block = 0;      ///< threads
  int registers = 0;  ///< of a thread's vectors, how many are in registers
  int resident = 0;   ///< blocks that a multiprocessor has at a time
  int threads() const { return block / strip * blocks; }
};

// The part of a copy's speed that they reach, in thousandths; 0: there is no room for them, or
// there are fewer than multiprocessors. Finds how many a multiprocessor has.
std::int64_t share_of_copied(CopiedColumns& columns, const ColumnSpace& space,
                             const MovedBytes& bytes) {
  constexpr int kMultiprocessors = 128;
  constexpr int kMostLanes = 256;  // of all vectors of a thread, which are code
  constexpr int kMostSlots = 128;
  constexpr int kWave = 32;
  constexpr int kOther = 32;   // registers for addresses and loops
  constexpr int kFewest = 64;  // where these are of several axes
  // Lengths that differ little are planned alike, so that they share a tape (size.hpp).
  constexpr int kStep = 256;
  const int length = static_cast<int>((space.length + kStep - 1) / kStep) * kStep;
  const int each = (length + columns.threads() - 1) / columns.threads();
  if (columns.registers >= each) return 0;
  const bool few = each <= kMostSlots && each * space.width <= kMostLanes;
  if (!few && space.forced.cluster_blocks == 0) return 0;
  const int waves = std::max(1, columns.block / std::max(kWave, columns.strip));
  const int sums = sums_of(space, 1, std::max(1, space.residues / columns.threads()));
  ResidentBlock block;
  block.threads = columns.block;
  block.registers =
      std::max(kFewest, sums * space.sum_bytes / 4 + 2 * space.width + bytes.stored / 4 + kOther +
                            columns.registers * (bytes.kept / 4));
  block.shared = (each - columns.registers) * columns.block * bytes.kept +
                 (waves + 1 + columns.blocks) * columns.strip * space.width * space.slot_bytes;
  block.moved = std::int64_t{each} * columns.block * (bytes.kept + bytes.stored);
  block.passes = space.passes;
  block.cluster = columns.blocks > 1;
  columns.resident = blocks_of_multiprocessor(block);
  if (space.forced.cluster_blocks != 0) return columns.resident;
  const Size all = space.count / columns.strip * columns.blocks;
  columns.resident = std::min(columns.resident, power_of_two_to(all) / kMultiprocessors);
  return share_of_copy(block, columns.resident);
}

// How many blocks that keep columns in registers a multiprocessor has room for, up to those that
// have enough of them in flight. Compilers that are not asked for it take more registers.
int blocks_that_keep(const RowSchedule& rows, const ColumnSpace& space, const VectorBytes& bytes) {
  constexpr int kEnough = 128 << 10;
  constexpr int kFewest = 64;
  // Beside what is kept, sums, lanes, and what the last pass loads: more where blocks have several
  // rows, each of which is somewhere else.
  const int other = rows.rows > 1 ? 12 : 8;
  ResidentBlock block;
  block.threads = rows.block();
  const int sums = std::max(sums_of(space, 1, kept_residues(rows)) * space.sum_bytes / 4,
                            space.reductions * space.width);
  block.registers = std::max(
      kFewest, (rows.vectors * on_chip_bytes(bytes) + bytes.once) / 4 + sums + space.width + other);
  const int kept = rows.vectors * on_chip_bytes(bytes) * block.threads;
  return std::min(blocks_of_multiprocessor(block), (kEnough + kept - 1) / kept);
}

// Whether threads can keep all vectors that are folded, each those of other residues: a power of
// two of one chunk.
bool keeps_folded(const RowSchedule& rows, Size vectors) {
  return std::has_single_bit(static_cast<unsigned>(rows.folded)) &&
         rows.chunks == ColumnChunks::one && vectors % (Size(rows.threads) * rows.folded) == 0;
}

}  // namespace

int residues_of_column(Size length, int joined, int parts) {
  const Size elements = std::min<Size>(length * joined, kTreeChunk);
  const int visited = elements <= 2 * kLeastResidues ? std::max(1, power_of_two_from(elements) / 2)
                                                     : residues_of(elements);
  return std::max(1, visited / joined / parts);
}

int kept_residues(const RowSchedule& rows) {
  if (rows.folded != 0) return rows.vectors / rows.folded;
  const auto slots = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows.vectors)));
  const int sharing = rows.threads * rows.joined;
  const int residues = std::clamp(sharing * slots / kTreeTerms, kLeastResidues, kMostResidues);
  return std::clamp(residues / sharing, 1, slots);
}

void map_columns(RowSchedule& rows, const ColumnSpace& space, const VectorBytes& in_vector,
                 Backend backend) {
  if (backend == Backend::host) {
    rows.columns = 1;
    return;
  }
  const RowModel& model = row_model(backend);
  const KeptColumns kept = columns_on_chip(space, rows.joined, in_vector, model);
  if (kept.strip == 0) return share_columns(rows, space, in_vector, model);
  rows.threads = kept.threads;
  rows.columns = kept.strip;
  rows.rows = std::max(1, model.block / (rows.columns * rows.threads));
}

bool map_copied_columns(RowSchedule& rows, const ColumnSpace& space, const MovedBytes& bytes,
                        const RowFeatures& device) {
  if (!device.clusters || !device.large_smem || bytes.kept == 0 || !space.clusters) return false;
  const int forced = device.forced.cluster_blocks;
  const Size elements = space.length * rows.joined;
  if (space.passes < 2 || elements > kTreeChunk || elements <= 2 * kLeastResidues) return false;
  const int residues = power_of_two_from(elements) / kTreeTerms;
  const int few = power_of_two_from(space.across);
  const int line = std::max(1, kLineBytes / space.vector_bytes);
  std::int64_t best = forced != 0 ? 0 : share_of_reading_again(space, bytes);
  CopiedColumns found;
  const auto try_columns = [&](CopiedColumns columns) {
    if (forced != 0) {
      if (columns.blocks != forced) return;
      columns.block = std::min(columns.block, residues / (forced * rows.joined) * columns.strip);
    }
    if (columns.block < kFewestThreads || columns.threads() * rows.joined > residues) return;
    const std::int64_t share = share_of_copied(columns, space, bytes);
    // What comes later halves lines, has more blocks wait for each other, or takes registers.
    constexpr std::int64_t kWorth = 50;
    if (share <= best + (found.blocks == 0 ? 0 : kWorth)) return;
    best = share;
    found = columns;
  };
  for (const int registers : kBytesInRegisters) {
    // Narrower strips than half a line are slower than reading columns again.
    for (const int part : {1, 2}) {
      for (int blocks = 1; blocks <= kMostBlocks; blocks *= 2) {
        for (const int threads : {2 * kThreadsOfCopies, kThreadsOfCopies, kThreadsOfCopies / 2}) {
          try_columns({.strip = std::min(few, std::max(1, line / part)),
                       .blocks = blocks,
                       .block = threads,
                       .registers = registers / bytes.kept});
        }
      }
    }
  }
  if (found.blocks == 0) return false;
  rows.cluster_blocks = found.blocks;
  rows.threads = found.threads();
  rows.columns = found.strip;
  rows.rows = 1;
  rows.vectors = static_cast<int>((space.length + rows.threads - 1) / rows.threads);
  rows.in_smem = rows.vectors - std::min(rows.vectors - 1, found.registers);
  rows.full_vectors = static_cast<int>(space.length / rows.threads);
  rows.batch = 1;
  rows.copied = true;
  rows.min_blocks = found.resident;
  return true;
}

void choose_column_registers(RowSchedule& rows, const ColumnSpace& space, Size vectors,
                             const VectorBytes& bytes, const RowFeatures& device, Backend backend) {
  if (backend == Backend::host) return;
  const RowModel& model = row_model(backend);
  const Size each = std::max<Size>(1, (vectors + rows.threads - 1) / rows.threads);
  // Threads of columns with several chunks add these up one after the other.
  const bool may_keep = !rows.split && !device.forced.read_again &&
                        rows.chunks == ColumnChunks::one &&
                        (rows.folded == 0 || keeps_folded(rows, vectors));
  const int kept = on_chip_bytes(bytes);
  const int most = std::max(model.max_vectors, most_kept(space.width));
  const bool fits = may_keep && each <= most && each * kept <= model.register_bytes &&
                    each * kept * rows.block_threads() <= model.on_chip_row;
  rows.vectors = fits ? static_cast<int>(each) : 0;
  rows.full_vectors = fits ? static_cast<int>(vectors / rows.threads) : 0;
  rows.batch = residues_in_batch(rows.folded, bytes, model);
  if (!fits) return;
  rows.batch = std::min(rows.batch, rows.vectors);
  if (backend == Backend::nvidia && space.passes > 1 && !space.packs) {
    rows.min_blocks = blocks_that_keep(rows, space, bytes);
  }
}

bool keeps_on_chip(const ColumnSpace& space, int joined, const VectorBytes& in_vector,
                   Backend backend) {
  return columns_on_chip(space, joined, in_vector, row_model(backend)).strip != 0;
}

bool keeps_columns(const ColumnSpace& space, int joined, const VectorBytes& in_vector,
                   Backend backend) {
  const int bytes = std::max(1, on_chip_bytes(in_vector));
  return space.passes > 1 &&
         kept_columns(space, joined, bytes, kFewBytes, most_kept(space.width), row_model(backend))
                 .strip != 0;
}

bool has_room_for_columns(const ColumnSpace& space, int joined, const VectorBytes& in_vector,
                          Backend backend) {
  constexpr int kFewLanes = 4;
  constexpr int kManyRegisters = 32;
  constexpr int kMostRegisters = 52;
  const RowModel& model = row_model(backend);
  const KeptColumns kept = columns_on_chip(space, joined, in_vector, model);
  if (kept.strip == 0) {
    RowSchedule rows;
    rows.joined = joined;
    share_columns(rows, space, in_vector, model);
    const int wide = model.sums + model.sums / 3;  // more in one access is worth some
    return sums_of(space, residues_in_batch(0, in_vector, model), rows.groups) <= wide;
  }
  // Blocks that load, compute and store in turn need others beside them, of 512 threads two with 64
  // registers each. Quotients by the largest of 1,024 rows of bf16 go from 0.61 of a copy to 0.89
  // so, and to 0.78 with eight lanes, which spill.
  const Size registers = kept.each * on_chip_bytes(in_vector) / 4;
  const bool crowded = registers == kManyRegisters ||
                       (registers < kManyRegisters &&
                        registers + 2 * space.width * space.reductions > kMostRegisters);
  const bool narrows = space.passes == 1
                           ? kept.each < kLeastElements
                           : kept.threads * kept.strip == model.max_threads && crowded;
  return !(narrows && space.width > kFewLanes) &&
         sums_of(space, 1, power_of_two_from(kept.each)) <= model.sums;
}

}  // namespace kiln::fusion
