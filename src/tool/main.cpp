// The tool `kiln`: parses the command line, runs one command, turns what is thrown into a message
// and an exit code: 0 done, 1 failed, 2 the command line is wrong.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <sstream>

#include "base/io.hpp"
#include "kiln/error.hpp"
#include "tool/cli.hpp"
#include "tool/commands.hpp"
#include "tool/print.hpp"

namespace {

using namespace kiln;
using namespace kiln::tool;

int report(std::string_view code, const std::string& message, int exit_code, bool json) {
  if (json) print_json({{"error", {{"code", code}, {"message", message}}}});
  print(stderr, "kiln: {}\n", message);
  return exit_code;
}

bool asked_for_json(std::span<char* const> arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](std::string_view argument) { return argument == "--json"; });
}

/// A standard descriptor that is closed would be given to the next file that is opened, which would
/// then get what is printed. What is opened here in its place cannot be read, or written, either.
void occupy_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

/// Output that could not be written is a failure, whatever the command thought.
int check_output(int code) {
  const int error = output_error();
  if (error == 0) return code;
  print(stderr, "kiln: standard output: {}\n", base::describe_errno(error));
  return code == kSuccess ? kFailure : code;
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
    print(stderr, "{}", app.help(app.get_parent() == nullptr ? "" : full_name(*app.get_parent())));
    return kUsage;
  }
  const std::string message =
      fmt::format("'{}' is no command of {}; see {} --help", *word, full_name(app), full_name(app));
  return report("usage", message, kUsage, json);
}

/// What the parser says, and of which command.
int report_usage(const CLI::App& command, const CLI::ParseError& error,
                 std::span<char* const> arguments) {
  const std::string name = full_name(command);
  const std::string message = fmt::format("{}: {}; see {} --help", name, error.what(), name);
  if (asked_for_json(arguments)) {
    print_json({{"error", {{"code", "usage"}, {"message", message}}}});
  }
  print(stderr, "{}\n", message);
  const std::string_view first = arguments.size() > 2 ? arguments[2] : "";
  if (first.starts_with('-') && !first.starts_with("--")) {
    print(stderr, "An expression that begins with '-' goes in parentheses: '({})'\n", first);
  }
  return kUsage;
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
    if (std::ferror(stdout) != 0) return kFailure;  // check_output() says it
    return report(name(Code::internal), error.what(), kFailure, json);
  }
}

int run(int argc, char** argv) {
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
    if (error.get_exit_code() != 0) return report_usage(command, error, arguments);
    std::ostringstream text;
    line.app->exit(error, text, text);  // help or the version
    print_text(stdout, text.str());
    return kSuccess;
  }
  return run_command(line);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  return check_output(run(argc, argv));
}
