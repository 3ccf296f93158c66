#include "fusion/schedule/rows/row_mapping.hpp"

#include <algorithm>
#include <bit>

#include "fusion/infer/sum_tree.hpp"

namespace kiln::fusion {
namespace {

// GPUs: half a wave of threads with two vectors each hides more of a short row's latency than a
// wave with one: softmax of 256 bf16 reaches 0.98 of a copy, and 0.93 with a wave, on an H200. For
// longer rows four vectors per thread are enough in flight and leave blocks small: rows of 4,096
// bf16 with 128 / 256 / 512 threads reach 0.979 / 0.976 / 0.915 (rmsnorm) and 0.976 / 0.978 / 0.803
// (softmax), since every reduction is a barrier where all threads of a block wait for the slowest.
// For 16,384 f16, 256 threads with eight vectors reach 0.96, 0.96 and 0.97 (rmsnorm, layer_norm,
// softmax), 512 with four 0.99, 0.98 and 0.97.
//
// A block with rows of 64 KiB in registers leaves no room for a second one: 32,768 bf16 go from
// 0.93 to 0.97 (rmsnorm) and from 0.80 to 0.98 (softmax) with most of a row in shared memory, of
// which every GPU that NVIDIA's compiler knows has 60 KiB for a block. As many bytes of f32 are
// half as much work: they stay in registers, where 16,384 reach 0.97 to 0.98, and 32,768 with 1,024
// threads 0.96. AMD GPUs have four times the registers for as much shared memory. Longer rows are
// kept by clusters, 64 KiB in each block: 131,072 bf16 go from 0.69 to 0.85 (rmsnorm), 0.48 to 0.79
// (layer_norm) and 0.52 to 0.86 (softmax). Shorter rows lose by that, since blocks of a cluster
// wait for each other and start together: 32,768 bf16 in two blocks reach 0.80.
//
// 2^18 threads fill the largest GPUs of today, with four vectors each in flight. The CPU sums 256
// elements side by side, enough to hide the latency of an addition whatever the width of its
// vectors, and keeps computed values of up to 512 times as many, which its caches hold: room for 64
// times as many or for 512, so that one kernel does for all of them.
//
// Sums of columns leave registers for loads in flight: a sum of squares of 4,096 rows of bf16 goes
// from 0.73 of a copy with 56 numbers of sums in a thread to 0.92 with 48. AMD GPUs have more
// registers.
constexpr RowModel kModels[] = {
    /* amd    */ {32,      16, 256, 0, 4,   512, 512, 16, 256,     128 << 10,
                  1 << 29, 0,  512, 0, 128, 4,   128, 0,  1 << 18, 112},
    /* nvidia */
    {32,       16,       256,  4 << 10,  4,   512, 512, 16, 256,     128 << 10,
     32 << 10, 60 << 10, 1024, 64 << 10, 128, 4,   128, 0,  1 << 18, 48},
    /* host   */ {0, 0, 1, 0, 1, 1, 1, 512, 0, 0, 0, 0, 1, 0, 0, 1, 0, 256, 0, 0},
};

// The largest cluster that all devices with clusters support.
constexpr int kMostBlocks = 8;

// Threads of a block with several rows whose results are stored. Where stores follow loads soon,
// small blocks let the loads of other blocks come between. With 128 and 64 threads instead of 256
// softmax goes from 0.98 to 1.00 of a copy (64 f32 and 128 bf16) and from 1.01 to 1.015 (1,024
// bf16), layer_norm of 512 bf16 from 0.97 to 1.00. With 64 threads of one vector each, from 1.01 to
// 0.80.
constexpr int kLeastBlock = 64;
constexpr int kMostBlock = 128;

// GPUs with more shared memory keep most of rows of up to 128 KiB there, in blocks of 512 threads,
// two to a multiprocessor, and longer rows in clusters of such blocks: 65,536 f16 and bf16 go from
// 0.90 of a copy to 0.96 (rmsnorm), 65,536 and 131,072 f32 from 0.87 to 0.94 and 0.92. bf16 needs
// more registers for the rest: softmax of 65,536 reaches 0.96 with 96 KiB and 0.92 with 80, and of
// f16 0.90 and 0.95. More threads remain better with two weights for each element and for unaligned
// rows with one; clusters of smaller blocks remain better for softmax in 16 bits and for bf16.
constexpr int kRoom = 80 << 10;
constexpr int kRoomOfBf16 = 96 << 10;

// With two weights for each element all of a row of 64 KiB is in shared memory, which leaves the
// registers to weights (pass_memory.cpp). Where threads have different numbers of vectors, that
// takes too many registers.
constexpr int kRoomBesideWeights = 64 << 10;

// Rows of several chunks that threads have no room for are copied to shared memory as a whole, by
// clusters whose blocks may share each chunk. Where two blocks fit, one copies while the other one
// waits for its cluster; a block that needs more has a multiprocessor for itself. Beside rows there
// are partial results. On an H100 two operands of 65,536 f32 go from 0.62 of a copy, which reads
// them again, to 0.92 (x * (r - sum(x * r))), of 131,072 from 0.59 to 0.82; gelu of a norm of two
// bf16 operands, times a third, from 0.67 to 0.87 (131,072).
constexpr int kRoomOfOne = 208 << 10;
constexpr int kRoomOfTwo = 104 << 10;
constexpr int kSharedOfBlock = 224 << 10;
constexpr int kThreadsOfCopies = 512;

// The same of columns: beside lanes and addresses threads have registers for so many sums. Blocks
// wait for each other and for whole columns, which is faster than reading one operand three times,
// but no faster than reading it twice, and slower than reading two operands again. On an H200 norms
// with a mean and a variance go from 0.39 of a copy to 0.67 (4,096 f16), from 0.32 to 0.60 (16,384
// bf16), group norm of 112 x 112 pixels from 0.27 to 0.59, softmax of 4,096 f32 from 0.45 to 0.68.
constexpr int kMostSumsOfCopies = 32;
constexpr int kLeastPasses = 3;
constexpr int kFewestThreads = 128;
// Blocks wait for those with whole chunks: where the last chunk is much shorter, reading operands
// again is faster (100,000 f32; three operands of 151,936 f16 go from 0.35 to 0.63).
constexpr int kLeastLast = kTreeChunk / 5 * 4;

// Accumulators of a thread for each lane of its vectors, where a test asks for few threads.
constexpr int kMostSets = 4;

int power_of_two_to(Size count) { return static_cast<int>(bit_floor(std::max<Size>(count, 1))); }

constexpr std::int64_t kMostThreadBytes = 128;
constexpr int kVectorBytes = 16;

// Threads of a row that follows the tree, of which each has up to 128 bytes. What is done once for
// each thread takes as long for few bytes as for many: combining sums in the order of the tree, and
// what is at the ends of an unaligned row. On an H100 layer_norm of 5,120 bf16 goes from 0.77 of a
// copy to 1.00 (256 threads and 128), rms_norm of 10,240 bf16 from 0.75 to 1.00 (512 and 256);
// unaligned layer_norm from 0.59 to 0.97 (6,001 bf16, 256 and 128) and from 0.82 to 0.98 (1,501
// f16, 64 and 32). Without weights few threads have too little to do: unaligned softmax of 4,097
// f16 reaches 0.99 with 128 and 0.95 with 64, of 1,501 bf16 0.98 with 64 and 0.95 with 32.
int threads_in_tree(Size bytes, bool unaligned, bool has_weights, const RowModel& model) {
  constexpr std::int64_t kMostBytes = kMostThreadBytes;
  if (unaligned && has_weights) return power_of_two_from((bytes + kMostBytes - 1) / kMostBytes);
  const bool is_short = !unaligned || bytes <= kMostBytes / 2 * model.short_row;
  return std::max(power_of_two_to(bytes / (kMostBytes / 2)), is_short ? 1 : 2 * model.short_row);
}

// Whether half as many threads, which would have at most 160 bytes each, are so much better filled
// by a row: where many threads lack the last vector, others compute it while these wait. On an H200
// two operands of 5,120 f16 go from 0.89 of a copy to 0.99 with five vectors for each of 128
// threads, instead of two and a half for each of 256.
bool fills_better(Size vectors, int threads, int kept) {
  constexpr int kMostBytes = 160;
  constexpr int kPoor = 7;  // eighths
  const Size each = (vectors + threads - 1) / threads;
  const int half = std::max(1, threads / 2);
  const Size fewer = (vectors + half - 1) / half;
  return each > 1 && fewer * kept <= kMostBytes && 8 * vectors < kPoor * each * threads &&
         fewer < 2 * each;
}

// Vectors of a column that a thread keeps. Those of unaligned columns are short, and there are
// more.
int most_kept(int width) { return width <= 2 ? 64 / width : 8; }

// Vectors whose loads a thread has in flight where it keeps none.
int batch_of(const VectorBytes& bytes, const RowModel& model) {
  const int all = std::max(1, bytes.rows + bytes.weights + bytes.once);
  return power_of_two_to(std::min(model.batch, model.batch_bytes / all));
}

// The residues that a thread of columns adds up side by side: a vector of each, or those which are
// folded.
int residues_in_batch(int folded, const VectorBytes& bytes, const RowModel& model) {
  constexpr int kFoldedBytes = 64;  // in flight, where lanes of a row make short vectors
  if (folded == 0) return batch_of(bytes, model);
  const int all = std::max(1, bytes.rows + bytes.weights + bytes.once);
  return power_of_two_to(std::max(1, kFoldedBytes / all / folded));
}

constexpr int kLineBytes = 128;
constexpr int kLine = 8;  // vectors of 16 bytes

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
  const int strip = std::min(power_of_two_from(space.across), strip_of_kept(kLine, threads, model));
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
    return short_columns(space, joined, bytes, batch_of(in_vector, model), model);
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
  const bool in_pairs = few && space.clusters && space.passes > 1 && space.forced.columns == 0 &&
                        space.length / kLeastElements >= most_of_line &&
                        space.residues / batch >= most_of_line;
  const int line = few && !in_pairs ? kLine / 2 : kLine;
  int strip = space.folded == 0 ? line : std::min(line, power_of_two_from(space.across));
  // Where even so few threads share all columns that the device is idle, more share each.
  const auto most_threads = [&] { return space.count * (model.max_threads / strip); };
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
  if (in_pairs && rows.threads * strip == model.max_threads) {
    rows.cluster_blocks = kBlocks;
    rows.threads *= kBlocks;
  }
  rows.groups = groups();
  const int widest =
      space.forced.columns != 0 ? strip : std::max(strip, model.block / rows.threads);
  rows.columns = std::min(power_of_two_from(space.across), widest);
  rows.rows = std::max(1, model.block / (rows.columns * rows.block_threads()));
}

}  // namespace

const RowModel& row_model(Backend backend) { return kModels[static_cast<std::size_t>(backend)]; }

int power_of_two_from(Size count) { return static_cast<int>(bit_ceil(std::max<Size>(count, 1))); }

int residues_of(Size elements) {
  const Size of_chunk = std::min<Size>(elements, kTreeChunk);
  return std::clamp(power_of_two_from(of_chunk) / kTreeTerms, kLeastResidues, kMostResidues);
}

int residues_of_column(Size length, int joined, int parts) {
  const Size elements = std::min<Size>(length * joined, kTreeChunk);
  const int visited = elements <= 2 * kLeastResidues ? std::max(1, power_of_two_from(elements) / 2)
                                                     : residues_of(elements);
  return std::max(1, visited / joined / parts);
}

int on_chip_bytes(const VectorBytes& bytes) { return bytes.rows != 0 ? bytes.rows : bytes.weights; }

namespace {

// Whether threads can keep all vectors that are folded, each those of other residues: a power of
// two of one chunk.
bool keeps_folded(const RowSchedule& rows, Size vectors) {
  return std::has_single_bit(static_cast<unsigned>(rows.folded)) &&
         rows.chunks == ColumnChunks::one && vectors % (Size(rows.threads) * rows.folded) == 0;
}

}  // namespace

void choose_registers(RowSchedule& rows, Size vectors, Size least_vectors, const VectorBytes& bytes,
                      int width, const RowFeatures& device, Backend backend) {
  const RowModel& model = row_model(backend);
  const Size each = std::max<Size>(1, (vectors + rows.threads - 1) / rows.threads);
  // Threads of columns with several chunks add these up one after the other.
  const bool in_order = rows.columns == 0 || rows.chunks == ColumnChunks::one;
  const bool may_keep = !rows.split && !device.forced.read_again && in_order &&
                        (rows.folded == 0 || keeps_folded(rows, vectors));
  if (backend == Backend::host) {
    constexpr int kFew = 64;
    const bool kept = may_keep && rows.columns == 0 && each <= model.max_vectors;
    rows.vectors = !kept ? 0 : vectors == 1 ? 1 : vectors <= kFew ? kFew : model.max_vectors;
    return;
  }
  const int kept = on_chip_bytes(bytes);
  const int threads = rows.threads / rows.cluster_blocks;
  const int most =
      rows.columns == 0 ? model.max_vectors : std::max(model.max_vectors, most_kept(width));
  const bool fits = may_keep && each <= most && each * kept <= model.register_bytes &&
                    each * kept * threads <= model.on_chip_row;
  rows.vectors = fits ? static_cast<int>(each) : 0;
  rows.full_vectors = fits ? static_cast<int>(least_vectors / rows.threads) : 0;
  rows.batch = residues_in_batch(rows.folded, bytes, model);
  if (fits) rows.batch = std::min(rows.batch, rows.vectors);
  // Where outputs make vectors short, elements of 16 bits are as much work as in long ones.
  const bool wide = width >= 8 || kept < 4 * width || rows.cluster_blocks > 1;
  const Size in_block = vectors * kept / rows.cluster_blocks;
  if (fits && rows.columns == 0 && wide && in_block > model.long_row) {
    int memory = model.shared_bytes;
    const bool alike = rows.phase < 0 || rows.chunks != ColumnChunks::one;
    if (device.large_smem && alike && in_block > 2 * model.long_row &&
        threads <= model.max_threads) {
      memory = bytes.bf16 ? kRoomOfBf16 : kRoom;
    } else if (device.large_smem && rows.phase < 0 && rows.cluster_blocks == 1 && width >= 8 &&
               threads <= model.max_threads && rows.full_vectors == rows.vectors &&
               bytes.weights == 2 * bytes.rows) {
      memory = kRoomBesideWeights;
    }
    rows.in_smem = std::min(rows.vectors, memory / std::max(1, threads * kept));
  } else if (fits && threads > model.max_threads && bytes.weights != 0) {
    rows.in_smem = rows.vectors / 2;  // 1,024 threads have no more registers for weights
  }
}

void map_row(RowSchedule& rows, Size vectors, const VectorBytes& in_vector, int width, int least,
             int most, int reductions, int stored, const RowFeatures& device, Backend backend) {
  const RowModel& model = row_model(backend);
  const bool stores = stored != 0;
  const int kept = on_chip_bytes(in_vector);
  const bool wide = width >= 8 && !rows.split;
  const bool large_smem = device.large_smem && (rows.phase < 0 ? in_vector.weights <= in_vector.rows
                                                               : in_vector.weights == 0);
  const int forced = rows.chunks == ColumnChunks::one ? 0 : device.forced.cluster_blocks;
  if (device.clusters && !rows.split && (vectors * kept > model.on_chip_row || forced != 0)) {
    const bool twice = large_smem && (!wide || (in_vector.weights != 0 && !in_vector.bf16));
    const int cluster_row = twice ? model.on_chip_row : model.cluster_row;
    int blocks = power_of_two_from((vectors * kept + cluster_row - 1) / cluster_row);
    Size own = (vectors + blocks - 1) / blocks;
    if (rows.chunks != ColumnChunks::one) {
      const int chunk = kTreeChunk / width;
      own = chunk * std::max(1, cluster_row / (chunk * kept));
      if (forced != 0) own = chunk * (((vectors + chunk - 1) / chunk + forced - 1) / forced);
      blocks = forced != 0 ? forced : static_cast<int>((vectors + own - 1) / own);
    }
    if (blocks <= kMostBlocks && own * kept <= model.on_chip_row) {
      rows.cluster_blocks = blocks;
      map_row(rows, own, in_vector, width, least, most, reductions, stored,
              {false, device.large_smem}, backend);
      rows.threads *= blocks;
      return;
    }
  }
  const auto threads_for = [&](Size each, int fewest, int most) {
    return power_of_two_from(std::clamp<Size>((vectors + each - 1) / each, fewest, most));
  };
  const Size bytes = rows.split ? 0 : vectors * kept;
  // With one barrier for all threads, twice as many of them with half as much each are better. A
  // kernel that only reads needs more in flight: of 4,096 bf16 a logsumexp reaches 0.78 of a copy
  // with four vectors and 0.88 with eight.
  int each = model.vectors;
  if (stores && reductions == 1) each = (each + 1) / 2;
  if (!stores && !rows.split) each *= 2;
  // What threads of a short row do once each weighs more where they store nothing: argmax of 768
  // bf16 goes from 0.72 of a copy to 0.88 with 16 threads instead of 32, of 1,408 from 0.76 to
  // 0.91.
  constexpr int kShortRows = 6;
  const bool few =
      !stores && !rows.split && in_vector.weights == 0 && vectors <= kShortRows * model.short_row;
  if (few) each *= 2;
  if (vectors <= model.short_row) {
    rows.threads = threads_for(reductions > 1 ? 2 : 1, 1, std::max(1, model.short_threads));
  } else if (width < 8 && bytes > 2 * model.long_row && (rows.cluster_blocks == 1 || !large_smem)) {
    // Beside weights 1,024 threads have no registers for rows, and keep a part in shared memory:
    // norm and quantisation of (x + r) of 14,336 f32 go from 0.79 to 0.98 with 512.
    constexpr int kMostBytes = 256;
    const bool fewer_fit =
        in_vector.weights != 0 && width > 2 && bytes <= kMostBytes * model.max_threads;
    rows.threads =
        threads_for(each, model.short_row, fewer_fit ? model.max_threads : model.long_threads);
  } else {
    // So many threads have registers for weights; without weights fewer are better.
    const bool crowded = bytes > 2 * model.long_row && in_vector.weights != 0 && !large_smem;
    const int widest = !wide || bytes > model.on_chip_row ? model.max_threads
                       : bytes <= model.long_row          ? model.wide_threads
                       : crowded                          ? model.long_threads
                                                          : model.max_threads;
    rows.threads = threads_for(each, few ? model.short_threads : model.short_row, widest);
    // Where the tree is followed, of which AMD GPUs have not been measured.
    const bool narrow = in_vector.rows <= kVectorBytes && 2 * stored <= in_vector.rows;
    if (backend == Backend::nvidia && stores && !rows.split && (wide || narrow) &&
        vectors * width <= kTreeChunk) {
      const int best = narrow
                           ? power_of_two_to(bytes / kMostThreadBytes)
                           : threads_in_tree(bytes, rows.phase >= 0, in_vector.weights != 0, model);
      const int fewest = narrow ? model.short_threads : model.short_row;
      rows.threads = std::clamp(best, std::min(fewest, rows.threads), rows.threads);
    }
  }
  if (backend == Backend::nvidia && stores && !rows.split && vectors * width <= kTreeChunk &&
      rows.threads > model.short_row && fills_better(vectors, rows.threads, kept)) {
    rows.threads /= 2;
  }
  if (device.forced.threads != 0 && backend != Backend::host) {
    const int fewest = most <= kMostResidues ? std::max(1, most / kMostSets) : 1;
    rows.threads = std::clamp(device.forced.threads, fewest, model.long_threads);
  }
  rows.threads = std::min(std::max(rows.threads, least), most);
  if (rows.threads > model.short_row) return;
  int block = model.block;
  if (stores && model.block_bytes != 0) {
    const Size own =
        (std::max<Size>(vectors, 1) + rows.threads - 1) / rows.threads * std::max(1, kept);
    block = std::clamp(power_of_two_to(model.block_bytes / own), kLeastBlock, kMostBlock);
  }
  rows.rows = block / rows.threads;
}

bool fits_narrow_vectors(Size vectors, int width, const VectorBytes& in_vector) {
  constexpr int kLanes = 8;
  const RowModel& model = row_model(Backend::nvidia);
  const Size bytes = vectors * in_vector.rows;
  return width == kLanes && in_vector.weights == 0 && in_vector.rows >= 2 * kVectorBytes &&
         bytes > model.long_row && bytes <= 2 * model.long_row;
}

Size PartialResults::shared(int threads, int width, int chunks) const {
  constexpr int kWave = 32;
  constexpr int kApart = 4;  // lanes of a wave whose vectors are far apart
  const Size columns = Size(trees) * chunks * threads * std::max(1, width / kApart);
  const Size ends = Size(reductions) * std::max(1, threads / kWave) * 2 * width;
  return (columns + ends) * bytes;
}

bool map_copied_row(RowSchedule& rows, Size elements, int bytes, int width, int most,
                    const PartialResults& results, const RowFeatures& device) {
  if (!device.clusters || !device.large_smem || bytes == 0 || device.forced.threads != 0) {
    return false;
  }
  const Size chunk = kTreeChunk / width;  // in vectors
  const Size last = elements % kTreeChunk;
  if (last != 0 && last < kLeastLast) return false;
  const Size chunks = (elements + kTreeChunk - 1) / kTreeChunk;
  for (const int room : {kRoomOfTwo, kRoomOfOne}) {
    const int whole = room == kRoomOfTwo ? kThreadsOfCopies : 2 * kThreadsOfCopies;
    for (int sharing = 1; sharing <= kMostBlocks; sharing *= 2) {
      const int threads = std::min(whole, most / sharing);
      if (chunks * sharing > kMostBlocks || chunk * bytes > Size(room) * sharing ||
          threads < kFewestThreads) {
        continue;
      }
      const Size beside = results.shared(threads * sharing, width, 1);
      if (beside > kMostPartialBytes || chunk * bytes / sharing + beside > kSharedOfBlock) continue;
      rows.cluster_blocks = static_cast<int>(chunks) * sharing;
      rows.chunk_blocks = sharing;
      rows.threads = threads * rows.cluster_blocks;
      rows.vectors = static_cast<int>(chunk) / (threads * sharing);
      rows.in_smem = rows.vectors;
      rows.copied = true;
      return true;
    }
  }
  return false;
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

bool map_copied_columns(RowSchedule& rows, const ColumnSpace& space, int bytes,
                        const RowFeatures& device) {
  if (!device.clusters || !device.large_smem || bytes == 0 || !space.clusters) return false;
  if (device.forced.cluster_blocks == 0 && space.passes < kLeastPasses) return false;
  const Size elements = space.length * rows.joined;
  const int residues = power_of_two_from(elements) / kTreeTerms;
  if (elements > kTreeChunk || elements <= 2 * kLeastResidues) return false;
  const int few = power_of_two_from(space.across);
  const int line = std::max(1, kLineBytes / space.vector_bytes);
  const int forced = device.forced.cluster_blocks;
  // Narrower strips are slower than reading columns again.
  struct Form {
    int part;  ///< of a line
    int room;
  };
  constexpr Form kForms[] = {{1, kRoomOfTwo}, {2, kRoomOfTwo}, {1, kRoomOfOne}, {2, kRoomOfOne}};
  for (const Form& form : kForms) {
    const int strip = std::min(few, std::max(1, line / form.part));
    int block = form.room == kRoomOfTwo ? kThreadsOfCopies : 2 * kThreadsOfCopies;
    for (int blocks = 1; blocks <= kMostBlocks; blocks *= 2) {
      if (forced != 0) {
        if (blocks != forced) continue;
        block = std::min(block, residues / (blocks * rows.joined) * strip);
      }
      const int threads = block / strip * blocks;
      const Size each = (space.length + threads - 1) / threads;
      if (block < kFewestThreads || threads * rows.joined > residues ||
          each * block * bytes > form.room ||
          sums_of(space, 1, std::max(1, space.residues / threads)) > kMostSumsOfCopies) {
        continue;
      }
      rows.cluster_blocks = blocks;
      rows.threads = threads;
      rows.columns = strip;
      rows.rows = 1;
      rows.vectors = static_cast<int>(each);
      rows.in_smem = rows.vectors;
      rows.full_vectors = static_cast<int>(space.length / threads);
      rows.batch = 1;
      rows.copied = true;
      return true;
    }
  }
  return false;
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
    return sums_of(space, batch_of(in_vector, model), rows.groups) <= wide;
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
