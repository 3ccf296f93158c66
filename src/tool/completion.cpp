// `kiln completion SHELL`: a script that completes commands, options, their values, files and the
// keys of cache entries, written from the command line's own description.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tool/cli_text.hpp"
#include "tool/commands.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

constexpr auto kKeys = "kiln cache ls 2>/dev/null | awk 'NR > 1 {print $1}'";

bool is_key(const OptionText& option) {
  return option.name == "KEY" || option.name == "A" || option.name == "B" || option.value == "KEY";
}

bool is_file(const OptionText& option) {
  return option.name == "FILE" || option.value.find("FILE") != std::string::npos ||
         option.value == "DIR";
}

bool takes(const CommandText& command, bool (*what)(const OptionText&)) {
  return std::any_of(command.positionals.begin(), command.positionals.end(), what);
}

std::string words_of(const CommandText& command) {
  std::vector<std::string> words;
  for (const CommandText& sub : command.subcommands) {
    words.push_back(sub.path.substr(command.path.size() + 1));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string flags_of(const CommandText& command) {
  std::vector<std::string> flags;
  for (const OptionText& option : command.options) {
    flags.insert(flags.end(), option.flags.begin(), option.flags.end());
  }
  return fmt::format("{}", fmt::join(flags, " "));
}

/// 'kiln cache ls --sort' and so on, for each of the option's names.
std::string pattern(const CommandText& command, const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& flag : option.flags) {
    names.push_back(fmt::format("'{} {}'", command.path, flag));
  }
  return fmt::format("{}", fmt::join(names, "|"));
}

/// The part that bash and zsh share: finds the command that is being written, then sets `choices`,
/// and `files` where a file may come.
void print_cases(const CommandText& root) {
  print("  for word in \"${{before[@]}}\"; do\n    case \"$command $word\" in\n");
  for_each_command(root, [&](const CommandText& command) {
    if (&command != &root) print("      '{0}') command='{0}' ;;\n", command.path);
  });
  print("    esac\n  done\n  case \"$command $previous\" in\n");
  for_each_command(root, [](const CommandText& command) {
    for (const OptionText& option : command.options) {
      if (option.value.empty()) continue;
      std::string reaction = ":";  // any text: nothing to offer
      if (!option.choices.empty()) {
        reaction = fmt::format("choices='{}'", fmt::join(option.choices, " "));
      } else if (is_key(option)) {
        reaction = fmt::format("choices=$({})", kKeys);
      } else if (is_file(option)) {
        reaction = "files=1";
      }
      print("    {}) {} ;;\n", pattern(command, option), reaction);
    }
  });
  print("    *)\n      case $current in\n        -*) case $command in\n");
  for_each_command(root, [](const CommandText& command) {
    print("          '{}') choices='{}' ;;\n", command.path, flags_of(command));
  });
  print("        esac ;;\n        *) case $command in\n");
  for_each_command(root, [](const CommandText& command) {
    std::vector<std::string> reactions;
    if (!command.subcommands.empty()) {
      reactions.push_back(fmt::format("choices='{}'", words_of(command)));
    }
    for (const OptionText& option : command.positionals) {
      if (!option.choices.empty()) {
        reactions.push_back(fmt::format("choices='{}'", fmt::join(option.choices, " ")));
      }
    }
    if (takes(command, is_key)) reactions.push_back(fmt::format("choices=$({})", kKeys));
    if (takes(command, is_file)) reactions.emplace_back("files=1");
    if (!reactions.empty()) {
      tool::print("          '{}') {} ;;\n", command.path, fmt::join(reactions, "; "));
    }
  });
  print("        esac ;;\n      esac ;;\n  esac\n");
}

void print_bash(const CommandText& root) {
  print(
      "# bash completion of kiln; written by: kiln completion bash\n"
      "_kiln() {{\n"
      "  local command=kiln choices='' files='' word\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
      "  local before=(\"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\")\n");
  print_cases(root);
  print(
      "  mapfile -t COMPREPLY < <(\n"
      "    compgen -W \"$choices\" -- \"$current\"\n"
      "    [[ -z $files ]] || compgen -f -- \"$current\")\n"
      "}}\n"
      "complete -o filenames -F _kiln kiln\n");
}

void print_zsh(const CommandText& root) {
  print(
      "#compdef kiln\n# zsh completion of kiln; written by: kiln completion zsh\n"
      "_kiln() {{\n"
      "  local command=kiln choices='' files='' word\n"
      "  local current=${{words[CURRENT]}} previous=${{words[CURRENT-1]}}\n"
      "  local -a before=(\"${{(@)words[2,CURRENT-1]}}\")\n");
  print_cases(root);
  print(
      "  [[ -z $choices ]] || compadd -- ${{=choices}}\n"
      "  [[ -z $files ]] || _files\n"
      "}}\n"
      "if [[ $funcstack[1] == _kiln ]]; then _kiln \"$@\"; else compdef _kiln kiln; fi\n");
}

/// In single quotes, for fish.
std::string fish_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

void print_fish(const CommandText& root) {
  print(
      "# fish completion of kiln; written by: kiln completion fish\n"
      "function __kiln_at\n"
      "  set -l found kiln\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$found $word\"\n");
  for_each_command(root, [&](const CommandText& command) {
    if (&command != &root) print("      case '{0}'\n        set found '{0}'\n", command.path);
  });
  print("    end\n  end\n  test \"$found\" = \"$argv\"\nend\ncomplete -c kiln -f\n");
  for_each_command(root, [](const CommandText& command) {
    const std::string at = fmt::format("complete -c kiln -n {}",
                                       fish_quoted(fmt::format("__kiln_at {}", command.path)));
    for (const CommandText& sub : command.subcommands) {
      print("{} -a {} -d {}\n", at, sub.path.substr(command.path.size() + 1),
            fish_quoted(sub.description));
    }
    for (const OptionText& option : command.positionals) {
      if (!option.choices.empty()) tool::print("{} -a '{}'\n", at, fmt::join(option.choices, " "));
    }
    if (takes(command, is_key)) print("{} -a {}\n", at, fish_quoted(fmt::format("({})", kKeys)));
    if (takes(command, is_file)) print("{} -F\n", at);
    for (const OptionText& option : command.options) {
      std::string line = at;
      for (const std::string& flag : option.flags) {
        line += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      }
      if (!option.value.empty()) line += is_file(option) ? " -r -F" : " -x";
      if (!option.choices.empty()) line += fmt::format(" -a '{}'", fmt::join(option.choices, " "));
      if (is_key(option)) line += " -a " + fish_quoted(fmt::format("({})", kKeys));
      print("{} -d {}\n", line, fish_quoted(option.description));
    }
  });
}

}  // namespace

int run_completion(const CLI::App& app, const CompletionOptions& options) {
  const CommandText root = describe(app);
  if (options.shell == "bash") {
    print_bash(root);
  } else if (options.shell == "zsh") {
    print_zsh(root);
  } else {
    print_fish(root);
  }
  return kSuccess;
}

}  // namespace kiln::tool
