#include "random_model.hpp"

#include <cmath>
#include <cstring>
#include <random>
#include <utility>

namespace decode {
namespace {

using kiln::DType;

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

Weights random_model(const Shape& shape, const Memory& memory) {
  std::mt19937_64 random(1);
  Tensors layer, ends;
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
  layer["norm1"] = layer["norm2"] = ends["norm"] = ones(shape.width);
  matrix(layer, "wqkv", shape.width + 2 * shape.kv_heads * shape.head(), shape.width);
  matrix(layer, "wo", shape.width, shape.width);
  matrix(layer, "w13", 2 * shape.hidden, shape.width);
  matrix(layer, "w2", shape.width, shape.hidden);
  matrix(ends, "output", shape.vocabulary, shape.width);
  std::vector<std::uint16_t> embedding(static_cast<std::size_t>(shape.vocabulary * shape.width));
  std::uint64_t state = 1;
  for (std::uint16_t& number : embedding) {  // bf16 between -2 and 2
    state = state * 6364136223846793005U + 1442695040888963407U;
    number = static_cast<std::uint16_t>((state >> 48 & 0x807f) | (0x3f80 - 0x80 * (state >> 62)));
  }
  ends["embedding"] = tensor_of(DType::bf16, {shape.vocabulary, shape.width}, embedding);
  Weights weights{shape, {}, {}};
  const auto place = [&](const Tensors& tensors) {
    Views views;
    for (const auto& [name, tensor] : tensors) {
      views[name] = memory.array(tensor.dtype, tensor.shape);
      memory.to_device(views[name].data(), tensor.bytes.data(), tensor.bytes.size());
    }
    return views;
  };
  weights.ends = place(ends);
  for (std::int64_t i = 0; i < shape.layers; ++i) weights.layers.push_back(place(layer));
  return weights;
}

}  // namespace decode
