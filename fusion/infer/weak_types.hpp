// What each node of a graph is for one call's arguments before any weak value, such as a literal,
// has met a partner: the first half of inference (infer.hpp).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fusion/graph/graph.hpp"
#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// A node's dtype, or of a weak one only its kind.
struct WeakType {
  DType dtype = DType::f32;
  bool weak = false;
  Kind kind = Kind::floating;
};

/// The dtype that a tuple has in place of its own.
inline constexpr DType kTupleDType = DType::boolean;

/// One of each node. Operands that an op does not take are Error(invalid_argument); `function`
/// names the function in messages.
std::vector<WeakType> weak_types(const Graph& graph, std::span<const ArgumentType> arguments,
                                 std::string_view function);

/// The dtype of a value that no partner decides.
DType natural_dtype(const WeakType& type);

/// The common type of the operands of `node` from `first` on; weak if all of them are. `types`
/// holds one of each node of the graph.
WeakType common_type(std::span<const WeakType> types, const Node& node, std::size_t first);

}  // namespace kiln::fusion
