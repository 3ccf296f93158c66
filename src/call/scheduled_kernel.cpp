#include "call/scheduled_kernel.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fusion/emit/pack_values.hpp"

namespace kiln {
namespace {

// What check_operand() accepts.
bool is_sound(const View& view, const Device& device) {
  if (view.device() != device || view.data() == nullptr) return false;
  const auto bytes = static_cast<std::uintptr_t>(std::max(1, bits(view.dtype()) / 8));
  const std::uintptr_t unit = view.dtype() == DType::c64 ? 4 : bytes;
  return reinterpret_cast<std::uintptr_t>(view.data()) % unit == 0;
}

// Whether each element lies beyond all those of the axes with smaller strides, so that no two share
// memory. An output of which that is not true may be an error, or not.
bool is_nested(const View& view) {
  const Dims& shape = view.shape();
  const Dims& strides = view.strides();
  std::int64_t reach = 0;
  for (std::uint32_t done = 0;;) {
    std::size_t next = shape.size();
    for (std::size_t k = 0; k < shape.size(); ++k) {
      if (shape[k] == 1 || (done >> k & 1) != 0) continue;
      if (next == shape.size() || std::abs(strides[k]) < std::abs(strides[next])) next = k;
    }
    if (next == shape.size()) return true;
    if (std::abs(strides[next]) <= reach) return false;
    reach += std::abs(strides[next]) * (shape[next] - 1);
    done |= 1u << next;
  }
}

}  // namespace

std::size_t bytes_of(const ScheduledKernel& kernel) {
  return sizeof kernel + kernel.parameters.size() * (sizeof(fusion::Parameter) + 16) +
         kernel.schedule.operands.size() * sizeof(fusion::OperandSchedule);
}

std::size_t CachedKernel::bytes() const {
  return sizeof *this + 8 * signature.size() + bytes_of(*kernel);
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

std::uint64_t hash_of(std::uint64_t hash, const fusion::Schedule& schedule) {
  const auto add = [&](std::initializer_list<std::uint64_t> fields) {
    std::uint64_t word = 0;
    for (const std::uint64_t field : fields) word = word * 0x100000001b3u + field;
    hash = mixed(hash, word);
  };
  const auto of = [](auto field) { return static_cast<std::uint64_t>(field); };
  const fusion::RowSchedule& rows = schedule.reduction;
  const fusion::ProductSchedule& products = schedule.products;
  const fusion::TileSchedule& tiles = products.tiles;
  add({of(schedule.rank), of(schedule.width), of(schedule.vectors), of(schedule.threads),
       of(schedule.wide_index), of(schedule.flat), of(schedule.tile), of(schedule.tile_rows),
       of(schedule.tile_axis), of(schedule.min_blocks), of(schedule.streamed), of(schedule.table),
       of(schedule.scan), of(schedule.row_axes), of(schedule.rows_ahead)});
  if (rows != fusion::RowSchedule()) {  // a scan has threads, though no reduced axes
    add({of(rows.axes),    of(rows.threads), of(rows.cluster_blocks), of(rows.chunk_blocks),
         of(rows.vectors), of(rows.batch),   of(rows.full_vectors),   of(rows.in_smem),
         of(rows.copied),  of(rows.rows),    of(rows.columns),        of(rows.ragged),
         of(rows.split),   of(rows.chunks),  of(rows.phase),          of(rows.row_step),
         of(rows.joined),  of(rows.sets),    of(rows.groups),         of(rows.min_blocks)});
    add({of(rows.folded), of(rows.fold_steps), of(rows.fold_residues), of(rows.parts),
         of(rows.joined_chunks), of(rows.buffered)});
  }
  if (products.rows != 0) {
    add({of(products.rows), of(products.columns), of(products.lanes), of(tiles.steps_per_group),
         of(tiles.steps), of(tiles.sets), of(tiles.run), of(tiles.sums), of(tiles.min_blocks),
         of(products.turns), of(products.vector_axes), of(products.beside), of(products.across),
         of(products.tree), of(products.in_flight)});
    add({of(products.prologue.threads), of(products.prologue.elements),
         of(products.prologue.width)});
    add({of(tiles.whole), of(tiles.prefetch), of(tiles.x_in_smem), of(tiles.x_in_registers),
         of(tiles.weights_before_pdl_wait), of(tiles.split_k), of(tiles.single_tile),
         of(tiles.staged), of(tiles.beside)});
  }
  if (const fusion::AttentionSchedule& own = schedule.attention; own.threads != 0) {
    add({of(own.threads), of(own.tile), of(own.group_axes), of(own.group[0]), of(own.group[1]),
         of(own.prefetch), of(own.split)});
    for (const fusion::AttentionLanes* const lanes : {&own.keys, &own.values}) {
      add({of(lanes->extent), of(lanes->width), of(lanes->threads), of(lanes->vectors),
           of(lanes->together)});
    }
  }
  for (const int axis : schedule.bounds) add({of(axis)});
  for (const fusion::OperandSchedule& operand : schedule.operands) {
    add({of(operand.access), of(operand.alignment), operand.outer_axes, of(operand.start),
         of(operand.in_registers), of(operand.unaligned), of(operand.whole_runs),
         of(operand.prefetched), of(operand.addressed), of(operand.preloaded),
         of(operand.before_pdl_wait), of(operand.ways), of(operand.way), operand.first_way,
         of(operand.along), of(operand.indexing)});
  }
  return hash;
}

bool is_sound(const Call& call) {
  const Device& device = call.stream.device;
  for (const Argument& input : call.inputs) {
    if (!input.is_scalar() && !is_sound(input.view(), device)) return false;
  }
  return std::ranges::all_of(call.outputs, [&](const View& output) {
    return is_sound(output, device) && is_nested(output);
  });
}

void LaunchBlock::point_at_parameters() {
  const std::vector<std::uint32_t>& offsets = kernel_.planned.parameters.offsets;
  for (std::size_t p = 0; p < offsets.size(); ++p) arguments_[p] = bytes_.data() + offsets[p];
}

void LaunchBlock::put_pointer(std::uint32_t offset, const void* pointer) {
  std::memcpy(bytes_.data() + offset, &pointer, sizeof pointer);
}

LaunchBlock::LaunchBlock(const ScheduledKernel& kernel, const fusion::Layout& layout,
                         std::span<char* const> data)
    : kernel_(kernel),
      work_items_(layout.threads()),
      block_(static_cast<std::uint32_t>(layout.block())) {
  point_at_parameters();
  const std::vector<std::uint32_t>& offsets = kernel.planned.parameters.offsets;
  std::memset(bytes_.data(), 0, kernel.planned.parameters.bytes.size());
  fusion::pack_values(kernel.parameters, layout, offsets, bytes_.data());
  for (std::size_t p = 0; p < offsets.size(); ++p) {
    const fusion::Parameter& parameter = kernel.parameters[p];
    if (parameter.kind != fusion::Parameter::Kind::pointer) continue;
    const std::int64_t elements = layout.offsets[parameter.index];
    put_pointer(offsets[p], data[parameter.index] + pointer_bytes(elements, parameter.dtype));
  }
}

LaunchBlock::LaunchBlock(const ScheduledKernel& kernel, const KernelTape& tape,
                         const std::int64_t* values, std::span<char* const> data)
    : kernel_(kernel), work_items_(tape.threads(values)), block_(tape.block(values)) {
  point_at_parameters();
  std::ranges::copy(tape.bytes(), bytes_.data());
  for (const KernelTape::Value& value : tape.values()) {
    fusion::pack_value(values[value.place], value.bytes, bytes_.data() + value.offset);
  }
  for (const KernelTape::Pointer& pointer : tape.pointers()) {
    put_pointer(pointer.offset, data[pointer.operand] + pointer.bytes(values));
  }
}

void LaunchBlock::launch(jit::Backend& backend, const KernelForm& form, const Stream& stream) {
  jit::LaunchShape shape = kernel_.planned.shape;
  shape.work_items = work_items_;
  if (!std::holds_alternative<ElementwiseForm>(form)) shape.block = block_;
  backend.launch(*kernel_.planned.kernel, shape, arguments_.data(), stream);
}

bool CallCounts::is_often(std::uint64_t hash) const {
  constexpr std::uint64_t kCount = 0xffff;
  std::atomic<std::uint64_t>& count = counts_[(hash >> 16) % counts_.size()];
  const std::uint64_t before = count.load(std::memory_order_relaxed);
  const bool same = (before & ~kCount) == (hash & ~kCount);
  const std::uint64_t calls = same ? (before & kCount) + 1 : 1;
  count.store((hash & ~kCount) | (calls % kCallsBeforePlan), std::memory_order_relaxed);
  return calls == kCallsBeforePlan;
}

}  // namespace kiln
