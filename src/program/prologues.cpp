#include "program/prologues.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/schedule/products/product_layout.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"
#include "program/steps.hpp"

namespace kiln {
namespace {

using fusion::NodeId;
using fusion::Op;
using fusion::TypedGraph;
using OperandKind = ProgramOperand::Kind;

constexpr std::int64_t kMostVectors = 8;       // as many columns as a product has
constexpr std::int64_t kMostElements = 16384;  // of them all
constexpr std::size_t kMostReaders = 3;        // that compute it each for itself
// Bytes that blocks read for that, from a cache: beside those of a product, and those that take no
// longer than a kernel of its own.
constexpr double kMostAgain = 0.75;
constexpr double kFreeBytes = 4 << 20;

// Whether a kernel reads weights of up to 8 bits. Their shapes are those of a model: plans are made
// for the extents of what is joined, which calls with other weights, such as growing lengths, would
// have to make again and again.
bool reads_small_weights(const TypedGraph& graph) {
  constexpr int kMostBits = 8;
  return std::ranges::any_of(graph.arguments, [](const auto& argument) {
    return !argument.scalar && argument.dtype != DType::boolean &&
           bits(argument.dtype) <= kMostBits;
  });
}

bool is_temporary(const ProgramOperand& operand, std::size_t index) {
  return !operand.scalar && operand.kind == OperandKind::temporary && operand.index == index;
}

// How the axes of a value that one kernel stores are seen by another: each of its axes is some of
// the reader's, which split it. Strides are in elements of the axis.
struct SeenAxes {
  struct Part {
    std::size_t axis;  ///< of the reader
    std::size_t of;    ///< of the stored value
    std::int64_t stride;
  };
  std::vector<Part> parts;
};

// Nothing where some elements are left out or repeated, or are in another order.
std::optional<SeenAxes> seen_axes(const ProgramOperand& stored, const ProgramOperand& seen) {
  if (!fusion::is_contiguous(stored.layout, stored.shape) || stored.layout.offset != 0 ||
      seen.layout.offset != 0 || seen.layout.indexed.exists()) {
    return std::nullopt;
  }
  std::vector<std::size_t> axes;
  for (std::size_t k = 0; k < seen.shape.size(); ++k) {
    if (seen.shape[k] != 1 && seen.layout.strides[k] != 0) axes.push_back(k);
    if (seen.shape[k] != 1 && seen.layout.strides[k] == 0) return std::nullopt;
  }
  std::ranges::stable_sort(axes, {}, [&](std::size_t k) { return seen.layout.strides[k]; });
  SeenAxes result;
  auto next = axes.begin();
  std::int64_t beside = 1;
  for (std::size_t of = stored.shape.size(); of-- > 0;) {
    for (std::int64_t within = 1; within < stored.shape[of]; ++next) {
      if (next == axes.end() || seen.layout.strides[*next] != beside * within) return std::nullopt;
      result.parts.push_back({*next, of, within});
      within *= seen.shape[*next];
      if (stored.shape[of] % within != 0) return std::nullopt;
    }
    beside *= stored.shape[of];
  }
  if (next != axes.end()) return std::nullopt;
  return result;
}

// An operand of the kernel that stored the value, over the axes of the reader.
ProgramOperand seen_operand(const ProgramOperand& operand, const SeenAxes& seen, std::size_t rank,
                            const ProgramOperand& stored, const ProgramOperand& reader) {
  if (operand.scalar) return operand;
  ProgramOperand result = operand;
  result.shape = Dims(rank, 1);
  result.layout.strides = Dims(rank, 0);
  for (const SeenAxes::Part& part : seen.parts) {
    const std::size_t more = stored.shape.size() - operand.shape.size();
    if (part.of < more || operand.shape[part.of - more] == 1) continue;
    result.shape[part.axis] = reader.shape[part.axis];
    result.layout.strides[part.axis] = operand.layout.strides[part.of - more] * part.stride;
  }
  return result;
}

class Joiner {
 public:
  Joiner(ProgramPlan& plan, const CallTypes& call)
      : plan_(plan), call_(call), target_(features_of(call.target)) {}

  void run() {
    for (std::size_t k = 0; k < plan_.steps.size();) {
      if (!join(k)) ++k;
    }
    plan_.last_read.assign(plan_.last_read.size(), 0);
    plan_.written.assign(plan_.written.size(), plan_.steps.size());
    for (std::size_t k = 0; k < plan_.steps.size(); ++k) {
      for (const ProgramOperand& input : plan_.steps[k].inputs) {
        if (!input.scalar && input.kind == OperandKind::argument)
          plan_.last_read[input.index] = k + 1;
      }
      for (const ProgramOperand& output : plan_.steps[k].outputs) {
        if (output.kind != OperandKind::output) continue;
        plan_.written[output.index] = std::min(plan_.written[output.index], k);
      }
    }
  }

 private:
  // Whether the step was joined with all that read its result, and is no longer there.
  bool join(std::size_t k) {
    if (!is_prologue(plan_.steps[k])) return false;
    const std::size_t temporary = plan_.steps[k].outputs[0].index;
    std::vector<std::pair<std::size_t, ProgramStep>> joined;
    for (std::size_t other = 0; other < plan_.steps.size(); ++other) {
      if (other == k) continue;
      const ProgramStep& reader = plan_.steps[other];
      const auto reads = [&](const ProgramOperand& operand) {
        return is_temporary(operand, temporary);
      };
      const auto writes = std::ranges::any_of(reader.outputs, reads);
      const auto count = std::ranges::count_if(reader.inputs, reads);
      if (count == 0 && !writes) continue;
      if (count != 1 || writes || !reader.kernel || joined.size() == kMostReaders) return false;
      if (may_be_stored_to(k, other)) return false;
      const auto place = std::ranges::find_if(reader.inputs, reads) - reader.inputs.begin();
      auto step = joined_step(plan_.steps[k], reader, static_cast<std::size_t>(place));
      if (!step) return false;
      joined.emplace_back(other, *std::move(step));
    }
    if (joined.empty()) return false;
    for (auto& [other, step] : joined) {
      plan_.steps[other] = std::move(step);
      join_info(k, other, temporary);
    }
    erase(k);
    return true;
  }

  // A kernel of a few rows, which stores one temporary.
  bool is_prologue(const ProgramStep& step) const {
    if (!step.kernel || step.outputs.size() != 1 ||
        step.outputs[0].kind != OperandKind::temporary) {
      return false;
    }
    const TypedFunction& function = step.kernel->function();
    const TypedGraph& graph = function.graph;
    if (function.splits != 1 || !graph.indexed.empty() || !graph.bounds.empty()) return false;
    bool reduces = false;
    for (const fusion::TypedNode& node : graph.nodes) {
      if (node.op == Op::iota || fusion::is_scan(node.op)) return false;
      reduces = reduces || is_reduction(node.op);
    }
    if (!reduces) return false;
    const std::int64_t elements = fusion::element_count(step.outputs[0].shape);
    fusion::trace_order(elements, kMostVectors * kMostElements);
    return elements <= kMostVectors * kMostElements;
  }

  // Whether a step after the first one, up to the reader, may store to an array that the first
  // reads and the reader would: also the reader itself, whose blocks read what others have stored
  // to.
  bool may_be_stored_to(std::size_t first, std::size_t reader) const {
    for (const ProgramOperand& input : plan_.steps[first].inputs) {
      for (std::size_t k = first + 1; k <= reader; ++k) {
        if (may_store_to(input, plan_.steps[k])) return true;
      }
    }
    return false;
  }

  bool may_store_to(const ProgramOperand& input, const ProgramStep& step) const {
    if (input.scalar || input.kind != OperandKind::argument) return false;
    std::size_t array = 0;
    for (std::size_t i = 0; i < input.index; ++i) array += call_.arguments[i].scalar ? 0 : 1;
    return std::ranges::any_of(step.outputs, [&](const ProgramOperand& output) {
      if (output.kind != OperandKind::output) return false;
      const Dims& shape = plan_.output_shapes[output.index];
      return shape == call_.arrays[array].shape;
    });
  }

  std::optional<ProgramStep> joined_step(const ProgramStep& first, const ProgramStep& reader,
                                         std::size_t place) const {
    const TypedFunction& before = first.kernel->function();
    const TypedFunction& after = reader.kernel->function();
    const bool has_scans = std::ranges::any_of(
        after.graph.nodes, [](const fusion::TypedNode& node) { return fusion::is_scan(node.op); });
    if (after.splits != 1 || !after.graph.bounds.empty() || has_scans ||
        !reads_small_weights(after.graph)) {
      return std::nullopt;
    }
    const ProgramOperand& stored = first.outputs[0];
    const ProgramOperand& seen = reader.inputs[place];
    const auto axes = seen_axes(stored, seen);
    if (!axes) return std::nullopt;
    for (const Dims* shape : {&stored.shape, &seen.shape, &reader.shape}) {
      for (const std::int64_t extent : *shape) pin(extent);
    }

    // The first array of the step before takes the place of its result, the others come last.
    ProgramStep step = reader;
    std::vector<std::size_t> positions(first.inputs.size());
    bool placed = false;
    for (std::size_t i = 0; i < first.inputs.size(); ++i) {
      ProgramOperand operand =
          seen_operand(first.inputs[i], *axes, seen.shape.size(), stored, seen);
      if (!placed && !operand.scalar) {
        placed = true;
        positions[i] = place;
        step.inputs[place] = std::move(operand);
      } else {
        positions[i] = step.inputs.size();
        step.inputs.push_back(std::move(operand));
      }
    }
    if (!placed) return std::nullopt;
    TypedFunction function = after;
    function.graph = joined_graph(before.graph, after.graph, place, positions,
                                  reduced_axes(first, *axes, seen.shape.size()));
    function.expression = fmt::format("{} -> {}; {}", before.expression,
                                      after.graph.argument_names[place], after.expression);
    try {
      step.kernel = step_kernel(std::move(function), step, false);
      if (!is_product(first, reader, step)) return std::nullopt;
    } catch (const Error&) {
      return std::nullopt;  // one kernel cannot compute it
    }
    return step;
  }

  // The axes of the reader, from the end, that the step before reduces.
  static fusion::AxisSet reduced_axes(const ProgramStep& first, const SeenAxes& seen,
                                      std::size_t rank) {
    std::vector<bool> reduced(first.shape.size(), false);
    const TypedGraph& graph = first.kernel->function().graph;
    std::vector<Dims> shapes;
    for (const ProgramOperand& input : first.inputs) {
      shapes.push_back(input.scalar ? Dims() : input.shape);
    }
    shapes = fusion::infer_shapes(graph, shapes, first.kernel->function().name);
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
      if (!is_reduction(graph.nodes[id].op)) continue;
      const Dims& from = shapes[graph.nodes[id].operands[0]];
      for (std::size_t k = 0; k < from.size(); ++k) {
        if (from[k] != shapes[id][k]) reduced[first.shape.size() - from.size() + k] = true;
      }
    }
    const std::size_t more = first.shape.size() - first.outputs[0].shape.size();
    std::vector<int> axes;
    for (const SeenAxes::Part& part : seen.parts) {
      if (!reduced[part.of + more]) continue;
      axes.push_back(static_cast<int>(part.axis) - static_cast<int>(rank));
    }
    return fusion::axis_set(axes, first.kernel->function().name);
  }

  static TypedGraph joined_graph(const TypedGraph& before, const TypedGraph& after,
                                 std::size_t place, const std::vector<std::size_t>& positions,
                                 fusion::AxisSet axes) {
    TypedGraph graph = after;
    graph.nodes.clear();
    for (std::size_t i = 0; i < positions.size(); ++i) {
      std::string name = before.argument_names[i];
      const std::string wanted = name;
      const auto is_taken = [&] {
        for (std::size_t k = 0; k < graph.argument_names.size(); ++k) {
          if (k != place && graph.argument_names[k] == name) return true;
        }
        return false;
      };
      for (int n = 2; is_taken(); ++n) name = fmt::format("{}{}", wanted, n);
      if (positions[i] == place) {
        graph.arguments[place] = before.arguments[i];
        graph.argument_names[place] = name;
      } else {
        graph.arguments.push_back(before.arguments[i]);
        graph.argument_names.push_back(name);
      }
    }
    for (fusion::TypedNode node : before.nodes) {
      if (node.op == Op::input || node.op == Op::scalar) node.payload = positions[node.payload];
      if (is_reduction(node.op)) node.payload = axes;
      graph.nodes.push_back(node);
    }
    // It is rounded where it was stored.
    NodeId result = before.outputs[0];
    const fusion::TypedNode& stored = before.nodes[result];
    if (fusion::is_narrow_float(stored.dtype) && stored.op != Op::cast) {
      graph.nodes.push_back({Op::cast, stored.dtype, 1, {result}, 0});
      result = static_cast<NodeId>(graph.nodes.size() - 1);
    }
    std::vector<NodeId> moved(after.nodes.size());
    for (std::size_t id = 0; id < after.nodes.size(); ++id) {
      fusion::TypedNode node = after.nodes[id];
      if (node.op == Op::input && node.payload == place) {
        moved[id] = result;
        continue;
      }
      for (std::size_t i = 0; i < node.arity; ++i) node.operands[i] = moved[node.operands[i]];
      moved[id] = static_cast<NodeId>(graph.nodes.size());
      graph.nodes.push_back(node);
    }
    for (NodeId& output : graph.outputs) output = moved[output];
    for (fusion::IndexedOperand& operand : graph.indexed) operand.place = moved[operand.place];
    return graph;
  }

  // Whether the target can compute it as a product whose blocks read few bytes for the vectors that
  // they compute, beside what all of them read of the matrix.
  bool is_product(const ProgramStep& first, const ProgramStep& reader,
                  const ProgramStep& step) const {
    const CallTypes types = step_types(plan_, step, call_);
    const fusion::ShapedGraph shaped = shaped_graph(step);
    // Axes that only what was stored had, along which all that it is made of repeats, are lost.
    const fusion::ShapedGraph apart = shaped_graph(reader);
    for (std::size_t i = 0; i < shaped.graph.outputs.size(); ++i) {
      if (shaped.shapes[shaped.graph.outputs[i]] != apart.shapes[apart.graph.outputs[i]]) {
        return false;
      }
    }
    if (!rows_conflict(shaped.graph, shaped.shapes,
                       fusion::reduce_space(shaped.graph, shaped.shapes))
             .empty()) {
      return false;
    }
    const KernelSpec spec = step.kernel->spec(types);
    const auto* rows = std::get_if<RowsForm>(&spec.form);
    if (rows == nullptr) return false;
    const auto layout = fusion::plan_products(
        spec.function.graph, rows->space, fusion::sized(spec.shape), fusion::sized(spec.operands),
        rows->row_invariant, target_.backend, target_.tiles);
    if (!layout || layout->schedule.products.prologue.threads == 0) return false;
    const double again = static_cast<double>(layout->work_items) * bytes_of(first);
    return again <= std::max(kFreeBytes, kMostAgain * bytes_of(step));
  }

  fusion::ShapedGraph shaped_graph(const ProgramStep& step) const {
    const TypedFunction& function = step.kernel->function();
    const CallTypes types = step_types(plan_, step, call_);
    return fusion::shape_graph(function.graph, argument_shapes(function.graph, types.arrays),
                               function.name);
  }

  // That a kernel reads.
  double bytes_of(const ProgramStep& step) const {
    double bytes = 0;
    for (const ArrayType& array : step_types(plan_, step, call_).arrays) {
      bytes += static_cast<double>(fusion::element_count(array.shape, array.strides)) *
               bits(array.dtype) / 8;
    }
    return bytes;
  }

  // The plan is for calls with this extent.
  static void pin(std::int64_t extent) {
    fusion::SizeSum().add(1, extent).add(-static_cast<double>(extent), 1).decide();
  }

  void join_info(std::size_t first, std::size_t reader, std::size_t temporary) {
    ProgramKernel& info = plan_.info.kernels[reader];
    const ProgramKernel& before = plan_.info.kernels[first];
    const std::string& value = before.writes[0];
    const auto place = std::ranges::find_if(info.reads, [&](const std::string& read) {
      return read == value || read.starts_with(value + " ");
    });
    if (place != info.reads.end()) info.reads.erase(place);
    for (const std::string& read : before.reads) {
      if (std::ranges::find(info.reads, read) == info.reads.end()) info.reads.push_back(read);
    }
    info.expression = fmt::format("{} -> {}; {}", before.expression, value, info.expression);
    info.reason = fmt::format("{}; every block computes {} itself", info.reason, value);
    std::erase(info.after, first);
    info.after.insert(info.after.end(), before.after.begin(), before.after.end());
    std::ranges::sort(info.after);
    const auto again = std::ranges::unique(info.after);
    info.after.erase(again.begin(), again.end());
    info.operations += before.operations;
    info.op_by_op_bytes += before.op_by_op_bytes;
    const std::uint64_t read = before.bytes - plan_.temporaries[temporary].bytes;
    info.bytes += read - plan_.temporaries[temporary].bytes;
    plan_.info.bytes += read - plan_.temporaries[temporary].bytes;
  }

  void erase(std::size_t k) {
    plan_.temporaries[plan_.steps[k].outputs[0].index].bytes = 0;
    plan_.info.bytes -= plan_.info.kernels[k].bytes;
    plan_.steps.erase(plan_.steps.begin() + static_cast<std::ptrdiff_t>(k));
    plan_.info.kernels.erase(plan_.info.kernels.begin() + static_cast<std::ptrdiff_t>(k));
    for (ProgramKernel& kernel : plan_.info.kernels) {
      for (std::size_t& after : kernel.after) after -= after > k ? 1 : 0;
    }
  }

  ProgramPlan& plan_;
  const CallTypes& call_;
  const TargetFeatures target_;
};

}  // namespace

void join_prologues(ProgramPlan& plan, const CallTypes& call) { Joiner(plan, call).run(); }

}  // namespace kiln
