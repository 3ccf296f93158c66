// How many rows and threads a matrix-vector product takes, in how many turns, and how wide the
// vectors are whose lanes have results of their own (product_layout.hpp).
#pragma once

#include <span>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/merged_axes.hpp"
#include "fusion/schedule/products/prologue.hpp"
#include "fusion/schedule/rows/row_layout.hpp"

namespace kiln::fusion {

/// The sums of a kernel of products.
struct ProductSums {
  int count = 0;
  bool wide = false;   ///< results of one take two registers
  int slot_bytes = 0;  ///< of a result of each dtype: sums of one dtype may share their memory
};
ProductSums sums_of(const TypedGraph& graph);

/// Whether sums follow the tree of rows: those of weights of more than 8 bits do.
bool adds_in_tree(std::span<const SizedOperand> operands, const RowOperands& of_rows,
                  const MergedAxis& innermost);
/// Whether each result of such sums is better reduced by itself, as any other row or column is,
/// which has the same bits.
bool is_faster_alone(const ProductSchedule& products, bool across, Size length, int element_bits);
/// The width of their vectors: each lane has results of its own, for which there must be registers.
int width_in_tree(int width, const ProductSchedule& products, bool across, const ProductSums& sums,
                  Size length, Backend backend);

/// Where neighbours in memory are of one row, or lie anywhere.
void map_to_threads(SizedLayout& layout, Size batches, const ProductSums& sums, Backend backend,
                    bool integers);
/// Where they are of neighbouring rows: on GPUs threads side by side take those, and on the CPU a
/// work item takes as many as have whole lines of memory.
void map_across(SizedLayout& layout, Size batches, const ProductSums& sums, int element_bits);
void take_lines(SizedLayout& layout, Size batches, int element_bits);

}  // namespace kiln::fusion
