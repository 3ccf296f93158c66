// The tool `kiln`: parses the command line, runs one command, turns what is thrown into a message
// and an exit code: 0 done, 1 failed, 2 the command line is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <span>

#include "kiln/error.hpp"
#include "tool/cli.hpp"
#include "tool/commands.hpp"
#include "tool/print.hpp"

namespace {

using namespace kiln;
using namespace kiln::tool;

int report(std::string_view code, const std::string& message, int exit_code, bool json) {
  if (json) print_json({{"error", {{"code", code}, {"message", message}}}});
  fmt::print(stderr, "kiln: {}\n", message);
  return exit_code;
}

bool asked_for_json(std::span<char* const> arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](std::string_view argument) { return argument == "--json"; });
}

/// The command that was being written when the parser gave up.
const CLI::App& deepest(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : deepest(*chosen.front());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

/// What stands where a command should, or nothing: then all commands are shown.
int report_missing_command(const CLI::App& app, bool json) {
  const std::vector<std::string> rest = app.remaining();
  const auto word = std::find_if(rest.begin(), rest.end(),
                                 [](const std::string& text) { return !text.starts_with('-'); });
  if (word == rest.end()) {
    if (json) print_json({{"error", {{"code", "usage"}, {"message", "a command is required"}}}});
    fmt::print(stderr, "{}",
               app.help(app.get_parent() == nullptr ? "" : full_name(*app.get_parent())));
    return kUsage;
  }
  const std::string message =
      fmt::format("'{}' is no command of {}; see {} --help", *word, full_name(app), full_name(app));
  return report("usage", message, kUsage, json);
}

/// What the parser's own message leaves out.
void explain_usage(const std::string& message, std::span<char* const> arguments) {
  const std::string_view first = arguments.size() > 2 ? arguments[2] : "";
  if (first.starts_with('-') && !first.starts_with("--")) {
    fmt::print(stderr, "An expression that begins with '-' goes in parentheses: '({})'\n", first);
  }
  if (asked_for_json(arguments)) {
    print_json({{"error", {{"code", "usage"}, {"message", message}}}});
  }
}

int run_command(const CommandLine& line) {
  const bool json = *line.json;
  try {
    return (*line.command)();
  } catch (const UsageError& error) {
    return report("usage", error.what(), kUsage, json);
  } catch (const Error& error) {
    return report(name(error.code()), error.what(), kFailure, json);
  } catch (const std::bad_alloc&) {
    return report(name(Code::io), "out of memory", kFailure, json);
  } catch (const std::exception& error) {
    return report(name(Code::internal), error.what(), kFailure, json);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine line = make_command_line();
  try {
    line.app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
    const CLI::App& command = deepest(*line.app);
    const bool wants_command = command.get_require_subcommand_min() > 0;
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && wants_command) {
      return report_missing_command(command, asked_for_json(arguments));
    }
    const int code = line.app->exit(error);  // prints help, version or the message
    if (code != 0) explain_usage(error.what(), arguments);
    return code == 0 ? kSuccess : kUsage;
  }
  const int code = run_command(line);
  // A full disk behind standard output is a failure, whatever the command thought.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "kiln: standard output: {}\n", std::strerror(errno));
    return kFailure;
  }
  return code;
}
