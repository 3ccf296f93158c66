#include "fusion/graph/describe.hpp"

#include <fmt/format.h>

#include <cmath>

#include "kiln/error.hpp"

namespace kiln::fusion {

std::string constant_text(const Literal& literal) {
  switch (literal.kind) {
    case Kind::boolean: return literal.bits ? "True" : "False";
    case Kind::signed_integer: return fmt::format("{}", static_cast<std::int64_t>(literal.bits));
    case Kind::unsigned_integer: return fmt::format("{}", literal.bits);
    default: break;
  }
  const double value = literal.as_double();
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  std::string text = fmt::format("{}", value);  // the shortest that reads back to the same bits
  if (text.find_first_of(".en") == text.npos) text += ".0";
  return text;
}

std::string describe(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  if (node.op == Op::constant) return constant_text({node.literal, node.payload});
  if (node.op == Op::input) return fmt::format("'{}'", graph.arguments()[node.payload]);
  return fmt::format("the result of {}", info(node.op).name);
}

void refuse_call(std::string_view function, std::string_view message) {
  throw Error(Code::invalid_argument, fmt::format("{}: {}", function, message));
}

}  // namespace kiln::fusion
