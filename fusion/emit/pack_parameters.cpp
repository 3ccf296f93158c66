#include <algorithm>
#include <bit>
#include <cstring>

#include "fusion/emit/pack_values.hpp"
#include "fusion/graph/broadcast.hpp"

namespace kiln::fusion {

void pack_values(std::span<const Parameter> parameters, const Layout& layout,
                 std::span<const std::uint32_t> offsets, std::byte* block) {
  static_assert(std::endian::native == std::endian::little,
                "a narrow index is an index's first bytes");
  const std::int64_t inner = layout.shape[layout.shape.size() - 1];
  const Schedule& schedule = layout.schedule;
  const int step = schedule.tile != 0 ? schedule.tile_rows : schedule.width;
  const std::int64_t rows = layout.shape[static_cast<std::size_t>(schedule.tile_axis)];
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    std::byte* const to = block + offsets[p];
    const auto put_index = [&](std::int64_t value) {
      // Nothing is called to copy a constant number of bytes.
      if (parameter.bytes == 8) return void(std::memcpy(to, &value, 8));
      if (parameter.bytes == 4) return void(std::memcpy(to, &value, 4));
      std::memcpy(to, &value, parameter.bytes);
    };
    const auto put_divisor = [&](std::int64_t value) {
      if (parameter.bytes == 8) return put_index(value);
      // Along an axis without elements nothing is divided.
      const Divisor divisor =
          make_divisor(static_cast<std::uint32_t>(std::max<std::int64_t>(1, value)));
      std::memcpy(to, &divisor, sizeof divisor);
    };
    switch (parameter.kind) {
      case Parameter::Kind::pointer:
      case Parameter::Kind::scalar: break;
      case Parameter::Kind::size:
        put_index(schedule.flat && schedule.tile == 0 ? element_count(layout.shape) : inner);
        break;
      case Parameter::Kind::work_items:
        put_index(static_cast<std::int64_t>(layout.work_items));
        break;
      case Parameter::Kind::columns: put_divisor(layout.row_items()); break;
      case Parameter::Kind::rows: put_index(rows); break;
      case Parameter::Kind::strips: put_divisor((rows + step - 1) / step); break;
      case Parameter::Kind::extent: put_divisor(layout.shape[parameter.axis]); break;
      case Parameter::Kind::start: put_index(layout.starts[parameter.index]); break;
      case Parameter::Kind::stride:
        put_index(layout.strides(parameter.index, parameter.axis));
        break;
      case Parameter::Kind::row_count: put_index(layout.units); break;
      case Parameter::Kind::row_blocks: put_divisor(layout.row_blocks); break;
      case Parameter::Kind::row_repeats: put_divisor(layout.row_repeats); break;
      case Parameter::Kind::vectors: put_index(layout.vectors); break;
      case Parameter::Kind::length: put_index(layout.reduced); break;
      case Parameter::Kind::column_strips: put_divisor(layout.column_strips); break;
      case Parameter::Kind::splits: put_divisor(layout.splits); break;
      case Parameter::Kind::split_vectors:
        put_index((layout.vectors + layout.splits - 1) / layout.splits);
        break;
      case Parameter::Kind::split_stride: put_index(layout.split_strides[parameter.index]); break;
      case Parameter::Kind::run: put_divisor(layout.runs[parameter.index].length); break;
      case Parameter::Kind::run_stride: put_index(layout.runs[parameter.index].stride); break;
      case Parameter::Kind::place_stride: put_index(layout.indexed[parameter.index].stride); break;
      case Parameter::Kind::place_count: put_index(layout.indexed[parameter.index].extent); break;
      case Parameter::Kind::launched_early: put_index(0); break;
    }
  }
}

ParameterBlock pack_parameters(const KernelDescription& kernel, const Layout& layout) {
  ParameterBlock block;
  std::size_t end = 0;
  for (const Parameter& parameter : kernel.parameters) {
    const bool is_divisor = parameter.bytes == sizeof(Divisor);
    const std::size_t alignment = is_divisor ? 4 : parameter.bytes;
    const std::size_t offset = (end + alignment - 1) / alignment * alignment;
    block.offsets.push_back(static_cast<std::uint32_t>(offset));
    block.sizes.push_back(parameter.bytes);
    end = offset + parameter.bytes;
  }
  block.bytes.resize(end);
  pack_values(kernel.parameters, layout, block.offsets, block.bytes.data());
  return block;
}

}  // namespace kiln::fusion
