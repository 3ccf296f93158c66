#include "fallback/unfused.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "core/scalar_bytes.hpp"
#include "fallback/host_operations.hpp"
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
  std::map<Extent, std::size_t> value;
  std::size_t stored = Instruction::kNone;
};

class UnfusedBuilder {
 public:
  UnfusedBuilder(const KernelSpec& spec, std::span<const Scalar> scalars)
      : spec_(spec), graph_(spec.function.graph), scalars_(scalars), nodes_(graph_.nodes.size()) {}

  Unfused run() {
    find_rows();
    find_extents();
    compute_all();
    std::vector<Instruction> stores;
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) stores.push_back(store(i));
    std::ranges::copy(stores, std::back_inserter(result_.instructions));
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
    } else if (attention_ != nullptr) {
      own[attention_->nodes.key] = true;
      result_.splits = attention_->splits;
      result_.values_axis = attention_->value_axis();
      result_.values = spec_.shape[result_.values_axis];
      result_.depth_axis = attention_->nodes.depth;
      result_.depth = spec_.shape[result_.depth_axis];
    }
    result_.rows = 1;
    for (std::size_t k = 0; k < own.size(); ++k) {
      const bool apart =
          attention_ != nullptr && (k == result_.values_axis || k == result_.depth_axis);
      if (apart) continue;
      (own[k] ? result_.own_axes : result_.row_axes).push_back(k);
      (own[k] ? result_.length : result_.rows) *= spec_.shape[k];
    }
  }

  void find_extents() {
    extents_.assign(graph_.nodes.size(), Extent::full);
    if (attention_ != nullptr) return find_attention_extents();
    const auto* rows = std::get_if<RowsForm>(&spec_.form);
    if (rows == nullptr) return;
    std::vector<bool> arguments(graph_.arguments.size(), true);
    for (const TypedNode& node : graph_.nodes) {
      if (node.op == Op::input)
        arguments[node.payload] = rows->row_invariant[array_operand(node.payload)];
    }
    const std::vector<bool> invariant = fusion::row_invariant_nodes(
        graph_, arguments, fusion::iotas_within_rows(graph_, rows->space));
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!invariant[id]) continue;
      const TypedNode& node = graph_.nodes[id];
      const auto is_split = [&](NodeId i) { return extents_[i] == Extent::split; };
      const bool split = result_.splits > 1 && (fusion::is_reduction(node.op) ||
                                                std::ranges::any_of(node.inputs(), is_split));
      extents_[id] = split ? Extent::split : Extent::row;
    }
  }

  // Results of an attention whose keys are split: all parts have the largest score of all keys, so
  // that what joins them finds nothing to scale.
  void find_attention_extents() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      Extent own = Extent::row;
      for (const NodeId operand : node.inputs()) own = own | extents_[operand];
      if (node.op == Op::input) own = extent_of(spec_.operands[array_operand(node.payload)]);
      if (node.op == Op::iota) own = extent_of(spec_.operands[iota_operand(node)]);
      if (fusion::is_reduction(node.op)) {
        const fusion::AttentionNodes& nodes = attention_->nodes;
        own = without(own, id == nodes.product ? Extent::depth : Extent::full);
        const bool parts = id == nodes.total || id == nodes.result;
        if (parts && result_.splits > 1) own = own | Extent::split;
      }
      extents_[id] = own;
    }
  }

  // Along which axes it moves.
  Extent extent_of(const fusion::Operand& operand) const {
    const auto axis = [&](std::size_t k, Extent extent) {
      return operand.strides[k] == 0 ? Extent::row : extent;
    };
    return axis(result_.own_axes.front(), Extent::full) |
           axis(result_.values_axis, Extent::values) | axis(result_.depth_axis, Extent::depth) |
           (operand.output && result_.splits > 1 ? Extent::split : Extent::row);
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
    return nodes_[id].value.try_emplace(extent, Instruction::kNone).first->second;
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
    return known = expanded(own, dtype, extent);
  }

  std::size_t expanded(std::size_t value, DType dtype, Extent extent) {
    if (result_.registers[value].extent == extent) return value;
    Instruction expand;
    expand.kind = Instruction::Kind::expand;
    expand.from = expand.to = dtype;
    expand.inputs[0] = value;
    return add(expand, extent);
  }

  // A value of integers as an i64; of what is too large for that it is below zero.
  std::size_t integers(NodeId id, Extent extent) {
    const DType dtype = compute_dtype(graph_.nodes[id].dtype);
    const std::size_t given = value(id, extent);
    return dtype == DType::i64 ? given : convert(given, dtype, DType::i64);
  }

  std::size_t filled(std::uint64_t bits, DType dtype, Extent extent) {
    Instruction fill;
    fill.kind = Instruction::Kind::fill;
    fill.to = dtype;
    fill.bits = bits;
    return add(fill, extent);
  }

  std::size_t mapped(Op op, DType from, DType to, std::array<std::size_t, 3> inputs) {
    Instruction map;
    map.kind = Instruction::Kind::map;
    map.op = op;
    map.from = from;
    map.to = to;
    map.inputs = inputs;
    return add(map, result_.registers[inputs[0]].extent);
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

  // -- Where data says

  // Whether elements of that extent are before the ends of axes along the row, or of all axes that
  // they have; nothing where none ends.
  std::optional<std::size_t> within(Extent extent, bool along_row) {
    std::optional<std::size_t> all;
    for (std::size_t b = 0; b < graph_.bounds.size(); ++b) {
      const std::size_t axis = spec_.function.bounds[b].axis;
      const bool own = std::ranges::find(result_.own_axes, axis) != result_.own_axes.end();
      if (own ? !has(extent, Extent::full) : along_row) continue;
      const std::size_t here = is_before(graph_.bounds[b].end, axis, extent);
      all = all ? mapped(Op::logical_and, DType::boolean, DType::boolean,
                         {*all, here, Instruction::kNone})
                : here;
    }
    return all;
  }

  std::size_t is_before(NodeId end, std::size_t axis, Extent extent) {
    Instruction index;
    index.kind = Instruction::Kind::index;
    index.operand = Instruction::kNone;
    index.axis = axis;
    index.to = DType::i64;
    const std::size_t place = add(index, extent);
    if (compute_dtype(graph_.nodes[end].dtype) == DType::u64) {
      return mapped(
          Op::less, DType::u64, DType::boolean,
          {convert(place, DType::i64, DType::u64), value(end, extent), Instruction::kNone});
    }
    return mapped(Op::less, DType::i64, DType::boolean,
                  {place, integers(end, extent), Instruction::kNone});
  }

  Instruction store(std::size_t output) {
    const NodeId id = graph_.outputs[output];
    Instruction store;
    store.kind = Instruction::Kind::store;
    store.operand = output_operand(output);
    const fusion::Operand& operand = spec_.operands[store.operand];
    store.from = store.to = operand.dtype;
    store.inputs[0] = stored_register(id);
    if (attention_ != nullptr) {
      store.inputs[0] = expanded(store.inputs[0], operand.dtype, extent_of(operand));
    }
    const Extent extent = result_.registers[store.inputs[0]].extent;
    if (const NodeId* const place = graph_.place_of(true, output)) {
      store.places = operand.indexed;
      store.inputs[1] = integers(*place, extent);
    }
    if (const auto here = within(extent, false)) {
      if (store.inputs[1] == Instruction::kNone) {
        store.places = {0, 1};
        store.inputs[1] = filled(0, DType::i64, extent);
      }
      const std::size_t nowhere = filled(~std::uint64_t{0}, DType::i64, extent);
      store.inputs[1] =
          mapped(Op::where, DType::i64, DType::i64, {*here, store.inputs[1], nowhere});
    }
    return store;
  }

  // -- Nodes

  // Operands first, places before what is read there, and ends before all else.
  void compute_all() {
    std::vector<NodeId> order;
    for (const fusion::BoundedAxis& bound : graph_.bounds) order.push_back(bound.end);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) order.push_back(id);
    std::vector<bool> done(graph_.nodes.size(), false);
    std::vector<NodeId> waiting;
    const auto want = [&](NodeId id) {
      if (!done[id]) waiting.push_back(id);
    };
    for (const NodeId first : order) {
      want(first);
      while (!waiting.empty()) {
        const NodeId next = waiting.back();
        const TypedNode& node = graph_.nodes[next];
        const std::size_t before = waiting.size();
        for (const NodeId operand : node.inputs()) want(operand);
        if (const NodeId* const place = place_of(node)) want(*place);
        if (waiting.size() != before) continue;
        waiting.pop_back();
        if (!done[next]) compute(next);
        done[next] = true;
      }
    }
  }

  const NodeId* place_of(const TypedNode& node) const {
    return node.op == Op::input ? graph_.place_of(false, node.payload) : nullptr;
  }

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
    if (const NodeId* const place = place_of(node)) {
      load.places = spec_.operands[load.operand].indexed;
      load.inputs[1] = integers(*place, extents_[id]);
    }
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
    const Extent extent = extent_along(id);
    along.inputs[0] = value(node.operands[0], extent);
    const bool over_row = !has(extents_[id], Extent::full);
    const auto here = over_row ? within(extent, true) : std::nullopt;
    if (here && host::follows_tree(along.op, along.from)) {
      along.inputs[1] = count_of(*here, extents_[id]);
    } else if (here) {
      along.inputs[0] = or_nothing(along, *here);
    }
    const std::size_t result = add(along, extents_[id]);
    if (node.op != Op::mean) return finish(id, node, result);
    const std::size_t length = here ? convert(count_of(*here, extents_[id]), DType::i64, along.to)
                                    : filled(length_bits(along.to), along.to, extents_[id]);
    finish(id, node, mapped(Op::div, along.to, along.to, {result, length, Instruction::kNone}));
  }

  // Of what a reduction reduces: with the axis that it is over.
  Extent extent_along(NodeId id) const {
    if (attention_ == nullptr) return Extent::full;
    if (id == attention_->nodes.product) return extents_[id] | Extent::depth;
    return without(extents_[id], Extent::split) | Extent::full;
  }

  // The operand of a reduction, and beyond the end what changes nothing.
  std::size_t or_nothing(const Instruction& along, std::size_t here) {
    const DType dtype = along.from;
    const std::size_t nothing =
        filled(identity_bits(along.op, dtype), dtype, result_.registers[here].extent);
    return mapped(Op::where, dtype, dtype, {here, along.inputs[0], nothing});
  }

  static std::uint64_t identity_bits(Op op, DType dtype) {
    using namespace fusion::reference;
    const bool largest = op == Op::reduce_max || op == Op::argmax;
    if (largest || op == Op::reduce_min || op == Op::argmin) {
      const long double infinity = std::numeric_limits<long double>::infinity();
      if (is_floating(dtype)) return encode(from_real(dtype, largest ? -infinity : infinity));
      const int digits = bits(dtype) - (kind(dtype) == Kind::signed_integer ? 1 : 0);
      const Integer most = (Integer{1} << digits) - 1;
      const Integer least = kind(dtype) == Kind::signed_integer ? -most - 1 : Integer{0};
      return encode(from_integer(dtype, largest ? least : most));
    }
    const int number = op == Op::prod || op == Op::reduce_all ? 1 : 0;
    const bool real = is_floating(dtype) || kind(dtype) == Kind::complex;
    return encode(real ? from_real(dtype, number) : from_integer(dtype, number));
  }

  // How many of a row's elements are before the end.
  std::size_t count_of(std::size_t here, Extent extent) {
    Instruction sum;
    sum.kind = Instruction::Kind::reduce;
    sum.op = Op::sum;
    sum.from = sum.to = DType::i64;
    sum.inputs[0] = convert(here, DType::boolean, DType::i64);
    return add(sum, extent);
  }

  std::uint64_t length_bits(DType dtype) const {
    const auto length = fusion::reference::from_integer(DType::i64, result_.length);
    return fusion::reference::encode(fusion::reference::convert(length, dtype, true));
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
  const AttentionForm* const attention_ = std::get_if<AttentionForm>(&spec_.form);
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
