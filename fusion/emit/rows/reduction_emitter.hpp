// What all emitters of reductions share: a sequence of passes over each row. A pass computes the
// reductions whose operands are known by then; the last one stores what varies within rows.
// Row-invariant values are computed between passes. rows.cpp and emit/columns/columns.cpp map rows
// to threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/infer/sum_tree.hpp"

namespace kiln::fusion {

class ReductionEmitter {
 public:
  ReductionEmitter(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy);
  ReductionEmitter(const ReductionEmitter&) = delete;
  ReductionEmitter& operator=(const ReductionEmitter&) = delete;
  virtual ~ReductionEmitter() = default;

  KernelDescription run();

 protected:
  struct OperandText : NamedOperand {
    bool iota = false;           ///< no array but an index
    std::int64_t axis = 0;       ///< of an iota, as in its node
    bool row_invariant = false;  ///< one element for each row
    bool unrounded = false;      ///< an output whose vectors are rounded when they are stored
    bool in_registers = false;   ///< kept on chip from before the first pass
    bool in_smem = false;  ///< of that, the last RowSchedule::in_smem vectors in shared memory
  };

  // What depends on the mapping of rows to threads.
  virtual void add_counts() = 0;              ///< parameters for numbers of things
  virtual void shared_memory() = 0;           ///< slots where threads of a row exchange results
  virtual void locate_rows() = 0;             ///< rows, coordinates and pointers of a block
  virtual void locate_vector(int depth) = 0;  ///< the coordinates of a vector
  virtual void stage_weights() {}             ///< weights that threads share, after their own loads
  virtual std::string load_text(std::size_t operand) const = 0;
  virtual std::string position_text() const = 0;  ///< of a lane in the row
  virtual void row_values(int pass) = 0;          ///< that are known before `pass`
  virtual void emit_result(std::size_t id) = 0;   ///< of a reduction, from its lanes
  /// Rows of several chunks: combines what threads have of each, as its number says.
  virtual void combine_chunks(const std::vector<std::size_t>&, const std::string&) {}
  /// Waits until all blocks of the cluster have begun, once.
  virtual void begin_cluster() {}
  virtual void store_row_values() = 0;
  virtual bool is_guarded() const = 0;  ///< whether some threads have no row

  // The graph.
  bool is_used(const OperandText& operand) const;
  bool is_read(const OperandText& operand, int pass) const;
  std::string partial_type(const TypedNode& node) const;
  /// Whether a sum or product is combined in the order of its tree by TreeRows, TreeColumns,
  /// RowTree or ColumnTree (preamble/host_rows.h, tree.h, columns.h).
  bool sums_in_tree(const TypedNode& node) const;
  bool is_cached(std::size_t id) const { return cached_in_[id] >= 0; }

  // Axes: the rows' come first, then those reduced, of which the innermost may be the last of all.
  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  std::uint32_t inner() const { return rank() - 1; }
  std::uint32_t first_reduced() const {
    return rank() - static_cast<std::uint32_t>(rows_.axes) - (rows_.columns == 0 ? 0 : 1);
  }
  bool is_shifted() const { return rows_.phase >= 0; }
  /// Whether the elements of a row are in segments, each along the innermost axis: several axes are
  /// reduced that are not one in memory.
  bool has_segments() const { return rows_.columns == 0 && rows_.axes > 1; }
  /// On the CPU, where loads and stores find segments (preamble/host_segments.h).
  bool in_segments() const { return is_host() && has_segments(); }
  /// How many elements a row has.
  std::string_view row_size() const { return has_segments() ? "length" : "size"; }
  /// How many of a thread's vectors are in registers, where some are in shared memory.
  int register_vectors() const { return rows_.vectors - rows_.in_smem; }
  bool in_cluster() const { return rows_.cluster_blocks > 1; }
  /// Threads of this block that share a row.
  int threads_of_block() const { return rows_.threads / rows_.cluster_blocks; }
  /// Threads of one block or of several that share a chunk, or a row that is no longer.
  int threads_of_chunk() const { return threads_of_block() * rows_.chunk_blocks; }
  /// The last argument of templates of tree.h and chunks.h where several blocks do.
  std::string of_blocks() const {
    return rows_.chunk_blocks == 1 ? "" : ", " + std::to_string(rows_.chunk_blocks);
  }
  /// Whether sums and products of a GPU's rows are combined in the order of their tree.
  bool has_row_trees() const { return rows_.sets != 0; }
  /// Whether such rows have more than one chunk, and whether threads keep these on chip.
  bool has_row_chunks() const { return has_row_trees() && rows_.chunks != ColumnChunks::one; }
  bool keeps_chunks() const { return has_row_chunks() && rows_.vectors != 0; }
  /// How many vectors of a chunk a thread has, and for how many chunks it has results: those that
  /// it keeps; of a row that one block has, as many as pairs are combined of.
  int chunk_slots() const { return kTreeChunk / (threads_of_chunk() * schedule_.width); }
  int chunks_kept() const;
  /// After how many chunks threads synchronise where they keep none.
  int chunks_together() const;
  int partial_bytes() const;
  /// The most sums and products of one pass.
  int most_trees() const;
  /// From a vector of a thread that it keeps to its next one.
  int slot_step() const { return has_row_trees() ? threads_of_chunk() : rows_.threads; }
  std::string slot_vector(std::string_view slot) const;
  bool is_full() const { return rows_.vectors != 0 && rows_.full_vectors == rows_.vectors; }
  bool is_host() const { return schedule_.backend == Backend::host; }
  /// Whether lanes are part of a row (preamble/host_parts.h).
  bool in_parts() const { return is_host() && rows_.columns == 0; }
  /// Whether f16 is converted in blocks (preamble/halves.h).
  bool converts_in_blocks(std::size_t operand) const;
  /// Whether 8-bit floats are converted vector by vector, as NVIDIA GPUs do
  /// (preamble/small_floats.h).
  bool converts_vectors(std::size_t operand) const;
  bool is_streamed(std::size_t operand) const {
    return schedule_.streamed && !operands_[operand].row_invariant;
  }
  std::string offset(std::size_t operand, std::uint32_t from, std::uint32_t to) const;
  /// What an iota gives for a row or, where it counts its elements or columns, for a lane.
  std::string index_text(const TypedNode& iota) const;
  /// What element `place` of the innermost axis adds to it.
  std::string lane_offset(std::size_t operand, std::string_view place) const;
  /// The pointer to a row, or to the segment of it that a vector is in; on the CPU the segments.
  std::string line_text(std::size_t operand) const;
  std::string_view load_name() const { return loads_words() ? "load_words" : "load"; }
  bool loads_words() const;
  /// The number of elements in an access, and its alignment.
  int width() const { return at_ends_ ? 1 : schedule_.width; }
  int alignment(std::size_t operand) const;
  bool uses_smem() const { return shared_bytes_ != 0; }
  /// Whether rows are copied to shared memory asynchronously.
  bool copies_rows_async() const;
  bool is_copied(std::size_t operand) const;

  // Of each pass, ids ascending. Values before pass 0 depend on no reduction.
  using Ids = std::vector<std::size_t>;
  /// The reductions that it computes.
  const Ids& reductions_in(int pass) const { return reductions_[static_cast<std::size_t>(pass)]; }
  /// The values that vary within the row and that it computes or reads from their cache.
  const Ids& needed_in(int pass) const { return needed_[static_cast<std::size_t>(pass)]; }
  /// The row-invariant values, but for reductions, that are known before it and no earlier.
  const Ids& row_values_before(int pass) const {
    return row_values_[static_cast<std::size_t>(pass)];
  }

  /// The sums and products of a pass that are combined in the order of their trees.
  std::vector<std::size_t> trees_in(int pass) const;

  // Text.
  void combine_threads(std::size_t id, int depth, const std::string& lanes);
  void join_columns(std::size_t id, int depth, const std::string& lanes);
  /// Where axes end that values bound, and what follows from it: before any other row is located.
  void row_ends();
  /// Whether rows of one block end along their axes, each elsewhere.
  bool change_rows() const { return is_guarded() && ends_rows(); }
  bool ends_rows() const;
  /// The pointers to rows at places that data says, with what those are computed from.
  void row_places();
  void row_cone(const std::vector<NodeId>& roots);
  void locate_indexed(std::size_t operand);
  void row_pointer(std::size_t operand, std::string_view at);
  const NodeId& place_node(std::size_t operand) const;
  bool is_indexed(std::size_t operand) const {
    return schedule_.operands[operand].indexing != Indexing::none;
  }
  /// Whether an output's lanes are collected on the CPU, where else they are its memory.
  bool collects(std::size_t operand) const { return is_host() && is_indexed(operand); }
  std::string own_lanes(std::size_t operand) const;
  void declare_own_lanes(std::size_t operand, int depth);
  void locate_split(std::string_view unit, std::string_view row);
  void split_bounds();
  void row_pointers();
  void row_segments();
  void emit_value(std::size_t id, int depth);
  void define_input(std::size_t id, int depth, const std::string& name, std::string element);
  std::string result_text(const TypedNode& node, std::string lane);

  template <class Body>
  void for_each_result(bool row_invariant, const Body& body) {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].output && operands_[i].row_invariant == row_invariant) body(i, operands_[i]);
    }
  }
  void open_result(int depth, std::size_t operand, const std::string& row);
  void store_result(int depth, std::size_t operand, const std::string& row);

  const TypedGraph& graph_;
  const Schedule& schedule_;
  const RowSchedule& rows_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  KernelNames identifiers_;
  std::vector<OperandText> operands_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> input_nodes_;  ///< by argument
  std::vector<bool> of_place_;       ///< nodes that row_ends() and row_places() compute
  std::vector<bool> located_;        ///< operands whose row's pointer is there
  std::vector<bool> known_;          ///< of those nodes, which are
  std::vector<bool> row_invariant_;  ///< nodes that have one element for each row
  std::vector<int> pass_;            ///< how many passes stand before a node can be computed
  std::vector<std::string> names_;   ///< of values
  std::vector<std::string> values_;
  std::vector<std::string> storage_;  ///< of narrow numbers: the text of the storage type
  int shared_bytes_ = 0;              ///< of all operands that are stored
  std::string slot_;  ///< the number of a vector that what is written loads, among a thread's
  KernelWriter out_{schedule_};
  bool in_row_chunk_ = false;  ///< the code being written is for a chunk of a row
  int kept_from_ = 0;          ///< the vectors that it is for of those that a thread keeps
  int kept_to_ = 0;
  int kept_part_ = -1;  ///< the chunk that these are of; -1: of any

 private:
  void find_operands();
  void store_unrounded(std::size_t operand);
  bool is_stored_alone(std::size_t id) const;
  void order_passes();
  void find_needed();
  void walk_passes(const std::vector<bool>& has_room);
  std::optional<std::size_t> place_cached();
  /// Whether values that later passes need take the places of operands: of rows in shared memory,
  /// and of columns in registers.
  bool caches_in_place() const {
    return !is_host() && rows_.vectors != 0 && (rows_.in_smem != 0 || rows_.columns != 0);
  }
  bool saves_in_place(std::size_t id) const;
  bool gives_place(std::size_t operand) const;
  bool has_place(std::size_t id) const { return !places_.empty() && !places_[id].empty(); }
  bool is_in_smem() const { return uses_smem() && !at_ends_ && (from_smem_ || from_prefetch_); }
  void open_cached(int pass, int depth);
  void close_cached(int pass, int depth);
  void move_cached(std::size_t id, int depth, std::string_view move);
  bool is_needed(std::size_t id, int pass) const;
  int most_cached() const;
  bool is_worth_caching(std::size_t id) const;
  bool is_cached_for(std::size_t id, int pass) const {
    return cached_in_[id] >= 0 && cached_in_[id] < pass;
  }
  void collect_parameters();
  void skip_missing(int depth, std::string_view slot);
  void choose_smem();
  int dense_blocks() const;
  void choose_prefetched();
  bool is_weight(std::size_t operand) const;
  void begin_prefetch();
  void prefetch(int depth, std::string_view from);
  int prefetch_distance() const;
  void emit_prefetched(int pass);
  int vector_bytes(const OperandText& operand) const;
  bool is_backwards(int pass) const;

  void declare_smem();
  std::string smem_offset() const;
  int smem_alignment(std::size_t operand) const;
  void emit_slots(int pass, int from, int to, std::string_view unroll);
  void emit_arriving(int pass);
  void for_ends(const std::function<void()>& body);
  std::string cached_text(std::size_t id, std::string_view slot);
  void load_inputs();
  void emit_pass(int pass);
  int row_group_size() const;
  int defined_in(std::size_t id) const;
  std::vector<bool> wanted_after(int pass);
  void emit_row_groups();
  void emit_host_pass(int pass);
  void prefetch_next_row();
  void emit_row_trees(int pass, const Ids& trees);
  void emit_row_chunks(int pass, const Ids& trees);
  void for_each_part(int pass, const std::function<void(int)>& body);
  void emit_kept_chunks(int pass, const Ids& trees);
  void declare_row_tree(std::size_t id);
  std::string end_of(const std::string& name) const;
  void emit_batches(int pass);
  void fetch(const std::vector<std::size_t>& operands, int depth);
  void emit_vector(int pass, int depth, std::string_view slot_index);
  void emit_each_lane(int pass, int depth, std::string_view slot);
  void emit_element(std::size_t id, int pass, int depth, std::string_view slot);
  bool is_shared_quotient(std::size_t id, int pass) const;
  std::vector<std::size_t> shared_quotients(int pass) const;
  void prepare_divisors(int pass);
  void emit_lanes(int pass, int depth, std::string_view slot);
  void emit_fast_quotient(std::size_t id, int depth);
  void emit_combine(std::size_t id, int depth);
  bool sums_in_pairs(int pass) const;
  bool has_varying_results(int pass) const;
  void emit_column_trees(int pass, const Ids& trees);
  std::string define_element(int pass);
  void prefetch_next_elements(bool pairs);
  int kept_residues() const;
  void locate_part();
  void declare_column_tree(std::size_t id);
  void emit_threads_columns(int pass, const Ids& trees);
  void emit_kept_columns(int pass, const Ids& trees);
  void load_vector(int pass, int depth);
  void open_vectors(const std::vector<std::size_t>& trees);
  void close_vectors(const std::vector<std::size_t>& trees);
  std::string each_chunk(std::string_view length) const;
  std::string last_vector() const;
  std::string vector_step() const;
  std::string batch_vector() const;

  Accuracy accuracy_;
  bool from_smem_ = false;       ///< the code being written reads vectors from shared memory
  bool copies_pending_ = false;  ///< not all asynchronous copies have been waited for
  bool from_prefetch_ = false;   ///< the code being written has the vectors of `prefetched_`
  bool loads_directly_ = false;  ///< it loads a vector that is not on chip where it uses it
  bool at_ends_ = false;         ///< it is for single elements at the ends of a row
  bool in_row_tree_ = false;     ///< it is for vectors of a row that are added up by their tree
  bool fast_quotients_ = false;  ///< it takes divisors and dividends to be in range
  std::vector<std::size_t> prefetched_;  ///< operands that only the last pass reads
  int last_pass_ = 0;
  std::vector<Ids> reductions_;  ///< by pass, as the next two
  std::vector<Ids> needed_;
  std::vector<Ids> row_values_;
  std::vector<std::unordered_set<std::uint64_t>> read_;  ///< by pass: arguments that it loads
  std::vector<int>
      cached_in_;  ///< the pass that leaves a node's values on chip for later ones, or -1
  /// By node: the operands in whose places its values are cached, where caches_in_place().
  std::vector<std::vector<std::size_t>> places_;
};

KernelDescription emit_columns(const TypedGraph& graph, const Schedule& schedule,
                               Accuracy accuracy);

}  // namespace kiln::fusion
