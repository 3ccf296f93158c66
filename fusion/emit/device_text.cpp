#include "fusion/emit/device_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {
namespace {

template <class Float>
std::string float_literal(Float value, std::string_view suffix) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + std::string(suffix);
}

}  // namespace

std::string_view storage_type(DType dtype) { return dtype == DType::boolean ? "b8" : name(dtype); }

std::string_view compute_type(DType dtype) { return name(compute_dtype(dtype)); }

std::string comment_text(std::string_view text) {
  constexpr std::size_t kMost = 400;
  std::string line(text.substr(0, kMost));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  if (text.size() > kMost) line += " ...";
  // A compiler joins the next line to one that ends in a backslash, even with spaces after it.
  const std::size_t last = line.find_last_not_of(' ');
  if (last != std::string::npos && line[last] == '\\') line += '.';
  return line;
}

std::string constant_text(const TypedNode& node, Rounding rounding) {
  const DType dtype = node.dtype;
  if (is_narrow_float(dtype) && rounding == Rounding::each) {
    return fmt::format("to<f32>(bit_cast<{}>(u16({:#06x})))", name(dtype), node.payload);
  }
  if (compute_dtype(dtype) == DType::f32) {
    const auto bits = static_cast<std::uint32_t>(node.payload);
    const auto value = std::bit_cast<float>(bits);
    if (std::isfinite(value)) return float_literal(value, "f");
    return fmt::format("bit_cast<f32>({:#010x}u)", bits);
  }
  if (dtype == DType::f64) {
    const auto value = std::bit_cast<double>(node.payload);
    if (std::isfinite(value)) return float_literal(value, "");
    return fmt::format("bit_cast<f64>({:#018x}ull)", node.payload);
  }
  if (dtype == DType::boolean) return node.payload != 0 ? "true" : "false";
  if (dtype == DType::c64) {
    return fmt::format("c64{{bit_cast<f32>({:#010x}u), bit_cast<f32>({:#010x}u)}}",
                       static_cast<std::uint32_t>(node.payload),
                       static_cast<std::uint32_t>(node.payload >> 32));
  }
  if (kind(dtype) == Kind::unsigned_integer)
    return fmt::format("{}({}ull)", compute_type(dtype), node.payload);
  const int shift = 64 - bits(dtype);
  const std::int64_t value = static_cast<std::int64_t>(node.payload << shift) >> shift;
  if (value == INT64_MIN) return "i64(-9223372036854775807ll - 1)";
  return fmt::format("{}({}ll)", compute_type(dtype), value);
}

}  // namespace kiln::fusion
