#include "tool/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>

#include "files/manifest.hpp"
#include "kiln/error.hpp"

namespace kiln::tool {
namespace {

template <class T>
bool parses_as(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Assignment parse_assignment(std::string_view option, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos || equals == 0 || equals + 1 == text.size()) {
    throw UsageError(fmt::format("{} {}: expected NAME=VALUE", option, text));
  }
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

std::vector<Assignment> parse_assignments(std::string_view option,
                                          const std::vector<std::string>& texts) {
  std::vector<Assignment> result;
  for (const std::string& text : texts) {
    Assignment next = parse_assignment(option, text);
    for (const Assignment& other : result) {
      if (other.name == next.name) {
        throw UsageError(fmt::format("{} {}: '{}' was given before", option, text, next.name));
      }
    }
    result.push_back(std::move(next));
  }
  return result;
}

DType parse_dtype_option(std::string_view option, std::string_view text) {
  if (const auto dtype = parse_dtype(text)) return *dtype;
  std::vector<std::string_view> names;
  for (const DTypeInfo& entry : kDTypes) names.push_back(entry.name);
  throw UsageError(
      fmt::format("{}: '{}' is no dtype; expected one of {}", option, text, fmt::join(names, " ")));
}

ArgumentSpec parse_argument_spec(std::string_view text) {
  const Assignment parts = parse_assignment("--type", text);
  try {
    return files::parse_type(parts.name, parts.value);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--type {}", error.what()));
  }
}

Dims parse_shape(std::string_view text) {
  try {
    return files::parse_type("--shape", fmt::format("f32[{}]", text)).shape;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

Scalar parse_scalar(const std::string& name, std::string_view text) {
  if (text == "True" || text == "true") return Scalar(true);
  if (text == "False" || text == "false") return Scalar(false);
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  double number = 0;
  if (parses_as(text, integer)) return Scalar(integer);
  if (parses_as(text, natural)) return Scalar(natural);
  if (parses_as(text, number)) return Scalar(number);
  throw UsageError(fmt::format("--scalar {}={}: expected a number, True or False", name, text));
}

std::vector<std::string> parse_targets(const std::vector<std::string>& texts) {
  std::vector<std::string> result;
  for (const std::string_view text : texts) {
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t comma = std::min(text.find(',', at), text.size());
      const std::string_view part = text.substr(at, comma - at);
      const bool feature = !result.empty() && at > 0 && result.back().find(':') != text.npos &&
                           !result.back().starts_with("gfx") && !part.starts_with("gfx") &&
                           !part.starts_with("sm_") && part != "cpu";
      if (part.empty()) throw UsageError(fmt::format("--target {}: an empty name", text));
      if (feature) {
        result.back() += fmt::format(",{}", part);
      } else {
        result.emplace_back(part);
      }
      at = comma + 1;
    }
  }
  return result;
}

Function parse_function(const ExpressionOptions& options) {
  std::string text = options.text;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  try {
    return parse(options.name, text, options.options);
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument) throw;
    throw UsageError(error.what());
  }
}

std::vector<std::string> named_outputs(const Function& function) {
  std::vector<std::string> names = output_names(function);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = names.size() == 1 ? "out" : fmt::format("out{}", i);
  }
  return names;
}

std::vector<DType> output_dtypes(const Function& function, Specification specification,
                                 const std::vector<std::string>& names,
                                 const std::vector<std::string>& texts) {
  specification.outputs.clear();
  std::vector<DType> result = output_types(function, specification).dtypes;
  for (const Assignment& choice : parse_assignments("--type-out", texts)) {
    const auto found = std::find(names.begin(), names.end(), choice.name);
    if (found == names.end()) {
      throw UsageError(fmt::format("--type-out {}: there is no output '{}'; the outputs are {}",
                                   choice.name, choice.name, fmt::join(names, ", ")));
    }
    result[static_cast<std::size_t>(found - names.begin())] =
        parse_dtype_option("--type-out", choice.value);
  }
  return result;
}

Specification parse_specification(const Function& function, const KernelOptions& options) {
  Specification result;
  result.shape = parse_shape(options.shape);
  for (const std::string& text : options.types) {
    result.arguments.push_back(parse_argument_spec(text));
  }
  parse_assignments("--type", options.types);  // each name once
  for (const std::string& name : argument_names(function)) {
    const bool given = std::any_of(result.arguments.begin(), result.arguments.end(),
                                   [&](const ArgumentSpec& spec) { return spec.name == name; });
    if (!given) {
      throw UsageError(
          fmt::format("the expression reads '{}': give --type {}=DTYPE[SHAPE], or "
                      "--type {}=DTYPE for a number",
                      name, name, name));
    }
  }
  result.outputs = output_dtypes(function, result, named_outputs(function), options.dtypes);
  return result;
}

}  // namespace kiln::tool
