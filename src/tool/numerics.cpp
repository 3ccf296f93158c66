// `kiln numerics`: measures on a device how far results are from exact ones, and shows that beside
// the op table's bounds; or shows what was measured on several devices before, from the files it
// wrote.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <map>

#include "fusion/graph/number.hpp"
#include "fusion/graph/op.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/tree.hpp"
#include "jit/device/backend.hpp"
#include "kiln/error.hpp"
#include "kiln/option_names.hpp"
#include "numerics/measure.hpp"
#include "tool/arguments.hpp"
#include "tool/commands.hpp"
#include "tool/execute.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

using numerics::Measurement;

Json to_json(const Measurement& row) {
  Json worst = Json::array();
  for (const std::uint64_t bits : row.worst) {
    worst.push_back({{"bits", fmt::format("{:#x}", bits)},
                     {"value", fmt::format("{}", fusion::decode(bits, row.dtype))}});
  }
  return {{"op", row.function},
          {"dtype", name(row.dtype)},
          {"inputs", row.inputs},
          {"complete", row.complete},
          {"correctly_rounded", row.rounded_share()},
          {"largest_error_ulp", row.largest},
          {"worst_input", worst},
          {"bound_ulp", row.bound ? Json(*row.bound) : Json()},
          {"fast_error", row.fast ? Json(*row.fast) : Json()},
          {"exceeded", row.exceeded()},
          {"loose", row.loose()}};
}

Json measured(const NumericsOptions& options) {
  numerics::Request request;
  request.functions = options.functions;
  request.accuracy = options.accuracy;
  request.complete = options.complete;
  if (!options.dtypes.empty()) request.dtypes.clear();
  for (const std::string& text : options.dtypes)
    request.dtypes.push_back(parse_dtype_option("--dtype", text));
  const Device device = choose_device(options.device);
  const auto start = std::chrono::steady_clock::now();
  Json rows = Json::array();
  for (const Measurement& row : numerics::measure(device, request)) rows.push_back(to_json(row));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {{"device", to_string(device)},
          {"hardware", jit::backend(device).name()},
          {"library", numerics::library_version(device)},
          {"accuracy", name(options.accuracy)},
          {"seconds", seconds.count()},
          {"rows", std::move(rows)}};
}

Json read_results(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(Code::io, fmt::format("numerics: {} cannot be read", path));
  Json result = Json::parse(file, nullptr, false);
  if (!result.is_object() || !result.contains("rows") || !result["rows"].is_array()) {
    throw Error(Code::invalid_argument,
                fmt::format("numerics: {} is not what `kiln numerics --json` writes", path));
  }
  return result;
}

// "99.9" of 0.99949, never 100 for less than all.
std::string percent(double share) {
  if (share >= 1) return "100";
  return fmt::format("{:.4g}", std::floor(share * 1e6) / 1e4);
}

std::string ulp(double error) {
  if (error >= 1e8) return "WRONG";
  // Upwards, so that what is published holds.
  return fmt::format("{:.4g}", error < 10 ? std::ceil(error * 1e3) / 1e3 : std::ceil(error));
}

// The cells of one device's result: largest error, bound, correctly rounded. What fast approximates
// has no bound in units in the last place, but one of a part of the result or of 1.
std::vector<std::string> cells(const Json& row) {
  if (row.is_null()) return {"", "", ""};
  const Json& bound = row.at("bound_ulp");
  const Json fast = row.value("fast_error", Json());
  std::string error = fast.is_null() ? ulp(row.at("largest_error_ulp").get<double>())
                                     : fmt::format("{:.1e} rel", fast.get<double>());
  if (!fast.is_null()) {
    return {error + (row.at("exceeded").get<bool>() ? " (exceeds)" : ""),
            fmt::format("{:.1e} rel", fusion::kFastBound),
            percent(row.at("correctly_rounded").get<double>())};
  }
  if (row.at("exceeded").get<bool>()) error += " (exceeds)";
  if (row.at("loose").get<bool>()) error += " (loose)";
  return {error, bound.is_null() ? "" : fmt::format("{:.4g}", bound.get<double>()),
          percent(row.at("correctly_rounded").get<double>())};
}

std::string inputs_of(const Json& row) {
  const auto count = row.at("inputs").get<std::uint64_t>();
  return row.at("complete").get<bool>() ? "all" : fmt::format("{}", count);
}

// All devices' rows of one dtype, by op in the order of the first file.
struct Section {
  std::vector<std::string> ops;
  std::map<std::string, std::vector<Json>> rows;  ///< one per device, null where there is none
};

std::vector<std::pair<std::string, Section>> sections_of(const std::vector<Json>& results) {
  std::vector<std::pair<std::string, Section>> sections;
  for (std::size_t device = 0; device < results.size(); ++device) {
    for (const Json& row : results[device]["rows"]) {
      const std::string dtype = row.at("dtype");
      auto section = std::ranges::find(sections, dtype, &std::pair<std::string, Section>::first);
      if (section == sections.end()) section = sections.insert(section, {dtype, {}});
      const std::string op = row.at("op");
      auto [found, added] = section->second.rows.try_emplace(op, results.size());
      if (added) section->second.ops.push_back(op);
      found->second[device] = row;
    }
  }
  return sections;
}

std::string title(const Json& result) {
  return fmt::format("{} ({}, {}, accuracy {})", result.value("device", ""),
                     result.value("hardware", ""), result.value("library", ""),
                     result.value("accuracy", ""));
}

std::string column_name(const Json& result) {
  return fmt::format("{} {}", result.value("device", ""), result.value("accuracy", ""));
}

const Json& first_row(const std::vector<Json>& rows) {
  for (const Json& row : rows) {
    if (!row.is_null()) return row;
  }
  return rows.front();
}

// How deep the tree of a row's sum is.
void print_depths() {
  print(
      "\n## Sums and products of rows\n\nWhat follows the tree of fusion/numerics.md is a sum of n "
      "floats with an error of at most d u / (1 - d u)\ntimes the sum of their sizes, or a product "
      "with that relative error; u is half a unit in the last place of 1.\n\n| n, up to | d |\n"
      "| ---: | ---: |\n");
  constexpr std::uint64_t kLengths[] = {1,     2,     16,        256,       1024,     4096,
                                        16384, 32768, 1U << 20U, 1U << 24U, 1U << 30U};
  for (const std::uint64_t length : kLengths) {
    print("| {} | {} |\n", length, fusion::reference::tree_depth(length));
  }
}

void print_markdown(const std::vector<Json>& results) {
  print(
      "# Errors of every operation, measured\n\n"
      "In units in the last place of the result, of c64 in those of its larger part: the largest "
      "over "
      "the\ninputs tried, beside the bound that is promised, and the share of correctly rounded "
      "results. Where `fast`\napproximates, `rel` is the largest error as a part of the result or "
      "of "
      "1, for operands and results between\n2^-20 and 64 in size. The README says what counts in "
      "other units. Written by\n`kiln numerics --merge ... --markdown`.\n\n");
  for (const Json& result : results) print("* {}\n", title(result));
  for (const auto& [dtype, section] : sections_of(results)) {
    print("\n## {}\n\n| op | inputs |", dtype);
    for (const Json& result : results)
      print(" {}: largest error | bound | % rounded |", column_name(result));
    print("\n| --- | ---: |");
    for (std::size_t i = 0; i < results.size(); ++i) print(" ---: | ---: | ---: |");
    print("\n");
    for (const std::string& op : section.ops) {
      const std::vector<Json>& rows = section.rows.at(op);
      print("| {} | {} |", op, inputs_of(first_row(rows)));
      for (const Json& row : rows) {
        for (const std::string& cell : cells(row)) print(" {} |", cell);
      }
      print("\n");
    }
  }
  print_depths();
  print(
      "\n## Random numbers\n\nThey have the same bits on every device. `uniform` is a word's upper "
      "24 "
      "bits, exactly. `normal` is within\n{} ULP of the normal distribution's quantile of a word's "
      "31 bits, by operations that every device rounds alike.\n",
      fusion::info(fusion::Op::normal).f32.own);
}

void print_table(const std::vector<Json>& results) {
  for (const Json& result : results) print("{}\n", title(result));
  std::vector<std::string> header = {"op", "dtype", "inputs"};
  for (std::size_t i = 0; i < results.size(); ++i)
    header.insert(header.end(), {"largest error", "bound", "% rounded"});
  Table table(header);
  for (std::size_t column = 2; column < header.size(); ++column) table.align_right(column);
  for (const auto& [dtype, section] : sections_of(results)) {
    for (const std::string& op : section.ops) {
      const std::vector<Json>& rows = section.rows.at(op);
      std::vector<std::string> line = {op, dtype, inputs_of(first_row(rows))};
      for (const Json& row : rows) {
        for (std::string& cell : cells(row)) line.push_back(std::move(cell));
      }
      table.row(std::move(line));
    }
  }
  table.print();
}

bool any_exceeded(const std::vector<Json>& results) {
  for (const Json& result : results) {
    for (const Json& row : result["rows"]) {
      if (row.at("exceeded").get<bool>()) return true;
    }
  }
  return false;
}

}  // namespace

int run_numerics(const NumericsOptions& options) {
  std::vector<Json> results;
  for (const std::string& path : options.merge) results.push_back(read_results(path));
  if (results.empty()) results.push_back(measured(options));
  if (options.json) {
    print_json(options.merge.empty() ? results.front() : Json(results));
  } else if (options.markdown) {
    print_markdown(results);
  } else {
    print_table(results);
  }
  return any_exceeded(results) ? kFailure : kSuccess;
}

}  // namespace kiln::tool
