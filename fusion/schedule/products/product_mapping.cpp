#include "fusion/schedule/products/product_mapping.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/products/product_values.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"

namespace kiln::fusion {
namespace {

// A thread takes about four rows at once: what they share is loaded and converted once, and four
// loads of 16 bytes are in flight. With more columns it takes fewer rows, as registers allow. A row
// is mapped to a wave, and to more threads while there are too few for the largest GPUs; fewer take
// the vectors of as many as a row can have in turns, so that the order of adding follows from its
// length alone. A thread keeps up to four partial results of each row for that, or two with more
// columns. Sums that follow the tree (ProductSchedule::tree) have a result for each lane instead:
// then GPUs take one or two rows of long ones, and a row has a thread for each vector of residues,
// up to 512, which take the others in turns. Where neighbours in memory are of
// neighbouring rows, threads side by side take those, so that they read whole lines; then fewer
// threads share a row, in more turns. The CPU adds 64 elements side by side, in a loop that
// compilers vectorise; where it multiplies integers it takes up to sixteen rows, for which vectors
// are arranged once, as long as that leaves work for many cores.
constexpr int kStagedRows = 16;
constexpr int kHostRows = 4;
constexpr int kItemsOfCores = 64;
constexpr int kWaveThreads = 32;
constexpr int kBlock = 128;
constexpr int kMostThreads = 512;
constexpr int kMostTurns = 16;
constexpr int kMostTurnsOfColumns = 4;
constexpr int kMostTurnsBeside = 32;
constexpr int kMostBeside = 32;
constexpr std::int64_t kFilled = 1 << 17;       // threads
constexpr std::int64_t kMostSlotBytes = 40960;  // of the 48 KiB of a block

// How many rows a thread takes, whose results of all columns it keeps for each of so many sums.
int rows_at_once(const ProductSchedule& products, const ProductSums& sums, Backend backend,
                 bool integers) {
  constexpr int kFewColumns = 4;
  constexpr int kMostResults = 64;
  const int columns = products.columns;
  if (backend == Backend::host && integers) return kStagedRows;
  if (backend == Backend::host && products.tree) return kHostRows;
  int rows = columns <= 2 || (columns <= kFewColumns && backend != Backend::nvidia) ? 4 : 2;
  while (rows > 1 && rows * columns * sums.count > kMostResults) rows /= 2;
  return rows;
}

// How many rows a thread takes then: lanes have results of their own, so that there are fewer.
int rows_in_tree(const ProductSchedule& products, int threads, const ProductSums& sums,
                 Backend backend) {
  const int rows = rows_at_once(products, sums, backend, false);
  if (backend == Backend::host) return rows;
  if (products.columns > 2) return 1;
  return threads <= kWaveThreads ? rows : std::min(rows, 2);
}

// The vectors that threads which share a row have together, each one of its own: as many as the
// tree has residues, or as there are, up to so many.
int most_vectors(const SizedLayout& layout) {
  if (!layout.schedule.products.tree) {
    return static_cast<int>(bit_ceil(std::clamp<Size>(layout.vectors, 1, kMostThreads)));
  }
  return residues_with_elements(layout.reduced) / layout.schedule.width;
}

// In how many turns at most threads that are beside each other take these. Of lanes that have
// results of their own, those of each power of two of turns are kept.
int most_turns_beside(const ProductSchedule& products, int lanes) {
  constexpr int kMostKept = 128;
  const int most = products.columns == 1   ? kMostTurnsBeside
                   : products.columns == 2 ? kMostTurnsBeside / 4
                                           : kMostTurnsBeside / 2;
  int turns = products.tree ? 1 : most;
  for (int kept = 2 * lanes; turns < most && kept <= kMostKept; kept += lanes) turns *= 2;
  return turns;
}

// The shared memory in which threads beside each other combine sums (preamble/products.h and
// product_tree.h), of one of each dtype.
std::int64_t slot_bytes(const SizedLayout& layout, const ProductSums& sums) {
  const ProductSchedule& products = layout.schedule.products;
  const int threads = layout.schedule.reduction.threads;
  const int groups = threads / std::clamp(kWaveThreads / products.beside, 1, threads);
  const int lanes = products.tree ? layout.schedule.width : 1;
  const std::int64_t results = std::int64_t{products.beside} * products.rows * products.columns;
  return (groups * lanes + 1) * results * sums.slot_bytes;
}

}  // namespace

ProductSums sums_of(const TypedGraph& graph) {
  ProductSums sums;
  std::array<bool, 2> found{};
  for (const TypedNode& node : graph.nodes) {
    if (!is_reduction(node.op)) continue;
    const int bytes = std::max(4, bits(compute_dtype(node.dtype)) / 8);
    ++sums.count;
    sums.wide = sums.wide || bytes > 4;
    if (!std::exchange(found[bytes > 4 ? 1 : 0], true)) sums.slot_bytes += bytes;
  }
  return sums;
}

bool adds_in_tree(std::span<const SizedOperand> operands, const RowOperands& of_rows,
                  const MergedAxis& innermost) {
  constexpr int kSmallBits = 8;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool is_loaded = of_rows.loaded[i] && innermost.strides[i] != 0;
    const bool is_number = operands[i].dtype != DType::boolean;
    if (is_loaded && is_number && bits(operands[i].dtype) <= kSmallBits) return false;
  }
  return true;
}

int width_in_tree(int width, const ProductSchedule& products, bool across, const ProductSums& sums,
                  Size length, Backend backend) {
  constexpr int kLanes = 32;
  constexpr int kLanesOfHost = 128;  // of the columns of a row
  constexpr int kLanesBeside = 16;
  constexpr int kLanesOfColumns = 64;
  if (backend == Backend::host) {
    while (width > kLeastSimdWidth && products.columns * sums.count * width > kLanesOfHost)
      width /= 2;
    return width;
  }
  const int most = across ? kLanesBeside : products.columns > 4 ? kLanesOfColumns : kLanes;
  const auto lanes = [&] {
    const int rows =
        across ? rows_at_once(products, sums, backend, false)
               : rows_in_tree(products, residues_with_elements(length) / width, sums, backend);
    return rows * products.columns * sums.count * width * (sums.wide ? 2 : 1);
  };
  while (width > 1 && lanes() > most) width /= 2;
  return width;
}

// On an H200 sums of products of 14,336 bf16 stood at 1.05 of a copy so, and at 0.86 as rows of a
// matrix; transposed, those of 4,096 at 0.80 and at 0.66, of f32 at 0.88 and at 0.95.
bool is_faster_alone(const ProductSchedule& products, bool across, Size length, int element_bits) {
  constexpr Size kLong = 8192;
  constexpr int kNarrow = 16;
  if (products.columns > 1) return false;
  return across ? length <= kLong && element_bits <= kNarrow : length > kLong;
}

void map_to_threads(SizedLayout& layout, Size batches, const ProductSums& sums, Backend backend,
                    bool integers) {
  Schedule& schedule = layout.schedule;
  ProductSchedule& products = schedule.products;
  products.rows = products.tree ? rows_in_tree(products, most_vectors(layout), sums, backend)
                                : rows_at_once(products, sums, backend, integers);
  while (products.rows > 1 && products.rows > layout.rows) products.rows /= 2;
  while (integers && products.rows > 4 && layout.rows * batches < products.rows * kItemsOfCores) {
    products.rows /= 2;
  }
  RowSchedule& shares = schedule.reduction;
  if (backend != Backend::host) {
    const int most = most_vectors(layout);
    const int turns = products.tree ? 1 : products.columns <= 2 ? kMostTurns : kMostTurnsOfColumns;
    shares.threads = std::max(std::min(most, kWaveThreads), std::min(most / turns, kMostThreads));
    const Size groups = (layout.rows + products.rows - 1) / products.rows * batches;
    while (shares.threads < std::min(most, kMostThreads) && groups * shares.threads < kFilled) {
      shares.threads *= 2;
    }
    products.turns = most / shares.threads;
    if (shares.threads <= kWaveThreads) shares.rows = kBlock / shares.threads;
    if (products.tree && products.columns <= 2) {
      constexpr int kMostInFlight = 4;
      const Size each = layout.vectors / most;
      while (products.in_flight < kMostInFlight && 2 * products.in_flight <= each) {
        products.in_flight *= 2;
      }
    }
  } else if (products.tree) {
    products.turns = most_vectors(layout);
  }
  const Size per_block = Size{products.rows} * shares.rows;
  layout.row_blocks = (layout.rows + per_block - 1) / per_block;
  layout.work_items = layout.row_blocks * batches;
}

// Threads side by side take neighbouring rows, and read whole lines together; where so few threads
// share each row that the device is idle, or where a thread has several columns, parts of lines. An
// H200 takes 1.1 to 1.7 times as long for halves of lines.
void map_across(SizedLayout& layout, Size batches, const ProductSums& sums, int element_bits) {
  constexpr int kLineBits = 1024;
  constexpr int kLeastPart = 4;
  constexpr int kSmallBlock = 256;
  ProductSchedule& products = layout.schedule.products;
  RowSchedule& shares = layout.schedule.reduction;
  products.across = true;
  products.rows = rows_at_once(products, sums, layout.schedule.backend, false);
  while (layout.rows % products.rows != 0) products.rows /= 2;  // which are loaded at once
  const Size groups = layout.rows / products.rows;
  const int whole = std::clamp(kLineBits / (products.rows * element_bits), 1, kMostBeside);
  const int most_threads = products.columns <= 2 ? kMostThreads : kSmallBlock;
  const int most = most_vectors(layout);
  const int results = products.rows * products.columns * sums.count;
  const int turns = most_turns_beside(products, results * layout.schedule.width);
  int& threads = shares.threads;
  const auto fills = [&] { return groups * batches * threads >= kFilled; };
  threads = std::clamp(most / turns, 1, most_threads);
  while (threads < most && 2 * threads * whole <= most_threads && !fills()) threads *= 2;
  if (2 * groups * batches * threads < kFilled) {
    const int least = std::max(1, whole / kLeastPart);
    while (threads < most && 2 * threads * least <= most_threads && !fills()) threads *= 2;
  }
  int& beside = products.beside;
  beside = std::min(whole, most_threads / threads);
  while (beside > 1 && beside / 2 >= groups) beside /= 2;
  while (threads < most && beside * threads < kBlock) threads *= 2;
  while (beside * threads < kBlock && beside < groups) beside *= 2;
  while (beside > 1 && slot_bytes(layout, sums) > kMostSlotBytes) beside /= 2;
  products.turns = most / threads;
  shares.rows = beside;
  layout.row_blocks = (groups + beside - 1) / beside;
  layout.work_items = layout.row_blocks * batches;
}

// The CPU takes as many rows as have a cache line of each element, as far as that leaves work for
// many cores. Their vectors are transposed in registers.
void take_lines(SizedLayout& layout, Size batches, int element_bits) {
  constexpr int kLine = 512;
  constexpr int kMost = 64;
  constexpr int kLeast = 8;
  ProductSchedule& products = layout.schedule.products;
  products.rows = std::clamp(kLine / element_bits, kLeast, kMost);
  while (products.rows > kLeast && layout.rows * batches < products.rows * kItemsOfCores) {
    products.rows /= 2;
  }
  while (products.rows > layout.rows) products.rows /= 2;
  if (products.tree) products.turns = most_vectors(layout);
  layout.row_blocks = (layout.rows + products.rows - 1) / products.rows;
  layout.work_items = layout.row_blocks * batches;
}

}  // namespace kiln::fusion
