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

std::uint64_t unset_selected(const VectorRegister& from, std::uint8_t select) {
  if (select == 0 || select == 1 || select == 4) return from.unset_low;
  if (select == 2 || select == 3 || select == 5) return from.unset_high;
  return from.unset_low | from.unset_high;
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
    // Of a result of which a byte or a word is kept, the low half alone counts. (Not so for shifts
    // to the right, of which compilers write 16-bit forms then.)
    const bool low_alone = select == 6 && (width == Width::half || op.destination_select < 6);
    unset |= unset_selected(from, low_alone ? 4 : select);
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

void write_words(Wave& wave, const Operation& op, std::size_t index, const std::uint32_t* lanes,
                 std::uint64_t unset) {
  const Operand& operand = op.operands[index];
  const std::uint64_t active = enabled(wave, op);
  if (!op.is_sdwa || op.destination_select == 6) {
    write_register(wave, operand.index, active, lanes, unset, unset);
    return;
  }
  const VectorRegister& old = wave.vector[operand.index];
  const bool is_byte = op.destination_select < 4;
  const int shift = is_byte ? 8 * op.destination_select : 16 * (op.destination_select - 4);
  const std::uint32_t mask = is_byte ? 0xff : 0xffff;
  std::array<std::uint32_t, kLanes> merged;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t value = lanes[lane] & mask;
    std::uint32_t word = value << shift;
    if (op.unused == 2) word |= old.lane[lane] & ~(mask << shift);
    if (op.unused == 1 && (value & (mask ^ mask >> 1)) != 0) word |= ~((mask << shift << 1) - 1);
    merged[lane] = word;
  }
  const bool in_high = shift >= 16;
  const bool keeps = op.unused == 2;
  const std::uint64_t other_low = keeps ? old.unset_low : 0;
  const std::uint64_t other_high = keeps ? old.unset_high : 0;
  write_register(wave, operand.index, active, merged.data(), in_high ? other_low : unset,
                 in_high ? unset : other_high);
}

void write_halves(Wave& wave, const Operation& op, std::size_t index, const std::uint32_t* lanes,
                  std::uint64_t unset) {
  if (op.is_sdwa) {
    if (op.destination_select != 6) {
      write_words(wave, op, index, lanes, unset);
      return;
    }
    // Of 16 bits, whatever the select says.
    std::array<std::uint32_t, kLanes> words;
    for (std::size_t lane = 0; lane < kLanes; ++lane) words[lane] = lanes[lane] & 0xffff;
    write_register(wave, op.operands[index].index, enabled(wave, op), words.data(), unset, 0);
    return;
  }
  const Operand& operand = op.operands[index];
  const VectorRegister& old = wave.vector[operand.index];
  const bool high = operand.half == 1 || (op.select & 0x80) != 0;
  std::array<std::uint32_t, kLanes> words;
  if (high) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      words[lane] = (old.lane[lane] & 0xffff) | lanes[lane] << 16;
    }
  } else if (op.zeroes_high) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) words[lane] = lanes[lane] & 0xffff;
  } else {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      words[lane] = (old.lane[lane] & 0xffff0000) | (lanes[lane] & 0xffff);
    }
  }
  write_register(wave, operand.index, enabled(wave, op), words.data(), high ? old.unset_low : unset,
                 high             ? unset
                 : op.zeroes_high ? 0
                                  : old.unset_high);
}

std::uint32_t unset_bits(const Wave& wave, const Operand& operand, int lane) {
  if (!operand.is_vector()) return operand.is_scalar() ? wave.scalar_unset[operand.index] : 0;
  const VectorRegister& from = wave.vector[operand.index];
  if ((from.by_bits >> lane & 1) != 0) return from.unset[static_cast<std::size_t>(lane)];
  return ((from.unset_low >> lane & 1) != 0 ? 0xffffU : 0U) |
         ((from.unset_high >> lane & 1) != 0 ? 0xffff0000U : 0U);
}

std::uint32_t unset_bits(const Wave& wave, const Operation& op, int index, int lane) {
  const Operand& operand = source(op, index);
  const std::uint32_t bits = unset_bits(wave, operand, lane);
  if (!op.is_sdwa || index > 1) return bits;
  return selected(bits, op.source_select[static_cast<std::size_t>(index)], operand.sign_extend);
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
