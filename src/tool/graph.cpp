// `kiln graph`: records the calls of a manifest as one graph, shows what waits for what and why,
// and times the calls one by one against the replay. A line of the manifest may say which buffers
// its arguments and outputs are; otherwise each is the buffer of its own name, so that a name
// stands for one buffer throughout.
#include "kiln/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>

#include "ahead/compile_only.hpp"
#include "core/device_memory.hpp"
#include "files/manifest.hpp"
#include "kiln/error.hpp"
#include "tool/arguments.hpp"
#include "tool/commands.hpp"
#include "tool/drawing.hpp"
#include "tool/execute.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

/// One argument or output of a call that is an array.
struct Place {
  std::string buffer;
  ArgumentSpec type;
};

struct CallSpec {
  Function function;
  std::vector<ArgumentSpec> numbers;  ///< by position among the arguments; those of arrays unused
  std::vector<std::optional<Place>> inputs;  ///< empty where the argument is a number
  std::vector<Place> outputs;
};

/// The lowest and highest byte of an array around its first element.
std::pair<std::int64_t, std::int64_t> extent_of(const ArgumentSpec& type) {
  const Dims strides = type.strides.empty() ? contiguous_strides(type.shape) : type.strides;
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::size_t k = 0; k < type.shape.size(); ++k) {
    if (type.shape[k] == 0) return {0, 0};
    const std::int64_t reach = strides[k] * (type.shape[k] - 1);
    (reach < 0 ? low : high) += reach;
  }
  const std::int64_t width = bits(type.dtype);
  return {(low * width - 7) / 8, ((high + 1) * width + 7) / 8};
}

using Names = std::map<std::string, std::string>;

// A line without what is only this command's: the buffers' names.
std::string take_buffers(const std::string& line, std::size_t number, const std::string& file,
                         Names& buffers) {
  Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("buffers")) return line;
  if (!json["buffers"].is_object()) {
    throw UsageError(fmt::format("{}:{}: buffers: expected an object of names", file, number));
  }
  for (const auto& [name, buffer] : json["buffers"].items()) {
    if (!buffer.is_string()) {
      throw UsageError(fmt::format("{}:{}: buffers: {}: expected a name", file, number, name));
    }
    buffers[name] = buffer.get<std::string>();
  }
  json.erase("buffers");
  return json.dump();
}

CallSpec call_of(const files::ManifestLine& line, Names buffers, const std::string& where) {
  if (line.kind != files::ManifestKind::function) {
    throw UsageError(
        fmt::format("{}: expected the line of a function, with an 'expression'", where));
  }
  CallSpec call{parse(line.name, line.text, line.options), {}, {}, {}};
  const auto place = [&](const std::string& name, ArgumentSpec type) {
    const auto found = buffers.find(name);
    Place result{found == buffers.end() ? name : found->second, std::move(type)};
    if (found != buffers.end()) buffers.erase(found);
    return result;
  };
  for (const std::string& name : argument_names(call.function)) {
    const auto& types = line.specification.arguments;
    const auto type = std::ranges::find(types, name, &ArgumentSpec::name);
    if (type == types.end()) {
      throw UsageError(fmt::format("{}: types: expected a type for '{}', got none", where, name));
    }
    call.numbers.push_back(*type);
    call.inputs.push_back(type->scalar ? std::nullopt : std::optional(place(name, *type)));
  }
  const OutputTypes natural = output_types(call.function, line.specification);
  const std::vector<std::string> names = named_outputs(call.function);
  for (std::size_t i = 0; i < names.size(); ++i) {
    ArgumentSpec type;
    type.dtype = natural.dtypes[i];
    type.shape = natural.shapes[i];
    if (!line.specification.layouts.empty()) {
      const OutputSpec& layout = line.specification.layouts[i];
      type.shape = layout.shape;
      type.strides = layout.strides;
      type.misalignment = layout.misalignment;
    }
    call.outputs.push_back(place(names[i], std::move(type)));
  }
  if (!buffers.empty()) {
    throw UsageError(fmt::format("{}: buffers: there is no argument or output '{}'", where,
                                 buffers.begin()->first));
  }
  return call;
}

std::vector<CallSpec> read_calls(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw Error(Code::not_found, fmt::format("{}: cannot be read", file));
  std::vector<CallSpec> calls;
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    Names buffers;
    const files::Manifest manifest =
        files::parse_manifest(take_buffers(line, number, file, buffers));
    const std::string where = fmt::format("{}:{}", file, number);
    if (!manifest.problems.empty()) {
      throw UsageError(fmt::format("{}: {}", where, manifest.problems[0].message));
    }
    for (const files::ManifestLine& parsed : manifest.lines) {
      calls.push_back(call_of(parsed, std::move(buffers), where));
    }
  }
  if (calls.empty()) throw UsageError(fmt::format("{}: no calls in it", file));
  return calls;
}

// ---- Memory ------------------------------------------------------------------------------------

/// Each buffer as large as what is done with it, filled with one pattern (0.0115 as f32 and bf16).
class Buffers {
 public:
  Buffers(jit::Backend& backend, const Stream& stream, const std::vector<CallSpec>& calls) {
    const auto widen = [&](const Place& place) {
      const auto [low, high] = extent_of(place.type);
      Extent& extent = extents_[place.buffer];
      extent.low = std::min(extent.low, low);
      extent.high = std::max(extent.high, high);
    };
    for (const CallSpec& call : calls) {
      for (const auto& input : call.inputs) {
        if (input) widen(*input);
      }
      for (const Place& output : call.outputs) widen(output);
    }
    constexpr std::int64_t kAlign = 256;
    for (auto& [name, extent] : extents_) {
      extent.low = -(-extent.low + kAlign - 1) / kAlign * kAlign;
      const auto bytes = static_cast<std::size_t>(extent.high - extent.low + 16);
      extent.memory = std::make_unique<DeviceMemory>(backend, bytes);
      backend.fill(extent.memory->data(), 0x3c, bytes, stream);
    }
  }

  View view(const Place& place, Device device) const {
    const Extent& extent = extents_.at(place.buffer);
    char* const data = static_cast<char*>(extent.memory->data()) - extent.low;
    const ArgumentSpec& type = place.type;
    const Dims strides = type.strides.empty() ? contiguous_strides(type.shape) : type.strides;
    return {data + type.misalignment, type.dtype, type.shape, strides, device};
  }

  /// "hidden[0, 688)": bytes from the buffer's first element on.
  std::string text(std::uintptr_t begin, std::uintptr_t end) const {
    for (const auto& [name, extent] : extents_) {
      const auto start = reinterpret_cast<std::uintptr_t>(extent.memory->data());
      const auto size = static_cast<std::uintptr_t>(extent.high - extent.low + 16);
      if (begin < start || begin >= start + size) continue;
      const auto zero = static_cast<std::int64_t>(start) - extent.low;
      return fmt::format("{}[{}, {})", name, static_cast<std::int64_t>(begin) - zero,
                         static_cast<std::int64_t>(end) - zero);
    }
    return "memory";
  }
  std::size_t count() const { return extents_.size(); }

 private:
  struct Extent {
    std::int64_t low = 0;
    std::int64_t high = 0;
    std::unique_ptr<DeviceMemory> memory;
  };
  std::map<std::string, Extent> extents_;
};

/// A call with its memory.
struct BoundCall {
  const Function* function;
  std::vector<Argument> inputs;
  std::vector<View> outputs;
};

std::vector<BoundCall> bind_calls(const std::vector<CallSpec>& calls, const Buffers& buffers,
                                  Device device) {
  std::vector<BoundCall> bound;
  for (const CallSpec& call : calls) {
    BoundCall one{&call.function, {}, {}};
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const ArgumentSpec& number = call.numbers[i];
      if (call.inputs[i]) {
        one.inputs.emplace_back(buffers.view(*call.inputs[i], device));
      } else if (is_floating(number.dtype)) {
        one.inputs.emplace_back(number.weak ? Scalar(1.0) : Scalar::typed(1.0, number.dtype));
      } else {
        one.inputs.emplace_back(number.weak ? Scalar(1)
                                            : Scalar::typed(std::int64_t{1}, number.dtype));
      }
    }
    for (const Place& output : call.outputs) one.outputs.push_back(buffers.view(output, device));
    bound.push_back(std::move(one));
  }
  return bound;
}

// ---- Times -------------------------------------------------------------------------------------

struct Times {
  double host_us = 0;   ///< until everything is submitted
  double total_us = 0;  ///< until it has run, by the device's clock
};

template <class Run>
Times time(jit::Backend& backend, const Stream& stream, int samples, const Run& run) {
  run();
  backend.synchronize(stream);
  std::vector<double> host;
  std::vector<double> total;
  for (int i = 0; i < samples; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - begin;
    host.push_back(passed.count());
    backend.synchronize(stream);
    total.push_back(backend.time_us(stream, run));
    backend.synchronize(stream);
  }
  return {median(std::move(host)), median(std::move(total))};
}

// ---- What is written ---------------------------------------------------------------------------

std::string dot_text(const Graph& graph, const Buffers& buffers) {
  std::string text =
      "digraph kiln {\n  node [shape=box, fontname=monospace];\n"
      "  edge [fontname=monospace, fontsize=9];\n";
  const auto operations = graph.operations();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    text += fmt::format("  n{} [label={}];\n", i,
                        dot_string(fmt::format("{} {}", i, operations[i].name)));
  }
  for (const Graph::Edge& edge : graph.edges()) {
    text += fmt::format(
        "  n{} -> n{} [label={}];\n", edge.from, edge.to,
        dot_string(fmt::format("{} {}", edge.reason, buffers.text(edge.begin, edge.end))));
  }
  return text + "}\n";
}

Json json_of(const Times& times) {
  return {{"host_us", times.host_us}, {"total_us", times.total_us}};
}

void print_graph_json(const Graph& graph, const Buffers& buffers, Device device, const Times& eager,
                      const Times& replay) {
  Json nodes = Json::array();
  for (const Graph::Operation& operation : graph.operations()) {
    nodes.push_back({{"name", operation.name}, {"entry", operation.entry}});
  }
  Json edges = Json::array();
  for (const Graph::Edge& edge : graph.edges()) {
    edges.push_back({{"from", edge.from},
                     {"to", edge.to},
                     {"reason", edge.reason},
                     {"bytes", buffers.text(edge.begin, edge.end)}});
  }
  print_json({{"device", to_string(device)},
              {"replayed", graph.is_replayed()},
              {"nodes", std::move(nodes)},
              {"edges", std::move(edges)},
              {"eager", json_of(eager)},
              {"graph", json_of(replay)}});
}

void print_graph(const Graph& graph, const Buffers& buffers, jit::Backend& backend,
                 const Times& eager, const Times& replay) {
  const auto operations = graph.operations();
  const auto edges = graph.edges();
  Table nodes({"", "operation", "kernel"});
  for (std::size_t i = 0; i < operations.size(); ++i) {
    nodes.row({fmt::format("{}", i), operations[i].name, operations[i].entry});
  }
  nodes.print();
  if (!edges.empty()) print("\n");
  Table reasons({"edge", "why", "bytes"});
  for (const Graph::Edge& edge : edges) {
    reasons.row({fmt::format("{} -> {}", edge.from, edge.to), std::string(edge.reason),
                 buffers.text(edge.begin, edge.end)});
  }
  if (!edges.empty()) reasons.print();
  print("\n{} operations, {} edges, {} buffers on {} ({})\n", operations.size(), edges.size(),
        buffers.count(), to_string(backend.device()), backend.name());
  Table times({"", "host", "until done"});
  times.row({"one by one", human_time(eager.host_us), human_time(eager.total_us)});
  times.row({graph.is_replayed() ? "replayed" : "graph (run as a list)", human_time(replay.host_us),
             human_time(replay.total_us)});
  times.print();
}

}  // namespace

int run_graph(const GraphOptions& options) {
  const std::vector<CallSpec> calls = read_calls(options.file);
  const Device device = choose_device(options.device);
  jit::Backend& backend = jit::backend(device);
  const OwnedStream stream(backend);
  const Buffers buffers(backend, stream.get(), calls);
  const std::vector<BoundCall> bound = bind_calls(calls, buffers, device);

  Graph graph = record(device, [&](Recorder& recorder) {
    for (const BoundCall& call : bound) recorder.call(*call.function, call.inputs, call.outputs);
  });
  if (draw_graph(dot_text(graph, buffers), options.dot, options.svg)) return kSuccess;

  const Times eager = time(backend, stream.get(), options.samples, [&] {
    for (const BoundCall& call : bound)
      call.function->call(stream.get(), call.inputs, call.outputs);
  });
  const Times replay =
      time(backend, stream.get(), options.samples, [&] { graph.launch(stream.get()); });
  if (options.json) {
    print_graph_json(graph, buffers, device, eager, replay);
  } else {
    print_graph(graph, buffers, backend, eager, replay);
  }
  return kSuccess;
}

}  // namespace kiln::tool
