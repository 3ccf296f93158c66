#include "tool/execute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "core/device_memory.hpp"
#include "files/format.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/extract.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/text/text.hpp"
#include "jit/device/backend.hpp"
#include "kiln/error.hpp"
#include "tool/commands.hpp"

namespace kiln::tool {
namespace {

std::vector<Output> allocate_outputs(const Function& function, const std::vector<Input>& inputs,
                                     const std::vector<DType>& dtypes, const Dims& at_least) {
  std::vector<Output> outputs;
  for (Dims& shape : output_types(function, specify(inputs, at_least)).shapes) {
    const DType dtype = dtypes[outputs.size()];
    const auto bytes = files::byte_count(shape, bits(dtype));
    if (!bytes) {
      throw Error(Code::invalid_argument,
                  fmt::format("the output's shape {} has more bytes than 64 bits can count",
                              fusion::to_string(shape)));
    }
    outputs.push_back({dtype, std::move(shape), files::Buffer(*bytes)});
  }
  return outputs;
}

/// The input that an output is, updated in place. Throws Error(unsupported) where it is not in C
/// order.
std::optional<std::size_t> updated_input(const fusion::Graph& graph, std::size_t output,
                                         const std::vector<Input>& inputs) {
  const fusion::Node& node = graph[graph.outputs()[output]];
  if (node.op != fusion::Op::put) return std::nullopt;
  const std::size_t input = graph[node.operands[0]].payload;
  const files::HostTensor& tensor = *inputs[input].tensor;
  if (tensor.strides != contiguous_strides(tensor.shape)) {
    throw Error(Code::unsupported,
                fmt::format("input '{}', which put updates: expected an array in C order",
                            inputs[input].name));
  }
  return input;
}

/// A number in the bytes of its dtype, as the reference reads it.
std::uint64_t scalar_bytes(const Scalar& scalar) {
  if (scalar.dtype() != DType::f32) return scalar.bits();
  const auto narrow = static_cast<float>(std::bit_cast<double>(scalar.bits()));
  return std::bit_cast<std::uint32_t>(narrow);
}

/// An output whose operands have several shapes: each argument has the strides of its own.
void evaluate_along_axes(const Function& function, const fusion::Extract& part,
                         const std::vector<fusion::ArgumentType>& types,
                         const std::vector<fusion::ReferenceOperand>& arguments,
                         const std::vector<Input>& inputs, Output& output) {
  const fusion::TypedGraph typed = fusion::infer(part.graph, types, std::span(&output.dtype, 1),
                                                 function.options().rounding, function.name());
  std::vector<Dims> shapes;
  for (const std::size_t i : part.arguments) {
    shapes.push_back(inputs[i].tensor ? inputs[i].tensor->shape : Dims());
  }
  const fusion::ShapedGraph shaped = fusion::shape_graph(typed, shapes, function.name());
  const fusion::ReferenceOperand stored{output.bytes.data(), output.dtype,
                                        contiguous_strides(output.shape), 0};
  fusion::evaluate_arrays(shaped.graph, shaped.shapes, arguments, std::span(&stored, 1));
}

/// One output, which has a shape of its own, from the arguments that it depends on.
void evaluate_output(const Function& function, const fusion::Graph& whole,
                     const std::vector<Input>& inputs, std::size_t index, Output& output) {
  const fusion::Extract part = fusion::extract(whole, std::span(&index, 1));
  const bool by_arrays = fusion::works_along_axes(part.graph) || fusion::program_op(part.graph) ||
                         fusion::has_indexed(part.graph);
  std::vector<fusion::ArgumentType> types;
  std::vector<fusion::ReferenceOperand> arguments;
  std::vector<std::uint64_t> numbers(inputs.size());
  for (const std::size_t i : part.arguments) {
    if (inputs[i].scalar) {
      const Scalar& scalar = *inputs[i].scalar;
      types.push_back({scalar.dtype(), true, scalar.weak()});
      numbers[i] = scalar_bytes(scalar);
      arguments.push_back({&numbers[i], scalar.dtype(), Dims(output.shape.size(), 0), 0});
    } else {
      const files::HostTensor& tensor = *inputs[i].tensor;
      types.push_back({tensor.dtype, false, false});
      // Arguments are only read.
      const Dims strides =
          by_arrays ? tensor.strides
                    : fusion::broadcast_strides(tensor.shape, tensor.strides, output.shape);
      arguments.push_back({const_cast<std::byte*>(tensor.data()), tensor.dtype, strides, 0});
    }
  }
  if (by_arrays) {
    return evaluate_along_axes(function, part, types, arguments, inputs, output);
  }
  const std::vector<fusion::ReferenceOperand> outputs = {
      {output.bytes.data(), output.dtype, contiguous_strides(output.shape), 0}};
  const fusion::TypedGraph typed = fusion::infer(part.graph, types, std::span(&output.dtype, 1),
                                                 function.options().rounding, function.name());
  fusion::evaluate(typed, output.shape, arguments, outputs);
}

}  // namespace

Specification specify(const std::vector<Input>& inputs, const Dims& at_least) {
  Specification result;
  result.shape = at_least;
  for (const Input& input : inputs) {
    ArgumentSpec spec;
    spec.name = input.name;
    if (input.tensor) {
      spec.dtype = input.tensor->dtype;
      spec.shape = input.tensor->shape;
      spec.strides = input.tensor->strides;
    } else {
      spec.dtype = input.scalar->dtype();
      spec.scalar = true;
      spec.weak = input.scalar->weak();
    }
    result.arguments.push_back(std::move(spec));
  }
  return result;
}

Device choose_device(const std::string& text) {
  if (text == "auto") {
    const std::vector<Device> all = jit::devices();
    if (all.empty()) {
      throw Error(Code::not_found,
                  fmt::format("there is no device: {}", jit::why_absent(DeviceType::cpu)));
    }
    return all.front();
  }
  try {
    return parse_device(text);
  } catch (const Error& error) {
    throw UsageError(
        fmt::format("--device {}: expected auto, cpu, hip, hip:N, cuda, cuda:N or "
                    "reference",
                    text));
  }
}

Execution run_on_device(const Function& function, const std::vector<Input>& inputs,
                        const std::vector<DType>& dtypes, const Dims& at_least, Device device,
                        int repeat) {
  jit::Backend& backend = jit::backend(device);
  Execution result;
  result.device = to_string(device);
  result.hardware = backend.name();
  result.outputs = allocate_outputs(function, inputs, dtypes, at_least);

  const OwnedStream stream(backend);
  std::vector<DeviceMemory> memory;
  std::vector<Argument> arguments;
  for (const Input& input : inputs) {
    if (input.scalar) {
      arguments.emplace_back(*input.scalar);
      continue;
    }
    const files::HostTensor& tensor = *input.tensor;
    memory.emplace_back(backend, tensor.bytes.size());
    backend.copy_in(memory.back().data(), tensor.data(), tensor.bytes.size(), stream.get());
    arguments.emplace_back(
        View(memory.back().data(), tensor.dtype, tensor.shape, tensor.strides, device));
  }
  std::vector<View> views;
  std::vector<void*> stored;
  const fusion::Graph graph = fusion::parse(function.expression());
  for (const Output& output : result.outputs) {
    if (const auto input = updated_input(graph, views.size(), inputs)) {
      views.push_back(arguments[*input].view());
      stored.push_back(views.back().data());
      continue;
    }
    memory.emplace_back(backend, output.bytes.size());
    stored.push_back(memory.back().data());
    views.emplace_back(memory.back().data(), output.dtype, output.shape, device);
  }

  const bool several = takes_program(function, specify(inputs, at_least));
  const Program whole = program(function);
  const std::size_t bytes = several ? whole.workspace_bytes(stream.get(), arguments, views) : 0;
  const DeviceMemory workspace(backend, std::max<std::size_t>(bytes, 1));
  const View work(workspace.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device);
  if (several) {
    result.program = whole.explain(stream.get(), arguments, views);
    result.kernel.function = function.name();
    result.kernel.expression = function.expression();
    result.kernel.kernels = static_cast<int>(result.program->kernels.size());
    result.kernel.bytes = result.program->bytes;
  } else {
    result.kernel = function.prepare(stream.get(), arguments, views);
  }
  const auto launch = [&] {
    if (several) return whole.run(stream.get(), arguments, views, work);
    function.call(stream.get(), arguments, views);
  };
  launch();  // the first one touches memory for the first time
  backend.synchronize(stream.get());
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) times.push_back(backend.time_us(stream.get(), launch));
  result.launch_us = median(std::move(times));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    backend.copy_out(result.outputs[i].bytes.data(), stored[i], result.outputs[i].bytes.size(),
                     stream.get());
  }
  backend.synchronize(stream.get());
  return result;
}

Execution run_on_reference(const Function& function, const std::vector<Input>& inputs,
                           const std::vector<DType>& dtypes, const Dims& at_least) {
  Execution result;
  result.device = "reference";
  result.hardware = "interpreter in f64";
  result.kernel.function = function.name();
  result.kernel.expression = function.expression();
  result.outputs = allocate_outputs(function, inputs, dtypes, at_least);
  const fusion::Graph graph = fusion::parse(function.expression());
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    evaluate_output(function, graph, inputs, i, result.outputs[i]);
  }
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  result.launch_us = elapsed.count();
  return result;
}

}  // namespace kiln::tool
