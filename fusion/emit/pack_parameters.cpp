#include <algorithm>
#include <bit>
#include <cstring>

#include "fusion/emit/emit.hpp"

namespace kiln::fusion {

ParameterBlock pack_parameters(const KernelDescription& kernel, const Layout& layout) {
  ParameterBlock block;
  const auto put = [&](const void* value, std::size_t bytes, std::size_t alignment) {
    const std::size_t offset = (block.bytes.size() + alignment - 1) / alignment * alignment;
    block.bytes.resize(offset + bytes);
    block.offsets.push_back(static_cast<std::uint32_t>(offset));
    block.sizes.push_back(static_cast<std::uint32_t>(bytes));
    if (value != nullptr) std::memcpy(block.bytes.data() + offset, value, bytes);
  };
  const auto put_index = [&](std::int64_t value, std::uint32_t bytes) {
    put(&value, bytes, bytes);
  };
  const auto put_divisor = [&](std::int64_t value, std::uint32_t bytes) {
    if (bytes == 8) return put(&value, 8, 8);
    // Along an axis without elements nothing is divided.
    const Divisor divisor =
        make_divisor(static_cast<std::uint32_t>(std::max<std::int64_t>(1, value)));
    put(&divisor, sizeof divisor, 4);
  };
  static_assert(std::endian::native == std::endian::little,
                "a narrow index is an index's first bytes");
  const std::int64_t inner = layout.shape[layout.shape.size() - 1];
  const Schedule& schedule = layout.schedule;
  const int step = schedule.tile != 0 ? schedule.tile : schedule.width;
  const std::int64_t rows = layout.shape[static_cast<std::size_t>(schedule.tile_axis)];
  for (const Parameter& parameter : kernel.parameters) {
    switch (parameter.kind) {
      case Parameter::Kind::pointer:
      case Parameter::Kind::scalar: put(nullptr, parameter.bytes, parameter.bytes); break;
      case Parameter::Kind::size: put_index(inner, parameter.bytes); break;
      case Parameter::Kind::work_items:
        put_index(static_cast<std::int64_t>(layout.work_items), parameter.bytes);
        break;
      case Parameter::Kind::columns: put_divisor(layout.row_items(), parameter.bytes); break;
      case Parameter::Kind::rows: put_index(rows, parameter.bytes); break;
      case Parameter::Kind::strips: put_divisor((rows + step - 1) / step, parameter.bytes); break;
      case Parameter::Kind::extent:
        put_divisor(layout.shape[parameter.axis], parameter.bytes);
        break;
      case Parameter::Kind::start:
        put_index(layout.starts[parameter.index], parameter.bytes);
        break;
      case Parameter::Kind::stride:
        put_index(layout.strides[parameter.index][parameter.axis], parameter.bytes);
        break;
      case Parameter::Kind::row_count: put_index(layout.units, parameter.bytes); break;
      case Parameter::Kind::row_blocks: put_divisor(layout.row_blocks, parameter.bytes); break;
      case Parameter::Kind::vectors: put_index(layout.vectors, parameter.bytes); break;
      case Parameter::Kind::length: put_index(layout.reduced, parameter.bytes); break;
      case Parameter::Kind::column_strips:
        put_divisor(layout.column_strips, parameter.bytes);
        break;
      case Parameter::Kind::splits: put_divisor(layout.splits, parameter.bytes); break;
      case Parameter::Kind::split_vectors:
        put_index((layout.vectors + layout.splits - 1) / layout.splits, parameter.bytes);
        break;
      case Parameter::Kind::split_stride:
        put_index(layout.split_strides[parameter.index], parameter.bytes);
        break;
      case Parameter::Kind::launched_early: put_index(0, parameter.bytes); break;
    }
  }
  return block;
}

}  // namespace kiln::fusion
