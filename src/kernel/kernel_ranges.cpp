#include "kernel/kernel_ranges.hpp"

#include <fmt/format.h>

#include "fusion/schedule/size_tape.hpp"
#include "kernel/emit_kernel.hpp"
#include "kernel/target.hpp"

namespace kiln {
namespace {

// The strides of an operand follow from extents where it is in C order but for the axes along which
// it repeats.
void follow_extents(fusion::SizedOperand& operand, const fusion::Sizes& sizes, const Dims& shape) {
  fusion::Size step = 1;
  std::int64_t plain = 1;
  for (std::size_t k = shape.size(); k-- > 0;) {
    const auto stride = static_cast<std::int64_t>(operand.strides[k]);
    if (stride == 0 || shape[k] == 1) continue;
    if (stride != plain) return;
    operand.strides[k] = step;
    step = step * sizes[k];
    plain *= shape[k];
  }
}

}  // namespace

std::vector<std::string> schedule_ranges(const KernelSpec& spec, std::string_view target) {
  fusion::SizeRecorder recorder;
  fusion::Sizes sizes = fusion::sized(spec.shape);
  std::vector<std::string> names;
  for (std::size_t k = 0; k < spec.shape.size(); ++k) {
    if (spec.shape[k] == 0) return {};
    if (spec.shape[k] == 1) continue;
    sizes[k] = recorder.input(spec.shape[k]);
    names.push_back(fmt::format("axis {}", k));
  }
  fusion::ScratchVector<fusion::SizedOperand> operands = fusion::sized(spec.operands);
  for (fusion::SizedOperand& operand : operands) follow_extents(operand, sizes, spec.shape);
  plan_kernel(spec.function, spec.form, sizes, operands, features_of(target));
  std::vector<std::uint16_t> places;
  const std::optional<fusion::SizeTape> tape = recorder.finish({}, places);
  if (!tape) return {};
  return tape->conditions(names);
}

}  // namespace kiln
