// See lanes.hpp.
#include "tests/amd/isa/lanes.hpp"

#include <algorithm>

namespace kiln::amd {
namespace {

// All ones in the lanes of a byte of the mask.
struct ByteMasks {
  std::uint32_t of[256][8];
  constexpr ByteMasks() : of{} {
    for (int byte = 0; byte < 256; ++byte) {
      for (int i = 0; i < 8; ++i) of[byte][i] = (byte >> i & 1) != 0 ? 0xffffffff : 0;
    }
  }
};
constexpr ByteMasks kMasks;

void blend(std::uint32_t* to, const std::uint32_t* from, std::uint64_t active) {
  for (int base = 0; base < kLanes; base += 8) {
    const std::uint32_t* mask = kMasks.of[active >> base & 0xff];
    for (int i = 0; i < 8; ++i) {
      to[base + i] = (to[base + i] & ~mask[i]) | (from[base + i] & mask[i]);
    }
  }
}

std::uint64_t spread(bool all) { return all ? ~std::uint64_t{0} : 0; }

std::uint32_t modified(const Operand& operand, Width width, std::uint32_t bits) {
  const std::uint32_t sign = width == Width::half ? 0x8000 : 0x80000000;
  if (operand.absolute) bits &= ~sign;
  if (operand.negate) bits ^= sign;
  return bits;
}

std::uint32_t selected(std::uint32_t word, std::uint8_t select, bool sign_extend) {
  if (select < 4) {
    const std::uint32_t byte = word >> (8 * select) & 0xff;
    return sign_extend ? static_cast<std::uint32_t>(static_cast<std::int8_t>(byte)) : byte;
  }
  if (select < 6) {
    const std::uint32_t half = word >> (16 * (select - 4)) & 0xffff;
    return sign_extend ? static_cast<std::uint32_t>(static_cast<std::int16_t>(half)) : half;
  }
  return word;
}

// The bits of the word that a select means.
std::uint32_t selected_bits(std::uint8_t select) {
  if (select < 4) return std::uint32_t{0xff} << (8 * select);
  return select < 6 ? std::uint32_t{0xffff} << (16 * (select - 4)) : ~std::uint32_t{0};
}

// The lane that a lane reads, or -1.
int dpp_lane(const Wave& wave, const Operation& op, int lane) {
  const int from = op.from[static_cast<std::size_t>(lane)];
  if (from < 0 || from >= wave.lanes) return -1;
  return op.fetch_inactive || (wave.exec >> from & 1) != 0 ? from : -1;
}

}  // namespace

std::uint32_t scalar_word(const Wave& wave, const Operand& operand, Width width, bool& unset) {
  switch (operand.kind) {
    case OperandKind::scalar:
      if (wave.scalar_unset[operand.index] != 0) unset = true;
      return wave.scalar[operand.index];
    case OperandKind::integer:
    case OperandKind::literal: return operand.bits;
    case OperandKind::real:
      return width == Width::half ? half_of(operand.real)
                                  : as_bits(static_cast<float>(operand.real));
    case OperandKind::scc: return wave.scc ? 1 : 0;
    case OperandKind::null: return 0;
    case OperandKind::vector: break;
  }
  fault(wave, "a vector register where a scalar one belongs");
}

std::uint64_t scalar_pair(const Wave& wave, const Operand& operand, bool& unset) {
  switch (operand.kind) {
    case OperandKind::scalar:
      if (operand.count == 1) return scalar_word(wave, operand, Width::word, unset);
      if ((wave.scalar_unset[operand.index] | wave.scalar_unset[operand.index + 1U]) != 0) {
        unset = true;
      }
      return wave.pair(operand.index);
    case OperandKind::integer:
      return static_cast<std::uint64_t>(
          static_cast<std::int64_t>(static_cast<std::int32_t>(operand.bits)));
    case OperandKind::literal: return operand.bits;
    case OperandKind::real: return as_bits(operand.real);
    default: return scalar_word(wave, operand, Width::word, unset);
  }
}

const std::uint32_t* read_words(const Wave& wave, const Operation& op, int index, Width width,
                                std::uint32_t* lanes, std::uint64_t& unset) {
  const Operand& operand = source(op, index);
  const bool high =
      width == Width::half && !op.is_sdwa && (operand.half == 1 || (op.select >> index & 1) != 0);
  if (!operand.is_vector()) {
    bool is_unset = false;
    std::uint32_t word = scalar_word(wave, operand, width, is_unset);
    if (high && operand.is_scalar()) word >>= 16;
    if (op.is_sdwa && index < 2) {
      word = selected(word, op.source_select[static_cast<std::size_t>(index)], operand.sign_extend);
    }
    std::fill_n(lanes, kLanes, modified(operand, width, word));
    unset |= spread(is_unset);
    return lanes;
  }
  const VectorRegister& from = wave.vector[operand.index];
  const bool is_dpp = op.is_dpp && index == 0;
  const bool is_sdwa = op.is_sdwa && index < 2;
  if (!is_dpp && !is_sdwa && !high && !operand.negate && !operand.absolute) {
    unset |= width == Width::half ? from.unset_low : from.unset_low | from.unset_high;
    return from.lane.data();
  }
  if (is_dpp) {
    const std::uint64_t empty =
        width == Width::half ? from.unset_low : from.unset_low | from.unset_high;
    for (int lane = 0; lane < wave.lanes; ++lane) {
      const int at = dpp_lane(wave, op, lane);
      lanes[lane] = at < 0 ? 0 : from.lane[static_cast<std::size_t>(at)];
      if (at >= 0) unset |= (empty >> at & 1) << lane;
    }
    std::fill(lanes + wave.lanes, lanes + kLanes, 0U);
  } else if (is_sdwa) {
    const std::uint8_t select = op.source_select[static_cast<std::size_t>(index)];
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] =
          selected(from.lane[static_cast<std::size_t>(lane)], select, operand.sign_extend);
    }
    unset |= from.unset_lanes(selected_bits(select == 6 && width == Width::half ? 4 : select));
  } else {
    const int shift = high ? 16 : 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = from.lane[static_cast<std::size_t>(lane)] >> shift;
    }
    unset |= high                   ? from.unset_high
             : width == Width::half ? from.unset_low
                                    : from.unset_low | from.unset_high;
  }
  if (operand.negate || operand.absolute) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = modified(operand, width, lanes[lane]);
  }
  return lanes;
}

const std::uint64_t* read_pairs(const Wave& wave, const Operation& op, int index,
                                std::uint64_t* lanes, std::uint64_t& unset) {
  const Operand& operand = source(op, index);
  if (operand.is_vector()) {
    const VectorRegister& low = wave.vector[operand.index];
    const VectorRegister& high = wave.vector[operand.index + 1U];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = low.lane[lane] | std::uint64_t{high.lane[lane]} << 32;
    }
    std::uint64_t empty = low.unset_low | low.unset_high | high.unset_low | high.unset_high;
    if (op.is_dpp && index == 0) {
      std::array<std::uint64_t, kLanes> all;
      std::copy_n(lanes, kLanes, all.begin());
      std::uint64_t moved = 0;
      for (int lane = 0; lane < wave.lanes; ++lane) {
        const int at = dpp_lane(wave, op, lane);
        lanes[lane] = at < 0 ? 0 : all[static_cast<std::size_t>(at)];
        if (at >= 0) moved |= (empty >> at & 1) << lane;
      }
      empty = moved;
    }
    unset |= empty;
  } else {
    bool is_unset = false;
    std::uint64_t pair = scalar_pair(wave, operand, is_unset);
    // A literal is the upper half of a 64-bit float; handlers of integers say so.
    if (operand.kind == OperandKind::literal && op.reads_doubles) pair <<= 32;
    std::fill_n(lanes, kLanes, pair);
    unset |= spread(is_unset);
  }
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  if (operand.absolute) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] &= ~kSign;
  }
  if (operand.negate) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] ^= kSign;
  }
  return lanes;
}

void read_halves(const Wave& wave, const Operation& op, int index, bool high, std::uint32_t* lanes,
                 std::uint64_t& unset) {
  const Operand& operand = source(op, index);
  const int shift = high ? 16 : 0;
  if (operand.is_vector()) {
    const VectorRegister& from = wave.vector[operand.index];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = from.lane[lane] >> shift & 0xffff;
    }
    unset |= high ? from.unset_high : from.unset_low;
    return;
  }
  bool is_unset = false;
  const std::uint32_t word = scalar_word(wave, operand, Width::half, is_unset);
  std::fill_n(lanes, kLanes, word >> shift & 0xffff);
  unset |= spread(is_unset);
}

std::uint64_t enabled(const Wave& wave, const Operation& op) {
  if (!op.is_dpp) return wave.exec;
  std::uint64_t lanes = wave.exec & op.dpp_rows;
  if (op.bound_ctrl) return lanes;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if (dpp_lane(wave, op, lane) < 0) lanes &= ~(std::uint64_t{1} << lane);
  }
  return lanes;
}

void write_register(Wave& wave, int index, std::uint64_t active, const std::uint32_t* lanes,
                    std::uint64_t unset_low, std::uint64_t unset_high) {
  VectorRegister& to = wave.vector[static_cast<std::size_t>(index)];
  if (active == wave.all()) {
    std::copy_n(lanes, kLanes, to.lane.begin());
  } else {
    blend(to.lane.data(), lanes, active);
  }
  to.mark(active, unset_low, unset_high);
}

namespace {

// How a result becomes a word of its register: a part of it, shifted, beside bits that stay.
struct Merge {
  std::uint32_t mask = ~std::uint32_t{0};
  int shift = 0;
  std::uint32_t kept = 0;
  std::uint32_t sign = 0;  ///< where the sign is that fills `extension`
  std::uint32_t extension = 0;

  std::uint32_t word(std::uint32_t old, std::uint32_t result) const {
    return (result & mask) << shift | (old & kept) | ((result & sign) != 0 ? extension : 0);
  }
};

Merge sdwa_merge(const Operation& op) {
  Merge merge;
  const bool is_byte = op.destination_select < 4;
  merge.mask = is_byte ? 0xff : 0xffff;
  merge.shift = is_byte ? 8 * op.destination_select : 16 * (op.destination_select - 4);
  const std::uint32_t place = merge.mask << merge.shift;
  if (op.unused == 2) merge.kept = ~place;
  if (op.unused == 1) {
    merge.sign = merge.mask ^ merge.mask >> 1;
    merge.extension = ~((place << 1) - 1) & ~place;
  }
  return merge;
}

// What is unwritten of the result merges as the result does.
void write_merged(Wave& wave, const Operation& op, std::size_t index, const Merge& merge,
                  const std::uint32_t* lanes, std::uint64_t unset, const std::uint32_t* bits) {
  VectorRegister& to = wave.vector[op.operands[index].index];
  const std::uint64_t active = enabled(wave, op);
  std::array<std::uint32_t, kLanes> words;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    words[lane] = merge.word(to.lane[lane], lanes[lane]);
  }
  const std::uint32_t made = merge.mask << merge.shift | merge.extension;
  const auto of_half = [&](std::uint32_t half, std::uint64_t old) {
    return ((made & half) != 0 ? unset : 0) | ((merge.kept & half) != 0 ? old : 0);
  };
  const std::uint64_t low = of_half(0xffff, to.unset_low);
  const std::uint64_t high = of_half(0xffff0000, to.unset_high);
  // Masks of halves say it all, or else bits do.
  const bool is_half = made == 0xffff || made == 0xffff0000;
  std::uint64_t exact = bits != nullptr || !is_half ? unset : 0;
  if (merge.kept != 0) exact |= is_half ? to.by_bits : to.unset_low | to.unset_high;
  exact &= active;
  std::array<std::uint32_t, kLanes> unset_words;
  for (std::uint64_t left = exact; left != 0; left &= left - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(left));
    const bool any = (unset >> lane & 1) != 0;
    const std::uint32_t of_result = !any ? 0 : bits != nullptr ? bits[lane] : ~std::uint32_t{0};
    unset_words[lane] = merge.word(to.unset_in(lane), of_result);
  }
  write_register(wave, op.operands[index].index, active, words.data(), low, high);
  for (; exact != 0; exact &= exact - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(exact));
    to.mark_bits(lane, unset_words[lane]);
  }
}

}  // namespace

void write_words(Wave& wave, const Operation& op, std::size_t index, const std::uint32_t* lanes,
                 std::uint64_t unset, const std::uint32_t* bits) {
  if (op.is_sdwa && op.destination_select != 6) {
    write_merged(wave, op, index, sdwa_merge(op), lanes, unset, bits);
  } else if (bits != nullptr) {
    write_merged(wave, op, index, Merge{}, lanes, unset, bits);
  } else {
    write_register(wave, op.operands[index].index, enabled(wave, op), lanes, unset, unset);
  }
}

void write_halves(Wave& wave, const Operation& op, std::size_t index, const std::uint32_t* lanes,
                  std::uint64_t unset, const std::uint32_t* bits) {
  Merge merge;
  merge.mask = 0xffff;
  if (op.is_sdwa) {
    // Without a part to go to it is of 16 bits, too.
    if (op.destination_select != 6) merge = sdwa_merge(op);
  } else if (op.operands[index].half == 1 || (op.select & 0x80) != 0) {
    merge.shift = 16;
    merge.kept = 0xffff;
  } else if (!op.zeroes_high) {
    merge.kept = 0xffff0000;
  }
  write_merged(wave, op, index, merge, lanes, unset, bits);
}

std::uint32_t unset_bits(const Wave& wave, const Operand& operand, int lane) {
  if (!operand.is_vector()) return operand.is_scalar() ? wave.scalar_unset[operand.index] : 0;
  return wave.vector[operand.index].unset_in(static_cast<std::size_t>(lane));
}

std::uint32_t unset_bits(const Wave& wave, const Operation& op, int index, Width width, int lane) {
  const Operand& operand = source(op, index);
  if (op.is_dpp && index == 0) {
    lane = dpp_lane(wave, op, lane);
    if (lane < 0) return 0;
  }
  std::uint32_t bits = unset_bits(wave, operand, lane);
  if (op.is_sdwa && index < 2) {
    bits = selected(bits, op.source_select[static_cast<std::size_t>(index)], operand.sign_extend);
  } else if (width == Width::half && (operand.half == 1 || (op.select >> index & 1) != 0)) {
    bits >>= 16;
  }
  return width == Width::half ? bits & 0xffff : bits;
}

std::uint64_t unset_low_word(const Wave& wave, const Operation& op, int index) {
  const Operand& operand = source(op, index);
  if (operand.is_vector()) {
    const VectorRegister& low = wave.vector[operand.index];
    return low.unset_low | low.unset_high;
  }
  return spread(operand.is_scalar() && wave.scalar_unset[operand.index] != 0);
}

void write_pairs(Wave& wave, const Operation& op, std::size_t index, const std::uint64_t* lanes,
                 std::uint64_t unset_low_word, std::uint64_t unset_high_word) {
  const int to = op.operands[index].index;
  const std::uint64_t active = enabled(wave, op);
  std::array<std::uint32_t, kLanes> words;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    words[lane] = static_cast<std::uint32_t>(lanes[lane]);
  }
  write_register(wave, to, active, words.data(), unset_low_word, unset_low_word);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    words[lane] = static_cast<std::uint32_t>(lanes[lane] >> 32);
  }
  write_register(wave, to + 1, active, words.data(), unset_high_word, unset_high_word);
}

}  // namespace kiln::amd
