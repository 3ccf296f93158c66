#include "tool/bench_compare.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/reference/value.hpp"

namespace kiln::tool {
namespace {

// Of the exact value: far more than a chain in f32 is off by, less than the spacing of numbers of
// 16 bits.
constexpr double kOfValue = 1.0 / 1024;
// Of the typical size of all values: far more than thousands of f32 terms that cancel are off by.
constexpr double kOfAll = 1.0 / 16384;

// The root of the mean square of those that are finite.
double typical_size(std::span<const double> values) {
  double squares = 0;
  double count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(squares / count);
}

double largest_finite(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

}  // namespace

bool may_be_rounded_from(DType dtype, std::span<const std::byte> stored,
                         std::span<const double> exact, double slack) {
  const std::size_t parts = kind(dtype) == Kind::complex ? 2 : 1;
  const DType part = parts == 2 ? DType::f32 : dtype;
  const double least = std::max(kOfAll * typical_size(exact), slack);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const long double got =
        fusion::reference::read(stored.data(), part, static_cast<std::int64_t>(i)).real;
    if (std::isnan(exact[i])) {
      if (!std::isnan(got)) return false;
      continue;
    }
    const double size = largest_finite(exact.subspan(i / parts * parts, parts));
    const double allowed = std::isinf(exact[i]) ? 0 : std::max(kOfValue * size, least);
    // Not the other way round: a NaN is in no order.
    if (!(got >= fusion::reference::round_to(exact[i] - allowed, part) &&
          got <= fusion::reference::round_to(exact[i] + allowed, part))) {
      return false;
    }
  }
  return true;
}

double typical_difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return typical_size(differences);
}

void leave_outputs_unrounded(fusion::TypedGraph& graph) {
  for (fusion::NodeId& output : graph.outputs) {
    const fusion::TypedNode& node = graph.nodes[output];
    const bool rounds = node.op == fusion::Op::cast && is_floating(node.dtype) &&
                        is_floating(graph.nodes[node.operands[0]].dtype);
    if (rounds) output = node.operands[0];
  }
}

}  // namespace kiln::tool
