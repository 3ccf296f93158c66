// `kiln emit`, `kiln compile`, `kiln isa` and `kiln explain`: kernels from types and shapes alone,
// for any target, with or without its device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <future>

#include "ahead/compile_only.hpp"
#include "files/file_io.hpp"
#include "fusion/graph/broadcast.hpp"
#include "kiln/error.hpp"
#include "tool/arguments.hpp"
#include "tool/cache_text.hpp"
#include "tool/commands.hpp"
#include "tool/drawing.hpp"
#include "tool/instructions.hpp"
#include "tool/print.hpp"
#include "tool/program_text.hpp"

namespace kiln::tool {
namespace {

struct Request {
  Function function;
  Specification specification;
  std::vector<KernelSpec> kernels;
  std::vector<std::string> targets;
  std::optional<ProgramInfo> program;  ///< if the expression takes several kernels
};

Request parse_request(const KernelOptions& options) {
  Function function = parse_function(options.expression);
  Specification specification = parse_specification(function, options);
  std::vector<std::string> targets = parse_targets(options.targets);
  std::vector<KernelSpec> kernels = kernel_specs(function, specification, targets[0]);
  std::optional<ProgramInfo> program;
  if (takes_program(function, specification)) {
    program = explain_program(function, specification, targets[0]);
  }
  return {std::move(function), std::move(specification), std::move(kernels), std::move(targets),
          std::move(program)};
}

/// A kernel, or why there is none.
struct Attempt {
  std::string target;
  const KernelSpec* of = nullptr;
  CompiledKernel kernel;
  std::string error;
  Code code = Code::internal;
};

Attempt attempt(const KernelSpec& kernel, const std::string& target) {
  Attempt result;
  result.target = target;
  result.of = &kernel;
  try {
    result.kernel = compile_for(kernel, target);
  } catch (const Error& error) {
    result.error = error.what();
    result.code = error.code();
  }
  return result;
}

/// Compiles the kernels of every target in parallel: the compile service decides how many run at
/// once.
std::vector<Attempt> compile_all(const Request& request) {
  std::vector<std::future<Attempt>> futures;
  for (const std::string& target : request.targets) {
    for (const KernelSpec& kernel : request.kernels) {
      futures.push_back(
          std::async(std::launch::async, [&kernel, &target] { return attempt(kernel, target); }));
    }
  }
  std::vector<Attempt> results;
  for (auto& future : futures) results.push_back(future.get());
  return results;
}

bool all_succeeded(const std::vector<Attempt>& attempts) {
  return std::all_of(attempts.begin(), attempts.end(),
                     [](const Attempt& attempt) { return attempt.error.empty(); });
}

Json to_json(const jit::Resources& resources) {
  Json json = Json::object();
  const auto put = [&](const char* name, const std::optional<int>& value) {
    if (value) json[name] = *value;
  };
  put("registers", resources.vgprs);
  put("sgprs", resources.sgprs);
  put("spills", resources.spills);
  put("scratch", resources.scratch);
  put("lds", resources.lds);
  json["code_bytes"] = resources.code_bytes;
  return json;
}

std::string to_text(const jit::Resources& resources) {
  std::vector<std::string> parts;
  const auto put = [&](std::string_view name, const std::optional<int>& value, bool always) {
    if (value && (always || *value)) parts.push_back(fmt::format("{} {}", *value, name));
  };
  put("registers", resources.vgprs, true);
  put("scalar registers", resources.sgprs, true);
  put("spills", resources.spills, false);
  put("bytes scratch", resources.scratch, false);
  put("bytes LDS", resources.lds, false);
  parts.push_back(fmt::format("{} bytes of code", resources.code_bytes));
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json to_json(const Attempt& attempt) {
  Json json = {{"target", attempt.target}};
  if (!attempt.error.empty()) {
    json["error"] = {{"code", name(attempt.code)}, {"message", attempt.error}};
    return json;
  }
  const KernelInfo& info = attempt.kernel.info;
  json["resolved_target"] = info.target;
  json["entry"] = info.entry;
  json["key"] = info.key;
  json["cache"] = name_of(info.cache);
  json["compile_ms"] = info.compile_ms;
  json["variant"] = info.variant;
  json["bytes"] = info.bytes;
  json["resources"] = to_json(attempt.kernel.resources);
  return json;
}

std::string_view code_extension(std::string_view target) {
  if (target.starts_with("gfx")) return "hsaco";
  return target.starts_with("sm_") ? "cubin" : "so";
}

std::string_view source_extension(std::string_view target) {
  if (target.starts_with("gfx")) return "hip";
  return target.starts_with("sm_") ? "cu" : "cpp";
}

std::string file_part(std::string_view target) {
  std::string result;
  for (const char c : target.substr(0, 60)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '+';
    result += plain ? c : '.';
  }
  return result;
}

std::string write_file(const std::string& directory, const std::string& name,
                       std::string_view bytes) {
  const std::string path = (std::filesystem::path(directory) / name).string();
  files::OutputFile file(path);
  file.write(bytes);
  file.commit();
  return path;
}

/// The code object and its source in `directory`.
std::vector<std::string> write_files(const Attempt& attempt, const std::string& directory) {
  const std::string stem =
      fmt::format("{}.{}", attempt.kernel.info.entry, file_part(attempt.target));
  return {write_file(directory, fmt::format("{}.{}", stem, code_extension(attempt.target)),
                     attempt.kernel.code),
          write_file(directory, fmt::format("{}.{}", stem, source_extension(attempt.target)),
                     attempt.kernel.source)};
}

void make_directory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw Error(Code::io, fmt::format("make {}: {}", directory, error.message()));
}

}  // namespace

int run_emit(const EmitOptions& options) {
  const Request request = parse_request(options.kernel);
  Json json = Json::array();
  for (const std::string& target : request.targets) {
    for (const KernelSpec& kernel : request.kernels) {
      const std::string source = emit_for(kernel, target, options.full);
      if (options.kernel.json) {
        json.push_back({{"target", target}, {"source", source}});
      } else {
        print("{}{}", source, source.ends_with('\n') ? "" : "\n");
      }
    }
  }
  if (options.kernel.json) print_json(json);
  return kSuccess;
}

int run_compile(const CompileOptions& options) {
  const std::string& expression = options.kernel.expression.text;
  if (options.base_pack) {
    if (!expression.empty() || !options.manifest.empty() || !options.kernel.types.empty() ||
        !options.kernel.dtypes.empty()) {
      throw UsageError(
          "compile --base-pack: expected no EXPR, --manifest, --type or --type-out: a base pack "
          "has "
          "all kernels that there are in one");
    }
    if (options.directory.empty()) {
      throw UsageError("compile --base-pack: expected --output FILE, the bundle to write");
    }
    return run_compile_base_pack(parse_targets(options.kernel.targets), options.directory,
                                 options.kernel.json);
  }
  if (options.manifest.empty() && expression.empty()) {
    throw UsageError(
        "compile: expected an expression, --manifest FILE or --base-pack, got none of them; give "
        "an "
        "expression, --manifest FILE or --base-pack");
  }
  if (!options.manifest.empty()) {
    if (!expression.empty() || !options.kernel.types.empty() || !options.kernel.dtypes.empty()) {
      throw UsageError(
          "compile --manifest: expected no EXPR, --type or --type-out, since they are in the "
          "manifest");
    }
    if (!options.directory.empty()) {
      throw UsageError(
          "compile --manifest: --output is not supported; it takes an expression instead of a "
          "manifest");
    }
    return run_compile_manifest(options.manifest, parse_targets(options.kernel.targets),
                                options.kernel.json);
  }
  const Request request = parse_request(options.kernel);
  if (!options.directory.empty()) make_directory(options.directory);
  const std::vector<Attempt> attempts = compile_all(request);
  Json json = Json::array();
  Table table({"TARGET", "CACHE", "KERNEL", "RESOURCES"});
  std::vector<std::string> written;
  for (const Attempt& attempt : attempts) {
    Json entry = to_json(attempt);
    if (!attempt.error.empty()) {
      table.row({attempt.target, red("failed")});
    } else {
      const KernelInfo& info = attempt.kernel.info;
      if (!options.directory.empty()) {
        const std::vector<std::string> paths = write_files(attempt, options.directory);
        entry["files"] = paths;
        written.insert(written.end(), paths.begin(), paths.end());
      }
      table.row({attempt.target,
                 info.cache == CacheState::compiled
                     ? fmt::format("compiled in {:.0f} ms", info.compile_ms)
                     : fmt::format("from {}", name_of(info.cache)),
                 info.entry, to_text(attempt.kernel.resources)});
    }
    json.push_back(std::move(entry));
  }
  if (options.kernel.json) {
    print_json(json);
  } else {
    table.print();
    for (const std::string& path : written) print("{}\n", path);
    for (const Attempt& attempt : attempts) {
      if (!attempt.error.empty()) print(stderr, "kiln: {}\n", attempt.error);
    }
  }
  return all_succeeded(attempts) ? kSuccess : kFailure;
}

int run_isa(const IsaOptions& options) {
  const Request request = parse_request(options.kernel);
  Json json = Json::array();
  for (const std::string& target : request.targets) {
    for (const KernelSpec& one : request.kernels) {
      const CompiledKernel kernel = compile_for(one, target);
      const std::string text = jit::disassemble(kernel.code, kernel.info.target);
      const std::vector<InstructionCount> memory = memory_instructions(text);
      if (options.kernel.json) {
        Json counts = Json::object();
        for (const InstructionCount& count : memory) counts[count.mnemonic] = count.count;
        json.push_back({{"target", target},
                        {"entry", kernel.info.entry},
                        {"variant", kernel.info.variant},
                        {"resources", to_json(kernel.resources)},
                        {"memory_instructions", counts},
                        {"isa", text}});
        continue;
      }
      std::vector<std::string> counts;
      for (const InstructionCount& count : memory) {
        counts.push_back(fmt::format("{} x {}", count.count, count.mnemonic));
      }
      Table table;
      table.row({"target", target});
      table.row({"kernel", kernel.info.entry});
      table.row({"variant", clip(kernel.info.variant, 96)});
      table.row({"resources", to_text(kernel.resources)});
      if (!counts.empty()) table.row({"memory", fmt::format("{}", fmt::join(counts, ", "))});
      table.print();
      print("\n{}{}", text, text.ends_with('\n') ? "" : "\n");
    }
  }
  if (options.kernel.json) print_json(json);
  return kSuccess;
}

namespace {

Json to_json(const Explanation& explanation) {
  Json operands = Json::array();
  for (const fusion::OperandReport& operand : explanation.layout.operands) {
    operands.push_back({{"name", operand.name},
                        {"access", operand.access},
                        {"reason", operand.reason},
                        {"bytes", operand.bytes}});
  }
  return {{"axes", explanation.layout.axes},
          {"passes", explanation.layout.passes},
          {"loops", explanation.layout.loops},
          {"width", explanation.layout.width},
          {"index", explanation.layout.index},
          {"ranges", explanation.ranges},
          {"operands", operands},
          {"expected_fraction_of_copy", explanation.estimate.fraction_of_copy},
          {"memory", explanation.estimate.memory},
          {"arithmetic", explanation.estimate.arithmetic},
          {"operations_per_element", explanation.estimate.operations}};
}

void print_lines(Table& table, std::string_view label, std::span<const std::string> lines) {
  for (const std::string& line : lines) {
    table.row({std::string(label), line});
    label = "";
  }
}

void print_explanation(Table& table, const Explanation& explanation) {
  print_lines(table, "axes", explanation.layout.axes);
  print_lines(table, "passes", explanation.layout.passes);
  print_lines(table, "loops", explanation.layout.loops);
  table.row({"width", explanation.layout.width});
  table.row({"index", explanation.layout.index});
  for (const fusion::OperandReport& operand : explanation.layout.operands) {
    table.row({operand.name, fmt::format("{}: {}; {}", operand.access, operand.reason,
                                         human_bytes(operand.bytes))});
  }
  print_lines(table, "holds for", explanation.ranges);
  const fusion::Estimate& estimate = explanation.estimate;
  table.row(
      {"speed", fmt::format("{:.2f} of a copy expected: memory takes {:.2f} and arithmetic "
                            "{:.2f} of a copy's time",
                            estimate.fraction_of_copy, estimate.memory, estimate.arithmetic)});
}

Explanation explain(const Attempt& attempt) { return explain_for(*attempt.of, attempt.target); }

/// For an expression that is one kernel: what its operations would move unfused, each in a kernel
/// of its own, and the least that must be read and written. Nothing if --shape gives the outputs'
/// shape.
std::optional<ProgramInfo> beside(const Request& request) {
  const bool one = !request.program && request.kernels.size() == 1;
  if (!one || !request.specification.shape.empty()) return std::nullopt;
  return explain_program(request.function, request.specification);
}

std::string moves(const Attempt& attempt, const std::optional<ProgramInfo>& beside) {
  const std::string text = fmt::format("{} per launch", human_bytes(attempt.kernel.info.bytes));
  if (!beside) return text;
  return fmt::format("{}; unfused {}; at least {}", text, human_bytes(beside->op_by_op_bytes),
                     human_bytes(beside->lower_bound));
}

int explain_as_json(const Request& request, const std::vector<Attempt>& attempts) {
  const OutputTypes types = output_types(request.function, request.specification);
  const std::vector<std::string> names = named_outputs(request.function);
  Json outputs = Json::array();
  for (std::size_t i = 0; i < names.size(); ++i) {
    outputs.push_back({{"name", names[i]},
                       {"dtype", name(types.dtypes[i])},
                       {"shape", std::vector(types.shapes[i].begin(), types.shapes[i].end())}});
  }
  Json targets = Json::array();
  for (const Attempt& attempt : attempts) {
    Json json = to_json(attempt);
    if (attempt.error.empty()) {
      json["expression"] = attempt.kernel.info.expression;
      json["layout"] = to_json(explain(attempt));
    }
    targets.push_back(std::move(json));
  }
  Json json = {{"expression", request.function.expression()}, {"outputs", outputs}};
  if (request.program) json["program"] = program_json(*request.program);
  if (const std::optional<ProgramInfo> info = beside(request)) {
    json["op_by_op_bytes"] = info->op_by_op_bytes;
    json["lower_bound"] = info->lower_bound;
  }
  json["targets"] = targets;
  print_json(json);
  return all_succeeded(attempts) ? kSuccess : kFailure;
}

}  // namespace

int run_explain(const ExplainOptions& options) {
  const Request request = parse_request(options.kernel);
  if (!options.dot.empty() || !options.svg.empty()) {
    const std::string dot =
        program_dot(request.program ? *request.program
                                    : explain_program(request.function, request.specification));
    if (draw_graph(dot, options.dot, options.svg)) return kSuccess;
  }
  const std::vector<Attempt> attempts = compile_all(request);
  if (options.kernel.json) return explain_as_json(request, attempts);
  const OutputTypes types = output_types(request.function, request.specification);
  const std::vector<std::string> names = named_outputs(request.function);
  print("{}\n", bold(clip(request.function.expression(), 96)));
  Table table;
  for (std::size_t i = 0; i < names.size(); ++i) {
    table.row({names[i],
               fmt::format("{} {}", name(types.dtypes[i]), fusion::to_string(types.shapes[i]))});
  }
  if (request.program) {
    table.print();
    print_program(*request.program);
    table = Table();
  }
  const std::optional<ProgramInfo> info = beside(request);
  for (const Attempt& attempt : attempts) {
    table.row({""});
    table.row(
        {bold(attempt.target), attempt.error.empty() ? attempt.kernel.info.entry : red("failed")});
    if (!attempt.error.empty()) continue;
    if (request.kernels.size() > 1) {
      table.row({"computes", clip(attempt.kernel.info.expression, 96)});
    }
    table.row({"variant", attempt.kernel.info.variant});
    print_explanation(table, explain(attempt));
    table.row({"moves", moves(attempt, info)});
    table.row({"resources", to_text(attempt.kernel.resources)});
  }
  table.print();
  for (const Attempt& attempt : attempts) {
    if (!attempt.error.empty()) print(stderr, "kiln: {}\n", attempt.error);
  }
  return all_succeeded(attempts) ? kSuccess : kFailure;
}

}  // namespace kiln::tool
