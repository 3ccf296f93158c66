// The command line as data: what --help, the manual page and the shell completions all say about an
// option, read from the parser itself, so that none of them can drift from it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::tool {

struct OptionText {
  std::vector<std::string> flags;    ///< "-o", "--output"; empty for a positional
  std::string name;                  ///< of a positional: "EXPR"
  std::string value;                 ///< "FILE", "used|created"; empty for a flag
  std::vector<std::string> choices;  ///< the words that are accepted, if there are few
  std::string initial;               ///< the default; may be empty
  std::string description;
  bool required = false;
  bool repeated = false;
};
OptionText describe(const CLI::Option& option);

struct CommandText {
  std::string path;  ///< "kiln cache ls"
  std::string description;
  std::string footer;
  std::vector<OptionText> positionals;
  std::vector<OptionText> options;       ///< --help among them
  std::vector<CommandText> subcommands;  ///< in the order of --help
};
/// The command and all below it.
CommandText describe(const CLI::App& app, std::string_view parent = {});

/// Calls `visit` with the command and all below it, parents first.
template <class Visit>
void for_each_command(const CommandText& command, const Visit& visit) {
  visit(command);
  for (const CommandText& sub : command.subcommands) for_each_command(sub, visit);
}

/// How --help writes options.
std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace kiln::tool
