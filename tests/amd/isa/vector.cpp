// Vector instructions: from the text to what executes it. The tables of what each computes are in
// vector_*.cpp; here are operands, modifiers, and the lanes that SDWA and DPP choose.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/amd/isa/lanewise.hpp"
#include "tests/amd/isa/wave.hpp"

namespace kiln::amd {
namespace {

using Table = std::unordered_map<std::string_view, const VectorEntry*>;

const Table& table() {
  static const Table all = [] {
    Table entries;
    for (const auto rows :
         {float_rows(), division_rows(), integer_rows(), conversion_rows(), move_rows()}) {
      for (const VectorRow& row : rows) {
        std::string_view names = row.names;
        while (!names.empty()) {
          const std::size_t end = std::min(names.find(' '), names.size());
          entries.emplace(names.substr(0, end), &row.entry);
          names.remove_prefix(std::min(end + 1, names.size()));
        }
      }
    }
    return entries;
  }();
  return all;
}

std::uint8_t select_of(std::string_view text) {
  static constexpr std::string_view kNames[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                                "WORD_0", "WORD_1", "DWORD"};
  for (std::uint8_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == text) return i;
  }
  throw Fault(fmt::format("unknown part {} of a register", text));
}

void read_sdwa(const Instruction& instruction, Operation& op) {
  op.is_sdwa = true;
  const auto select = [&](std::string_view name, std::uint8_t& to) {
    const auto found = instruction.modifiers.find(name);
    if (found != instruction.modifiers.end()) to = select_of(found->second);
  };
  select("src0_sel", op.source_select[0]);
  select("src1_sel", op.source_select[1]);
  select("dst_sel", op.destination_select);
  const auto unused = instruction.modifiers.find("dst_unused");
  if (unused == instruction.modifiers.end() || unused->second == "UNUSED_PAD") return;
  op.unused = unused->second == "UNUSED_SEXT" ? 1 : 2;
}

// Each gives the lane that `lane` reads, or -1.
bool read_dpp(const Instruction& instruction, int lanes, Operation& op) {
  op.is_dpp = true;
  const auto fill = [&](auto from) {
    for (int lane = 0; lane < lanes; ++lane) {
      op.from[static_cast<std::size_t>(lane)] = static_cast<std::int8_t>(from(lane));
    }
  };
  const auto in_row = [](int lane, int at) { return at < 0 || at > 15 ? -1 : (lane & ~15) | at; };
  op.bound_ctrl = instruction.has("bound_ctrl");
  op.fetch_inactive = instruction.number("fi") != 0;
  const auto rows = static_cast<u64>(instruction.number("row_mask", 15));
  const auto banks = static_cast<u64>(instruction.number("bank_mask", 15));
  op.dpp_rows = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    if ((rows >> (lane / 16) & 1) != 0 && (banks >> (lane / 4 % 4) & 1) != 0) {
      op.dpp_rows |= u64{1} << lane;
    }
  }
  if (const auto perm = instruction.list("quad_perm"); perm && perm->size() == 4) {
    fill([&](int lane) { return (lane & ~3) | (*perm)[static_cast<std::size_t>(lane & 3)]; });
    return true;
  }
  if (const auto perm = instruction.list("dpp8"); perm && perm->size() == 8) {
    fill([&](int lane) { return (lane & ~7) | (*perm)[static_cast<std::size_t>(lane & 7)]; });
    op.bound_ctrl = true;
    return true;
  }
  const auto by = [&](std::string_view name) { return static_cast<int>(instruction.number(name)); };
  if (instruction.has("row_mirror")) {
    fill([](int lane) { return lane ^ 15; });
  } else if (instruction.has("row_half_mirror")) {
    fill([](int lane) { return lane ^ 7; });
  } else if (instruction.has("row_shl")) {
    fill([&](int lane) { return in_row(lane, (lane & 15) + by("row_shl")); });
  } else if (instruction.has("row_shr")) {
    fill([&](int lane) { return in_row(lane, (lane & 15) - by("row_shr")); });
  } else if (instruction.has("row_ror")) {
    fill([&](int lane) { return in_row(lane, ((lane & 15) - by("row_ror")) & 15); });
  } else if (instruction.has("row_newbcast")) {
    fill([&](int lane) { return in_row(lane, by("row_newbcast")); });
  } else if (instruction.has("row_share")) {
    fill([&](int lane) { return in_row(lane, by("row_share")); });
  } else if (instruction.has("row_xmask")) {
    fill([&](int lane) { return in_row(lane, (lane & 15) ^ by("row_xmask")); });
  } else if (instruction.has("row_bcast")) {
    const int last = by("row_bcast");  // 15: of each row to the next; 31: of the lower half
    fill([&](int lane) {
      if (last == 15) return lane < 16 ? -1 : (lane & ~15) - 1;
      return lane < 32 ? -1 : 31;
    });
  } else if (instruction.has("wave_shl") || instruction.has("wave_rol")) {
    const bool turns = instruction.has("wave_rol");
    fill([&](int lane) { return lane + 1 < lanes ? lane + 1 : turns ? 0 : -1; });
  } else if (instruction.has("wave_shr") || instruction.has("wave_ror")) {
    const bool turns = instruction.has("wave_ror");
    fill([&](int lane) { return lane > 0 ? lane - 1 : turns ? lanes - 1 : -1; });
  } else {
    return false;
  }
  return true;
}

std::uint8_t bits_of(const std::vector<int>& list, std::size_t count) {
  std::uint8_t bits = 0;
  for (std::size_t i = 0; i < count && i < list.size(); ++i) {
    if (list[i] != 0) bits = static_cast<std::uint8_t>(bits | 1 << i);
  }
  return bits;
}

// Modifiers that some instruction below has; others make an instruction unknown.
bool all_known(const Instruction& instruction) {
  for (const auto& [name, value] : instruction.modifiers) {
    static constexpr std::string_view kKnown[] = {
        "op_sel",    "op_sel_hi", "neg_lo",    "neg_hi",     "clamp",           "mul",
        "div",       "src0_sel",  "src1_sel",  "dst_sel",    "dst_unused",      "quad_perm",
        "row_shl",   "row_shr",   "row_ror",   "row_mirror", "row_half_mirror", "row_newbcast",
        "row_share", "row_xmask", "row_bcast", "wave_shl",   "wave_shr",        "wave_rol",
        "wave_ror",  "dpp8",      "row_mask",  "bank_mask",  "bound_ctrl",      "bitop3",
        "fi",        "byte_sel"};
    if (std::ranges::find(kKnown, std::string_view(name)) == std::end(kKnown)) return false;
  }
  return true;
}

// What the handler of an entry looks at besides its operands.
u32 variant_of(std::string_view name, const VectorEntry& entry, const Isa& isa,
               const Instruction& instruction, const Operation& op) {
  if (name.starts_with("v_bitop3")) return static_cast<u32>(instruction.number("bitop3"));
  if (name == "v_dot4_i32_iu8") return op.negate_lo;  // which operands are signed
  if (!entry.small_floats) return entry.variant;
  const u32 format = entry.variant | (isa.has_ocp_fp8 ? 2U : 0U);
  if (entry.saturates) return format | (op.clamp ? 4U : 0U);
  if (is_pair(entry.result)) return format | (!op.is_sdwa && (op.select & 1) != 0 ? 4U : 0U);
  auto byte = static_cast<u32>(instruction.number("byte_sel"));
  if (const auto list = instruction.list("op_sel"); list && list->size() > 1) {
    byte = static_cast<u32>((*list)[0] * 2 + (*list)[1]);
  }
  return format | byte << 2;
}

}  // namespace

const VectorEntry* find_vector(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

bool translate_vector(const Instruction& instruction, const Isa& isa, int lanes, Operation& op) {
  std::string name = instruction.mnemonic;
  if (name.starts_with("v_dual_")) name.erase(2, 5);
  if (!name.starts_with("v_") || !all_known(instruction)) return false;
  op.unit = Unit::vector;
  op.operands = instruction.operands;
  op.clamp = instruction.has("clamp");
  const bool compares = name.starts_with("v_cmp");
  const bool sets_exec = name.starts_with("v_cmpx_");
  u32 relation = 0;
  if (compares) {
    op.entry = find_comparison(std::string_view(name).substr(sets_exec ? 7 : 6), relation);
    if (op.entry == nullptr) return false;
    op.first_source = sets_exec && isa.major >= 10 ? 0 : 1;
    if (op.operands.size() != op.first_source + 2U) return false;
  } else {
    op.entry = find_vector(name);
    if (op.entry == nullptr) return false;
    op.first_source = op.entry->destinations;
    if (op.entry->accumulates && op.operands.size() == 3) op.operands.push_back(op.operands[0]);
  }
  const VectorEntry& entry = *op.entry;
  if (op.clamp && !is_real(entry.result) && !entry.saturates) return false;
  op.execute = entry.execute;
  if (entry.transcendental) op.unit = Unit::transcendental;
  op.reads_doubles = entry.doubles;
  op.zeroes_high = is_half(entry.result) && isa.major == 9 && !entry.keeps_high;
  const std::size_t sources = op.operands.size() - op.first_source;
  const bool is_mixed = entry.execute == &run_mixed;
  if (const auto list = instruction.list("op_sel")) {
    op.select = bits_of(*list, sources);
    const bool is_packed = name.starts_with("v_pk_");
    if (!is_packed && list->size() > sources && list->back() != 0) op.select |= 0x80;
  }
  op.select_hi = is_mixed ? 0 : 7;
  if (const auto list = instruction.list("op_sel_hi")) op.select_hi = bits_of(*list, sources);
  if (const auto list = instruction.list("neg_lo")) op.negate_lo = bits_of(*list, sources);
  if (const auto list = instruction.list("neg_hi")) op.negate_hi = bits_of(*list, sources);
  if (instruction.has("mul")) op.scale = static_cast<float>(instruction.number("mul"));
  if (instruction.has("div")) op.scale = 1.0F / static_cast<float>(instruction.number("div"));
  if (name.starts_with("v_permlane")) {
    if (const auto list = instruction.list("op_sel")) {
      op.fetch_inactive = !list->empty() && (*list)[0] != 0;
      op.bound_ctrl = list->size() > 1 && (*list)[1] != 0;
      op.select = 0;
    }
  }
  if (instruction.encoding == "sdwa") read_sdwa(instruction, op);
  if (instruction.encoding == "dpp" && !read_dpp(instruction, lanes, op)) return false;
  op.variant = compares ? relation | (sets_exec ? kSetsExec : 0)
                        : variant_of(name, entry, isa, instruction, op);
  return true;
}

}  // namespace kiln::amd
