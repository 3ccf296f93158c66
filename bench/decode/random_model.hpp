// Weights that nobody has trained, to measure models of any shape.
#pragma once

#include "decoder.hpp"

namespace decode {

/// Random weights of u4 with groups of `shape.group`, of which all layers have the same.
Model random_model(const Shape& shape);

}  // namespace decode
