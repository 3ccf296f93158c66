// Comparisons: the relation of two values, or the class of a float.
#include "tests/amd/isa/lanewise.hpp"

namespace kiln::amd {
namespace {

// A bit of the variant for each relation that it accepts.
enum Relation : u32 { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

constexpr auto relation = [](auto x, auto y) -> u32 {
  const u32 code = (x < y ? kLess : 0U) | (x == y ? kEqual : 0U) | (x > y ? kGreater : 0U);
  return code == 0 ? kUnordered : code;
};

// Whether the class, by bits as the ISA numbers them, is one of those asked for.
template <int kWidth, int kFraction>
constexpr auto is_of_class = [](auto bits, u32 wanted) -> u32 {
  const u64 wide = bits;
  const bool negative = (wide >> (kWidth - 1) & 1) != 0;
  const u64 fraction = wide & ((u64{1} << kFraction) - 1);
  constexpr u64 kTop = (u64{1} << (kWidth - 1 - kFraction)) - 1;
  const u64 exponent = wide >> kFraction & kTop;
  const bool quiet = (fraction >> (kFraction - 1) & 1) != 0;
  const u32 found = exponent == kTop && fraction != 0 ? (quiet ? 0x002 : 0x001)
                    : exponent == kTop                ? (negative ? 0x004 : 0x200)
                    : exponent != 0                   ? (negative ? 0x008 : 0x100)
                    : fraction != 0                   ? (negative ? 0x010 : 0x080)
                                                      : (negative ? 0x020 : 0x040);
  return (found & wanted) != 0 ? 1 : 0;
};

VectorEntry comparison(VectorEntry entry) {
  entry.execute = &run_comparison;
  return entry;
}

const VectorRow kTypes[] = {
    {"f16", comparison(lanewise<B32, F16, F16>(relation))},
    {"f32", comparison(lanewise<B32, F32, F32>(relation))},
    {"f64", comparison(lanewise<B32, F64, F64>(relation))},
    {"i16", comparison(lanewise<B32, I16, I16>(relation))},
    {"u16", comparison(lanewise<B32, B16, B16>(relation))},
    {"i32", comparison(lanewise<B32, I32, I32>(relation))},
    {"u32", comparison(lanewise<B32, B32, B32>(relation))},
    {"i64", comparison(lanewise<B32, I64, I64>(relation))},
    {"u64", comparison(lanewise<B32, B64, B64>(relation))},
};
// Of the mask, ten bits count: nothing of the upper half, which gfx11 may have something else in.
const VectorRow kClasses[] = {
    {"f16", comparison(lanewise<B32, B16, B16>(is_of_class<16, 10>))},
    {"f32", comparison(lanewise<B32, B32, B16>(is_of_class<32, 23>))},
    {"f64", comparison(lanewise<B32, B64, B16>(is_of_class<64, 52>).of_doubles())},
};

struct NamedRelation {
  std::string_view name;
  u32 bits;
};
constexpr NamedRelation kRelations[] = {
    {"f", 0},    {"lt", 1},   {"eq", 2},   {"le", 3},   {"gt", 4},   {"lg", 5},
    {"ge", 6},   {"o", 7},    {"u", 8},    {"nge", 9},  {"nlg", 10}, {"ngt", 11},
    {"nle", 12}, {"neq", 13}, {"nlt", 14}, {"tru", 15}, {"t", 15},   {"ne", 13}};

const VectorEntry* find(std::span<const VectorRow> rows, std::string_view type) {
  for (const VectorRow& row : rows) {
    if (row.names == type) return &row.entry;
  }
  return nullptr;
}

}  // namespace

const VectorEntry* find_comparison(std::string_view name, u32& variant) {
  const std::size_t underscore = name.rfind('_');
  if (underscore == name.npos) return nullptr;
  const std::string_view type = name.substr(underscore + 1);
  name = name.substr(0, underscore);
  if (name == "class") {
    variant = 1;
    return find(kClasses, type);
  }
  for (const NamedRelation& known : kRelations) {
    if (known.name != name) continue;
    variant = known.bits;
    return find(kTypes, type);
  }
  return nullptr;
}

}  // namespace kiln::amd
