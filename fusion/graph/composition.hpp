// Library functions that are compositions of ops: relu, silu, gelu and their kin. They are not ops:
// the graph, emit and the reference see only what they are made of.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fusion/graph/graph.hpp"

namespace kiln::fusion {

struct Composition {
  std::string_view name;
  int min_arity;
  int max_arity;             ///< above min_arity where trailing parameters have defaults
  std::string_view formula;  ///< for people and the documentation
  Bounds f32;                ///< of an f32 result, with the default parameters
  Bounds f64;
  NodeId (*build)(Graph&, std::span<const NodeId>);
};

std::span<const Composition> all_compositions();
const Composition* find_composition(std::string_view name);

/// Adds the op, composition or reduction of that name. Throws Error(invalid_argument) that names
/// the function, the number of arguments expected and given, and for an unknown name the nearest
/// known one.
NodeId call(Graph& graph, std::string_view function, std::span<const NodeId> arguments);
/// Every name that call() knows.
std::vector<std::string_view> callable_names();

}  // namespace kiln::fusion
