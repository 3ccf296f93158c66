#include "tool/bench_corpus.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "base/text.hpp"
#include "files/file_io.hpp"
#include "fusion/graph/broadcast.hpp"
#include "kiln/error.hpp"
#include "kiln/program.hpp"
#include "tool/arguments.hpp"
#include "tool/bench_clock.hpp"
#include "tool/bench_function.hpp"
#include "tool/bench_size.hpp"
#include "tool/execute.hpp"
#include "tool/plot.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

constexpr std::size_t kCheckedCorpusElements = 1 << 14;

struct CorpusCase {
  std::string name;
  std::string text;
  std::vector<std::string> checked;    ///< x=bf16[3,172]
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
    if (chosen) {
      cases.push_back({parts[0], parts[1], base::split(parts[2], ' '), base::split(parts[3], ' ')});
    }
  }
  for (const std::string& name : options.cases) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw UsageError(fmt::format("bench: {} has no function '{}'; it has {}", options.corpus, name,
                                 fmt::join(names, ", ")));
  }
  return cases;
}

// Arguments with n elements where the line says N.
std::vector<BenchArgument> arguments_for(const std::vector<std::string>& texts, std::int64_t n) {
  std::vector<BenchArgument> result;
  for (std::string text : texts) {
    const std::size_t bracket = text.find('[');
    for (std::size_t at = text.find('N', bracket); at != text.npos; at = text.find('N', at)) {
      text.replace(at, 1, fmt::format("{}", n));
    }
    ArgumentSpec spec = parse_argument_spec(text);
    result.push_back({std::move(spec.name), spec.dtype, std::move(spec.shape)});
  }
  return result;
}

// How many bytes one more of N adds to the argument that grows fastest; 0 if none grows.
std::uint64_t bytes_of_one(const CorpusCase& item) {
  const std::vector<BenchArgument> few = arguments_for(item.arguments, 2);
  const std::vector<BenchArgument> more = arguments_for(item.arguments, 4);
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

CorpusResult measure(const CorpusCase& item, jit::Backend& backend, const Stream& stream,
                     std::uint64_t bytes, Copy& copy) {
  const std::uint64_t step = bytes_of_one(item);
  CorpusResult result;
  result.name = item.name;
  const std::uint64_t few =
      std::clamp<std::uint64_t>(kCheckedCorpusElements / std::max<std::uint64_t>(step, 1), 1, 4);
  const Function function = parse(item.name, item.text);
  const auto on = [&](const std::vector<std::string>& texts, std::uint64_t n) {
    return BenchFunction(function, arguments_for(texts, static_cast<std::int64_t>(n)), backend,
                         stream);
  };
  // Where nothing grows with N, what is measured is too large for the reference.
  result.right = step == 0 ? on(item.checked, 1).is_right() : on(item.arguments, few).is_right();
  const std::uint64_t n = step == 0 ? 1 : std::max<std::uint64_t>(1, bytes / step);
  const BenchFunction whole = on(item.arguments, n);
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
