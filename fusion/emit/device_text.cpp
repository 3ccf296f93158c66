#include "fusion/emit/device_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {
namespace {

// Words that a local variable must not be called in device code.
const std::set<std::string, std::less<>>& reserved_words() {
  static const auto* const words = [] {
    auto* set = new std::set<std::string, std::less<>>{"alignas",
                                                       "alignof",
                                                       "and",
                                                       "asm",
                                                       "auto",
                                                       "break",
                                                       "case",
                                                       "catch",
                                                       "char",
                                                       "class",
                                                       "const",
                                                       "constexpr",
                                                       "continue",
                                                       "default",
                                                       "delete",
                                                       "do",
                                                       "double",
                                                       "else",
                                                       "enum",
                                                       "explicit",
                                                       "export",
                                                       "extern",
                                                       "false",
                                                       "float",
                                                       "for",
                                                       "friend",
                                                       "goto",
                                                       "if",
                                                       "inline",
                                                       "int",
                                                       "long",
                                                       "mutable",
                                                       "namespace",
                                                       "new",
                                                       "noexcept",
                                                       "not",
                                                       "nullptr",
                                                       "operator",
                                                       "or",
                                                       "private",
                                                       "protected",
                                                       "public",
                                                       "register",
                                                       "return",
                                                       "short",
                                                       "signed",
                                                       "sizeof",
                                                       "static",
                                                       "struct",
                                                       "switch",
                                                       "template",
                                                       "this",
                                                       "throw",
                                                       "true",
                                                       "try",
                                                       "typedef",
                                                       "typename",
                                                       "union",
                                                       "unsigned",
                                                       "using",
                                                       "virtual",
                                                       "void",
                                                       "volatile",
                                                       "while",
                                                       "xor",
                                                       "compl",
                                                       "bitand",
                                                       "bitor",
                                                       "item",
                                                       "lane",
                                                       "lanes",
                                                       "width",
                                                       "start",
                                                       "first",
                                                       "size",
                                                       "for_each_vector",
                                                       "for_each_part",
                                                       "load_halves",
                                                       "half_results",
                                                       "put_halves",
                                                       "f16_lane",
                                                       "part",
                                                       "join_lane",
                                                       "next_work_item",
                                                       "work_items",
                                                       "columns",
                                                       "column",
                                                       "rows",
                                                       "strip",
                                                       "strips",
                                                       "top",
                                                       "left",
                                                       "at",
                                                       "extent",
                                                       "fill",
                                                       "below",
                                                       "from_tile",
                                                       "ask_for",
                                                       "ask_for_row",
                                                       "load_tiled",
                                                       "hold",
                                                       "from_held",
                                                       "turn",
                                                       "for_each_tile_vector",
                                                       "row",
                                                       "to",
                                                       "load",
                                                       "store",
                                                       "gather",
                                                       "to_rounded",
                                                       "quotient_of_integer",
                                                       "quotient_or_zero",
                                                       "load_apart",
                                                       "store_apart",
                                                       "gather_apart",
                                                       "scatter_apart",
                                                       "for_each_vector_apart",
                                                       "first_of",
                                                       "random_words",
                                                       "packed",
                                                       "element",
                                                       "scatter",
                                                       "results",
                                                       "divide",
                                                       "narrow",
                                                       "fast",
                                                       "strict",
                                                       "b8",
                                                       "Vec",
                                                       "linux",
                                                       "unix",
                                                       "kiln_begin",
                                                       "kiln_end",
                                                       "blockIdx",
                                                       "blockDim",
                                                       "slot",
                                                       "vector",
                                                       "vectors",
                                                       "length",
                                                       "row_count",
                                                       "wanted",
                                                       "active",
                                                       "line",
                                                       "reduce",
                                                       "fold",
                                                       "joined",
                                                       "Lanes",
                                                       "Slots",
                                                       "Found",
                                                       "threadIdx",
                                                       "gridDim",
                                                       "warpSize",
                                                       "thread",
                                                       "head",
                                                       "at_end",
                                                       "one",
                                                       "batch",
                                                       "step",
                                                       "held",
                                                       "piece",
                                                       "pieces",
                                                       "begin",
                                                       "end",
                                                       "rest",
                                                       "unit",
                                                       "memory",
                                                       "own_count"};
    for (const OpInfo& op : all_ops()) set->emplace(op.name);
    for (const DTypeInfo& dtype : kDTypes) set->emplace(dtype.name);
    return set;
  }();
  return *words;
}

// What emit makes of an operand's or an axis's name: x_data, x_stride_0, at_1.
bool is_derived(std::string_view name) {
  const std::size_t at = name.rfind('_');
  if (at == std::string_view::npos || at + 1 == name.size()) return false;
  const std::string_view end = name.substr(at + 1);
  return end == "data" || end == "lanes" || end == "bits" || end == "tile" || end == "row" ||
         end == "held" || end == "stored" || end == "own" || end == "centre" || end == "moved" ||
         end == "kept" || end == "batch" || end == "end" || end == "all" || end == "slots" ||
         end == "value" || end.find_first_not_of("0123456789") == std::string_view::npos;
}

template <class Float>
std::string float_literal(Float value, std::string_view suffix) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + std::string(suffix);
}

}  // namespace

std::string_view storage_type(DType dtype) { return dtype == DType::boolean ? "b8" : name(dtype); }

std::string_view compute_type(DType dtype) { return name(compute_dtype(dtype)); }

std::string identifier(std::string_view wanted, std::string_view fallback,
                       std::set<std::string>& taken) {
  std::string base;
  for (const char c : wanted.substr(0, 48)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    base += letter ? c : '_';
  }
  const bool starts_well = !base.empty() && base[0] != '_' && !(base[0] >= '0' && base[0] <= '9');
  if (!starts_well) base = fallback;
  if (reserved_words().contains(base) || is_derived(base)) base += '_';
  std::string candidate = base;
  for (int n = 2; !taken.insert(candidate).second; ++n) candidate = fmt::format("{}_{}", base, n);
  return candidate;
}

std::string comment_text(std::string_view text) {
  constexpr std::size_t kMost = 400;
  std::string line(text.substr(0, kMost));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  if (text.size() > kMost) line += " ...";
  if (!line.empty() && line.back() == '\\') line += ' ';
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

std::string_view device_name(Op op) {
  switch (op) {
    case Op::prod:
    case Op::cumprod: return "Prod";
    case Op::reduce_max:
    case Op::cummax: return "Max";
    case Op::reduce_min: return "Min";
    case Op::reduce_any: return "Any";
    case Op::reduce_all: return "All";
    case Op::argmax: return "ArgMax";
    case Op::argmin: return "ArgMin";
    default: return "Sum";
  }
}

}  // namespace kiln::fusion
