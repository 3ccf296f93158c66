// See instruction.hpp.
#include "tests/amd/isa/instruction.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<std::int64_t> integer(std::string_view text) {
  const bool negative = take_prefix(text, "-");
  const int base = take_prefix(text, "0x") ? 16 : 10;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

// "3" or "[3:6]" after the letter of a register.
bool parse_range(std::string_view text, Operand& operand) {
  if (text.ends_with(".l")) operand.half = 0;
  if (text.ends_with(".h")) operand.half = 1;
  if (operand.half >= 0) text.remove_suffix(2);
  std::string_view last;
  if (take_prefix(text, "[")) {
    if (!take_suffix(text, "]")) return false;
    const std::size_t colon = text.find(':');
    last = colon == text.npos ? text : text.substr(colon + 1);
    text = text.substr(0, colon);
  } else {
    last = text;
  }
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const auto from = integer(text);
  const auto to = integer(last);
  if (!from || !to || *to < *from || *to > 511) return false;
  operand.index = static_cast<std::uint16_t>(*from);
  operand.count = static_cast<std::uint8_t>(*to - *from + 1);
  return true;
}

struct Special {
  std::string_view name;
  std::uint16_t index;
  std::uint8_t count;
};
constexpr Special kSpecials[] = {
    {"flat_scratch", kFlatScratch, 2},
    {"flat_scratch_lo", kFlatScratch, 1},
    {"flat_scratch_hi", kFlatScratch + 1, 1},
    {"vcc", kVcc, 2},
    {"vcc_lo", kVcc, 1},
    {"vcc_hi", kVcc + 1, 1},
    {"m0", kM0, 1},
    {"exec", kExec, 2},
    {"exec_lo", kExec, 1},
    {"exec_hi", kExec + 1, 1},
    {"src_private_base", kPrivateBase, 2},
    {"src_shared_base", kSharedBase, 2},
};

bool parse_plain(std::string_view text, std::uint32_t accumulators, Operand& operand) {
  for (const Special& special : kSpecials) {
    if (text != special.name) continue;
    operand.kind = OperandKind::scalar;
    operand.index = special.index;
    operand.count = special.count;
    return true;
  }
  if (text == "null" || text == "off") return true;
  if (text == "scc" || text == "src_scc") {
    operand.kind = OperandKind::scc;
    return true;
  }
  if (text.starts_with("ttmp")) {
    operand.kind = OperandKind::scalar;
    if (!parse_range(text.substr(4), operand)) return false;
    operand.index = static_cast<std::uint16_t>(operand.index + kTtmp);
    return operand.index + operand.count <= kM0;
  }
  if (text.starts_with('v') || text.starts_with('a')) {
    operand.kind = OperandKind::vector;
    if (!parse_range(text.substr(1), operand)) return false;
    if (text[0] == 'a') operand.index = static_cast<std::uint16_t>(operand.index + accumulators);
    return true;
  }
  if (text.starts_with('s')) {
    operand.kind = OperandKind::scalar;
    return parse_range(text.substr(1), operand) && operand.index + operand.count <= kVcc;
  }
  if (text == "hwreg(HW_REG_SH_MEM_BASES, 0, 16)" || text == "hwreg(HW_REG_SH_MEM_BASES, 16, 16)") {
    const bool is_private = text.find(" 0,") != text.npos;
    operand.kind = OperandKind::integer;
    operand.bits =
        static_cast<std::uint32_t>((is_private ? kPrivateAperture : kSharedAperture) >> 48);
    return true;
  }
  if (const auto value = integer(text)) {
    operand.kind = text.starts_with("0x") ? OperandKind::literal : OperandKind::integer;
    operand.bits = static_cast<std::uint32_t>(*value);
    return true;
  }
  char* end = nullptr;
  const std::string copy(text);
  operand.real = std::strtod(copy.c_str(), &end);
  operand.kind = OperandKind::real;
  return end == copy.c_str() + copy.size() && !copy.empty();
}

std::optional<Operand> parse_operand(std::string_view text, std::uint32_t accumulators) {
  Operand operand;
  // "-1" and "-4.0" are numbers, "-v1" and "-|v1|" are negated registers.
  if (text.size() > 1 && text[0] == '-' && (text[1] < '0' || text[1] > '9')) {
    operand.negate = true;
    text.remove_prefix(1);
  }
  if (take_prefix(text, "neg(")) operand.negate = take_suffix(text, ")");
  if (take_prefix(text, "|")) operand.absolute = take_suffix(text, "|");
  if (take_prefix(text, "abs(")) operand.absolute = take_suffix(text, ")");
  if (take_prefix(text, "sext(")) operand.sign_extend = take_suffix(text, ")");
  // What an inline number could say, but is a literal: newer disassemblers mark it.
  if (take_prefix(text, "lit(") && !take_suffix(text, ")")) return std::nullopt;
  if (!parse_plain(text, accumulators, operand)) return std::nullopt;
  return operand;
}

// Parts of `text` between separators that are not in brackets.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) {
      if (text[i] == '[' || text[i] == '(') ++depth;
      if (text[i] == ']' || text[i] == ')') --depth;
      if (text[i] != separator || depth > 0) continue;
    }
    if (const auto part = trimmed(text.substr(begin, i - begin)); !part.empty()) {
      parts.push_back(part);
    }
    begin = i + 1;
  }
  return parts;
}

// Instructions whose operands are no registers: their text is a modifier called "text".
bool is_free_text(std::string_view mnemonic) {
  for (const std::string_view name :
       {"s_waitcnt", "s_sendmsg", "s_delay_alu", "s_clause", "s_nop", "s_inst_prefetch", "s_wait_",
        "s_setreg", "s_set_inst_prefetch", "s_sethalt", "s_sleep", "s_setprio", "s_round_mode",
        "s_denorm_mode", "s_icache", "s_dcache", "s_prefetch", "s_code_end", "s_singleuse"}) {
    if (mnemonic.starts_with(name)) return true;
  }
  return false;
}

Instruction parse_instruction(std::uint64_t address, std::string_view text,
                              std::uint32_t accumulators) {
  Instruction result;
  result.address = address;
  result.text = text;
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  std::string_view mnemonic = text.substr(0, end);
  for (const std::string_view encoding : {"_e32", "_e64"}) take_suffix(mnemonic, encoding);
  for (const std::string_view encoding : {"_e64_dpp", "_dpp8", "_dpp", "_sdwa"}) {
    if (!take_suffix(mnemonic, encoding)) continue;
    result.encoding = encoding == "_sdwa" ? "sdwa" : "dpp";
    break;
  }
  result.mnemonic = mnemonic;
  std::string_view rest = trimmed(text.substr(end));
  if (const std::size_t pair = rest.find(" :: "); pair != rest.npos) {
    result.paired.push_back(
        parse_instruction(address, trimmed(rest.substr(pair + 4)), accumulators));
    rest = trimmed(rest.substr(0, pair));
  }
  if (is_free_text(mnemonic)) {
    result.modifiers.emplace("text", rest);
    return result;
  }
  for (const std::string_view part : split(rest, ',')) {
    for (const std::string_view word : split(part, ' ')) {
      const std::size_t colon = word.find(':');
      const bool is_modifier = colon != word.npos && word.find('[') > colon;
      if (is_modifier) {
        result.modifiers.emplace(word.substr(0, colon), word.substr(colon + 1));
      } else if (auto operand = parse_operand(word, accumulators)) {
        result.operands.push_back(*operand);
      } else if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == word.npos) {
        result.modifiers.emplace(word, "");
      } else {
        throw Fault(fmt::format("unknown operand {} of {} at {:#x}", word, text, address));
      }
    }
  }
  return result;
}

}  // namespace

std::int64_t Instruction::number(std::string_view modifier, std::int64_t otherwise) const {
  const auto found = modifiers.find(modifier);
  if (found == modifiers.end()) return otherwise;
  const auto value = integer(found->second);
  if (!value) throw Fault(fmt::format("unknown {}:{} of {}", modifier, found->second, text));
  return *value;
}

std::optional<std::vector<int>> Instruction::list(std::string_view modifier) const {
  const auto found = modifiers.find(modifier);
  if (found == modifiers.end()) return std::nullopt;
  std::string_view inside = found->second;
  std::vector<int> values;
  if (!take_prefix(inside, "[") || !take_suffix(inside, "]")) {
    throw Fault(fmt::format("unknown {}:{} of {}", modifier, found->second, text));
  }
  for (const std::string_view part : split(inside, ',')) {
    values.push_back(static_cast<int>(integer(part).value_or(0)));
  }
  return values;
}

std::vector<Instruction> parse_listing(std::string_view listing, std::uint32_t accumulators) {
  std::vector<Instruction> instructions;
  for (std::size_t at = 0; at < listing.size();) {
    const std::size_t end = std::min(listing.find('\n', at), listing.size());
    std::string_view line = listing.substr(at, end - at);
    at = end + 1;
    line = line.substr(0, line.find("//"));
    const std::size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string_view digits = trimmed(line.substr(0, colon));
    const std::string_view text = trimmed(line.substr(colon + 1));
    std::uint64_t address = 0;
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), address, 16);
    if (text.empty() || error != std::errc() || stop != digits.data() + digits.size()) continue;
    try {
      instructions.push_back(parse_instruction(address, text, accumulators));
    } catch (const Fault&) {
      // Unknown to whoever comes there, and to nobody else.
      instructions.emplace_back();
      instructions.back().address = address;
      instructions.back().text = text;
    }
  }
  return instructions;
}

}  // namespace kiln::amd
