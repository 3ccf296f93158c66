// Weights that nobody has trained, to measure models of any shape.
#pragma once

#include "decoder.hpp"

namespace decode {

/// Random weights of u4 with groups of `shape.group`: the same for all layers, each of which has
/// memory of its own.
Weights random_model(const Shape& shape, const Memory& memory);

}  // namespace decode
