// Moves, selections, and what takes values from other lanes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/amd/isa/lanes.hpp"
#include "tests/amd/isa/lanewise.hpp"

namespace kiln::amd {
namespace {

void swap(Wave& wave, const Operation& op) {
  const auto a = op.operands[0].index;
  const auto b = op.operands[1].index;
  const VectorRegister first = wave.vector[a];
  const VectorRegister second = wave.vector[b];
  write_register(wave, a, wave.exec, second.lane.data(), second.unset_low, second.unset_high);
  write_register(wave, b, wave.exec, first.lane.data(), first.unset_low, first.unset_high);
}

// Which registers are as many after the ones named as M0 says.
enum Relative : u32 { kSource = 1, kDestination = 2 };

int register_after(Wave& wave, const Operand& named) {
  if (wave.scalar_unset[kM0] != 0) fault(wave, "M0 holds what nobody has written");
  const u64 index = u64{named.index} + wave.scalar[kM0];
  if (index >= wave.vector.size()) fault(wave, "M0 leads to a register beyond those declared");
  if (wave.pending_vector[index] != 0) {
    fault(wave, fmt::format("v{} is to be filled by a load that has not been waited for", index));
  }
  return static_cast<int>(index);
}
void move_relative(Wave& wave, const Operation& op) {
  const Operand& named = op.operands[0];
  const bool is_far = (op.entry->variant & kDestination) != 0;
  const int to = is_far ? register_after(wave, named) : named.index;
  alignas(64) std::array<u32, kLanes> lanes{};
  u64 unset_low = 0;
  u64 unset_high = 0;
  if ((op.entry->variant & kSource) != 0) {
    const auto from = static_cast<std::size_t>(register_after(wave, source(op, 0)));
    lanes = wave.vector[from].lane;
    unset_low = wave.vector[from].unset_low;
    unset_high = wave.vector[from].unset_high;
  } else {
    const u32* const words = read_words(wave, op, 0, Width::word, lanes.data(), unset_low);
    if (words != lanes.data()) std::copy_n(words, kLanes, lanes.data());
    unset_high = unset_low;
  }
  write_register(wave, to, wave.exec, lanes.data(), unset_low, unset_high);
}

// The lane that the second source chooses.
int chosen_lane(const Wave& wave, const Operation& op) {
  bool unset = false;
  const u32 lane = scalar_word(wave, source(op, 1), Width::word, unset);
  if (unset) fault(wave, "the number of the lane is in a register that nobody has written");
  return static_cast<int>(lane) & (wave.lanes - 1);
}

void read_from(Wave& wave, const Operation& op, int lane) {
  const Operand& from = source(op, 0);
  bool unset = false;
  const u32 word = from.is_vector() ? wave.vector[from.index].lane[static_cast<std::size_t>(lane)]
                                    : scalar_word(wave, from, Width::word, unset);
  wave.set_scalar(op.operands[0].index, word, unset_bits(wave, from, lane));
}
void read_lane(Wave& wave, const Operation& op) { read_from(wave, op, chosen_lane(wave, op)); }
void read_first_lane(Wave& wave, const Operation& op) {
  read_from(wave, op, lowest_lane(wave.exec));
}

void write_lane(Wave& wave, const Operation& op) {
  const int lane = chosen_lane(wave, op);
  bool unset = false;
  const u32 word = scalar_word(wave, source(op, 0), Width::word, unset);
  VectorRegister& to = wave.vector[op.operands[0].index];
  to.lane[static_cast<std::size_t>(lane)] = word;
  const u64 bit = u64{1} << lane;
  to.mark(bit, unset ? bit : 0, unset ? bit : 0);
}

// v_permlane16 and v_permlanex16: within or across rows of 16, by nibbles of two scalar registers.
void permute_lanes(Wave& wave, const Operation& op) {
  bool selector_unset = false;
  const u64 selector = scalar_word(wave, source(op, 1), Width::word, selector_unset) |
                       u64{scalar_word(wave, source(op, 2), Width::word, selector_unset)} << 32;
  if (selector_unset) fault(wave, "the lanes are chosen by a register that nobody has written");
  const VectorRegister from = wave.vector[source(op, 0).index];
  const u64 empty = from.unset_low | from.unset_high;
  alignas(64) std::array<u32, kLanes> out{};
  u64 unset = 0;
  u64 invalid = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    int at = (lane & ~15) | static_cast<int>(selector >> (4 * (lane & 15)) & 15);
    if (op.variant != 0) at ^= 16;
    const bool readable = op.fetch_inactive || (wave.exec >> at & 1) != 0;
    if (readable) {
      out[static_cast<std::size_t>(lane)] = from.lane[static_cast<std::size_t>(at)];
      unset |= (empty >> at & 1) << lane;
    } else if (!op.bound_ctrl) {
      invalid |= u64{1} << lane;
    }
  }
  write_register(wave, op.operands[0].index, wave.exec & ~invalid, out.data(), unset, unset);
}

// v_permlane64: the other half of the wave.
void swap_halves_of_wave(Wave& wave, const Operation& op) {
  const VectorRegister from = wave.vector[source(op, 0).index];
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out[lane] = from.lane[wave.lanes == 64 ? lane ^ 32 : lane];
  }
  const auto turned = [&](u64 mask) { return wave.lanes == 64 ? std::rotl(mask, 32) : mask; };
  write_register(wave, op.operands[0].index, wave.exec, out.data(), turned(from.unset_low),
                 turned(from.unset_high));
}

// v_permlane16_swap, v_permlane32_swap: odd rows (or the upper half) of D with even ones of S.
void swap_rows(Wave& wave, const Operation& op) {
  const int width = static_cast<int>(op.variant);
  VectorRegister& a = wave.vector[op.operands[0].index];
  VectorRegister& b = wave.vector[op.operands[1].index];
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((lane & width) != 0 || (wave.exec >> lane & 1) == 0) continue;
    const int upper = lane + width;
    std::swap(a.lane[static_cast<std::size_t>(upper)], b.lane[static_cast<std::size_t>(lane)]);
    const auto exchange = [&](u64& of_a, u64& of_b) {
      const u64 x = of_a >> upper & 1;
      const u64 y = of_b >> lane & 1;
      of_a = (of_a & ~(u64{1} << upper)) | y << upper;
      of_b = (of_b & ~(u64{1} << lane)) | x << lane;
    };
    a.by_bits &= ~(u64{1} << upper);
    b.by_bits &= ~(u64{1} << lane);
    exchange(a.unset_low, b.unset_low);
    exchange(a.unset_high, b.unset_high);
  }
}

// v_pk_mov_b32: the low result is the word of S0 that op_sel chooses, the high one that of S1.
void packed_move(Wave& wave, const Operation& op) {
  std::array<VectorRegister, 2> out;
  for (int i = 0; i < 2; ++i) {
    const Operand& operand = source(op, i);
    const u32 high = op.select >> i & 1;
    VectorRegister& to = out[static_cast<std::size_t>(i)];
    if (operand.is_vector()) {
      to = wave.vector[operand.index + high];
    } else {
      u64 unset = 0;
      if (operand.is_scalar()) {
        const u32 at = operand.index + (operand.count > 1 ? high : 0U);
        to.lane.fill(wave.scalar[at]);
        unset = wave.scalar_unset[at] != 0 ? ~u64{0} : 0;
      } else {
        bool ignored = false;
        to.lane.fill(high != 0 ? 0 : scalar_word(wave, operand, Width::word, ignored));
      }
      to.unset_low = to.unset_high = unset;
    }
  }
  for (int i = 0; i < 2; ++i) {
    const VectorRegister& from = out[static_cast<std::size_t>(i)];
    write_register(wave, op.operands[0].index + i, wave.exec, from.lane.data(), from.unset_low,
                   from.unset_high);
  }
}

// v_pack_b32_f16: two halves side by side.
void pack_halves(Wave& wave, const Operation& op) {
  alignas(64) std::array<u32, kLanes> lanes[2];
  u64 low = 0;
  u64 high = 0;
  const u32* a = read_words(wave, op, 0, Width::half, lanes[0].data(), low);
  const u32* b = read_words(wave, op, 1, Width::half, lanes[1].data(), high);
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out[lane] = (a[lane] & 0xffff) | b[lane] << 16;
  }
  write_register(wave, op.operands[0].index, wave.exec, out.data(), low, high);
}

// v_mbcnt: bits below the lane in S0 (lanes 0 to 31, or with a variant 32 to 63), plus S1.
void count_bits_below(LaneLoop& loop) {
  const auto* const a = static_cast<const u32*>(loop.in[0]);
  const auto* const b = static_cast<const u32*>(loop.in[1]);
  auto* const out = static_cast<u32*>(loop.out);
  for (int lane = 0; lane < loop.lanes; ++lane) {
    const u64 below = (u64{1} << lane) - 1;
    const auto mask = static_cast<u32>(loop.variant == 0 ? below : below >> 32);
    out[lane] = static_cast<u32>(std::popcount(a[lane] & mask)) + b[lane];
  }
}
VectorEntry bits_below(u32 variant) {
  VectorEntry entry = lanewise<B32, B32, B32>([](u32 a, u32) { return a; }).with(variant);
  entry.compute = &count_bits_below;
  return entry;
}

// v_cndmask: S0 where the mask is 0, S1 where it is 1.
template <class T>
VectorEntry selection() {
  VectorEntry entry = lanewise<T, T, T>([](MaskBits& mask, auto a, auto b) {
                        return mask.in ? b : a;
                      }).masked(MaskSource::last_operand);
  entry.selects = true;
  return entry;
}
constexpr Shadow kSelected = [](const u32* value, const u32* unset) {
  return (value[2] != 0 ? unset[1] : unset[0]) | unset[2];
};

constexpr auto same = [](auto a) { return a; };
constexpr Shadow kSame = [](const u32*, const u32* unset) { return unset[0]; };

const VectorRow kMoves[] = {
    {"v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32",
     lanewise<B32, B32>(same).shadowed(kSame)},
    {"v_mov_b64", lanewise<B64, B64>(same).low_from(0)},
    {"v_mov_b16", lanewise<B16, B16>(same).shadowed(kSame)},
    {"v_cndmask_b32", selection<B32>().shadowed(kSelected)},
    {"v_cndmask_b16", selection<B16>().shadowed(kSelected)},
    {"v_swap_b32", special(&swap)},
    {"v_movrels_b32", special(&move_relative, kSource)},
    {"v_movreld_b32", special(&move_relative, kDestination)},
    {"v_movrelsd_b32", special(&move_relative, kSource | kDestination)},
    {"v_pk_mov_b32", special(&packed_move)},
    {"v_pack_b32_f16", special(&pack_halves)},
    {"v_readfirstlane_b32", special(&read_first_lane)},
    {"v_readlane_b32", special(&read_lane)},
    {"v_writelane_b32", special(&write_lane)},
    {"v_mbcnt_lo_u32_b32", bits_below(0)},
    {"v_mbcnt_hi_u32_b32", bits_below(1)},
    {"v_permlane16_b32", special(&permute_lanes, 0)},
    {"v_permlanex16_b32", special(&permute_lanes, 1)},
    {"v_permlane64_b32", special(&swap_halves_of_wave)},
    {"v_permlane16_swap_b32", special(&swap_rows, 16)},
    {"v_permlane32_swap_b32", special(&swap_rows, 32)},
};

}  // namespace

std::span<const VectorRow> move_rows() { return kMoves; }

}  // namespace kiln::amd
