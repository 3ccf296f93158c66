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
// kept by clusters, 64 KiB or a chunk in each block: 131,072 bf16 go from 0.69 to 0.85 (rmsnorm),
// 0.48 to 0.79 (layer_norm) and 0.52 to 0.86 (softmax). Shorter rows lose by that, since blocks of
// a cluster wait for each other and start together: 32,768 bf16 in two blocks reach 0.80.
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

// Blocks wait for those with whole chunks: where the last chunk is much shorter, reading operands
// again is faster (100,000 f32; three operands of 151,936 f16 go from 0.35 to 0.63).
constexpr int kLeastLast = kTreeChunk / 5 * 4;

// Accumulators of a thread for each lane of its vectors, where a test asks for few threads.
constexpr int kMostSets = 4;

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

}  // namespace

const RowModel& row_model(Backend backend) { return kModels[static_cast<std::size_t>(backend)]; }

int power_of_two_from(Size count) { return static_cast<int>(bit_ceil(std::max<Size>(count, 1))); }
int power_of_two_to(Size count) { return static_cast<int>(bit_floor(std::max<Size>(count, 1))); }

int residues_of(Size elements) {
  const Size of_chunk = std::min<Size>(elements, kTreeChunk);
  return std::clamp(power_of_two_from(of_chunk) / kTreeTerms, kLeastResidues, kMostResidues);
}

int residues_with_elements(Size elements) {
  return elements <= kLeastResidues ? power_of_two_from(elements) : residues_of(elements);
}

int on_chip_bytes(const VectorBytes& bytes) { return bytes.rows != 0 ? bytes.rows : bytes.weights; }

int vectors_in_flight(const VectorBytes& bytes, const RowModel& model) {
  const int all = std::max(1, bytes.rows + bytes.weights + bytes.once);
  return power_of_two_to(std::min(model.batch, model.batch_bytes / all));
}

void choose_registers(RowSchedule& rows, Size vectors, Size least_vectors, const VectorBytes& bytes,
                      int width, const RowFeatures& device, Backend backend) {
  const RowModel& model = row_model(backend);
  const Size each = std::max<Size>(1, (vectors + rows.threads - 1) / rows.threads);
  const bool may_keep = !rows.split && !device.forced.read_again;
  if (backend == Backend::host) {
    constexpr int kFew = 64;
    const bool kept = may_keep && each <= model.max_vectors;
    rows.vectors = !kept ? 0 : vectors == 1 ? 1 : vectors <= kFew ? kFew : model.max_vectors;
    return;
  }
  const int kept = on_chip_bytes(bytes);
  const int threads = rows.threads / rows.cluster_blocks;
  const bool fits = may_keep && each <= model.max_vectors && each * kept <= model.register_bytes &&
                    each * kept * threads <= model.on_chip_row;
  rows.vectors = fits ? static_cast<int>(each) : 0;
  rows.full_vectors = fits ? static_cast<int>(least_vectors / rows.threads) : 0;
  rows.batch = vectors_in_flight(bytes, model);
  if (fits) rows.batch = std::min(rows.batch, rows.vectors);
  // Where outputs make vectors short, elements of 16 bits are as much work as in long ones.
  const bool wide = width >= 8 || kept < 4 * width || rows.cluster_blocks > 1;
  const Size in_block = vectors * kept / rows.cluster_blocks;
  if (fits && wide && in_block > model.long_row) {
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
    // Whole chunks for each block; as many blocks where there is no tree, if that leaves room: i8
    // of quick_gelu(x) * g by rows of 65,536 bf16 goes from 0.44 of a copy on an H200 to 0.69.
    const int chunk = kTreeChunk / width;
    const bool room = device.large_smem && chunk * kept <= model.on_chip_row;
    if (rows.chunks != ColumnChunks::one || room) {
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

bool map_copied_chunk(RowSchedule& rows, Size vectors, int bytes, int width, int most,
                      const RowFeatures& device) {
  constexpr int kLeast = 48 << 10;
  const bool forced = device.forced.threads != 0 || device.forced.read_again;
  if (!device.large_smem || forced || width < 8 || bytes < 4 * width || vectors * bytes <= kLeast ||
      most < kThreadsOfCopies) {
    return false;
  }
  const Size own = (vectors + kThreadsOfCopies - 1) / kThreadsOfCopies;
  if (own * kThreadsOfCopies * bytes > kRoomOfOne) return false;
  rows.threads = kThreadsOfCopies;
  rows.rows = 1;
  rows.vectors = static_cast<int>(own);
  rows.full_vectors = static_cast<int>(vectors / kThreadsOfCopies);
  rows.in_smem = rows.vectors;
  rows.copied = true;
  return true;
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

}  // namespace kiln::fusion
