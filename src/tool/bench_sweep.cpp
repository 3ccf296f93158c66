#include "tool/bench_sweep.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ahead/compile_only.hpp"
#include "files/file_io.hpp"
#include "fusion/graph/broadcast.hpp"
#include "kiln/error.hpp"
#include "tool/bench_clock.hpp"
#include "tool/bench_function.hpp"
#include "tool/bench_size.hpp"
#include "tool/execute.hpp"
#include "tool/plot.hpp"
#include "tool/print.hpp"
#include "tool/progress.hpp"
#include "tool/sweep/draw.hpp"
#include "tool/sweep/forecast.hpp"

namespace kiln::tool {
namespace {

// Elements of the largest argument that are compared with the reference at each end.
constexpr std::int64_t kComparedElements = 1 << 14;
// A forecast that is so far off what was measured is not called wrong.
constexpr double kForecastError = 0.15;
constexpr std::size_t kShownWorst = 10;

// A drawn function at the size at which it is measured, and its kernels while they compile.
struct Prepared {
  const DrawnFunction* drawn = nullptr;
  std::int64_t free = 1;
  std::vector<BenchArgument> arguments;
  Preparation kernels;
};

struct SweepResult {
  const DrawnFunction* drawn = nullptr;
  std::vector<std::string> arguments;  ///< x=bf16[4096,5120]
  std::string refused;                 ///< why there is nothing else
  std::size_t kernels = 0;
  std::uint64_t bytes = 0;
  std::uint64_t workspace = 0;
  double microseconds = 0;
  double spread = 0;
  double fraction = 0;
  bool right = false;
  Forecast forecast;

  bool is_forecast() const {
    return std::fabs(forecast.fraction_of_copy - fraction) <= kForecastError * fraction;
  }
};

std::vector<BenchArgument> arguments_for(const DrawnFunction& function, std::int64_t free) {
  std::vector<BenchArgument> arguments;
  for (const DrawnArgument& argument : function.arguments) {
    arguments.push_back({argument.name, argument.dtype, shape_of(argument, free), argument.values});
  }
  return arguments;
}

std::vector<std::string> texts_for(const DrawnFunction& function, std::int64_t free) {
  std::vector<std::string> texts;
  for (const DrawnArgument& argument : function.arguments) {
    texts.push_back(to_text(argument, free));
  }
  return texts;
}

class Sweep {
 public:
  Sweep(const BenchOptions& options, Device device)
      : options_(options), backend_(jit::backend(device)), stream_(backend_) {}

  /// Begins to compile in the background.
  Prepared prepare(const DrawnFunction& drawn, std::size_t bytes) const {
    Prepared prepared{&drawn, free_extent(drawn, bytes), {}, {}};
    prepared.arguments = arguments_for(drawn, prepared.free);
    try {
      prepared.kernels = program(parse(drawn.name, drawn.text))
                             .prepare(backend_.device(), specification_of(prepared.arguments));
    } catch (const Error&) {
      // measure() meets it again, and reports it.
    }
    return prepared;
  }

  SweepResult measure(const Prepared& prepared) const {
    SweepResult result;
    result.drawn = prepared.drawn;
    result.arguments = texts_for(*prepared.drawn, prepared.free);
    try {
      if (prepared.kernels.valid()) prepared.kernels.get();
      measure(prepared, result);
    } catch (const Error& error) {
      result.refused = error.what();
    }
    return result;
  }

 private:
  void measure(const Prepared& prepared, SweepResult& result) const {
    const Function function = parse(prepared.drawn->name, prepared.drawn->text);
    BenchFunction own(function, prepared.arguments, backend_, stream_.get());
    const ProgramInfo& info = own.info();
    result.kernels = info.kernels.size();
    result.bytes = info.lower_bound;
    result.workspace = info.workspace_bytes;
    result.right = is_right(own, prepared);
    Copy copy(backend_, stream_.get(), static_cast<std::size_t>((info.lower_bound + 1) / 2),
              options_.samples);
    std::vector<double> times = copy.sample_times_beside([&] { own.run(); });
    std::ranges::sort(times);
    result.microseconds = median(times);
    result.spread = (times.back() - times.front()) / result.microseconds;
    result.fraction =
        static_cast<double>(info.lower_bound) / result.microseconds / 1e3 / copy.speed();
    result.forecast =
        forecast(function, specification_of(prepared.arguments), info, backend_.target());
  }

  // The first and the last elements along the free extent.
  static bool is_right(BenchFunction& function, const Prepared& prepared) {
    std::int64_t most = 1;
    for (const BenchArgument& argument : prepared.arguments) {
      most = std::max(most, fusion::element_count(argument.shape) / prepared.free);
    }
    const std::int64_t few =
        std::min(prepared.free, std::clamp<std::int64_t>(kComparedElements / most, 1, 4));
    const std::vector<BenchArgument> part = arguments_for(*prepared.drawn, few);
    return function.is_right(part, BenchFunction::Part::first) &&
           (few == prepared.free || function.is_right(part, BenchFunction::Part::last));
  }

  const BenchOptions& options_;
  jit::Backend& backend_;
  OwnedStream stream_;
};

/// How the fractions of some of the functions are distributed.
struct Distribution {
  std::vector<double> fractions;  ///< sorted
  std::size_t forecast = 0;       ///< of how many the forecast is near

  void add(const SweepResult& result) {
    fractions.insert(std::ranges::upper_bound(fractions, result.fraction), result.fraction);
    forecast += result.is_forecast() ? 1 : 0;
  }
  /// The least of the fractions below which are `part` of all.
  double quantile(double part) const {
    const auto rank = static_cast<std::size_t>(part * static_cast<double>(fractions.size()));
    return fractions.empty() ? 0 : fractions[std::min(rank, fractions.size() - 1)];
  }
  double forecast_share() const {
    return fractions.empty()
               ? 0
               : static_cast<double>(forecast) / static_cast<double>(fractions.size());
  }
  Json json() const {
    return {{"functions", fractions.size()},
            {"median", quantile(0.5)},
            {"percentile_5", quantile(0.05)},
            {"least", quantile(0)},
            {"forecast_within_15_percent", forecast_share()}};
  }
  void row(Table& table, std::string_view label) const {
    table.row({std::string(label), fmt::format("{}", fractions.size()),
               fmt::format("{:.3f}", quantile(0.5)), fmt::format("{:.3f}", quantile(0.05)),
               fmt::format("{:.3f}", quantile(0)),
               fmt::format("{:.0f} %", 100 * forecast_share())});
  }
};

struct Summary {
  std::vector<std::pair<std::string, Distribution>> families;
  Distribution all;
  Distribution bound_by_memory;

  explicit Summary(const std::vector<SweepResult>& results) {
    for (const SweepResult& result : results) {
      if (!result.refused.empty()) continue;
      auto family = std::ranges::find(families, result.drawn->family,
                                      &std::pair<std::string, Distribution>::first);
      if (family == families.end()) {
        family = families.insert(families.end(), {result.drawn->family, {}});
      }
      family->second.add(result);
      all.add(result);
      if (result.forecast.bound_by_memory) bound_by_memory.add(result);
    }
  }
};

Json json_of(const SweepResult& result) {
  Json json = {{"case", result.drawn->name},
               {"family", result.drawn->family},
               {"text", result.drawn->text},
               {"arguments", result.arguments}};
  if (!result.refused.empty()) {
    json["refused"] = result.refused;
    return json;
  }
  json.update(Json{{"kernels", result.kernels},
                   {"bytes", result.bytes},
                   {"workspace_bytes", result.workspace},
                   {"microseconds", result.microseconds},
                   {"spread", result.spread},
                   {"fraction_of_copy", result.fraction},
                   {"forecast", result.forecast.fraction_of_copy},
                   {"bound_by_memory", result.forecast.bound_by_memory},
                   {"right", result.right},
                   {"reasons", result.forecast.reasons}});
  return json;
}

void print_function(const SweepResult& result) {
  print_text(stdout,
             fmt::format("  {}\n  {}\n", result.drawn->text, fmt::join(result.arguments, " ")));
}

void print_worst(std::vector<SweepResult> results) {
  std::erase_if(results, [](const SweepResult& result) { return !result.refused.empty(); });
  std::ranges::sort(results, {}, &SweepResult::fraction);
  if (results.size() > kShownWorst) results.resize(kShownWorst);
  for (const SweepResult& result : results) {
    print("\n{}: {:.3f} of a copy, {:.3f} expected, {} kernel{}, {}\n", bold(result.drawn->name),
          result.fraction, result.forecast.fraction_of_copy, result.kernels,
          result.kernels == 1 ? "" : "s", human_time(result.microseconds));
    print_function(result);
    for (const std::string& reason : result.forecast.reasons) print("    {}\n", reason);
  }
}

void print_report(const std::vector<SweepResult>& results, const Summary& summary) {
  Table table({"family", "functions", "median", "5th percentile", "least", "forecast within 15 %"});
  for (std::size_t column = 1; column < 6; ++column) table.align_right(column);
  for (const auto& [family, distribution] : summary.families) distribution.row(table, family);
  summary.all.row(table, "all");
  summary.bound_by_memory.row(table, "bound by memory");
  table.print();
  print_worst(results);
  for (const SweepResult& result : results) {
    if (result.refused.empty() && result.right) continue;
    print("\n{}: {}\n", bold(result.drawn->name),
          red(result.refused.empty() ? "WRONG RESULT" : result.refused));
    print_function(result);
  }
}

void plot(const std::string& path, const std::string& title,
          const std::vector<SweepResult>& results, const Summary& summary) {
  std::vector<Dots> rows;
  for (const auto& [family, distribution] : summary.families) {
    rows.push_back({family,
                    distribution.fractions,
                    {},
                    fmt::format("median {:.2f}", distribution.quantile(0.5))});
    for (const SweepResult& result : results) {
      if (result.refused.empty() && result.drawn->family == family) {
        rows.back().expected.push_back(result.forecast.fraction_of_copy);
      }
    }
  }
  files::OutputFile file(path);
  file.write(dot_chart(title, rows, 1, "copy"));
  file.commit();
}

int list(const std::vector<DrawnFunction>& functions, std::size_t bytes, bool json) {
  Json cases = Json::array();
  for (const DrawnFunction& function : functions) {
    const std::vector<std::string> arguments = texts_for(function, free_extent(function, bytes));
    if (json) {
      cases.push_back({{"case", function.name},
                       {"family", function.family},
                       {"text", function.text},
                       {"arguments", arguments}});
    } else {
      print_text(stdout, fmt::format("{} | {} | {}\n", function.name, function.text,
                                     fmt::join(arguments, " ")));
    }
  }
  if (json) print_json({{"cases", cases}});
  return kSuccess;
}

}  // namespace

int run_bench_sweep(const BenchOptions& options) {
  const std::vector<DrawnFunction> functions =
      draw_functions(options.seed, options.count, options.family);
  const Device device = choose_device(options.device);
  const std::size_t bytes = bench_bytes(options, device);
  if (options.list) return list(functions, bytes, options.json);
  const Sweep sweep(options, device);
  std::vector<Prepared> prepared;
  for (const DrawnFunction& function : functions)
    prepared.push_back(sweep.prepare(function, bytes));
  std::vector<SweepResult> results;
  Progress progress(Progress::style(options.json), functions.size());
  for (const Prepared& one : prepared) {
    const SweepResult& result = results.emplace_back(sweep.measure(one));
    progress.step(result.refused.empty()
                      ? fmt::format("{} {:.3f}", result.drawn->name, result.fraction)
                      : fmt::format("{} refused", result.drawn->name));
  }
  progress.clear();
  const Summary summary(results);
  const std::string hardware = jit::backend(device).name();
  if (!options.plot.empty()) {
    plot(options.plot,
         fmt::format("{}: {} drawn functions (seed {}), as a fraction of a copy of as many bytes",
                     hardware, results.size(), options.seed),
         results, summary);
  }
  const auto is_good = [](const SweepResult& result) {
    return result.refused.empty() && result.right;
  };
  if (options.json) {
    Json cases = Json::array();
    for (const SweepResult& result : results) cases.push_back(json_of(result));
    Json families = Json::object();
    for (const auto& [family, distribution] : summary.families)
      families[family] = distribution.json();
    print_json({{"device", to_string(device)},
                {"hardware", hardware},
                {"seed", options.seed},
                {"mebibytes", bytes >> 20},
                {"all", summary.all.json()},
                {"bound_by_memory", summary.bound_by_memory.json()},
                {"families", families},
                {"cases", cases}});
  } else {
    print("{} ({}), seed {}\n", to_string(device), hardware, options.seed);
    print_report(results, summary);
  }
  return std::ranges::all_of(results, is_good) ? kSuccess : kFailure;
}

}  // namespace kiln::tool
