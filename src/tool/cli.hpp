// The command line of `kiln`: its grammar and its help. What the commands do is in commands.hpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

namespace kiln::tool {

struct CommandLine {
  std::unique_ptr<CLI::App> app;
  /// The command that was chosen, once `app` has parsed.
  std::shared_ptr<std::function<int()>> command;
  /// Whether the chosen command was asked for JSON.
  std::shared_ptr<bool> json;
};

CommandLine make_command_line();

}  // namespace kiln::tool
