// `kiln run`: reads the inputs, runs the expression, writes the outputs, says what happened.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "files/tensor_file.hpp"
#include "fusion/graph/broadcast.hpp"
#include "kiln/error.hpp"
#include "tool/arguments.hpp"
#include "tool/cache_text.hpp"
#include "tool/commands.hpp"
#include "tool/execute.hpp"
#include "tool/numbers.hpp"
#include "tool/print.hpp"
#include "tool/program_text.hpp"

namespace kiln::tool {
namespace {

/// Where an output goes: a file and the name in it.
struct Destination {
  std::string file;
  std::string tensor;
};

std::vector<Input> read_inputs(const Function& function, const RunOptions& options) {
  std::vector<Assignment> files = parse_assignments("--in", options.inputs);
  std::vector<Assignment> scalars = parse_assignments("--scalar", options.scalars);
  const auto take = [](std::vector<Assignment>& from, const std::string& name) {
    const auto found = std::find_if(from.begin(), from.end(),
                                    [&](const Assignment& entry) { return entry.name == name; });
    std::optional<std::string> value;
    if (found != from.end()) {
      value = found->value;
      from.erase(found);
    }
    return value;
  };
  const std::vector<std::string> names = argument_names(function);
  std::vector<std::pair<std::string, std::string>> paths;
  std::vector<Input> inputs;
  for (const std::string& name : names) {
    const std::optional<std::string> file = take(files, name);
    const std::optional<std::string> scalar = take(scalars, name);
    if (file && scalar) throw UsageError(fmt::format("'{}' is given by --in and --scalar", name));
    if (!file && !scalar) {
      throw UsageError(
          fmt::format("the expression reads '{}': give --in {}=FILE[:TENSOR] or "
                      "--scalar {}=VALUE",
                      name, name, name));
    }
    Input input{name, {}, {}};
    if (scalar) input.scalar = parse_scalar(name, *scalar);
    paths.emplace_back(name, file.value_or(""));
    inputs.push_back(std::move(input));
  }
  for (const auto& [option, rest] : {std::pair("--in", files), std::pair("--scalar", scalars)}) {
    if (rest.empty()) continue;
    throw UsageError(fmt::format("{} {}: the expression reads no '{}'; it reads {}", option,
                                 rest.front().name, rest.front().name, fmt::join(names, ", ")));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].scalar) inputs[i].tensor = files::read_tensor(paths[i].second);
  }
  return inputs;
}

/// For each output its assignment, by name; an output that has no name of its own takes the next
/// one that names none, and that name.
std::vector<std::optional<std::string>> match_outputs(std::string_view option,
                                                      const std::vector<std::string>& texts,
                                                      std::vector<std::string>& own,
                                                      std::vector<std::string>& names) {
  std::vector<Assignment> given = parse_assignments(option, texts);
  std::vector<std::optional<std::string>> result(names.size());
  for (std::size_t pass = 0; pass < 2; ++pass) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto found = std::find_if(given.begin(), given.end(), [&](const Assignment& entry) {
        return pass == 1 ? own[i].empty() && !result[i] : entry.name == names[i];
      });
      if (found == given.end()) continue;
      own[i] = names[i] = found->name;
      result[i] = found->value;
      given.erase(found);
    }
  }
  if (!given.empty()) {
    throw UsageError(fmt::format("{} {}: there is no output '{}'; the outputs are {}", option,
                                 given.front().name, given.front().name, fmt::join(names, ", ")));
  }
  return result;
}

using Destinations = std::vector<std::optional<Destination>>;

Destinations destinations_of(const std::vector<std::optional<std::string>>& values,
                             const std::vector<std::string>& names) {
  Destinations result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    files::TensorPath path = files::split_tensor_path(*values[i]);
    result[i] = Destination{path.file, path.tensor.value_or(names[i])};
  }
  return result;
}

std::map<std::string, std::vector<std::size_t>> by_file(const Destinations& destinations) {
  std::map<std::string, std::vector<std::size_t>> result;
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    if (destinations[i]) result[destinations[i]->file].push_back(i);
  }
  return result;
}

void write_outputs(const Execution& execution, const Destinations& destinations) {
  for (const auto& [file, outputs] : by_file(destinations)) {
    std::vector<files::TensorData> tensors;
    for (const std::size_t i : outputs) {
      const Output& output = execution.outputs[i];
      tensors.push_back(
          {destinations[i]->tensor, output.dtype, output.shape, {}, output.bytes.data()});
    }
    files::write_tensors(file, tensors);
  }
}

Difference compare(const Execution& execution, std::size_t i, const std::string& name,
                   const std::string& path) {
  const files::HostTensor expected = files::read_tensor(path);
  const Dims& shape = execution.outputs[i].shape;
  if (expected.shape != shape) {
    throw Error(Code::invalid_argument,
                fmt::format("--expect {}={}: its shape is {}, the output's is {}", name, path,
                            fusion::to_string(expected.shape), fusion::to_string(shape)));
  }
  return difference(execution.outputs[i].bytes.data(), execution.outputs[i].dtype, expected);
}

/// What is printed about one output.
struct OutputResult {
  std::string name;
  DType dtype;
  Dims shape;
  std::optional<Destination> destination;
  std::optional<Range> range;
  std::optional<Difference> difference;
};

Json to_json(const OutputResult& result) {
  Json json = {{"name", result.name},
               {"dtype", name(result.dtype)},
               {"shape", std::vector(result.shape.begin(), result.shape.end())}};
  if (result.destination) {
    json["file"] = result.destination->file;
    if (!result.destination->file.ends_with(".npy")) json["tensor"] = result.destination->tensor;
  }
  if (result.range) {
    if (result.range->finite > 0) {
      json["min"] = result.range->lowest;
      json["max"] = result.range->highest;
    }
    json["nan"] = result.range->nans;
    json["inf"] = result.range->infinities;
  }
  if (result.difference) {
    json["max_error"] = result.difference->largest;
    json["max_relative_error"] = result.difference->largest_relative;
    json["mismatched"] = result.difference->mismatched;
  }
  return json;
}

Json to_json(const Execution& execution, const std::vector<OutputResult>& results) {
  Json json = {{"function", execution.kernel.function},
               {"expression", execution.kernel.expression},
               {"device", execution.device},
               {"hardware", execution.hardware}};
  const bool compiled = execution.device != "reference";
  if (execution.program) {
    json["program"] = program_json(*execution.program);
  } else if (compiled) {
    json["target"] = execution.kernel.target;
    json["variant"] = execution.kernel.variant;
    json["entry"] = execution.kernel.entry;
    json["key"] = execution.kernel.key;
    json["cache"] = name_of(execution.kernel.cache);
    json["compile_ms"] = execution.kernel.compile_ms;
  }
  json["launch_us"] = execution.launch_us;
  if (compiled) {
    json["bytes"] = execution.kernel.bytes;
    json["gb_per_s"] = execution.launch_us > 0
                           ? static_cast<double>(execution.kernel.bytes) / execution.launch_us / 1e3
                           : 0.0;
  }
  json["outputs"] = Json::array();
  for (const OutputResult& result : results) json["outputs"].push_back(to_json(result));
  return json;
}

void print_text(const Execution& execution, const std::vector<OutputResult>& results) {
  const KernelInfo& kernel = execution.kernel;
  print("{}\n", bold(clip(kernel.expression, 96)));
  Table table;
  table.row({"device", fmt::format("{} ({})", execution.device, execution.hardware)});
  if (execution.device == "reference") {
    table.row({"time", human_time(execution.launch_us)});
  } else {
    if (execution.program) {
      table.row({"kernels", fmt::format("{}; kiln explain says why", kernel.kernels)});
      table.row({"workspace", human_bytes(execution.program->workspace_bytes)});
    } else {
      table.row({"target", clip(kernel.target, 80)});
      table.row({"kernel", kernel.entry});
      table.row({"variant", clip(kernel.variant, 96)});
      table.row({"cache", kernel.cache == CacheState::compiled
                              ? fmt::format("compiled in {:.0f} ms", kernel.compile_ms)
                              : fmt::format("from {}", name_of(kernel.cache))});
    }
    table.row({"launch", fmt::format("{}, {:.3g} GB/s", human_time(execution.launch_us),
                                     execution.launch_us > 0 ? static_cast<double>(kernel.bytes) /
                                                                   execution.launch_us / 1e3
                                                             : 0.0)});
  }
  for (const OutputResult& result : results) {
    std::string text = fmt::format("{} {}", name(result.dtype), fusion::to_string(result.shape));
    if (result.range && result.range->finite > 0) {
      text += fmt::format(", {:.6g} to {:.6g}", result.range->lowest, result.range->highest);
    }
    if (result.range && result.range->nans) text += fmt::format(", {} NaN", result.range->nans);
    if (result.range && result.range->infinities) {
      text += fmt::format(", {} infinite", result.range->infinities);
    }
    if (result.difference) {
      text += fmt::format(", largest error {:.3g}", result.difference->largest);
      if (result.difference->mismatched) {
        text += red(fmt::format(", {} NaN or infinite only in one", result.difference->mismatched));
      }
    }
    if (result.destination) text += fmt::format(" -> {}", result.destination->file);
    table.row({result.name, text});
  }
  table.print();
}

}  // namespace

int run_run(const RunOptions& options) {
  const Function function = parse_function(options.expression);
  std::vector<std::string> names = named_outputs(function);
  std::vector<std::string> own = output_names(function);  // empty until somebody names it
  const auto files = match_outputs("--out", options.outputs, own, names);
  const auto expected = match_outputs("--expect", options.expected, own, names);
  const Destinations destinations = destinations_of(files, names);
  const bool reference = options.device == "reference";
  const Device device = reference ? Device{} : choose_device(options.device);

  const Dims at_least = parse_shape(options.shape);
  const std::vector<Input> inputs = read_inputs(function, options);
  const std::vector<DType> dtypes =
      output_dtypes(function, specify(inputs, at_least), names, options.dtypes);
  for (const auto& [file, outputs] : by_file(destinations)) {
    std::vector<DType> stored;
    for (const std::size_t i : outputs) stored.push_back(dtypes[i]);
    files::check_writable(file, stored);
  }

  const Execution execution =
      reference ? run_on_reference(function, inputs, dtypes, at_least)
                : run_on_device(function, inputs, dtypes, at_least, device, options.repeat);
  write_outputs(execution, destinations);

  std::vector<OutputResult> results;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Output& output = execution.outputs[i];
    OutputResult result{names[i], dtypes[i], output.shape, destinations[i], {}, {}};
    result.range = range_of(output.bytes.data(), dtypes[i], fusion::element_count(output.shape));
    if (expected[i]) result.difference = compare(execution, i, names[i], *expected[i]);
    results.push_back(std::move(result));
  }
  if (options.json) {
    print_json(to_json(execution, results));
  } else {
    print_text(execution, results);
  }
  return kSuccess;
}

}  // namespace kiln::tool
