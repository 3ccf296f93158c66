#include "fusion/schedule/rows/row_vectors.hpp"

#include "fusion/schedule/rows/row_mapping.hpp"

namespace kiln::fusion {
namespace {

// Of segments on the CPU, whose elements are copied where a vector has some of two of them. Of 32
// rows of 128 elements softmax takes 0.76 of the time without copies, max 0.66; of 16 rows of 3,136
// elements, of which few vectors have two, norms take 1.2 times as long with 64 lanes as with 256.
constexpr int kLanesOfSegment = 64;
constexpr int kLongSegment = 1024;

using Axis = MergedAxis;

}  // namespace

Size product(std::span<const Axis> axes) {
  Size size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  return size;
}

int full_width(const Axis& inner, Size length, std::span<const SizedOperand> operands,
               const ScratchVector<bool>& row_invariant, bool by_columns, Backend backend) {
  if (const int most = row_model(backend).lanes; most != 0) {
    const int lanes = std::min(most, std::max(kLeastLanes, power_of_two_from(length)));
    if (by_columns || inner.size == length || inner.size >= kLongSegment) return lanes;
    const int whole = static_cast<int>(lowest_bit(inner.size | most));
    return whole >= kLanesOfSegment ? std::min(whole, lanes) : lanes;
  }
  int read = 0;  // bytes of the narrowest elements of each kind
  int written = 0;
  int widest = 1;
  int stored = 1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].iota || (row_invariant[i] && (!by_columns || operands[i].output))) continue;
    widest = std::max(widest, element_bytes(operands[i]));
    if (operands[i].output) stored = std::max(stored, element_bytes(operands[i]));
    if (inner.strides[i] != 1) continue;
    const int bytes = element_bytes(operands[i]);
    int& narrowest = operands[i].output ? written : read;
    narrowest = narrowest == 0 ? bytes : std::min(narrowest, bytes);
  }
  if (read == 0 && written == 0) return 1;
  constexpr int kShortBytes = 512;
  const bool by_written = written != 0 && (read == 0 || by_columns || backend != Backend::nvidia ||
                                           length * read <= kShortBytes);
  const int narrowest = !by_written ? read : read == 0 ? written : std::min(read, written);
  const DeviceModel& gpu = device_model(backend);
  return std::max(1, std::min({gpu.work.vector_bytes / narrowest, gpu.work.max_lane_bytes / widest,
                               gpu.work.max_stored_bytes / stored, gpu.work.max_lanes}));
}

bool has_steps(const Axis& inner, std::span<const SizedOperand> operands,
               const ScratchVector<bool>& row_invariant) {
  constexpr Size kMostElements = 4096;
  if (inner.size > kMostElements) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].iota || row_invariant[i]) continue;
    if (inner.strides[i] != 0 && inner.strides[i] != 1) return true;
  }
  return false;
}

int vector_alignment(const SizedOperand& operand, int width) {
  return std::min(16, width * element_bytes(operand));
}

bool has_words(const SizedOperand& operand, int width) {
  const int bytes = width * element_bytes(operand);
  return bytes >= 4 && bytes <= 16;
}

bool in_phase(const SizedOperand& a, const SizedOperand& b, const ScratchVector<Axis>& axes,
              std::size_t i, std::size_t k, int width) {
  const auto place = [](const SizedOperand& operand) {
    return operand.address / element_bytes(operand);
  };
  const auto whole = [](const SizedOperand& operand) {
    return operand.address % element_bytes(operand) == 0;
  };
  const int step = vector_alignment(a, width) / element_bytes(a);
  // Rows at places that data says are each misaligned in a way of their own.
  const auto steps_whole = [&](const SizedOperand& operand) {
    return !operand.indexed.exists() || operand.indexed.stride % step == 0;
  };
  if (i != k && !(steps_whole(a) && steps_whole(b))) return false;
  bool same = whole(a) && whole(b) && (place(a) - place(b)) % step == 0 &&
              axes.back().strides[i] == 1 && axes.back().strides[k] == 1;
  for (std::size_t axis = 0; axis + 1 < axes.size(); ++axis) {
    same = same && (axes[axis].strides[i] - axes[axis].strides[k]) % step == 0;
  }
  return same;
}

namespace {

// Unaligned rows, or rows that are no whole number of vectors, are still read in vectors if they
// are so long that there is a thread for each element at their ends.
bool begins_within_vectors(const ScratchVector<Axis>& axes, const SizedOperand& operand,
                           std::size_t index, int width) {
  const bool whole = axes.back().size % width == 0 &&
                     alignment_of(operand, 0, axes, axes.size() - 1, index, width) >=
                         vector_alignment(operand, width);
  return width > 1 && !whole && axes.back().size >= 2 * width * width &&
         in_phase(operand, operand, axes, index, index, width);
}

}  // namespace

int phase_operand(const ScratchVector<Axis>& axes, std::span<const SizedOperand> operands,
                  const ScratchVector<bool>& row_invariant, std::size_t leading, int width) {
  constexpr int kKnown = 16;
  const auto begins_within = [&](std::size_t i) {
    return !row_invariant[i] && !operands[i].iota && width * element_bytes(operands[i]) <= kKnown &&
           begins_within_vectors(axes, operands[i], i, width);
  };
  if (begins_within(leading)) return static_cast<int>(leading);
  if (width * element_bytes(operands[leading]) <= kKnown) return -1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (begins_within(i)) return static_cast<int>(i);
  }
  return -1;
}

int equal_phase_step(const SizedOperand& operand, const Axis& axis, std::size_t index, int width) {
  const Size step = vector_alignment(operand, width) / element_bytes(operand);
  return static_cast<int>(step / lowest_bit(axis.strides[index] | step));
}

}  // namespace kiln::fusion
