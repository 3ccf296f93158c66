#include "kernel/emit_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fusion/emit/attention/attention.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/products/products.hpp"
#include "fusion/emit/rows/rows.hpp"
#include "fusion/emit/scan/scan.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/schedule/attention/attention_layout.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/products/product_layout.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/schedule/scan/scan_layout.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

template <class Operand>
bool is_packed_operand(const Operand& operand) {
  return is_packed(operand.dtype);
}

using Operands = std::span<const fusion::SizedOperand>;

std::optional<fusion::SizedLayout> products_of(const fusion::TypedGraph& graph,
                                               const RowsForm& rows, const fusion::Sizes& shape,
                                               Operands operands, fusion::Backend backend,
                                               bool tiles) {
  if (rows.space.splits > 1 || !graph.bounds.empty()) return std::nullopt;
  return fusion::plan_products(graph, rows.space, shape, operands, rows.row_invariant, backend,
                               tiles);
}

// Whether a kernel of rows stores a packed output: one that has the elements of rows along a single
// axis, all of which are there.
template <class Operand>
bool packs_rows(const TypedFunction& function, const RowsForm& rows, const Operand& operand,
                std::size_t index) {
  int axes = 0;
  for (std::size_t k = 0; k < rows.space.shape.size(); ++k) {
    axes += rows.space.reduced[k] && rows.space.shape[k] != 1 ? 1 : 0;
  }
  return operand.output && !rows.row_invariant[index] && axes == 1 && rows.space.splits == 1 &&
         function.bounds.empty() && !operand.indexed.exists();
}

// Kernels in several passes keep a row in registers, element by element.
void check_packed(const TypedFunction& function, const RowsForm& rows, Operands operands) {
  std::size_t index = 0;
  while (index < operands.size() && (!is_packed(operands[index].dtype) ||
                                     packs_rows(function, rows, operands[index], index))) {
    ++index;
  }
  if (index == operands.size()) return;
  const fusion::SizedOperand* const packed = &operands[index];
  throw Error(Code::unsupported,
              fmt::format("{}: {} '{}': expected a dtype of at least 8 bits, got {}: a Function "
                          "reduces packed numbers only if every output has one element per row, "
                          "and stores them if one axis is reduced and they have its elements; use "
                          "a kiln::Program, which packs and unpacks them in a kernel of its own",
                          function.name, packed->output ? "output" : "input",
                          operand_names(function.graph)[index], name(packed->dtype)));
}

// The layout of each form.
struct Planning {
  fusion::SizedLayout operator()(const ElementwiseForm&) const {
    return fusion::plan_layout(shape, operands, target.backend, function.bounds);
  }

  fusion::SizedLayout operator()(const RowsForm& rows) const {
    if (auto products =
            products_of(function.graph, rows, shape, operands, target.backend, target.tiles)) {
      return *std::move(products);
    }
    check_packed(function, rows, operands);
    fusion::RowFeatures features = target.rows;
    features.forced = function.forced;
    return fusion::plan_rows(rows.space, shape, operands, rows.row_invariant,
                             rows.space.gives_places, target.backend, features, function.bounds);
  }

  fusion::SizedLayout operator()(const ScanForm& scan) const {
    return fusion::plan_scan(shape, scan.axis, operands, target.backend, function.forced,
                             function.bounds);
  }

  fusion::SizedLayout operator()(const AttentionForm& attention) const {
    return fusion::plan_attention(attention, shape, operands, target.backend, function.bounds);
  }

  const TypedFunction& function;
  const fusion::Sizes& shape;
  const Operands operands;
  const TargetFeatures& target;
};

fusion::KernelDescription text_of(const KernelSpec& spec, const EmittedKernel& emitted) {
  const fusion::Layout& layout = emitted.layout;
  const fusion::Schedule& schedule = layout.schedule;
  const fusion::TypedGraph& graph = spec.function.graph;
  const Accuracy accuracy = spec.function.options.accuracy;
  if (std::holds_alternative<ElementwiseForm>(spec.form)) {
    return fusion::emit(graph, schedule, emitted.moves, accuracy);
  }
  if (const auto* attention = std::get_if<AttentionForm>(&spec.form)) {
    return fusion::emit_attention(graph, *attention, schedule, accuracy);
  }
  fusion::KernelDescription kernel =
      std::holds_alternative<ScanForm>(spec.form)
          ? fusion::emit_scan(graph, schedule, emitted.moves, accuracy)
      : emitted.passes ? fusion::emit_rows(graph, schedule, *emitted.passes, accuracy)
                       : fusion::emit_products(graph, schedule, *emitted.loops, accuracy);
  kernel.block = static_cast<std::uint32_t>(layout.block());
  return kernel;
}

// What follows from the graph too.
void decide(EmittedKernel& emitted, const KernelSpec& spec) {
  const fusion::Schedule& schedule = emitted.layout.schedule;
  const fusion::TypedGraph& graph = spec.function.graph;
  const Accuracy accuracy = spec.function.options.accuracy;
  if (std::holds_alternative<ElementwiseForm>(spec.form) ||
      std::holds_alternative<ScanForm>(spec.form)) {
    emitted.moves = fusion::element_moves(graph, schedule, accuracy);
  }
  if (!std::holds_alternative<RowsForm>(spec.form)) return;
  if (schedule.products.rows != 0) {
    emitted.loops = fusion::product_loops(graph, schedule, accuracy);
  } else {
    emitted.passes = fusion::schedule_passes(graph, schedule, accuracy);
  }
}

std::string signature_text(const KernelSpec& spec) {
  std::string text;
  for (const fusion::ArgumentType& argument : spec.function.graph.arguments) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", argument.scalar ? "scalar " : "",
                        name(argument.dtype));
  }
  text += " ->";
  for (const fusion::Operand& operand : spec.operands) {
    if (operand.output) text += fmt::format(" {}", name(operand.dtype));
  }
  return text;
}

std::uint64_t bytes_moved(const KernelSpec& spec) {
  if (fusion::element_count(spec.shape) == 0) return 0;
  std::uint64_t total_bits = 0;
  for (const fusion::Operand& operand : spec.operands) {
    if (operand.iota) continue;
    const std::int64_t elements = fusion::element_count(spec.shape, operand.strides);
    total_bits += static_cast<std::uint64_t>(elements * bits(operand.dtype));
  }
  return total_bits / 8;
}

std::string form_of(const KernelSpec& spec, const fusion::Schedule& schedule) {
  if (std::holds_alternative<ScanForm>(spec.form)) return "scan";
  if (std::holds_alternative<AttentionForm>(spec.form)) return "attention";
  if (std::holds_alternative<ElementwiseForm>(spec.form)) return "elements";
  if (schedule.products.rows != 0) return "products";
  return schedule.reduction.columns != 0 ? "columns" : "rows";
}

}  // namespace

std::string readable_text(const KernelRequest& request, std::string_view source) {
  if (request.form.empty()) return std::string(source);
  return fusion::readable(source, request.function, request.expression, request.arguments,
                          request.outputs);
}

fusion::SizedLayout plan_kernel(const TypedFunction& function, const KernelForm& form,
                                const fusion::Sizes& shape, Operands operands,
                                const TargetFeatures& target) {
  fusion::SizedLayout layout = std::visit(Planning{function, shape, operands, target}, form);
  layout.schedule.pdl = target.pdl;
  return layout;
}

fusion::Layout plan_kernel(const TypedFunction& function, const KernelForm& form, const Dims& shape,
                           std::span<const fusion::Operand> operands,
                           const TargetFeatures& target) {
  return fusion::plain(
      plan_kernel(function, form, fusion::sized(shape), fusion::sized(operands), target));
}

EmittedKernel emit_kernel(const KernelSpec& spec, std::string_view target) {
  EmittedKernel emitted;
  emitted.layout =
      plan_kernel(spec.function, spec.form, spec.shape, spec.operands, features_of(target));
  const TypedFunction& function = spec.function;
  decide(emitted, spec);
  emitted.kernel = text_of(spec, emitted);
  emitted.schedule_text = fusion::describe(emitted.layout.schedule, operand_names(function.graph));
  emitted.bytes = bytes_moved(spec);
  emitted.request.function = function.name;
  emitted.request.expression = function.expression;
  emitted.request.signature = signature_text(spec);
  emitted.request.text = std::move(emitted.kernel.source);
  emitted.request.target = target;
  emitted.request.options = function.options;
  emitted.request.form = form_of(spec, emitted.layout.schedule);
  emitted.request.arguments = function.graph.argument_names;
  emitted.request.outputs = function.graph.output_names;
  return emitted;
}

bool can_reduce_packed(const KernelSpec& spec) {
  if (std::ranges::none_of(spec.operands, is_packed_operand<fusion::Operand>)) return true;
  const auto* rows = std::get_if<RowsForm>(&spec.form);
  if (rows == nullptr) return false;
  bool in_rows = true;
  for (std::size_t i = 0; i < spec.operands.size(); ++i) {
    in_rows = in_rows && (!is_packed(spec.operands[i].dtype) ||
                          packs_rows(spec.function, *rows, spec.operands[i], i));
  }
  return in_rows || products_of(spec.function.graph, *rows, fusion::sized(spec.shape),
                                fusion::sized(spec.operands), fusion::Backend::host, false)
                        .has_value();
}

std::vector<std::string> operand_names(const fusion::TypedGraph& graph) {
  std::vector<std::string> names;
  const fusion::KernelNames operands(graph);
  for (const fusion::NamedOperand& operand : operands.operands()) names.push_back(operand.label);
  for (const std::int64_t axis : fusion::iota_axes(graph)) names.push_back(fusion::iota_name(axis));
  return names;
}

KernelInfo describe_kernels(std::string_view function, std::string_view expression,
                            std::span<const EmittedKernel> kernels) {
  KernelInfo info;
  info.function = function;
  info.expression = expression;
  info.kernels = 0;
  for (const EmittedKernel& kernel : kernels) {
    info.bytes += kernel.bytes;
    if (info.kernels == 0) {
      info.target = kernel.request.target;
      info.variant = kernel.schedule_text;
    }
    if (kernel.is_empty()) continue;
    if (info.kernels == 0) info.source = readable_text(kernel.request, kernel.request.text);
    ++info.kernels;
  }
  return info;
}

void add_built(KernelInfo& info, const KernelInfo& built) {
  if (info.entry.empty()) {
    info.entry = built.entry;
    info.key = built.key;
    info.source = fusion::with_entry(info.source, info.entry);
  }
  info.cache = std::max(info.cache, built.cache);
  info.compile_ms += built.compile_ms;
}

}  // namespace kiln
