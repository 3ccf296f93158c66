#include "fusion/schedule/elementwise/choices.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln::fusion {
namespace {

// Extents of which a tile has enough to pay for the detour.
constexpr int kFewest = 32;
// What a tile has of one operand. Less where there are many of them.
constexpr int kTileBytes[] = {16 << 10, 4 << 10};

bool lies_along(const MergedAxis& axis, std::size_t operand) { return axis.strides[operand] == 1; }

bool can_transpose(std::span<const SizedOperand> operands,
                   const ScratchVector<OperandSchedule>& schedules, const MergedAxis& axis,
                   std::size_t i) {
  return !operands[i].output && !operands[i].iota && schedules[i].access == Access::strided &&
         lies_along(axis, i) && bits(operands[i].dtype) >= 8;
}

// Elements of a tile along both of its axes.
struct TileShape {
  int rows = 0;
  int columns = 0;
};

// What tiles cost by their shape: all that are as large as those of `elements`, or smaller, take as
// long, since their blocks wait for the same loads. Both sides access whole cache lines if rows are
// as long. Costs are whole numbers, so that a tape (size_tape.hpp) holds while the same one is
// less.
class TileCost {
 public:
  TileCost(Size rows, Size columns, int elements, int bytes)
      : rows_(rows), columns_(columns), elements_(elements), bytes_(bytes) {}

  Size operator()(const TileShape& tile, double factor) const {
    constexpr double kUnit = 1 << 22;  // a square tile of `elements`: all tiles of 2^40 fit
    const double square =
        1 + 0.01 * std::abs(std::log2(static_cast<double>(tile.rows) / tile.columns));
    const double larger = std::max(1.0, static_cast<double>(tile.rows * tile.columns) / elements_);
    const double each =
        factor * square * larger * lines(rows_, tile.rows) * lines(columns_, tile.columns);
    return count(rows_, tile.rows) * count(columns_, tile.columns) * std::llround(kUnit * each);
  }

 private:
  static Size count(Size size, int step) { return (size + (step - 1)) / step; }
  double lines(Size size, int step) const {
    constexpr int kLine = 128;
    constexpr double kPartOfLine = 1.3;
    return step * bytes_ < kLine && size > step ? kPartOfLine : 1.0;
  }

  Size rows_;
  Size columns_;
  int elements_;
  int bytes_;
};

// Of tiles whose sides are powers of two, of `elements`, that of the least cost. Where rows of
// narrow elements are short and no whole vectors, tiles of whole rows are one run, and may be as
// high as equal parts of the rows: up to `most` elements, in multiples of `unit`. On an H100 49
// pixels of 320 channels of f16 go from 0.60 of a copy to 0.96 with tiles of 160 by 56 instead of
// 128 by 64, 77 by 96 bf16 from 0.84 to 1.02 with one tile. Rows that are whole vectors lose by
// that: 96 by 512 bf16 go from 1.01 to 0.83.
TileShape tile_shape(Size rows, Size columns, int elements, int most, int bytes, int unit) {
  constexpr int kLongestRow = 256;
  constexpr int kMostRows = 512;
  constexpr double kOtherSides = 1.05;
  const TileCost cost(rows, columns, elements, bytes);
  TileShape best;
  Size best_cost = std::numeric_limits<std::int64_t>::max();
  const auto try_shape = [&](TileShape shape, double factor) {
    const Size own = cost(shape, factor);
    if (own >= best_cost) return;
    best = shape;
    best_cost = own;
  };
  for (int r = static_cast<int>(kFewest); r <= elements / kFewest; r *= 2) {
    try_shape({r, elements / r}, 1);
  }
  if (bytes > 2 || columns > kLongestRow || rows > kMostRows || columns * bytes % 16 == 0) {
    return best;
  }
  const auto whole = static_cast<int>((columns + (unit - 1)) / unit * unit);
  for (int parts = 1; rows >= parts * kFewest; ++parts) {
    const auto part = static_cast<int>(((rows + (parts - 1)) / parts + (unit - 1)) / unit * unit);
    if (part * whole <= most) try_shape({part, whole}, kOtherSides);
  }
  return best;
}

}  // namespace

void choose_tile(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                 const DeviceModel& model, Schedule& schedule) {
  // What values say of places is known for each row, not for each tile.
  if (has_indexed(operands)) return;
  ScratchVector<std::size_t> best;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    ScratchVector<std::size_t> helped;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (can_transpose(operands, schedule.operands, axes[k], i)) helped.push_back(i);
    }
    const bool fills = std::min(axes[k].size, axes.back().size) >= kFewest;
    if (!fills || helped.size() <= best.size()) continue;
    best = std::move(helped);
    schedule.tile_axis = static_cast<int>(k);
  }
  if (best.empty()) return;
  // At the edges of a tile each thread stores single elements: two threads would write one byte of
  // the output.
  if (std::ranges::any_of(operands,
                          [](const SizedOperand& o) { return o.output && is_packed(o.dtype); }))
    return;
  // Host tiles are square, and narrow elements take a word each there.
  const bool host = schedule.backend == Backend::host;
  const auto width = [&](std::size_t i) {
    return std::max(host ? 4 : 1, bits(operands[i].dtype) / 8);
  };
  int widest = 1;
  for (const std::size_t i : best) widest = std::max(widest, width(i));
  // Columns are whole vectors of any operand.
  int unit = 8;
  for (const SizedOperand& operand : operands) {
    if (!operand.iota) unit = std::max(unit, 128 / bits(operand.dtype));
  }
  const auto bytes = [&] {
    int total = 0;
    for (const std::size_t i : best) total += width(i);
    return total;
  };
  for (const int most : kTileBytes) {
    const int elements = std::max(most / widest, kFewest * kFewest);
    const int room = std::min(elements + elements / 4, model.work.tile_bytes / bytes());
    const int side = most == kTileBytes[0] ? 64 : 32;
    const auto [rows, columns] =
        host ? TileShape{side, side}
             : tile_shape(axes[static_cast<std::size_t>(schedule.tile_axis)].size, axes.back().size,
                          elements, room, widest, unit);
    schedule.tile_rows = rows;
    schedule.tile = columns;
    if (rows * columns * bytes() <= model.work.tile_bytes) break;
  }
  while (schedule.tile_rows * schedule.tile * bytes() > model.work.tile_bytes) best.pop_back();
  for (const std::size_t i : best) schedule.operands[i].access = Access::transposed;
}

void find_interleaved(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                      std::span<const Size> offsets, ScratchVector<OperandSchedule>& schedules) {
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
    const Size ways = axes.back().strides[i];
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
      schedule.ways = static_cast<std::int16_t>(ways);
      schedule.way = static_cast<std::int16_t>(way);
      schedule.first_way = static_cast<std::uint16_t>(i);
    }
  }
}

int choose_width(Size inner, std::span<const SizedOperand> operands,
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

void choose_vectors(Size inner, std::span<const SizedOperand> operands, const DeviceModel& model,
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
      const Size together = Size{vectors} * threads * schedule.width;
      const bool enough = loaded * vectors / 2 >= kEnoughBytes * 8;
      if (enough || (inner % together != 0 && inner < kLong * together)) continue;
      schedule.vectors = vectors;
      schedule.threads = threads;
      return;
    }
  }
}

int aligned_elements(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                     std::span<const Size> offsets, const Schedule& schedule, bool outputs_only) {
  const std::size_t inner = axes.size() - 1;
  const std::uint64_t all_axes = (std::uint64_t{1} << inner) - 1;
  int aligned = schedule.width;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const OperandSchedule& own = schedule.operands[i];
    const bool in_rows = own.access == Access::contiguous || own.access == Access::interleaved;
    if (own.way != 0 || own.outer_axes != all_axes || !in_rows || operands[i].iota ||
        (outputs_only && !operands[i].output))
      continue;
    const int bytes =
        alignment_of(operands[i], offsets[i], axes, inner, i, schedule.width * own.ways);
    // No access has more than 16 bytes.
    if (bytes < 16) aligned = std::min(aligned, bytes * 8 / (bits(operands[i].dtype) * own.ways));
  }
  return std::max(1, aligned);
}

namespace {

// Whether an operand's elements follow each other over all axes.
bool is_run(const ScratchVector<MergedAxis>& axes, std::size_t operand) {
  bool run = axes.back().strides[operand] == 1;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    run = run && axes[k].strides[operand] == axes[k + 1].strides[operand] * axes[k + 1].size;
  }
  return run;
}

// Whether elements can be counted over all axes, in 32 bits, so many at a time.
bool can_count(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
               const Schedule& schedule, Size together) {
  Size elements = 1;
  for (const MergedAxis& axis : axes) elements *= axis.size;
  const bool interleaved = std::ranges::any_of(schedule.operands, [](const OperandSchedule& own) {
    return own.access == Access::interleaved;
  });
  return axes.size() > 1 && !interleaved &&
         !needs_wide_index(axes, operands, elements, static_cast<int>(together));
}

void count_over_all_axes(const ScratchVector<MergedAxis>& axes, Schedule& schedule) {
  schedule.flat = true;
  for (std::size_t i = 0; i < schedule.operands.size(); ++i) {
    OperandSchedule& own = schedule.operands[i];
    own.addressed = own.access != Access::scalar && !is_run(axes, i);
  }
}

// Whether an operand's elements follow each other along both axes of tiles, whose rows are whole.
bool is_tile_run(const ScratchVector<MergedAxis>& axes, std::size_t tile_axis,
                 std::size_t operand) {
  return axes.back().strides[operand] == 1 && axes[tile_axis].strides[operand] == axes.back().size;
}

// Whether narrow results are one run, which is stored in aligned vectors though rows end within
// them, and few operands have an address for each element then.
bool straddles_rows(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                    std::span<const Size> offsets, const Schedule& schedule) {
  constexpr int kMostAddressed = 2;
  int addressed = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool run = is_run(axes, i);
    addressed += run || schedule.operands[i].access == Access::scalar ? 0 : 1;
    if (!operands[i].output) continue;
    const int bytes = schedule.width * bits(operands[i].dtype) / 8;
    if (!run || bits(operands[i].dtype) > 16 ||
        alignment_of(operands[i], offsets[i], {}, 0, i, schedule.width) < std::min(16, bytes))
      return false;
  }
  return addressed <= kMostAddressed && can_count(axes, operands, schedule, schedule.width);
}

// Whether narrow outputs are not aligned along rows, but are along both axes of tiles.
bool stores_tile_runs(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                      std::span<const Size> offsets, const Schedule& schedule) {
  const auto tile_axis = static_cast<std::size_t>(schedule.tile_axis);
  const ScratchVector<MergedAxis> others = axes_beside(axes, tile_axis);
  if (schedule.tile < axes.back().size) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const OperandSchedule& own = schedule.operands[i];
    if (operands[i].iota || is_packed(operands[i].dtype) || own.access == Access::interleaved) {
      return false;
    }
    const bool run = is_tile_run(axes, tile_axis, i);
    const int bytes = schedule.width * bits(operands[i].dtype) / 8;
    if (operands[i].output && (!run || bits(operands[i].dtype) > 16)) return false;
    if (run && alignment_of(operands[i], offsets[i], others, others.size(), i, schedule.width) <
                   std::min(16, bytes))
      return false;
  }
  return aligned_elements(axes, operands, offsets, schedule, true) < schedule.width;
}

}  // namespace

ScratchVector<MergedAxis> axes_beside(const ScratchVector<MergedAxis>& axes,
                                      std::size_t tile_axis) {
  ScratchVector<MergedAxis> others;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    if (k != tile_axis) others.push_back(axes[k]);
  }
  return others;
}

void choose_tile_vectors(const ScratchVector<MergedAxis>& axes,
                         std::span<const SizedOperand> operands, std::span<const Size> offsets,
                         Schedule& schedule) {
  if (!stores_tile_runs(axes, operands, offsets, schedule)) {
    schedule.width = std::min(schedule.width, aligned_elements(axes, operands, offsets, schedule));
    return;
  }
  const auto tile_axis = static_cast<std::size_t>(schedule.tile_axis);
  schedule.flat = true;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& own = schedule.operands[i];
    const bool moves = axes.back().strides[i] != 0 || axes[tile_axis].strides[i] != 0;
    own.addressed = own.access != Access::transposed && moves && !is_tile_run(axes, tile_axis, i);
  }
}

void choose_preloaded(std::span<const SizedOperand> operands, const DeviceModel& model,
                      Schedule& schedule) {
  constexpr int kMostBytes = 128;  // for each thread
  const auto tile_axis = static_cast<std::uint32_t>(schedule.tile_axis);
  int bytes = 0;
  int loaded = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& own = schedule.operands[i];
    if (operands[i].output || operands[i].iota) continue;
    if (own.access == Access::transposed) ++loaded;
    if (is_packed(operands[i].dtype) || own.access != Access::contiguous || own.addressed) continue;
    bytes +=
        schedule.tile_rows * schedule.tile / model.work.tile_block * bits(operands[i].dtype) / 8;
    own.preloaded = bytes <= kMostBytes;
    const bool differs = schedule.flat || schedule.has_stride(i, tile_axis);
    loaded += own.preloaded && differs ? 1 : 0;
  }
  if (schedule.backend == Backend::nvidia) schedule.min_blocks = loaded == 1 ? 3 : 2;
}

bool choose_interleaved_vectors(const ScratchVector<MergedAxis>& axes,
                                std::span<const SizedOperand> operands,
                                std::span<const Size> offsets, const DeviceModel& model,
                                Schedule& schedule) {
  if (model.work.vector_bytes == 0 || schedule.tile != 0 || has_indexed(operands)) return false;
  for (const SizedOperand& operand : operands) {
    // They continue from lane to lane.
    if (operand.iota || is_packed(operand.dtype)) return false;
  }
  const std::size_t inner = axes.size() - 1;
  const Size size = axes[inner].size;
  const int full =
      choose_width(std::numeric_limits<std::int64_t>::max(), operands, schedule.operands, model);
  const bool is_short = inner > 0 && size < full;
  // Unaligned loads alone find what they share of cache lines near the threads: a copy's speed.
  const bool stores = aligned_elements(axes, operands, offsets, schedule, true) < schedule.width;
  if (!stores && !is_short) return false;
  if (!is_short && straddles_rows(axes, operands, offsets, schedule)) {
    count_over_all_axes(axes, schedule);
    return true;
  }
  constexpr int kThreads = 32;
  constexpr int kEnoughBits = 16 * 8;
  int aligned = aligned_elements(axes, operands, offsets, schedule);
  int loaded = 0;  // bits of an element
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool everywhere = schedule.operands[i].outer_axes == (std::uint64_t{1} << inner) - 1;
    if (everywhere && !operands[i].output) loaded += bits(operands[i].dtype);
  }
  int vectors = full / aligned;
  while (vectors * aligned * loaded < kEnoughBits && vectors * aligned < model.work.max_lanes) {
    vectors *= 2;
  }
  constexpr std::int64_t kLong = 16;
  const Size together = Size{vectors} * kThreads * aligned;
  if (inner > 0 && size % together != 0 && size < kLong * together) {
    if (!can_count(axes, operands, schedule, together)) return false;
    while (size % aligned != 0) {
      aligned /= 2;
      vectors *= 2;
    }
    count_over_all_axes(axes, schedule);
  }
  schedule.width = aligned;
  schedule.vectors = vectors;
  schedule.threads = kThreads;
  return true;
}

bool is_table(std::span<const SizedOperand> operands,
              const ScratchVector<OperandSchedule>& schedules) {
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
