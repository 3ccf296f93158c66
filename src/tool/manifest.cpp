// `kiln compile --manifest` and `kiln manifest record`: the kernels of a program, compiled before
// it runs and on another machine, and where the list of them comes from.
#include "files/manifest.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>
#include <variant>

#include "ahead/prepare.hpp"
#include "base/subprocess.hpp"
#include "files/file_io.hpp"
#include "kiln/error.hpp"
#include "tool/arguments.hpp"
#include "tool/cache_text.hpp"
#include "tool/commands.hpp"
#include "tool/print.hpp"
#include "tool/progress.hpp"

extern char** environ;

namespace kiln::tool {
namespace {

std::string read_text(const std::string& path) {
  const files::InputFile file(path);
  return file.head(file.size());
}

/// A line that makes sense.
struct Wanted {
  std::size_t line = 0;
  std::string name;
  std::variant<Function, Program, Kernel> of;
  Specification specification;
};

Wanted wanted_of(const files::ManifestLine& line) {
  const auto made = [&]() -> std::variant<Function, Program, Kernel> {
    if (line.kind == files::ManifestKind::kernel) {
      return kernel(line.name, line.text, line.parameters, line.options);
    }
    std::vector<std::string> order;
    for (const ArgumentSpec& argument : line.specification.arguments) {
      order.push_back(argument.name);
    }
    Function function = parse(line.name, line.text, line.options, order);
    if (line.kind == files::ManifestKind::program) return program(function);
    return function;
  };
  return {line.number, line.name, made(), line.specification};
}

std::vector<Wanted> wanted_lines(files::Manifest& manifest) {
  std::vector<Wanted> wanted;
  for (const files::ManifestLine& line : manifest.lines) {
    try {
      wanted.push_back(wanted_of(line));
    } catch (const Error& error) {
      manifest.problems.push_back({line.number, error.what()});
    }
  }
  std::ranges::sort(manifest.problems, {}, &files::ManifestProblem::line);
  return wanted;
}

/// One line for one target.
struct Item {
  const Wanted* wanted = nullptr;
  std::string target;
};

std::vector<Item> items_of(const std::vector<Wanted>& wanted,
                           const std::vector<std::string>& targets) {
  std::vector<Item> items;
  for (const std::string& target : targets) {
    for (const Wanted& line : wanted) items.push_back({&line, target});
  }
  return items;
}

std::vector<PrepareRequest> requests_of(const std::vector<Item>& items) {
  std::vector<PrepareRequest> requests;
  for (const Item& item : items) {
    PrepareRequest request;
    std::visit([&](const auto& of) { request.of = &of; }, item.wanted->of);
    request.specification = &item.wanted->specification;
    request.target = item.target;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::string describe(const std::string& path, const Item& item, const Error& error) {
  return fmt::format("{}:{}: for {}: {}", path, item.wanted->line, item.target, error.what());
}

std::string describe(const std::string& path, const files::ManifestProblem& problem) {
  return fmt::format("{}:{}: {}", path, problem.line, problem.message);
}

std::string outcome_text(const Preparation& preparation) {
  if (preparation.error()) return "failed";
  const KernelInfo info = preparation.get();
  if (info.cache == CacheState::remote) return "from the remote cache";
  if (info.cache != CacheState::compiled) return "already there";
  return fmt::format("compiled in {:.0f} ms", info.compile_ms);
}

/// Compiles everything side by side and shows how far it is.
std::vector<Preparation> prepare(const std::vector<Item>& items, bool json) {
  Progress progress(Progress::style(json), items.size());
  return prepare_requests(requests_of(items), [&](const PrepareProgress& done) {
    const Item& item = items[done.index];
    progress.step(fmt::format("{} for {}: {}", item.wanted->name, clip(item.target, 40),
                              outcome_text(done.preparation)));
  });
}

Json to_json(const Item& item, const Preparation& preparation) {
  Json json = {{"line", item.wanted->line}, {"name", item.wanted->name}, {"target", item.target}};
  if (const auto error = preparation.error()) {
    json["error"] = {{"code", name(error->code())}, {"message", error->what()}};
    return json;
  }
  const KernelInfo info = preparation.get();
  json["entry"] = info.entry;
  json["key"] = info.key;
  json["cache"] = name_of(info.cache);
  json["compile_ms"] = info.compile_ms;
  return json;
}

}  // namespace

int run_compile_manifest(const std::string& path, const std::vector<std::string>& targets,
                         bool json) {
  const auto start = std::chrono::steady_clock::now();
  files::Manifest manifest = files::parse_manifest(read_text(path));
  const std::vector<Wanted> wanted = wanted_lines(manifest);
  const std::vector<Item> items = items_of(wanted, targets);
  const std::vector<Preparation> preparations = prepare(items, json);

  std::size_t compiled = 0;
  std::size_t failed = 0;
  Json results = Json::array();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto error = preparations[i].error();
    failed += error ? 1 : 0;
    compiled += !error && preparations[i].get().cache == CacheState::compiled ? 1 : 0;
    results.push_back(to_json(items[i], preparations[i]));
    if (error) print(stderr, "{}\n", describe(path, items[i], *error));
  }
  for (const files::ManifestProblem& problem : manifest.problems) {
    print(stderr, "{}\n", describe(path, problem));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::size_t there = items.size() - compiled - failed;
  if (json) {
    Json problems = Json::array();
    for (const files::ManifestProblem& problem : manifest.problems) {
      problems.push_back({{"line", problem.line}, {"message", problem.message}});
    }
    print_json({{"entries", wanted.size()},
                {"targets", targets},
                {"compiled", compiled},
                {"already_there", there},
                {"failed", failed},
                {"seconds", elapsed.count()},
                {"results", results},
                {"bad_lines", problems}});
  } else {
    print(
        "{} {} for {} {}: {} compiled, {} already there, {} failed, {} bad lines; "
        "{:.1f} s\n",
        wanted.size(), wanted.size() == 1 ? "line" : "lines", targets.size(),
        targets.size() == 1 ? "target" : "targets", compiled, there, failed,
        manifest.problems.size(), elapsed.count());
  }
  return failed == 0 && manifest.problems.empty() ? kSuccess : kFailure;
}

ManifestKeys keys_of_manifest(const std::string& path, const std::vector<std::string>& targets) {
  files::Manifest manifest = files::parse_manifest(read_text(path));
  const std::vector<Wanted> wanted = wanted_lines(manifest);
  const std::vector<Item> items = items_of(wanted, targets);
  RequestedKeys requested = remote_keys(requests_of(items));
  ManifestKeys found{std::move(requested.keys), {}};
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (requested.errors[i]) {
      found.problems.push_back(describe(path, items[i], *requested.errors[i]));
    }
  }
  for (const files::ManifestProblem& problem : manifest.problems) {
    found.problems.push_back(describe(path, problem));
  }
  return found;
}

int run_manifest_record(const ManifestRecordOptions& options) {
  if (options.program.empty()) throw UsageError("manifest record: give a program after --");
  // The program may change its directory.
  const std::string path = std::filesystem::absolute(options.file).string();
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("KILN_RECORD=")) variables.emplace_back(*variable);
  }
  variables.push_back("KILN_RECORD=" + path);
  const pid_t child =
      base::spawn({.command = options.program, .environment = variables, .on_path = true},
                  fmt::format("manifest record: cannot run {}", options.program[0]));
  // What a terminal sends is for the program; it ends or not, and is waited for.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGQUIT, SIG_IGN);
  const int status = base::wait_for(child).value_or(0);
  std::size_t lines = 0;
  if (std::filesystem::exists(path)) {
    lines = files::parse_manifest(read_text(path)).lines.size();
  }
  print(stderr, "kiln: {} has {} {}{}\n", options.file, lines, lines == 1 ? "line" : "lines",
        lines == 0 ? "; the program asked for no kernel of kiln" : "");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace kiln::tool
