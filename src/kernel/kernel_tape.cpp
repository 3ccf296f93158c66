#include "kernel/kernel_tape.hpp"

#include <algorithm>

#include "fusion/emit/pack_values.hpp"
#include "kernel/emit_kernel.hpp"

namespace kiln {
namespace {

using fusion::Size;

// Takes the numbers of a call as inputs of a recorder.
class Inputs {
 public:
  Inputs(fusion::SizeRecorder& recorder, const std::function<bool(const CallNumber&)>& varies)
      : recorder_(recorder), varies_(varies) {}

  Size operator()(std::int64_t value, const CallNumber& number) {
    if (!varies_(number)) return value;
    numbers.push_back(number);
    return recorder_.input(value);
  }

  std::vector<CallNumber> numbers;

 private:
  fusion::SizeRecorder& recorder_;
  const std::function<bool(const CallNumber&)>& varies_;
};

void take_operand(Inputs& inputs, const fusion::Operand& own, std::uint16_t i,
                  fusion::SizedOperand& operand) {
  using Kind = CallNumber::Kind;
  for (std::size_t k = 0; k < own.strides.size(); ++k) {
    operand.strides[k] = inputs(own.strides[k], {Kind::stride, i, static_cast<std::uint16_t>(k)});
  }
  operand.offset = inputs(own.offset, {Kind::offset, i});
  operand.split_stride = inputs(own.split_stride, {Kind::split_stride, i});
  operand.place.element = inputs(own.place.element, {Kind::place, i});
  if (own.indexed.exists()) {
    operand.indexed.stride = inputs(own.indexed.stride, {Kind::place_stride, i});
    operand.indexed.extent = inputs(own.indexed.extent, {Kind::place_count, i});
  }
  if (!own.iota) {
    operand.address = inputs(static_cast<std::int64_t>(own.address), {Kind::address, i});
  }
}

}  // namespace

std::optional<KernelTape> KernelTape::record(const TypedFunction& function, const KernelForm& form,
                                             const Dims& shape,
                                             std::span<const fusion::Operand> operands,
                                             const TargetFeatures& target,
                                             std::span<const fusion::Parameter> parameters,
                                             const fusion::ParameterBlock& block,
                                             const std::function<bool(const CallNumber&)>& varies) {
  fusion::SizeRecorder recorder;
  Inputs inputs(recorder, varies);
  fusion::Sizes sizes = fusion::sized(shape);
  for (std::size_t k = 0; k < shape.size(); ++k) {
    sizes[k] = inputs(shape[k], {CallNumber::Kind::extent, 0, static_cast<std::uint16_t>(k)});
  }
  fusion::ScratchVector<fusion::SizedOperand> sized = fusion::sized(operands);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    take_operand(inputs, operands[i], static_cast<std::uint16_t>(i), sized[i]);
  }
  const fusion::SizedLayout layout = plan_kernel(function, form, sizes, sized, target);
  if (layout.work_items == 0) return std::nullopt;

  KernelTape made;
  made.bytes_.resize(block.bytes.size());
  std::vector<Size> results;
  for (const fusion::Parameter& parameter : parameters) {
    results.push_back(parameter.kind == fusion::Parameter::Kind::pointer
                          ? layout.offsets[parameter.index]
                          : fusion::value_of(parameter, layout));
  }
  results.push_back(layout.threads());
  results.push_back(layout.block());
  std::vector<std::uint16_t> places;
  std::optional<fusion::SizeTape> tape = recorder.finish(results, places);
  if (!tape) return std::nullopt;
  const auto number = [&](std::size_t i) {
    const bool fixed = places[i] == fusion::SizeTape::kFixed;
    return Number{places[i], fixed ? static_cast<std::int64_t>(results[i]) : 0};
  };
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const fusion::Parameter& parameter = parameters[p];
    if (parameter.kind == fusion::Parameter::Kind::pointer) {
      const auto operand = static_cast<std::uint32_t>(parameter.index);
      made.pointers_.push_back({block.offsets[p], operand, bits(parameter.dtype), number(p)});
    } else if (places[p] != fusion::SizeTape::kFixed) {
      const auto bytes = static_cast<std::uint16_t>(parameter.bytes);
      made.values_.push_back({places[p], bytes, block.offsets[p]});
    } else if (parameter.kind != fusion::Parameter::Kind::scalar) {
      fusion::pack_value(static_cast<std::int64_t>(results[p]), parameter.bytes,
                         made.bytes_.data() + block.offsets[p]);
    }
  }
  made.threads_ = number(parameters.size());
  made.block_ = number(parameters.size() + 1);
  for (const std::uint32_t input : tape->inputs()) made.inputs_.push_back(inputs.numbers[input]);
  made.tape_ = *std::move(tape);
  return made;
}

std::size_t KernelTape::size() const {
  return sizeof *this + tape_.bytes() + inputs_.size() * sizeof(CallNumber) +
         values_.size() * sizeof(Value) + pointers_.size() * sizeof(Pointer) + bytes_.size();
}

}  // namespace kiln
