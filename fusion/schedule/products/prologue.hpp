// The prologue of a product: what its rows share of each column's vector, and is made of statistics
// of the vector, as what rms_norm, layer_norm or a softmax give. Every block computes it once,
// before its rows, and keeps it in shared memory (preamble/prologue.h): there are few such vectors,
// and they have few elements beside the rows.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/merged_axes.hpp"
#include "fusion/schedule/products/product_form.hpp"

namespace kiln::fusion {

class ProductValues;

/// Of each node, whether it is a reduction of which another one is made.
ScratchVector<bool> statistics_of(const TypedGraph& graph);

/// The only value that rows share and that depends on statistics; nothing if there are several, or
/// if such a value has no elements of its own. Conversions that lose nothing come after it.
std::optional<NodeId> staged_vector(const TypedGraph& graph, const ScratchVector<Scope>& scopes,
                                    const ScratchVector<bool>& statistics);

/// The dtype in which it is kept: its own where it is rounded to that, else that of computation.
DType staged_dtype(const TypedGraph& graph, NodeId staged);

/// What the loads of a product's rows are: of the operands, those that are not of the prologue
/// alone, and the dtype of what is staged, if anything is.
struct RowOperands {
  ScratchVector<bool> loaded;
  std::optional<DType> staged;
};
/// By which of `operands` move along the rows, and along reduced axes; all of them are loaded where
/// there are no statistics.
RowOperands row_operands(const TypedGraph& graph, std::span<const SizedOperand> operands,
                         const MergedAxis& rows, std::span<const MergedAxis> reduced);

/// Of each node, whether `roots` are made of it, other than by `cut`, which is.
ScratchVector<bool> live_but(const TypedGraph& graph, std::span<const NodeId> roots, NodeId cut);

/// Whether blocks can compute the vectors of a product in several passes, with those axes.
bool can_have_prologue(const TypedGraph& graph, const ProductValues& values,
                       std::span<const SizedOperand> operands,
                       const ScratchVector<MergedAxis>& axes, const Schedule& schedule);

/// By which threads of a block, once its layout says how many there are; and marks vectors that no
/// statistic is made of, as weights of a norm, as loaded before the PDL wait.
void map_prologue(const TypedGraph& graph, SizedLayout& layout);

/// Whether threads keep what they load in registers from one pass over their vectors to the next.
bool keeps_vectors(const ProductSchedule& products);

}  // namespace kiln::fusion
