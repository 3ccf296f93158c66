#include "fallback/general_text.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/emit.hpp"

namespace kiln {
namespace {

using fusion::storage_type;

// The types of `move`: bits that only move are those of an integer; a c64 need not be aligned as
// one of 64 bits is.
constexpr std::array<std::string_view, 6> kMoved = {"u8", "u16", "u32", "u64", "c64", "nibble"};

std::size_t move_type(DType dtype) {
  if (dtype == DType::c64) return 4;
  switch (bits(dtype)) {
    case 4: return 5;
    case 8: return 0;
    case 16: return 1;
    case 32: return 2;
    default: return 3;
  }
}

struct KernelParameterText {
  std::string type;
  std::string name;
};
using Parameters = std::vector<KernelParameterText>;

KernelParameterText pointer(std::string_view name, bool written) {
  return {written ? "void*" : "const void*", std::string(name)};
}
KernelParameterText number(std::string_view type, std::string_view name) {
  return {std::string(type), std::string(name)};
}

Parameters parameters_of(GeneralKernel::Kind kind) {
  switch (kind) {
    case GeneralKernel::Kind::move: {
      Parameters list = {
          pointer("array", true),   pointer("value", true),        number("u64", "first"),
          number("u64", "count"),   number("u64", "bits"),         number("u32", "what"),
          pointer("places", false), number("i64", "place_stride"), number("i64", "place_count"),
          number("u32", "rank"),    number("i64", "outer")};
      for (std::size_t k = 0; k + 1 < kMostMovedAxes; ++k) {
        list.push_back(number("u64", fmt::format("size{}", k)));
        list.push_back(number("i64", fmt::format("stride{}", k)));
      }
      return list;
    }
    case GeneralKernel::Kind::convert:
      return {pointer("from", false), pointer("result", true), number("u64", "count"),
              number("u32", "what")};
    case GeneralKernel::Kind::map:
      return {pointer("a", false),     pointer("b", false),    pointer("c", false),
              pointer("result", true), number("u64", "count"), number("u32", "what")};
    case GeneralKernel::Kind::along: break;
  }
  return {pointer("from", false),  pointer("places", false),       pointer("before", false),
          pointer("result", true), pointer("result_places", true), number("u64", "count"),
          number("u64", "length"), number("u64", "part"),          number("u64", "parts"),
          number("u64", "chunks"), number("u64", "apart"),         number("u32", "element_log2"),
          number("u32", "what")};
}

// ---- Moves -------------------------------------------------------------------------------------

// A function of the device that says where an element is, whose place in C order is `rest`. Axes
// count from the innermost one.
std::string strided_place_function() {
  std::string list = "u64 rest, u32 rank, i64 outer";
  std::string text;
  for (std::size_t k = 0; k + 1 < kMostMovedAxes; ++k) {
    list += fmt::format(", u64 size{0}, i64 stride{0}", k);
    text += fmt::format(
        "  if (rank > {0}) {{\n    const u64 quotient = rest / size{1};\n"
        "    at += i64(rest - quotient * size{1}) * stride{1};\n    rest = quotient;\n  }}\n",
        k + 1, k);
  }
  return fmt::format(
      "KILN_FN i64 strided_place({}) {{\n  i64 at = 0;\n{}  return at + i64(rest) * outer;\n}}\n\n",
      list, text);
}

// Where the item's element is.
std::string strided_place() {
  std::string call = "    i64 at = strided_place(first + item, rank, outer";
  for (std::size_t k = 0; k + 1 < kMostMovedAxes; ++k) {
    call += fmt::format(", size{0}, stride{0}", k);
  }
  return call + ");\n";
}

// Where it is if data says a place along another axis: `there` if that is one.
std::string data_place(bool at_places) {
  if (!at_places) return "";
  return "        const i64 place = ((const i64*)places)[item];\n"
         "        const bool there = is_place(place, place_count);\n"
         "        at += place_offset(there, place, place_stride);\n";
}

// Elements of four bits are `bits` more, 0 or 1, from the array's address. Two items may write to
// one byte, so each changes its half by itself.
std::string load_nibble(bool at_places) {
  return data_place(at_places) +
         fmt::format(
             "        at += i64(bits);\n"
             "        const u8 pair = {}((const u8*)array)[at >> 1]{};\n"
             "        ((u8*)value)[item] = u8((at & 1) == 0 ? pair & 15 : pair >> 4);\n",
             at_places ? "there ? " : "", at_places ? " : u8(0)" : "");
}
std::string store_nibble(bool at_places) {
  const std::string when = at_places ? "if (there) " : "";
  return data_place(at_places) +
         "        at += i64(bits);\n"
         "        const u64 byte = u64(array) + u64(at >> 1);\n"
         "        u32* const word = (u32*)(byte & ~u64(3));\n"
         "        const u32 shift = u32(byte & 3) * 8 + u32(at & 1) * 4;\n"
         "        const u32 others = ~(u32(15) << shift);\n"
         "        const u32 own = u32(((const u8*)value)[item]) << shift;\n"
         "#if KILN_NVIDIA\n"
         "        " +
         when +
         "atomicAnd(word, others);\n"
         "        " +
         when +
         "atomicOr(word, own);\n"
         "#else\n"
         "        " +
         when +
         "__atomic_fetch_and(word, others, __ATOMIC_RELAXED);\n"
         "        " +
         when +
         "__atomic_fetch_or(word, own, __ATOMIC_RELAXED);\n"
         "#endif\n";
}

std::string load_element(std::string_view type, bool at_places) {
  if (type == "nibble") return load_nibble(at_places);
  const std::string element = fmt::format("((const {}*)array)[at]", type);
  return data_place(at_places) +
         fmt::format("        (({0}*)value)[item] = {1};\n", type,
                     at_places ? fmt::format("there ? {} : {}{{}}", element, type) : element);
}
std::string store_element(std::string_view type, bool at_places) {
  if (type == "nibble") return store_nibble(at_places);
  return data_place(at_places) + fmt::format(
                                     "        {1}(({0}*)array)[at] = ((const "
                                     "{0}*)value)[item];\n",
                                     type, at_places ? "if (there) " : "");
}

std::string filled(std::string_view type) {
  if (type == "c64") {
    return "        ((c64*)value)[item] = c64{bit_cast<f32>(u32(bits)), bit_cast<f32>(u32(bits >> "
           "32))};\n";
  }
  return fmt::format("        (({0}*)value)[item] = {0}(bits);\n", type);
}

}  // namespace

std::string kernel_text(std::string_view comment, GeneralKernel::Kind kind,
                        std::span<const KernelCase> cases, std::string_view functions,
                        std::string_view item) {
  const Parameters parameters = parameters_of(kind);
  std::string list;
  std::string values;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [type, name] = parameters[i];
    list += fmt::format("{}{} {}", i == 0 ? "" : ", ", type, name);
    values += fmt::format("\n      , *({}*)arguments[{}]", type, i);
  }
  std::string text = fmt::format("// {}\nnamespace kiln {{\n\n{}KILN_KERNEL(256, {}, {}) {{\n",
                                 comment, functions, fusion::kEntryMarker, list);
  constexpr std::string_view kLoop = "KILN_FOR_EACH_WORK_ITEM(u64, 256, item, count) {";
  if (!item.empty()) text += fmt::format("  {}\n{}", kLoop, item);
  text += "  switch (what) {\n";
  for (const KernelCase& one : cases) {
    text += fmt::format("    case {}: {{  // {}\n", one.code, one.comment);
    text += item.empty() ? fmt::format("      {}\n{}      }}\n", kLoop, one.body) : one.body;
    text += "      break;\n    }\n";
  }
  if (!item.empty()) text += "  }\n";
  text += fmt::format(
      "  }}\n}}\n\n}}  // namespace kiln\n\n#if KILN_HOST\n"
      "extern \"C\" void {0}(void* const* arguments, kiln::u64 begin, kiln::u64 end) {{\n"
      "  using namespace kiln;\n  {0}_range(begin, end{1}\n  );\n}}\n#endif\n",
      fusion::kEntryMarker, values);
  return text;
}

std::string loaded(DType dtype, std::string_view pointer) {
  if (is_packed(dtype)) {
    return fmt::format("bit_cast<{}>(((const u8*){})[item])", name(dtype), pointer);
  }
  return fmt::format("((const {}*){})[item]", storage_type(dtype), pointer);
}
std::string stored(DType dtype, std::string_view pointer, std::string_view value) {
  if (is_packed(dtype)) {
    return fmt::format("((u8*){})[item] = bit_cast<u8>(to<{}>({}));", pointer, name(dtype), value);
  }
  return fmt::format("(({}*){})[item] = to<{}>({});", storage_type(dtype), pointer,
                     storage_type(dtype), value);
}

std::string move_text() {
  std::vector<KernelCase> cases;
  for (std::size_t i = 0; i < kMoved.size(); ++i) {
    const std::string_view type = kMoved[i];
    const auto add = [&](GeneralMove what, std::string_view comment, std::string body) {
      const std::size_t code = static_cast<std::size_t>(what) * kMoved.size() + i;
      cases.push_back(
          {static_cast<std::uint32_t>(code), fmt::format("{} {}", comment, type), std::move(body)});
    };
    add(GeneralMove::load, "load", load_element(type, false));
    add(GeneralMove::store, "store", store_element(type, false));
    add(GeneralMove::load_at, "load at places", load_element(type, true));
    add(GeneralMove::store_at, "store at places", store_element(type, true));
    if (type != "nibble") add(GeneralMove::fill, "fill", filled(type));
  }
  cases.push_back({move_code(GeneralMove::index, DType::i64), "index",
                   "        ((i64*)value)[item] = at + i64(bits);\n"});
  return kernel_text("Elements of arrays with any strides to and from C order",
                     GeneralKernel::Kind::move, cases, strided_place_function(), strided_place());
}

std::uint32_t move_code(GeneralMove what, DType dtype) {
  return static_cast<std::uint32_t>(static_cast<std::size_t>(what) * kMoved.size() +
                                    move_type(dtype));
}

}  // namespace kiln
