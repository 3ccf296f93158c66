#include "decoder.hpp"

#include <fmt/format.h>

#include <cmath>

namespace decode {
namespace {

using kiln::View;
using enum kiln::DType;

template <class T>
void write(const Memory& memory, const View& to, const std::vector<T>& elements) {
  memory.to_device(to.data(), elements.data(), elements.size() * sizeof(T));
}

template <class T>
std::vector<T> read(const Memory& memory, const View& from) {
  std::vector<T> elements(static_cast<std::size_t>(from.size()));
  memory.to_host(elements.data(), from.data(), elements.size() * sizeof(T));
  return elements;
}

// The text of x [batch, columns] times a matrix: [batch, rows].
std::string product(const Shape& shape, std::string_view weights, std::string_view x,
                    std::int64_t rows, std::int64_t columns) {
  if (shape.group == 0) {
    return fmt::format("reshape(sum({} * {}[:, None], -1), -1, {})", weights, x, rows);
  }
  const std::string groups =
      shape.activations == i8
          ? fmt::format("({0}_whole * {0}_step)", x)
          : fmt::format("reshape({}, -1, 1, {}, {})", x, columns / shape.group, shape.group);
  return fmt::format("reshape(sum(({0} * {0}_scale + {0}_bias) * {1}, -1, -2), -1, {2})", weights,
                     groups, rows);
}

// The text that quantises x [batch, columns] for such a product.
std::string quantise(const Shape& shape, std::string_view x, std::int64_t columns) {
  if (shape.group == 0 || shape.activations != i8) return {};
  return fmt::format(
      "{0}_groups = reshape({0}, -1, 1, {1}, {2}); "
      "{0}_step = maximum(max(abs({0}_groups), -1), 1e-20) / 127; "
      "{0}_whole = i8(round({0}_groups / {0}_step));",
      x, columns / shape.group, shape.group);
}

}  // namespace

// What a token computes. The cache of a layer has a row for each head's keys, then for each head's
// values, of each position of each sequence; a row of -1 is none, as those of queries are. Pairs
// (2i, 2i + 1) of a head turn with the position by their frequency, which is 0 for values.
std::vector<Decoder::Piece> Decoder::pieces() const {
  const Shape& s = shape_;
  const auto fill = [&](const char* text) {
    return fmt::format(
        fmt::runtime(text), fmt::arg("width", s.width), fmt::arg("hidden", s.hidden),
        fmt::arg("heads", s.heads), fmt::arg("kv", s.kv_heads), fmt::arg("head", s.head()),
        fmt::arg("all", s.heads + 2 * s.kv_heads), fmt::arg("stored", 2 * s.kv_heads),
        fmt::arg("batch", batch_), fmt::arg("positions", positions_),
        fmt::arg("next", positions_ + 1), fmt::arg("f", name(s.floats())),
        fmt::arg("quantise_h", quantise(s, "h", s.width)),
        fmt::arg("quantise_h2", quantise(s, "h2", s.width)),
        fmt::arg("quantise_mixed", quantise(s, "mixed", s.width)),
        fmt::arg("quantise_gated", quantise(s, "gated", s.hidden)), fmt::arg("eps", s.norm_eps),
        fmt::arg("scale", 1 / std::sqrt(1.0 * s.head())),
        fmt::arg("qkv", product(s, "wqkv", "h", s.width + 2 * s.kv_heads * s.head(), s.width)),
        fmt::arg("o", product(s, "wo", "mixed", s.width, s.width)),
        fmt::arg("gate_up", product(s, "w13", "h2", 2 * s.hidden, s.width)),
        fmt::arg("down", product(s, "w2", "gated", s.width, s.hidden)),
        fmt::arg("output", product(s, "output", "h", s.vocabulary, s.width)));
  };
  return {{"embed", fill(R"(
            x = f32(take(embedding, take(tokens, iota(0) * {next} + position), 0));
            angle = f64(position)[:, None, None] * frequency;
            turn = f32(stack(-1, cos(angle), sin(angle)));
            place = where(position < {positions}, iota(0) * {positions} + position, -1);
            rows = where(row < 0, -1, place[:, None] * {stored} + row);
            end = position[:, None, None, None, None] + 1;)"),
           "x, turn, rows, end", false},
          {"qkv", fill(R"(
            h = {f}(x * rsqrt(mean(x * x, -1) + {eps}) * norm1); {quantise_h}
            pairs = reshape({qkv}, {batch}, {all}, -1, 2);
            a = pairs[..., 0]; b = pairs[..., 1]; c = turn[..., 0]; d = turn[..., 1];
            qkv = reshape(stack(-1, a * c - b * d, a * d + b * c), {batch}, {all}, {head});
            stored = put(cache, rows, qkv);)"),
           "qkv, stored"},
          {"attention", fill(R"(
            kv = reshape(stored, {batch}, {positions}, 2, {kv}, {head});
            keys = swapaxes(kv[:, :, 0], 1, 2)[:, :, None, :end];
            values = swapaxes(kv[:, :, 1], 1, 2)[:, :, None, :end];
            q = reshape(qkv[:, :{heads}], {batch}, {kv}, -1, 1, {head});
            weights = softmax({scale} * sum(q * keys, -1), -2);
            mixed = {f}(reshape(sum(weights * values, -2), {batch}, {width}));)"),
           "mixed"},
          {"output", fill("{quantise_mixed} r = x + {o};"), "r"},
          {"gate_up", fill(R"(
            h2 = {f}(r * rsqrt(mean(r * r, -1) + {eps}) * norm2); {quantise_h2}
            gu = {gate_up};
            gated = {f}(silu(gu[:, :{hidden}]) * gu[:, {hidden}:]);)"),
           "gated"},
          {"down", fill("{quantise_gated} y = r + {down};"), "y"},
          {"head", fill(R"(
            h = {f}(x * rsqrt(mean(x * x, -1) + {eps}) * norm); {quantise_h}
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

void Decoder::add(const std::string& name, kiln::DType dtype, const kiln::Dims& shape) {
  state_[name] = memory_.array(dtype, shape);
}

Decoder::Decoder(const Weights& weights, const Memory& memory, std::int64_t batch,
                 std::int64_t positions)
    : shape_(weights.shape),
      memory_(memory),
      batch_(batch),
      positions_(positions),
      layers_(weights.layers),
      ends_(weights.ends) {
  const Shape& s = shape_;
  const std::int64_t all = s.heads + 2 * s.kv_heads;
  add("tokens", i32, {batch * (positions + 1)});
  add("position", i32, {batch});
  add("x", f32, {batch, s.width});
  add("turn", f32, {batch, all, s.head() / 2, 2});
  add("rows", i32, {batch, all});
  add("end", i32, {batch, 1, 1, 1, 1});
  add("logits", f32, {batch, s.vocabulary});
  add("row", i32, {all});
  add("frequency", f64, {all, s.head() / 2});
  for (const auto& [result, argument] :
       {std::pair{"y", "x"}, {"said", "tokens"}, {"moved", "position"}}) {
    state_[result] = state_[argument];  // updated in place
  }
  for (Views& layer : layers_) {
    layer["cache"] = memory.array(s.cache, {batch * positions * 2 * s.kv_heads, s.head()});
    layer["stored"] = layer["cache"];
  }
  std::vector<std::int32_t> row;
  std::vector<double> frequency;
  for (std::int64_t head = 0; head < all; ++head) {
    row.push_back(static_cast<std::int32_t>(head - s.heads));
    for (std::int64_t i = 0; i < s.head(); i += 2) {
      const double turned = head < s.heads + s.kv_heads ? 1 : 0;
      frequency.push_back(turned * std::pow(s.rope_base, -static_cast<double>(i) / s.head()));
    }
  }
  write(memory, state_["row"], row);
  write(memory, state_["frequency"], frequency);
  // Neighbours of a kind are one program: all of a layer, and what comes before and after.
  std::vector<Piece> programs;
  for (const Piece& piece : pieces()) {
    const bool more = !programs.empty() && programs.back().of_layer == piece.of_layer;
    if (!more) programs.push_back(piece);
    if (more) programs.back().text += piece.text;
  }
  programs[1].results = "y, stored";
  programs[2].results = "logits, said, moved";
  token_ = kiln::record(memory.stream.device, [&](kiln::Recorder& recorder) {
    for (const Piece& piece : programs) record(recorder, piece);
  });
}

void Decoder::record(kiln::Recorder& recorder, const Piece& piece) {
  const kiln::Program program = kiln::parse_program(piece.kind, piece.text + piece.results);
  for (const Views& weights : piece.of_layer ? layers_ : std::vector{ends_}) {
    const auto find = [&](const std::string& name) {
      return weights.contains(name) ? weights.at(name) : state_.at(name);
    };
    std::vector<kiln::Argument> inputs;
    std::vector<View> outputs;
    for (const std::string& name : argument_names(program)) inputs.emplace_back(find(name));
    for (const std::string& name : output_names(program)) outputs.push_back(find(name));
    const auto bytes =
        static_cast<std::int64_t>(program.workspace_bytes(memory_.stream, inputs, outputs));
    if (workspace_.size() < bytes) workspace_ = memory_.array(u8, {bytes});
    program.record(recorder, memory_.stream.device, inputs, outputs, workspace_);
  }
}

void Decoder::reset(const std::vector<std::int32_t>& prompt, std::int64_t position) const {
  std::vector<std::int32_t> row(static_cast<std::size_t>(positions_ + 1), -1), tokens;
  std::copy(prompt.begin(), prompt.end(), row.begin() + position);
  for (std::int64_t i = 0; i < batch_; ++i) tokens.insert(tokens.end(), row.begin(), row.end());
  const std::vector at(static_cast<std::size_t>(batch_), static_cast<std::int32_t>(position));
  write(memory_, state_.at("tokens"), tokens);
  write(memory_, state_.at("position"), at);
}

std::vector<std::int32_t> Decoder::tokens(std::int64_t sequence) const {
  const auto all = read<std::int32_t>(memory_, state_.at("tokens"));
  const auto first = all.begin() + sequence * (positions_ + 1);
  return {first, first + positions_ + 1};
}

std::vector<float> Decoder::logits() const { return read<float>(memory_, state_.at("logits")); }

}  // namespace decode
