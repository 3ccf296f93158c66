// The layer of a decoder as its users write it: pieces of text in the ways that ports of other
// libraries have, in any sizes. What they compute is the same but for where numbers are rounded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln::testing {

struct LayerSizes {
  std::int64_t batch = 1;
  std::int64_t positions = 1024;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t depth = 128;
  std::int64_t hidden = 14336;
};

struct LayerWriting {
  std::string name;
  std::map<std::string, std::string> pieces;  ///< instead of those of the first writing
  std::size_t kernels = 8;                    ///< that it takes at most
};

const std::vector<LayerWriting>& layer_writings();

/// The text of a layer of such sizes. Its last outputs are caches, updated in place.
std::string written_layer(const LayerWriting& writing, const LayerSizes& sizes);

struct LayerOperand {
  DType dtype = DType::f32;
  Dims shape;
};
/// All arguments that such texts may have, by their names.
std::map<std::string, LayerOperand> layer_operands(const LayerSizes& sizes);

}  // namespace kiln::testing
