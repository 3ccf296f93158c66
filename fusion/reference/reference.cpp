// The loop of the reference interpreter: for every element, every node in order. Values and
// operations are in value.cpp and operation.cpp.
#include "fusion/reference/reference.hpp"

#include <vector>

#include "fusion/reference/node.hpp"
#include "fusion/reference/value.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

using reference::Value;

class Evaluation {
 public:
  Evaluation(const TypedGraph& graph, const Dims& shape,
             std::span<const ReferenceOperand> arguments, std::span<const ReferenceOperand> outputs)
      : graph_(graph),
        arguments_(arguments),
        outputs_(outputs),
        shape_(shape),
        coordinates_(shape.size(), 0),
        values_(graph.nodes.size()) {
    if (arguments.size() != graph.arguments.size() || outputs.size() != graph.outputs.size()) {
      throw Error(Code::internal, "reference: another number of operands than the graph has");
    }
  }

  // One element of every output, at the current coordinates. All values are computed before the
  // first is stored, because an output may lie in an input's memory.
  void element() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) values_[id] = value(graph_.nodes[id]);
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const ReferenceOperand& output = outputs_[i];
      const Value stored = reference::convert(values_[graph_.outputs[i]], output.dtype, true);
      reference::write(output.data, stored, element_index(output));
    }
  }

  // Moves to the next element in row-major order; false at the end.
  bool advance(const Dims& shape) {
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++coordinates_[axis] < shape[axis]) return true;
      coordinates_[axis] = 0;
    }
    return false;
  }

 private:
  std::int64_t element_index(const ReferenceOperand& operand) const {
    std::int64_t index = operand.offset;
    for (std::size_t axis = 0; axis < coordinates_.size(); ++axis) {
      index += coordinates_[axis] * operand.strides[axis];
    }
    return index;
  }

  std::int64_t count(std::int64_t axis) const {
    if (axis != kAllAxes) {
      const auto rank = static_cast<std::int64_t>(shape_.size());
      return coordinates_[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
    }
    std::int64_t place = 0;
    for (std::size_t k = 0; k < shape_.size(); ++k) place = place * shape_[k] + coordinates_[k];
    return place;
  }

  Value value(const TypedNode& node) const {
    switch (node.op) {
      case Op::input: {
        const ReferenceOperand& operand = arguments_[node.payload];
        return reference::read(operand.data, operand.dtype, element_index(operand));
      }
      case Op::scalar: {
        const ReferenceOperand& operand = arguments_[node.payload];
        return reference::scalar_value(
            graph_, node, reference::read(operand.data, operand.dtype, operand.offset));
      }
      case Op::iota: {
        const auto place =
            reference::from_integer(DType::i64, count(static_cast<std::int64_t>(node.payload)));
        return reference::convert(place, node.dtype, true);
      }
      default: break;
    }
    std::array<Value, 3> operands;
    for (std::size_t i = 0; i < node.arity; ++i) operands[i] = values_[node.operands[i]];
    return reference::evaluate_node(graph_, node, std::span(operands).first(node.arity));
  }

  const TypedGraph& graph_;
  std::span<const ReferenceOperand> arguments_;
  std::span<const ReferenceOperand> outputs_;
  const Dims& shape_;
  Dims coordinates_;
  std::vector<Value> values_;
};

}  // namespace

void evaluate(const TypedGraph& graph, const Dims& shape,
              std::span<const ReferenceOperand> arguments,
              std::span<const ReferenceOperand> outputs) {
  for (const std::int64_t extent : shape) {
    if (extent == 0) return;
  }
  Evaluation evaluation(graph, shape, arguments, outputs);
  do {
    evaluation.element();
  } while (evaluation.advance(shape));
}

}  // namespace kiln::fusion
