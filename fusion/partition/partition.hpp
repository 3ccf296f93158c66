// Partition: which values of a graph share a kernel. Greedy, in one walk over the graph, by the
// rules and the small cost model below; it says why each kernel begins.
//
// A kernel runs over one shape and reduces one set of its axes or none; its values have that shape,
// or size one along the reduced axes. Kernels are numbered in the order in which they run. A value
// joins the last kernel among those of its operands, or a later one that reads what it reads, so
// that no cycle can arise. Of reductions that share arguments, those that read most of them go
// first, and with the first of them all others over the same space. Where a value cannot join, a
// kernel begins with it:
//   * another shape, or other reduced axes;
//   * running results along another axis, or beside reductions;
//   * it reads another view of what the kernel stores, or an array that several kernels write;
//   * it reads an iota that passes/store_iotas.cpp does not store, as uniform and normal do, and
//     the kernel reduces, or the other way round: of what leads from the one to the other, the
//     kernel of the iota stores the narrowest;
//   * the kernel is a custom call, or has as many values, arrays or sums of products with matrices
//     of their own as it may (registers);
//   * the kernel is the first of a split reduction (passes/split_reductions.hpp): what comes after
//     waits for all of it. One kernel joins the parts of all its reductions, and one goes over the
//     elements again with what that gives;
//   * it gives packed numbers to store, and the kernel has running results or reduces, unless one
//     axis is reduced and rows begin with a byte;
//   * passes over rows would compute more again than a cut moves (row_passes.hpp).
// What depends on arguments alone is computed by the first kernel that needs it; before all others
// if it is broadcast to larger values only.
// A value that another kernel needs is stored, and read again, unless it takes a few operations on
// arguments of no more bytes than it has, but for places of its rows and such, and they are exact
// ones or needed by that kernel alone.
// Then it is computed there; so is one that is too large for the caches if that is faster.
// What is made of narrower values by conversions and cheap operations with what there is one of for
// each row is computed by who needs it: quantised numbers and their scales pass between kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/place_views.hpp"

namespace kiln::fusion {

struct CostModel {
  std::size_t most_values = 256;          ///< of one kernel
  std::size_t most_arrays = 24;           ///< that one kernel reads, arguments and stored values
  std::size_t most_products = 4;          ///< sums of one kernel, each with a matrix of its own
  std::size_t most_recomputed = 6;        ///< operations of a value that is computed again
  std::uint64_t cached_bytes = 16 << 20;  ///< arrays up to that size are read from a cache again
  double operations_per_byte = 6;         ///< on f32, that take as long as memory takes for a byte
  bool share_reads = true;                ///< values that read the same array share a kernel
  bool fuse = true;  ///< else every operation has a kernel of its own; conversions have none
  std::vector<bool> alone = {};  ///< nodes that have one anyway; empty: none

  bool is_alone(NodeId id) const { return !fuse || (id < alone.size() && alone[id]); }
};

/// One kernel, or a custom call. `values` and `results` are nodes of the graph, operands
/// first.
struct KernelPart {
  std::vector<NodeId> values;       ///< that it computes, and what it reads of arguments
  std::vector<NodeId> results;      ///< of those, that it stores: for other kernels or as outputs
  std::vector<NodeId> reads;        ///< results of kernels before it, joins, views of either
  std::optional<std::size_t> call;  ///< a position in PlacedGraph::calls
  Dims shape;                       ///< that it runs over
  std::vector<bool> reduced;        ///< axes of it; empty if none
  std::vector<BoundedAxis> bounds;  ///< axes of it that end where a value says
  std::int64_t splits = 1;  ///< of each row, with a result for each (passes/split_reductions.hpp)
  std::string reason;       ///< why it begins
  std::uint64_t bytes = 0;  ///< that it moves: each array once
  std::uint64_t unfused_bytes = 0;  ///< had each of its operations a kernel of its own
};

struct Partition {
  std::vector<KernelPart> kernels;
  std::uint64_t bytes = 0;          ///< of all kernels
  std::uint64_t unfused_bytes = 0;  ///< had every operation a kernel of its own
  std::uint64_t lower_bound = 0;    ///< every argument read and every output written once
  std::uint64_t steps = 0;          ///< that deciding took: values looked at
  SizeSum traced_bytes;             ///< what `bytes` and `unfused_bytes` are sums of
  SizeSum traced_unfused_bytes;
};

/// The bytes of a value in its own dtype, and as it is stored between kernels.
std::uint64_t bytes_of(const ShapedGraph& graph, NodeId id);
std::uint64_t stored_bytes(const PlacedGraph& graph, NodeId id);

/// `graph` has no trivial reductions (infer/reduce_space.hpp).
Partition partition(const PlacedGraph& graph, const CostModel& model = {});

}  // namespace kiln::fusion
