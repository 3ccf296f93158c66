// Scalar instructions that decide what runs next, and when: branches, waits, barriers, hints.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tests/amd/isa/access.hpp"
#include "tests/amd/isa/lanes.hpp"
#include "tests/amd/isa/scalar.hpp"

namespace kiln::amd {
namespace {

// ---- Branches ----

void jump(Wave& wave, u64 address) {
  const u64 base = wave.launch->code_base;
  const auto found = wave.launch->program->at_address.find(address - base);
  if (found == wave.launch->program->at_address.end()) {
    fault(wave, fmt::format("a jump to {:#x}, where no instruction is", address - base));
  }
  wave.pc = found->second;
}

u64 after(const Wave& wave, const Operation& op) { return wave.launch->code_base + op.address + 4; }

void get_pc(Wave& wave, const Operation& op) {
  write_scalar(wave, op.operands[0], {after(wave, op), 0}, true);
}
u64 jump_target(const Wave& wave, const Operand& operand) {
  const Word word = read_scalar(wave, operand, true);
  if (word.unset != 0) fault(wave, "a jump to an address that nobody has written");
  return word.value;
}
void set_pc(Wave& wave, const Operation& op) { jump(wave, jump_target(wave, op.operands[0])); }
void swap_pc(Wave& wave, const Operation& op) {
  const u64 target = jump_target(wave, op.operands[1]);
  write_scalar(wave, op.operands[0], {after(wave, op), 0}, true);
  jump(wave, target);
}
void call(Wave& wave, const Operation& op) {
  write_scalar(wave, op.operands[0], {after(wave, op), 0}, true);
  wave.pc = op.target;
}

void branch(Wave& wave, const Operation& op) { wave.pc = op.target; }

enum Condition : u32 { kScc0, kScc1, kVccZero, kVccNotZero, kExecZero, kExecNotZero };

void conditional_branch(Wave& wave, const Operation& op) {
  bool taken = false;
  switch (op.variant) {
    case kScc0:
    case kScc1:
      if (wave.scc_unset) fault(wave, "a branch on SCC, which holds nothing that anybody has set");
      taken = wave.scc == (op.variant == kScc1);
      break;
    case kVccZero:
    case kVccNotZero:
      if (wave.mask_unset(kVcc) != 0) {
        fault(wave, "a branch on VCC, which is made of what nobody has written",
              lowest_lane(wave.mask_unset(kVcc)));
      }
      taken = (wave.mask(kVcc) == 0) == (op.variant == kVccZero);
      break;
    default: taken = (wave.exec == 0) == (op.variant == kExecZero); break;
  }
  if (taken) wave.pc = op.target;
}

// ---- Waits and barriers ----

// `variant` has a byte for each counter: 255 does not wait.
void wait(Wave& wave, const Operation& op) {
  const auto counts = static_cast<u64>(op.offset);
  for (std::size_t i = 0; i < kCounters; ++i) {
    const u64 most = counts >> (8 * i) & 0xff;
    if (most != 0xff) finish(wave, wave.outstanding[i], most);
  }
}

void refuse_unfinished_writes(Wave& wave) {
  if (!wave.launch->options->check_waits) return;
  for (const auto& queue : wave.outstanding) {
    for (const Outstanding& entry : queue) {
      if (entry.is_lds_write) {
        fault(wave, "a barrier while a write to LDS has not been waited for");
      }
    }
  }
}

void barrier(Wave& wave, const Operation&) {
  refuse_unfinished_writes(wave);
  if (wave.signalled) fault(wave, "a barrier between the signal and the wait of another");
  wave.at_barrier = wave.signalled = true;
}
void barrier_signal(Wave& wave, const Operation&) {
  refuse_unfinished_writes(wave);
  if (wave.signalled) fault(wave, "a second signal of a barrier without a wait");
  wave.signalled = true;
}
void barrier_wait(Wave& wave, const Operation&) {
  if (!wave.signalled) fault(wave, "a wait for a barrier that the wave has not signalled");
  wave.at_barrier = true;
}

void end(Wave& wave, const Operation&) {
  if (wave.signalled) fault(wave, "the wave ends between the signal and the wait of a barrier");
  wave.ended = true;
}

// ---- Translation ----

std::int64_t number(std::string_view text) {
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

// Sets how many may be left of a counter.
void set_wait(Operation& op, Counter counter, std::int64_t most) {
  const int shift = 8 * static_cast<int>(counter);
  const auto byte = static_cast<u64>(std::clamp<std::int64_t>(most, 0, 254));
  op.offset = static_cast<std::int64_t>((static_cast<u64>(op.offset) & ~(u64{0xff} << shift)) |
                                        byte << shift);
}

// "vmcnt(1) lgkmcnt(0)"; "null, 0x0" of s_waitcnt_vscnt; "0x1" of s_wait_loadcnt.
bool translate_counters(const Instruction& instruction, Operation& op) {
  const std::string_view name = instruction.mnemonic;
  const std::string_view text = instruction.modifiers.at("text");
  op.execute = &wait;
  op.offset = -1;
  if (name == "s_waitcnt") {
    static constexpr std::pair<std::string_view, Counter> kNames[] = {
        {"vmcnt(", Counter::load}, {"lgkmcnt(", Counter::lds}, {"expcnt(", Counter::exports}};
    bool any = false;
    for (const auto& [counter, to] : kNames) {
      const std::size_t at = text.find(counter);
      if (at == text.npos) continue;
      set_wait(op, to, number(text.substr(at + counter.size())));
      any = true;
    }
    return any;
  }
  const std::size_t comma = text.find(", ");
  const std::int64_t most = number(comma == text.npos ? text : text.substr(comma + 2));
  if (most < 0) return false;
  static constexpr std::pair<std::string_view, Counter> kWaits[] = {
      {"s_waitcnt_vmcnt", Counter::load},  {"s_waitcnt_vscnt", Counter::store},
      {"s_waitcnt_lgkmcnt", Counter::lds}, {"s_waitcnt_expcnt", Counter::exports},
      {"s_wait_loadcnt", Counter::load},   {"s_wait_storecnt", Counter::store},
      {"s_wait_dscnt", Counter::lds},      {"s_wait_kmcnt", Counter::scalar},
      {"s_wait_expcnt", Counter::exports}, {"s_wait_samplecnt", Counter::exports},
      {"s_wait_bvhcnt", Counter::exports}, {"s_wait_xcnt", Counter::exports}};
  for (const auto& [wait_name, counter] : kWaits) {
    if (name != wait_name) continue;
    set_wait(op, counter, most);
    return true;
  }
  // Two counters in one number: the first in bits 8 to 13, LDS in bits 0 to 5.
  if (name != "s_wait_loadcnt_dscnt" && name != "s_wait_storecnt_dscnt") return false;
  set_wait(op, name == "s_wait_loadcnt_dscnt" ? Counter::load : Counter::store, most >> 8 & 63);
  set_wait(op, Counter::lds, most & 63);
  return true;
}

// Modes that this interpreter has: nearest even, subnormals kept.
bool keeps_modes(const Instruction& instruction) {
  const std::string_view text = instruction.modifiers.at("text");
  if (instruction.mnemonic == "s_round_mode") return number(text) == 0;
  if (instruction.mnemonic == "s_denorm_mode") return number(text) == 15;
  // Where scratch memory is: it is found without it.
  if (instruction.mnemonic == "s_setreg_b32") {
    return text.starts_with("hwreg(HW_REG_FLAT_SCR_LO)") ||
           text.starts_with("hwreg(HW_REG_FLAT_SCR_HI)");
  }
  return false;
}

}  // namespace

void add_flow(ScalarTable& entries) {
  entries["s_getpc_b64"] = {&get_pc, 0, 1, 1};
  entries["s_get_pc_i64"] = {&get_pc, 0, 1, 1};
  entries["s_setpc_b64"] = {&set_pc, 0, 0, 1};
  entries["s_set_pc_i64"] = {&set_pc, 0, 0, 1};
  entries["s_swappc_b64"] = {&swap_pc, 0, 1, 2};
  entries["s_swap_pc_i64"] = {&swap_pc, 0, 1, 2};
  entries["s_call_b64"] = {&call, 0, 1, 2};
  entries["s_branch"] = {&branch, 0, 0, 1};
  static constexpr std::pair<const char*, u32> kConditions[] = {
      {"scc0", kScc0},        {"scc1", kScc1},      {"vccz", kVccZero},
      {"vccnz", kVccNotZero}, {"execz", kExecZero}, {"execnz", kExecNotZero}};
  for (const auto& [name, condition] : kConditions) {
    entries[fmt::format("s_cbranch_{}", name)] = {&conditional_branch, condition, 0, 1};
  }
  entries["s_barrier"] = {&barrier, 0, 0, 0};
  entries["s_barrier_signal"] = {&barrier_signal, 0, 0, 1};
  entries["s_barrier_wait"] = {&barrier_wait, 0, 0, 1};
  entries["s_endpgm"] = {&end, 0, 0, 0};
  for (const char* name :
       {"s_nop", "s_clause", "s_delay_alu", "s_inst_prefetch", "s_set_inst_prefetch_distance",
        "s_waitcnt_depctr", "s_wait_alu", "s_wait_idle", "s_sleep", "s_setprio", "s_icache_inv",
        "s_dcache_inv", "s_dcache_wb", "s_prefetch_inst", "s_prefetch_inst_pc_rel",
        "s_prefetch_data", "s_singleuse_vdst"}) {
    entries[name] = {&do_nothing, 0, 0, 0};
  }
}

bool translate_wait(const Instruction& instruction, Operation& op) {
  const std::string_view name = instruction.mnemonic;
  if (name.starts_with("s_waitcnt") || name.starts_with("s_wait_")) {
    return translate_counters(instruction, op);
  }
  op.execute = &do_nothing;
  if (name == "s_sendmsg") {
    return instruction.modifiers.at("text").find("MSG_DEALLOC_VGPRS") != std::string::npos;
  }
  if (name == "s_round_mode" || name == "s_denorm_mode" || name.starts_with("s_setreg")) {
    return keeps_modes(instruction);
  }
  return false;
}

}  // namespace kiln::amd
