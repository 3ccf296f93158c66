// What all emitters of reductions share: the text of passes over each row, with the row-invariant
// values that are computed between passes. What passes do is a PassSchedule's. rows.cpp and
// emit/columns/columns.cpp map rows to threads.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/rows/pass_schedule.hpp"

namespace kiln::fusion {

class ReductionEmitter {
 public:
  ReductionEmitter(const TypedGraph& graph, const Schedule& schedule, const PassSchedule& passes,
                   Accuracy accuracy);
  ReductionEmitter(const ReductionEmitter&) = delete;
  ReductionEmitter& operator=(const ReductionEmitter&) = delete;
  virtual ~ReductionEmitter() = default;

  KernelDescription run();

 protected:
  /// An operand with the stem of its pointer's and strides' names.
  struct OperandText : RowOperand {
    std::string name;
    std::string stride_name(std::uint32_t axis) const { return fusion::stride_name(name, axis); }
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

  // Passes.
  using Ids = PassSchedule::Ids;
  const Ids& reductions_in(int pass) const {
    return passes_.reductions[static_cast<std::size_t>(pass)];
  }
  const Ids& trees_in(int pass) const { return passes_.trees[static_cast<std::size_t>(pass)]; }
  const Ids& needed_in(int pass) const { return passes_.needed[static_cast<std::size_t>(pass)]; }
  const Ids& row_values_before(int pass) const {
    return passes_.row_values[static_cast<std::size_t>(pass)];
  }
  bool is_host() const { return passes_.is_host(); }
  bool in_parts() const { return passes_.in_parts(); }
  std::string partial_type(const TypedNode& node) const;

  // Axes: the rows' come first, then those reduced, of which the innermost may be the last of all.
  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  std::uint32_t inner() const { return rank() - 1; }
  std::uint32_t first_reduced() const {
    return rank() - static_cast<std::uint32_t>(rows_.axes) - (rows_.columns == 0 ? 0 : 1);
  }
  /// Whether the elements of a row are in segments, each along the innermost axis: several axes are
  /// reduced that are not one in memory.
  bool has_segments() const { return rows_.columns == 0 && rows_.axes > 1; }
  /// On the CPU, where loads and stores find segments (preamble/host_segments.h).
  bool in_segments() const { return is_host() && has_segments(); }
  /// Whether such an operand is read and written in a buffer (preamble/host_segments.h).
  bool is_buffered(std::size_t operand) const { return schedule_.is_buffered(operand); }
  /// Whether buffers have whole rows, before the first pass.
  bool buffers_rows() const { return schedule_.has_buffers() && rows_.buffered == 0; }
  /// How many elements a row has.
  std::string_view row_size() const { return has_segments() ? "length" : "size"; }
  /// The last argument of templates of tree.h and chunks.h where several blocks do.
  std::string of_blocks() const {
    return rows_.chunk_blocks == 1 ? "" : ", " + std::to_string(rows_.chunk_blocks);
  }
  /// From a vector of a thread that it keeps to its next one.
  int slot_step() const { return rows_.has_row_trees() ? rows_.chunk_threads() : rows_.threads; }
  std::string slot_vector(std::string_view slot) const;
  bool is_streamed(std::size_t operand) const {
    return schedule_.streamed && !operands_[operand].row_invariant && !is_buffered(operand) &&
           !is_packed(operands_[operand].dtype);
  }
  std::string offset(std::size_t operand, std::uint32_t from, std::uint32_t to) const;
  /// What an iota gives for a row or, where it counts its elements or columns, for a lane.
  std::string index_text(const TypedNode& iota) const;
  /// What element `place` of the innermost axis adds to it.
  std::string lane_offset(std::size_t operand, std::string_view place) const;
  /// The pointer to a row, or to the segment of it that a vector is in; on the CPU the segments.
  std::string line_text(std::size_t operand) const;
  /// Whether an operand's rows are in shared memory while a block has them (preamble/staging.h).
  bool is_staged(std::size_t operand) const {
    return fusion::is_staged(schedule_.operands[operand].access);
  }
  bool has_staged() const;
  std::string_view load_name() const { return passes_.loads_words ? "load_words" : "load"; }
  /// The number of elements in an access, and its alignment.
  int width() const { return at_ends_ ? 1 : schedule_.width; }
  int alignment(std::size_t operand) const;
  // Text.
  void combine_threads(std::size_t id, int depth, const std::string& lanes,
                       std::string_view finished = "result");
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
  /// Whether lanes of an operand may be in several segments.
  bool is_segmented(std::size_t operand) const { return in_segments() && !is_buffered(operand); }
  std::string own_lanes(std::size_t operand) const;
  void declare_own_lanes(std::size_t operand, int depth);
  void locate_split(std::string_view unit, std::string_view row);
  void split_bounds();
  void row_pointers();
  void row_segments();
  void row_segment(std::size_t operand);
  void row_lines(std::size_t operand);
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
  const PassSchedule& passes_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  KernelNames identifiers_;
  std::vector<OperandText> operands_;
  std::vector<bool> of_place_;      ///< nodes that row_ends() and row_places() compute
  std::vector<bool> located_;       ///< operands whose row's pointer is there
  std::vector<bool> known_;         ///< of those nodes, which are
  std::vector<std::string> names_;  ///< of values
  std::vector<std::string> values_;
  std::vector<std::string> storage_;  ///< of narrow numbers: the text of the storage type
  std::string slot_;  ///< the number of a vector that what is written loads, among a thread's
  KernelWriter out_{schedule_};
  bool in_row_chunk_ = false;  ///< the code being written is for a chunk of a row
  int kept_from_ = 0;          ///< the vectors that it is for of those that a thread keeps
  int kept_to_ = 0;
  int kept_part_ = -1;  ///< the chunk that these are of; -1: of any

 private:
  bool is_stored_alone(std::size_t id) const;
  bool is_in_smem() const {
    return passes_.uses_smem() && !at_ends_ && (from_smem_ || from_prefetch_);
  }
  void open_cached(int pass, int depth);
  void close_cached(int pass, int depth);
  void move_cached(std::size_t id, int depth, std::string_view move);
  void collect_parameters();
  void skip_missing(int depth, std::string_view slot);
  void find_vector(int depth, const std::string& text, std::string_view slot);
  void begin_prefetch();
  void prefetch(int depth, std::string_view from);
  void emit_prefetched(int pass);
  void declare_smem();
  std::string smem_offset() const;
  int smem_alignment(std::size_t operand) const;
  void emit_slots(int pass, int from, int to, std::string_view unroll);
  void emit_arriving(int pass);
  void for_ends(const std::function<void()>& body);
  std::string cached_text(std::size_t id, std::string_view slot);
  void load_inputs();
  void emit_pass(int pass);
  int defined_in(std::size_t id) const;
  std::vector<bool> wanted_after(int pass);
  void emit_row_groups();
  void emit_host_pass(int pass);
  void prefetch_next_row();
  void declare_buffers();
  void fill_buffers(int pass, int depth, std::string_view first, std::string_view count);
  void empty_buffers(int pass, int depth, std::string_view first, std::string_view count);
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
  void prepare_divisors(int pass);
  void emit_lanes(int pass, int depth, std::string_view slot);
  void emit_quotient(std::size_t id, int depth);
  void emit_combine(std::size_t id, int depth);
  void emit_column_trees(int pass, const Ids& trees);
  std::string define_element(int pass);
  void prefetch_next_elements(bool pairs);
  void locate_part();
  void declare_column_tree(std::size_t id);
  void emit_threads_columns(int pass, const Ids& trees);
  void emit_kept_columns(int pass, const Ids& trees);
  void forget_converted(int pass);
  void begin_terms(const Ids& trees, int depth, std::string_view step);
  void fold_terms(const Ids& trees, int depth, std::string_view step, std::string_view residue);
  void load_vector(int pass, int depth);
  void open_vectors(int pass, const std::vector<std::size_t>& trees);
  void close_vectors(int pass, const std::vector<std::size_t>& trees);
  std::string each_chunk(std::string_view length) const;
  std::string last_vector() const;
  std::string vector_step() const;
  std::string batch_vector() const;

  const Accuracy accuracy_;
  bool from_smem_ = false;       ///< the code being written reads vectors from shared memory
  bool copies_pending_ = false;  ///< not all asynchronous copies have been waited for
  bool from_prefetch_ = false;   ///< the code being written has the prefetched vectors
  bool loads_directly_ = false;  ///< it loads a vector that is not on chip where it uses it
  bool may_miss_ = false;        ///< it is for vectors of which `exists` says whether they count
  bool at_ends_ = false;         ///< it is for single elements at the ends of a row
  bool in_row_tree_ = false;     ///< it is for vectors of a row that are added up by their tree
  /// How it computes quotients by one number for each row.
  enum class Quotients : std::uint8_t {
    plain,
    fast,     ///< of divisors and dividends that are in range
    unusual,  ///< of others
  };
  Quotients quotients_ = Quotients::plain;
};

KernelDescription emit_columns(const TypedGraph& graph, const Schedule& schedule,
                               const PassSchedule& passes, Accuracy accuracy);

}  // namespace kiln::fusion
