#include "fallback/host_operations.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/operation.hpp"
#include "fusion/reference/value.hpp"

namespace kiln::host {
namespace {

using fusion::Op;
using fusion::reference::decode;
using fusion::reference::encode;
using fusion::reference::read_bits;
using fusion::reference::Value;

std::size_t element_bytes(DType dtype) {
  return static_cast<std::size_t>(std::max(1, bits(dtype) / 8));
}

// Values in C order have a byte for each element of four bits.
std::uint64_t value_bits(const void* value, DType dtype, std::uint64_t i) {
  std::uint64_t pattern = 0;
  const std::size_t bytes = element_bytes(dtype);
  std::memcpy(&pattern, static_cast<const std::byte*>(value) + i * bytes, bytes);
  return pattern;
}
void set_value_bits(void* value, DType dtype, std::uint64_t i, std::uint64_t pattern) {
  const std::size_t bytes = element_bytes(dtype);
  std::memcpy(static_cast<std::byte*>(value) + i * bytes, &pattern, bytes);
}

// From an array's element to that at its place; nothing where that is not there.
std::optional<std::int64_t> offset_of(const Places& places, std::uint64_t element) {
  if (places.at == nullptr) return 0;
  const std::int64_t place = places.at[element];
  if (place < 0 || place >= places.count) return std::nullopt;
  return place * places.stride;
}

}  // namespace

std::int64_t StridedArray::place(std::uint64_t element) const {
  std::int64_t at = offset;
  for (std::size_t k = 0; k + 1 < rank; ++k) {
    at += static_cast<std::int64_t>(element % sizes[k]) * strides[k];
    element /= sizes[k];
  }
  return at + static_cast<std::int64_t>(element) * strides[rank - 1];
}

void load(const StridedArray& array, DType dtype, std::uint64_t first, std::uint64_t count,
          void* value, const Places& places) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::optional<std::int64_t> offset = offset_of(places, i);
    const std::uint64_t bits =
        offset ? read_bits(array.data, dtype, array.place(first + i) + *offset) : 0;
    set_value_bits(value, dtype, i, bits);
  }
}

void store(const StridedArray& array, DType dtype, std::uint64_t first, std::uint64_t count,
           const void* value, const Places& places) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::optional<std::int64_t> offset = offset_of(places, i);
    if (!offset) continue;
    fusion::reference::write(array.data, decode(dtype, value_bits(value, dtype, i)),
                             array.place(first + i) + *offset);
  }
}

void index(const StridedArray& array, std::uint64_t first, std::uint64_t count, void* value) {
  for (std::uint64_t i = 0; i < count; ++i) {
    set_value_bits(value, DType::i64, i, static_cast<std::uint64_t>(array.place(first + i)));
  }
}

void fill(void* value, DType dtype, std::uint64_t bits, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) set_value_bits(value, dtype, i, bits);
}

void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const Value value = decode(from_dtype, value_bits(from, from_dtype, i));
    set_value_bits(to, to_dtype, i, encode(fusion::reference::convert(value, to_dtype, true)));
  }
}

void map(Op op, DType dtype, std::span<const void* const> operands, void* to, std::uint64_t count) {
  const fusion::TypedNode node{
      op, map_result(op, dtype), static_cast<std::uint8_t>(operands.size()), {}, 0};
  const DType stored = fusion::compute_dtype(node.dtype);
  std::array<DType, 3> dtypes{};
  for (std::size_t k = 0; k < operands.size(); ++k) {
    dtypes[k] = fusion::compute_dtype(map_operand(op, dtype, k));
  }
  std::array<Value, 3> values;
  const std::span given = std::span(values).first(operands.size());
  for (std::uint64_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
      values[k] = decode(dtypes[k], value_bits(operands[k], dtypes[k], i));
    }
    Value result = fusion::reference::operate(node, given, Rounding::each);
    if (op != Op::where) result.pattern.reset();  // which NaN a computation gives is open
    set_value_bits(to, stored, i, encode(fusion::reference::convert(result, stored, true)));
  }
}

void along(Op op, DType from_dtype, DType to_dtype, const void* from, void* to, std::uint64_t rows,
           std::uint64_t length, std::uint64_t part, std::uint64_t parts) {
  fusion::TypedGraph graph;
  graph.rounding = Rounding::each;
  graph.arguments = {{from_dtype, false, false}};
  graph.nodes = {{Op::input, from_dtype, 0, {}, 0}, {op, to_dtype, 1, {0}, 1}};
  graph.outputs = {1};
  const bool running = fusion::is_scan(op);
  auto* const source = const_cast<std::byte*>(static_cast<const std::byte*>(from));
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t p = 0; p < parts; ++p) {
      const std::uint64_t begin = std::min(p * part, length);
      const auto count = static_cast<std::int64_t>(std::min(begin + part, length) - begin);
      const std::array<Dims, 2> shapes = {Dims{count}, running ? Dims{count} : Dims{1}};
      const std::uint64_t target = running ? row * length + begin : row * parts + p;
      std::byte* const result = static_cast<std::byte*>(to) + target * element_bytes(to_dtype);
      const fusion::ReferenceOperand input = {
          source + (row * length + begin) * element_bytes(from_dtype), from_dtype, {1}, 0};
      const fusion::ReferenceOperand output = {result, to_dtype, {1}, 0};
      fusion::evaluate_arrays(graph, shapes, {&input, 1}, {&output, 1});
      if (!fusion::is_arg_reduction(op)) continue;
      const std::uint64_t place = value_bits(result, to_dtype, 0) + begin;
      set_value_bits(result, to_dtype, 0, place);
    }
  }
}

}  // namespace kiln::host
