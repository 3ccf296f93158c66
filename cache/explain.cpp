// Why two entries have different keys: which ingredients differ, as sentences.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "kiln/cache.hpp"

namespace kiln::cache {
namespace {

// Each tag once, in order of first appearance, with its values in order.
using Values = std::vector<std::string>;
struct Grouped {
  std::vector<std::string> tags;
  std::map<std::string, Values> values;

  explicit Grouped(const std::vector<Ingredient>& ingredients) {
    for (const Ingredient& ingredient : ingredients) {
      Values& of_tag = values[ingredient.tag];
      if (of_tag.empty()) tags.push_back(ingredient.tag);
      of_tag.push_back(ingredient.value);
    }
  }
  Values of(const std::string& tag) const {
    const auto found = values.find(tag);
    return found == values.end() ? Values{} : found->second;
  }
};

std::string joined(const Values& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : " ") + value;
  return text;
}

// What is in `values` more often than in `others`.
Values without(const Values& values, Values others) {
  Values rest;
  for (const std::string& value : values) {
    const auto found = std::find(others.begin(), others.end(), value);
    if (found == others.end()) {
      rest.push_back(value);
    } else {
      others.erase(found);
    }
  }
  return rest;
}

std::string list_words(const Values& a, const Values& b, const std::string& tag) {
  const Values only_a = without(a, b), only_b = without(b, a);
  if (only_a.empty() && only_b.empty()) return fmt::format("the {}s are in another order", tag);
  std::string text;
  if (!only_a.empty()) text += fmt::format("only A has {} {}", tag, joined(only_a));
  if (!only_b.empty()) {
    text += fmt::format("{}only B has {} {}", text.empty() ? "" : "; ", tag, joined(only_b));
  }
  return text;
}

std::string source_words(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return "the sources differ";
  const auto take_line = [](std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
  };
  for (int number = 1; !a.empty() || !b.empty(); ++number) {
    const std::string_view line_a = take_line(a), line_b = take_line(b);
    if (line_a == line_b) continue;
    return fmt::format("the sources differ from line {} on: A has '{}', B has '{}'", number,
                       line_a.substr(0, 80), line_b.substr(0, 80));
  }
  return "the stored sources are the same, the hashed ones are not";
}

std::string describe_difference(const std::string& tag, const Values& a, const Values& b,
                                const Entry& entry_a, const Entry& entry_b) {
  if (tag == "source") return source_words(entry_a.source, entry_b.source);
  if (a.size() > 1 || b.size() > 1) return list_words(a, b, tag);
  if (a.empty()) return fmt::format("only B has {}: {}", tag, joined(b));
  if (b.empty()) return fmt::format("only A has {}: {}", tag, joined(a));
  if (tag == "toolchain") {
    return fmt::format("compiled by different toolchains: A by {} ({}), B by {} ({})",
                       entry_a.metadata.toolchain, joined(a), entry_b.metadata.toolchain,
                       joined(b));
  }
  return fmt::format("the {} differs: A has {}, B has {}", tag, joined(a), joined(b));
}

}  // namespace

std::vector<Difference> explain(const Entry& a, const Entry& b) {
  const Grouped grouped_a(a.metadata.ingredients), grouped_b(b.metadata.ingredients);
  std::vector<std::string> tags = grouped_a.tags;
  for (const std::string& tag : grouped_b.tags) {
    if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
  }
  std::vector<Difference> differences;
  for (const std::string& tag : tags) {
    const Values values_a = grouped_a.of(tag), values_b = grouped_b.of(tag);
    if (values_a == values_b) continue;
    differences.push_back({tag, joined(values_a), joined(values_b),
                           describe_difference(tag, values_a, values_b, a, b)});
  }
  return differences;
}

}  // namespace kiln::cache
