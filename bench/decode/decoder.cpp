#include "decoder.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace decode {
namespace {

using kiln::Dims;
using kiln::DType;
using kiln::View;
using enum kiln::DType;

std::uint64_t bytes_of(const View& view) {
  return static_cast<std::uint64_t>(view.size() * bits(view.dtype()) / 8);
}

View block(const Memory& memory, DType dtype, const Dims& shape) {
  const View view(nullptr, dtype, shape, memory.stream.device);
  return view.with_data(memory.allocate(bytes_of(view)));
}

// The text of x [batch, columns] times a matrix: [batch, rows].
std::string product(const Shape& shape, std::string_view weights, std::string_view x,
                    std::int64_t rows, std::int64_t columns) {
  if (shape.group == 0) {
    return fmt::format("reshape(sum({} * {}[:, None], -1), -1, {})", weights, x, rows);
  }
  return fmt::format(
      "reshape(sum(({0} * {0}_scale + {0}_bias) * reshape({1}, -1, 1, {2}, {3}), -1, -2), -1, {4})",
      weights, x, columns / shape.group, shape.group, rows);
}

}  // namespace

Weights::Weights(const Model& model, const Memory& memory) : shape(model.shape) {
  const auto place = [&](const Tensors& tensors, Views& views) {
    for (const auto& [name, tensor] : tensors) {
      const View view = block(memory, tensor.dtype, tensor.shape);
      memory.to_device(view.data(), tensor.bytes.data(), tensor.bytes.size());
      if (name != "embedding") bytes += tensor.bytes.size();
      views.emplace(name, view);
    }
  };
  place(model.ends, ends);
  layers.resize(static_cast<std::size_t>(shape.layers));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    place(model.layers[i % model.layers.size()], layers[i]);
  }
}

// What a token computes. The cache of a layer has a row for each head's keys, then for each head's
// values, of each position of each sequence. Pairs (2i, 2i + 1) of a head of queries and keys turn
// with the position; those of values, which come after them in one matrix, turn as at position 0:
// by nothing.
std::vector<Decoder::Piece> Decoder::pieces() const {
  const Shape& s = shape_;
  const auto fill = [&](const char* text) {
    return fmt::format(
        fmt::runtime(text), fmt::arg("width", s.width), fmt::arg("hidden", s.hidden),
        fmt::arg("heads", s.heads), fmt::arg("kv", s.kv_heads), fmt::arg("stored", 2 * s.kv_heads),
        fmt::arg("turned", s.heads + s.kv_heads), fmt::arg("shared", s.heads / s.kv_heads),
        fmt::arg("head", s.head()), fmt::arg("all", s.heads + 2 * s.kv_heads),
        fmt::arg("positions", positions_), fmt::arg("next", positions_ + 1),
        fmt::arg("f", name(s.activations)), fmt::arg("eps", s.norm_eps), fmt::arg("batch", batch_),
        fmt::arg("scale", 1 / std::sqrt(static_cast<double>(s.head()))),
        fmt::arg("qkv", product(s, "wqkv", "h", s.width + 2 * s.kv_heads * s.head(), s.width)),
        fmt::arg("o", product(s, "wo", "mixed", s.width, s.width)),
        fmt::arg("gate_up", product(s, "w13", "h2", 2 * s.hidden, s.width)),
        fmt::arg("down", product(s, "w2", "gated", s.width, s.hidden)),
        fmt::arg("output", product(s, "output", "h", s.vocabulary, s.width)));
  };
  return {{"embed", fill(R"(
            x = f32(take(embedding, take(tokens, iota(0) * {next} + position), 0));
            turn = take(turns, where(index < {turned}, position[:, None], 0), 0);
            place = where(position < {positions}, iota(0) * {positions} + position, -1);
            rows = place[:, None] * {stored} + index[:{stored}];
            end = position[:, None, None, None, None] + 1;)"),
           "x, turn, rows, end", false},
          {"qkv", fill(R"(
            h = {f}(x * rsqrt(mean(x * x, -1) + {eps}) * norm1);
            pairs = reshape({qkv}, {batch}, {all}, -1, 2);
            a = pairs[..., 0]; b = pairs[..., 1]; c = turn[..., 0]; d = turn[..., 1];
            qkv = reshape(stack(-1, a * c - b * d, a * d + b * c), {batch}, {all}, {head});)"),
           "qkv"},
          {"store", "stored = put(cache, rows, qkv" + fill("[:, {heads}:]);"), "stored"},
          {"attention", fill(R"(
            kv = reshape(stored, {batch}, {positions}, 2, {kv}, {head});
            keys = swapaxes(kv[:, :, 0], 1, 2)[:, :, None, :end];
            values = swapaxes(kv[:, :, 1], 1, 2)[:, :, None, :end];
            q = reshape(qkv[:, :{heads}], {batch}, {kv}, {shared}, 1, {head});
            weights = softmax({scale} * sum(q * keys, -1), -2);
            mixed = {f}(reshape(sum(weights * values, -2), {batch}, {width}));)"),
           "mixed"},
          {"output", fill("r = x + {o};"), "r"},
          {"gate_up", fill(R"(
            h2 = {f}(r * rsqrt(mean(r * r, -1) + {eps}) * norm2);
            gu = {gate_up};
            gated = {f}(silu(gu[:, :{hidden}]) * gu[:, {hidden}:]);)"),
           "gated"},
          {"down", fill("y = r + {down};"), "y"},
          {"head", fill(R"(
            h = {f}(x * rsqrt(mean(x * x, -1) + {eps}) * norm);
            logits = {output};
            best = i32(argmax(logits, -1))[:, 0];)"),
           "logits, best", false},
          // The next token is that of the prompt, or the one with the largest logit.
          {"next", fill(R"(
            moved = reshape(end, {batch});
            at = where(moved <= {positions}, iota(0) * {next} + moved, -1);
            given = take(tokens, at);
            said = put(tokens, at, where(given < 0, best, given));)"),
           "said, moved", false}};
}

// ---- Memory ------------------------------------------------------------------------------------

void Decoder::add_state() {
  const Shape& s = shape_;
  const std::int64_t all = s.heads + 2 * s.kv_heads;
  const auto add = [&](const char* name, DType dtype, const Dims& shape) {
    state_.emplace(name, block(memory_, dtype, shape));
  };
  add("tokens", i32, {batch_ * (positions_ + 1)});
  add("position", i32, {batch_});
  add("x", f32, {batch_, s.width});
  add("turn", f32, {batch_, all, s.head() / 2, 2});
  add("rows", i32, {batch_, 2 * s.kv_heads});
  add("end", i32, {batch_, 1, 1, 1, 1});
  add("qkv", f32, {batch_, all, s.head()});
  add("mixed", s.activations, {batch_, s.width});
  add("r", f32, {batch_, s.width});
  add("gated", s.activations, {batch_, s.hidden});
  add("logits", f32, {batch_, s.vocabulary});
  add("best", i32, {batch_});
  add("turns", f32, {positions_, s.head() / 2, 2});
  add("index", i32, {all});
  for (const auto& [result, argument] :
       {std::pair{"y", "x"}, {"said", "tokens"}, {"moved", "position"}}) {
    state_.emplace(result, state_.at(argument));  // updated in place
  }
  for (const Views& weights : weights_.layers) {
    Views& layer = layers_.emplace_back(weights);
    const View cache = block(memory_, s.cache, {batch_ * positions_ * 2 * s.kv_heads, s.head()});
    layer.emplace("cache", cache);
    layer.emplace("stored", cache);
  }
  std::vector<float> turns;  // cosine and sine of each pair at each position
  for (std::int64_t i = 0; i < positions_ * s.head(); i += 2) {
    const double place = static_cast<double>(i % s.head()) / static_cast<double>(s.head());
    const double angle = static_cast<double>(i / s.head()) * std::pow(s.rope_base, -place);
    turns.insert(turns.end(),
                 {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
  }
  memory_.to_device(state_.at("turns").data(), turns.data(), bytes_of(state_.at("turns")));
  std::vector<std::int32_t> index(static_cast<std::size_t>(all));
  std::iota(index.begin(), index.end(), 0);
  memory_.to_device(state_.at("index").data(), index.data(), bytes_of(state_.at("index")));
}

std::uint64_t Decoder::cache_bytes() const {
  return layers_.size() * bytes_of(layers_[0].at("cache"));
}

void Decoder::reset(const std::vector<std::int32_t>& prompt, std::int64_t position) const {
  std::vector<std::int32_t> row(static_cast<std::size_t>(positions_ + 1), -1), tokens;
  std::copy(prompt.begin(), prompt.end(), row.begin() + position);
  for (std::int64_t i = 0; i < batch_; ++i) tokens.insert(tokens.end(), row.begin(), row.end());
  const std::vector positions(static_cast<std::size_t>(batch_),
                              static_cast<std::int32_t>(position));
  memory_.to_device(state_.at("tokens").data(), tokens.data(), bytes_of(state_.at("tokens")));
  memory_.to_device(state_.at("position").data(), positions.data(),
                    bytes_of(state_.at("position")));
}

std::vector<std::int32_t> Decoder::tokens(std::int64_t sequence) const {
  std::vector<std::int32_t> row(static_cast<std::size_t>(positions_ + 1));
  const View from = state_.at("tokens").from(sequence * (positions_ + 1));
  memory_.to_host(row.data(), from.data(), row.size() * sizeof(std::int32_t));
  return row;
}

std::vector<float> Decoder::logits() const {
  std::vector<float> result(static_cast<std::size_t>(batch_ * shape_.vocabulary));
  memory_.to_host(result.data(), state_.at("logits").data(), result.size() * sizeof(float));
  return result;
}

// ---- Recording ---------------------------------------------------------------------------------

// One run of a program, of which the arguments are named after what is in memory.
void Decoder::run(kiln::Recorder& recorder, const kiln::Program& program, const Views& weights) {
  const auto find = [&](const std::string& name) {
    const auto found = weights.find(name);
    return found == weights.end() ? state_.at(name) : found->second;
  };
  std::vector<kiln::Argument> inputs;
  std::vector<View> outputs;
  for (const std::string& name : argument_names(program)) inputs.emplace_back(find(name));
  for (const std::string& name : output_names(program)) outputs.push_back(find(name));
  const auto bytes =
      static_cast<std::int64_t>(program.workspace_bytes(memory_.stream, inputs, outputs));
  if (workspace_.size() < bytes) workspace_ = block(memory_, u8, {bytes});
  program.record(recorder, memory_.stream.device, inputs, outputs, workspace_);
}

Decoder::Decoder(const Weights& weights, Memory memory, std::int64_t batch, std::int64_t positions)
    : weights_(weights),
      shape_(weights.shape),
      memory_(std::move(memory)),
      batch_(batch),
      positions_(positions) {
  add_state();
  // Neighbours of a kind are one program: all of a layer, and what comes before and after.
  std::vector<Piece> programs;
  for (const Piece& piece : pieces()) {
    if (programs.empty() || programs.back().of_layer != piece.of_layer) {
      programs.push_back(piece);
    } else {
      programs.back().text += piece.text;
    }
  }
  programs[1].results = "y, stored";
  programs[2].results = "logits, said, moved";
  token_ = kiln::record(memory_.stream.device, [&](kiln::Recorder& recorder) {
    for (const Piece& piece : programs) {
      record(recorder, kiln::parse_program(piece.kind, piece.text + piece.results), piece.of_layer);
    }
  });
}

void Decoder::record(kiln::Recorder& recorder, const kiln::Program& program, bool of_layer) {
  if (!of_layer) return run(recorder, program, weights_.ends);
  for (const Views& layer : layers_) run(recorder, program, layer);
}

}  // namespace decode
