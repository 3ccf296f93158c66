#include "fallback/unfused.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/scalar_bytes.hpp"
#include "fusion/graph/axes.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::compute_dtype;
using fusion::NodeId;
using fusion::Op;
using fusion::Rule;
using fusion::TypedNode;

int register_bytes(DType dtype) { return std::max(1, bits(dtype) / 8); }

bool is_number(const TypedNode& node) { return node.op == Op::scalar || node.op == Op::constant; }

// The registers of a node: what it is computed with, once for each extent that it is wanted in, and
// for a dtype that is not computed in, its elements as they are in memory.
struct NodeRegisters {
  std::array<std::size_t, 3> value = {Instruction::kNone, Instruction::kNone, Instruction::kNone};
  std::size_t stored = Instruction::kNone;
};

class UnfusedBuilder {
 public:
  UnfusedBuilder(const KernelSpec& spec, std::span<const Scalar> scalars)
      : spec_(spec), graph_(spec.function.graph), scalars_(scalars), nodes_(graph_.nodes.size()) {}

  Unfused run() {
    find_rows();
    find_extents();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) compute(id);
    std::vector<std::size_t> stored;
    for (const NodeId id : graph_.outputs) stored.push_back(stored_register(id));
    for (std::size_t i = 0; i < stored.size(); ++i) {
      Instruction store;
      store.kind = Instruction::Kind::store;
      store.operand = output_operand(i);
      store.from = store.to = spec_.operands[store.operand].dtype;
      store.inputs[0] = stored[i];
      result_.instructions.push_back(store);
    }
    drop_unused();
    place_registers();
    return std::move(result_);
  }

 private:
  // -- Rows

  void find_rows() {
    std::vector<bool> own(spec_.shape.size(), false);
    if (const auto* rows = std::get_if<RowsForm>(&spec_.form)) {
      own = rows->space.reduced;
      result_.splits = rows->space.splits;
    } else if (const auto* scan = std::get_if<ScanForm>(&spec_.form)) {
      own[scan->axis] = true;
    }
    result_.rows = 1;
    for (std::size_t k = 0; k < own.size(); ++k) {
      (own[k] ? result_.own_axes : result_.row_axes).push_back(k);
      (own[k] ? result_.length : result_.rows) *= spec_.shape[k];
    }
  }

  void find_extents() {
    extents_.assign(graph_.nodes.size(), Extent::full);
    const auto* rows = std::get_if<RowsForm>(&spec_.form);
    if (rows == nullptr) return;
    std::vector<bool> arguments(graph_.arguments.size(), true);
    for (const TypedNode& node : graph_.nodes) {
      if (node.op == Op::input)
        arguments[node.payload] = rows->row_invariant[array_operand(node.payload)];
    }
    const std::vector<bool> invariant = fusion::row_invariant_nodes(graph_, arguments);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!invariant[id]) continue;
      const TypedNode& node = graph_.nodes[id];
      const auto is_split = [&](NodeId i) { return extents_[i] == Extent::split; };
      const bool split = result_.splits > 1 && (fusion::is_reduction(node.op) ||
                                                std::ranges::any_of(node.inputs(), is_split));
      extents_[id] = split ? Extent::split : Extent::row;
    }
  }

  std::size_t array_operand(std::uint64_t argument) const {
    return static_cast<std::size_t>(std::count_if(
        graph_.arguments.begin(), graph_.arguments.begin() + static_cast<std::ptrdiff_t>(argument),
        [](const fusion::ArgumentType& type) { return !type.scalar; }));
  }
  std::size_t output_operand(std::size_t output) const {
    return array_operand(graph_.arguments.size()) + output;
  }
  std::size_t iota_operand(const TypedNode& node) const {
    const auto axes = fusion::iota_axes(graph_);
    const auto found = std::ranges::find(axes, fusion::iota_axis(node));
    return output_operand(graph_.outputs.size()) + static_cast<std::size_t>(found - axes.begin());
  }

  // -- Instructions

  std::size_t add(Instruction instruction, Extent extent) {
    instruction.output = result_.registers.size();
    result_.registers.push_back({register_bytes(instruction.to), extent, 0});
    result_.instructions.push_back(instruction);
    return instruction.output;
  }

  std::size_t convert(std::size_t from_register, DType from, DType to) {
    Instruction convert;
    convert.kind = Instruction::Kind::convert;
    convert.from = from;
    convert.to = to;
    convert.inputs[0] = from_register;
    return add(convert, result_.registers[from_register].extent);
  }

  std::size_t& value_slot(NodeId id, Extent extent) {
    return nodes_[id].value[static_cast<std::size_t>(extent)];
  }
  void set_value(NodeId id, std::size_t known) {
    value_slot(id, result_.registers[known].extent) = known;
  }

  // The node's value in the dtype that it is computed in.
  std::size_t value(NodeId id, Extent extent) {
    std::size_t& known = value_slot(id, extent);
    if (known != Instruction::kNone) return known;
    const TypedNode& node = graph_.nodes[id];
    const DType dtype = compute_dtype(node.dtype);
    if (is_number(node)) {
      Instruction fill;
      fill.kind = Instruction::Kind::fill;
      fill.to = dtype;
      fill.bits = leaf_bits(node);
      return known = add(fill, extent);
    }
    std::size_t own = value_slot(id, extents_[id]);
    if (own == Instruction::kNone) {
      own = convert(nodes_[id].stored, node.dtype, dtype);
      value_slot(id, extents_[id]) = own;
    }
    if (extent == extents_[id]) return own;
    Instruction expand;
    expand.kind = Instruction::Kind::expand;
    expand.from = expand.to = dtype;
    expand.inputs[0] = own;
    return known = add(expand, extent);
  }

  // Its elements as they are in memory.
  std::size_t stored_register(NodeId id) {
    const DType dtype = graph_.nodes[id].dtype;
    if (compute_dtype(dtype) == dtype) return value(id, extents_[id]);
    if (nodes_[id].stored == Instruction::kNone) {
      nodes_[id].stored = convert(value(id, extents_[id]), compute_dtype(dtype), dtype);
    }
    return nodes_[id].stored;
  }

  std::uint64_t leaf_bits(const TypedNode& node) const {
    using fusion::reference::convert;
    using fusion::reference::decode;
    using fusion::reference::encode;
    const DType dtype = compute_dtype(node.dtype);
    const bool each = graph_.rounding == Rounding::each;
    if (node.op == Op::constant) {
      if (each && fusion::is_narrow_float(node.dtype)) {
        return encode(convert(decode(node.dtype, node.payload), dtype, true));
      }
      if (kind(node.dtype) != Kind::signed_integer) return node.payload;
      const int shift = 64 - bits(node.dtype);
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(node.payload << shift) >> shift);
    }
    const Scalar& scalar = scalars_[node.payload];
    std::array<std::byte, 8> bytes;
    if (!put_scalar_bytes(bytes.data(), scalar, dtype)) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: input '{}': the number {} does not fit {}, the dtype of its "
                              "partner",
                              spec_.function.name, graph_.argument_names[node.payload],
                              scalar_text(scalar), name(dtype)));
    }
    const DType given = is_floating(scalar.dtype()) ? DType::f64 : scalar.dtype();
    const std::uint64_t low =
        bits(given) == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits(given)) - 1;
    const fusion::reference::Value number =
        fusion::reference::scalar_value(graph_, node, decode(given, scalar.bits() & low));
    return encode(convert(number, dtype, true));
  }

  // -- Nodes

  void compute(NodeId id) {
    const TypedNode& node = graph_.nodes[id];
    switch (node.op) {
      case Op::scalar:
      case Op::constant: return;  // where it is used
      case Op::input: return load(id, node);
      case Op::iota: return count(id, node);
      case Op::cast:
      case Op::promote: return compute_conversion(id, node);
      case Op::bitcast: return reinterpret(id, node);
      default: break;
    }
    if (fusion::has_axes(node.op)) return compute_along_axes(id, node);
    finish(id, node, map(id, node));
  }

  void load(NodeId id, const TypedNode& node) {
    Instruction load;
    load.kind = Instruction::Kind::load;
    load.operand = array_operand(node.payload);
    load.from = load.to = node.dtype;
    const std::size_t loaded = add(load, extents_[id]);
    if (compute_dtype(node.dtype) == node.dtype) {
      set_value(id, loaded);
    } else {
      nodes_[id].stored = loaded;
    }
  }

  void count(NodeId id, const TypedNode& node) {
    Instruction index;
    index.kind = Instruction::Kind::index;
    index.operand = iota_operand(node);
    index.to = DType::i64;
    const std::size_t place = add(index, extents_[id]);
    const DType dtype = compute_dtype(node.dtype);
    finish(id, node, dtype == DType::i64 ? place : convert(place, DType::i64, dtype));
  }

  // A result, rounded to its own dtype under Rounding::each.
  void finish(NodeId id, const TypedNode& node, std::size_t result) {
    const bool rounds = graph_.rounding == Rounding::each && fusion::is_narrow_float(node.dtype);
    if (!rounds) return set_value(id, result);
    nodes_[id].stored = convert(result, compute_dtype(node.dtype), node.dtype);
  }

  void compute_conversion(NodeId id, const TypedNode& node) {
    const NodeId operand = node.operands[0];
    const DType from = graph_.nodes[operand].dtype;
    if (node.op == Op::promote && from == node.dtype && !is_number(graph_.nodes[operand])) {
      nodes_[id] = nodes_[operand];  // a copy, bit by bit
      return;
    }
    const std::size_t given = value(operand, extents_[id]);
    const bool narrow = info(node.dtype).storage_only || fusion::is_narrow_float(node.dtype);
    if (narrow && (node.op == Op::cast || graph_.rounding == Rounding::each)) {
      nodes_[id].stored = convert(given, compute_dtype(from), node.dtype);
      return;
    }
    const DType to = compute_dtype(node.dtype);
    set_value(id, compute_dtype(from) == to ? given : convert(given, compute_dtype(from), to));
  }

  void reinterpret(NodeId id, const TypedNode& node) {
    const NodeId operand = node.operands[0];
    const std::size_t bits = is_number(graph_.nodes[operand]) ? leaf_stored(operand, extents_[id])
                                                              : stored_register(operand);
    if (compute_dtype(node.dtype) == node.dtype) {
      set_value(id, bits);
    } else {
      nodes_[id].stored = bits;
    }
  }

  std::size_t leaf_stored(NodeId id, Extent extent) {
    const DType dtype = graph_.nodes[id].dtype;
    const std::size_t given = value(id, extent);
    return compute_dtype(dtype) == dtype ? given : convert(given, compute_dtype(dtype), dtype);
  }

  // The dtype in which operand `i` is read.
  DType operand_dtype(const TypedNode& node, std::size_t i, DType computed) const {
    const Rule rule = fusion::info(node.op).rule;
    if (rule == Rule::select && i == 0) return DType::boolean;
    if (rule == Rule::shift && i == 1) return DType::u64;
    return computed;
  }

  std::size_t map(NodeId id, const TypedNode& node) {
    Instruction map;
    map.kind = Instruction::Kind::map;
    map.op = node.op;
    const std::size_t of = node.op == Op::where ? 1 : 0;
    map.from = compute_dtype(graph_.nodes[node.operands[of]].dtype);
    map.to = compute_dtype(node.dtype);
    for (std::size_t i = 0; i < node.arity; ++i) {
      const DType own = compute_dtype(graph_.nodes[node.operands[i]].dtype);
      const DType wanted = operand_dtype(node, i, map.from);
      map.inputs[i] = value(node.operands[i], extents_[id]);
      if (own != wanted) map.inputs[i] = convert(map.inputs[i], own, wanted);
    }
    // The neighbour is one of the result's own dtype.
    if (node.op == Op::nextafter && fusion::is_narrow_float(node.dtype)) map.from = node.dtype;
    return add(map, extents_[id]);
  }

  void compute_along_axes(NodeId id, const TypedNode& node) {
    Instruction along;
    along.kind = fusion::is_scan(node.op) ? Instruction::Kind::scan : Instruction::Kind::reduce;
    along.op = node.op == Op::mean ? Op::sum : node.op;
    along.from = compute_dtype(graph_.nodes[node.operands[0]].dtype);
    along.to = compute_dtype(node.dtype);
    along.inputs[0] = value(node.operands[0], Extent::full);
    const std::size_t result = add(along, extents_[id]);
    finish(id, node, node.op == Op::mean ? divide_by_length(result, along.to) : result);
  }

  std::size_t divide_by_length(std::size_t sum, DType dtype) {
    const Extent extent = result_.registers[sum].extent;
    const auto length = fusion::reference::from_integer(DType::i64, result_.length);
    Instruction fill;
    fill.kind = Instruction::Kind::fill;
    fill.to = dtype;
    fill.bits = fusion::reference::encode(fusion::reference::convert(length, dtype, true));
    Instruction divide;
    divide.kind = Instruction::Kind::map;
    divide.op = Op::div;
    divide.from = divide.to = dtype;
    divide.inputs = {sum, add(fill, extent), Instruction::kNone};
    return add(divide, extent);
  }

  // -- Memory

  // Values that nothing reads, such as a narrow argument's that is only copied, are not computed.
  void drop_unused() {
    std::vector<bool> read(result_.registers.size(), false);
    std::vector<Instruction> kept;
    for (std::size_t i = result_.instructions.size(); i-- > 0;) {
      const Instruction& one = result_.instructions[i];
      if (one.output != Instruction::kNone && !read[one.output]) continue;
      for (const std::size_t input : one.inputs) {
        if (input != Instruction::kNone) read[input] = true;
      }
      kept.push_back(one);
    }
    std::ranges::reverse(kept);
    result_.instructions = std::move(kept);
  }

  void place_registers() {
    std::vector<std::size_t> last(result_.registers.size(), 0);
    for (std::size_t i = 0; i < result_.instructions.size(); ++i) {
      for (const std::size_t input : result_.instructions[i].inputs) {
        if (input != Instruction::kNone) last[input] = i;
      }
    }
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < result_.instructions.size(); ++i) {
      const Instruction& one = result_.instructions[i];
      if (one.output != Instruction::kNone) take_slot(result_.registers[one.output], free);
      for (std::size_t k = 0; k < one.inputs.size(); ++k) {
        const std::size_t input = one.inputs[k];
        const auto before = one.inputs.begin() + static_cast<std::ptrdiff_t>(k);
        const bool again = std::find(one.inputs.begin(), before, input) != before;
        if (input != Instruction::kNone && !again && last[input] == i) {
          free.push_back(result_.registers[input].slot);
        }
      }
    }
  }

  void take_slot(Register& wanted, std::vector<std::size_t>& free) {
    const auto fits = [&](std::size_t slot) {
      const Register& own = result_.slots[slot];
      return own.bytes == wanted.bytes && own.extent == wanted.extent;
    };
    const auto found = std::ranges::find_if(free, fits);
    if (found != free.end()) {
      wanted.slot = *found;
      free.erase(found);
      return;
    }
    wanted.slot = result_.slots.size();
    result_.slots.push_back(wanted);
  }

  const KernelSpec& spec_;
  const fusion::TypedGraph& graph_;
  const std::span<const Scalar> scalars_;
  Unfused result_;
  std::vector<Extent> extents_;  ///< of each node
  std::vector<NodeRegisters> nodes_;
};

}  // namespace

Unfused unfuse(const KernelSpec& spec, std::span<const Scalar> scalars) {
  return UnfusedBuilder(spec, scalars).run();
}

}  // namespace kiln
