// Scalar arithmetic. The pseudocode of AMD's ISA documents decides; floats are those of the vector
// instructions' tables.
#include "tests/amd/isa/scalar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/amd/isa/lanes.hpp"

namespace kiln::amd {

Word read_scalar(const Wave& wave, const Operand& operand, bool wide) {
  if (operand.is_scalar()) {
    if (wide && operand.count > 1) {
      return {wave.pair(operand.index),
              wave.scalar_unset[operand.index] | u64{wave.scalar_unset[operand.index + 1U]} << 32};
    }
    return {wave.scalar[operand.index], wave.scalar_unset[operand.index]};
  }
  if (operand.kind == OperandKind::scc) return {wave.scc ? 1U : 0U, wave.scc_unset ? 1U : 0U};
  bool unset = false;
  return {wide ? scalar_pair(wave, operand, unset) : scalar_word(wave, operand, Width::word, unset),
          0};
}

void refuse_unset_exec(const Wave& wave, u64 unset) {
  if (unset != 0) fault(wave, "EXEC is made of a register that nobody has written");
}

void write_scalar(Wave& wave, const Operand& operand, Word word, bool wide) {
  if (!operand.is_scalar()) return;
  if (operand.index >= kExec) refuse_unset_exec(wave, word.unset);
  wave.set_scalar(operand.index, static_cast<u32>(word.value), static_cast<u32>(word.unset));
  if (wide && operand.count > 1) {
    wave.set_scalar(operand.index + 1, static_cast<u32>(word.value >> 32),
                    static_cast<u32>(word.unset >> 32));
  }
}

namespace {

void set_scc(Wave& wave, bool value, bool unset) {
  wave.scc = value;
  wave.scc_unset = unset;
}

constexpr u64 all_if(bool condition) { return condition ? ~u64{0} : 0; }

// ---- Arithmetic: what an operation makes of two words, and of SCC ----

struct Sources {
  u64 a = 0;
  u64 b = 0;
  bool scc = false;
};
struct Outcome {
  u64 value = 0;
  bool scc = false;
};

enum class Scc : std::uint8_t { keeps, sets, reads, reads_and_sets };

// How unwritten bits pass. `mixes`: one makes all of the result unwritten; `carries`: those above
// it, of sums, differences and products. The others give bits of the sources other places, so that
// what they make of the masks of unwritten bits is that of the result: those of S0 by S1 (of which
// a shift and a field look at some bits), or those of both.
enum class Bits : std::uint8_t { mixes, carries, shifts, field, moves };

template <class F, bool Wide, Bits Passing>
u64 unset_result(const Word& a, const Word& b) {
  if constexpr (Passing == Bits::mixes) return all_if(a.unset != 0 || b.unset != 0);
  if constexpr (Passing == Bits::carries) {
    const u64 unset = a.unset | b.unset;
    return unset | (0 - unset);
  }
  if constexpr (Passing == Bits::moves) return F{}(Sources{a.unset, b.unset}).value;
  constexpr u64 kRead = (Wide ? 63 : 31) | (Passing == Bits::field ? 0x7f0000 : 0);
  return all_if((b.unset & kRead) != 0) | F{}(Sources{a.unset, b.value}).value;
}

template <class F, bool Wide, Scc Kind, int Count, Bits Passing>
void arithmetic(Wave& wave, const Operation& op) {
  const Word a = read_scalar(wave, op.operands[op.first_source], Wide);
  const Word b = Count > 1 ? read_scalar(wave, op.operands[op.first_source + 1U], Wide) : Word{};
  Outcome outcome = F{}(Sources{a.value, b.value, wave.scc});
  constexpr bool kReads = Kind == Scc::reads || Kind == Scc::reads_and_sets;
  u64 unset = unset_result<F, Wide, Passing>(a, b) | all_if(kReads && wave.scc_unset);
  if constexpr (!Wide) {
    outcome.value &= 0xffffffff;
    unset &= 0xffffffff;
  }
  write_scalar(wave, op.operands[0], {outcome.value, unset}, Wide);
  if constexpr (Kind == Scc::sets || Kind == Scc::reads_and_sets) {
    set_scc(wave, outcome.scc, unset != 0);
  }
}

// Bit by bit: D = S0 op S1, SCC = D != 0. `variant`: what is inverted.
enum Invert : u32 { kFirst = 1, kSecond = 2, kResult = 4 };
enum class Logic : std::uint8_t { both, either, one };

Word logic(Logic kind, u32 invert, Word a, Word b, bool wide) {
  if ((invert & kFirst) != 0) a.value = ~a.value;
  if ((invert & kSecond) != 0) b.value = ~b.value;
  Word result;
  switch (kind) {
    case Logic::both:
      result.value = a.value & b.value;
      result.unset = (a.unset & b.unset) | (a.unset & b.value) | (a.value & b.unset);
      break;
    case Logic::either:
      result.value = a.value | b.value;
      result.unset = (a.unset & b.unset) | (a.unset & ~b.value) | (~a.value & b.unset);
      break;
    case Logic::one:
      result.value = a.value ^ b.value;
      result.unset = a.unset | b.unset;
      break;
  }
  if ((invert & kResult) != 0) result.value = ~result.value;
  if (!wide) {
    result.value &= 0xffffffff;
    result.unset &= 0xffffffff;
  }
  return result;
}

template <Logic Kind, bool Wide>
void bitwise(Wave& wave, const Operation& op) {
  const Word result = logic(Kind, op.variant, read_scalar(wave, op.operands[1], Wide),
                            read_scalar(wave, op.operands[2], Wide), Wide);
  write_scalar(wave, op.operands[0], result, Wide);
  set_scc(wave, result.value != 0, result.unset != 0);
}

// D = EXEC; EXEC = S0 op EXEC; SCC = EXEC != 0.
template <Logic Kind, bool Wide>
void save_exec(Wave& wave, const Operation& op) {
  const Operand exec{OperandKind::scalar, kExec, 2, false, false, false, -1, 0, 0};
  const Word source = read_scalar(wave, op.operands[1], Wide);
  const Word old = read_scalar(wave, exec, Wide);
  const Word result = logic(Kind, op.variant, source, old, Wide);
  write_scalar(wave, op.operands[0], {Wide ? old.value : old.value & 0xffffffff, 0}, Wide);
  refuse_unset_exec(wave, result.unset);
  wave.set_scalar(kExec, static_cast<u32>(result.value));
  if constexpr (Wide) wave.set_scalar(kExec + 1, static_cast<u32>(result.value >> 32));
  set_scc(wave, result.value != 0, false);
}

template <bool Wide>
void move(Wave& wave, const Operation& op) {
  write_scalar(wave, op.operands[0], read_scalar(wave, op.operands[1], Wide), Wide);
}

template <bool Wide>
void conditional_move(Wave& wave, const Operation& op) {
  if (wave.scc_unset) fault(wave, "SCC holds nothing that anybody has written");
  if (wave.scc) write_scalar(wave, op.operands[0], read_scalar(wave, op.operands[1], Wide), Wide);
}

template <bool Wide>
void select(Wave& wave, const Operation& op) {
  const Word a = read_scalar(wave, op.operands[1], Wide);
  const Word b = read_scalar(wave, op.operands[2], Wide);
  Word result = wave.scc ? a : b;
  if (wave.scc_unset) result.unset = ~u64{0};
  write_scalar(wave, op.operands[0], result, Wide);
}

template <bool Wide>
void invert(Wave& wave, const Operation& op) {
  Word word = read_scalar(wave, op.operands[1], Wide);
  word.value = ~word.value;
  if constexpr (!Wide) word.value &= 0xffffffff;
  write_scalar(wave, op.operands[0], word, Wide);
  set_scc(wave, word.value != 0, word.unset != 0);
}

// D of 32 bits = F(S0 of 64 bits), SCC whether that is not 0.
template <class F, Scc Kind>
void count(Wave& wave, const Operation& op) {
  const Word word = read_scalar(wave, op.operands[1], true);
  const u32 result = static_cast<u32>(F{}(word.value));
  write_scalar(wave, op.operands[0], {result, word.unset != 0 ? 0xffffffff : u64{0}}, false);
  if constexpr (Kind == Scc::sets) set_scc(wave, result != 0, word.unset != 0);
}

// SCC = S0 relation S1: bits less, equal, greater of `variant`; 8 for signed, 16 for wide.
void compare(Wave& wave, const Operation& op) {
  const bool wide = (op.variant & 16) != 0;
  const Word a = read_scalar(wave, op.operands[0], wide);
  const Word b = read_scalar(wave, op.operands[1], wide);
  int relation = 0;
  if ((op.variant & 8) != 0) {
    const auto x = static_cast<i32>(a.value);
    const auto y = static_cast<i32>(b.value);
    relation = x < y ? 1 : x == y ? 2 : 4;
  } else {
    relation = a.value < b.value ? 1 : a.value == b.value ? 2 : 4;
  }
  set_scc(wave, (op.variant & static_cast<u32>(relation)) != 0, (a.unset | b.unset) != 0);
}

// What the vector instruction of that name does in a lane, as the ISA documents say of floats in
// scalar registers. 16 bits are in the low half, the high one becomes 0.
std::pair<u32, bool> float_of_lane(const Wave& wave, const Operation& op) {
  constexpr int kLaneBlock = 32;
  std::array<std::array<u32, kLaneBlock>, 3> in;
  std::array<u32, kLaneBlock> out;
  LaneLoop loop;
  loop.lanes = kLaneBlock;
  loop.active = 1;
  loop.worst = wave.launch->options->worst_transcendentals;
  loop.variant = op.variant;
  loop.out = out.data();
  bool unset = false;
  for (int i = 0; i < op.entry->source_count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool half = is_half(op.entry->sources[i]);
    const Operand& operand = source(op, i);
    bool any_unset = false;
    u32 word = scalar_word(wave, operand, half ? Width::half : Width::word, any_unset);
    u32 missing = operand.is_scalar() ? wave.scalar_unset[operand.index] : 0;
    if (op.select != 0) {
      word >>= 16;
      missing >>= 16;
    }
    const u32 sign = half ? 0x8000 : 0x80000000;
    if (operand.absolute) word &= ~sign;
    if (operand.negate) word ^= sign;
    unset = unset || (half ? missing & 0xffff : missing) != 0;
    in[at].fill(word);
    loop.in[i] = in[at].data();
  }
  op.entry->compute(loop);
  return {is_half(op.entry->result) ? out[0] & 0xffff : out[0], unset};
}
void float_arithmetic(Wave& wave, const Operation& op) {
  const auto [value, unset] = float_of_lane(wave, op);
  write_scalar(wave, op.operands[0], {value, all_if(unset)}, false);
}
void float_compare(Wave& wave, const Operation& op) {
  const auto [relation, unset] = float_of_lane(wave, op);
  set_scc(wave, (relation & op.variant) != 0, unset);
}

// SCC = whether bit S1 of S0 is `variant`.
template <bool Wide>
void compare_bit(Wave& wave, const Operation& op) {
  const Word word = read_scalar(wave, op.operands[0], Wide);
  const Word at = read_scalar(wave, op.operands[1], false);
  const u64 bit = u64{1} << (at.value & (Wide ? 63 : 31));
  set_scc(wave, ((word.value & bit) != 0) == (op.variant != 0),
          (word.unset & bit) != 0 || at.unset != 0);
}

// ---- The table ----

class Builder {
 public:
  ScalarTable entries;

  template <bool Wide, Scc Kind, int Count, Bits Passing = Bits::mixes, class F>
  void add(std::initializer_list<const char*> names, F) {
    for (const char* name : names) {
      entries[name] = {&arithmetic<F, Wide, Kind, Count, Passing>, 0, 1, 1 + Count};
    }
  }
  template <Scc Kind, class F>
  void add_count(std::initializer_list<const char*> names, F) {
    for (const char* name : names) entries[name] = {&count<F, Kind>, 0, 1, 2};
  }
  template <Logic Kind>
  void add_logic(std::initializer_list<const char*> names, u32 inverted) {
    for (const char* name : names) {
      const std::string text = name;
      entries[text + "_b32"] = {&bitwise<Kind, false>, inverted, 1, 3};
      entries[text + "_b64"] = {&bitwise<Kind, true>, inverted, 1, 3};
      // "s_andn2" has its S1 inverted; its S1 is EXEC when EXEC is saved.
      entries[text + "_saveexec_b32"] = {&save_exec<Kind, false>, inverted, 1, 2};
      entries[text + "_saveexec_b64"] = {&save_exec<Kind, true>, inverted, 1, 2};
    }
  }
};

u64 field(u64 value, u64 at, u64 width, bool is_signed, u64 bits) {
  if (width == 0) return 0;
  u64 result = at >= bits ? 0 : value >> at;
  if (width < bits) result &= (u64{1} << width) - 1;
  if (is_signed && width < 64) {
    const u64 sign = u64{1} << (width - 1);
    result = (result ^ sign) - sign;
  }
  return result;
}

void add_arithmetic(Builder& to) {
  to.add<false, Scc::sets, 2, Bits::carries>({"s_add_u32", "s_add_co_u32"}, [](Sources s) {
    const u64 sum = s.a + s.b;
    return Outcome{sum, sum >> 32 != 0};
  });
  to.add<false, Scc::sets, 2, Bits::carries>({"s_sub_u32", "s_sub_co_u32"}, [](Sources s) {
    return Outcome{s.a - s.b, s.b > s.a};
  });
  to.add<false, Scc::reads_and_sets, 2, Bits::carries>(
      {"s_addc_u32", "s_add_co_ci_u32"}, [](Sources s) {
        const u64 sum = s.a + s.b + (s.scc ? 1 : 0);
        return Outcome{sum, sum >> 32 != 0};
      });
  to.add<false, Scc::reads_and_sets, 2, Bits::carries>(
      {"s_subb_u32", "s_sub_co_ci_u32"}, [](Sources s) {
        return Outcome{s.a - s.b - (s.scc ? 1 : 0), s.b + (s.scc ? 1 : 0) > s.a};
      });
  to.add<false, Scc::sets, 2, Bits::carries>(
      {"s_add_i32", "s_add_co_i32", "s_addk_i32", "s_addk_co_i32"}, [](Sources s) {
        const i64 sum = i64{static_cast<i32>(s.a)} + static_cast<i32>(s.b);
        return Outcome{static_cast<u64>(sum), sum != static_cast<i32>(sum)};
      });
  to.add<false, Scc::sets, 2, Bits::carries>({"s_sub_i32", "s_sub_co_i32"}, [](Sources s) {
    const i64 rest = i64{static_cast<i32>(s.a)} - static_cast<i32>(s.b);
    return Outcome{static_cast<u64>(rest), rest != static_cast<i32>(rest)};
  });
  to.add<false, Scc::keeps, 2, Bits::carries>({"s_mul_i32", "s_mulk_i32"},
                                              [](Sources s) { return Outcome{s.a * s.b}; });
  to.add<false, Scc::keeps, 2>({"s_mul_hi_u32"},
                               [](Sources s) { return Outcome{s.a * s.b >> 32}; });
  to.add<false, Scc::keeps, 2>({"s_mul_hi_i32"}, [](Sources s) {
    const i64 product = i64{static_cast<i32>(s.a)} * static_cast<i32>(s.b);
    return Outcome{static_cast<u64>(product) >> 32};
  });
  to.add<true, Scc::keeps, 2, Bits::carries>({"s_add_nc_u64", "s_add_u64"},
                                             [](Sources s) { return Outcome{s.a + s.b}; });
  to.add<true, Scc::keeps, 2, Bits::carries>({"s_sub_nc_u64", "s_sub_u64"},
                                             [](Sources s) { return Outcome{s.a - s.b}; });
  to.add<true, Scc::keeps, 2, Bits::carries>({"s_mul_u64"},
                                             [](Sources s) { return Outcome{s.a * s.b}; });
  to.add<false, Scc::sets, 2>({"s_min_u32"}, [](Sources s) {
    return Outcome{std::min(s.a, s.b), s.a < s.b};
  });
  to.add<false, Scc::sets, 2>({"s_max_u32"}, [](Sources s) {
    return Outcome{std::max(s.a, s.b), s.a > s.b};
  });
  to.add<false, Scc::sets, 2>({"s_min_i32"}, [](Sources s) {
    const bool first = static_cast<i32>(s.a) < static_cast<i32>(s.b);
    return Outcome{first ? s.a : s.b, first};
  });
  to.add<false, Scc::sets, 2>({"s_max_i32"}, [](Sources s) {
    const bool first = static_cast<i32>(s.a) > static_cast<i32>(s.b);
    return Outcome{first ? s.a : s.b, first};
  });
  const auto shift_add = [&]<u64 By>(const char* name) {
    to.add<false, Scc::sets, 2>({name}, [](Sources s) {
      const u64 sum = (s.a << By) + s.b;
      return Outcome{sum, sum >> 32 != 0};
    });
  };
  shift_add.operator()<1>("s_lshl1_add_u32");
  shift_add.operator()<2>("s_lshl2_add_u32");
  shift_add.operator()<3>("s_lshl3_add_u32");
  shift_add.operator()<4>("s_lshl4_add_u32");
  to.add<false, Scc::sets, 2, Bits::shifts>({"s_lshl_b32"}, [](Sources s) {
    const u64 result = (s.a << (s.b & 31)) & 0xffffffff;
    return Outcome{result, result != 0};
  });
  to.add<false, Scc::sets, 2, Bits::shifts>({"s_lshr_b32"}, [](Sources s) {
    const u64 result = s.a >> (s.b & 31);
    return Outcome{result, result != 0};
  });
  to.add<false, Scc::sets, 2, Bits::shifts>({"s_ashr_i32"}, [](Sources s) {
    const i32 result = static_cast<i32>(s.a) >> (s.b & 31);
    return Outcome{static_cast<u32>(result), result != 0};
  });
  to.add<true, Scc::sets, 2, Bits::shifts>({"s_lshl_b64"}, [](Sources s) {
    const u64 result = s.a << (s.b & 63);
    return Outcome{result, result != 0};
  });
  to.add<true, Scc::sets, 2, Bits::shifts>({"s_lshr_b64"}, [](Sources s) {
    const u64 result = s.a >> (s.b & 63);
    return Outcome{result, result != 0};
  });
  to.add<true, Scc::sets, 2, Bits::shifts>({"s_ashr_i64"}, [](Sources s) {
    const i64 result = static_cast<i64>(s.a) >> (s.b & 63);
    return Outcome{static_cast<u64>(result), result != 0};
  });
  to.add<false, Scc::sets, 2, Bits::field>({"s_bfe_u32"}, [](Sources s) {
    const u64 result = field(s.a, s.b & 31, s.b >> 16 & 0x7f, false, 32);
    return Outcome{result, result != 0};
  });
  to.add<false, Scc::sets, 2, Bits::field>({"s_bfe_i32"}, [](Sources s) {
    const u64 wide = static_cast<u64>(i64{static_cast<i32>(s.a)});
    const u64 result = field(wide, s.b & 31, s.b >> 16 & 0x7f, true, 32) & 0xffffffff;
    return Outcome{result, result != 0};
  });
  to.add<true, Scc::sets, 2, Bits::field>({"s_bfe_u64"}, [](Sources s) {
    const u64 result = field(s.a, s.b & 63, s.b >> 16 & 0x7f, false, 64);
    return Outcome{result, result != 0};
  });
  to.add<true, Scc::sets, 2, Bits::field>({"s_bfe_i64"}, [](Sources s) {
    const u64 result = field(s.a, s.b & 63, s.b >> 16 & 0x7f, true, 64);
    return Outcome{result, result != 0};
  });
  to.add<false, Scc::keeps, 2>(
      {"s_bfm_b32"}, [](Sources s) { return Outcome{((u64{1} << (s.a & 31)) - 1) << (s.b & 31)}; });
  to.add<true, Scc::keeps, 2>(
      {"s_bfm_b64"}, [](Sources s) { return Outcome{((u64{1} << (s.a & 63)) - 1) << (s.b & 63)}; });
  to.add<false, Scc::keeps, 2, Bits::moves>({"s_pack_ll_b32_b16"}, [](Sources s) {
    return Outcome{(s.a & 0xffff) | (s.b & 0xffff) << 16};
  });
  to.add<false, Scc::keeps, 2, Bits::moves>({"s_pack_lh_b32_b16"}, [](Sources s) {
    return Outcome{(s.a & 0xffff) | (s.b & 0xffff0000)};
  });
  to.add<false, Scc::keeps, 2, Bits::moves>({"s_pack_hh_b32_b16"}, [](Sources s) {
    return Outcome{(s.a >> 16 & 0xffff) | (s.b & 0xffff0000)};
  });
  to.add<false, Scc::sets, 1>({"s_abs_i32"}, [](Sources s) {
    const u32 a = static_cast<u32>(s.a);
    const u32 result = static_cast<i32>(a) < 0 ? 0 - a : a;
    return Outcome{result, result != 0};
  });
  to.add<false, Scc::keeps, 1, Bits::moves>({"s_brev_b32"}, [](Sources s) {
    u64 result = 0;
    for (int i = 0; i < 32; ++i) result |= (s.a >> i & 1) << (31 - i);
    return Outcome{result};
  });
  to.add<true, Scc::keeps, 1, Bits::moves>({"s_brev_b64"}, [](Sources s) {
    u64 result = 0;
    for (int i = 0; i < 64; ++i) result |= (s.a >> i & 1) << (63 - i);
    return Outcome{result};
  });
  to.add<false, Scc::sets, 1>({"s_bcnt0_i32_b32"}, [](Sources s) {
    const auto count = static_cast<u64>(32 - std::popcount(static_cast<u32>(s.a)));
    return Outcome{count, count != 0};
  });
  to.add<false, Scc::sets, 1>({"s_bcnt1_i32_b32"}, [](Sources s) {
    const auto count = static_cast<u64>(std::popcount(static_cast<u32>(s.a)));
    return Outcome{count, count != 0};
  });
  to.add<false, Scc::keeps, 1>({"s_ff1_i32_b32", "s_ctz_i32_b32"}, [](Sources s) {
    const auto a = static_cast<u32>(s.a);
    return Outcome{a == 0 ? ~u64{0} : static_cast<u64>(std::countr_zero(a))};
  });
  to.add<false, Scc::keeps, 1>({"s_flbit_i32_b32", "s_clz_i32_u32"}, [](Sources s) {
    const auto a = static_cast<u32>(s.a);
    return Outcome{a == 0 ? ~u64{0} : static_cast<u64>(std::countl_zero(a))};
  });
  to.add<false, Scc::keeps, 1>({"s_flbit_i32", "s_cls_i32"}, [](Sources s) {
    auto a = static_cast<u32>(s.a);
    if (static_cast<i32>(a) < 0) a = ~a;
    return Outcome{a == 0 ? ~u64{0} : static_cast<u64>(std::countl_zero(a))};
  });
  to.add_count<Scc::sets>({"s_bcnt0_i32_b64"}, [](u64 a) { return 64 - std::popcount(a); });
  to.add_count<Scc::sets>({"s_bcnt1_i32_b64"}, [](u64 a) { return std::popcount(a); });
  to.add_count<Scc::keeps>({"s_ff1_i32_b64", "s_ctz_i32_b64"},
                           [](u64 a) { return a == 0 ? -1 : std::countr_zero(a); });
  to.add_count<Scc::keeps>({"s_flbit_i32_b64", "s_clz_i32_u64"},
                           [](u64 a) { return a == 0 ? -1 : std::countl_zero(a); });
  to.add_count<Scc::keeps>({"s_flbit_i32_i64", "s_cls_i32_i64"}, [](u64 a) {
    if (static_cast<i64>(a) < 0) a = ~a;
    return a == 0 ? -1 : std::countl_zero(a);
  });
  to.add<false, Scc::keeps, 1, Bits::moves>({"s_sext_i32_i8"}, [](Sources s) {
    return Outcome{static_cast<u64>(i64{static_cast<std::int8_t>(s.a)})};
  });
  to.add<false, Scc::keeps, 1, Bits::moves>({"s_sext_i32_i16"}, [](Sources s) {
    return Outcome{static_cast<u64>(i64{static_cast<std::int16_t>(s.a)})};
  });
  to.add<false, Scc::keeps, 2>({"s_bitset0_b32"},
                               [](Sources s) { return Outcome{s.a & ~(u64{1} << (s.b & 31))}; });
  to.add<false, Scc::keeps, 2>({"s_bitset1_b32"},
                               [](Sources s) { return Outcome{s.a | u64{1} << (s.b & 31)}; });
}

void add_rest(Builder& to) {
  auto& entries = to.entries;
  to.add_logic<Logic::both>({"s_and"}, 0);
  to.add_logic<Logic::either>({"s_or"}, 0);
  to.add_logic<Logic::one>({"s_xor"}, 0);
  to.add_logic<Logic::both>({"s_andn2", "s_and_not1"}, kSecond);
  to.add_logic<Logic::either>({"s_orn2", "s_or_not1"}, kSecond);
  to.add_logic<Logic::both>({"s_nand"}, kResult);
  to.add_logic<Logic::either>({"s_nor"}, kResult);
  to.add_logic<Logic::one>({"s_xnor"}, kResult);
  for (const char* width : {"b32", "b64"}) {
    const bool wide = width == std::string_view("b64");
    const std::string suffix = std::string("_saveexec_") + width;
    for (const char* name : {"s_andn1", "s_and_not0"}) {
      entries[name + suffix] = {
          wide ? &save_exec<Logic::both, true> : &save_exec<Logic::both, false>, kFirst, 1, 2};
    }
    for (const char* name : {"s_orn1", "s_or_not0"}) {
      entries[name + suffix] = {
          wide ? &save_exec<Logic::either, true> : &save_exec<Logic::either, false>, kFirst, 1, 2};
    }
  }
  entries["s_mov_b32"] = {&move<false>, 0, 1, 2};
  entries["s_getreg_b32"] = {&move<false>, 0, 1, 2};
  entries["s_mov_b64"] = {&move<true>, 0, 1, 2};
  entries["s_movk_i32"] = {&move<false>, 0, 1, 2, true};
  entries["s_cmov_b32"] = {&conditional_move<false>, 0, 1, 2};
  entries["s_cmov_b64"] = {&conditional_move<true>, 0, 1, 2};
  entries["s_cmovk_i32"] = {&conditional_move<false>, 0, 1, 2, true};
  entries["s_cselect_b32"] = {&select<false>, 0, 1, 3};
  entries["s_cselect_b64"] = {&select<true>, 0, 1, 3};
  entries["s_not_b32"] = {&invert<false>, 0, 1, 2};
  entries["s_not_b64"] = {&invert<true>, 0, 1, 2};
  for (const char* name : {"s_addk_i32", "s_addk_co_i32", "s_mulk_i32"}) {
    entries[name].is_short = entries[name].accumulates = true;
    entries[name].operands = 2;
  }
  for (const char* name : {"s_bitset0_b32", "s_bitset1_b32"}) {
    entries[name].accumulates = true;
    entries[name].operands = 2;
  }
  static constexpr std::pair<const char*, u32> kRelations[] = {{"lt", 1}, {"eq", 2}, {"le", 3},
                                                               {"gt", 4}, {"lg", 5}, {"ge", 6}};
  for (const auto& [name, relation] : kRelations) {
    entries[fmt::format("s_cmp_{}_i32", name)] = {&compare, relation | 8, 0, 2};
    entries[fmt::format("s_cmp_{}_u32", name)] = {&compare, relation, 0, 2};
    entries[fmt::format("s_cmp_{}_u64", name)] = {&compare, relation | 16, 0, 2};
    entries[fmt::format("s_cmpk_{}_i32", name)] = {&compare, relation | 8, 0, 2, true};
    entries[fmt::format("s_cmpk_{}_u32", name)] = {&compare, relation, 0, 2, false, true};
  }
  entries["s_bitcmp0_b32"] = {&compare_bit<false>, 0, 0, 2};
  entries["s_bitcmp1_b32"] = {&compare_bit<false>, 1, 0, 2};
  entries["s_bitcmp0_b64"] = {&compare_bit<true>, 0, 0, 2};
  entries["s_bitcmp1_b64"] = {&compare_bit<true>, 1, 0, 2};
}

const ScalarTable& table() {
  static const auto all = [] {
    Builder builder;
    add_arithmetic(builder);
    add_rest(builder);
    add_flow(builder.entries);
    return std::move(builder.entries);
  }();
  return all;
}

// "s_add_f32", "s_cvt_u32_f32", "s_cmp_nlt_f16"; "v_s_exp_f32", of the transcendental unit.
bool translate_float(const Instruction& instruction, Operation& op) {
  std::string_view name = instruction.mnemonic;
  const bool transcendental = name.starts_with("v_");
  if (transcendental) {
    name.remove_prefix(2);
    op.unit = Unit::transcendental;
  }
  if (name.find("_f32") == name.npos && name.find("_f16") == name.npos) return false;
  op.operands = instruction.operands;
  if (name.starts_with("s_cmp_")) {
    op.execute = &float_compare;
    op.first_source = 0;
    op.entry = find_comparison(name.substr(6), op.variant);
    return op.entry != nullptr && op.operands.size() == 2;
  }
  const bool upper = name == "s_cvt_hi_f32_f16";
  op.execute = &float_arithmetic;
  op.entry = find_vector(upper ? "v_cvt_f32_f16" : fmt::format("v_{}", name.substr(2)));
  if (op.entry == nullptr || op.entry->execute != &run_lanewise ||
      op.entry->transcendental != transcendental || is_pair(op.entry->result)) {
    return false;
  }
  op.select = upper ? 1 : 0;
  if (op.entry->accumulates) op.operands.push_back(op.operands[0]);
  return op.operands.size() == op.entry->source_count + 1U && instruction.modifiers.empty();
}

}  // namespace

std::vector<std::vector<std::string>> scalar_names() {
  std::map<std::tuple<Execute, u32, bool, bool, bool>, std::vector<std::string>> alike;
  for (const auto& [name, entry] : table()) {
    alike[{entry.execute, entry.variant, entry.is_short, entry.is_short_unsigned,
           entry.accumulates}]
        .push_back(name);
  }
  std::vector<std::vector<std::string>> names;
  for (auto& [instruction, of_it] : alike) names.push_back(std::move(of_it));
  return names;
}

bool translate_scalar(const Instruction& instruction, const Isa&, int, Operation& op) {
  const std::string& name = instruction.mnemonic;
  if (name.starts_with("v_s_")) return translate_float(instruction, op);
  if (!name.starts_with("s_")) return false;
  op.unit = Unit::scalar;
  if (const auto found = table().find(name); found != table().end()) {
    const ScalarEntry& entry = found->second;
    op.execute = entry.execute;
    op.variant = entry.variant;
    op.first_source = entry.destinations;
    op.operands = instruction.operands;
    if (op.operands.size() != entry.operands) return false;
    if (entry.is_short) {
      Operand& last = op.operands.back();
      last.bits = static_cast<u32>(static_cast<std::int16_t>(last.bits));
    }
    if (entry.is_short_unsigned) op.operands.back().bits &= 0xffff;
    if (entry.accumulates) op.operands.insert(op.operands.begin() + 1, op.operands[0]);
    if (name == "s_branch" || name.starts_with("s_cbranch_") || name == "s_call_b64") {
      const auto distance = static_cast<std::int16_t>(op.operands.back().bits);
      op.offset = static_cast<std::int64_t>(instruction.address) + 4 + 4 * distance;
      op.operands.pop_back();
      op.unit = Unit::other;
    }
    if (entry.execute == &do_nothing || name == "s_endpgm" || name.starts_with("s_barrier")) {
      op.unit = Unit::other;
      op.operands.clear();
    }
    return true;
  }
  if (translate_float(instruction, op)) return true;
  op.unit = Unit::other;
  return translate_wait(instruction, op);
}

}  // namespace kiln::amd
