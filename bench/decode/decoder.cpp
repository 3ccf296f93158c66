#include "decoder.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace decode {
namespace {

using kiln::Dims;
using kiln::DType;
using kiln::View;
using enum kiln::DType;

// Looks the rows of each sequence's token and position up. Heads of values turn by nothing.
constexpr const char* kEmbed = R"(
KILN_KERNEL(256, embed, const kiln::i32* tokens, const kiln::i32* position, const kiln::{dtype}* table,
            const kiln::f32* turns, kiln::f32* x, kiln::f32* turn, kiln::u32 positions, kiln::u32 width,
            kiln::u32 head, kiln::u32 turned, kiln::u32 all, kiln::u32 count) {{
  KILN_FOR_EACH_WORK_ITEM(kiln::u32, 256, i, count) {{
    const kiln::u32 sequence = i / all, column = i % all, at = position[sequence];
    const kiln::u32 token = tokens[sequence * (positions + 1) + at];
    if (column < width) {{
      x[sequence * width + column] = kiln::to<kiln::f32>(table[token * kiln::u64(width) + column]);
    }}
    turn[i] = column < turned ? turns[at * head + column % head] : column % 2 == 0 ? 1.0f : 0.0f;
  }}
}})";

// Puts the keys and values of a token into the cache, [sequence, head, position, element].
constexpr const char* kStore = R"(
KILN_KERNEL(256, store, const kiln::f32* k, const kiln::f32* v, const kiln::i32* position,
            kiln::{dtype}* keys, kiln::{dtype}* values, kiln::u32 positions, kiln::u32 heads,
            kiln::u32 head, kiln::u32 stride, kiln::u32 count) {{
  KILN_FOR_EACH_WORK_ITEM(kiln::u32, 256, i, count) {{
    const kiln::u32 row = i / head, sequence = row / heads;  // row: of a head of a sequence
    const kiln::u32 from = sequence * stride + i % (heads * head);
    const kiln::u64 to = (kiln::u64(row) * positions + position[sequence]) * head + i % head;
    keys[to] = kiln::to<kiln::{dtype}>(k[from]);
    values[to] = kiln::to<kiln::{dtype}>(v[from]);
  }}
}})";

// The next token is that of the prompt, or the one with the largest logit.
constexpr const char* kNext = R"(
KILN_KERNEL(256, next, const kiln::i32* best, kiln::i32* tokens, kiln::i32* position,
            kiln::u32 positions, kiln::u32 count) {{
  KILN_FOR_EACH_WORK_ITEM(kiln::u32, 256, i, count) {{
    if (kiln::u32(position[i]) == positions) continue;
    const kiln::u32 at = ++position[i];
    kiln::i32& token = tokens[i * (positions + 1) + at];
    if (token < 0) token = best[i];
  }}
}})";

View block(const Memory& memory, DType dtype, const Dims& shape) {
  const View view(nullptr, dtype, shape, memory.stream.device);
  const auto bytes = static_cast<std::size_t>(view.size() * bits(dtype) / 8);
  return view.with_data(memory.allocate(bytes));
}

std::uint64_t bytes_of(const View& view) {
  return static_cast<std::uint64_t>(view.size() * bits(view.dtype()) / 8);
}

kiln::Scalar number(std::int64_t value) { return kiln::Scalar::typed(value, u32); }

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

// ---- What a token computes, in kiln's text form ------------------------------------------------

// x [batch, columns] times a matrix: [batch, rows].
std::string Decoder::product(const char* weights, const char* x, std::int64_t rows,
                             std::int64_t columns) const {
  if (shape_.group == 0) {
    return fmt::format("reshape(sum({} * reshape({}, {batch}, 1, {columns}), -1), {batch}, {rows})",
                       weights, x, fmt::arg("batch", batch_), fmt::arg("columns", columns),
                       fmt::arg("rows", rows));
  }
  return fmt::format(
      "reshape(sum(({w} * {w}_scale + {w}_bias) * reshape({x}, {batch}, 1, {groups}, {group}),"
      " -1, -2), {batch}, {rows})",
      fmt::arg("w", weights), fmt::arg("x", x), fmt::arg("batch", batch_),
      fmt::arg("groups", columns / shape_.group), fmt::arg("group", shape_.group),
      fmt::arg("rows", rows));
}

// A layer. Pairs (2i, 2i + 1) of each head of queries and keys turn with the position; the heads of
// values, which are behind them in one matrix, turn by nothing.
std::vector<Decoder::Piece> Decoder::pieces() const {
  const Shape& s = shape_;
  const auto fill = [&](const char* text) {
    return fmt::format(fmt::runtime(text), fmt::arg("batch", batch_), fmt::arg("width", s.width),
                       fmt::arg("hidden", s.hidden), fmt::arg("heads", s.heads),
                       fmt::arg("kv", s.kv_heads), fmt::arg("shared", s.heads / s.kv_heads),
                       fmt::arg("head", s.head()), fmt::arg("turned", s.heads + s.kv_heads),
                       fmt::arg("all", s.heads + 2 * s.kv_heads),
                       fmt::arg("scale", 1 / std::sqrt(static_cast<double>(s.head()))),
                       fmt::arg("f", name(s.activations)), fmt::arg("eps", s.norm_eps),
                       fmt::arg("qkv", product("wqkv", "h", s.width + 2 * s.kv_width(), s.width)),
                       fmt::arg("o", product("wo", "mixed", s.width, s.width)),
                       fmt::arg("gate_up", product("w13", "h2", 2 * s.hidden, s.width)),
                       fmt::arg("down", product("w2", "gated", s.width, s.hidden)),
                       fmt::arg("output", product("output", "h", s.vocabulary, s.width)));
  };
  return {{"qkv", fill(R"(
            h = {f}(x * rsqrt(mean(x * x, -1) + {eps}) * norm1);
            pairs = reshape({qkv}, {batch}, {all}, -1, 2);
            a = pairs[..., 0]; b = pairs[..., 1]; c = turn[..., 0]; d = turn[..., 1];
            qkv = reshape(stack(-1, a * c - b * d, a * d + b * c), {batch}, {all}, {head});)"),
           "qkv"},
          {"attention", fill(R"(
            scores = {scale} * sum(reshape(q, {batch}, {kv}, {shared}, 1, {head}) * keys[:, :, None], -1);
            masked = where(iota(3) <= position[:, None, None, None, None], scores, -inf);
            mixed = {f}(reshape(sum(softmax(masked, 3) * values[:, :, None], 3), {batch}, {width}));)"),
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
            logits = {output}; best = i32(argmax(logits, -1));)"),
           "logits, best"}};
}

// ---- Memory ------------------------------------------------------------------------------------

void Decoder::add(const std::string& name, DType dtype, const Dims& shape) {
  state_.emplace(name, block(memory_, dtype, shape));
}

void Decoder::add_state() {
  const Shape& s = shape_;
  add("tokens", i32, {batch_, positions_ + 1});
  add("position", i32, {batch_});
  add("x", f32, {batch_, s.width});
  state_.emplace("y", state_.at("x"));
  const std::int64_t all = s.heads + 2 * s.kv_heads;
  add("turn", f32, {batch_, all, s.head() / 2, 2});
  add("qkv", f32, {batch_, all, s.head()});
  const auto part = [&](const char* name, std::int64_t first, std::int64_t heads) {
    const View& whole = state_.at("qkv");
    state_.emplace(name, View(whole.data(), f32, {batch_, heads, s.head()},
                              contiguous_strides(whole.shape()), whole.device())
                             .from(first * s.head()));
  };
  part("q", 0, s.heads);
  part("k", s.heads, s.kv_heads);
  part("v", s.heads + s.kv_heads, s.kv_heads);
  add("mixed", s.activations, {batch_, s.width});
  add("r", f32, {batch_, s.width});
  add("gated", s.activations, {batch_, s.hidden});
  add("logits", f32, {batch_, s.vocabulary});
  add("best", i32, {batch_, 1});
  for (const Views& weights : weights_.layers) {
    Views& layer = layers_.emplace_back(weights);
    for (const char* name : {"keys", "values"}) {
      const View cache = block(memory_, s.cache, {batch_, s.kv_heads, positions_, s.head()});
      const std::vector<std::byte> zeros(bytes_of(cache));  // weighted by 0 where nothing is yet
      memory_.to_device(cache.data(), zeros.data(), zeros.size());
      layer.emplace(name, cache);
    }
  }
  std::vector<float> turns;  // cosine and sine of each pair at each position
  for (std::int64_t i = 0; i < positions_ * s.head(); i += 2) {
    const double place = static_cast<double>(i % s.head()) / static_cast<double>(s.head());
    const double angle = static_cast<double>(i / s.head()) * std::pow(s.rope_base, -place);
    turns.insert(turns.end(),
                 {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
  }
  add("turns", f32, {positions_, s.head()});
  memory_.to_device(state_.at("turns").data(), turns.data(), turns.size() * sizeof(float));
}

std::uint64_t Decoder::cache_bytes() const {
  return layers_.size() * 2 * bytes_of(layers_[0].at("keys"));
}

void Decoder::reset(const std::vector<std::int32_t>& prompt, std::int64_t position) const {
  std::vector<std::int32_t> row(static_cast<std::size_t>(positions_ + 1), -1), tokens;
  std::copy(prompt.begin(), prompt.end(), row.begin() + position);
  for (std::int64_t i = 0; i < batch_; ++i) tokens.insert(tokens.end(), row.begin(), row.end());
  const std::vector positions(static_cast<std::size_t>(batch_),
                              static_cast<std::int32_t>(position));
  memory_.to_device(state_.at("tokens").data(), tokens.data(),
                    tokens.size() * sizeof(std::int32_t));
  memory_.to_device(state_.at("position").data(), positions.data(),
                    positions.size() * sizeof(std::int32_t));
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

void Decoder::embed(kiln::Recorder& recorder) const {
  const std::int64_t all = shape_.width + 2 * shape_.kv_width();
  const std::int64_t count = batch_ * all;
  recorder.call(*embed_, kiln::Grid::covering(static_cast<std::uint64_t>(count)),
                {state_.at("tokens"), state_.at("position"), weights_.ends.at("embedding"),
                 state_.at("turns"), state_.at("x"), state_.at("turn"), number(positions_),
                 number(shape_.width), number(shape_.head()),
                 number(shape_.width + shape_.kv_width()), number(all), number(count)});
}

void Decoder::store(kiln::Recorder& recorder, std::size_t layer) const {
  const std::int64_t count = batch_ * shape_.kv_width();
  recorder.call(
      *store_, kiln::Grid::covering(static_cast<std::uint64_t>(count)),
      {state_.at("k"), state_.at("v"), state_.at("position"), layers_[layer].at("keys"),
       layers_[layer].at("values"), number(positions_), number(shape_.kv_heads),
       number(shape_.head()), number(shape_.width + 2 * shape_.kv_width()), number(count)});
}

void Decoder::next(kiln::Recorder& recorder) const {
  recorder.call(*next_, kiln::Grid::covering(static_cast<std::uint64_t>(batch_)),
                {state_.at("best"), state_.at("tokens"), state_.at("position"), number(positions_),
                 number(batch_)});
}

void Decoder::add_kernels() {
  using kiln::reads, kiln::writes, kiln::scalar;
  const auto changes = kiln::reads_and_writes;
  const DType table = weights_.ends.at("embedding").dtype();
  embed_ =
      kiln::kernel("embed", fmt::format(kEmbed, fmt::arg("dtype", name(table))),
                   {reads(i32), reads(i32), reads(table), reads(f32), writes(f32), writes(f32),
                    scalar(u32), scalar(u32), scalar(u32), scalar(u32), scalar(u32), scalar(u32)});
  store_ = kiln::kernel(
      "store", fmt::format(kStore, fmt::arg("dtype", name(shape_.cache))),
      {reads(f32), reads(f32), reads(i32), changes(shape_.cache), changes(shape_.cache),
       scalar(u32), scalar(u32), scalar(u32), scalar(u32), scalar(u32)});
  next_ = kiln::kernel("next", fmt::format(kNext),
                       {reads(i32), changes(i32), changes(i32), scalar(u32), scalar(u32)});
}

Decoder::Decoder(const Weights& weights, Memory memory, std::int64_t batch, std::int64_t positions)
    : weights_(weights),
      shape_(weights.shape),
      memory_(std::move(memory)),
      batch_(batch),
      positions_(positions) {
  add_state();
  add_kernels();
  const std::vector<Piece> parts = pieces();
  const auto program = [&](const char* name, std::size_t first, std::size_t last) {
    std::string text;
    for (std::size_t i = first; i <= last; ++i) text += parts[i].text;
    return kiln::parse_program(name, text + parts[last].results);
  };
  const kiln::Program before = program("before", 0, 0);  // of the cache
  const kiln::Program after = program("after", 1, 4);
  const kiln::Program head = program("head", 5, 5);
  token_ = kiln::record(memory_.stream.device, [&](kiln::Recorder& recorder) {
    embed(recorder);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      run(recorder, before, layers_[i]);
      store(recorder, i);
      run(recorder, after, layers_[i]);
    }
    run(recorder, head, weights_.ends);
    next(recorder);
  });
}

std::vector<std::pair<std::string, kiln::Graph>> Decoder::kinds() {
  std::vector<std::pair<std::string, kiln::Graph>> result;
  const auto add_kind = [&](const std::string& kind, const auto& record) {
    result.emplace_back(kind, kiln::record(memory_.stream.device, record));
  };
  add_kind("embed", [&](kiln::Recorder& recorder) { embed(recorder); });
  for (const Piece& piece : pieces()) {
    const kiln::Program program = kiln::parse_program(piece.kind, piece.text + piece.results);
    add_kind(piece.kind, [&](kiln::Recorder& recorder) {
      if (piece.kind == "head") return run(recorder, program, weights_.ends);
      for (std::size_t i = 0; i < layers_.size(); ++i) run(recorder, program, layers_[i]);
    });
  }
  add_kind("store", [&](kiln::Recorder& recorder) {
    for (std::size_t i = 0; i < layers_.size(); ++i) store(recorder, i);
  });
  add_kind("next", [&](kiln::Recorder& recorder) { next(recorder); });
  return result;
}

}  // namespace decode
