#include "fusion/schedule/rows/row_fold.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"

namespace kiln::fusion {
namespace {

constexpr int kLeastBehind = 32;  // elements behind each along the axis: residues, for threads
constexpr int kMostTerms = 32;    // that a thread folds, in registers

using Axis = MergedAxis;
using Axes = ScratchVector<MergedAxis>;

bool is_power_of_two(Size size) { return size > 0 && lowest_bit(size) == size; }

Size elements_of(std::span<const Axis> axes) {
  Size size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  return size;
}

// Every `step`-th element of an axis, `size` of them.
Axis steps_of(const Axis& axis, Size size, Size step) {
  Axis result = axis;
  result.size = size;
  for (Size& stride : result.strides) stride *= step;
  return result;
}

// Whether parts can have every so many-th of `apart` elements along an axis and the one before it,
// `unit` neighbours at a time.
bool can_cut(const Axes& axes, std::size_t at, Size unit, Size apart) {
  const Size& extent = axes[at].size;
  if (extent % apart == 0) return true;
  return at > 0 && apart % extent == 0 && extent % unit == 0 &&
         axes[at - 1].size % (apart / extent) == 0;
}

// Lanes that have chunks of their own. Of up to kMostParts chunks all are combined in pairs, those
// of lanes before those of one lane.
RowFold fold_chunks(RowFold fold, const Axes& axes, Size behind, Size parts, int most_width) {
  const Size& extent = axes[fold.along].size;
  fold.chunks = behind / kTreeChunk;
  if (parts > 1) {
    const bool apart = parts % fold.chunks == 0 && axes.size() == fold.along + 2 &&
                       elements_of(axes) / kTreeChunk <= kTreeChunk &&
                       can_cut(axes, fold.along, 1, parts / fold.chunks);
    if (apart) fold.residues = kMostResidues;
    return fold;
  }
  if (fold.along != 0 || !is_power_of_two(extent) || extent * fold.chunks > kMostParts) return fold;
  fold.width = static_cast<int>(std::min<Size>(extent, most_width));
  fold.chunk_vectors = static_cast<int>(extent / fold.width);
  fold.residues = kMostResidues;
  return fold;
}

// The axes of a kernel, of which some are moved.
struct MovedAxes {
  Axes& kept;
  Axes& reduced;
  std::span<const SizedOperand> operands;
  const ScratchVector<bool>& row_invariant;

  // An axis of parts, neighbours along which are `apart` parts from each other.
  void keep_part(Axis part, Size apart) const {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i].output || !row_invariant[i]) continue;
      part.strides[i] = operands[i].split_stride * apart;
    }
    kept.push_back(std::move(part));
  }
  // Leaves of an axis every `step`-th element.
  void leave_steps(std::size_t at, Size step) const {
    if (reduced[at].size == step) {
      reduced.erase(reduced.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      reduced[at] = steps_of(reduced[at], reduced[at].size / step, step);
    }
  }
  // Gives parts what can_cut() says. Parts of neighbours are `beside` parts from each other.
  void cut(std::size_t at, Size unit, Size apart, Size beside) const {
    const Axis along = reduced[at];
    if (along.size % apart == 0) {
      keep_part(steps_of(along, apart / unit, unit), beside);
      return leave_steps(at, apart);
    }
    const Size units = along.size / unit;
    const Size before = apart / along.size;
    keep_part(steps_of(reduced[at - 1], before, 1), beside * units);
    keep_part(steps_of(along, units, unit), beside);
    leave_steps(at, along.size);
    leave_steps(at - 1, before);
  }
};

}  // namespace

RowFold fold_rows(const Axes& axes, std::size_t along, Size parts, int most_width) {
  RowFold fold;
  fold.along = along;
  const Size& extent = axes[along].size;
  const Size behind = elements_of(std::span(axes).subspan(along + 1));
  const Size all = elements_of(axes);
  const bool one_chunk = all <= kTreeChunk;
  if (!is_power_of_two(behind) || behind < kLeastBehind || (!one_chunk && all % kTreeChunk != 0)) {
    return {};
  }
  if (behind >= kTreeChunk) return fold_chunks(fold, axes, behind, parts, most_width);
  const Size chunk = one_chunk ? all : Size(kTreeChunk);
  fold.at_a_time = chunk / behind;
  if (parts > 1 && (one_chunk || all / kTreeChunk > kTreeChunk ||
                    !can_cut(axes, along, fold.at_a_time, fold.at_a_time * parts))) {
    return {};
  }
  const int all_residues = residues_of(chunk);
  const int residues = static_cast<int>(std::min<Size>(behind, all_residues));
  fold.width = static_cast<int>(lowest_bit(extent | fold.at_a_time | most_width));
  const Size terms = chunk / residues;
  if (fold.width == 1 || terms > kMostTerms) return {};
  fold.vectors = static_cast<int>(terms) / fold.width;
  fold.steps = static_cast<int>(behind / residues);
  fold.terms_of = all_residues / residues;
  fold.residues = residues;
  return fold;
}

void fold_axes(const RowFold& fold, Size parts, Axes& kept, Axes& reduced,
               std::span<const SizedOperand> operands, const ScratchVector<bool>& row_invariant) {
  const MovedAxes axes{kept, reduced, operands, row_invariant};
  if (fold.width == 0) {
    Axis& behind = reduced[fold.along + 1];
    if (fold.chunks > 1) {
      axes.keep_part(steps_of(behind, fold.chunks, kTreeChunk), 1);
      behind.size = kTreeChunk;
    }
    return axes.cut(fold.along, 1, parts / fold.chunks, fold.chunks);
  }
  const Axis along = reduced[fold.along];
  const std::size_t behind = reduced.size() - fold.along - 1;  // axes
  Size left = along.size;
  if (parts > 1) {
    axes.cut(fold.along, fold.at_a_time, fold.at_a_time * parts, 1);
    left = fold.at_a_time;
  } else {
    axes.leave_steps(fold.along, along.size);
  }
  if (left != fold.width) {
    reduced.insert(reduced.end() - static_cast<std::ptrdiff_t>(behind),
                   steps_of(along, left / fold.width, fold.width));
  }
  Axis lanes = steps_of(along, fold.width, 1);
  const Axis& row = kept.back();
  bool side_by_side = left == fold.width;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    side_by_side =
        side_by_side && (row_invariant[i] ? !operands[i].iota || row.strides[i] == 0
                                          : row.strides[i] == lanes.strides[i] * fold.width);
  }
  if (!side_by_side) {
    kept.push_back(std::move(lanes));
    return;
  }
  lanes.size *= row.size;
  lanes.from.append(row.from.data(), row.from.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (row_invariant[i]) lanes.strides[i] = row.strides[i];
  }
  kept.back() = std::move(lanes);
}

}  // namespace kiln::fusion
