// Numbers of a call as planners take them, numbers of a layout as they are, and planners between
// the two.
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/schedule/scan/scan_layout.hpp"

namespace kiln::fusion {
namespace {

template <class To, class From>
ScratchVector<To> list_of(const ScratchVector<From>& from) {
  ScratchVector<To> to;
  to.reserve(from.size());
  for (const From& one : from) to.push_back(To(one));
  return to;
}

}  // namespace

Sizes sized(const Dims& shape) {
  Sizes sizes;
  sizes.reserve(shape.size());
  for (const std::int64_t size : shape) sizes.push_back(size);
  return sizes;
}

ScratchVector<SizedOperand> sized(std::span<const Operand> operands) {
  ScratchVector<SizedOperand> all;
  all.reserve(operands.size());
  for (const Operand& own : operands) {
    SizedOperand& operand = all.emplace_back();
    operand.dtype = own.dtype;
    operand.output = own.output;
    operand.strides = sized(own.strides);
    operand.address = own.address;
    operand.offset = own.offset;
    operand.iota = own.iota;
    operand.split_stride = own.split_stride;
    operand.place = {own.place.memory, own.place.element};
    operand.indexed = {own.indexed.stride, own.indexed.extent};
    operand.index_operands = own.index_operands;
  }
  return all;
}

Layout plain(SizedLayout sized) {
  const auto of = [](Size size) { return static_cast<std::int64_t>(size); };
  Layout layout;
  layout.schedule = std::move(sized.schedule);
  layout.shape = Dims(sized.shape.size());
  layout.strides.reserve(sized.shape.size());
  for (std::size_t k = 0; k < sized.shape.size(); ++k) {
    layout.shape[k] = of(sized.shape[k]);
    AxisStrides strides;
    const std::size_t operands = layout.schedule.operands.size();
    strides.resize(operands);
    for (std::size_t i = 0; i < operands; ++i) strides[i] = of(sized.strides(i, k));
    layout.strides.add_axis(std::move(strides));
  }
  layout.axes = std::move(sized.axes);
  layout.offsets = list_of<std::int64_t>(sized.offsets);
  layout.starts = list_of<std::int64_t>(sized.starts);
  layout.work_items = static_cast<std::uint64_t>(sized.work_items);
  layout.rows = of(sized.rows);
  layout.units = of(sized.units);
  layout.column_strips = of(sized.column_strips);
  layout.vectors = of(sized.vectors);
  layout.reduced = of(sized.reduced);
  layout.row_blocks = of(sized.row_blocks);
  layout.row_repeats = of(sized.row_repeats);
  layout.row_part = of(sized.row_part);
  layout.splits = of(sized.splits);
  layout.split_strides = list_of<std::int64_t>(sized.split_strides);
  layout.indexed.reserve(sized.indexed.size());
  for (const auto& axis : sized.indexed) {
    layout.indexed.push_back({of(axis.stride), of(axis.extent)});
  }
  layout.runs.reserve(sized.runs.size());
  for (const auto& runs : sized.runs) layout.runs.push_back({of(runs.length), of(runs.stride)});
  return layout;
}

Layout plan_layout(const Dims& shape, std::span<const Operand> operands, Backend backend,
                   std::span<const AxisBound> bounds) {
  return plain(plan_layout(sized(shape), sized(operands), backend, bounds));
}

Layout plan_rows(const ReduceSpace& space, const Dims& shape, std::span<const Operand> operands,
                 const std::vector<bool>& row_invariant, bool keep_order, Backend backend,
                 const RowFeatures& device, std::span<const AxisBound> bounds) {
  return plain(plan_rows(space, sized(shape), sized(operands), row_invariant, keep_order, backend,
                         device, bounds));
}

Layout plan_scan(const Dims& shape, std::size_t axis, std::span<const Operand> operands,
                 Backend backend) {
  return plain(plan_scan(sized(shape), axis, sized(operands), backend));
}

}  // namespace kiln::fusion
