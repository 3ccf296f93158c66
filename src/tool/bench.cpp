// `kiln bench`: the time of fused kernels as a fraction of a copy that moves as many bytes, both
// measured in this run. Random data, several launches a sample, medians; a part of each result is
// compared with the reference interpreter afterwards. What is measured is in bench_cases.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/device_memory.hpp"
#include "files/file_io.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/number.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"
#include "kiln/graph.hpp"
#include "kiln/program.hpp"
#include "tool/bench_cases.hpp"
#include "tool/bench_clock.hpp"
#include "tool/bench_compare.hpp"
#include "tool/bench_corpus.hpp"
#include "tool/bench_size.hpp"
#include "tool/bench_sweep.hpp"
#include "tool/bench_values.hpp"
#include "tool/commands.hpp"
#include "tool/execute.hpp"
#include "tool/plot.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

constexpr std::int64_t kCheckedElements = 4096;

struct Array {
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;
  std::size_t bytes = 0;  ///< that it spans
};

Array array_of(DType dtype, Form form, std::int64_t rows, std::int64_t columns,
               std::int64_t vectors) {
  constexpr std::int64_t kPadding = 64;
  Array array{dtype, {rows, columns}, {columns, 1}, 0};
  const std::int64_t groups = columns / kBenchGroup;
  if (form == Form::weights) array.shape = {rows, 1, groups, kBenchGroup};
  if (form == Form::of_groups) array.shape = {rows, 1, groups, 1};
  if (form == Form::vectors) array.shape = {vectors, groups, kBenchGroup};
  if (form == Form::products) array.shape = {rows, vectors};
  if (form >= Form::weights) array.strides = contiguous_strides(array.shape);
  if (form == Form::row) array = {dtype, {columns}, {1}, 0};
  if (form == Form::column) array = {dtype, {rows, 1}, {1, 1}, 0};
  if (form == Form::one_row) array = {dtype, {1, columns}, {columns, 1}, 0};
  if (form == Form::transposed) array.strides = {1, rows};
  if (form == Form::padded) array.strides = {columns + kPadding, 1};
  std::int64_t last = 0;
  for (std::size_t k = 0; k < array.shape.size(); ++k)
    last += array.strides[k] * (array.shape[k] - 1);
  array.bytes = static_cast<std::size_t>(((last + 1) * bits(dtype) + 7) / 8);
  return array;
}

struct CaseResult {
  std::string name;
  double microseconds = 0;
  double spread = 0;  ///< (largest - smallest) / median
  double gb_per_s = 0;
  double fraction = 0;      ///< of the copy's bytes per second
  bool right = false;       ///< the part that was compared with the reference
  std::uint64_t bytes = 0;  ///< each input read and each output written once
  std::string variant;
  double of_read = 0;  ///< of the speed of a kernel that only reads the same bytes; 0: not measured
};

// What reads much and writes little is measured by this: every thread reads four vectors, and never
// finds the sum that it would have to write. It begins when the one before has ended, as any kernel
// does that says nothing else.
constexpr std::string_view kReadingKernel = R"(
extern "C" __global__ void __launch_bounds__(256) read_only(const kiln::u32* data, kiln::u32* out,
                                                            kiln::u32 count) {
  const kiln::Chunk<16>* const vectors = (const kiln::Chunk<16>*)data;
  const kiln::u32 first = blockIdx.x * 1024 + threadIdx.x;
  kiln::Chunk<16> loaded[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const kiln::u32 at = first + i * 256;
    loaded[i] = vectors[at < count ? at : count - 1];
  }
  kiln::u32 sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += loaded[i].word[0] ^ loaded[i].word[1] ^ loaded[i].word[2] ^ loaded[i].word[3];
  }
  if (sum == 0x5eed5eedu) out[0] = sum;
}
)";

class Bench {
 public:
  Bench(const BenchOptions& options, Device device)
      : options_(options),
        backend_(jit::backend(device)),
        stream_(backend_),
        bytes_(bench_bytes(options, device)) {}

  /// Bytes per second, in GB, of the device's own copy.
  double copy_speed() { return copy().speed(); }

  CaseResult run(const BenchCase& item) {
    std::int64_t widest = bits(item.output);
    for (const BenchOperand& operand : item.inputs)
      widest = std::max<std::int64_t>(widest, bits(operand.dtype));
    const std::int64_t elements = static_cast<std::int64_t>(bytes_) * 8 / widest;
    const std::int64_t columns = item.columns == 0 ? elements : item.columns;
    const std::int64_t rows =
        item.rows != 0 ? item.rows : std::max<std::int64_t>(1, elements / columns);

    const Function function = parse(item.name, item.expression);
    std::vector<Array> arrays;
    std::vector<DeviceMemory> memory;
    std::vector<std::vector<std::byte>> host;
    std::vector<Argument> inputs;
    for (const std::string& name : argument_names(function)) {
      const auto operand = std::ranges::find(item.inputs, name, &BenchOperand::name);
      arrays.push_back(array_of(operand->dtype, operand->form, rows, columns, item.vectors));
      host.push_back(random_values(operand->dtype, arrays.back().bytes, RandomFloats::around_zero,
                                   arrays.size()));
      memory.emplace_back(backend_, arrays.back().bytes);
      backend_.copy_in(memory.back().data(), host.back().data(), host.back().size(), stream_.get());
      inputs.emplace_back(view(arrays.back(), memory.back()));
    }
    const Array result = array_of(item.output, item.result, rows, columns, item.vectors);
    const DeviceMemory output(backend_, result.bytes);
    backend_.fill(output.data(), 0xff, result.bytes, stream_.get());
    const std::vector<View> outputs = {view(result, output)};

    CaseResult measured;
    measured.name = item.name;
    std::vector<double> times = item.rows != 0
                                    ? time_graph(function, arrays, host, outputs, measured)
                                : fusion::works_along_axes(fusion::parse(item.expression))
                                    ? time_program(program(function), inputs, outputs, measured)
                                    : time_function(function, inputs, outputs, measured);
    std::ranges::sort(times);
    measured.microseconds = median(times);
    measured.spread = (times.back() - times.front()) / measured.microseconds;
    measured.gb_per_s = static_cast<double>(measured.bytes) / measured.microseconds / 1e3;
    measured.fraction = measured.gb_per_s / copy().speed();
    measured.right = is_right(item.sums ? sums_of(arrays[0], host[0], result)
                                        : reference_of(function, arrays, host, result),
                              result, output);
    return measured;
  }

 private:
  View view(const Array& array, const DeviceMemory& memory) const {
    return {memory.data(), array.dtype, array.shape, array.strides, backend_.device()};
  }

  std::vector<double> time_function(const Function& function, const std::vector<Argument>& inputs,
                                    const std::vector<View>& outputs, CaseResult& result) {
    const KernelInfo info = function.prepare(stream_.get(), inputs, outputs);
    result.bytes = info.bytes;
    result.variant = info.variant;
    return time([&] { function.call(stream_.get(), inputs, outputs); });
  }

  std::vector<double> time_program(const Program& program, const std::vector<Argument>& inputs,
                                   const std::vector<View>& outputs, CaseResult& result) {
    const ProgramInfo info = program.explain(stream_.get(), inputs, outputs);
    result.bytes = info.lower_bound;
    for (const ProgramKernel& kernel : info.kernels) {
      result.variant += (result.variant.empty() ? "" : " | ") + kernel.expression;
    }
    const DeviceMemory memory(backend_, info.workspace_bytes);
    const View workspace(memory.data(), DType::u8,
                         {static_cast<std::int64_t>(info.workspace_bytes)}, backend_.device());
    return time([&] { program.run(stream_.get(), inputs, outputs, workspace); });
  }

  // Calls in one graph, each on a copy of the inputs of its own, so that no cache has them from the
  // call before; and the same bytes only read.
  std::vector<double> time_graph(const Function& function, const std::vector<Array>& arrays,
                                 const std::vector<std::vector<std::byte>>& host,
                                 const std::vector<View>& outputs, CaseResult& result) {
    constexpr std::size_t kMostCopies = 64;
    constexpr std::size_t kPlace = 256;  // what every array's address is a multiple of
    const auto place = [](std::size_t bytes) { return (bytes + kPlace - 1) / kPlace * kPlace; };
    std::size_t bytes = 0;
    for (const Array& array : arrays) bytes += place(array.bytes);
    const std::size_t copies = std::clamp<std::size_t>(bytes_ / bytes, 1, kMostCopies);
    const DeviceMemory memory(backend_, bytes * copies);
    std::vector<std::vector<Argument>> inputs(copies);
    std::byte* at = static_cast<std::byte*>(memory.data());
    for (std::size_t copy = 0; copy < copies; ++copy) {
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        backend_.copy_in(at, host[i].data(), host[i].size(), stream_.get());
        inputs[copy].emplace_back(
            View(at, arrays[i].dtype, arrays[i].shape, arrays[i].strides, backend_.device()));
        at += place(arrays[i].bytes);
      }
    }
    const KernelInfo info = function.prepare(stream_.get(), inputs[0], outputs);
    result.bytes = info.bytes;
    result.variant = info.variant;
    Graph calls = record(backend_.device(), [&](Recorder& recorder) {
      for (const auto& own : inputs) recorder.call(function, own, outputs);
    });
    std::vector<double> times = time_launches(calls, copies);
    if (backend_.device().type != DeviceType::cpu) {
      result.of_read = median(time_reads(memory.data(), bytes, copies)) / median(times);
    }
    return times;
  }

  std::vector<double> time_reads(void* data, std::size_t bytes, std::size_t copies) {
    const Kernel reads_only = kernel("read_only", kReadingKernel,
                                     {reads(DType::u32), writes(DType::u32), scalar(DType::u32)});
    const DeviceMemory sum(backend_, 4);
    const auto words = static_cast<std::int64_t>(bytes / 4);
    Graph calls = record(backend_.device(), [&](Recorder& recorder) {
      for (std::size_t copy = 0; copy < copies; ++copy) {
        const View view(static_cast<std::byte*>(data) + copy * bytes, DType::u32, {words},
                        backend_.device());
        const View out(sum.data(), DType::u32, {1}, backend_.device());
        recorder.call(reads_only, Grid::covering(bytes / 16 / 4),
                      {view, out, static_cast<std::uint32_t>(bytes / 16)});
      }
    });
    return time_launches(calls, copies);
  }

  std::vector<double> time_launches(Graph& graph, std::size_t calls) {
    std::vector<double> times = time([&] { graph.launch(stream_.get()); });
    for (double& sample : times) sample /= static_cast<double>(calls);
    return times;
  }

  template <class Body>
  std::vector<double> time(const Body& body) {
    return copy().sample_times_beside(body);
  }

  Copy& copy() {
    if (!copy_) copy_.emplace(backend_, stream_.get(), bytes_, options_.samples);
    return *copy_;
  }

  // What the reference gives for the first rows.
  std::vector<double> reference_of(const Function& function, const std::vector<Array>& arrays,
                                   std::vector<std::vector<std::byte>>& host, const Array& result) {
    std::vector<fusion::ArgumentType> types;
    const Dims& largest = std::ranges::max(arrays, {}, &Array::bytes).shape;
    std::int64_t columns = largest[largest.size() - 1];
    for (std::size_t k = 1; k + 1 < largest.size(); ++k) columns *= largest[k];
    const std::int64_t rows =
        std::min(result.shape[0], std::max<std::int64_t>(1, kCheckedElements / columns));
    std::vector<Dims> shapes;
    for (const Array& array : arrays) {
      types.push_back({array.dtype, false, false});
      shapes.push_back(array.shape);
      if (array.shape.size() != 1 && array.shape[0] == result.shape[0]) shapes.back()[0] = rows;
    }
    const DType exact = DType::f64;
    const fusion::TypedGraph graph =
        fusion::infer(fusion::parse(function.expression()), types, std::span(&exact, 1),
                      Rounding::once, function.name());
    const Dims shape = {rows, result.shape[1]};
    std::vector<double> expected(static_cast<std::size_t>(rows * result.shape[1]));
    const bool reduces = fusion::works_along_axes(graph);
    std::vector<fusion::ReferenceOperand> arguments;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const Dims strides = reduces ? arrays[i].strides
                                   : fusion::broadcast_strides(shapes[i], arrays[i].strides, shape);
      arguments.push_back({host[i].data(), arrays[i].dtype, strides, 0});
    }
    fusion::ReferenceOperand output{expected.data(), exact, {result.shape[1], 1}, 0};
    if (reduces) {
      const std::vector<Dims> values = fusion::infer_shapes(graph, shapes, function.name());
      output.strides = contiguous_strides(values[graph.outputs[0]]);
      fusion::evaluate_arrays(graph, values, arguments, std::span(&output, 1));
    } else {
      fusion::evaluate(graph, shape, arguments, std::span(&output, 1));
    }
    return expected;
  }

  // Sums of a whole matrix, for which the interpreter would take minutes.
  static std::vector<double> sums_of(const Array& array, const std::vector<std::byte>& values,
                                     const Array& result) {
    std::vector<double> sums(static_cast<std::size_t>(result.shape[0] * result.shape[1]));
    std::int64_t index = 0;
    for (std::int64_t row = 0; row < array.shape[0]; ++row) {
      for (std::int64_t column = 0; column < array.shape[1]; ++column, ++index) {
        const std::uint64_t number =
            fusion::reference::read_bits(values.data(), array.dtype, index);
        sums[static_cast<std::size_t>(result.shape[1] == 1 ? row : column)] +=
            fusion::decode(number, array.dtype);
      }
    }
    return sums;
  }

  // Whether the first elements are what is expected of them.
  bool is_right(const std::vector<double>& expected, const Array& result,
                const DeviceMemory& output) {
    const auto width = static_cast<std::size_t>(bits(result.dtype) / 8);
    std::vector<std::byte> got(expected.size() * width);
    backend_.synchronize(stream_.get());
    backend_.copy_out(got.data(), output.data(), got.size(), stream_.get());
    backend_.synchronize(stream_.get());
    return may_be_rounded_from(result.dtype, got, expected);
  }

  const BenchOptions& options_;
  jit::Backend& backend_;
  OwnedStream stream_;
  std::size_t bytes_ = 0;
  std::optional<Copy> copy_;
};

void draw(const std::string& path, const std::string& title,
          const std::vector<CaseResult>& results) {
  std::vector<Bar> bars;
  for (const CaseResult& result : results) {
    bars.push_back({result.name, result.fraction,
                    fmt::format("{:.3f}, {:.0f} GB/s{}", result.fraction, result.gb_per_s,
                                result.right ? "" : ", WRONG RESULT")});
  }
  files::OutputFile file(path);
  file.write(bar_chart(title, bars, 1, "copy"));
  file.commit();
}

}  // namespace

int run_bench(const BenchOptions& options) {
  if (options.sweep) return run_bench_sweep(options);
  if (!options.corpus.empty()) return run_bench_corpus(options);
  const std::vector<BenchCase> cases = bench_cases(options.cases);
  const Device device = choose_device(options.device);
  Bench bench(options, device);
  const double copy = bench.copy_speed();
  Json list = Json::array();
  Table table({"case", "time", "GB/s", "of copy", "of read", "spread"});
  for (std::size_t column = 1; column < 6; ++column) table.align_right(column);
  bool right = true;
  std::vector<CaseResult> results;
  for (const BenchCase& item : cases) {
    const CaseResult& result = results.emplace_back(bench.run(item));
    right = right && result.right;
    list.push_back({{"case", result.name},
                    {"microseconds", result.microseconds},
                    {"gb_per_s", result.gb_per_s},
                    {"fraction_of_copy", result.fraction},
                    {"fraction_of_read", result.of_read > 0 ? Json(result.of_read) : Json()},
                    {"spread", result.spread},
                    {"right", result.right},
                    {"variant", result.variant}});
    table.row({result.name, human_time(result.microseconds), fmt::format("{:.0f}", result.gb_per_s),
               fmt::format("{:.3f}", result.fraction),
               result.of_read > 0 ? fmt::format("{:.3f}", result.of_read) : "",
               result.right ? fmt::format("{:.1f} %", 100 * result.spread) : red("WRONG RESULT")});
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
    print("{} ({}), copy {:.0f} GB/s\n", to_string(device), hardware, copy);
    table.print();
  }
  return right ? kSuccess : kFailure;
}

}  // namespace kiln::tool
