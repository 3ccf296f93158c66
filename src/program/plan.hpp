// The plan of a program for calls of one signature: its kernels as functions, what each reads and
// writes, and where temporaries lie in the workspace.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "call/call_types.hpp"
#include "call/function_impl.hpp"
#include "fusion/partition/partition.hpp"
#include "kiln/library_call.hpp"
#include "kiln/program.hpp"

namespace kiln {

/// An operand of a step: an argument or output of the program or a temporary, or a view of one.
struct ProgramOperand {
  enum class Kind : std::uint8_t { argument, output, temporary };
  Kind kind = Kind::argument;
  std::size_t index = 0;
  bool scalar = false;  ///< an argument that is a number: what follows is empty
  Dims shape{};
  fusion::ArrayLayout layout{};  ///< from the first element of the argument, output or temporary
};

/// A kernel, or a call of the caller.
struct ProgramStep {
  std::optional<Function> function;
  std::shared_ptr<const LibraryCall> call;
  Dims shape{};  ///< that the kernel runs over
  std::vector<ProgramOperand> inputs;
  std::vector<ProgramOperand> outputs;
};

struct ProgramPlan {
  struct Temporary {
    DType dtype = DType::f32;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
  };
  std::vector<ProgramStep> steps;
  std::vector<Temporary> temporaries;
  std::vector<Dims> output_shapes;
  std::vector<DType> output_dtypes;
  std::vector<std::size_t> last_read;  ///< of each argument: the last step that reads it, plus one
  std::vector<std::size_t> written;    ///< of each output: the first step that writes to it
  ProgramInfo info;
};

/// What a program is called with, without memory. Arrays among the arguments, in their order.
/// Outputs may be empty: the natural dtypes, in C order.
struct ProgramCall {
  std::vector<fusion::ArgumentType> arguments;
  std::vector<OperandShape> arrays;
  std::vector<OperandShape> outputs;
};

/// Plans a call; compiles nothing. Throws Error(invalid_argument).
ProgramPlan plan_program(const Definition& definition, const ProgramCall& call,
                         const fusion::CostModel& model = {});

/// The bytes of workspace if every operation had a kernel of its own.
std::uint64_t op_by_op_workspace(const Definition& definition, const ProgramCall& call);

/// The call that such a specification describes. Throws Error(invalid_argument).
ProgramCall program_call(const Definition& definition, const Specification& specification);

}  // namespace kiln
