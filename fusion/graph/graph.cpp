#include "fusion/graph/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

std::uint64_t hash_of(const Node& node) {
  std::uint64_t hash =
      mixed(static_cast<std::uint64_t>(node.op), static_cast<std::uint64_t>(node.dtype));
  for (const NodeId operand : node.inputs()) hash = mixed(hash, operand);
  hash = mixed(hash, node.payload);
  return mixed(hash, static_cast<std::uint64_t>(node.literal));
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

std::uint64_t Tables::add_list(const std::vector<std::int64_t>& list) {
  std::uint64_t hash = list.size();
  for (const std::int64_t entry : list) hash = mixed(hash, static_cast<std::uint64_t>(entry));
  const auto next = static_cast<std::uint32_t>(lists.size());
  const std::uint32_t position = list_index_.find_or_enter(
      hash, next, [&](std::uint32_t known) { return lists[known] == list; });
  if (position == next) lists.push_back(list);
  return position;
}

NodeId Graph::intern(const Node& node) {
  const auto next = static_cast<NodeId>(nodes_.size());
  const NodeId id = index_.find_or_enter(hash_of(node), next,
                                         [&](NodeId known) { return nodes_[known] == node; });
  if (id == next) nodes_.push_back(node);
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
                       const std::vector<std::int64_t>& parameters) {
  if (!has_list(op) || operands.size() != static_cast<std::size_t>(info(op).arity)) {
    throw Error(Code::invalid_argument, fmt::format("{} does not change the shape of {} values",
                                                    info(op).name, operands.size()));
  }
  Node node;
  node.op = op;
  node.arity = static_cast<std::uint8_t>(operands.size());
  node.payload = own_tables().add_list(parameters);
  std::copy(operands.begin(), operands.end(), node.operands.begin());
  return intern(node);
}

std::vector<NodeId> Graph::custom_call(CustomCall call, std::span<const NodeId> inputs,
                                       std::size_t results) {
  if (inputs.empty() || results == 0 || results > kMostResults) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: a call takes at least one input and gives 1 to {} results, got {} "
                            "and {}",
                            call.name, kMostResults, inputs.size(), results));
  }
  std::vector<CustomCall>& calls = own_tables().calls;
  calls.push_back(std::move(call));
  Node node;
  node.op = Op::tuple;
  node.arity = 2;
  node.operands = {inputs[0], inputs[0], 0};  // what a tuple of one value extends is that value
  NodeId tuple = intern(node);
  for (const NodeId input : inputs.subspan(1)) {
    node.operands = {tuple, input, 0};
    tuple = intern(node);
  }
  std::vector<NodeId> values;
  for (std::size_t i = 0; i < results; ++i) {
    Node result;
    result.op = Op::custom_call;
    result.arity = 1;
    result.operands[0] = tuple;
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
