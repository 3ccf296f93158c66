// How a kernel passes over its rows or columns. A pass computes the reductions whose operands are
// known by then; the last one stores what varies within rows. What each pass reads and computes,
// what is left on chip for later ones and where, and how it gets there: all that follows from a
// graph and its RowSchedule together. Pure values, which emit/rows writes and `explain` prints.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/layout.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

/// An operand of such a kernel: array arguments in the graph's order, outputs, iotas.
struct RowOperand {
  std::size_t argument = 0;  ///< of inputs: the position among the arguments; of iotas beyond them
  NodeId value = 0;          ///< of outputs: of which lanes are made
  DType dtype = DType::f32;
  bool output = false;
  bool iota = false;           ///< no array but an index
  std::int64_t axis = 0;       ///< of an iota, as in its node
  bool row_invariant = false;  ///< one element for each row
  bool unrounded = false;      ///< an output whose vectors are rounded when they are stored
  bool in_blocks = false;      ///< CPU: f16 that is converted in blocks (preamble/halves.h)
  bool in_registers = false;   ///< kept on chip from before the first pass
  bool in_smem = false;        ///< of that, the last RowSchedule::in_smem vectors in shared memory
  bool copied = false;  ///< of those, copied there past the registers (PassSchedule::copies_async)
  bool next_prefetched = false;  ///< CPU: what will be read next is brought into the caches
};

struct PassSchedule {
  using Ids = std::vector<std::size_t>;

  RowSchedule rows;  ///< that of the kernel, as are the next two
  Backend backend = Backend::host;
  int width = 1;

  std::vector<RowOperand> operands;
  std::unordered_map<std::uint64_t, Ids> input_nodes;  ///< by argument

  // Of each node.
  std::vector<bool> row_invariant;  ///< it has one element for each row
  std::vector<int> before;          ///< how many passes stand before it can be computed
  std::vector<int> cached_in;       ///< the pass that leaves its values on chip for later ones; -1
  /// The operands in whose places its values are cached, where caches_in_place().
  std::vector<Ids> places;

  // Of each pass, ids ascending. Values before pass 0 depend on no reduction.
  int last = 0;                 ///< the number of the last pass
  std::vector<Ids> reductions;  ///< that it computes
  std::vector<Ids> trees;       ///< of those, sums and products that are combined in their order
  std::vector<Ids> needed;  ///< values that vary within the row, which it computes or reads from
                            ///< their cache
  std::vector<Ids> row_values;  ///< row-invariant ones, but for reductions, that are known before
                                ///< it and no earlier; of one pass more
  std::vector<std::unordered_set<std::uint64_t>> read;  ///< arguments that it loads
  std::vector<bool> in_pairs;  ///< CPU, columns: whether it takes two elements at a time

  // Operands in shared memory, and loads ahead of their use.
  int shared_bytes = 0;       ///< of all operands that are there
  bool copies_async = false;  ///< they are copied there asynchronously, past the registers
  int copies_together = 1;    ///< vectors of those that a thread waits for at a time
  bool unrolls_smem = false;  ///< passes over vectors in shared memory are unrolled as a whole
  bool clamps_loads = false;  ///< past a row's end its last vector is loaded again, so that no load
                              ///< waits for a branch
  bool computes_missing = false;  ///< and all passes compute with it, and count nothing of it
  bool loads_words = false;       ///< loads take fewer instructions and more registers (strides.h)
  Ids prefetched;                 ///< weights that only the last pass reads, loaded from before the
                                  ///< first pass on, as many vectors at a time as this
  int prefetch_distance = 0;

  int min_blocks = 0;  ///< that an NVIDIA multiprocessor must have room for; 0: no such demand

  // Sums and products in the order of their tree, on GPUs.
  int most_trees = 0;       ///< of one pass
  int partial_bytes = 1;    ///< of the widest partial result
  int chunks_kept = 0;      ///< rows of several chunks: of how many a thread has results
  int chunks_together = 0;  ///< after how many chunks threads synchronise where they keep none
  int tree_buffers = 0;     ///< in shared memory, which trees of one chunk use in turn

  Ids quotients;      ///< of the last pass, by one number for each row: they share a divisor
  int row_group = 1;  ///< CPU: rows that are computed together, each pass over all of them

  bool is_host() const { return backend == Backend::host; }
  /// Whether lanes are part of a row (preamble/host_parts.h).
  bool in_parts() const { return is_host() && rows.columns == 0; }
  /// Whether a sum or product is combined in the order of its tree by TreeRows, TreeColumns,
  /// RowTree or ColumnTree (preamble/host_rows.h, tree.h, columns.h).
  bool sums_in_tree(const TypedNode& node) const;
  bool uses_smem() const { return shared_bytes != 0; }
  bool is_read(const RowOperand& operand, int pass) const {
    return read[static_cast<std::size_t>(pass)].contains(operand.argument);
  }
  bool is_used(const RowOperand& operand) const { return input_nodes.contains(operand.argument); }
  bool is_needed(std::size_t id, int pass) const;
  bool is_cached(std::size_t id) const { return cached_in[id] >= 0; }
  bool is_cached_for(std::size_t id, int pass) const {
    return cached_in[id] >= 0 && cached_in[id] < pass;
  }
  /// Whether values that later passes need take the places of operands: of rows in shared memory,
  /// and of columns in registers.
  bool caches_in_place() const {
    return !is_host() && rows.vectors != 0 && (rows.in_smem != 0 || rows.columns != 0);
  }
  bool has_place(std::size_t id) const { return !places.empty() && !places[id].empty(); }
  /// A pass that only stores goes over the row backwards, beginning with what the caches still
  /// hold.
  bool is_backwards(int pass) const {
    return rows.columns == 0 && !rows.split && pass != 0 &&
           reductions[static_cast<std::size_t>(pass)].empty();
  }
  /// Of a vector of an operand, in bytes.
  int vector_bytes(const RowOperand& operand) const;
  /// How many vectors of a chunk a thread has.
  int chunk_slots() const { return kTreeChunk / (rows.chunk_threads() * width); }
};

/// `schedule` is of plan_rows(), its operands the array arguments in the graph's order, then the
/// outputs, then the iotas. Throws Error(internal) where these are not as many.
PassSchedule schedule_passes(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy);

}  // namespace kiln::fusion
