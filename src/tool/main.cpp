// The tool `kiln`: parses the command line, runs one command, turns what is thrown into a message
// and an exit code: 0 done, 1 failed, 2 the command line is wrong.
#include <fmt/format.h>

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

/// What the parser's own message leaves out.
void explain_usage(const std::string& message, std::span<char* const> arguments) {
  const std::string_view first = arguments.size() > 2 ? arguments[2] : "";
  if (first.starts_with('-') && !first.starts_with("--")) {
    fmt::print(stderr, "An expression that begins with '-' goes in parentheses: '({})'\n", first);
  }
  for (const std::string_view argument : arguments) {
    if (argument != "--json") continue;
    print_json({{"error", {{"code", "usage"}, {"message", message}}}});
    break;
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
    const int code = line.app->exit(error);  // prints help, version or the message
    if (code != 0) explain_usage(error.what(), {argv, static_cast<std::size_t>(argc)});
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
