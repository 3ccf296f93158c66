// `kiln bench`: the time of fused kernels as a fraction of a copy that moves as many bytes, both
// measured in this run. Random data, several launches a sample, medians; a part of each result is
// compared with the reference interpreter afterwards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "files/file_io.hpp"
#include "fusion/broadcast.hpp"
#include "fusion/infer.hpp"
#include "fusion/number.hpp"
#include "fusion/reference.hpp"
#include "fusion/text.hpp"
#include "kiln/error.hpp"
#include "kiln/function.hpp"
#include "tool/commands.hpp"
#include "tool/device_memory.hpp"
#include "tool/execute.hpp"
#include "tool/plot.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

/// How an operand lies in the rows x columns of a case.
enum class Form : std::uint8_t { matrix, row, column, transposed, padded };

constexpr std::int64_t kColumns = 4096;
constexpr std::int64_t kGroup = 64;  // weights that share a scale and a bias

struct Operand {
  std::string_view name;
  DType dtype;
  Form form = Form::matrix;
};

struct Case {
  std::string_view name;
  std::string_view expression;
  std::vector<Operand> inputs;
  DType output;
  std::int64_t columns = kColumns;
};

// What tells whether layouts and maths are fast: plain vectors, a heavy chain, a broadcast row, a
// transposed operand, padded rows, packed weights with a scale and a bias for each group, and
// results of another width than the operands.
const std::vector<Case>& all_cases() {
  using enum DType;
  static const std::vector<Case> cases = {
      {"copy", "x", {{"x", f32}}, f32},
      {"silu_mul_bf16", "silu(x) * y", {{"x", bf16}, {"y", bf16}}, bf16},
      {"silu_mul_f32", "silu(x) * y", {{"x", f32}, {"y", f32}}, f32},
      {"gelu_tanh_f16", "gelu_tanh(x)", {{"x", f16}}, f16},
      {"chain12_f32",
       "t = tanh(x * 0.5) + exp(-abs(x)); u = log1p(t * t) * sigmoid(t); sqrt(u * u + 1) - x",
       {{"x", f32}},
       f32},
      {"bias_gelu_residual_bf16",
       "gelu(x + bias) + residual",
       {{"x", bf16}, {"bias", bf16, Form::row}, {"residual", bf16}},
       bf16},
      {"transpose_add_f32", "x + y", {{"x", f32}, {"y", f32, Form::transposed}}, f32},
      {"row_strided_add_f32",
       "relu(x) + y",
       {{"x", f32, Form::padded}, {"y", f32, Form::padded}},
       f32},
      {"dequant_u4_bf16",
       "q * scale + bias",
       {{"q", u4}, {"scale", bf16, Form::column}, {"bias", bf16, Form::column}},
       bf16,
       kGroup},
      {"cast_f32_bf16", "bf16(x)", {{"x", f32}}, bf16},
  };
  return cases;
}

struct Array {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  std::size_t bytes = 0;  ///< that it spans
};

Array array_of(DType dtype, Form form, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kPadding = 64;
  Array array{dtype, {rows, columns}, {columns, 1}, 0};
  if (form == Form::row) array = {dtype, {columns}, {1}, 0};
  if (form == Form::column) array = {dtype, {rows, 1}, {1, 1}, 0};
  if (form == Form::transposed) array.strides = {1, rows};
  if (form == Form::padded) array.strides = {columns + kPadding, 1};
  std::int64_t last = 0;
  for (std::size_t k = 0; k < array.shape.size(); ++k)
    last += array.strides[k] * (array.shape[k] - 1);
  array.bytes = static_cast<std::size_t>(((last + 1) * bits(dtype) + 7) / 8);
  return array;
}

std::vector<std::byte> random_values(const Array& array, std::uint64_t seed) {
  // A stretch of random numbers, repeated: making a gigabyte of them would take longer than the
  // case.
  constexpr std::size_t kStretch = 1 << 16;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 2);
  const bool packed = bits(array.dtype) < 8;  // then any byte is two numbers
  const auto width = packed ? 1 : static_cast<std::size_t>(bits(array.dtype) / 8);
  std::vector<std::byte> values(array.bytes);
  const std::size_t count = array.bytes / width;
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= kStretch) {
      std::memcpy(values.data() + i * width, values.data() + (i - kStretch) * width, width);
      continue;
    }
    const std::uint64_t number = packed ? random() : fusion::encode(normal(random), array.dtype);
    std::memcpy(values.data() + i * width, &number, width);
  }
  return values;
}

struct Result {
  std::string name;
  double microseconds = 0;
  double spread = 0;  ///< (largest - smallest) / median
  double gb_per_s = 0;
  double fraction = 0;  ///< of the copy's bytes per second
  double error = 0;  ///< largest relative difference to the reference in the part that was checked
  std::string variant;
};

class Bench {
 public:
  Bench(const BenchOptions& options, Device device)
      : options_(options), backend_(jit::backend(device)), stream_(backend_) {
    const bool gpu = device.type != DeviceType::cpu;
    bytes_ = (options.mebibytes != 0 ? options.mebibytes : gpu ? 512 : 64) << 20;
  }

  /// Bytes per second, in GB, of the device's own copy.
  double copy_speed() {
    const DeviceMemory from(backend_, bytes_);
    const DeviceMemory to(backend_, bytes_);
    const std::vector<double> times =
        time([&] { backend_.copy_on_device(to.data(), from.data(), bytes_, stream_.get()); });
    copy_ = 2.0 * static_cast<double>(bytes_) / median(times) / 1e3;
    return copy_;
  }

  Result run(const Case& item) {
    std::int64_t widest = bits(item.output);
    for (const Operand& operand : item.inputs)
      widest = std::max<std::int64_t>(widest, bits(operand.dtype));
    const std::int64_t rows =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes_) * 8 / widest / item.columns);

    const Function function = parse(item.name, item.expression);
    std::vector<Array> arrays;
    std::vector<DeviceMemory> memory;
    std::vector<std::vector<std::byte>> host;
    std::vector<Argument> inputs;
    for (const std::string& name : argument_names(function)) {
      const auto operand = std::ranges::find(item.inputs, name, &Operand::name);
      arrays.push_back(array_of(operand->dtype, operand->form, rows, item.columns));
      host.push_back(random_values(arrays.back(), arrays.size()));
      memory.emplace_back(backend_, arrays.back().bytes);
      backend_.copy_in(memory.back().data(), host.back().data(), host.back().size(), stream_.get());
      inputs.emplace_back(view(arrays.back(), memory.back()));
    }
    const Array result = array_of(item.output, Form::matrix, rows, item.columns);
    const DeviceMemory output(backend_, result.bytes);
    backend_.fill(output.data(), 0xff, result.bytes, stream_.get());
    const std::vector<View> outputs = {view(result, output)};

    const KernelInfo info = function.prepare(stream_.get(), inputs, outputs);
    std::vector<double> times = time([&] { function.call(stream_.get(), inputs, outputs); });
    std::ranges::sort(times);
    Result measured;
    measured.name = item.name;
    measured.microseconds = median(times);
    measured.spread = (times.back() - times.front()) / measured.microseconds;
    measured.gb_per_s = static_cast<double>(info.bytes) / measured.microseconds / 1e3;
    measured.fraction = measured.gb_per_s / copy_;
    measured.variant = info.variant;
    measured.error = check(function, arrays, host, result, output);
    return measured;
  }

 private:
  View view(const Array& array, const DeviceMemory& memory) const {
    return {memory.data(), array.dtype, array.shape, array.strides, backend_.device()};
  }

  // Microseconds of one call, one number per sample. A sample is several calls, since what the
  // clock adds to one would show.
  template <class Body>
  std::vector<double> time(const Body& body) {
    constexpr int kCalls = 10;
    for (int i = 0; i < 3; ++i) body();
    std::vector<double> times;
    for (int sample = 0; sample < options_.samples; ++sample) {
      times.push_back(backend_.time_us(stream_.get(), [&] {
        for (int i = 0; i < kCalls; ++i) body();
      }) / kCalls);
    }
    return times;
  }

  // The largest relative difference to the reference in the first rows.
  double check(const Function& function, const std::vector<Array>& arrays,
               std::vector<std::vector<std::byte>>& host, const Array& result,
               const DeviceMemory& output) {
    std::vector<fusion::ArgumentType> types;
    std::vector<fusion::ReferenceOperand> arguments;
    const std::int64_t rows =
        std::min(result.shape[0], std::max<std::int64_t>(1, kColumns / result.shape[1]));
    const Dims shape = {rows, result.shape[1]};
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      types.push_back({arrays[i].dtype, false, false});
      Dims own = arrays[i].shape;
      if (own.size() == 2) own[0] = rows;
      arguments.push_back({host[i].data(), arrays[i].dtype,
                           fusion::broadcast_strides(own, arrays[i].strides, shape), 0});
    }
    const DType exact = DType::f64;
    const fusion::TypedGraph graph =
        fusion::infer(fusion::parse(function.expression()), types, std::span(&exact, 1),
                      Rounding::once, function.name());
    std::vector<double> expected(static_cast<std::size_t>(rows * result.shape[1]));
    const std::vector<fusion::ReferenceOperand> outputs = {
        {expected.data(), exact, {result.shape[1], 1}, 0}};
    fusion::evaluate(graph, shape, arguments, outputs);

    const auto width = static_cast<std::size_t>(bits(result.dtype) / 8);
    std::vector<std::byte> got_bytes(expected.size() * width);
    backend_.synchronize(stream_.get());
    backend_.copy_out(got_bytes.data(), output.data(), got_bytes.size(), stream_.get());
    backend_.synchronize(stream_.get());
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::uint64_t number = 0;
      std::memcpy(&number, got_bytes.data() + i * width, width);
      const double got = fusion::decode(number, result.dtype);
      const double difference =
          std::fabs(got - expected[i]) / std::max(std::fabs(expected[i]), 1e-3);
      worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
    }
    return worst;
  }

  const BenchOptions& options_;
  jit::Backend& backend_;
  OwnedStream stream_;
  std::size_t bytes_ = 0;
  double copy_ = 1;
};

std::vector<Case> chosen_cases(const std::vector<std::string>& names) {
  if (names.empty()) return all_cases();
  std::vector<Case> chosen;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(all_cases(), name, &Case::name);
    if (found == all_cases().end()) {
      std::string known;
      for (const Case& item : all_cases())
        known += fmt::format("{}{}", known.empty() ? "" : ", ", item.name);
      throw UsageError(fmt::format("bench: there is no case '{}'; the cases are {}", name, known));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// A rounded 16-bit result differs from the exact one by 2^-9 at most; an f32 chain by far less.
bool is_right(const Result& result) { return result.error < 0.005; }

void draw(const std::string& path, const std::string& title, const std::vector<Result>& results) {
  std::vector<Bar> bars;
  for (const Result& result : results) {
    bars.push_back({result.name, result.fraction,
                    fmt::format("{:.3f}, {:.0f} GB/s{}", result.fraction, result.gb_per_s,
                                is_right(result) ? "" : ", WRONG RESULT")});
  }
  files::OutputFile file(path);
  file.write(bar_chart(title, bars, 1, "copy"));
  file.commit();
}

}  // namespace

int run_bench(const BenchOptions& options) {
  const std::vector<Case> cases = chosen_cases(options.cases);
  const Device device = choose_device(options.device);
  Bench bench(options, device);
  const double copy = bench.copy_speed();
  Json list = Json::array();
  Table table({"case", "time", "GB/s", "of copy", "spread"});
  for (std::size_t column = 1; column < 5; ++column) table.align_right(column);
  bool right = true;
  std::vector<Result> results;
  for (const Case& item : cases) {
    const Result& result = results.emplace_back(bench.run(item));
    right = right && is_right(result);
    list.push_back({{"case", result.name},
                    {"microseconds", result.microseconds},
                    {"gb_per_s", result.gb_per_s},
                    {"fraction_of_copy", result.fraction},
                    {"spread", result.spread},
                    {"right", is_right(result)},
                    {"variant", result.variant}});
    table.row(
        {result.name, human_time(result.microseconds), fmt::format("{:.0f}", result.gb_per_s),
         fmt::format("{:.3f}", result.fraction),
         is_right(result) ? fmt::format("{:.1f} %", 100 * result.spread) : red("WRONG RESULT")});
  }
  const std::string hardware = jit::backend(device).name();
  if (!options.plot.empty()) {
    draw(options.plot,
         fmt::format("{}: bandwidth as a fraction of a copy ({:.0f} GB/s)", hardware, copy),
         results);
  }
  if (options.json) {
    print_json({{"device", to_string(device)},
                {"hardware", hardware},
                {"copy_gb_per_s", copy},
                {"cases", list}});
  } else {
    fmt::print("{} ({}), copy {:.0f} GB/s\n", to_string(device), hardware, copy);
    table.print();
  }
  return right ? kSuccess : kFailure;
}

}  // namespace kiln::tool
