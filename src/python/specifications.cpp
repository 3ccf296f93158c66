#include "python/specifications.hpp"

#include <charconv>
#include <string_view>

#include "kiln/error.hpp"
#include "python/arrays.hpp"
#include "python/objects.hpp"

namespace kiln::python {
namespace {

[[noreturn]] void fail_type(const std::string& function, const std::string& given) {
  throw Error(Code::invalid_argument,
              function +
                  ": expected a type such as \"bf16[63,172]\" or \"f32\" for a number, got \"" +
                  given + "\"");
}

ArgumentSpec parse_type(const std::string& text, const std::string& function) {
  ArgumentSpec spec;
  const std::size_t bracket = text.find('[');
  const auto dtype = parse_dtype(std::string_view(text).substr(0, bracket));
  if (!dtype) fail_type(function, text);
  spec.dtype = *dtype;
  if (bracket == std::string::npos) {
    spec.scalar = true;
    return spec;
  }
  if (text.back() != ']') fail_type(function, text);
  std::vector<std::int64_t> shape;
  const char* at = text.data() + bracket + 1;
  const char* const end = text.data() + text.size() - 1;
  while (at != end) {
    while (at != end && *at == ' ') ++at;
    std::int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 0 || (next != end && *next != ',')) {
      fail_type(function, text);
    }
    shape.push_back(extent);
    at = next == end ? end : next + 1;
  }
  spec.shape = Dims(std::span<const std::int64_t>(shape));
  return spec;
}

}  // namespace

ArgumentSpec specification_of(const Argument& argument, const std::string& name) {
  ArgumentSpec spec;
  spec.name = name;
  if (argument.is_scalar()) {
    spec.dtype = argument.scalar().dtype();
    spec.scalar = true;
    spec.weak = argument.scalar().weak();
    return spec;
  }
  const View& view = argument.view();
  spec.dtype = view.dtype();
  spec.shape = view.shape();
  spec.strides = view.strides();
  spec.misalignment =
      static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(view.data()) % 16);
  return spec;
}

Specification specification_of(const nanobind::tuple& operands,
                               const std::vector<std::string>& names, const std::string& function) {
  if (operands.size() != names.size()) {
    throw Error(Code::invalid_argument, function + ": expected " + std::to_string(names.size()) +
                                            " arguments, got " + std::to_string(operands.size()));
  }
  Specification specification;
  Arrays views(function);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const nanobind::object operand = operands[i];
    if (PyUnicode_Check(operand.ptr())) {
      specification.arguments.push_back(parse_type(text_of(operand.ptr()), function));
      specification.arguments.back().name = names[i];
    } else if (std::optional<Scalar> scalar = scalar_of(operand.ptr())) {
      specification.arguments.push_back(specification_of(*scalar, names[i]));
    } else {
      specification.arguments.push_back(
          specification_of(views.view(operand.ptr(), {names[i]}, Access::read), names[i]));
    }
  }
  return specification;
}

}  // namespace kiln::python
