// Weights of a .safetensors file.
#include <array>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "decoder.hpp"

namespace decode {

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

Weights stories260k(const Tensors& file, const Memory& memory) {
  const kiln::Dims& wq = file.at("wq").shape;
  Weights weights;
  weights.shape = {.layers = wq[0],
                   .width = wq[1],
                   .hidden = file.at("w1").shape[1],
                   .heads = 8,
                   .kv_heads = 4,
                   .vocabulary = file.at("tok_embeddings").shape[0]};
  const auto place = [&](const Tensor& tensor) {
    const kiln::View view = memory.array(tensor.dtype, tensor.shape);
    memory.to_device(view.data(), tensor.bytes.data(), tensor.bytes.size());
    return view;
  };
  for (std::int64_t i = 0; i < wq[0]; ++i) {
    // Of tensors [layers, rows, columns] or [layers, rows], the rows of this one after the other.
    const auto rows_of = [&](std::initializer_list<const char*> names) {
      Tensor rows{kiln::DType::f32, {0}, {}};
      for (const char* name : names) {
        const Tensor& all = file.at(name);
        const auto bytes = static_cast<std::ptrdiff_t>(all.bytes.size()) / wq[0];
        const auto first = all.bytes.begin() + i * bytes;
        rows.bytes.insert(rows.bytes.end(), first, first + bytes);
        rows.shape = all.shape.size() == 2 ? kiln::Dims{all.shape[1]}
                                           : kiln::Dims{rows.shape[0] + all.shape[1], all.shape[2]};
      }
      return place(rows);
    };
    weights.layers.push_back({{"norm1", rows_of({"attention_norm"})},
                              {"norm2", rows_of({"ffn_norm"})},
                              {"wqkv", rows_of({"wq", "wk", "wv"})},
                              {"wo", rows_of({"wo"})},
                              {"w13", rows_of({"w1", "w3"})},
                              {"w2", rows_of({"w2"})}});
  }
  weights.ends = {{"embedding", place(file.at("tok_embeddings"))},
                  {"output", place(file.at("tok_embeddings"))},
                  {"norm", place(file.at("norm"))}};
  return weights;
}

}  // namespace decode
