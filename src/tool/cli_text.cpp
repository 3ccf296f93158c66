#include "tool/cli_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.hpp"

namespace kiln::tool {
namespace {

// The parser writes a type and what checks it as "TEXT:{used,created}", "INT:INT in [1 - 100]".
void describe_value(const std::string& type, OptionText& text) {
  const std::size_t open = type.find('{'), close = type.rfind('}');
  if (open != type.npos && close != type.npos && open < close) {
    text.choices = base::split(std::string_view(type).substr(open + 1, close - open - 1), ',',
                               base::Parts::all);
    text.value = fmt::format("{}", fmt::join(text.choices, "|"));
  } else if (type.starts_with("INT") || type.starts_with("UINT")) {
    text.value = "N";
  } else {
    text.value = type;
  }
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const OptionText text = describe(*option);
    if (!text.name.empty()) return text.required ? "" : " (optional)";
    return text.value.empty() ? "" : " " + text.value;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const OptionText text = describe(*option);
    std::string words = text.description;
    if (text.required && text.name.empty()) words += " (required)";
    if (text.repeated && text.name.empty()) words += " (repeatable)";
    if (!text.initial.empty()) words += fmt::format(" (default: {})", text.initial);
    return words;
  }
};

}  // namespace

OptionText describe(const CLI::Option& option) {
  OptionText text;
  if (option.get_positional()) {
    text.name = option.get_name(true, false);
  } else {
    for (const std::string& name : option.get_snames()) text.flags.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) text.flags.push_back("--" + name);
  }
  text.description = option.get_description();
  text.required = option.get_required();
  text.repeated = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
                  option.get_expected_max() > 1;
  if (option.get_type_size() == 0) {  // a flag
    text.repeated = false;
    return text;
  }
  describe_value(option.get_type_name(), text);
  text.initial = option.get_default_str();
  return text;
}

CommandText describe(const CLI::App& app, std::string_view parent) {
  CommandText command;
  command.path = fmt::format("{}{}{}", parent, parent.empty() ? "" : " ", app.get_name());
  command.description = app.get_description();
  command.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    OptionText text = describe(*option);
    (text.name.empty() ? command.options : command.positionals).push_back(std::move(text));
  }
  for (const CLI::App* sub : app.get_subcommands({})) {
    command.subcommands.push_back(describe(*sub, command.path));
  }
  return command;
}

std::shared_ptr<CLI::Formatter> help_formatter() {
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(32);
  return formatter;
}

}  // namespace kiln::tool
