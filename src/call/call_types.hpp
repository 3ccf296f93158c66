// What a call passes, without its memory: the dtypes and layouts by which its kernels are chosen,
// from views or from a Specification.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/graph.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"
#include "kernel/array_type.hpp"
#include "kiln/function.hpp"
#include "kiln/specification.hpp"

namespace kiln {

/// The immutable part of a Function: a graph that each call gives types.
struct Definition {
  std::string name;
  fusion::Graph graph;
  Options options;
  std::string expression;       ///< in the text form
  fusion::ForcedRows forced{};  ///< of its reductions: for tests
};

/// What messages call a function and its operands. Refers to what it is made from.
struct CallNames {
  std::string_view function;
  std::span<const std::string> arguments;
  std::span<const std::string> outputs;
};
CallNames names_of(const Definition& definition);

/// One call's arguments, as the caller gave them.
struct Call {
  const Stream& stream;
  std::span<const Argument> inputs;
  std::span<const View> outputs;
};

/// "input 1 'up'", "output 0": an operand in messages. Inputs count from 0, outputs go on from
/// there.
std::string operand_label(const CallNames& names, const Call& call, std::size_t operand);
std::string operand_label(const CallNames& names, std::size_t inputs, std::size_t operand);

struct CallTypes {
  std::vector<fusion::ArgumentType> arguments;
  std::vector<ArrayType> arrays;  ///< the array arguments, in order
  std::vector<ArrayType> outputs;
  std::string target{};  ///< of a program: what its plan is for; empty: any target
};

CallTypes types_of(const Call& call);

/// Throws Error(invalid_argument) unless the call has as many operands as the function.
void check_counts(const CallNames& names, const Call& call);

/// Throws Error(invalid_argument) that calls the view `what` where it is on another device, or its
/// data is null or not aligned to its elements. A view of nothing has no data.
void check_operand(const CallNames& names, const View& view, const Device& device,
                   const std::string& what);

/// Both, of all operands, and their types.
CallTypes check_call(const CallNames& names, const Call& call);

/// What such a call passes for its arguments, in the order of the function's; the outputs are left
/// open. Throws Error(invalid_argument) for an argument that is missing or is none of the
/// function's.
CallTypes argument_types(const Definition& definition, const Specification& specification);

}  // namespace kiln
