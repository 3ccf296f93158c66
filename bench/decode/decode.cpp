// Tokens per second of the decoder beside what memory allows, and where a token's time goes.
//
//   decode --weights tests/data/stories260k.safetensors     what the model says, 256 tokens
//   decode --shape 8b --device cuda --batch 1,4,8 --positions 128,1024 --json decode.json
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "decoder.hpp"
#include "driver_memory.hpp"
#include "random_model.hpp"

namespace decode {
namespace {

using Clock = std::chrono::steady_clock;

const std::map<std::string, Shape> kShapes = {
    {"8b",
     {.layers = 32,
      .width = 4096,
      .hidden = 14336,
      .heads = 32,
      .kv_heads = 8,
      .vocabulary = 128256}},
    {"1b",
     {.layers = 16,
      .width = 2048,
      .hidden = 8192,
      .heads = 32,
      .kv_heads = 8,
      .vocabulary = 32000}},
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Seconds of a graph, of `rounds` launches in a row; the median of a few such samples.
double time_of(kiln::Graph& graph, const Memory& memory, int rounds) {
  constexpr int kSamples = 5;
  std::vector<double> samples;
  for (int i = 0; i <= kSamples; ++i) {
    memory.wait();
    const auto begin = Clock::now();
    for (int k = 0; k < rounds; ++k) graph.launch(memory.stream);
    memory.wait();
    if (i > 0) samples.push_back(seconds_since(begin) / rounds);
  }
  return median(samples);
}

// Bytes per second that a copy reads and writes.
double copy_speed(const Memory& memory) {
  constexpr std::int64_t kElements = 1 << 26;
  const kiln::Device device = memory.stream.device;
  const kiln::View from(memory.allocate(kElements * 4), kiln::DType::f32, {kElements}, device);
  const kiln::View to = from.with_data(memory.allocate(kElements * 4));
  kiln::Graph graph = kiln::record(device, [&](kiln::Recorder& recorder) {
    recorder.fill(from, 0);
    recorder.copy({.from = from, .to = to});
  });
  graph.launch(memory.stream);
  graph = kiln::record(device,
                       [&](kiln::Recorder& recorder) { recorder.copy({.from = from, .to = to}); });
  return 2 * kElements * 4 / time_of(graph, memory, 4);
}

struct Options {
  std::string device = "cpu", weights, shape, json;
  std::string activations, cache = "f16";
  std::vector<std::int64_t> batch = {1}, positions = {128};
  int tokens = 32;
  std::int64_t group = 64;
};

// A real model: whether it says what its file expects after token 1. Returns whether it does.
bool tell(const Options& options, const Memory& memory) {
  const Tensors file = read_safetensors(options.weights);
  const Weights weights = stories260k(file, memory);
  const Tensor& greedy = file.at("greedy_tokens");
  std::vector<std::int32_t> expected(greedy.bytes.size() / sizeof(std::int32_t));
  std::memcpy(expected.data(), greedy.bytes.data(), greedy.bytes.size());
  Decoder decoder(weights, memory, 1, static_cast<std::int64_t>(expected.size()));
  decoder.reset({1});
  for (std::size_t i = 0; i < expected.size(); ++i) decoder.step();
  std::vector<std::int32_t> tokens = decoder.tokens();
  tokens.erase(tokens.begin());
  const bool right = tokens == expected;
  fmt::print("{}\n{} tokens, {}\n", fmt::join(tokens, " "), tokens.size(),
             right ? "as expected" : "other ones than expected");
  return right;
}

// That a token reads of weights: all but the embedding, of which it reads a row.
std::int64_t bytes_of(const Weights& weights) {
  std::int64_t bytes = 0;
  const auto add = [&](const Views& views) {
    for (const auto& [name, view] : views) {
      if (name != "embedding") bytes += view.size() * bits(view.dtype()) / 8;
    }
  };
  add(weights.ends);
  for (const Views& layer : weights.layers) add(layer);
  return bytes;
}

nlohmann::ordered_json measure(const Options& options, const Weights& weights, const Memory& memory,
                               double copy, std::int64_t batch, std::int64_t position) {
  const std::int64_t last = position + options.tokens;
  Decoder decoder(weights, memory, batch, last);
  decoder.reset({1}, position);
  decoder.step();
  memory.wait();
  std::vector<double> host, all;
  for (int sample = 0; sample < 5; ++sample) {
    decoder.reset({1}, position);
    const auto begin = Clock::now();
    for (int i = 0; i < options.tokens; ++i) decoder.step();
    host.push_back(seconds_since(begin) / options.tokens);
    memory.wait();
    all.push_back(seconds_since(begin) / options.tokens);
  }
  const double time = median(all);
  const Shape& shape = weights.shape;
  const std::int64_t cache_bytes =
      2 * shape.layers * batch * last * shape.kv_heads * shape.head() * bits(shape.cache) / 8;
  const std::int64_t bytes = bytes_of(weights) + cache_bytes;
  nlohmann::ordered_json result = {
      {"batch", batch},
      {"position", position},
      {"operations", decoder.graph().operations().size()},
      {"tokens_per_second", static_cast<double>(batch) / time},
      {"token_us", time * 1e6},
      {"host_us", median(host) * 1e6},
      {"bytes", bytes},
      {"of_copy", static_cast<double>(bytes) / time / copy},
  };
  fmt::print(
      "batch {}, position {}: {:.1f} tokens/s, {:.0f} us a token, host {:.1f} us, {:.2f} GB, "
      "{:.2f} of a copy\n",
      batch, position, static_cast<double>(batch) / time, time * 1e6, median(host) * 1e6,
      static_cast<double>(bytes) * 1e-9, static_cast<double>(bytes) / time / copy);
  // What the pieces of a program hand on to each other where each is launched alone.
  decoder.add("qkv", kiln::DType::f32, {batch, shape.heads + 2 * shape.kv_heads, shape.head()});
  decoder.add("mixed", shape.floats(), {batch, shape.width});
  decoder.add("r", kiln::DType::f32, {batch, shape.width});
  decoder.add("gated", shape.floats(), {batch, shape.hidden});
  decoder.add("best", kiln::DType::i32, {batch});
  decoder.reset({1}, position);
  for (const Decoder::Piece& piece : decoder.pieces()) {
    kiln::Graph graph = kiln::record(
        memory.stream.device, [&](kiln::Recorder& recorder) { decoder.record(recorder, piece); });
    const double own = time_of(graph, memory, 4);
    result["kinds"][piece.kind] = {{"operations", graph.operations().size()}, {"us", own * 1e6}};
    fmt::print("  {:<10} {:>4} operations {:>9.1f} us\n", piece.kind, graph.operations().size(),
               own * 1e6);
  }
  return result;
}

int run(int count, char** values) {
  CLI::App app("Decodes tokens with a Llama-architecture model, one graph launch for each");
  Options options;
  app.add_option("--device", options.device, "cpu, cuda or hip")->capture_default_str();
  app.add_option("--weights", options.weights, "stories260k.safetensors: prints its tokens");
  app.add_option("--shape", options.shape, "8b or 1b: measures random weights of 4 bits");
  app.add_option("--batch", options.batch, "sequences")->delimiter(',')->capture_default_str();
  app.add_option("--positions", options.positions, "at which to measure")->delimiter(',');
  app.add_option("--tokens", options.tokens, "in a sample")->capture_default_str();
  app.add_option(
      "--activations", options.activations,
      "f32, bf16, f16, or i8 with a scale for each group (default: f32 on cpu, else bf16)");
  app.add_option("--group", options.group, "weights that share a scale and a bias")
      ->capture_default_str();
  app.add_option("--cache", options.cache, "dtype of keys and values")->capture_default_str();
  app.add_option("--json", options.json, "file to write");
  CLI11_PARSE(app, count, values);
  const kiln::Device device = kiln::parse_device(options.device);
  const Memory memory = memory_of(device.type);
  if (!options.weights.empty() && !tell(options, memory)) return 1;
  if (options.shape.empty()) return 0;
  Shape shape = kShapes.at(options.shape);
  const bool cpu = device.type == kiln::DeviceType::cpu;
  if (options.activations.empty()) options.activations = cpu ? "f32" : "bf16";
  shape.group = options.group;
  shape.activations = kiln::parse_dtype(options.activations).value();
  shape.cache = kiln::parse_dtype(options.cache).value();
  const double copy = copy_speed(memory);
  const Weights weights = random_model(shape, memory);
  nlohmann::ordered_json all = {{"shape", options.shape},
                                {"model",
                                 {{"layers", shape.layers},
                                  {"width", shape.width},
                                  {"hidden", shape.hidden},
                                  {"heads", shape.heads},
                                  {"kv_heads", shape.kv_heads},
                                  {"vocabulary", shape.vocabulary}}},
                                {"device", kiln::device_info(device).name},
                                {"copy_bytes_per_second", copy}};
  fmt::print("{}: copy {:.0f} GB/s\n", kiln::device_info(device).name, copy * 1e-9);
  for (const std::int64_t position : options.positions) {
    for (const std::int64_t batch : options.batch) {
      all["runs"].push_back(measure(options, weights, memory, copy, batch, position));
    }
  }
  if (!options.json.empty()) std::ofstream(options.json) << all.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace decode

int main(int count, char** values) {
  try {
    return decode::run(count, values);
  } catch (const std::exception& error) {
    fmt::print(stderr, "decode: {}\n", error.what());
    return 1;
  }
}
