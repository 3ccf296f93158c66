// See manifest.hpp.
#include "files/manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "kiln/error.hpp"
#include "kiln/option_names.hpp"

namespace kiln::files {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& message) { throw Error(Code::invalid_argument, message); }

// Integers separated by commas, at least `lowest`, up to the end of `text`.
Dims parse_integers(std::string_view text, std::string_view whole, std::int64_t lowest) {
  std::vector<std::int64_t> values;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < lowest || (next != end && *next != ',') ||
        (next != end && next + 1 == end)) {
      fail(fmt::format("'{}': expected integers separated by commas, found '{}'", whole, text));
    }
    values.push_back(value);
    at = next == end ? end : next + 1;
  }
  return Dims(std::span<const std::int64_t>(values));
}

DType parse_dtype_name(std::string_view text, std::string_view whole) {
  if (const auto dtype = parse_dtype(text)) return *dtype;
  std::vector<std::string_view> names;
  for (const DTypeInfo& entry : kDTypes) names.push_back(entry.name);
  fail(fmt::format("'{}': '{}' is no dtype; expected one of {}", whole, text,
                   fmt::join(names, " ")));
}

std::string array_text(DType dtype, const Dims& shape, const Dims& strides,
                       std::uint32_t misalignment, std::uint32_t memory, std::int64_t element) {
  std::string text = fmt::format("{}[{}]", name(dtype), fmt::join(shape, ","));
  if (!strides.empty()) text += fmt::format("@{}", fmt::join(strides, ","));
  if (misalignment != 0) text += fmt::format("+{}", misalignment);
  if (memory != 0) text += fmt::format("&{},{}", memory, element);
  return text;
}

// A line as JSON in which no name stands twice: the second would silently win.
Json parse_object(std::string_view line) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key &&
        !open.back().insert(parsed.get_ref<const std::string&>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(line, watch);
  } catch (const Json::exception& error) {
    fail(fmt::format("this is not JSON: {}", error.what()));
  }
  if (!twice.empty()) fail(fmt::format("'{}' stands twice", twice));
  if (!json.is_object()) fail(fmt::format("expected a JSON object, found {}", json.type_name()));
  return json;
}

const std::string& string_of(const Json& json, std::string_view what) {
  if (!json.is_string()) fail(fmt::format("{}: expected text, found {}", what, json.type_name()));
  return json.get_ref<const std::string&>();
}

constexpr std::pair<std::string_view, ManifestKind> kKinds[] = {
    {"expression", ManifestKind::function},
    {"program", ManifestKind::program},
    {"kernel", ManifestKind::kernel},
};

constexpr std::pair<std::string_view, KernelParameter::Kind> kParameterKinds[] = {
    {"reads and writes ", KernelParameter::Kind::reads_and_writes},
    {"reads ", KernelParameter::Kind::reads},
    {"writes ", KernelParameter::Kind::writes},
    {"", KernelParameter::Kind::scalar},
};

std::string parameter_text(const KernelParameter& parameter) {
  const auto kind = std::ranges::find(kParameterKinds, parameter.kind,
                                      &std::pair<std::string_view, KernelParameter::Kind>::second);
  return fmt::format("{}{}", kind->first, name(parameter.dtype));
}

std::vector<KernelParameter> parse_parameters(const Json& json) {
  if (!json.is_array())
    fail(fmt::format("parameters: expected an array, found {}", json.type_name()));
  std::vector<KernelParameter> parameters;
  for (const Json& value : json) {
    const std::string& text = string_of(value, "parameters");
    const auto [word, kind] = *std::ranges::find_if(
        kParameterKinds, [&](const auto& entry) { return text.starts_with(entry.first); });
    const std::string whole = fmt::format("parameters: {}", text);
    parameters.push_back(
        {kind, parse_dtype_name(std::string_view(text).substr(word.size()), whole)});
  }
  return parameters;
}

template <class Value, std::size_t N>
Value choice(const Json& json, std::string_view what,
             const std::array<std::pair<std::string_view, Value>, N>& choices) {
  const std::string& text = string_of(json, what);
  std::vector<std::string_view> words;
  for (const auto& [word, value] : choices) {
    if (text == word) return value;
    words.push_back(word);
  }
  fail(fmt::format("{}: expected {}, found '{}'", what, fmt::join(words, " or "), text));
}

Options parse_options(const Json& json) {
  if (!json.is_object())
    fail(fmt::format("options: expected an object, found {}", json.type_name()));
  Options options;
  for (const auto& [key, value] : json.items()) {
    if (key == "round") {
      options.rounding = choice(value, "options: round", kRoundings);
    } else if (key == "accuracy") {
      options.accuracy = choice(value, "options: accuracy", kAccuracies);
    } else {
      fail(fmt::format("options: expected round or accuracy, found '{}'", key));
    }
  }
  return options;
}

std::vector<ArgumentSpec> parse_types(const Json& json) {
  if (!json.is_object()) fail(fmt::format("types: expected an object, found {}", json.type_name()));
  std::vector<ArgumentSpec> types;
  for (const auto& [name, value] : json.items()) {
    types.push_back(parse_type(name, string_of(value, fmt::format("types: {}", name))));
  }
  return types;
}

// Dtypes only, or layouts as well: one without the other would leave the rest open.
void parse_outputs(const Json& json, Specification& specification) {
  if (!json.is_array()) fail(fmt::format("outputs: expected an array, found {}", json.type_name()));
  for (const Json& value : json) {
    const ArgumentSpec output = parse_type("outputs", string_of(value, "outputs"));
    if (output.weak) fail(fmt::format("outputs: '{}' is a number", value.get<std::string>()));
    specification.outputs.push_back(output.dtype);
    if (!output.scalar) {
      specification.layouts.push_back(
          {output.shape, output.strides, output.misalignment, output.memory, output.element});
    }
  }
  if (!specification.layouts.empty() &&
      specification.layouts.size() != specification.outputs.size()) {
    fail("outputs: either every output has a shape, or none has");
  }
}

void check_keys(const Json& json, std::span<const std::string> kinds, bool is_kernel) {
  if (kinds.size() > 1) fail(fmt::format("expected one of {}", fmt::join(kinds, " and ")));
  if (kinds.empty()) fail("'expression' is missing");
  for (const char* key : {"name", is_kernel ? "parameters" : "types"}) {
    if (!json.contains(key)) fail(fmt::format("'{}' is missing", key));
  }
  const auto refuse = [&](const char* key) {
    if (json.contains(key)) fail(fmt::format("'{}' does not go with '{}'", key, kinds[0]));
  };
  if (!is_kernel) return refuse("parameters");
  refuse("types");
  refuse("outputs");
}

ManifestLine parse_line(std::string_view line) {
  const Json json = parse_object(line);
  ManifestLine parsed;
  std::vector<std::string> kinds;
  for (const auto& [key, value] : json.items()) {
    const auto kind =
        std::ranges::find(kKinds, key, &std::pair<std::string_view, ManifestKind>::first);
    if (kind != std::end(kKinds)) {
      kinds.push_back(key);
      parsed.kind = kind->second;
      parsed.text = string_of(value, key);
    } else if (key == "name") {
      parsed.name = string_of(value, "name");
    } else if (key == "types") {
      parsed.specification.arguments = parse_types(value);
    } else if (key == "options") {
      parsed.options = parse_options(value);
    } else if (key == "outputs") {
      parse_outputs(value, parsed.specification);
    } else if (key == "parameters") {
      parsed.parameters = parse_parameters(value);
    } else {
      fail(
          fmt::format("expected name, expression, program, kernel, types, options, outputs or "
                      "parameters, found '{}'",
                      key));
    }
  }
  check_keys(json, kinds, parsed.kind == ManifestKind::kernel);
  if (parsed.name.empty()) fail("name: is empty");
  return parsed;
}

}  // namespace

ArgumentSpec parse_type(std::string_view name, std::string_view text) {
  constexpr std::string_view kWeak = "weak ";
  const std::string whole = fmt::format("{}: {}", name, text);
  ArgumentSpec result;
  result.name = std::string(name);
  const std::size_t open = text.find('[');
  if (open == text.npos) {
    result.scalar = true;
    result.weak = text.starts_with(kWeak);
    if (result.weak) text.remove_prefix(kWeak.size());
    result.dtype = parse_dtype_name(text, whole);
    return result;
  }
  result.dtype = parse_dtype_name(text.substr(0, open), whole);
  const std::size_t close = text.find(']', open);
  if (close == text.npos) fail(fmt::format("'{}': expected ']'", whole));
  result.shape = parse_integers(text.substr(open + 1, close - open - 1), whole, 0);
  text.remove_prefix(close + 1);
  if (const std::size_t at = text.find('&'); at != text.npos) {
    const Dims place = parse_integers(text.substr(at + 1), whole, 0);
    if (place.size() != 2 || place[0] < 1 || place[0] > UINT32_MAX) {
      fail(fmt::format("'{}': expected a memory's number from 1 on and an element after '&'",
                       whole));
    }
    result.memory = static_cast<std::uint32_t>(place[0]);
    result.element = place[1];
    text = text.substr(0, at);
  }
  if (const std::size_t plus = text.find('+'); plus != text.npos) {
    const Dims bytes = parse_integers(text.substr(plus + 1), whole, 0);
    if (bytes.size() != 1 || bytes[0] > 15) {
      fail(fmt::format("'{}': expected 0 to 15 bytes after '+'", whole));
    }
    result.misalignment = static_cast<std::uint32_t>(bytes[0]);
    text = text.substr(0, plus);
  }
  if (text.empty()) return result;
  if (text.front() != '@') {
    fail(fmt::format("'{}': expected '@' and strides after ']', found '{}'", whole, text));
  }
  result.strides = parse_integers(text.substr(1), whole, INT64_MIN);
  if (result.strides.size() != result.shape.size()) {
    fail(fmt::format("'{}': {} strides for {} axes", whole, result.strides.size(),
                     result.shape.size()));
  }
  return result;
}

std::string type_text(const ArgumentSpec& argument) {
  if (argument.scalar) {
    return fmt::format("{}{}", argument.weak ? "weak " : "", name(argument.dtype));
  }
  return array_text(argument.dtype, argument.shape, argument.strides, argument.misalignment,
                    argument.memory, argument.element);
}

Manifest parse_manifest(std::string_view text) {
  Manifest manifest;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    try {
      manifest.lines.push_back(parse_line(line));
      manifest.lines.back().number = number;
    } catch (const Error& error) {
      manifest.problems.push_back({number, error.what()});
    }
  }
  return manifest;
}

std::string manifest_line(const ManifestLine& line) {
  const auto kind =
      std::ranges::find(kKinds, line.kind, &std::pair<std::string_view, ManifestKind>::second);
  Json json = {{"name", line.name}, {kind->first, line.text}};
  if (line.kind == ManifestKind::kernel) {
    json["parameters"] = Json::array();
    for (const KernelParameter& parameter : line.parameters) {
      json["parameters"].push_back(parameter_text(parameter));
    }
  } else {
    json["types"] = Json::object();
    for (const ArgumentSpec& argument : line.specification.arguments) {
      json["types"][argument.name] = type_text(argument);
    }
  }
  json["options"] = {{"round", name(line.options.rounding)},
                     {"accuracy", name(line.options.accuracy)}};
  for (std::size_t i = 0; i < line.specification.outputs.size(); ++i) {
    const DType dtype = line.specification.outputs[i];
    if (line.specification.layouts.empty()) {
      json["outputs"].push_back(name(dtype));
    } else {
      const OutputSpec& layout = line.specification.layouts[i];
      json["outputs"].push_back(array_text(dtype, layout.shape, layout.strides, layout.misalignment,
                                           layout.memory, layout.element));
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kiln::files
