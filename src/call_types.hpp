// The types and shape of a call, checked: what plans and compile-only kernels have in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/emit.hpp"
#include "fusion/infer.hpp"
#include "kernel_code.hpp"
#include "plan.hpp"

namespace kiln {

/// One operand of a call without its memory.
struct OperandShape {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  std::uint64_t address = 0;
};

/// A call whose dtypes and shapes fit the function.
struct TypedCall {
  fusion::TypedGraph graph;
  Dims shape;                             ///< of the outputs
  std::vector<fusion::Operand> operands;  ///< array arguments, then outputs; broadcast to `shape`
};

/// Types and broadcasts. `arrays` are the array arguments in order, `outputs` what is stored into;
/// an output without a shape (`natural_outputs`) gets the broadcast one in C order and its natural
/// dtype. Throws Error(invalid_argument) that names the function and the argument.
TypedCall type_call(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                    std::span<const OperandShape> arrays, std::span<const OperandShape> outputs);
TypedCall type_call_natural(const Definition& definition,
                            std::span<const fusion::ArgumentType> arguments,
                            std::span<const OperandShape> arrays, std::span<const DType> outputs);

/// The kernel of a typed call for a target, in words and as a request to kernel_code.hpp.
struct EmittedCall {
  fusion::Layout layout;
  fusion::KernelDescription kernel;
  KernelRequest request;
  std::string variant;
  std::uint64_t bytes = 0;  ///< that a launch moves
};
EmittedCall emit_call(const Definition& definition, const TypedCall& call, std::string_view target);

/// The family of a target: gfx*, sm_*, everything else is the host.
fusion::Family family_of(std::string_view target);

}  // namespace kiln
