// A decoder of the Llama architecture, written over kiln's public API: one graph launch is one
// token of every sequence of a batch. Token and position live on the device, so that one recorded
// graph serves every position. Prompts go through it token by token; an engine would run a long
// prompt as matrices, with its GEMM as a kiln::LibraryCall (src/program/gemm.md).
#pragma once

#include <kiln/kiln.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "memory.hpp"

namespace decode {

struct Shape {
  std::int64_t layers = 0, width = 0, hidden = 0, heads = 0, kv_heads = 0, vocabulary = 0;
  double rope_base = 10000, norm_eps = 1e-5;
  /// Elements of a row of weights that share a scale and a bias; 0: weights are floats.
  std::int64_t group = 0;
  /// That weights are multiplied with; i8: f32, quantised with a scale for each group.
  kiln::DType activations = kiln::DType::f32;
  kiln::DType cache = kiln::DType::f32;  ///< of keys and values
  std::int64_t head() const { return width / heads; }
  kiln::DType floats() const {
    return activations == kiln::DType::i8 ? kiln::DType::f32 : activations;
  }
};

struct Tensor {
  kiln::DType dtype = kiln::DType::f32;
  kiln::Dims shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Tensor>;
using Views = std::map<std::string, kiln::View>;

/// Every tensor of a .safetensors file. Throws std::runtime_error for what is none.
Tensors read_safetensors(const std::string& path);

/// Weights on a device. Matrices are [rows, columns] of floats, or [rows, groups, group] of u4 with
/// NAME_scale and NAME_bias [rows, groups, 1]. A layer has norm1, norm2 [width], wqkv (of queries,
/// keys and values), wo, w13 (of gates and of what they are multiplied with) and w2; the ends have
/// embedding [vocabulary, width] of floats, norm [width] and output.
struct Weights {
  Shape shape;
  Views ends;
  std::vector<Views> layers;
};
/// The model of tests/data/stories260k.safetensors.
Weights stories260k(const Tensors& file, const Memory& memory);

/// `batch` sequences of up to `positions` tokens.
class Decoder {
 public:
  Decoder(const Weights& weights, const Memory& memory, std::int64_t batch, std::int64_t positions);
  /// Begins all sequences anew, each with `prompt` from `position` on, as if tokens before that had
  /// been decoded. Waits.
  void reset(const std::vector<std::int32_t>& prompt, std::int64_t position = 0) const;
  /// One token for each sequence. Waits for nothing.
  void step() { token_->launch(memory_.stream); }
  /// The tokens of a sequence, -1 where there is none yet. Waits.
  std::vector<std::int32_t> tokens(std::int64_t sequence = 0) const;
  /// The logits of the last step, [batch, vocabulary]. Waits.
  std::vector<float> logits() const;
  const kiln::Graph& graph() const { return *token_; }

  /// A part of a token: what it computes, in kiln's text form, and the names of its results.
  struct Piece {
    std::string kind, text, results;
    bool of_layer = true;
  };
  std::vector<Piece> pieces() const;
  /// Records a piece, for every layer or once. Its arguments and results are named after what is in
  /// memory: weights, and what has been added.
  void record(kiln::Recorder& recorder, const Piece& piece);
  void add(const std::string& name, kiln::DType dtype, const kiln::Dims& shape);

 private:
  const Shape shape_;
  const Memory memory_;
  const std::int64_t batch_, positions_;
  Views state_;                ///< what layers share
  std::vector<Views> layers_;  ///< weights, keys and values
  Views ends_;
  kiln::View workspace_;
  std::optional<kiln::Graph> token_;
};

}  // namespace decode
