// The manual page and the shell completions say what --help says, of every command; and the shells
// and man take them.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/src/tool/tool_process.hpp"

namespace kiln {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;
using WordSet = std::set<std::string>;

/// Every match of `pattern`'s first group.
WordSet matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern, std::regex::ECMAScript | std::regex::multiline);
  WordSet found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

/// From after `begin` to before `end`, or to the end.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin);
  if (from == text.npos) return {};
  const std::size_t start = from + begin.size();
  return text.substr(start, std::min(text.find(end, start), text.size()) - start);
}

class ToolDocuments : public testing::ToolTest {
 protected:
  /// "kiln", "kiln cache ls" and so on to the options that --help names.
  std::map<std::string, WordSet> commands() { return commands_under({}); }

  static std::string subcommands_of(const std::string& help) {
    const std::string listed = between(help, "Subcommands:\n", "\n\n");
    return listed.empty() ? between(help, "SUBCOMMANDS:\n", "\n\n") : listed;  // CLI11 from 2.4 on
  }

  std::map<std::string, WordSet> commands_under(const Words& path) {
    Words arguments = path;
    arguments.emplace_back("--help");
    const std::string help = run(arguments).out;
    std::string name = "kiln";
    for (const std::string& word : path) name += " " + word;
    std::map<std::string, WordSet> result;
    // "  -h,--help      Print ...", or with CLI11 from 2.4 on "  -h,     --help      Print ...".
    for (const std::string& line : matches(help, "^( {2,10}-.*)$")) {
      const WordSet names =
          matches(line.substr(0, line.find("  ", 10)), "(?:^|[ ,])(--?[a-z][a-z-]*)");
      result[name].insert(names.begin(), names.end());
    }
    for (const std::string& sub : matches(subcommands_of(help), "^  ([a-z]+)")) {
      Words below = path;
      below.push_back(sub);
      result.merge(commands_under(below));
    }
    return result;
  }

  /// What a shell prints, line by line. The tool is first in its PATH.
  Words shell(const std::string& program, const std::string& script) {
    const std::string file = put("script", script);
    const std::string directory = std::filesystem::path(KILN_TOOL).parent_path();
    const std::string command = "PATH='" + directory + "':\"$PATH\" KILN_CACHE_DIR='" +
                                path("cache") + "' " + program + " '" + file + "' 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    std::string text;
    for (int c; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    if (pipe != nullptr) {
      EXPECT_EQ(::pclose(pipe), 0) << text;
    }
    Words lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  static bool missing(const std::string& program) {
    return std::system(("command -v " + program + " >/dev/null").c_str()) != 0;
  }

  /// What bash offers at the end of `line`, whose last word may be empty.
  Words bash(const Words& line) {
    std::string words;
    for (const std::string& word : line) words += " '" + word + "'";
    return shell("bash", run({"completion", "bash"}).out + "COMP_WORDS=(" + words +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_kiln\n" +
                             "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  }
  static Words with(std::string command, const std::string& last) {
    std::istringstream stream(command);
    Words line;
    for (std::string word; stream >> word;) line.push_back(word);
    line.push_back(last);
    return line;
  }
};

TEST_F(ToolDocuments, TheManualHasEveryOptionOfEveryCommandAndNoOther) {
  const std::string manual = std::regex_replace(run({"manual"}).out, std::regex(R"(\\-)"), "-");
  const auto all = commands();
  EXPECT_GT(all.size(), 18u);
  for (const auto& [name, options] : all) {
    const std::string section = between(manual, ".SS " + name + "\n", "\n.S");
    WordSet in_manual;
    for (const std::string& line : matches(section, R"(^\.TP\n(\\fB-.*)$)")) {
      const WordSet names = matches(line, R"(\\fB(--?[a-z][a-z-]*)\\fR)");
      in_manual.insert(names.begin(), names.end());
    }
    EXPECT_EQ(in_manual, options) << name;
  }
  std::size_t sections = 0;
  for (const std::string& name : matches(manual, R"(^\.SS (.*)$)")) {
    EXPECT_TRUE(all.contains(name)) << name;
    ++sections;
  }
  EXPECT_EQ(sections, all.size());
}

TEST_F(ToolDocuments, TheManualHasTheSettingsOfTheReadme) {
  const std::string table = between(read(KILN_TEST_README), "## Settings", "\n## ");
  WordSet readme;
  for (const std::string& cell : matches(table, R"(^\| (`KILN_[^|]*) \|)")) {
    const WordSet names = matches(cell, "`(KILN_[A-Z_]+)`");
    readme.insert(names.begin(), names.end());
  }
  EXPECT_GT(readme.size(), 10u);
  const std::string section = between(run({"manual"}).out, ".SH ENVIRONMENT", "\n.SH");
  EXPECT_EQ(matches(section, R"(^\\fB(KILN_[A-Z_]+)\\fR)"), readme);
}

TEST_F(ToolDocuments, ManTakesTheManualWithoutAWarning) {
  if (missing("man") || missing("groff")) GTEST_SKIP() << "no man and groff on this machine";
  put("kiln.1", run({"manual"}).out);
  EXPECT_THAT(shell("sh", "man --warnings -E UTF-8 -l '" + path("kiln.1") + "' >/dev/null"),
              IsEmpty());
}

TEST_F(ToolDocuments, BashOffersEveryOptionOfEveryCommand) {
  if (missing("bash")) GTEST_SKIP() << "no bash on this machine";
  for (const auto& [name, options] : commands()) {
    const Words offered = bash(with(name, "-"));
    EXPECT_EQ(WordSet(offered.begin(), offered.end()), options) << name;
  }
}

TEST_F(ToolDocuments, BashCompletesCommandsValuesFilesAndKeys) {
  if (missing("bash")) GTEST_SKIP() << "no bash on this machine";
  EXPECT_THAT(bash({"kiln", "cac"}), ElementsAre("cache"));
  EXPECT_THAT(bash({"kiln", "cache", "ex"}), ElementsAre("extract", "explain", "export"));
  EXPECT_THAT(bash({"kiln", "cache", "ls", "--json", "--so"}), ElementsAre("--sort"));
  EXPECT_THAT(bash({"kiln", "cache", "ls", "--sort", "c"}), ElementsAre("created", "compile"));
  EXPECT_THAT(bash({"kiln", "cache", "ls", "--limit", ""}), IsEmpty());
  EXPECT_THAT(bash({"kiln", "completion", "f"}), ElementsAre("fish"));
  put("some.kilnpack", "");
  EXPECT_THAT(bash({"kiln", "cache", "import", path("some")}), ElementsAre(path("some.kilnpack")));
  EXPECT_THAT(bash({"kiln", "run", "--in", path("some")}), ElementsAre(path("some.kilnpack")));
  EXPECT_THAT(bash({"kiln", "cache", "show", ""}), IsEmpty());
  const std::string listed =
      run({"compile", "x * x", "--type", "x=f32[8]", "--target", "cpu", "--json"}).out;
  const WordSet keys = matches(listed, R"re("key": "([0-9a-f]{12}))re");
  if (keys.size() != 1) GTEST_SKIP() << "no host compiler on this machine";
  EXPECT_THAT(bash({"kiln", "cache", "show", ""}), ElementsAre(*keys.begin()));
  EXPECT_THAT(bash({"kiln", "cache", "export", "--key", ""}), ElementsAre(*keys.begin()));
}

TEST_F(ToolDocuments, ZshCompletesCommandsAndValues) {
  if (missing("zsh")) GTEST_SKIP() << "no zsh on this machine";
  const std::string script = run({"completion", "zsh"}).out;
  const auto zsh = [&](const std::string& words) {
    return shell("zsh -f", "compdef() {}; compadd() { shift; print -l -- $@ }\n" + script +
                               "words=(" + words + "); CURRENT=${#words}; _kiln\n");
  };
  EXPECT_THAT(zsh("kiln ''"), Contains("cache"));
  EXPECT_THAT(zsh("kiln cache ls --sort ''"),
              ElementsAre("used", "created", "size", "function", "compile"));
  EXPECT_THAT(zsh("kiln cache verify -"), Contains("--recompile"));
}

TEST_F(ToolDocuments, FishCompletesCommandsAndValues) {
  if (missing("fish")) GTEST_SKIP() << "no fish on this machine";
  const std::string script = run({"completion", "fish"}).out;
  const auto fish = [&](const std::string& line) {
    return shell("fish --no-config", script + "complete -C '" + line + "'\n");
  };
  EXPECT_THAT(fish("kiln cac"), ElementsAre("cache\tLook at and change the cache"));
  EXPECT_THAT(fish("kiln cache ls --sort "), Contains("created\tWhat comes first"));
  EXPECT_THAT(fish("kiln cache verify --rep"),
              ElementsAre("--repair\tMove bad entries to quarantine"));
}

}  // namespace
}  // namespace kiln
