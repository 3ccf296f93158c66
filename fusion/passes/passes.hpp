// Passes: functions from graph to graph that keep every bit of the result (numerics.md), but for
// sink_functions and fold_constants, which keep every function's bound, and for refine_shapes,
// spread_repeats, group_terms, expand_windows and join_sums, after which floats may be added up in
// another order. They work on typed graphs whose shapes are known; each stands alone, and
// optimise() runs them in order. All are written over GraphRewriter (graph/rewriter.hpp): in what
// they return equal nodes are one, and every node is needed by an output. Arguments stay.
#pragma once

#include "fusion/infer/shapes.hpp"

namespace kiln::fusion {

/// Replaces what is the same as one of its operands, bit for bit: conversions that change nothing,
/// x * 1, x / 1, x - 0 and x + -0 (but not x + 0, which is 0 for -0), a sign changed twice, the
/// larger of x and x, a choice between x and x, a choice whose condition is a constant, a reshape
/// to the shape of its operand, a slice of all of it. A reshape of a reshape is one of what that
/// shows. Slices of neighbours are numbered from the front.
ShapedGraph simplify(const ShapedGraph& graph);

/// Computes what depends on constants alone, by the reference interpreter; each result is rounded
/// as a device's is. Exact and correctly rounded operations give the bits of every device;
/// functions that have an error bound, on which devices differ, give the host's nearest number.
/// What gives NaN, whose bits are nobody's promise, stays.
ShapedGraph fold_constants(const ShapedGraph& graph);

/// Leaves out bounds that a cast to an 8-bit float, which saturates, has anyway.
ShapedGraph drop_clamps(const ShapedGraph& graph);
/// Leaves such bounds out of a function of one kernel, whose other passes are the compiler's.
TypedGraph drop_clamps(const TypedGraph& graph);

/// Equal nodes become one, and nodes that no output depends on go.
ShapedGraph share_common(const ShapedGraph& graph);

/// Moves functions that keep the order of numbers towards the outputs, past the largest and the
/// smallest of a row: max(log(x)) becomes log(max(x)) where no x is below zero. The result is the
/// function of the same element; where an implementation is not quite monotonic, another element's
/// could be larger by its error. Under Rounding::each nothing moves.
ShapedGraph sink_functions(const ShapedGraph& graph);

/// Computes with what is repeated, concatenated with itself, in the shape in which it broadcasts:
/// of reshape(stack(1, k, k, k, k), 32, n, d) * q, which repeats heads, k is multiplied by the four
/// heads of q each. Only past reshapes, bounds, operations and reductions of other axes; axes that
/// were joined with the repeated one are apart up to where all elements are computed.
ShapedGraph spread_repeats(const ShapedGraph& graph);

/// Reads two elements of what a reduction gives that go backwards one by one, concatenated: of
/// x[..., ::-1] for pairs, or of both halves exchanged, each is a view without a step. Only where
/// they meet what else is computed of the reduction.
ShapedGraph expand_reversals(const ShapedGraph& graph);

/// Computes what is concatenated part by part: concat(-x[n:], x[:n]) * s + x * c, a rotation of
/// halves, becomes the concatenation of both halves' own operations. Only where kernels compute all
/// parts, for one operation alone, and no reduction follows.
ShapedGraph split_concats(const ShapedGraph& graph);

/// Moves slices towards the outputs, past operations that are the same for all parts: of q =
/// f(y[:m]) and k = f(y[m:n]), parts of what a product gives, both become slices of f(y). Only
/// where all of y is read so, and no operation meets two parts. What reads y beside parts of it
/// along another axis reads those parts. Past reductions of other axes go parts that are neighbours
/// and reduced alike, as queries and keys in norms of their heads are; of what differs for them
/// after that and is the same along their axis, as weights are, an index chooses (join_parts).
ShapedGraph sink_slices(const ShapedGraph& graph);

/// Adds up what is made of groups in the shape of these: sum(reshape(q * s, n, -1) * x, -1) with
/// one s for each group becomes sum(q * s * reshape(x, groups, -1), -1, -2), so that no matrix of q
/// * s is stored. Only where nothing else needs it, and it is made of arguments.
ShapedGraph group_terms(const ShapedGraph& graph);

/// Adds the sums of groups, each times what there is one of for its group, up as one sum:
/// sum(sum(q * x, -1) * s, -2) becomes sum(q * x * s, -1, -2), which one kernel computes; so do
/// sums of several whose terms are products with one value. Only where nothing else needs the
/// groups' sums, both reduce the last axes together, and a sum of integers is one that f32 holds
/// exactly, as those of 4- and 8-bit numbers in groups are.
ShapedGraph join_sums(const ShapedGraph& graph);

/// Computes sums, means, maxima and minima over small windows of arrays, such as 2 by 2 pixels, as
/// operations on one view for each element of the window, in the order of the tree of numerics.md:
/// what reads the windows then reads whole vectors. Only windows of up to 16 elements, of several
/// axes with others between, the innermost one of up to four.
ShapedGraph expand_windows(const ShapedGraph& graph);

/// Moves views (shape ops of one operand) towards the arguments: a view of x * w + b becomes x, w
/// and b seen through it, so that the value between needs no memory. Only where all that is
/// computed there is seen through views alone, each element once, and what it depends on takes no
/// more bytes than a write and a read of it: arguments, and results of reductions.
/// Else, of what a value is made of as quantised numbers and their scales are (row_operation.hpp),
/// views of those that together take fewer bytes.
ShapedGraph hoist_views(const ShapedGraph& graph);

/// Moves views of values of which parts are computed with each other towards the arguments, also
/// where these are computed from what a reduction gives: of y = bf16(sum(w * x, -1)) both gate and
/// up, so that hoist_reduced_views() finds the sum's parts.
ShapedGraph hoist_parts(const ShapedGraph& graph);

/// Moves views past reductions of the last axes, towards the arguments: gate, up = y[:n], y[n:] of
/// y = sum(w * x, -1) become sums of w[:n] * x and w[n:] * x, which one kernel computes and
/// combines. Only where parts are computed with together, no element is in two of them, and the
/// terms are a few operations on arguments, numbers and views that nothing else needs.
ShapedGraph hoist_reduced_views(const ShapedGraph& graph);

/// Moves reshapes towards the outputs, past operations on what is computed and on arguments:
/// reshape(sum(x)) + r becomes a view of sum(x) + reshape(r), whose kernel needs no other. Only
/// where no more is stored than before, and arguments need no copy for it.
ShapedGraph sink_views(const ShapedGraph& graph);

/// Reduces both halves of a row at once where they are computed with each other: of a norm whose
/// halves are rotated, mean(x * x, -1) becomes sum(a * a + b * b, -1) / n of the halves a and b of
/// x, whose kernel stores the rotated halves too; where pairs are rotated, sum(a * a, -1) + sum(b *
/// b, -1) of the elements a of even and b of odd numbers. Only where the tree combines the same
/// elements, as it does in rows of up to 512 that are a power of two, of pairs in any of up to 512,
/// or their order does not matter, and nothing needs the whole row.
ShapedGraph reduce_halves(const ShapedGraph& graph);

/// Computes what stands before and after a reshape in one shape, the coarsest that splits the axes
/// of both: y in y = reshape(x - mean(x, -1)); y * w is then computed by the mean's kernel, which
/// reduces as many axes as the row's axis was split into. Only where what is reshaped waits for a
/// reduction over its own shape, and neither side has indices, running results or bounds.
ShapedGraph refine_shapes(const ShapedGraph& graph);

/// Stores the indices of axes, in a graph that works along axes, as arrays of as many elements as
/// an axis has: x where iota(-1) < n is then one kernel with what reduces it, which counts them
/// (partition/stores.cpp) or reads them as it reads a row's weights. Stays as it is where something
/// that is reduced, moved or stored has its shape from an iota alone.
ShapedGraph store_iotas(const ShapedGraph& graph);

/// Gives the places of take and put an axis of one element for each axis of the array that follows
/// the indexed one: places then broadcast to what is read or written. Such graphs are what
/// place_views() takes; it changes no bit and comes before the others.
ShapedGraph expand_places(const ShapedGraph& graph);

/// Keeps axes of one element that a view leaves out and others bring back: the softmax of
/// squeeze(sum(q * k, -1), -1), weighted as w[..., None] * v, is computed with the axis, as it is
/// where the sum keeps it. Only where all that is computed between is elementwise or reduced, and
/// nothing else reads it. Comes before the others.
ShapedGraph keep_unit_axes(const ShapedGraph& graph);

/// Moves bounds (graph/indexed.hpp) past views towards the outputs, and past what is computed for
/// them alone towards the arguments, so that no more of it is computed. Comes before those above.
/// Throws Error(unsupported) for a view that does not keep a bounded axis.
ShapedGraph move_bounds(const ShapedGraph& graph);

/// All of the passes above but expand_places(), keep_unit_axes() and move_bounds(), in the order in
/// which one helps the next.
ShapedGraph optimise(const ShapedGraph& graph);

}  // namespace kiln::fusion
