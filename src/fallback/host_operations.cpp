#include "fallback/host_operations.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/sum_tree.hpp"
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

// ---- The tree of sums and products --------------------------------------------------------------

bool follows_tree(Op op, DType dtype) {
  return (op == Op::sum || op == Op::prod) && !is_integer(dtype) && dtype != DType::boolean;
}

namespace {

constexpr std::uint64_t kChunk = fusion::kTreeChunk;
constexpr std::uint64_t kFewest = fusion::kLeastResidues;

// Of up to a chunk of elements.
std::uint64_t residues_of(std::uint64_t length) {
  return std::clamp<std::uint64_t>(std::bit_ceil(length) / fusion::kTreeTerms, kFewest,
                                   fusion::kMostResidues);
}
// The same for so many slots. Where no slot has two elements, pairs are all there is.
std::uint64_t residues_for(std::uint64_t length, std::uint64_t slots) {
  const std::uint64_t up = std::bit_ceil(std::max<std::uint64_t>(1, length));
  return up <= std::max(kFewest, slots) ? up : residues_of(length);
}

// The stages of chunks that have `slots` results in the end.
void add_stages(std::vector<TreeStage>& stages, TreeStage stage, std::uint64_t slots) {
  for (bool last = false; !last;) {
    stage.slots = std::max(slots, stage.residues / kTreeFold);
    stages.push_back(stage);
    last = stage.slots == slots;
    stage.length = stage.residues = stage.slots;
    stage.apart = stage.chunks;
    stage.elements = 0;
  }
}

template <class T, class Read, class Write, class Combine>
void run_stage(const TreeStage& stage, const std::int64_t* counts, const T& identity,
               const Read& read, const Write& write, const Combine& combine) {
  for (std::uint64_t item = 0; item < stage.items(); ++item) {
    const std::uint64_t slot = item % stage.slots;
    const std::uint64_t chunk = item / stage.slots % stage.chunks;
    const std::uint64_t row = item / stage.slots / stage.chunks;
    std::uint64_t first = row * stage.length * stage.chunks + chunk;
    std::uint64_t own = stage.length;
    std::uint64_t residues = stage.residues;
    if (stage.apart == 1) {
      const std::uint64_t before = chunk * kChunk;
      std::uint64_t length = stage.length;
      if (counts != nullptr) {
        length = (static_cast<std::uint64_t>(counts[row]) + stage.elements - 1) / stage.elements;
      }
      first = row * stage.length + before;
      own = length > before ? std::min(length - before, kChunk) : 0;
      if (stage.chunks > 1 || counts != nullptr) residues = std::min(residues, residues_of(own));
    }
    std::array<T, kTreeFold> all;
    all.fill(identity);
    for (std::uint64_t k = 0; k < kTreeFold; ++k) {
      const std::uint64_t residue = slot + k * stage.slots;
      const std::uint64_t end = residue < residues ? own : 0;
      for (std::uint64_t at = residue; at < end; at += residues) {
        all[k] = combine(all[k], read(first + at * stage.apart));
      }
    }
    for (std::uint64_t half = kTreeFold / 2; half > 0; half /= 2) {
      for (std::uint64_t k = 0; k < half; ++k) all[k] = combine(all[k], all[k + half]);
    }
    write((row * stage.slots + slot) * stage.chunks + chunk, all[0]);
  }
}

template <class T>
void run_stage_of(Op op, const TreeStage& stage, const void* from, const std::int64_t* counts,
                  void* to) {
  const auto read = [&](std::uint64_t i) { return static_cast<const T*>(from)[i]; };
  const auto write = [&](std::uint64_t i, T x) { static_cast<T*>(to)[i] = x; };
  if (op == Op::sum) return run_stage(stage, counts, T(0), read, write, std::plus<>());
  run_stage(stage, counts, T(1), read, write, std::multiplies<>());
}

}  // namespace

std::vector<TreeStage> tree_stages(std::uint64_t rows, std::uint64_t length, std::uint64_t splits) {
  std::vector<TreeStage> stages;
  std::uint64_t elements = 1;
  for (; length > kChunk; elements *= kChunk) {
    TreeStage stage{.rows = rows, .length = length, .residues = fusion::kMostResidues};
    stage.elements = elements;
    stage.chunks = (length - 1) / kChunk + 1;
    const bool few = stage.chunks < splits;
    if (few) stage.chunks = std::bit_ceil(stage.chunks);
    add_stages(stages, stage, few ? splits / stage.chunks : 1);
    if (few) return stages;
    length = stage.chunks;
  }
  TreeStage stage{.rows = rows, .length = length, .residues = residues_for(length, splits)};
  stage.elements = elements;
  add_stages(stages, stage, splits);
  return stages;
}

namespace {

// A sum or product of two values of a dtype that C++ has no type of.
Value combine_values(Op op, DType dtype, const Value& a, const Value& b) {
  const fusion::TypedNode node{op, dtype, 2, {}, 0};
  Value result = fusion::reference::operate(node, std::array{a, b}, Rounding::each);
  result.pattern.reset();
  return fusion::reference::convert(result, dtype, true);
}

}  // namespace

void run_stage(Op op, DType dtype, const TreeStage& stage, const void* from,
               const std::int64_t* counts, void* to) {
  if (dtype == DType::f32) return run_stage_of<float>(op, stage, from, counts, to);
  if (dtype == DType::f64) return run_stage_of<double>(op, stage, from, counts, to);
  const Op pairs = op == Op::sum ? Op::add : Op::mul;
  run_stage(
      stage, counts, fusion::reference::from_real(dtype, op == Op::sum ? 0 : 1),
      [&](std::uint64_t i) { return decode(dtype, value_bits(from, dtype, i)); },
      [&](std::uint64_t i, const Value& value) { set_value_bits(to, dtype, i, encode(value)); },
      [&](const Value& a, const Value& b) { return combine_values(pairs, dtype, a, b); });
}

// ---- Running sums and products ------------------------------------------------------------------

bool runs_in_blocks(Op op, DType dtype) {
  return (op == Op::cumsum || op == Op::cumprod) && !is_integer(dtype) && dtype != DType::boolean;
}

namespace {

constexpr std::uint64_t kRunningPart = 8;  // elements

// Running results of pairs, of pairs of these and so on, of which this is number `at`: what is the
// first one of a pair waits for the second.
template <std::size_t Levels, class T, class Combine>
T next_of_pairs(std::array<T, Levels>& waiting, std::uint64_t at, T value, const Combine& combine) {
  const auto first = static_cast<std::size_t>(std::countr_one(at));  // level at which it is one
  for (std::size_t level = 0; level < Levels; ++level) {
    if (level == first) waiting[level] = value;
    if ((at >> level & 1) != 0) value = combine(waiting[level], value);
  }
  return value;
}

template <class T, class Read, class Write, class Combine>
void run_row(std::uint64_t length, const T& identity, const Read& read, const Write& write,
             const Combine& combine) {
  static_assert(kRunningPart == 1 << 3 && kRunningBlock == kRunningPart << 5);
  std::array<T, 3> elements;
  std::array<T, 5> parts;
  elements.fill(identity);
  parts.fill(identity);
  T blocks = identity;
  T before = identity;
  for (std::uint64_t i = 0; i < length; ++i) {
    const T own = next_of_pairs(elements, i % kRunningPart, T(read(i)), combine);
    write(i, combine(before, own));
    if (i % kRunningPart != kRunningPart - 1) continue;
    const std::uint64_t part = i % kRunningBlock / kRunningPart;
    before = combine(blocks, next_of_pairs(parts, part, own, combine));
    if (i % kRunningBlock == kRunningBlock - 1) blocks = before;
  }
}

template <class T>
void run_row_of(Op op, std::uint64_t length, const void* from, void* to, std::uint64_t first) {
  const auto read = [&](std::uint64_t i) { return static_cast<const T*>(from)[first + i]; };
  const auto write = [&](std::uint64_t i, T x) { static_cast<T*>(to)[first + i] = x; };
  if (op == Op::cumsum) return run_row(length, T(0), read, write, std::plus<>());
  run_row(length, T(1), read, write, std::multiplies<>());
}

}  // namespace

void run_in_blocks(Op op, DType dtype, const void* from, void* to, std::uint64_t rows,
                   std::uint64_t length) {
  const Op pairs = op == Op::cumsum ? Op::add : Op::mul;
  for (std::uint64_t first = 0; first < rows * length; first += length) {
    if (dtype == DType::f32) {
      run_row_of<float>(op, length, from, to, first);
    } else if (dtype == DType::f64) {
      run_row_of<double>(op, length, from, to, first);
    } else {
      run_row(
          length, fusion::reference::from_real(dtype, op == Op::cumsum ? 0 : 1),
          [&](std::uint64_t i) { return decode(dtype, value_bits(from, dtype, first + i)); },
          [&](std::uint64_t i, const Value& x) { set_value_bits(to, dtype, first + i, encode(x)); },
          [&](const Value& a, const Value& b) { return combine_values(pairs, dtype, a, b); });
    }
  }
}

}  // namespace kiln::host
