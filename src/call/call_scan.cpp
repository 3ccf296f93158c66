#include "call/call_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "call/call_reduction.hpp"
#include "fusion/emit/scan/scan.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/shapes.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

void check_not_packed(const Definition& definition, std::span<const OperandShape> arrays,
                      std::span<const OperandShape> outputs) {
  const auto packed = [](const OperandShape& array) { return is_packed(array.dtype); };
  if (std::ranges::none_of(arrays, packed) && std::ranges::none_of(outputs, packed)) return;
  throw Error(
      Code::unsupported,
      fmt::format("{}: packed numbers (u4, i4, f4e2m1) are not read or stored in one kernel "
                  "with cumsum, cumprod or cummax; a kiln::Program takes two",
                  definition.name));
}

}  // namespace

TypedCall type_scan(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                    std::span<const OperandShape> arrays, std::span<const OperandShape> outputs,
                    fusion::TypedGraph graph) {
  check_not_packed(definition, arrays, outputs);
  const std::vector<Dims> shapes =
      fusion::infer_shapes(graph, argument_shapes(graph, arrays), definition.name);
  TypedCall call;
  call.definition = {std::shared_ptr<void>(), &definition};  // not owned
  call.arguments.resize(arguments.size());
  std::iota(call.arguments.begin(), call.arguments.end(), std::size_t{0});
  call.outputs.resize(outputs.size());
  std::iota(call.outputs.begin(), call.outputs.end(), std::size_t{0});
  fusion::ScanSpace space = fusion::scan_space(graph, shapes);
  if (!space.conflict.empty()) {
    throw Error(
        Code::unsupported,
        fmt::format("{}: one kernel cannot compute this: {}; a kiln::Program can, in several",
                    definition.name, space.conflict));
  }
  call.graph = fusion::drop_trivial_scans(graph, shapes);
  call.shape = space.shape;
  for (const OperandShape& array : arrays) {
    // An argument that nothing reads may have any shape.
    const bool fits = fusion::broadcast(array.shape, call.shape) == call.shape;
    const OperandShape one{array.dtype, Dims(), Dims(), array.address};
    call.operands.push_back(operand_of(fits ? array : one, call.shape, false));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Dims& kept = shapes[graph.outputs[i]];
    const OperandShape output = with_kept_axes(definition, i, outputs[i], kept);
    check_output(definition, i, output, kept);
    call.operands.push_back(operand_of(output, call.shape, true));
  }
  // Along an axis of size one nothing runs.
  if (fusion::has_scans(call.graph)) call.scan = std::move(space);
  return call;
}

void emit_scan_call(const TypedCall& call, std::string_view target, EmittedCall& emitted) {
  const Definition& definition = *call.definition;
  emitted.layout = fusion::plan_scan(*call.scan, call.operands, backend_of(target));
  emitted.layout.schedule.pdl = has_programmatic_launches(target);
  emitted.kernel =
      fusion::emit_scan(call.graph, emitted.layout.schedule, definition.options.accuracy,
                        definition.name, definition.expression);
  emitted.kernel.block = emitted.layout.block();
}

}  // namespace kiln
