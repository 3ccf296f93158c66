#include "fusion/graph/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

std::uint64_t hash_of(const Node& node) {
  std::uint64_t hash =
      mix(static_cast<std::uint64_t>(node.op), static_cast<std::uint64_t>(node.dtype));
  for (const NodeId operand : node.inputs()) hash = mix(hash, operand);
  hash = mix(hash, node.payload);
  return mix(hash, static_cast<std::uint64_t>(node.literal));
}

}  // namespace

Literal Literal::boolean(bool value) { return {Kind::boolean, value ? 1u : 0u}; }

Literal Literal::integer(std::int64_t value) {
  return {Kind::signed_integer, static_cast<std::uint64_t>(value)};
}

Literal Literal::unsigned_integer(std::uint64_t value) {
  const bool fits = value <= static_cast<std::uint64_t>(INT64_MAX);
  return {fits ? Kind::signed_integer : Kind::unsigned_integer, value};
}

Literal Literal::floating(double value) {
  return {Kind::floating, std::bit_cast<std::uint64_t>(value)};
}

double Literal::as_double() const {
  switch (kind) {
    case Kind::floating: return std::bit_cast<double>(bits);
    case Kind::signed_integer: return static_cast<double>(static_cast<std::int64_t>(bits));
    default: return static_cast<double>(bits);
  }
}

NodeId Graph::intern(const Node& node) {
  const std::uint64_t hash = hash_of(node);
  const auto [first, last] = interned_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (nodes_[it->second] == node) return it->second;
  }
  nodes_.push_back(node);
  const auto id = static_cast<NodeId>(nodes_.size() - 1);
  interned_.emplace(hash, id);
  return id;
}

NodeId Graph::argument(std::string_view name) {
  std::size_t position = 0;
  while (position < arguments_.size() && arguments_[position] != name) ++position;
  if (position == arguments_.size()) arguments_.emplace_back(name);
  Node node;
  node.payload = position;
  return intern(node);
}

NodeId Graph::constant(Literal literal) {
  Node node;
  node.op = Op::constant;
  node.payload = literal.bits;
  node.literal = literal.kind;
  return intern(node);
}

NodeId Graph::apply(Op op, std::span<const NodeId> operands) {
  const OpInfo& entry = info(op);
  if (operands.size() != static_cast<std::size_t>(entry.arity) || entry.rule == Rule::leaf ||
      entry.rule == Rule::index || entry.rule == Rule::convert) {
    throw Error(Code::invalid_argument, fmt::format("{}: expected {} operands, got {}", entry.name,
                                                    entry.arity, operands.size()));
  }
  Node node;
  node.op = op;
  node.arity = static_cast<std::uint8_t>(operands.size());
  std::copy(operands.begin(), operands.end(), node.operands.begin());
  return intern(node);
}

NodeId Graph::cast(NodeId value, DType dtype) {
  Node node;
  node.op = Op::cast;
  node.dtype = dtype;
  node.arity = 1;
  node.operands[0] = value;
  return intern(node);
}

NodeId Graph::bitcast(NodeId value, DType dtype) {
  Node node;
  node.op = Op::bitcast;
  node.dtype = dtype;
  node.arity = 1;
  node.operands[0] = value;
  return intern(node);
}

NodeId Graph::reduce(Op op, NodeId value, AxisSet axes) {
  if (!has_axes(op)) {
    throw Error(Code::invalid_argument, fmt::format("{} does not work along axes", info(op).name));
  }
  Node node;
  node.op = op;
  node.arity = 1;
  node.operands[0] = value;
  node.payload = axes;
  return intern(node);
}

Tables& Graph::own_tables() {
  if (tables_ == nullptr) tables_ = std::make_shared<Tables>();
  return *tables_;
}

NodeId Graph::shape_op(Op op, std::span<const NodeId> operands,
                       std::vector<std::int64_t> parameters) {
  if (!is_shape_op(op) || operands.size() != static_cast<std::size_t>(info(op).arity)) {
    throw Error(Code::invalid_argument, fmt::format("{} does not change the shape of {} values",
                                                    info(op).name, operands.size()));
  }
  std::vector<std::vector<std::int64_t>>& lists = own_tables().lists;
  const auto known = std::find(lists.begin(), lists.end(), parameters);
  Node node;
  node.op = op;
  node.arity = static_cast<std::uint8_t>(operands.size());
  node.payload = static_cast<std::uint64_t>(known - lists.begin());
  std::copy(operands.begin(), operands.end(), node.operands.begin());
  if (known == lists.end()) lists.push_back(std::move(parameters));
  return intern(node);
}

std::vector<NodeId> Graph::opaque(OpaqueCall call, std::span<const NodeId> inputs,
                                  std::size_t results) {
  if (inputs.empty() || results == 0 || results > kMostResults) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: a call takes at least one input and gives 1 to {} results, got {} "
                            "and {}",
                            call.name, kMostResults, inputs.size(), results));
  }
  std::vector<OpaqueCall>& calls = own_tables().calls;
  calls.push_back(std::move(call));
  Node node;
  node.op = Op::link;
  node.arity = 2;
  node.operands = {inputs[0], inputs[0], 0};  // the first link's own list is its value
  NodeId list = intern(node);
  for (const NodeId input : inputs.subspan(1)) {
    node.operands = {list, input, 0};
    list = intern(node);
  }
  std::vector<NodeId> values;
  for (std::size_t i = 0; i < results; ++i) {
    Node result;
    result.op = Op::opaque;
    result.arity = 1;
    result.operands[0] = list;
    result.payload = (calls.size() - 1) * kMostResults + i;
    values.push_back(intern(result));
  }
  return values;
}

NodeId Graph::iota(std::int64_t axis, DType dtype) {
  if (info(dtype).storage_only || (!is_integer(dtype) && !is_floating(dtype))) {
    throw Error(Code::invalid_argument,
                fmt::format("iota: expected an integer or floating-point dtype to count in, got {}",
                            name(dtype)));
  }
  Node node;
  node.op = Op::iota;
  node.dtype = dtype;
  node.payload = static_cast<std::uint64_t>(axis);
  return intern(node);
}

void Graph::add_output(NodeId value, std::string_view name) {
  outputs_.push_back(value);
  output_names_.emplace_back(name);
}

}  // namespace kiln::fusion
