#include "tool/bench_corpus.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "ahead/compile_only.hpp"
#include "base/text.hpp"
#include "files/file_io.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"
#include "kiln/program.hpp"
#include "tool/arguments.hpp"
#include "tool/bench_clock.hpp"
#include "tool/bench_compare.hpp"
#include "tool/bench_size.hpp"
#include "tool/bench_values.hpp"
#include "tool/execute.hpp"
#include "tool/plot.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

constexpr std::size_t kCheckedCorpusElements = 1 << 14;
// The largest of so many errors is several times their typical size, and a kernel may round its
// steps otherwise than the reference.
constexpr double kOfDifference = 8;

struct CorpusCase {
  std::string name;
  std::string text;
  std::vector<std::string> arguments;  ///< x=bf16[N,4096]
};

std::vector<CorpusCase> read_corpus(const BenchOptions& options) {
  std::ifstream file(options.corpus);
  if (!file) throw Error(Code::io, fmt::format("{}: cannot be read", options.corpus));
  std::vector<CorpusCase> cases;
  std::vector<std::string> names;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> parts = base::split(line, '|', base::Parts::trimmed);
    if (parts.size() != 4) {
      throw UsageError(
          fmt::format("{}:{}: expected name | text | arguments | arguments of the "
                      "benchmark",
                      options.corpus, number));
    }
    names.push_back(parts[0]);
    const bool chosen =
        options.cases.empty() || std::ranges::find(options.cases, parts[0]) != options.cases.end();
    if (chosen) cases.push_back({parts[0], parts[1], base::split(parts[3], ' ')});
  }
  for (const std::string& name : options.cases) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw UsageError(fmt::format("bench: {} has no function '{}'; it has {}", options.corpus, name,
                                 fmt::join(names, ", ")));
  }
  return cases;
}

// The arguments with N elements where the line says N.
std::vector<ArgumentSpec> arguments_for(const CorpusCase& item, std::int64_t n) {
  std::vector<ArgumentSpec> result;
  for (std::string text : item.arguments) {
    const std::size_t bracket = text.find('[');
    for (std::size_t at = text.find('N', bracket); at != text.npos; at = text.find('N', at)) {
      text.replace(at, 1, fmt::format("{}", n));
    }
    result.push_back(parse_argument_spec(text));
  }
  return result;
}

// How many bytes one more of N adds to the argument that grows fastest; 0 if none grows.
std::uint64_t bytes_of_one(const CorpusCase& item) {
  const std::vector<ArgumentSpec> few = arguments_for(item, 2);
  const std::vector<ArgumentSpec> more = arguments_for(item, 4);
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < few.size(); ++i) {
    most = std::max(most, fusion::byte_count(more[i].dtype, more[i].shape) -
                              fusion::byte_count(few[i].dtype, few[i].shape));
  }
  return (most + 1) / 2;
}

struct CorpusResult {
  std::string name;
  std::size_t kernels = 0;
  std::uint64_t bytes = 0;
  std::uint64_t workspace = 0;
  double microseconds = 0;
  double spread = 0;
  double gb_per_s = 0;
  double fraction = 0;
  bool right = false;
};

// One function on memory of its own.
class Case {
 public:
  Case(const CorpusCase& item, jit::Backend& backend, const Stream& stream, std::int64_t n)
      : function_(parse(item.name, item.text)),
        program_(kiln::program(function_)),
        backend_(backend),
        stream_(stream) {
    const std::vector<ArgumentSpec> given = arguments_for(item, n);
    for (const std::string& name : argument_names(function_)) {
      const auto found = std::ranges::find(given, name, &ArgumentSpec::name);
      if (found == given.end()) {
        throw UsageError(
            fmt::format("{}: the benchmark's arguments have no '{}'", item.name, name));
      }
      specs_.push_back(*found);
      host_.push_back(random_values(found->dtype, fusion::byte_count(found->dtype, found->shape),
                                    RandomFloats::positive, specs_.size()));
      memory_.emplace_back(backend, host_.back().size());
      backend.copy_in(memory_.back().data(), host_.back().data(), host_.back().size(), stream);
      inputs_.emplace_back(
          View(memory_.back().data(), found->dtype, found->shape, backend.device()));
    }
    Specification specification;
    specification.arguments = specs_;
    const OutputTypes types = output_types(function_, specification);
    for (std::size_t i = 0; i < types.dtypes.size(); ++i) {
      memory_.emplace_back(backend, fusion::byte_count(types.dtypes[i], types.shapes[i]));
      outputs_.emplace_back(memory_.back().data(), types.dtypes[i], types.shapes[i],
                            backend.device());
    }
    info_ = program_.explain(stream, inputs_, outputs_);
    memory_.emplace_back(backend, info_.workspace_bytes);
    workspace_ = View(memory_.back().data(), DType::u8,
                      {static_cast<std::int64_t>(info_.workspace_bytes)}, backend.device());
  }

  const ProgramInfo& info() const { return info_; }
  void run() const { program_.run(stream_, inputs_, outputs_, workspace_); }

  // Against the reference interpreter, every element.
  bool is_right() {
    run();
    const std::vector<Numbers> exact = reference(Rounding::once);
    std::vector<Numbers> rounded;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (agrees(outputs_[i], exact[i], 0)) continue;
      if (exact[i].reals.empty() || views_bits()) return false;
      if (rounded.empty()) rounded = reference(Rounding::each);
      const double off = typical_difference(exact[i].reals, rounded[i].reals);
      if (!agrees(outputs_[i], exact[i], kOfDifference * off)) return false;
    }
    return true;
  }

 private:
  /// One output: as numbers where it has floats, of c64 the parts of each one after the other.
  struct Numbers {
    std::vector<double> reals;
    std::vector<std::byte> bits;
  };

  // Whether the results depend on how the arguments are stored: then they cannot be widened.
  bool views_bits() const { return function_.expression().find("bitcast") != std::string::npos; }

  // Under Rounding::once the exact results, under Rounding::each those of steps that are rounded to
  // f32, as narrower floats are computed, or to f64.
  std::vector<Numbers> reference(Rounding rounding) const {
    std::vector<fusion::ArgumentType> types;
    std::vector<Dims> shapes;
    std::vector<fusion::ReferenceOperand> arguments;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const DType dtype = specs_[i].dtype;
      const bool widened = rounding == Rounding::each && is_floating(dtype) && bits(dtype) < 32;
      types.push_back({widened ? DType::f32 : dtype, false, false});
      shapes.push_back(specs_[i].shape);
      arguments.push_back(
          {const_cast<std::byte*>(host_[i].data()), dtype, contiguous_strides(specs_[i].shape), 0});
    }
    fusion::ShapedGraph graph = fusion::shape_graph(
        fusion::infer(fusion::parse(function_.expression()), types, {}, rounding, "reference"),
        shapes, "reference");
    leave_outputs_unrounded(graph.graph);
    std::vector<Numbers> wanted(outputs_.size());
    std::vector<fusion::ReferenceOperand> results;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const DType dtype = is_floating(outputs_[i].dtype()) ? DType::f64 : outputs_[i].dtype();
      wanted[i].bits.resize(fusion::byte_count(dtype, outputs_[i].shape()));
      results.push_back({wanted[i].bits.data(), dtype, contiguous_strides(outputs_[i].shape()), 0});
    }
    fusion::evaluate_arrays(graph.graph, graph.shapes, arguments, results);
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const bool complex = kind(results[i].dtype) == Kind::complex;
      if (!complex && !is_floating(results[i].dtype)) continue;
      for (std::int64_t k = 0; k < outputs_[i].size(); ++k) {
        const auto number = fusion::reference::read(wanted[i].bits.data(), results[i].dtype, k);
        wanted[i].reals.push_back(static_cast<double>(number.real));
        if (complex) wanted[i].reals.push_back(static_cast<double>(number.imag));
      }
    }
    return wanted;
  }

  bool agrees(const View& output, const Numbers& wanted, double slack) {
    std::vector<std::byte> got(fusion::byte_count(output.dtype(), output.shape()));
    backend_.synchronize(stream_);
    backend_.copy_out(got.data(), output.data(), got.size(), stream_);
    backend_.synchronize(stream_);
    const DType dtype = output.dtype();
    if (is_floating(dtype) || kind(dtype) == Kind::complex) {
      return may_be_rounded_from(dtype, got, wanted.reals, slack);
    }
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits(dtype));
    for (std::int64_t i = 0; i < output.size(); ++i) {
      const std::uint64_t number = fusion::reference::read_bits(got.data(), dtype, i);
      const std::uint64_t expected = fusion::reference::read_bits(wanted.bits.data(), dtype, i);
      // A quotient may round to either whole number.
      const std::uint64_t difference = (number - expected) & mask;
      if (difference > 1 && difference != mask) return false;
    }
    return true;
  }

  Function function_;
  Program program_;
  jit::Backend& backend_;
  const Stream& stream_;
  std::vector<ArgumentSpec> specs_;
  std::vector<std::vector<std::byte>> host_;
  std::vector<DeviceMemory> memory_;
  std::vector<Argument> inputs_;
  std::vector<View> outputs_;
  View workspace_;
  ProgramInfo info_;
};

CorpusResult measure(const CorpusCase& item, jit::Backend& backend, const Stream& stream,
                     std::uint64_t bytes, Copy& copy) {
  const std::uint64_t step = bytes_of_one(item);
  CorpusResult result;
  result.name = item.name;
  const std::uint64_t few =
      std::clamp<std::uint64_t>(kCheckedCorpusElements / std::max<std::uint64_t>(step, 1), 1, 4);
  result.right = Case(item, backend, stream, static_cast<std::int64_t>(few)).is_right();
  const std::uint64_t n = step == 0 ? 1 : std::max<std::uint64_t>(1, bytes / step);
  const Case whole(item, backend, stream, static_cast<std::int64_t>(n));
  std::vector<double> times = copy.sample_times_beside([&] { whole.run(); });
  std::ranges::sort(times);
  result.kernels = whole.info().kernels.size();
  result.bytes = whole.info().lower_bound;
  result.workspace = whole.info().workspace_bytes;
  result.microseconds = median(times);
  result.spread = (times.back() - times.front()) / result.microseconds;
  result.gb_per_s = static_cast<double>(result.bytes) / result.microseconds / 1e3;
  result.fraction = result.gb_per_s / copy.speed();
  return result;
}

}  // namespace

int run_bench_corpus(const BenchOptions& options) {
  const std::vector<CorpusCase> cases = read_corpus(options);
  const Device device = choose_device(options.device);
  jit::Backend& backend = jit::backend(device);
  const OwnedStream stream(backend);
  const std::size_t size = bench_bytes(options, device);
  Copy copy(backend, stream.get(), size, options.samples);
  const double copied = copy.speed();
  Json list = Json::array();
  Table table({"function", "kernels", "time", "GB/s", "of copy", "workspace", "spread"});
  for (std::size_t column = 1; column < 7; ++column) table.align_right(column);
  std::vector<Bar> bars;
  bool right = true;
  for (const CorpusCase& item : cases) {
    const CorpusResult result = measure(item, backend, stream.get(), size, copy);
    right = right && result.right;
    list.push_back({{"case", result.name},
                    {"kernels", result.kernels},
                    {"bytes", result.bytes},
                    {"workspace_bytes", result.workspace},
                    {"microseconds", result.microseconds},
                    {"gb_per_s", result.gb_per_s},
                    {"fraction_of_copy", result.fraction},
                    {"spread", result.spread},
                    {"right", result.right}});
    table.row({result.name, fmt::format("{}", result.kernels), human_time(result.microseconds),
               fmt::format("{:.0f}", result.gb_per_s), fmt::format("{:.3f}", result.fraction),
               result.workspace == 0 ? "" : human_bytes(result.workspace),
               result.right ? fmt::format("{:.1f} %", 100 * result.spread) : red("WRONG RESULT")});
    bars.push_back({result.name, result.fraction,
                    fmt::format("{:.3f}, {:.0f} GB/s{}", result.fraction, result.gb_per_s,
                                result.right ? "" : ", WRONG RESULT")});
  }
  if (!options.plot.empty()) {
    files::OutputFile file(options.plot);
    file.write(bar_chart(fmt::format("{}: what each function must move, as a fraction of a copy "
                                     "({:.0f} GB/s)",
                                     backend.name(), copied),
                         bars, 1, "copy"));
    file.commit();
  }
  if (options.json) {
    print_json({{"device", to_string(device)},
                {"hardware", backend.name()},
                {"copy_gb_per_s", copied},
                {"cases", list}});
  } else {
    print("{} ({}), copy {:.0f} GB/s\n", to_string(device), backend.name(), copied);
    table.print();
  }
  return right ? kSuccess : kFailure;
}

}  // namespace kiln::tool
