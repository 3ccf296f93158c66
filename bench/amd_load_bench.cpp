// What kernels ask of a GPU of AMD's, from their executed instructions: issued instructions of each
// unit for an element, and the time that issuing them takes beside that of memory. The GPU is the
// emulated one of tests/amd: KILN_TEST_AMD_TARGET, or gfx90a.
//   amd_load_bench [--json FILE] [KERNEL...]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fusion/schedule/device_model.hpp"
#include "jit/device/backend.hpp"
#include "jit/service/compile.hpp"
#include "kiln/kiln.hpp"
#include "tests/amd/hip/emulate.hpp"
#include "tests/amd/isa/load.hpp"

namespace kiln {
namespace {

using Json = nlohmann::ordered_json;

struct Array {
  DType dtype;
  Dims shape;
};

/// A function with its operands, the last of which is the result. The elements by which everything
/// is divided are those of the first one.
struct Case {
  std::string name;
  std::string text;
  std::vector<std::string> names;
  std::vector<Array> operands;
  bool reshapes = false;  ///< takes a Program
};

constexpr std::int64_t kColumns = 4096;
constexpr std::int64_t kRows = 32;

Case elementwise(const std::string& function, DType dtype, const std::string& text,
                 std::vector<std::string> names) {
  const Array array{dtype, {kRows, kColumns}};
  std::vector<Array> operands(names.size() + 1, array);
  return {fmt::format("{}_{}", function, name(dtype)), text, std::move(names), operands};
}

Case rms_norm(DType dtype) {
  const Array rows{dtype, {kRows, kColumns}};
  return {fmt::format("rms_norm_{}", name(dtype)),
          "rms_norm(x, w, 1e-5)",
          {"x", "w"},
          {rows, {dtype, {kColumns}}, rows}};
}

// Weights of groups of 64 times some vectors, as `kiln bench matvec_*` has them.
Case product(DType weights, std::int64_t vectors) {
  constexpr std::int64_t kGroup = 64;
  constexpr std::int64_t kOutputs = 256;
  constexpr std::int64_t kGroups = kColumns / kGroup;
  const bool is_float = weights != DType::u4;
  Case made;
  made.name = fmt::format("matvec_{}_{}", name(weights), vectors);
  made.text = is_float ? "sum(bf16(q) * scale * x, -1, -2)" : "sum((q * scale + bias) * x, -1, -2)";
  made.names = {"q", "scale"};
  made.operands = {{weights, {kOutputs, 1, kGroups, kGroup}},
                   {DType::bf16, {kOutputs, 1, kGroups, 1}}};
  if (!is_float) {
    made.names.emplace_back("bias");
    made.operands.push_back(made.operands[1]);
  }
  made.names.emplace_back("x");
  made.operands.push_back({DType::bf16, {vectors, kGroups, kGroup}});
  made.operands.push_back({DType::bf16, {kOutputs, vectors}});
  return made;
}

// Groups of two channels of an image, which is NCHW or NHWC.
Case group_norm(bool channels_last) {
  constexpr std::int64_t kChannels = 64;
  constexpr std::int64_t kSide = 28;
  const Dims image =
      channels_last ? Dims{8, kSide, kSide, kChannels} : Dims{8, kChannels, kSide, kSide};
  const Array weight{DType::bf16, channels_last ? Dims{kChannels} : Dims{kChannels, 1, 1}};
  const std::string axes = channels_last ? "-1, -3" : "-1";
  Case made;
  made.name = channels_last ? "group_norm_nhwc" : "group_norm_nchw";
  made.text = fmt::format(
      "p = reshape(x, 0, {0}); c = p - mean(p, {1}); n = c * rsqrt(mean(c * c, {1}) + 1e-5); "
      "reshape(n, 0, {2}, {3}, {4}) * w + b",
      channels_last ? "784, 32, 2" : "32, 1568", axes, image[1], image[2], image[3]);
  made.names = {"x", "w", "b"};
  made.operands = {{DType::bf16, image}, weight, weight, {DType::bf16, image}};
  made.reshapes = true;
  return made;
}

Case windows() {
  return {"mean_of_2x2",
          "reshape(mean(reshape(x, 0, 0, 14, 2, 14, 2), -1, -3), 0, 64, 14, 14)",
          {"x"},
          {{DType::bf16, {8, 64, 28, 28}}, {DType::bf16, {8, 64, 14, 14}}},
          true};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    all.push_back(elementwise("copy", dtype, "x", {"x"}));
    all.push_back(elementwise("silu_mul", dtype, "silu(gate) * up", {"gate", "up"}));
    all.push_back(elementwise("gelu", dtype, "gelu(x)", {"x"}));
    all.push_back(elementwise("softmax", dtype, "softmax(x, -1)", {"x"}));
    all.push_back(rms_norm(dtype));
    all.push_back(elementwise(
        "chain12", dtype,
        "t = tanh(x * y + 0.5) * log1p(exp(-abs(x - y))); 0.5 * maximum(t, x) + y", {"x", "y"}));
  }
  for (const std::int64_t vectors : {1, 4, 8}) all.push_back(product(DType::u4, vectors));
  for (const DType weights : {DType::f8e4m3, DType::f8e4m3fnuz}) all.push_back(product(weights, 1));
  for (const bool channels_last : {false, true}) all.push_back(group_norm(channels_last));
  all.push_back(windows());
  return all;
}

double elements_of(const Array& array) {
  double elements = 1;
  for (const std::int64_t size : array.shape) elements *= static_cast<double>(size);
  return elements;
}
double bytes_of(const Array& array) { return elements_of(array) * bits(array.dtype) / 8; }

/// The case executed once.
amd::Trace trace_of(const Case& one) {
  constexpr int kByte = 0x3f;  // of every format a number of about 1
  const Device device{DeviceType::hip, 0};
  jit::Backend& backend = jit::backend(device);
  const Stream stream = backend.create_stream();
  std::vector<void*> memory;
  std::vector<View> views;
  for (const Array& array : one.operands) {
    const auto bytes = static_cast<std::size_t>(bytes_of(array));
    memory.push_back(backend.allocate(bytes));
    backend.fill(memory.back(), kByte, bytes, stream);
    views.emplace_back(memory.back(), array.dtype, array.shape, device);
  }
  const Function function = parse(one.name, one.text);
  std::vector<Argument> inputs;
  for (const std::string& wanted : argument_names(function)) {
    const auto at = std::ranges::find(one.names, wanted) - one.names.begin();
    inputs.emplace_back(views[static_cast<std::size_t>(at)]);
  }
  backend.synchronize(stream);
  amd::take_trace();
  const std::span<const View> outputs(views.data() + one.names.size(), 1);
  if (one.reshapes) {
    parse_program(one.name, one.text).run(stream, inputs, outputs, View());
  } else {
    function.call(stream, inputs, outputs);
  }
  backend.synchronize(stream);
  const amd::Trace trace = amd::take_trace();
  for (void* pointer : memory) backend.free(pointer);
  backend.destroy_stream(stream);
  if (const std::string faults = amd::new_faults(); !faults.empty()) {
    throw Error(Code::internal, faults);
  }
  return trace;
}

Json report(const Case& one, const fusion::DeviceModel& gpu, int wave_size) {
  double bytes = 0;
  for (const Array& array : one.operands) bytes += bytes_of(array);
  const double elements = elements_of(one.operands[0]);
  const amd::Load load =
      amd::load_of(trace_of(one), static_cast<std::uint32_t>(wave_size), elements, bytes, gpu);
  Json instructions;
  Json issue;
  for (std::size_t i = 0; i < amd::kUnits; ++i) {
    const std::string unit(amd::name_of(static_cast<amd::Unit>(i)));
    instructions[unit] = load.instructions[i];
    if (load.issue_ps[i] > 0) issue[unit] = load.issue_ps[i];
  }
  issue["vector and transcendental"] = load.vector_ps;
  return {{"kernel", one.name},
          {"gpu", gpu.product},
          {"target", gpu.target},
          {"instructions_per_element", instructions},
          {"issue_ps_per_element", issue},
          {"memory_ps_per_element", load.memory_ps},
          {"issue_per_memory", load.ratio()}};
}

void print(const Json& row) {
  const Json& issued = row["instructions_per_element"];
  const auto of = [&](const char* unit) { return issued[unit].get<double>(); };
  fmt::print(
      "{:<19} {:<12} {:>8.2f} {:>8.2f} {:>8.3f} {:>8.3f} {:>8.3f} {:>9.4f} {:>9.4f} {:>7.2f}\n",
      row["kernel"].get<std::string>(), row["gpu"].get<std::string>(), of("vector"),
      of("transcendental"), of("scalar"), of("lds"), of("memory"),
      row["issue_per_memory"].get<double>() * row["memory_ps_per_element"].get<double>(),
      row["memory_ps_per_element"].get<double>(), row["issue_per_memory"].get<double>());
  std::fflush(stdout);
}

void print_head() {
  fmt::print("{:19} {:12} {:^44} {:>9} {:>9} {:>7}\n", "", "", "instructions of an element",
             "issue", "memory", "issue /");
  fmt::print("{:19} {:12} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7}\n", "kernel", "GPU",
             "vector", "transc.", "scalar", "LDS", "memory", "ps", "ps", "memory");
}

/// All cases on the emulated GPU of this process.
void run(const std::vector<std::string>& wanted, Json& rows) {
  jit::Backend& backend = jit::backend({DeviceType::hip, 0});
  const std::string target = backend.target();
  const fusion::DeviceModel& gpu = fusion::device_model(target);
  print_head();
  for (const Case& one : cases()) {
    if (!wanted.empty() && std::ranges::count(wanted, one.name) == 0) continue;
    rows.push_back(report(one, gpu, backend.wave_size()));
    print(rows.back());
  }
}

int run_from(std::vector<std::string> arguments) {
  std::string file;
  if (arguments.size() > 1 && arguments[0] == "--json") {
    file = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  if (const std::string reason = jit::why_absent(DeviceType::hip); !reason.empty()) {
    fmt::print("nothing is counted: {}\n", reason);
    return 0;
  }
  const auto is_hiprtc = [](const jit::Toolchain& found) {
    return found.kind == jit::ToolchainKind::hiprtc;
  };
  if (std::ranges::none_of(jit::toolchains(), is_hiprtc)) {
    fmt::print("nothing is counted: there is no hiprtc\n");
    return 0;
  }
  Json rows = Json::array();
  run(arguments, rows);
  if (rows.empty()) {
    fmt::print(stderr, "amd_load_bench: no kernel has such a name\n");
    return 2;
  }
  if (file.empty()) return 0;
  std::ofstream out(file);
  out << rows.dump(2) << '\n';
  return out.good() ? 0 : 1;
}

}  // namespace
}  // namespace kiln

int main(int count, char** arguments) {
  setenv("KILN_TEST_AMD", "emulated", 0);
  setenv("KILN_TEST_AMD_TARGET", "gfx90a", 0);
  try {
    return kiln::run_from({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "amd_load_bench: {}\n", error.what());
    return 1;
  }
}
