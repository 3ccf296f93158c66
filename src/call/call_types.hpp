// The types and shapes of a call, checked: what plans and compile-only kernels have in common. Here
// a call whose outputs have several shapes is taken apart, into one kernel for each.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "call/plan.hpp"
#include "fusion/emit/emit.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/schedule/scan/scan_layout.hpp"
#include "kernel/kernel_request.hpp"

namespace kiln {

/// One operand of a call without its memory.
struct OperandShape {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  std::uint64_t address = 0;
  std::int64_t offset = 0;      ///< of the first element from the address
  fusion::MemoryPlace place{};  ///< Definition::places
};

/// The outputs of a call that have one shape, as a function of what they read: one kernel.
struct TypedCall {
  std::shared_ptr<const Definition> definition;  ///< the call's own if there is only one shape
  std::vector<std::size_t> arguments;  ///< positions in the call; of the definition's arguments
  std::vector<std::size_t> outputs;    ///< and of its outputs
  fusion::TypedGraph graph;
  Dims shape;  ///< of the outputs
  std::vector<fusion::Operand>
      operands;  ///< array arguments, outputs, counts; broadcast to `shape`
  std::optional<fusion::ReduceSpace> rows;  ///< if the graph contains reductions
  std::vector<bool> uniform;                ///< then: which operands have one element for each row
  std::optional<fusion::ScanSpace> scan;    ///< if the graph contains running results
};

/// Types and broadcasts. `arrays` are the array arguments in order. An output may have its natural
/// shape, which is that of the arguments it depends on broadcast against each other, or any shape
/// that this broadcasts to. The parts are in the order in which they must run: larger shapes first,
/// so that an output that is the view of an input is written when nothing reads it any more.
/// `definition` must outlive the result. Throws Error(invalid_argument) that names the function and
/// the argument.
std::vector<TypedCall> type_call(const Definition& definition,
                                 std::span<const fusion::ArgumentType> arguments,
                                 std::span<const OperandShape> arrays,
                                 std::span<const OperandShape> outputs);

/// The outputs that such a call would fill, in C order: of their natural shapes broadcast with
/// `at_least`, and of `dtypes`, or of their natural dtypes if there are none.
std::vector<OperandShape> natural_outputs(const Definition& definition,
                                          std::span<const fusion::ArgumentType> arguments,
                                          std::span<const OperandShape> arrays,
                                          std::span<const DType> dtypes, const Dims& at_least);

/// The kernel of a typed call for a target, in words and as a KernelRequest.
struct EmittedCall {
  fusion::Layout layout;
  fusion::KernelDescription kernel;  ///< but for its text, which is the request's
  KernelRequest request;
  std::string variant;
  std::uint64_t bytes = 0;  ///< that a launch moves
};
EmittedCall emit_call(const TypedCall& call, std::string_view target);

/// Throws Error(invalid_argument) unless `natural` broadcasts to the output's shape and no two
/// elements of it share memory.
void check_output(const Definition& definition, std::size_t index, const OperandShape& output,
                  const Dims& natural);
/// An operand of a layout over `shape`, to which it broadcasts.
fusion::Operand operand_of(const OperandShape& array, const Dims& shape, bool output);

/// The names of the operands of a layout, as its description and its kernel have them.
std::vector<std::string> operand_names(const fusion::TypedGraph& graph);

/// The backend of a target: gfx*, sm_*, everything else is the host.
fusion::Backend backend_of(std::string_view target);
/// Whether a target has the instructions of preamble/product_tiles.h: sm_80 and later ones.
bool has_tiles(std::string_view target);
/// How long rows can be shared out on a target.
fusion::RowFeatures row_features(std::string_view target);
/// Whether a target has the instructions of preamble/dependents.h: sm_90 and later ones.
bool has_programmatic_launches(std::string_view target);

}  // namespace kiln
