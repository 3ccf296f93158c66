// How a table's entry is executed on a wave: operands read by their types, the lanes computed, the
// result made what modifiers and the rules for NaN say, and written with what of it is unwritten.
#include "tests/amd/isa/lanewise.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "tests/amd/isa/lanes.hpp"

namespace kiln::amd {
namespace {

/// The lanes of an operand in whatever type.
struct alignas(64) Buffer {
  std::byte bytes[kLanes * 8];
  u32* words() { return reinterpret_cast<u32*>(bytes); }
  u64* pairs() { return reinterpret_cast<u64*>(bytes); }
};

/// One execution of an entry: the loop over lanes, and which lanes of the sources are unwritten.
struct Computation {
  const VectorEntry& entry;
  Buffer sources[3];
  Buffer result;
  LaneLoop loop;
  u64 unset_of[3] = {};
  u64 mask_unset = 0;

  Computation(const Wave& wave, const Operation& op) : entry(*op.entry) {
    loop.out = result.bytes;
    loop.lanes = wave.lanes;
    loop.active = wave.exec;
    loop.variant = op.variant;
    loop.worst = wave.launch->options->worst_transcendentals;
    if (wave.lanes < kLanes)
      std::fill(std::begin(result.bytes), std::end(result.bytes), std::byte{});
  }
  u64 unset() const { return unset_of[0] | unset_of[1] | unset_of[2] | mask_unset; }
};

const void* read(const Wave& wave, const Operation& op, int index, Buffer& buffer, u64& unset) {
  const Type type = op.entry->sources[index];
  if (is_pair(type)) return read_pairs(wave, op, index, buffer.pairs(), unset);
  const Width width = is_half(type) ? Width::half : Width::word;
  return read_words(wave, op, index, width, buffer.words(), unset);
}

void read_mask(const Wave& wave, const Operation& op, Computation& made) {
  if (made.entry.mask == MaskSource::none) return;
  const std::size_t at = op.first_source + std::size_t{made.entry.source_count};
  const bool has_operand = made.entry.mask == MaskSource::last_operand && at < op.operands.size();
  if (has_operand && op.operands[at].is_constant()) {
    made.loop.mask = op.operands[at].bits != 0 ? wave.all() : 0;
    return;
  }
  if (has_operand && !op.operands[at].is_scalar()) {
    fault(wave, "a mask of lanes that is not in a scalar register");
  }
  const int index = has_operand ? op.operands[at].index : int{kVcc};
  made.loop.mask = wave.mask(index);
  made.mask_unset = wave.mask_unset(index);
}

bool is_nan_at(Type type, const void* lanes, int lane) {
  switch (type) {
    case Type::f16: return is_nan16(static_cast<const u32*>(lanes)[lane]);
    case Type::f32: return is_nan(static_cast<const u32*>(lanes)[lane]);
    case Type::f64: return is_nan(static_cast<const u64*>(lanes)[lane]);
    default: return false;
  }
}

bool any_nan(Type type, const Buffer& result) {
  const auto* const words = reinterpret_cast<const u32*>(result.bytes);
  u32 found = 0;
  if (type == Type::f32) {
    for (int lane = 0; lane < kLanes; ++lane) found |= is_nan(words[lane]) ? 1U : 0U;
  } else {
    for (int lane = 0; lane < kLanes; ++lane) found |= is_nan_at(type, words, lane) ? 1U : 0U;
  }
  return found != 0;
}

// A result that is a NaN although no source is one has no sign here; x86 gives it one.
void give_default_nans(Computation& made) {
  const VectorEntry& entry = made.entry;
  const auto* const end = entry.sources + entry.source_count;
  if (!std::any_of(entry.sources, end, is_real) || !any_nan(entry.result, made.result)) return;
  for (int lane = 0; lane < made.loop.lanes; ++lane) {
    if (!is_nan_at(entry.result, made.loop.out, lane)) continue;
    bool from_nan = false;
    for (int i = 0; i < entry.source_count; ++i) {
      from_nan = from_nan || is_nan_at(entry.sources[i], made.loop.in[i], lane);
    }
    if (from_nan) continue;
    switch (entry.result) {
      case Type::f16: made.result.words()[lane] = 0x7e00; break;
      case Type::f32: made.result.words()[lane] = 0x7fc00000; break;
      default: made.result.pairs()[lane] = 0x7ff8000000000000; break;
    }
  }
}

// The output modifiers of a float: scale, then clamp to [0, 1] with NaN as 0.
template <class T, class Bits>
void modify(const Operation& op, Bits* lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    auto value = T::value(lanes[lane]);
    if (op.scale != 1) value *= op.scale;
    if (op.clamp) value = value > 0 ? (value < 1 ? value : 1) : 0;
    lanes[lane] = T::bits(value);
  }
}

void compute(const Operation& op, Computation& made) {
  const VectorEntry& entry = made.entry;
  entry.compute(made.loop);
  if (!is_real(entry.result)) return;
  give_default_nans(made);
  if (!op.clamp && op.scale == 1) return;
  switch (entry.result) {
    case Type::f16: modify<F16>(op, made.result.words()); break;
    case Type::f32: modify<F32>(op, made.result.words()); break;
    default: modify<F64>(op, made.result.pairs()); break;
  }
}

void read_and_compute(const Wave& wave, const Operation& op, Computation& made) {
  for (int i = 0; i < made.entry.source_count; ++i) {
    made.loop.in[i] = read(wave, op, i, made.sources[i], made.unset_of[i]);
  }
  read_mask(wave, op, made);
  compute(op, made);
}

// The bits that are unwritten, lane by lane.
void write_shadowed(Wave& wave, const Operation& op, Computation& made) {
  const VectorEntry& entry = made.entry;
  u64 lanes = 0;
  alignas(64) std::array<u32, kLanes> bits;
  for (u64 left = made.unset() & wave.exec; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    u32 value[4] = {};
    u32 unset[4] = {};
    const int count = entry.source_count;
    for (int i = 0; i < count; ++i) {
      const bool half = is_half(entry.sources[i]);
      const u32 word = static_cast<const u32*>(made.loop.in[i])[lane];
      value[i] = half ? word & 0xffff : word;
      unset[i] = unset_bits(wave, op, i, half ? Width::half : Width::word, lane);
    }
    value[count] =
        entry.mask == MaskSource::none ? op.variant : static_cast<u32>(made.loop.mask >> lane & 1);
    unset[count] = (made.mask_unset >> lane & 1) != 0 ? 0xffffffff : 0;
    const u32 result = entry.shadow(value, unset);
    bits[static_cast<std::size_t>(lane)] = result;
    if (result != 0) lanes |= u64{1} << lane;
  }
  const auto write_part = is_half(entry.result) ? &write_halves : &write_words;
  write_part(wave, op, 0, made.result.words(), lanes, bits.data());
}

void write(Wave& wave, const Operation& op, Computation& made, u64 unset) {
  const VectorEntry& entry = made.entry;
  if (is_pair(entry.result)) {
    u64 low = unset;
    if (const int from = entry.low_source; from >= 0) {
      low = unset_low_word(wave, op, from);
      for (int i = 0; i < entry.source_count; ++i) low |= i == from ? 0 : made.unset_of[i];
    }
    write_pairs(wave, op, 0, made.result.pairs(), low, unset);
  } else if (is_half(entry.result)) {
    write_halves(wave, op, 0, made.result.words(), unset);
  } else {
    write_words(wave, op, 0, made.result.words(), unset);
  }
}

}  // namespace

void run_lanewise(Wave& wave, const Operation& op) {
  Computation made(wave, op);
  read_and_compute(wave, op, made);
  const VectorEntry& entry = made.entry;
  u64 unset = made.unset();
  // Before the result is written, as that may be what chooses them.
  const u64 active = entry.destinations > 1 ? enabled(wave, op) : 0;
  if (entry.shadow != nullptr && (unset & wave.exec) != 0) {
    write_shadowed(wave, op, made);
  } else {
    if (entry.selects) {
      const u64 mask = made.loop.mask;
      unset = (made.unset_of[0] & ~mask) | (made.unset_of[1] & mask) | made.mask_unset;
    }
    write(wave, op, made, unset);
  }
  if (entry.destinations > 1 && op.operands[1].is_scalar()) {
    wave.set_mask(op.operands[1].index, made.loop.result_mask & active, unset & active);
  }
}

void run_comparison(Wave& wave, const Operation& op) {
  Computation made(wave, op);
  read_and_compute(wave, op, made);
  const u32* const relation = made.result.words();
  u64 hits = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    hits |= u64{(relation[lane] & op.variant) != 0} << lane;
  }
  const u64 active = enabled(wave, op);
  hits &= active;
  const u64 unset = made.unset() & active;
  if (op.first_source == 1 && op.operands[0].is_scalar()) {
    wave.set_mask(op.operands[0].index, hits, unset);
  }
  if ((op.variant & kSetsExec) == 0) return;
  if (unset != 0) {
    fault(wave, "EXEC is made of a register that nobody has written", lowest_lane(unset));
  }
  wave.set_mask(kExec, hits, 0);
}

namespace {

// The unwritten bits of one half of a packed result in a lane.
u32 unset_half(const Wave& wave, const Operation& op, const Computation& made, u32 select,
               int lane) {
  u32 value[4] = {};
  u32 unset[4] = {};
  for (int i = 0; i < made.entry.source_count; ++i) {
    value[i] = static_cast<const u32*>(made.loop.in[i])[lane] & 0xffff;
    unset[i] = unset_bits(wave, source(op, i), lane) >> (16 * (select >> i & 1)) & 0xffff;
  }
  return made.entry.shadow(value, unset) & 0xffff;
}

}  // namespace

// Each half is chosen from its source by op_sel (of the low result) or op_sel_hi.
void run_packed_halves(Wave& wave, const Operation& op) {
  alignas(64) std::array<u32, kLanes> out{};
  u64 unset[2] = {};
  std::array<u32, kLanes> bits{};
  for (int half = 0; half < 2; ++half) {
    Computation made(wave, op);
    const u32 select = half == 0 ? op.select : op.select_hi;
    const u32 negate = half == 0 ? op.negate_lo : op.negate_hi;
    for (int i = 0; i < made.entry.source_count; ++i) {
      u32* const lanes = made.sources[i].words();
      made.loop.in[i] = lanes;
      read_halves(wave, op, i, (select >> i & 1) != 0, lanes, unset[half]);
      if ((negate >> i & 1) == 0) continue;
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] ^= 0x8000;
    }
    compute(op, made);
    const u32* const result = made.result.words();
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      out[lane] |= (result[lane] & 0xffff) << (16 * half);
    }
    if (made.entry.shadow == nullptr) continue;
    for (u64 left = unset[half] & wave.exec; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      bits[static_cast<std::size_t>(lane)] |= unset_half(wave, op, made, select, lane)
                                              << (16 * half);
    }
  }
  write_register(wave, op.operands[0].index, wave.exec, out.data(), unset[0], unset[1]);
  if (op.entry->shadow == nullptr) return;
  VectorRegister& to = wave.vector[op.operands[0].index];
  for (u64 left = (unset[0] | unset[1]) & wave.exec; left != 0; left &= left - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(left));
    to.mark_bits(lane, bits[lane]);
  }
}

// Each word is chosen from two registers; a constant stands for both.
void run_packed_words(Wave& wave, const Operation& op) {
  alignas(64) std::array<std::array<u32, kLanes>, 2> out;
  u64 unset[2] = {};
  for (std::size_t half = 0; half < 2; ++half) {
    Computation made(wave, op);
    const u32 select = half == 0 ? op.select : op.select_hi;
    const u32 negate = half == 0 ? op.negate_lo : op.negate_hi;
    for (int i = 0; i < made.entry.source_count; ++i) {
      Operand operand = source(op, i);
      if (operand.count > 1 && (select >> i & 1) != 0) ++operand.index;
      u32* const lanes = made.sources[i].words();
      made.loop.in[i] = lanes;
      if (operand.is_vector()) {
        const VectorRegister& from = wave.vector[operand.index];
        std::copy(from.lane.begin(), from.lane.end(), lanes);
        unset[half] |= from.unset_low | from.unset_high;
      } else {
        bool is_unset = false;
        std::fill_n(lanes, kLanes, scalar_word(wave, operand, Width::word, is_unset));
        if (is_unset) unset[half] = ~u64{0};
      }
      if ((negate >> i & 1) == 0) continue;
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] ^= 0x80000000;
    }
    compute(op, made);
    std::copy_n(made.result.words(), kLanes, out[half].begin());
  }
  for (int half = 0; half < 2; ++half) {
    write_register(wave, op.operands[0].index + half, wave.exec,
                   out[static_cast<std::size_t>(half)].data(), unset[half], unset[half]);
  }
}

// Sources are halves (op_sel_hi) or floats. The result is a float, or one half of a word.
void run_mixed(Wave& wave, const Operation& op) {
  Computation made(wave, op);
  u64 unset = 0;
  for (int i = 0; i < 3; ++i) {
    const Operand& operand = source(op, i);
    u32* const lanes = made.sources[i].words();
    made.loop.in[i] = lanes;
    if ((op.select_hi >> i & 1) != 0) {
      read_halves(wave, op, i, (op.select >> i & 1) != 0, lanes, unset);
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = half_to_bits(lanes[lane]);
    } else if (operand.is_vector()) {
      const VectorRegister& from = wave.vector[operand.index];
      std::copy(from.lane.begin(), from.lane.end(), lanes);
      unset |= from.unset_low | from.unset_high;
    } else {
      bool is_unset = false;
      std::fill_n(lanes, kLanes, scalar_word(wave, operand, Width::word, is_unset));
      if (is_unset) unset = ~u64{0};
    }
    const bool absolute = operand.absolute || (op.negate_hi >> i & 1) != 0;
    const bool negate = operand.negate || (op.negate_lo >> i & 1) != 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (absolute) lanes[lane] &= 0x7fffffff;
      if (negate) lanes[lane] ^= 0x80000000;
    }
  }
  compute(op, made);
  u32* const out = made.result.words();
  if (op.variant == kMixFloat) {
    write_words(wave, op, 0, out, unset);
    return;
  }
  const VectorRegister& old = wave.vector[op.operands[0].index];
  const bool high = op.variant == kMixHigh;
  for (int lane = 0; lane < kLanes; ++lane) {
    const u32 half = half_of(as_float(out[lane]));
    const u32 kept = old.lane[static_cast<std::size_t>(lane)];
    out[lane] = high ? (kept & 0xffff) | half << 16 : (kept & 0xffff0000) | half;
  }
  write_register(wave, op.operands[0].index, wave.exec, out, high ? old.unset_low : unset,
                 high ? unset : old.unset_high);
}

}  // namespace kiln::amd
