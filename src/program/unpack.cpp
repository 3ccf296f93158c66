#include "program/unpack.hpp"

#include <algorithm>

#include "call/call_reduction.hpp"
#include "fusion/infer/shapes.hpp"

namespace kiln {
namespace {

using Kind = ProgramOperand::Kind;

class Kernels {
 public:
  Kernels(const ProgramPlan& plan, const ProgramCall& call) : plan_(plan), call_(call) {}

  bool reads_packed(const ProgramOperand& operand) const {
    return !operand.scalar && is_packed(dtype_of(operand));
  }

  // Whether there is such a kernel.
  bool is_there(const ProgramStep& step) const {
    const Definition& definition = step.function->impl().definition;
    if (!fusion::works_along_axes(*definition.typed)) return true;
    if (fusion::has_scans(*definition.typed)) return false;
    std::vector<fusion::ArgumentType> types;
    std::vector<OperandShape> arrays;
    std::vector<OperandShape> outputs;
    for (const ProgramOperand& operand : step.inputs) {
      if (operand.scalar) {
        types.push_back(call_.arguments[operand.index]);
        continue;
      }
      types.push_back({dtype_of(operand), false, false});
      arrays.push_back(shape_of(operand));
    }
    for (const ProgramOperand& operand : step.outputs) outputs.push_back(shape_of(operand));
    return can_reduce_packed(type_reduction(definition, types, arrays, outputs, *definition.typed));
  }

 private:
  DType dtype_of(const ProgramOperand& operand) const {
    switch (operand.kind) {
      case Kind::argument: return call_.arguments[operand.index].dtype;
      case Kind::output: return plan_.output_dtypes[operand.index];
      case Kind::temporary: break;
    }
    return plan_.temporaries[operand.index].dtype;
  }

  OperandShape shape_of(const ProgramOperand& operand) const {
    return {dtype_of(operand), operand.shape, operand.layout.strides, 0, operand.layout.offset, {}};
  }

  const ProgramPlan& plan_;
  const ProgramCall& call_;
};

}  // namespace

bool add_to_unpack(fusion::Unpacked& unpacked, const ProgramPlan& plan, const ProgramCall& call) {
  const Kernels kernels(plan, call);
  unpacked.arguments.resize(call.arguments.size(), false);
  bool added = false;
  for (const ProgramStep& step : plan.steps) {
    const auto reads = [&](const ProgramOperand& operand) { return kernels.reads_packed(operand); };
    if (!step.function || std::ranges::none_of(step.inputs, reads)) continue;
    if (kernels.is_there(step)) continue;
    for (const ProgramOperand& operand : step.inputs) {
      if (!reads(operand)) continue;
      if (operand.kind == ProgramOperand::Kind::argument) {
        added = added || !unpacked.arguments[operand.index];
        unpacked.arguments[operand.index] = true;
      } else {  // only calls give others
        added = added || !unpacked.results;
        unpacked.results = true;
      }
    }
  }
  return added;
}

}  // namespace kiln
