// Weights of a .safetensors file.
#include <array>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
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

}  // namespace decode
