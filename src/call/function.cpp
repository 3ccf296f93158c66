#include "kiln/function.hpp"

#include <fmt/format.h>

#include "call/bound_launch.hpp"
#include "call/call_specs.hpp"
#include "call/caught_error.hpp"
#include "call/function_impl.hpp"
#include "call/manifest_log.hpp"
#include "fusion/graph/number.hpp"
#include "fusion/text/text.hpp"
#include "fusion/text/tokens.hpp"
#include "kiln/dynamic.hpp"
#include "kiln/error.hpp"
#include "trace/tracing.hpp"

namespace kiln {
namespace {

Function make_function(std::string_view name, fusion::Graph graph, const Options& options) {
  if (graph.outputs().empty()) {
    throw Error(Code::invalid_argument, fmt::format("{}: the function has no outputs", name));
  }
  std::string expression = fusion::to_text(graph);
  return Function(std::make_shared<Function::Impl>(
      Definition{std::string(name), std::move(graph), options, std::move(expression)}));
}

}  // namespace

std::unique_ptr<Plan> Function::Impl::make_plan(const Call& call, OnMiss on_miss) const {
  const CallNames names = names_of(definition);
  const CallTypes types = check_call(names, call);
  const std::vector<KernelSpec> specs = call_specs(definition, types);
  if (logs_manifest()) {
    log_function(names, definition.expression, definition.options, specification_of(names, call));
  }
  return kiln::make_plan(names, definition.expression, specs, call, on_miss);
}

std::vector<KernelSpec> Function::Impl::specs(const CallTypes& types) const {
  return call_specs(definition, types);
}

void Function::call(const Stream& stream, std::span<const Argument> inputs,
                    std::span<const View> outputs) const {
  impl_->launch({stream, inputs, outputs});
}

std::optional<Error> Function::try_call(const Stream& stream, std::span<const Argument> inputs,
                                        std::span<const View> outputs) const noexcept {
  return caught_error([&] { call(stream, inputs, outputs); });
}

KernelInfo Function::prepare(const Stream& stream, std::span<const Argument> inputs,
                             std::span<const View> outputs) const {
  return impl_->prepare({stream, inputs, outputs});
}

KernelInfo Function::look_up(const Stream& stream, std::span<const Argument> inputs,
                             std::span<const View> outputs) const {
  return impl_->look_up({stream, inputs, outputs});
}

Launch Function::bind(const Stream& stream, std::initializer_list<Argument> inputs,
                      std::initializer_list<View> outputs) const {
  return bind(stream, std::span(inputs.begin(), inputs.size()),
              std::span(outputs.begin(), outputs.size()));
}

Launch Function::bind(const Stream& stream, std::span<const Argument> inputs,
                      std::span<const View> outputs) const {
  return Launch(std::make_unique<BoundFunction>(impl_, impl_->plan_for({stream, inputs, outputs}),
                                                stream, inputs, outputs));
}

const std::string& Function::name() const { return impl_->definition.name; }
const Options& Function::options() const { return impl_->definition.options; }
std::size_t Function::arity() const { return impl_->definition.graph.arguments().size(); }
std::size_t Function::output_count() const { return impl_->definition.graph.outputs().size(); }
std::string Function::expression() const { return impl_->definition.expression; }

Scalar Scalar::typed(double value, DType dtype) {
  if (!is_floating(dtype)) {
    throw Error(
        Code::invalid_argument,
        fmt::format("Scalar::typed: dtype: expected a floating-point one for a double, got {}",
                    kiln::name(dtype)));
  }
  // Rounded here, once: kernels take a narrow number as an f32.
  Scalar scalar(kiln::bits(dtype) == 16 ? fusion::decode(fusion::encode(value, dtype), dtype)
                                        : value);
  scalar.dtype_ = dtype;
  scalar.weak_ = false;
  return scalar;
}

Scalar Scalar::typed(std::int64_t value, DType dtype) {
  if (!is_integer(dtype) && dtype != DType::boolean) {
    throw Error(
        Code::invalid_argument,
        fmt::format("Scalar::typed: dtype: expected an integer one or bool for an integer, got {}",
                    kiln::name(dtype)));
  }
  Scalar scalar(value);
  scalar.dtype_ = dtype;
  scalar.weak_ = false;
  return scalar;
}

Function trace(std::string_view name, std::span<const std::string> arguments,
               const Options& options,
               const std::function<std::vector<Value>(std::span<const Value>)>& body) {
  fusion::Graph graph;
  std::vector<Value> values;
  for (const std::string& argument : arguments) {
    if (!fusion::is_name(argument)) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: '{}' cannot name an argument", name, argument));
    }
    values.emplace_back(&graph, graph.argument(argument));
    if (graph.arguments().size() != values.size()) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: two arguments are called '{}'", name, argument));
    }
  }
  const Tracing tracing(graph);
  for (const Value& output : body(values)) {
    if (output.graph() != nullptr && output.graph() != &graph) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: an output belongs to another function", name));
    }
    graph.add_output(output.node_in(graph));
  }
  return make_function(name, std::move(graph), options);
}

namespace detail {

Function trace(std::string_view name, std::size_t arity, const Options& options,
               const std::function<std::vector<Value>(const std::vector<Value>&)>& body) {
  std::vector<std::string> arguments;
  for (std::size_t i = 0; i < arity; ++i) arguments.push_back(fmt::format("in{}", i));
  return kiln::trace(name, arguments, options, [&](std::span<const Value> values) {
    return body({values.begin(), values.end()});
  });
}

}  // namespace detail

Function parse(std::string_view name, std::string_view expression, const Options& options,
               std::span<const std::string> arguments) {
  return make_function(name, fusion::parse(expression, arguments), options);
}

std::vector<std::string> argument_names(const Function& function) {
  return function.impl().definition.graph.arguments();
}

std::vector<std::string> output_names(const Function& function) {
  return function.impl().definition.graph.output_names();
}

std::vector<std::optional<std::size_t>> updated_arguments(const Function& function) {
  const fusion::Graph& graph = function.impl().definition.graph;
  std::vector<std::optional<std::size_t>> updated;
  for (const fusion::NodeId output : graph.outputs()) {
    const fusion::Node& node = graph[output];
    updated.emplace_back();
    if (node.op == fusion::Op::put) updated.back() = graph[node.operands[0]].payload;
  }
  return updated;
}

}  // namespace kiln
