// The plan of a program for calls of one signature: its kernels as functions, what each reads and
// writes, and where temporaries lie in the workspace.
#pragma once

#include <string>
#include <vector>

#include "function_impl.hpp"
#include "fusion/kernel_graph.hpp"
#include "kiln/program.hpp"

namespace kiln {

/// An operand of a kernel: an argument or output of the program, or a temporary.
struct ProgramOperand {
  enum class Kind : std::uint8_t { argument, output, temporary };
  Kind kind = Kind::argument;
  std::size_t index = 0;
};

struct ProgramStep {
  Function function;
  std::vector<ProgramOperand> inputs;
  std::vector<ProgramOperand> outputs;
};

struct ProgramPlan {
  struct Temporary {
    DType dtype = DType::f32;
    Dims shape;
    std::uint64_t offset = 0;
  };
  std::vector<ProgramStep> steps;
  std::vector<Temporary> temporaries;
  std::vector<Dims> output_shapes;
  std::vector<std::size_t> last_read;  ///< of each argument: the last step that reads it, plus one
  std::vector<std::size_t> written;    ///< of each output: the step that writes it
  ProgramInfo info;
};

/// Plans for the dtypes and shapes of a call; compiles nothing. Throws Error(invalid_argument).
ProgramPlan plan_program(const Definition& definition,
                         std::span<const fusion::ArgumentType> arguments,
                         std::span<const Dims> argument_shapes, std::span<const DType> outputs,
                         const fusion::CostModel& model = {});

}  // namespace kiln
