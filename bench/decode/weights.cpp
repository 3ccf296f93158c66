// Weights for the decoder: of a .safetensors file, or random.
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include "decoder.hpp"

namespace decode {
namespace {

using kiln::DType;

// Rows of matrix `layer` of several tensors [layers, rows, columns], one after the other.
Tensor rows_of(const Tensors& file, std::int64_t layer, std::initializer_list<const char*> names) {
  Tensor result{DType::f32, {0}, {}};
  for (const char* name : names) {
    const Tensor& all = file.at(name);
    const std::size_t bytes = all.bytes.size() / static_cast<std::size_t>(all.shape[0]);
    const auto first = all.bytes.begin() + layer * static_cast<std::ptrdiff_t>(bytes);
    result.bytes.insert(result.bytes.end(), first, first + static_cast<std::ptrdiff_t>(bytes));
    if (all.shape.size() == 2) {
      result.shape = {all.shape[1]};
    } else {
      result.shape = {result.shape[0] + all.shape[1], all.shape[2]};
    }
  }
  return result;
}

template <class T>
Tensor tensor_of(DType dtype, kiln::Dims shape, const std::vector<T>& elements) {
  Tensor result{dtype, std::move(shape), std::vector<std::byte>(elements.size() * sizeof(T))};
  std::memcpy(result.bytes.data(), elements.data(), result.bytes.size());
  return result;
}

Tensor ones(std::int64_t width) {
  return tensor_of(DType::f32, {width}, std::vector(static_cast<std::size_t>(width), 1.0F));
}

// A positive number as f16.
std::uint16_t half(double number) {
  int exponent = 0;
  const double fraction = std::frexp(number, &exponent);  // [0.5, 1)
  return static_cast<std::uint16_t>((exponent + 14) * 1024 +
                                    std::lround((fraction * 2 - 1) * 1024));
}

}  // namespace

Tensors read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t size = 0;
  file.read(reinterpret_cast<char*>(&size), sizeof(size));
  if (!file || size > 100'000'000) throw std::runtime_error(path + ": not a .safetensors file");
  std::string header(size, ' ');
  file.read(header.data(), static_cast<std::streamsize>(size));
  const nlohmann::json entries = nlohmann::json::parse(header);
  Tensors tensors;
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    std::string dtype = entry.at("dtype");
    for (char& letter : dtype) letter = static_cast<char>(std::tolower(letter));
    const auto shape = entry.at("shape").get<std::vector<std::int64_t>>();
    const auto offsets = entry.at("data_offsets").get<std::array<std::uint64_t, 2>>();
    Tensor& tensor = tensors[name];
    tensor.dtype = kiln::parse_dtype(dtype).value();
    tensor.shape = kiln::Dims(std::span<const std::int64_t>(shape));
    tensor.bytes.resize(offsets[1] - offsets[0]);
    file.seekg(static_cast<std::streamoff>(sizeof(size) + size + offsets[0]));
    file.read(reinterpret_cast<char*>(tensor.bytes.data()),
              static_cast<std::streamsize>(tensor.bytes.size()));
  }
  if (!file) throw std::runtime_error(path + ": shorter than its header says");
  return tensors;
}

Model stories260k(const Tensors& file) {
  Model model;
  Shape& shape = model.shape;
  shape = {.layers = file.at("wq").shape[0],
           .width = file.at("wq").shape[1],
           .hidden = file.at("w1").shape[1],
           .heads = 8,
           .kv_heads = 4,
           .vocabulary = file.at("tok_embeddings").shape[0]};
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    model.layers.push_back({{"norm1", rows_of(file, i, {"attention_norm"})},
                            {"norm2", rows_of(file, i, {"ffn_norm"})},
                            {"wqkv", rows_of(file, i, {"wq", "wk", "wv"})},
                            {"wo", rows_of(file, i, {"wo"})},
                            {"w13", rows_of(file, i, {"w1", "w3"})},
                            {"w2", rows_of(file, i, {"w2"})}});
  }
  model.ends = {{"embedding", file.at("tok_embeddings")},
                {"output", file.at("tok_embeddings")},
                {"norm", file.at("norm")}};
  return model;
}

Model random_model(const Shape& shape) {
  std::mt19937_64 random(1);
  Model model{shape, {}, {{}}};
  const auto matrix = [&](Tensors& to, const std::string& name, std::int64_t rows,
                          std::int64_t columns) {
    const std::int64_t groups = columns / shape.group;
    std::vector<std::uint64_t> bits(static_cast<std::size_t>(rows * columns / 16));
    for (std::uint64_t& word : bits) word = random();
    // Of variance 1 / columns and mean 0: numbers stay of the size that they have.
    const double scale = 1 / std::sqrt(21.25 * static_cast<double>(columns));
    const auto count = static_cast<std::size_t>(rows * groups);
    const auto negative = static_cast<std::uint16_t>(0x8000 | half(7.5 * scale));
    to[name] = tensor_of(DType::u4, {rows, groups, shape.group}, bits);
    to[name + "_scale"] = tensor_of(DType::f16, {rows, groups, 1}, std::vector(count, half(scale)));
    to[name + "_bias"] = tensor_of(DType::f16, {rows, groups, 1}, std::vector(count, negative));
  };
  Tensors& layer = model.layers[0];
  layer["norm1"] = layer["norm2"] = model.ends["norm"] = ones(shape.width);
  matrix(layer, "wqkv", shape.width + 2 * shape.kv_width(), shape.width);
  matrix(layer, "wo", shape.width, shape.width);
  matrix(layer, "w13", 2 * shape.hidden, shape.width);
  matrix(layer, "w2", shape.width, shape.hidden);
  matrix(model.ends, "output", shape.vocabulary, shape.width);
  std::vector<std::uint16_t> embedding(static_cast<std::size_t>(shape.vocabulary * shape.width));
  std::uint64_t state = 1;
  for (std::uint16_t& number : embedding) {  // bf16 between -2 and 2
    state = state * 6364136223846793005U + 1442695040888963407U;
    number = static_cast<std::uint16_t>((state >> 48 & 0x807f) | (0x3f80 - 0x80 * (state >> 62)));
  }
  model.ends["embedding"] = tensor_of(DType::bf16, {shape.vocabulary, shape.width}, embedding);
  return model;
}

}  // namespace decode
