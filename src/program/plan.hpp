// The plan of a program for calls of one signature: its kernels as functions, what each reads and
// writes, and where temporaries lie in the workspace.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "call/call_types.hpp"
#include "fusion/partition/partition.hpp"
#include "fusion/partition/workspace.hpp"
#include "kiln/library_call.hpp"
#include "kiln/program.hpp"
#include "program/step_kernel.hpp"

namespace kiln {

/// An operand of a step: an argument or output of the program or a temporary, or a view of one.
struct ProgramOperand {
  enum class Kind : std::uint8_t {
    argument,
    output,
    temporary,
    length,  ///< no memory but a number of elements, which `index` is
  };
  Kind kind = Kind::argument;
  std::size_t index = 0;
  bool scalar = false;  ///< a number, an argument or a length: what follows is empty
  Dims shape{};
  fusion::ArrayLayout layout{};  ///< from the first element of the argument, output or temporary
};

/// A kernel, or a call of the caller.
struct ProgramStep {
  std::shared_ptr<StepKernel> kernel;  ///< or else
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
  /// Outputs that are updated in place, and the arguments that they are.
  std::vector<std::pair<std::size_t, std::size_t>> updates;
  ProgramInfo info;
};

/// How a plan was chosen.
struct PlanChoice {
  bool is_smaller = false;  ///< less is fused in it, since the first plan was larger than no fusion
  /// What the workspace would hold if every operation had a kernel of its own; empty where the plan
  /// needs none.
  std::vector<fusion::Lifetime> unfused;
};

/// Plans a call; compiles nothing. Its outputs may be left open: then they are of the natural
/// dtypes, in C order. Throws Error(invalid_argument).
ProgramPlan plan_program(const Definition& definition, const CallTypes& call,
                         const fusion::CostModel& model = {}, PlanChoice* choice = nullptr);

/// The bytes of workspace if every operation had a kernel of its own.
std::uint64_t unfused_workspace(const Definition& definition, const CallTypes& call);

DType operand_dtype(const ProgramOperand& operand, const ProgramPlan& plan, const CallTypes& call);
/// What a step of the plan of such a call reads and writes.
CallTypes step_types(const ProgramPlan& plan, const ProgramStep& step, const CallTypes& call);
/// The kernels of such a plan, in order.
std::vector<KernelSpec> step_specs(const ProgramPlan& plan, const CallTypes& call);

/// A call, with the target of its device.
CallTypes program_types(const Call& call);
/// The call that such a specification describes, for a target, or for any. Throws
/// Error(invalid_argument).
CallTypes program_types(const Definition& definition, const Specification& specification,
                        std::string_view target = {});

}  // namespace kiln
