// What one kernel computes, over which operands: the value that stands for a kernel everywhere. A
// call of a Function becomes one for each shape among its outputs (call/call_specs.hpp), a step of
// a Program one (program/plan.hpp). From it come the kernel's text (emit_kernel.hpp), a call's plan
// (call/plan.hpp), and what is compiled ahead or explained (ahead/). It is the same for all
// targets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/attention_space.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/infer/scan_space.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"
#include "kernel/array_type.hpp"
#include "kiln/options.hpp"

namespace kiln {

/// A function of which every value has its dtype.
struct TypedFunction {
  std::string name;
  std::string expression;  ///< in the text form
  Options options;
  fusion::TypedGraph graph;
  std::int64_t splits = 1;  ///< parts of each row, with a result for each: a split reduction
  std::vector<fusion::AxisBound> bounds{};  ///< of each bound of the graph: of KernelSpec::shape
  fusion::ForcedRows forced{};
};

/// Every element of the iteration space on its own.
struct ElementwiseForm {};
/// Rows; some values have one element for each.
struct RowsForm {
  fusion::ReduceSpace space;
  std::vector<bool> row_invariant;  ///< of each operand, whether it has one element for each row
};
/// Running results along an axis.
using ScanForm = fusion::ScanSpace;
/// Online softmax over keys and the weighted sum of values.
using AttentionForm = fusion::AttentionSpace;
/// How the kernel goes through its iteration space. Rows that share operands are laid out as
/// products where the target can (emit_kernel.cpp).
using KernelForm = std::variant<ElementwiseForm, RowsForm, ScanForm, AttentionForm>;

struct KernelSpec {
  TypedFunction function;
  Dims shape;  ///< of the iteration space
  KernelForm form;
  std::vector<fusion::Operand> operands;  ///< array arguments, outputs, iotas: over `shape`
  /// The arguments and outputs of the call that are the function's, by position.
  std::vector<std::size_t> arguments;
  std::vector<std::size_t> outputs;
  /// Of a call: outputs that are updated in place, and the arguments that they must be the views
  /// of, by position.
  std::vector<std::pair<std::size_t, std::size_t>> updates{};
};

/// The kernel of a function on such arrays; `arrays` are its array arguments in order. Throws
/// Error: unsupported where one kernel cannot compute it, invalid_argument for outputs that do not
/// fit. Outputs of a function that works element by element have one shape, but for axes of size
/// one in front, to which its arguments broadcast.
KernelSpec kernel_spec(TypedFunction function, std::span<const ArrayType> arrays,
                       std::span<const ArrayType> outputs);

/// Why no kernel over rows can compute a graph that reduces, whose space that is; empty if one can.
/// The graph has no trivial reductions, and its indices have shapes (shape_graph).
std::string rows_conflict(const fusion::TypedGraph& graph, std::span<const Dims> shapes,
                          const fusion::ReduceSpace& space);

/// The shape of every argument, an empty one for a scalar.
std::vector<Dims> argument_shapes(const fusion::TypedGraph& graph,
                                  std::span<const ArrayType> arrays);

}  // namespace kiln
