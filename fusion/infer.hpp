// Inference: from a graph and the dtypes of one call to a typed graph in which every operand
// already has the dtype its op wants. Promotion, weak literals and rounding are decided here and
// nowhere else.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fusion/graph.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

/// What one call passes for one argument.
struct ArgumentType {
  DType dtype = DType::f32;
  bool scalar = false;  ///< a run-time scalar, passed by value
  bool weak = false;    ///< a scalar that takes its partner's dtype, like a literal
  friend bool operator==(const ArgumentType&, const ArgumentType&) = default;
};

/// A value with its dtype. `operands` have exactly the dtype that `op` computes in: the common
/// dtype for compare and select, the result's for the rest.
struct TypedNode {
  Op op = Op::input;
  DType dtype = DType::f32;
  std::uint8_t arity = 0;
  std::array<NodeId, 3> operands{};
  std::uint64_t payload = 0;  ///< of input and scalar: the argument's position; of constant: its
                              ///< bits in `dtype`, or for f16 and bf16 under Rounding::once the
                              ///< bits of an f32; of a reduction: its AxisSet; of iota: its axis;
                              ///< of what graph.hpp keeps in tables: its place there
  std::span<const NodeId> inputs() const { return {operands.data(), arity}; }
  friend bool operator==(const TypedNode&, const TypedNode&) = default;
};

struct TypedGraph {
  std::vector<TypedNode> nodes;  ///< live ones only, operands first
  std::vector<NodeId> outputs;   ///< of the dtype the caller stores, by a final `cast` where needed
  std::vector<ArgumentType> arguments;
  std::vector<std::string> argument_names;
  std::vector<std::string> output_names;
  Rounding rounding = Rounding::once;
  std::shared_ptr<const Tables> tables{};
};

/// The dtype of two operands, by the JAX lattice (numerics.md). Symmetric.
DType promote(DType a, DType b);

/// The dtype in which a value of `dtype` is computed: f32 for the narrow floats, i32 for u4 and i4.
DType compute_dtype(DType dtype);

/// The dtype of a weak literal beside a partner, and alone.
DType weak_dtype(Kind literal, DType partner);
DType weak_dtype(Kind literal);

/// Types `graph` for the given arguments. `outputs` holds the dtype of each output the caller
/// stores into, or is empty for the natural ones; a store may widen or narrow within a kind and go
/// from bool to integer to float, anything else needs a written cast and is
/// Error(invalid_argument). `function` names the function in messages.
TypedGraph infer(const Graph& graph, std::span<const ArgumentType> arguments,
                 std::span<const DType> outputs, Rounding rounding, std::string_view function);

}  // namespace kiln::fusion
