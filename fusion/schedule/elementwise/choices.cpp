#include "fusion/schedule/elementwise/choices.hpp"

#include <algorithm>
#include <iterator>

namespace kiln::fusion {
namespace {

// Rows of 64 four-byte elements are two cache lines of a GPU; smaller tiles where there are many.
constexpr int kTiles[] = {64, 32};

bool lies_along(const MergedAxis& axis, std::size_t operand) { return axis.strides[operand] == 1; }

bool can_transpose(std::span<const Operand> operands,
                   const ScratchVector<OperandSchedule>& schedules, const MergedAxis& axis,
                   std::size_t i) {
  return !operands[i].output && !operands[i].iota && schedules[i].access == Access::strided &&
         lies_along(axis, i) && bits(operands[i].dtype) >= 8;
}

}  // namespace

void choose_tile(const ScratchVector<MergedAxis>& axes, std::span<const Operand> operands,
                 const DeviceModel& model, Schedule& schedule) {
  // What values say of places is known for each row, not for each tile.
  if (has_indexed(operands)) return;
  ScratchVector<std::size_t> best;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    ScratchVector<std::size_t> helped;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (can_transpose(operands, schedule.operands, axes[k], i)) helped.push_back(i);
    }
    const int smallest = kTiles[std::size(kTiles) - 1];
    const bool fills = std::min(axes[k].size, axes.back().size) >= smallest;
    if (!fills || helped.size() <= best.size()) continue;
    best = std::move(helped);
    schedule.tile_axis = static_cast<int>(k);
  }
  if (best.empty()) return;
  // At the edges of a tile each thread stores single elements: two threads would write one byte of
  // the output.
  if (std::ranges::any_of(operands,
                          [](const Operand& o) { return o.output && is_packed(o.dtype); }))
    return;
  const auto bytes = [&](int tile) {
    int total = 0;
    for (const std::size_t i : best) total += tile * tile * slot_bytes(operands[i].dtype);
    return total;
  };
  for (const int tile : kTiles) {
    schedule.tile = tile;
    if (bytes(tile) <= model.work.tile_bytes) break;
  }
  while (bytes(schedule.tile) > model.work.tile_bytes) best.pop_back();
  for (const std::size_t i : best) schedule.operands[i].access = Access::transposed;
}

void find_interleaved(const ScratchVector<MergedAxis>& axes, std::span<const Operand> operands,
                      std::span<const std::int64_t> offsets,
                      ScratchVector<OperandSchedule>& schedules) {
  constexpr std::int64_t kMostWays = 4;
  const auto element = [&](std::size_t i) {
    return operands[i].place.element + offsets[i] - operands[i].offset;
  };
  const auto beside = [&](std::size_t i, std::size_t k) {
    return operands[i].place.memory == operands[k].place.memory &&
           operands[i].output == operands[k].output && operands[i].dtype == operands[k].dtype &&
           !operands[k].indexed.exists() && schedules[k].access == Access::strided &&
           std::ranges::all_of(
               axes, [&](const MergedAxis& axis) { return axis.strides[i] == axis.strides[k]; });
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int64_t ways = axes.back().strides[i];
    if (operands[i].place.memory == 0 || operands[i].indexed.exists() ||
        is_packed(operands[i].dtype) || ways < 2 || ways > kMostWays ||
        schedules[i].access != Access::strided)
      continue;
    ScratchVector<std::size_t> group;
    for (std::int64_t way = 0; way < ways; ++way) {
      for (std::size_t k = 0; k < operands.size(); ++k) {
        if (!beside(i, k) || element(k) != element(i) + way) continue;
        group.push_back(k);
        break;
      }
    }
    if (group.size() != static_cast<std::size_t>(ways) || group[0] != i) continue;
    for (std::size_t way = 0; way < group.size(); ++way) {
      OperandSchedule& schedule = schedules[group[way]];
      schedule.access = Access::interleaved;
      schedule.ways = static_cast<int>(ways);
      schedule.way = static_cast<int>(way);
      schedule.first_way = i;
    }
  }
}

int choose_width(std::int64_t inner, std::span<const Operand> operands,
                 const ScratchVector<OperandSchedule>& schedules, const DeviceModel& model) {
  if (model.work.vector_bytes == 0) return model.work.max_lanes;
  int narrowest = 0;  // in bits, as all widths here
  int widest = 8;
  int stored = 8;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].iota) continue;
    const int element = bits(operands[i].dtype) * schedules[i].ways;
    widest = std::max(widest, element);
    if (operands[i].output) stored = std::max(stored, element);
    if (schedules[i].access != Access::contiguous && schedules[i].access != Access::interleaved)
      continue;
    narrowest = narrowest == 0 ? element : std::min(narrowest, element);
  }
  if (narrowest == 0) return 1;
  int width =
      std::min({model.work.vector_bytes * 8 / narrowest, model.work.max_lane_bytes * 8 / widest,
                model.work.max_stored_bytes * 8 / stored, model.work.max_lanes});
  while (width > 1 && width > inner) width /= 2;
  return std::max(width, 1);
}

void choose_vectors(std::int64_t inner, std::span<const Operand> operands, const DeviceModel& model,
                    Schedule& schedule) {
  constexpr int kEnoughBytes = 32;
  constexpr std::int64_t kLong = 16;
  if (model.work.vector_bytes == 0 || schedule.tile != 0) return;
  int narrowest = 1024;  // in bits, as all widths here
  int loaded = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const OperandSchedule& own = schedule.operands[i];
    // Iotas, and packed elements without vectors, continue from lane to lane.
    const bool packed = is_packed(operands[i].dtype);
    if (own.indexing == Indexing::lane) return;
    if (operands[i].iota || (packed && (operands[i].output || own.access == Access::strided)))
      return;
    const bool in_rows = own.access == Access::contiguous || own.access == Access::interleaved;
    if (operands[i].output || !in_rows) continue;
    const int element = bits(operands[i].dtype) * own.ways;
    narrowest = std::min(narrowest, element);
    // What repeats along another axis is in the caches.
    const std::uint64_t axes = (std::uint64_t{1} << (schedule.rank - 1)) - 1;
    if (own.way == 0 && own.outer_axes == axes) loaded += element * schedule.width;
  }
  const int most =
      std::min(model.work.vector_bytes * 8 / narrowest, model.work.max_lanes) / schedule.width;
  for (const int threads : {32, 16, 8, 4}) {
    for (int vectors = most; vectors > 1; vectors /= 2) {
      const std::int64_t together = std::int64_t{vectors} * threads * schedule.width;
      const bool enough = loaded * vectors / 2 >= kEnoughBytes * 8;
      if (enough || (inner % together != 0 && inner < kLong * together)) continue;
      schedule.vectors = vectors;
      schedule.threads = threads;
      return;
    }
  }
}

bool is_table(std::span<const Operand> operands, const ScratchVector<OperandSchedule>& schedules) {
  int codes = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool contiguous = schedules[i].access == Access::contiguous;
    const int width = bits(operands[i].dtype);
    if (operands[i].iota || operands[i].indexed.exists()) return false;
    if (operands[i].output && !(contiguous && (width == 16 || width == 32))) return false;
    const bool same =
        schedules[i].access == Access::broadcast || schedules[i].access == Access::scalar;
    if (operands[i].output || same) continue;
    if (!contiguous || !is_packed(operands[i].dtype)) return false;
    ++codes;
  }
  return codes == 1;
}

}  // namespace kiln::fusion
