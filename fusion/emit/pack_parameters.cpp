#include "fusion/emit/pack_values.hpp"

namespace kiln::fusion {

template <class Number>
Number value_of(const Parameter& parameter, const LayoutOf<Number>& layout) {
  using Kind = Parameter::Kind;
  const Schedule& schedule = layout.schedule;
  const std::size_t i = parameter.index;
  const auto rows = [&] { return layout.shape[static_cast<std::size_t>(schedule.tile_axis)]; };
  switch (parameter.kind) {
    case Kind::pointer:
    case Kind::scalar:
    case Kind::launched_early: return 0;
    case Kind::size: {
      Number size = layout.shape[layout.shape.size() - 1];
      const bool all = schedule.flat && schedule.tile == 0;
      const std::size_t axes =
          all ? layout.shape.size() : static_cast<std::size_t>(schedule.row_axes);
      for (std::size_t k = 2; k <= axes; ++k) size *= layout.shape[layout.shape.size() - k];
      return size;
    }
    case Kind::row_part: return layout.row_part;
    case Kind::work_items: return static_cast<Number>(layout.work_items);
    case Kind::columns: return layout.row_items();
    case Kind::rows: return rows();
    case Kind::strips: {
      const int step = schedule.tile != 0 ? schedule.tile_rows : schedule.width;
      return (rows() + step - 1) / step;
    }
    case Kind::extent: return layout.shape[parameter.axis];
    case Kind::start: return layout.starts[i];
    case Kind::stride: return layout.strides(i, parameter.axis);
    case Kind::row_count: return layout.units;
    case Kind::row_blocks: return layout.row_blocks;
    case Kind::row_repeats: return layout.row_repeats;
    case Kind::vectors: return layout.vectors;
    case Kind::length: return layout.reduced;
    case Kind::column_strips: return layout.column_strips;
    case Kind::splits: return layout.splits;
    case Kind::split_vectors: return (layout.vectors + layout.splits - 1) / layout.splits;
    case Kind::split_stride: return layout.split_strides[i];
    case Kind::run: return layout.runs[i].length;
    case Kind::run_stride: return layout.runs[i].stride;
    case Kind::place_stride: return layout.indexed[i].stride;
    case Kind::place_count: return layout.indexed[i].extent;
  }
  return 0;
}

template std::int64_t value_of(const Parameter&, const Layout&);
template Size value_of(const Parameter&, const SizedLayout&);

void pack_values(std::span<const Parameter> parameters, const Layout& layout,
                 std::span<const std::uint32_t> offsets, std::byte* block) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    if (!has_value(parameter)) continue;
    pack_value(value_of(parameter, layout), parameter.bytes, block + offsets[p]);
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
