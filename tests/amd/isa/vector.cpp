// Vector instructions: what each computes. The pseudocode of AMD's ISA documents decides; where an
// instruction is a host operation the host's IEEE arithmetic does it, uncontracted.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/amd/isa/lanes.hpp"

namespace kiln::amd {
namespace {

using u16 = std::uint16_t;
using i16 = std::int16_t;
using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

// Types of operands: what a lane's bits are as a value.
struct B32 {
  using Bits = u32;
  using Value = u32;
  static Value value(Bits bits) { return bits; }
  static Bits bits(Value value) { return value; }
};
struct I32 : B32 {
  using Value = i32;
  static Value value(Bits bits) { return static_cast<i32>(bits); }
  static Bits bits(Value value) { return static_cast<u32>(value); }
};
struct F32 {
  using Bits = u32;
  using Value = float;
  static Value value(Bits bits) { return as_float(bits); }
  static Bits bits(Value value) { return as_bits(value); }
};
struct B16 {
  using Bits = u32;
  using Value = u16;
  static Value value(Bits bits) { return static_cast<u16>(bits); }
  static Bits bits(Value value) { return value; }
};
struct I16 : B16 {
  using Value = i16;
  static Value value(Bits bits) { return static_cast<i16>(bits); }
  static Bits bits(Value value) { return static_cast<u16>(value); }
};
// Halves, as bits where those matter and else as floats, which are rounded once.
struct F16 {
  using Bits = u32;
  using Value = float;
  static Value value(Bits bits) { return half_to_float(bits & 0xffff); }
  static Bits bits(Value value) { return half_of(value); }
};
struct F16Exact : F16 {  ///< a result that a float does not hold
  using Value = double;
  static Bits bits(Value value) { return half_of(value); }
};
struct B64 {
  using Bits = u64;
  using Value = u64;
  static Value value(Bits bits) { return bits; }
  static Bits bits(Value value) { return value; }
};
struct I64 : B64 {
  using Value = i64;
  static Value value(Bits bits) { return static_cast<i64>(bits); }
  static Bits bits(Value value) { return static_cast<u64>(value); }
};
struct F64 {
  using Bits = u64;
  using Value = double;
  static Value value(Bits bits) { return as_double(bits); }
  static Bits bits(Value value) { return as_bits(value); }
};

template <class T>
constexpr bool is_half_v = std::is_base_of_v<B16, T> || std::is_base_of_v<F16, T>;
template <class T>
constexpr bool is_pair_v = sizeof(typename T::Bits) == 8;
template <class T>
constexpr bool is_real_v =
    std::is_same_v<T, F32> || std::is_same_v<T, F64> || std::is_base_of_v<F16, T>;

template <class T>
struct Lanes {
  alignas(64) std::array<typename T::Bits, kLanes> buffer;
  const typename T::Bits* read(const Wave& wave, const Operation& op, int index, u64& unset) {
    if constexpr (is_pair_v<T>) {
      return read_pairs(wave, op, index, buffer.data(), unset);
    } else {
      return read_words(wave, op, index, is_half_v<T> ? Width::half : Width::word, buffer.data(),
                        unset);
    }
  }
};

template <class T>
void write(Wave& wave, const Operation& op, std::size_t index, const typename T::Bits* lanes,
           u64 unset) {
  if constexpr (is_pair_v<T>) {
    write_pairs(wave, op, index, lanes, unset, unset);
  } else if constexpr (is_half_v<T>) {
    write_halves(wave, op, index, lanes, unset);
  } else {
    write_words(wave, op, index, lanes, unset);
  }
}

// A result that is a NaN although no operand is one has no sign here; x86 gives it one.
template <class D>
typename D::Bits default_nan(typename D::Bits bits, bool from_nan) {
  if constexpr (std::is_same_v<D, F32>) return is_nan(bits) && !from_nan ? 0x7fc00000 : bits;
  if constexpr (std::is_same_v<D, F64>) {
    return is_nan(bits) && !from_nan ? 0x7ff8000000000000 : bits;
  }
  if constexpr (std::is_base_of_v<F16, D>) return is_nan16(bits) && !from_nan ? 0x7e00 : bits;
  return bits;
}

template <class T>
bool is_nan_value(typename T::Value value) {
  if constexpr (is_real_v<T>) return value != value;
  return false;
}

// The output modifiers of a float result: scale, then clamp to [0, 1] with NaN as 0.
template <class D>
void modify(const Operation& op, typename D::Bits* lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    auto value = D::value(lanes[lane]);
    if (op.scale != 1) value *= op.scale;
    if (op.clamp) value = value > 0 ? (value < 1 ? value : 1) : 0;
    lanes[lane] = D::bits(value);
  }
}

// How unwritten bits pass: by default a result is unwritten if anything of a source is. These are
// the operations that compilers use on registers of which only a part holds something.
enum Shadow : std::uint8_t {
  kAny,
  kAnd,
  kOr,
  kShiftLeft,
  kShiftRight,
  kAndOr,
  kShiftLeftOr,
  kOr3,
  kBitfieldExtract,
  kBitfieldInsert,
  kAlignBits,
  kPermute,
  kMove
};

// Of a lane: ones in the bits of a source that nobody has written.
u32 shadow_of(const Wave& wave, const Operation& op, int index, int lane) {
  const Operand& operand = source(op, index);
  if (!operand.is_vector()) {
    return operand.is_scalar() ? wave.scalar_unset[operand.index] : 0;
  }
  const VectorRegister& from = wave.vector[operand.index];
  return ((from.unset_low >> lane & 1) != 0 ? 0xffffU : 0U) |
         ((from.unset_high >> lane & 1) != 0 ? 0xffff0000U : 0U);
}

u32 permuted(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{a} << 32 | b;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 select = selector >> (8 * i) & 0xff;
    u32 byte = 0;
    if (select >= 13) {
      byte = 0xff;
    } else if (select == 12) {
      byte = 0;
    } else if (select >= 8) {  // the sign of a word: 1, 3, 5, 7
      byte = (bytes >> (8 * (2 * (select - 8) + 1) + 7) & 1) != 0 ? 0xff : 0;
    } else {
      byte = static_cast<u32>(bytes >> (8 * select)) & 0xff;
    }
    result |= byte << (8 * i);
  }
  return result;
}

u32 pass(std::uint8_t shadow, const u32* value, const u32* bits) {
  const auto right = [](u32 x, u32 n) { return x >> (n & 31); };
  const auto left = [](u32 x, u32 n) { return x << (n & 31); };
  const auto both_and = [](u32 a, u32 sa, u32 b, u32 sb) {
    return (sa & sb) | (sa & b) | (a & sb);
  };
  const auto both_or = [](u32 a, u32 sa, u32 b, u32 sb) {
    return (sa & sb) | (sa & ~b) | (~a & sb);
  };
  const auto all_if = [](bool condition) { return condition ? 0xffffffffU : 0U; };
  switch (shadow) {
    case kAnd: return both_and(value[0], bits[0], value[1], bits[1]);
    case kOr: return both_or(value[0], bits[0], value[1], bits[1]);
    case kShiftLeft: return left(bits[1], value[0]) | all_if(bits[0] != 0);
    case kShiftRight: return right(bits[1], value[0]) | all_if(bits[0] != 0);
    case kAndOr:
      return both_or(value[0] & value[1], both_and(value[0], bits[0], value[1], bits[1]), value[2],
                     bits[2]);
    case kShiftLeftOr:
      return both_or(left(value[0], value[1]), left(bits[0], value[1]) | all_if(bits[1] != 0),
                     value[2], bits[2]);
    case kOr3: return bits[0] | bits[1] | bits[2];
    case kBitfieldExtract: {
      const u32 mask = (u32{1} << (value[2] & 31)) - 1;
      const u32 taken = right(bits[0], value[1]) & mask;
      return all_if(taken != 0 || bits[1] != 0 || bits[2] != 0);
    }
    case kBitfieldInsert: return bits[0] | (value[0] & bits[1]) | (~value[0] & bits[2]);
    case kAlignBits:
      return static_cast<u32>((u64{bits[0]} << 32 | bits[1]) >> (value[2] & 31)) |
             all_if(bits[2] != 0);
    case kPermute: return permuted(bits[0], bits[1], value[2]) & ~permuted(0, 0, value[2]);
    case kMove: return bits[0];
    default: return 0xffffffff;
  }
}

// The halves that are unwritten, for a result of words whose sources are `unset` somewhere.
void write_shadowed(Wave& wave, const Operation& op, const u32* const* values, int sources,
                    const u32* lanes, u64 unset) {
  u64 low = 0;
  u64 high = 0;
  for (u64 left = unset & wave.exec; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    u32 value[3] = {};
    u32 bits[3] = {};
    for (int i = 0; i < sources; ++i) {
      value[i] = values[i][lane];
      bits[i] = shadow_of(wave, op, i, lane);
    }
    const u32 result = pass(op.shadow, value, bits);
    if ((result & 0xffff) != 0) low |= u64{1} << lane;
    if ((result & 0xffff0000) != 0) high |= u64{1} << lane;
  }
  write_register(wave, op.operands[0].index, wave.exec, lanes, low, high);
}

// D = function(S...), lane by lane.
template <class F, class D, class... S>
struct Lanewise {
  template <std::size_t... I>
  static void run_with(Wave& wave, const Operation& op, std::index_sequence<I...>) {
    std::tuple<Lanes<S>...> buffers;
    u64 unset = 0;
    const std::tuple<const typename S::Bits*...> in{
        std::get<I>(buffers).read(wave, op, static_cast<int>(I), unset)...};
    alignas(64) std::array<typename D::Bits, kLanes> out;
    for (int lane = 0; lane < kLanes; ++lane) {
      if constexpr (is_real_v<D> && (is_real_v<S> || ...)) {
        const bool from_nan = (is_nan_value<S>(S::value(std::get<I>(in)[lane])) || ...);
        out[static_cast<std::size_t>(lane)] = default_nan<D>(
            D::bits(static_cast<typename D::Value>(F{}(S::value(std::get<I>(in)[lane])...))),
            from_nan);
      } else {
        out[static_cast<std::size_t>(lane)] =
            D::bits(static_cast<typename D::Value>(F{}(S::value(std::get<I>(in)[lane])...)));
      }
    }
    if constexpr (is_real_v<D>) {
      if (op.clamp || op.scale != 1) modify<D>(op, out.data());
    }
    if constexpr (std::is_same_v<D, B32> && (std::is_same_v<S, B32> && ...)) {
      if (op.shadow != kAny && !op.is_sdwa && !op.is_dpp && (unset & wave.exec) != 0) {
        const u32* values[] = {std::get<I>(in)...};
        write_shadowed(wave, op, values, sizeof...(S), out.data(), unset);
        return;
      }
    }
    write<D>(wave, op, 0, out.data(), unset);
  }
  static void run(Wave& wave, const Operation& op) {
    run_with(wave, op, std::index_sequence_for<S...>{});
  }
};

// ---- Comparisons ----

enum Relation : u32 { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

void write_comparison(Wave& wave, const Operation& op, u64 hits, u64 unset) {
  const u64 active = enabled(wave, op);
  hits &= active;
  unset &= active;
  const bool sets_exec = (op.variant & 0x100) != 0;
  if (op.first_source == 1) {
    const Operand& to = op.operands[0];
    if (to.is_scalar()) wave.set_mask(to.index, hits, unset);
  }
  if (!sets_exec) return;
  if (unset != 0) {
    fault(wave, "EXEC is made of a register that nobody has written", lowest_lane(unset));
  }
  wave.set_mask(kExec, hits, 0);
}

template <class T>
void compare(Wave& wave, const Operation& op) {
  Lanes<T> a_lanes;
  Lanes<T> b_lanes;
  u64 unset = 0;
  const auto* a = a_lanes.read(wave, op, 0, unset);
  const auto* b = b_lanes.read(wave, op, 1, unset);
  alignas(64) std::array<std::uint8_t, kLanes> relation;
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto x = T::value(a[lane]);
    const auto y = T::value(b[lane]);
    const int code = (x < y ? 1 : 0) | (x == y ? 2 : 0) | (x > y ? 4 : 0);
    relation[static_cast<std::size_t>(lane)] = static_cast<std::uint8_t>(code == 0 ? 8 : code);
  }
  u64 hits = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((relation[static_cast<std::size_t>(lane)] & op.variant) != 0) hits |= u64{1} << lane;
  }
  write_comparison(wave, op, hits, unset);
}

// The class of a float: bits as the ISA numbers them.
template <class T>
u32 class_of(typename T::Bits bits) {
  constexpr int kWidth = is_half_v<T> ? 16 : is_pair_v<T> ? 64 : 32;
  constexpr int kFraction = is_half_v<T> ? 10 : is_pair_v<T> ? 52 : 23;
  const u64 wide = bits;
  const bool negative = (wide >> (kWidth - 1) & 1) != 0;
  const u64 fraction = wide & ((u64{1} << kFraction) - 1);
  const u64 top = (u64{1} << (kWidth - 1 - kFraction)) - 1;
  const u64 exponent = wide >> kFraction & top;
  if (exponent == top && fraction != 0) return (fraction >> (kFraction - 1) & 1) != 0 ? 2 : 1;
  if (exponent == top) return negative ? 4 : 0x200;
  if (exponent != 0) return negative ? 8 : 0x100;
  if (fraction != 0) return negative ? 0x10 : 0x80;
  return negative ? 0x20 : 0x40;
}

template <class T>
void compare_class(Wave& wave, const Operation& op) {
  Lanes<T> a_lanes;
  Lanes<B32> b_lanes;
  u64 unset = 0;
  const auto* a = a_lanes.read(wave, op, 0, unset);
  const auto* b = b_lanes.read(wave, op, 1, unset);
  u64 hits = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((class_of<T>(a[lane]) & b[lane]) != 0) hits |= u64{1} << lane;
  }
  write_comparison(wave, op, hits, unset);
}

// ---- Carries, masks and other instructions with scalar operands ----

// Which carry instruction: reversed operands, subtraction, carry in.
enum Carry : u32 { kSubtract = 1, kReversed = 2, kCarryIn = 4 };

void carry(Wave& wave, const Operation& op) {
  Lanes<B32> a_lanes;
  Lanes<B32> b_lanes;
  u64 unset = 0;
  const u32* a = a_lanes.read(wave, op, 0, unset);
  const u32* b = b_lanes.read(wave, op, 1, unset);
  if ((op.variant & kReversed) != 0) std::swap(a, b);
  u64 in = 0;
  if ((op.variant & kCarryIn) != 0) {
    const Operand& from = source(op, 2);
    if (!from.is_scalar()) fault(wave, "a carry that is not in a scalar register");
    in = wave.mask(from.index);
    unset |= wave.mask_unset(from.index);
  }
  alignas(64) std::array<u32, kLanes> out;
  u64 carries = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const u64 bit = in >> lane & 1;
    const u64 wide =
        (op.variant & kSubtract) != 0 ? u64{a[lane]} - b[lane] - bit : u64{a[lane]} + b[lane] + bit;
    out[static_cast<std::size_t>(lane)] = static_cast<u32>(wide);
    carries |= (wide >> 32 & 1) << lane;
  }
  const u64 active = enabled(wave, op);
  write_words(wave, op, 0, out.data(), unset);
  if (op.operands[1].is_scalar()) {
    wave.set_mask(op.operands[1].index, carries & active, unset & active);
  }
}

// v_mad_u64_u32, v_mad_i64_i32: D, carry, S0, S1, S2.
template <bool Signed>
void multiply_add_wide(Wave& wave, const Operation& op) {
  Lanes<B32> a_lanes;
  Lanes<B32> b_lanes;
  Lanes<B64> c_lanes;
  u64 unset = 0;
  const u32* a = a_lanes.read(wave, op, 0, unset);
  const u32* b = b_lanes.read(wave, op, 1, unset);
  const u64 low_unset = unset | unset_low_word(wave, op, 2);
  const u64* c = c_lanes.read(wave, op, 2, unset);
  alignas(64) std::array<u64, kLanes> out;
  u64 carries = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    u64 product = 0;
    if constexpr (Signed) {
      product = static_cast<u64>(i64{static_cast<i32>(a[lane])} * static_cast<i32>(b[lane]));
    } else {
      product = u64{a[lane]} * b[lane];
    }
    const u64 sum = product + c[lane];
    out[static_cast<std::size_t>(lane)] = sum;
    carries |= u64{sum < product} << lane;
  }
  const u64 active = enabled(wave, op);
  write_pairs(wave, op, 0, out.data(), low_unset, unset);
  if (op.operands[1].is_scalar()) {
    wave.set_mask(op.operands[1].index, carries & active, unset & active);
  }
}

// v_lshlrev_b64: what is shifted up leaves the low word as written as it was.
void shift_left_wide(Wave& wave, const Operation& op) {
  Lanes<B32> n_lanes;
  Lanes<B64> a_lanes;
  u64 unset = 0;
  const u32* n = n_lanes.read(wave, op, 0, unset);
  const u64 low_unset = unset | unset_low_word(wave, op, 1);
  const u64* a = a_lanes.read(wave, op, 1, unset);
  alignas(64) std::array<u64, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) out[lane] = a[lane] << (n[lane] & 63);
  write_pairs(wave, op, 0, out.data(), low_unset, unset);
}

// v_cndmask: S0 where the mask is 0, S1 where it is 1.
template <class T>
void select(Wave& wave, const Operation& op) {
  Lanes<T> a_lanes;
  Lanes<T> b_lanes;
  u64 a_unset = 0;
  u64 b_unset = 0;
  const auto* a = a_lanes.read(wave, op, 0, a_unset);
  const auto* b = b_lanes.read(wave, op, 1, b_unset);
  u64 mask = wave.mask(kVcc);
  u64 mask_unset = wave.mask_unset(kVcc);
  if (op.operands.size() > 3) {
    const Operand& from = source(op, 2);
    mask = from.is_scalar() ? wave.mask(from.index) : from.bits != 0 ? wave.all() : 0;
    mask_unset = from.is_scalar() ? wave.mask_unset(from.index) : 0;
  }
  alignas(64) std::array<typename T::Bits, kLanes> out;
  for (int lane = 0; lane < kLanes; ++lane) {
    out[static_cast<std::size_t>(lane)] = (mask >> lane & 1) != 0 ? b[lane] : a[lane];
  }
  if constexpr (std::is_same_v<T, B32>) {
    // Half by half: what is unwritten in the half that nobody looks at stays so.
    if (!op.is_sdwa && !op.is_dpp && (a_unset | b_unset) != 0) {
      const auto half = [&](int index, bool high) -> u64 {
        const Operand& operand = source(op, index);
        if (!operand.is_vector()) return index == 0 ? a_unset : b_unset;
        const VectorRegister& from = wave.vector[operand.index];
        return high ? from.unset_high : from.unset_low;
      };
      const auto merged = [&](bool high) {
        return (half(0, high) & ~mask) | (half(1, high) & mask) | mask_unset;
      };
      write_register(wave, op.operands[0].index, wave.exec, out.data(), merged(false),
                     merged(true));
      return;
    }
  }
  write<T>(wave, op, 0, out.data(), (a_unset & ~mask) | (b_unset & mask) | mask_unset);
}

void move(Wave& wave, const Operation& op) {
  Lanes<B32> a_lanes;
  u64 unset = 0;
  const u32* a = a_lanes.read(wave, op, 0, unset);
  const Operand& operand = source(op, 0);
  if (unset != 0 && operand.is_vector() && !op.is_dpp && !op.is_sdwa) {
    const VectorRegister& from = wave.vector[operand.index];
    alignas(64) std::array<u32, kLanes> copy;
    std::copy_n(a, kLanes, copy.begin());
    write_register(wave, op.operands[0].index, wave.exec, copy.data(), from.unset_low,
                   from.unset_high);
    return;
  }
  write_words(wave, op, 0, a, unset);
}

void swap(Wave& wave, const Operation& op) {
  const auto a = op.operands[0].index;
  const auto b = op.operands[1].index;
  const VectorRegister first = wave.vector[a];
  const VectorRegister second = wave.vector[b];
  write_register(wave, a, wave.exec, second.lane.data(), second.unset_low, second.unset_high);
  write_register(wave, b, wave.exec, first.lane.data(), first.unset_low, first.unset_high);
}

void read_lane(Wave& wave, const Operation& op) {
  int lane = lowest_lane(wave.exec);
  if (op.variant == 0) {
    bool unset = false;
    lane =
        static_cast<int>(scalar_word(wave, source(op, 1), Width::word, unset)) & (wave.lanes - 1);
    if (unset) fault(wave, "the number of the lane is in a register that nobody has written");
  }
  const Operand& from = source(op, 0);
  if (!from.is_vector()) {
    bool unset = false;
    const u32 word = scalar_word(wave, from, Width::word, unset);
    wave.set_scalar(op.operands[0].index, word, unset ? 0xffffffff : 0);
    return;
  }
  wave.set_scalar(op.operands[0].index,
                  wave.vector[from.index].lane[static_cast<std::size_t>(lane)],
                  shadow_of(wave, op, 0, lane));
}

void write_lane(Wave& wave, const Operation& op) {
  bool unset = false;
  const int lane =
      static_cast<int>(scalar_word(wave, source(op, 1), Width::word, unset)) & (wave.lanes - 1);
  if (unset) fault(wave, "the number of the lane is in a register that nobody has written");
  const u32 word = scalar_word(wave, source(op, 0), Width::word, unset);
  VectorRegister& to = wave.vector[op.operands[0].index];
  to.lane[static_cast<std::size_t>(lane)] = word;
  const u64 bit = u64{1} << lane;
  to.unset_low = unset ? to.unset_low | bit : to.unset_low & ~bit;
  to.unset_high = unset ? to.unset_high | bit : to.unset_high & ~bit;
}

// v_mbcnt: bits below the lane in S0 (lanes 0 to 31, or 32 to 63), plus S1.
void count_bits_below(Wave& wave, const Operation& op) {
  Lanes<B32> a_lanes;
  Lanes<B32> b_lanes;
  u64 unset = 0;
  const u32* a = a_lanes.read(wave, op, 0, unset);
  const u32* b = b_lanes.read(wave, op, 1, unset);
  alignas(64) std::array<u32, kLanes> out;
  for (int lane = 0; lane < kLanes; ++lane) {
    const u64 below = (u64{1} << lane) - 1;
    const u32 mask = static_cast<u32>(op.variant == 0 ? below : below >> 32);
    out[static_cast<std::size_t>(lane)] = static_cast<u32>(std::popcount(a[lane] & mask)) + b[lane];
  }
  write_words(wave, op, 0, out.data(), unset);
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
    exchange(a.unset_low, b.unset_low);
    exchange(a.unset_high, b.unset_high);
  }
}

// ---- Division, step by step as the ISA documents have it ----

template <class T>
struct Real;
template <>
struct Real<F32> {
  static constexpr int kScale = 64;
  static constexpr int kLargeDifference = 96;
  static constexpr int kSmallNumerator = 23;
  static constexpr int kUnderflow = -150;
  static constexpr int kTop = 255;
  static constexpr int kBias = 127;
  static constexpr u32 kDefaultNan = 0xffc00000;
  static constexpr u32 kQuiet = 0x00400000;
  static constexpr u32 kSign = 0x80000000;
  static constexpr u32 kInfinity = 0x7f800000;
  static constexpr double kLeastNormal = 0x1p-126;
  using Wide = double;
  static int exponent(u32 bits) { return static_cast<int>(bits >> 23 & 0xff); }
};
__extension__ typedef __float128 Quad;
template <>
struct Real<F64> {
  static constexpr int kScale = 128;
  static constexpr int kLargeDifference = 768;
  static constexpr int kSmallNumerator = 53;
  static constexpr int kUnderflow = -1075;
  static constexpr int kTop = 2047;
  static constexpr int kBias = 1023;
  static constexpr u64 kDefaultNan = 0xfff8000000000000;
  static constexpr u64 kQuiet = 0x0008000000000000;
  static constexpr u64 kSign = 0x8000000000000000;
  static constexpr u64 kInfinity = 0x7ff0000000000000;
  static constexpr double kLeastNormal = 0x1p-1022;
  using Wide = Quad;
  static int exponent(u64 bits) { return static_cast<int>(bits >> 52 & 0x7ff); }
};

// v_div_scale: D, mask, S0 (denominator or numerator), S1 (denominator), S2 (numerator).
template <class T>
void divide_scale(Wave& wave, const Operation& op) {
  using R = Real<T>;
  using Wide = typename R::Wide;
  Lanes<T> x_lanes;
  Lanes<T> d_lanes;
  Lanes<T> n_lanes;
  u64 unset = 0;
  const auto* xs = x_lanes.read(wave, op, 0, unset);
  const auto* ds = d_lanes.read(wave, op, 1, unset);
  const auto* ns = n_lanes.read(wave, op, 2, unset);
  alignas(64) std::array<typename T::Bits, kLanes> out;
  u64 flags = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const auto denominator = T::value(ds[lane]);
    const auto numerator = T::value(ns[lane]);
    const auto value = T::value(xs[lane]);
    const auto scaled = [&](int by) { return T::bits(std::ldexp(value, by)); };
    const auto is_small = [](Wide quotient) {
      if (quotient < 0) quotient = -quotient;
      return quotient < static_cast<Wide>(R::kLeastNormal);
    };
    auto result = xs[lane];
    const bool is_denominator = xs[lane] == ds[lane];
    const bool is_numerator = xs[lane] == ns[lane];
    const bool finite = std::isfinite(denominator) && std::isfinite(numerator);
    bool flag = false;
    if (numerator == 0 || denominator == 0) {
      result = R::kInfinity | R::kQuiet;
    } else if (R::exponent(ns[lane]) - R::exponent(ds[lane]) >= R::kLargeDifference) {
      flag = true;
      if (is_denominator) result = scaled(R::kScale);
    } else if (R::exponent(ds[lane]) == 0) {
      result = scaled(R::kScale);
    } else {
      const bool reciprocal_small =
          std::isfinite(denominator) && is_small(Wide{1} / static_cast<Wide>(denominator));
      const bool quotient_small =
          finite && is_small(static_cast<Wide>(numerator) / static_cast<Wide>(denominator));
      if (reciprocal_small && quotient_small) {
        flag = true;
        // The documents have it scaled up, which would overflow.
        if (is_denominator) result = scaled(-R::kScale);
      } else if (reciprocal_small) {
        result = scaled(-R::kScale);
      } else if (quotient_small) {
        flag = true;
        if (is_numerator) result = scaled(R::kScale);
      } else if (R::exponent(ns[lane]) <= R::kSmallNumerator) {
        result = scaled(R::kScale);
      }
    }
    out[static_cast<std::size_t>(lane)] = result;
    flags |= u64{flag} << lane;
  }
  const u64 active = enabled(wave, op);
  write<T>(wave, op, 0, out.data(), unset);
  if (op.operands[1].is_scalar()) {
    wave.set_mask(op.operands[1].index, flags & active, unset & active);
  }
}

// v_div_fmas: a fused multiply-add, and where VCC says that v_div_scale has scaled, the scale
// undone in the same rounding.
template <class T>
void divide_fma(Wave& wave, const Operation& op) {
  using R = Real<T>;
  Lanes<T> a_lanes;
  Lanes<T> b_lanes;
  Lanes<T> c_lanes;
  u64 unset = wave.mask_unset(kVcc);
  const auto* as = a_lanes.read(wave, op, 0, unset);
  const auto* bs = b_lanes.read(wave, op, 1, unset);
  const auto* cs = c_lanes.read(wave, op, 2, unset);
  const u64 flags = wave.mask(kVcc);
  alignas(64) std::array<typename T::Bits, kLanes> out;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const auto a = T::value(as[lane]);
    const auto b = T::value(bs[lane]);
    const auto c = T::value(cs[lane]);
    auto result = std::fma(a, b, c);
    if ((flags >> lane & 1) != 0 && std::isfinite(result)) {
      const int scale = R::exponent(cs[lane]) > R::kBias ? R::kScale : -R::kScale;
      if constexpr (std::is_same_v<T, F32>) {
        result = static_cast<float>(std::ldexp(fma_odd(a, b, c), scale));
      } else {
        Quad wide = static_cast<Quad>(a) * b + c;
        for (int i = 0; i < R::kScale; i += 64) {
          wide = scale > 0 ? wide * static_cast<Quad>(0x1p64) : wide * static_cast<Quad>(0x1p-64);
        }
        result = static_cast<double>(wide);
      }
    }
    out[static_cast<std::size_t>(lane)] = T::bits(result);
  }
  write<T>(wave, op, 0, out.data(), unset);
}

// v_div_fixup: S0 the quotient, S1 the denominator, S2 the numerator.
template <class T>
typename T::Bits fixed_quotient(typename T::Bits q, typename T::Bits d, typename T::Bits n) {
  using R = Real<T>;
  const auto sign = (d ^ n) & R::kSign;
  const auto magnitude_d = d & ~R::kSign;
  const auto magnitude_n = n & ~R::kSign;
  if (magnitude_n > R::kInfinity) return n | R::kQuiet;
  if (magnitude_d > R::kInfinity) return d | R::kQuiet;
  if (magnitude_d == 0 && magnitude_n == 0) return R::kDefaultNan;
  if (magnitude_d == R::kInfinity && magnitude_n == R::kInfinity) return R::kDefaultNan;
  if (magnitude_d == 0 || magnitude_n == R::kInfinity) return sign | R::kInfinity;
  if (magnitude_d == R::kInfinity || magnitude_n == 0) return sign;
  if (R::exponent(n) - R::exponent(d) < R::kUnderflow) return sign;
  // The steps before it have overflowed.
  if (R::exponent(d) == R::kTop || is_nan(q)) return sign | R::kInfinity;
  return (q & ~R::kSign) | sign;
}

template <class T>
void divide_fixup(Wave& wave, const Operation& op) {
  Lanes<T> q_lanes;
  Lanes<T> d_lanes;
  Lanes<T> n_lanes;
  u64 unset = 0;
  const auto* q = q_lanes.read(wave, op, 0, unset);
  const auto* d = d_lanes.read(wave, op, 1, unset);
  const auto* n = n_lanes.read(wave, op, 2, unset);
  alignas(64) std::array<typename T::Bits, kLanes> out;
  for (int lane = 0; lane < kLanes; ++lane) {
    out[static_cast<std::size_t>(lane)] = fixed_quotient<T>(q[lane], d[lane], n[lane]);
  }
  write<T>(wave, op, 0, out.data(), unset);
}

u32 fixed_quotient16(u32 q, u32 d, u32 n) {
  const u32 sign = (d ^ n) & 0x8000;
  const u32 magnitude_d = d & 0x7fff;
  const u32 magnitude_n = n & 0x7fff;
  if (magnitude_n > 0x7c00) return (n & 0xffff) | 0x200;
  if (magnitude_d > 0x7c00) return (d & 0xffff) | 0x200;
  if ((magnitude_d == 0 && magnitude_n == 0) || (magnitude_d == 0x7c00 && magnitude_n == 0x7c00)) {
    return 0xfe00;
  }
  if (magnitude_d == 0 || magnitude_n == 0x7c00) return sign | 0x7c00;
  if (magnitude_d == 0x7c00 || magnitude_n == 0) return sign;
  return (q & 0x7fff) | sign;
}

// ---- Transcendental instructions: exact, rounded once; at worst one unit in the last place off
// ----

float perturbed(const Wave& wave, float exact, u32 seed) {
  if (!wave.launch->options->worst_transcendentals || !std::isfinite(exact) || exact == 0) {
    return exact;
  }
  const u32 hash = seed * 0x9e3779b1U ^ seed >> 15;
  const u32 bits = as_bits(exact);
  if ((bits & 0x7fffff) == 0 || (bits & 0x7f800000) == 0) return exact;
  switch (hash >> 29 & 3) {
    case 0: return as_float(bits + 1 < 0xffffffff ? bits + 1 : bits);
    case 1: return as_float(bits - 1);
    default: return exact;
  }
}

float flushed(float value) {
  return std::fabs(value) < 0x1p-126F ? std::copysign(0.0F, value) : value;
}

constexpr double kTwoPi = 6.283185307179586476925286766559;

struct Exp2 {
  static float of(float x) {
    return flushed(static_cast<float>(std::exp2(static_cast<double>(flushed(x)))));
  }
};
struct Log2 {
  static float of(float x) {
    return static_cast<float>(std::log2(static_cast<double>(flushed(x))));
  }
};
struct Reciprocal {
  static float of(float x) { return static_cast<float>(1 / static_cast<double>(x)); }
};
struct ReciprocalRoot {
  static float of(float x) { return static_cast<float>(1 / std::sqrt(static_cast<double>(x))); }
};
struct Root {
  static float of(float x) { return std::sqrt(x); }
};
struct Sine {
  static float of(float x) {
    if (std::fabs(x) > 256) return std::isinf(x) ? as_float(0x7fc00000) : 0;
    return static_cast<float>(std::sin(kTwoPi * static_cast<double>(x)));
  }
};
struct Cosine {
  static float of(float x) {
    if (std::fabs(x) > 256) return std::isinf(x) ? as_float(0x7fc00000) : 1;
    return static_cast<float>(std::cos(kTwoPi * static_cast<double>(x)));
  }
};

template <class F>
void transcendental(Wave& wave, const Operation& op) {
  Lanes<F32> lanes;
  u64 unset = 0;
  const u32* in = lanes.read(wave, op, 0, unset);
  alignas(64) std::array<u32, kLanes> out{};
  for (u64 left = wave.exec; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const float x = as_float(in[lane]);
    const float result = perturbed(wave, F::of(x), in[lane]);
    out[static_cast<std::size_t>(lane)] = default_nan<F32>(as_bits(result), x != x);
  }
  if (op.clamp || op.scale != 1) modify<F32>(op, out.data());
  write_words(wave, op, 0, out.data(), unset);
}

// 2 / pi, the bits after the point.
constexpr u64 kTwoOverPi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0};

double pi_digits(double x, u32 segment) {
  const int exponent = static_cast<int>(as_bits(x) >> 52 & 0x7ff);
  int shift = static_cast<int>(segment & 31) * 53;
  if (exponent > 1077) shift += exponent - 1077;
  // 53 bits from `shift` on, of the 1201 that the instruction has.
  u64 digits = 0;
  for (int bit = 0; bit < 53; ++bit) {
    const int at = shift + bit;
    const bool one = at < 1201 && (kTwoOverPi[at / 64] >> (63 - at % 64) & 1) != 0;
    digits = digits << 1 | u64{one};
  }
  int scale = -53 - shift;
  if (exponent >= 1968) scale += 128;
  return std::ldexp(static_cast<double>(digits), scale);
}

// ---- Packed ----

// Two halves of each 32 bits, each chosen from its source by op_sel (low result) or op_sel_hi.
template <class F, class T, class D, int Sources>
void packed(Wave& wave, const Operation& op) {
  alignas(64) std::array<u32, kLanes> out{};
  u64 unset_of[2] = {};
  for (int half = 0; half < 2; ++half) {
    std::array<std::array<u32, kLanes>, 3> in;
    const u32 select = half == 0 ? op.select : op.select_hi;
    const u32 negate = half == 0 ? op.negate_lo : op.negate_hi;
    for (int i = 0; i < Sources; ++i) {
      auto& lanes = in[static_cast<std::size_t>(i)];
      read_halves(wave, op, i, (select >> i & 1) != 0, lanes.data(), unset_of[half]);
      if ((negate >> i & 1) != 0) {
        for (u32& lane : lanes) lane ^= 0x8000;
      }
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      u32 bits = 0;
      bool from_nan = is_nan_value<T>(T::value(in[0][lane]));
      if constexpr (Sources == 1) {
        bits = D::bits(static_cast<typename D::Value>(F{}(T::value(in[0][lane]))));
      } else if constexpr (Sources == 2) {
        from_nan = from_nan || is_nan_value<T>(T::value(in[1][lane]));
        bits = D::bits(
            static_cast<typename D::Value>(F{}(T::value(in[0][lane]), T::value(in[1][lane]))));
      } else {
        from_nan = from_nan || is_nan_value<T>(T::value(in[1][lane])) ||
                   is_nan_value<T>(T::value(in[2][lane]));
        bits = D::bits(static_cast<typename D::Value>(
            F{}(T::value(in[0][lane]), T::value(in[1][lane]), T::value(in[2][lane]))));
      }
      if constexpr (is_real_v<D>) bits = default_nan<D>(bits, from_nan);
      if (op.clamp) {
        if constexpr (is_real_v<D>) {
          const auto value = D::value(bits);
          bits = D::bits(value > 0 ? (value < 1 ? value : 1) : 0);
        } else {
          fault(wave, "packed integers that saturate are not modelled");
        }
      }
      out[lane] |= (bits & 0xffff) << (16 * half);
    }
  }
  write_register(wave, op.operands[0].index, wave.exec, out.data(), unset_of[0], unset_of[1]);
}

// Two floats in two registers each; a constant stands for both.
template <class F, int Sources>
void packed_floats(Wave& wave, const Operation& op) {
  std::array<std::array<u32, kLanes>, 2> out;
  u64 unset_of[2] = {};
  for (int half = 0; half < 2; ++half) {
    std::array<std::array<u32, kLanes>, 3> in;
    const u32 select = half == 0 ? op.select : op.select_hi;
    const u32 negate = half == 0 ? op.negate_lo : op.negate_hi;
    for (int i = 0; i < Sources; ++i) {
      const Operand& operand = source(op, i);
      auto& lanes = in[static_cast<std::size_t>(i)];
      const u32 high = select >> i & 1;
      if (operand.is_vector()) {
        const VectorRegister& from = wave.vector[operand.index + high];
        lanes = from.lane;
        unset_of[half] |= from.unset_low | from.unset_high;
      } else if (operand.is_scalar()) {
        const u32 at = operand.index + (operand.count > 1 ? high : 0U);
        lanes.fill(wave.scalar[at]);
        if (wave.scalar_unset[at] != 0) unset_of[half] = ~u64{0};
      } else {
        bool ignored = false;
        lanes.fill(scalar_word(wave, operand, Width::word, ignored));
      }
      if ((negate >> i & 1) != 0) {
        for (u32& lane : lanes) lane ^= 0x80000000;
      }
    }
    auto& to = out[static_cast<std::size_t>(half)];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if constexpr (Sources == 1) {
        to[lane] = in[0][lane];
      } else if constexpr (Sources == 2) {
        const float a = as_float(in[0][lane]);
        const float b = as_float(in[1][lane]);
        to[lane] = default_nan<F32>(as_bits(F{}(a, b)), a != a || b != b);
      } else {
        const float a = as_float(in[0][lane]);
        const float b = as_float(in[1][lane]);
        const float c = as_float(in[2][lane]);
        to[lane] = default_nan<F32>(as_bits(F{}(a, b, c)), a != a || b != b || c != c);
      }
    }
    if (op.clamp) modify<F32>(op, to.data());
  }
  for (int half = 0; half < 2; ++half) {
    write_register(wave, op.operands[0].index + half, wave.exec,
                   out[static_cast<std::size_t>(half)].data(), unset_of[half], unset_of[half]);
  }
}

// v_pk_mov_b32: the low result from S0 by op_sel, the high one from S1 by op_sel_hi... of S1's own.
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

// v_fma_mix: sources are halves (op_sel_hi) or floats. The result is a float, or one half.
enum Mix : u32 { kMixFloat, kMixLow, kMixHigh };

void mixed_fma(Wave& wave, const Operation& op) {
  std::array<std::array<u32, kLanes>, 3> in;
  u64 unset = 0;
  for (int i = 0; i < 3; ++i) {
    const Operand& operand = source(op, i);
    auto& lanes = in[static_cast<std::size_t>(i)];
    if ((op.select_hi >> i & 1) != 0) {
      read_halves(wave, op, i, (op.select >> i & 1) != 0, lanes.data(), unset);
      for (u32& lane : lanes) lane = half_to_bits(lane);
    } else if (operand.is_vector()) {
      const VectorRegister& from = wave.vector[operand.index];
      lanes = from.lane;
      unset |= from.unset_low | from.unset_high;
    } else {
      bool is_unset = false;
      lanes.fill(scalar_word(wave, operand, Width::word, is_unset));
      if (is_unset) unset = ~u64{0};
    }
    const bool absolute = operand.absolute || (op.negate_hi >> i & 1) != 0;
    const bool negate = operand.negate || (op.negate_lo >> i & 1) != 0;
    for (u32& lane : lanes) {
      if (absolute) lane &= 0x7fffffff;
      if (negate) lane ^= 0x80000000;
    }
  }
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const float a = as_float(in[0][lane]);
    const float b = as_float(in[1][lane]);
    const float c = as_float(in[2][lane]);
    out[lane] = default_nan<F32>(as_bits(std::fma(a, b, c)), a != a || b != b || c != c);
  }
  if (op.clamp) modify<F32>(op, out.data());
  if (op.variant == kMixFloat) {
    write_words(wave, op, 0, out.data(), unset);
    return;
  }
  const VectorRegister& old = wave.vector[op.operands[0].index];
  const bool high = op.variant == kMixHigh;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const u32 half = half_of(as_float(out[lane]));
    out[lane] =
        high ? (old.lane[lane] & 0xffff) | half << 16 : (old.lane[lane] & 0xffff0000) | half;
  }
  write_register(wave, op.operands[0].index, wave.exec, out.data(), high ? old.unset_low : unset,
                 high ? unset : old.unset_high);
}

// v_pack_b32_f16: two halves side by side.
void pack_halves(Wave& wave, const Operation& op) {
  Lanes<B16> a_lanes;
  Lanes<B16> b_lanes;
  u64 low = 0;
  u64 high = 0;
  const u32* a = a_lanes.read(wave, op, 0, low);
  const u32* b = b_lanes.read(wave, op, 1, high);
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out[lane] = (a[lane] & 0xffff) | b[lane] << 16;
  }
  write_register(wave, op.operands[0].index, wave.exec, out.data(), low, high);
}

// v_cvt_f32_ubyte0 to 3: a byte; the half that it is not in may be unwritten.
void byte_to_float(Wave& wave, const Operation& op) {
  Lanes<B32> lanes;
  u64 unset = 0;
  const u32* in = lanes.read(wave, op, 0, unset);
  const Operand& operand = source(op, 0);
  if (operand.is_vector() && !op.is_sdwa && !op.is_dpp) {
    const VectorRegister& from = wave.vector[operand.index];
    unset = op.variant < 2 ? from.unset_low : from.unset_high;
  }
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out[lane] = as_bits(static_cast<float>(in[lane] >> (8 * op.variant) & 0xff));
  }
  write_words(wave, op, 0, out.data(), unset);
}

// ---- 8-bit floats ----

const SmallFormat& small_format(const Operation& op) {
  constexpr const SmallFormat* kFormats[] = {&kF8E4M3Fnuz, &kF8E5M2Fnuz, &kF8E4M3, &kF8E5M2};
  return *kFormats[op.variant & 3];
}

void small_to_float_lanes(Wave& wave, const Operation& op) {
  Lanes<B32> lanes;
  u64 unset = 0;
  const u32* in = lanes.read(wave, op, 0, unset);
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out[lane] = as_bits(small_to_float(small_format(op), in[lane] >> (8 * op.offset) & 0xff));
  }
  write_words(wave, op, 0, out.data(), unset);
}

void small_pair_to_floats(Wave& wave, const Operation& op) {
  Lanes<B32> lanes;
  u64 unset = 0;
  const u32* in = lanes.read(wave, op, 0, unset);
  alignas(64) std::array<u64, kLanes> out;
  const int shift = !op.is_sdwa && (op.select & 1) != 0 ? 16 : 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const u32 pair = in[lane] >> shift;
    const u32 low = as_bits(small_to_float(small_format(op), pair & 0xff));
    const u32 high = as_bits(small_to_float(small_format(op), pair >> 8 & 0xff));
    out[lane] = low | u64{high} << 32;
  }
  Operation plain;
  plain.operands = op.operands;
  write_pairs(wave, plain, 0, out.data(), unset, unset);
}

void floats_to_small_pair(Wave& wave, const Operation& op) {
  Lanes<F32> a_lanes;
  Lanes<F32> b_lanes;
  u64 unset = 0;
  Operation plain;  // op_sel is of the destination alone
  plain.operands = op.operands;
  const u32* a = a_lanes.read(wave, plain, 0, unset);
  const u32* b = b_lanes.read(wave, plain, 1, unset);
  alignas(64) std::array<u32, kLanes> out;
  const bool saturate = op.clamp;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out[lane] = small_of(small_format(op), as_float(a[lane]), saturate) |
                small_of(small_format(op), as_float(b[lane]), saturate) << 8;
  }
  plain.select = (op.select & 0x84) != 0 ? 0x80 : 0;
  write_halves(wave, plain, 0, out.data(), unset);
}

// ---- Products of vectors within a lane ----

template <class F>
void dot(Wave& wave, const Operation& op) {
  Lanes<B32> a_lanes;
  Lanes<B32> b_lanes;
  Lanes<B32> c_lanes;
  u64 unset = 0;
  const u32* a = a_lanes.read(wave, op, 0, unset);
  const u32* b = b_lanes.read(wave, op, 1, unset);
  const u32* c = c_lanes.read(wave, op, 2, unset);
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) out[lane] = F{}(op, a[lane], b[lane], c[lane]);
  write_words(wave, op, 0, out.data(), unset);
}

// v_bitop3: `offset` is the truth table, whose index has S0 as its highest bit.
template <class T>
void bitwise3(Wave& wave, const Operation& op) {
  Lanes<T> a_lanes;
  Lanes<T> b_lanes;
  Lanes<T> c_lanes;
  u64 unset = 0;
  const u32* a = a_lanes.read(wave, op, 0, unset);
  const u32* b = b_lanes.read(wave, op, 1, unset);
  const u32* c = c_lanes.read(wave, op, 2, unset);
  alignas(64) std::array<u32, kLanes> out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    u32 result = 0;
    for (u32 index = 0; index < 8; ++index) {
      if ((op.offset >> index & 1) == 0) continue;
      result |= ((index & 4) != 0 ? a[lane] : ~a[lane]) & ((index & 2) != 0 ? b[lane] : ~b[lane]) &
                ((index & 1) != 0 ? c[lane] : ~c[lane]);
    }
    out[lane] = result;
  }
  write<T>(wave, op, 0, out.data(), unset);
}

// ---- Values ----

float minimum_number(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float maximum_number(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
double minimum_number(double a, double b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
double maximum_number(double a, double b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
// IEEE 754-2019 minimum and maximum: NaN if either is one.
template <class T>
T minimum_or_nan(T a, T b) {
  return a != a ? a : b != b ? b : minimum_number(a, b);
}
template <class T>
T maximum_or_nan(T a, T b) {
  return a != a ? a : b != b ? b : maximum_number(a, b);
}

template <class T>
T median(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}
float median(float a, float b, float c) {
  if (a != a || b != b || c != c) return minimum_number(minimum_number(a, b), c);
  const float most = maximum_number(maximum_number(a, b), c);
  if (most == a) return maximum_number(b, c);
  if (most == b) return maximum_number(a, c);
  return maximum_number(a, b);
}

template <class To, class From>
To saturated(From value) {
  if (value != value) return 0;
  const From least = static_cast<From>(std::numeric_limits<To>::min());
  const From beyond =
      static_cast<From>(2) * static_cast<From>(To{1} << (std::numeric_limits<To>::digits - 1));
  if (value < least) return std::numeric_limits<To>::min();
  if (value >= beyond) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <class T>
T fraction(T x, T below_one) {
  const T rest = x - std::floor(x);
  return rest > below_one ? below_one : rest;
}

template <class T>
i32 exponent_of(T x) {
  if (x == 0 || !std::isfinite(x)) return 0;
  int exponent = 0;
  std::frexp(x, &exponent);
  return exponent;
}
template <class T>
T mantissa_of(T x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  return std::frexp(x, &exponent);
}

u32 reversed(u32 x) {
  u32 result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1) << (31 - i);
  return result;
}

i32 extend24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }

u32 bf16_of(float value) {
  const u32 bits = as_bits(value);
  if (is_nan(bits)) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// ---- The table ----

struct Entry {
  Execute execute = nullptr;
  std::uint8_t destinations = 1;
  std::uint8_t shadow = kAny;
  u32 variant = 0;
  bool doubles = false;
  bool accumulates = false;  ///< the destination is the last source
  bool is_half = false;      ///< the result has 16 bits
  bool keeps_high = false;   ///< ... and leaves the rest alone on gfx9, too
  bool integer = false;      ///< the result is no float: clamp is saturation
  Unit unit = Unit::vector;
};

using Table = std::unordered_map<std::string_view, Entry>;

template <class D, class... S, class F>
Entry lanewise(F) {
  Entry entry;
  entry.execute = &Lanewise<F, D, S...>::run;
  entry.doubles = (std::is_same_v<F64, D> || ... || std::is_same_v<F64, S>);
  entry.is_half = is_half_v<D>;
  entry.integer = !is_real_v<D>;
  return entry;
}
template <class T, class D, int Sources, class F>
Entry pk(F) {
  Entry entry;
  entry.execute = &packed<F, T, D, Sources>;
  return entry;
}
template <class F>
Entry transcendental_entry() {
  Entry entry;
  entry.execute = &transcendental<F>;
  entry.unit = Unit::transcendental;
  return entry;
}

Entry with_shadow(Entry entry, Shadow shadow) {
  entry.shadow = shadow;
  return entry;
}
Entry special(Execute execute, std::uint8_t destinations = 1, u32 variant = 0) {
  Entry entry;
  entry.execute = execute;
  entry.destinations = destinations;
  entry.variant = variant;
  entry.integer = true;
  return entry;
}
Entry accumulating(Entry entry) {
  entry.accumulates = true;
  return entry;
}
Entry as_transcendental(Entry entry) {
  entry.unit = Unit::transcendental;
  return entry;
}
Entry keeping_high(Entry entry) {
  entry.keeps_high = true;
  return entry;
}

void add_floats(Table& table) {
  const auto add = [](auto a, auto b) { return a + b; };
  const auto sub = [](auto a, auto b) { return a - b; };
  const auto subrev = [](auto a, auto b) { return b - a; };
  const auto mul = [](auto a, auto b) { return a * b; };
  const auto fma = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
  const auto fma_k = [](auto a, auto k, auto c) { return std::fma(a, k, c); };
  const auto least = [](auto a, auto b) { return minimum_number(a, b); };
  const auto most = [](auto a, auto b) { return maximum_number(a, b); };
  const auto least_nan = [](auto a, auto b) { return minimum_or_nan(a, b); };
  const auto most_nan = [](auto a, auto b) { return maximum_or_nan(a, b); };
  const auto least3 = [](auto a, auto b, auto c) {
    return minimum_number(minimum_number(a, b), c);
  };
  const auto most3 = [](auto a, auto b, auto c) { return maximum_number(maximum_number(a, b), c); };
  const auto middle = [](float a, float b, float c) { return median(a, b, c); };
  const auto fma16 = [](float a, float b, float c) {
    return fma_odd(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c));
  };
  const auto ceil = [](auto a) { return std::ceil(a); };
  const auto floor = [](auto a) { return std::floor(a); };
  const auto trunc = [](auto a) { return std::trunc(a); };
  const auto rndne = [](auto a) { return std::nearbyint(a); };

  table["v_add_f32"] = lanewise<F32, F32, F32>(add);
  table["v_sub_f32"] = lanewise<F32, F32, F32>(sub);
  table["v_subrev_f32"] = lanewise<F32, F32, F32>(subrev);
  table["v_mul_f32"] = lanewise<F32, F32, F32>(mul);
  table["v_mul_legacy_f32"] = table["v_mul_dx9_zero_f32"] =
      lanewise<F32, F32, F32>([](float a, float b) { return a == 0 || b == 0 ? 0.0F : a * b; });
  table["v_fma_f32"] = lanewise<F32, F32, F32, F32>(fma);
  table["v_fmac_f32"] = accumulating(table["v_fma_f32"]);
  table["v_fmaak_f32"] = table["v_fma_f32"];
  table["v_fmamk_f32"] = lanewise<F32, F32, F32, F32>(fma_k);
  // Unfused, and it flushes whatever the mode says.
  table["v_mad_f32"] = lanewise<F32, F32, F32, F32>([](float a, float b, float c) {
    return flushed(flushed(flushed(a) * flushed(b)) + flushed(c));
  });
  table["v_mac_f32"] = accumulating(table["v_mad_f32"]);
  table["v_madak_f32"] = table["v_madmk_f32"] = table["v_mad_f32"];
  table["v_max_f32"] = table["v_max_num_f32"] = lanewise<F32, F32, F32>(most);
  table["v_min_f32"] = table["v_min_num_f32"] = lanewise<F32, F32, F32>(least);
  table["v_maximum_f32"] = lanewise<F32, F32, F32>(most_nan);
  table["v_minimum_f32"] = lanewise<F32, F32, F32>(least_nan);
  table["v_max3_f32"] = table["v_max3_num_f32"] = lanewise<F32, F32, F32, F32>(most3);
  table["v_min3_f32"] = table["v_min3_num_f32"] = lanewise<F32, F32, F32, F32>(least3);
  table["v_maximum3_f32"] = lanewise<F32, F32, F32, F32>(
      [](float a, float b, float c) { return maximum_or_nan(maximum_or_nan(a, b), c); });
  table["v_minimum3_f32"] = lanewise<F32, F32, F32, F32>(
      [](float a, float b, float c) { return minimum_or_nan(minimum_or_nan(a, b), c); });
  table["v_minmax_f32"] = table["v_minmax_num_f32"] = lanewise<F32, F32, F32, F32>(
      [](float a, float b, float c) { return maximum_number(minimum_number(a, b), c); });
  table["v_maxmin_f32"] = table["v_maxmin_num_f32"] = lanewise<F32, F32, F32, F32>(
      [](float a, float b, float c) { return minimum_number(maximum_number(a, b), c); });
  table["v_med3_f32"] = table["v_med3_num_f32"] = lanewise<F32, F32, F32, F32>(middle);
  table["v_ceil_f32"] = lanewise<F32, F32>(ceil);
  table["v_floor_f32"] = lanewise<F32, F32>(floor);
  table["v_trunc_f32"] = lanewise<F32, F32>(trunc);
  table["v_rndne_f32"] = lanewise<F32, F32>(rndne);
  table["v_fract_f32"] =
      lanewise<F32, F32>([](float a) { return fraction(a, as_float(0x3f7fffff)); });
  table["v_ldexp_f32"] = lanewise<F32, F32, I32>([](float a, i32 e) { return std::ldexp(a, e); });
  table["v_frexp_mant_f32"] = lanewise<F32, F32>([](float a) { return mantissa_of(a); });
  table["v_frexp_exp_i32_f32"] = lanewise<I32, F32>([](float a) { return exponent_of(a); });
  table["v_exp_f32"] = transcendental_entry<Exp2>();
  table["v_log_f32"] = transcendental_entry<Log2>();
  table["v_rcp_f32"] = table["v_rcp_iflag_f32"] = transcendental_entry<Reciprocal>();
  table["v_rsq_f32"] = transcendental_entry<ReciprocalRoot>();
  table["v_sqrt_f32"] = transcendental_entry<Root>();
  table["v_sin_f32"] = transcendental_entry<Sine>();
  table["v_cos_f32"] = transcendental_entry<Cosine>();

  table["v_add_f16"] = lanewise<F16, F16, F16>(add);
  table["v_sub_f16"] = lanewise<F16, F16, F16>(sub);
  table["v_subrev_f16"] = lanewise<F16, F16, F16>(subrev);
  table["v_mul_f16"] = lanewise<F16, F16, F16>(mul);
  table["v_fma_f16"] = keeping_high(lanewise<F16Exact, F16, F16, F16>(fma16));
  table["v_fmac_f16"] = accumulating(lanewise<F16Exact, F16, F16, F16>(fma16));
  table["v_fmaak_f16"] = table["v_fmamk_f16"] = lanewise<F16Exact, F16, F16, F16>(fma16);
  table["v_max_f16"] = table["v_max_num_f16"] = lanewise<F16, F16, F16>(most);
  table["v_min_f16"] = table["v_min_num_f16"] = lanewise<F16, F16, F16>(least);
  table["v_maximum_f16"] = lanewise<F16, F16, F16>(most_nan);
  table["v_minimum_f16"] = lanewise<F16, F16, F16>(least_nan);
  table["v_max3_f16"] = table["v_max3_num_f16"] = keeping_high(lanewise<F16, F16, F16, F16>(most3));
  table["v_min3_f16"] = table["v_min3_num_f16"] =
      keeping_high(lanewise<F16, F16, F16, F16>(least3));
  table["v_med3_f16"] = table["v_med3_num_f16"] =
      keeping_high(lanewise<F16, F16, F16, F16>(middle));
  table["v_ceil_f16"] = lanewise<F16, F16>(ceil);
  table["v_floor_f16"] = lanewise<F16, F16>(floor);
  table["v_trunc_f16"] = lanewise<F16, F16>(trunc);
  table["v_rndne_f16"] = lanewise<F16, F16>(rndne);
  table["v_fract_f16"] =
      lanewise<F16, F16>([](float a) { return fraction(a, half_to_float(0x3bff)); });
  table["v_ldexp_f16"] = lanewise<F16Exact, F16, I16>(
      [](float a, i16 e) { return std::ldexp(static_cast<double>(a), e); });
  table["v_frexp_mant_f16"] = lanewise<F16, F16>([](float a) { return mantissa_of(a); });
  table["v_frexp_exp_i16_f16"] = lanewise<I16, F16>([](float a) { return exponent_of(a); });
  table["v_exp_f16"] = as_transcendental(
      lanewise<F16Exact, F16>([](float a) { return std::exp2(static_cast<double>(a)); }));
  table["v_log_f16"] = as_transcendental(
      lanewise<F16Exact, F16>([](float a) { return std::log2(static_cast<double>(a)); }));
  table["v_rcp_f16"] = as_transcendental(
      lanewise<F16Exact, F16>([](float a) { return 1 / static_cast<double>(a); }));
  table["v_rsq_f16"] = as_transcendental(
      lanewise<F16Exact, F16>([](float a) { return 1 / std::sqrt(static_cast<double>(a)); }));
  table["v_sqrt_f16"] = as_transcendental(
      lanewise<F16Exact, F16>([](float a) { return std::sqrt(static_cast<double>(a)); }));
  table["v_sin_f16"] = as_transcendental(lanewise<F16, F16>([](float a) { return Sine::of(a); }));
  table["v_cos_f16"] = as_transcendental(lanewise<F16, F16>([](float a) { return Cosine::of(a); }));
  table["v_div_fixup_f16"] = keeping_high(
      lanewise<B16, B16, B16, B16>([](u16 q, u16 d, u16 n) { return fixed_quotient16(q, d, n); }));

  table["v_add_f64"] = lanewise<F64, F64, F64>(add);
  table["v_mul_f64"] = lanewise<F64, F64, F64>(mul);
  table["v_fma_f64"] = lanewise<F64, F64, F64, F64>(fma);
  table["v_fmac_f64"] = accumulating(table["v_fma_f64"]);
  table["v_max_f64"] = table["v_max_num_f64"] = lanewise<F64, F64, F64>(most);
  table["v_min_f64"] = table["v_min_num_f64"] = lanewise<F64, F64, F64>(least);
  table["v_maximum_f64"] = lanewise<F64, F64, F64>(most_nan);
  table["v_minimum_f64"] = lanewise<F64, F64, F64>(least_nan);
  table["v_ceil_f64"] = lanewise<F64, F64>(ceil);
  table["v_floor_f64"] = lanewise<F64, F64>(floor);
  table["v_trunc_f64"] = lanewise<F64, F64>(trunc);
  table["v_rndne_f64"] = lanewise<F64, F64>(rndne);
  table["v_fract_f64"] =
      lanewise<F64, F64>([](double a) { return fraction(a, as_double(0x3fefffffffffffff)); });
  table["v_ldexp_f64"] = lanewise<F64, F64, I32>([](double a, i32 e) { return std::ldexp(a, e); });
  table["v_frexp_mant_f64"] = lanewise<F64, F64>([](double a) { return mantissa_of(a); });
  table["v_frexp_exp_i32_f64"] = lanewise<I32, F64>([](double a) { return exponent_of(a); });
  table["v_rcp_f64"] = as_transcendental(lanewise<F64, F64>([](double a) { return 1 / a; }));
  table["v_rsq_f64"] =
      as_transcendental(lanewise<F64, F64>([](double a) { return 1 / std::sqrt(a); }));
  table["v_sqrt_f64"] =
      as_transcendental(lanewise<F64, F64>([](double a) { return std::sqrt(a); }));
  table["v_trig_preop_f64"] =
      lanewise<F64, F64, B32>([](double a, u32 segment) { return pi_digits(a, segment); });
  for (const auto& [name, execute] :
       {std::pair<const char*, Execute>{"v_div_scale_f32", &divide_scale<F32>},
        {"v_div_scale_f64", &divide_scale<F64>}}) {
    table[name] = special(execute, 2);
  }
  table["v_div_scale_f64"].doubles = true;
  table["v_div_fmas_f32"] = special(&divide_fma<F32>);
  table["v_div_fmas_f64"] = special(&divide_fma<F64>);
  table["v_div_fmas_f64"].doubles = true;
  table["v_div_fixup_f32"] = special(&divide_fixup<F32>);
  table["v_div_fixup_f64"] = special(&divide_fixup<F64>);
  table["v_div_fixup_f64"].doubles = true;

  table["v_pk_add_f16"] = pk<F16, F16, 2>(add);
  table["v_pk_mul_f16"] = pk<F16, F16, 2>(mul);
  table["v_pk_fma_f16"] = pk<F16, F16Exact, 3>(fma16);
  table["v_pk_max_f16"] = table["v_pk_max_num_f16"] = pk<F16, F16, 2>(most);
  table["v_pk_min_f16"] = table["v_pk_min_num_f16"] = pk<F16, F16, 2>(least);
  table["v_pk_maximum_f16"] = pk<F16, F16, 2>(most_nan);
  table["v_pk_minimum_f16"] = pk<F16, F16, 2>(least_nan);
  table["v_pk_fma_f32"].execute = &packed_floats<decltype(fma), 3>;
  table["v_pk_mul_f32"].execute = &packed_floats<decltype(mul), 2>;
  table["v_pk_add_f32"].execute = &packed_floats<decltype(add), 2>;
  table["v_pk_mov_b32"].execute = &packed_move;
  table["v_fma_mix_f32"] = table["v_mad_mix_f32"] = special(&mixed_fma, 1, kMixFloat);
  table["v_fma_mixlo_f16"] = special(&mixed_fma, 1, kMixLow);
  table["v_fma_mixhi_f16"] = special(&mixed_fma, 1, kMixHigh);
  for (const char* name : {"v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"}) {
    table[name].integer = false;
  }
}

void add_conversions(Table& table) {
  table["v_cvt_f32_f16"] = lanewise<F32, F16>([](float a) { return a; });
  table["v_cvt_f16_f32"] = lanewise<F16, F32>([](float a) { return a; });
  table["v_cvt_f64_f32"] = lanewise<F64, F32>([](float a) { return static_cast<double>(a); });
  table["v_cvt_f32_f64"] = lanewise<F32, F64>([](double a) { return static_cast<float>(a); });
  table["v_cvt_f32_i32"] = lanewise<F32, I32>([](i32 a) { return static_cast<float>(a); });
  table["v_cvt_f32_u32"] = lanewise<F32, B32>([](u32 a) { return static_cast<float>(a); });
  table["v_cvt_f64_i32"] = lanewise<F64, I32>([](i32 a) { return static_cast<double>(a); });
  table["v_cvt_f64_u32"] = lanewise<F64, B32>([](u32 a) { return static_cast<double>(a); });
  table["v_cvt_f16_i16"] = lanewise<F16, I16>([](i16 a) { return static_cast<float>(a); });
  table["v_cvt_f16_u16"] = lanewise<F16, B16>([](u16 a) { return static_cast<float>(a); });
  table["v_cvt_i32_f32"] = lanewise<I32, F32>([](float a) { return saturated<i32>(a); });
  table["v_cvt_u32_f32"] = lanewise<B32, F32>([](float a) { return saturated<u32>(a); });
  table["v_cvt_i32_f64"] = lanewise<I32, F64>([](double a) { return saturated<i32>(a); });
  table["v_cvt_u32_f64"] = lanewise<B32, F64>([](double a) { return saturated<u32>(a); });
  table["v_cvt_i16_f16"] = lanewise<I16, F16>([](float a) { return saturated<i16>(a); });
  table["v_cvt_u16_f16"] = lanewise<B16, F16>([](float a) { return saturated<u16>(a); });
  table["v_cvt_i32_i16"] = lanewise<I32, I16>([](i16 a) { return a; });
  table["v_cvt_u32_u16"] = lanewise<B32, B16>([](u16 a) { return a; });
  table["v_cvt_rpi_i32_f32"] = table["v_cvt_nearest_i32_f32"] = lanewise<I32, F32>(
      [](float a) { return saturated<i32>(std::floor(static_cast<double>(a) + 0.5)); });
  table["v_cvt_flr_i32_f32"] = table["v_cvt_floor_i32_f32"] =
      lanewise<I32, F32>([](float a) { return saturated<i32>(std::floor(a)); });
  table["v_cvt_f32_ubyte0"] = special(&byte_to_float, 1, 0);
  table["v_cvt_f32_ubyte1"] = special(&byte_to_float, 1, 1);
  table["v_cvt_f32_ubyte2"] = special(&byte_to_float, 1, 2);
  table["v_cvt_f32_ubyte3"] = special(&byte_to_float, 1, 3);
  table["v_cvt_pkrtz_f16_f32"] = table["v_cvt_pk_rtz_f16_f32"] = lanewise<B32, F32, F32>(
      [](float a, float b) { return half_of(a, Round::zero) | half_of(b, Round::zero) << 16; });
  table["v_cvt_pk_f16_f32"] =
      lanewise<B32, F32, F32>([](float a, float b) { return half_of(a) | half_of(b) << 16; });
  table["v_cvt_pk_bf16_f32"] =
      lanewise<B32, F32, F32>([](float a, float b) { return bf16_of(a) | bf16_of(b) << 16; });
  table["v_cvt_f32_bf16"] = lanewise<B32, B16>([](u16 a) { return u32{a} << 16; });
  table["v_cvt_pk_u8_f32"] = lanewise<B32, F32, B32, B32>([](float a, u32 byte, u32 old) {
    const u32 shift = 8 * (byte & 3);
    const u32 value = saturated<std::uint8_t>(std::nearbyint(a));
    return (old & ~(u32{0xff} << shift)) | value << shift;
  });
  table["v_cvt_pk_i16_i32"] = lanewise<B32, I32, I32>([](i32 a, i32 b) {
    return static_cast<u32>(std::clamp(a, -32768, 32767) & 0xffff) |
           static_cast<u32>(std::clamp(b, -32768, 32767)) << 16;
  });
  table["v_cvt_pk_u16_u32"] = lanewise<B32, B32, B32>(
      [](u32 a, u32 b) { return std::min(a, 0xffffU) | std::min(b, 0xffffU) << 16; });
  for (const auto& [name, format] :
       {std::pair<const char*, u32>{"fp8", 0U}, std::pair<const char*, u32>{"bf8", 1U}}) {
    static std::deque<std::string> names;
    const auto kept = [&](std::string text) -> std::string_view {
      return names.emplace_back(std::move(text));
    };
    table[kept(fmt::format("v_cvt_f32_{}", name))] = special(&small_to_float_lanes, 1, format);
    table[kept(fmt::format("v_cvt_pk_f32_{}", name))] = special(&small_pair_to_floats, 1, format);
    table[kept(fmt::format("v_cvt_pk_{}_f32", name))] = special(&floats_to_small_pair, 1, format);
  }
  table["v_cvt_pk_fp8_f32"].integer = table["v_cvt_pk_bf8_f32"].integer = false;
}

void add_integers(Table& table) {
  const auto add = [](auto a, auto b) { return a + b; };
  const auto sub = [](auto a, auto b) { return a - b; };
  const auto subrev = [](auto a, auto b) { return b - a; };
  const auto mul = [](auto a, auto b) { return a * b; };
  const auto mul16 = [](u16 a, u16 b) { return static_cast<u32>(a) * b; };
  const auto mad16 = [](u16 a, u16 b, u16 c) { return static_cast<u32>(a) * b + c; };
  const auto least = [](auto a, auto b) { return a < b ? a : b; };
  const auto most = [](auto a, auto b) { return a > b ? a : b; };
  const auto least3 = [](auto a, auto b, auto c) { return std::min(std::min(a, b), c); };
  const auto most3 = [](auto a, auto b, auto c) { return std::max(std::max(a, b), c); };
  const auto middle = [](auto a, auto b, auto c) { return median(a, b, c); };
  const auto shl = [](u32 n, u32 a) { return a << (n & 31); };
  const auto shr = [](u32 n, u32 a) { return a >> (n & 31); };
  const auto sar = [](u32 n, u32 a) { return static_cast<u32>(static_cast<i32>(a) >> (n & 31)); };
  const auto shl16 = [](u16 n, u16 a) { return static_cast<u32>(a) << (n & 15); };
  const auto shr16 = [](u16 n, u16 a) { return static_cast<u32>(a) >> (n & 15); };
  const auto sar16 = [](u16 n, u16 a) { return static_cast<i16>(a) >> (n & 15); };

  table["v_add_u32"] = table["v_add_nc_u32"] = table["v_add_i32"] = table["v_add_nc_i32"] =
      lanewise<B32, B32, B32>(add);
  table["v_sub_u32"] = table["v_sub_nc_u32"] = table["v_sub_i32"] = table["v_sub_nc_i32"] =
      lanewise<B32, B32, B32>(sub);
  table["v_subrev_u32"] = table["v_subrev_nc_u32"] = lanewise<B32, B32, B32>(subrev);
  table["v_add_u16"] = lanewise<B16, B16, B16>(add);
  table["v_sub_u16"] = lanewise<B16, B16, B16>(sub);
  table["v_subrev_u16"] = lanewise<B16, B16, B16>(subrev);
  table["v_add_nc_u16"] = table["v_add_nc_i16"] = table["v_add_i16"] =
      keeping_high(table["v_add_u16"]);
  table["v_sub_nc_u16"] = table["v_sub_nc_i16"] = table["v_sub_i16"] =
      keeping_high(table["v_sub_u16"]);
  table["v_mul_lo_u16"] = lanewise<B16, B16, B16>(mul16);
  table["v_mad_u16"] = table["v_mad_i16"] = keeping_high(lanewise<B16, B16, B16, B16>(mad16));
  table["v_mad_legacy_u16"] = table["v_mad_legacy_i16"] = lanewise<B16, B16, B16, B16>(mad16);
  table["v_mul_lo_u32"] = lanewise<B32, B32, B32>(mul);
  table["v_mul_hi_u32"] =
      lanewise<B32, B32, B32>([](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); });
  table["v_mul_hi_i32"] = lanewise<B32, I32, I32>(
      [](i32 a, i32 b) { return static_cast<u32>(static_cast<u64>(i64{a} * b) >> 32); });
  table["v_mul_u32_u24"] =
      lanewise<B32, B32, B32>([](u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); });
  table["v_mul_i32_i24"] = lanewise<B32, I32, I32>(
      [](i32 a, i32 b) { return static_cast<u32>(i64{extend24(a)} * extend24(b)); });
  table["v_mul_hi_u32_u24"] = lanewise<B32, B32, B32>(
      [](u32 a, u32 b) { return static_cast<u32>(u64{a & 0xffffff} * (b & 0xffffff) >> 32); });
  table["v_mul_hi_i32_i24"] = lanewise<B32, I32, I32>([](i32 a, i32 b) {
    return static_cast<u32>(static_cast<u64>(i64{extend24(a)} * extend24(b)) >> 32);
  });
  table["v_mad_u32_u24"] = lanewise<B32, B32, B32, B32>(
      [](u32 a, u32 b, u32 c) { return (a & 0xffffff) * (b & 0xffffff) + c; });
  table["v_mad_i32_i24"] = lanewise<B32, I32, I32, B32>(
      [](i32 a, i32 b, u32 c) { return static_cast<u32>(i64{extend24(a)} * extend24(b)) + c; });
  table["v_mad_u32_u16"] =
      lanewise<B32, B16, B16, B32>([](u16 a, u16 b, u32 c) { return u32{a} * b + c; });
  table["v_mad_i32_i16"] = lanewise<B32, I16, I16, B32>(
      [](i16 a, i16 b, u32 c) { return static_cast<u32>(i32{a} * b) + c; });
  table["v_mad_u64_u32"] = table["v_mad_co_u64_u32"] = special(&multiply_add_wide<false>, 2);
  table["v_mad_i64_i32"] = table["v_mad_co_i64_i32"] = special(&multiply_add_wide<true>, 2);
  table["v_add3_u32"] = lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) { return a + b + c; });
  table["v_lshl_add_u32"] =
      lanewise<B32, B32, B32, B32>([](u32 a, u32 n, u32 c) { return (a << (n & 31)) + c; });
  table["v_add_lshl_u32"] =
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 n) { return (a + b) << (n & 31); });
  table["v_xad_u32"] =
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) { return (a ^ b) + c; });
  table["v_lshl_or_b32"] = with_shadow(
      lanewise<B32, B32, B32, B32>([](u32 a, u32 n, u32 c) { return a << (n & 31) | c; }),
      kShiftLeftOr);
  table["v_and_or_b32"] = with_shadow(
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) { return (a & b) | c; }), kAndOr);
  table["v_or3_b32"] = with_shadow(
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) { return a | b | c; }), kOr3);
  table["v_xor3_b32"] = with_shadow(
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) { return a ^ b ^ c; }), kOr3);
  table["v_lshl_add_u64"] =
      lanewise<B64, B64, B32, B64>([](u64 a, u32 n, u64 c) { return (a << (n & 7)) + c; });
  table["v_add_nc_u64"] = table["v_add_u64"] = lanewise<B64, B64, B64>(add);
  table["v_sub_nc_u64"] = table["v_sub_u64"] = lanewise<B64, B64, B64>(sub);
  table["v_and_b32"] =
      with_shadow(lanewise<B32, B32, B32>([](u32 a, u32 b) { return a & b; }), kAnd);
  table["v_or_b32"] = with_shadow(lanewise<B32, B32, B32>([](u32 a, u32 b) { return a | b; }), kOr);
  table["v_xor_b32"] =
      with_shadow(lanewise<B32, B32, B32>([](u32 a, u32 b) { return a ^ b; }), kOr3);
  table["v_xnor_b32"] = lanewise<B32, B32, B32>([](u32 a, u32 b) { return ~(a ^ b); });
  table["v_not_b32"] = with_shadow(lanewise<B32, B32>([](u32 a) { return ~a; }), kMove);
  table["v_and_b16"] = lanewise<B16, B16, B16>([](u16 a, u16 b) { return a & b; });
  table["v_or_b16"] = lanewise<B16, B16, B16>([](u16 a, u16 b) { return a | b; });
  table["v_xor_b16"] = lanewise<B16, B16, B16>([](u16 a, u16 b) { return a ^ b; });
  table["v_not_b16"] = lanewise<B16, B16>([](u16 a) { return ~a; });
  table["v_lshlrev_b32"] = with_shadow(lanewise<B32, B32, B32>(shl), kShiftLeft);
  table["v_lshrrev_b32"] = with_shadow(lanewise<B32, B32, B32>(shr), kShiftRight);
  table["v_ashrrev_i32"] = lanewise<B32, B32, B32>(sar);
  table["v_ashrrev_i32"].shadow = kShiftRight;
  table["v_lshlrev_b16"] = lanewise<B16, B16, B16>(shl16);
  table["v_lshrrev_b16"] = lanewise<B16, B16, B16>(shr16);
  table["v_ashrrev_i16"] = lanewise<I16, B16, B16>(sar16);
  table["v_lshlrev_b64"] = special(&shift_left_wide);
  table["v_lshrrev_b64"] = lanewise<B64, B32, B64>([](u32 n, u64 a) { return a >> (n & 63); });
  table["v_ashrrev_i64"] = lanewise<I64, B32, I64>([](u32 n, i64 a) { return a >> (n & 63); });
  table["v_bfe_u32"] = with_shadow(lanewise<B32, B32, B32, B32>([](u32 a, u32 at, u32 width) {
                                     return a >> (at & 31) & ((u32{1} << (width & 31)) - 1);
                                   }),
                                   kBitfieldExtract);
  table["v_bfe_i32"] =
      with_shadow(lanewise<B32, B32, B32, B32>([](u32 a, u32 at, u32 width) {
                    const u32 bits = width & 31;
                    if (bits == 0) return 0U;
                    const u32 field = a >> (at & 31) & ((u32{1} << bits) - 1);
                    return static_cast<u32>(static_cast<i32>(field << (32 - bits)) >> (32 - bits));
                  }),
                  kBitfieldExtract);
  table["v_bfi_b32"] = with_shadow(
      lanewise<B32, B32, B32, B32>([](u32 m, u32 a, u32 b) { return (m & a) | (~m & b); }),
      kBitfieldInsert);
  table["v_bfm_b32"] = lanewise<B32, B32, B32>(
      [](u32 width, u32 at) { return ((u32{1} << (width & 31)) - 1) << (at & 31); });
  table["v_bcnt_u32_b32"] =
      lanewise<B32, B32, B32>([](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; });
  table["v_bfrev_b32"] = lanewise<B32, B32>([](u32 a) { return reversed(a); });
  table["v_ffbh_u32"] = table["v_clz_i32_u32"] = lanewise<B32, B32>(
      [](u32 a) { return a == 0 ? 0xffffffffU : static_cast<u32>(std::countl_zero(a)); });
  table["v_ffbl_b32"] = table["v_ctz_i32_b32"] = lanewise<B32, B32>(
      [](u32 a) { return a == 0 ? 0xffffffffU : static_cast<u32>(std::countr_zero(a)); });
  table["v_ffbh_i32"] = table["v_cls_i32"] = lanewise<B32, B32>([](u32 a) {
    const u32 x = static_cast<i32>(a) < 0 ? ~a : a;
    return x == 0 ? 0xffffffffU : static_cast<u32>(std::countl_zero(x));
  });
  table["v_alignbit_b32"] = with_shadow(lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 n) {
                                          return static_cast<u32>((u64{a} << 32 | b) >> (n & 31));
                                        }),
                                        kAlignBits);
  table["v_alignbyte_b32"] = lanewise<B32, B32, B32, B32>(
      [](u32 a, u32 b, u32 n) { return static_cast<u32>((u64{a} << 32 | b) >> (8 * (n & 3))); });
  table["v_perm_b32"] = with_shadow(
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 s) { return permuted(a, b, s); }),
      kPermute);
  table["v_sad_u8"] = lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) {
      const i32 difference = static_cast<i32>(a >> i & 0xff) - static_cast<i32>(b >> i & 0xff);
      c += static_cast<u32>(difference < 0 ? -difference : difference);
    }
    return c;
  });
  table["v_max_u32"] = lanewise<B32, B32, B32>(most);
  table["v_min_u32"] = lanewise<B32, B32, B32>(least);
  table["v_max_i32"] = lanewise<I32, I32, I32>(most);
  table["v_min_i32"] = lanewise<I32, I32, I32>(least);
  table["v_max_u16"] = lanewise<B16, B16, B16>(most);
  table["v_min_u16"] = lanewise<B16, B16, B16>(least);
  table["v_max_i16"] = lanewise<I16, I16, I16>(most);
  table["v_min_i16"] = lanewise<I16, I16, I16>(least);
  table["v_max3_u32"] = lanewise<B32, B32, B32, B32>(most3);
  table["v_min3_u32"] = lanewise<B32, B32, B32, B32>(least3);
  table["v_med3_u32"] = lanewise<B32, B32, B32, B32>(middle);
  table["v_max3_i32"] = lanewise<I32, I32, I32, I32>(most3);
  table["v_min3_i32"] = lanewise<I32, I32, I32, I32>(least3);
  table["v_med3_i32"] = lanewise<I32, I32, I32, I32>(middle);
  table["v_max3_i16"] = keeping_high(lanewise<I16, I16, I16, I16>(most3));
  table["v_min3_i16"] = keeping_high(lanewise<I16, I16, I16, I16>(least3));
  table["v_med3_i16"] = keeping_high(lanewise<I16, I16, I16, I16>(middle));
  table["v_max3_u16"] = keeping_high(lanewise<B16, B16, B16, B16>(most3));
  table["v_min3_u16"] = keeping_high(lanewise<B16, B16, B16, B16>(least3));
  table["v_med3_u16"] = keeping_high(lanewise<B16, B16, B16, B16>(middle));
  table["v_maxmin_u32"] =
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) { return std::min(std::max(a, b), c); });
  table["v_minmax_u32"] =
      lanewise<B32, B32, B32, B32>([](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), c); });
  table["v_maxmin_i32"] =
      lanewise<I32, I32, I32, I32>([](i32 a, i32 b, i32 c) { return std::min(std::max(a, b), c); });
  table["v_minmax_i32"] =
      lanewise<I32, I32, I32, I32>([](i32 a, i32 b, i32 c) { return std::max(std::min(a, b), c); });

  table["v_pk_add_u16"] = table["v_pk_add_i16"] = pk<B16, B16, 2>(add);
  table["v_pk_sub_u16"] = table["v_pk_sub_i16"] = pk<B16, B16, 2>(sub);
  table["v_pk_mul_lo_u16"] = pk<B16, B16, 2>(mul16);
  table["v_pk_mad_u16"] = table["v_pk_mad_i16"] = pk<B16, B16, 3>(mad16);
  table["v_pk_lshlrev_b16"] = pk<B16, B16, 2>(shl16);
  table["v_pk_lshrrev_b16"] = pk<B16, B16, 2>(shr16);
  table["v_pk_ashrrev_i16"] = pk<B16, I16, 2>(sar16);
  table["v_pk_max_u16"] = pk<B16, B16, 2>(most);
  table["v_pk_min_u16"] = pk<B16, B16, 2>(least);
  table["v_pk_max_i16"] = pk<I16, I16, 2>(most);
  table["v_pk_min_i16"] = pk<I16, I16, 2>(least);

  const auto carrying = [&](std::initializer_list<const char*> names, u32 variant) {
    for (const char* name : names) table[name] = special(&carry, 2, variant);
  };
  carrying({"v_add_co_u32"}, 0);
  carrying({"v_sub_co_u32"}, kSubtract);
  carrying({"v_subrev_co_u32"}, kSubtract | kReversed);
  carrying({"v_addc_co_u32", "v_add_co_ci_u32"}, kCarryIn);
  carrying({"v_subb_co_u32", "v_sub_co_ci_u32"}, kSubtract | kCarryIn);
  carrying({"v_subbrev_co_u32", "v_subrev_co_ci_u32"}, kSubtract | kReversed | kCarryIn);
}

void add_moves(Table& table) {
  table["v_mov_b32"] = table["v_accvgpr_read_b32"] = table["v_accvgpr_write_b32"] =
      table["v_accvgpr_mov_b32"] = special(&move);
  table["v_mov_b64"] = lanewise<B64, B64>([](u64 a) { return a; });
  table["v_mov_b64"].doubles = true;
  table["v_mov_b16"] = lanewise<B16, B16>([](u16 a) { return a; });
  table["v_bitop3_b32"] = special(&bitwise3<B32>);
  table["v_bitop3_b16"] = special(&bitwise3<B16>);
  table["v_bitop3_b16"].is_half = table["v_bitop3_b16"].keeps_high = true;
  table["v_swap_b32"] = special(&swap);
  table["v_cndmask_b32"] = special(&select<B32>);
  table["v_cndmask_b16"] = special(&select<B16>);
  table["v_cndmask_b16"].is_half = true;
  table["v_readfirstlane_b32"] = special(&read_lane, 1, 1);
  table["v_readlane_b32"] = special(&read_lane, 1, 0);
  table["v_writelane_b32"] = special(&write_lane);
  table["v_mbcnt_lo_u32_b32"] = special(&count_bits_below, 1, 0);
  table["v_mbcnt_hi_u32_b32"] = special(&count_bits_below, 1, 1);
  table["v_permlane16_b32"] = special(&permute_lanes, 1, 0);
  table["v_permlanex16_b32"] = special(&permute_lanes, 1, 1);
  table["v_permlane64_b32"] = special(&swap_halves_of_wave);
  table["v_permlane16_swap_b32"] = special(&swap_rows, 1, 16);
  table["v_permlane32_swap_b32"] = special(&swap_rows, 1, 32);
  table["v_pack_b32_f16"] = special(&pack_halves);
}

void add_dots(Table& table) {
  const auto dot2_f16 = [](const Operation&, u32 a, u32 b, u32 c) {
    float sum = as_float(c);
    sum = std::fma(half_to_float(a & 0xffff), half_to_float(b & 0xffff), sum);
    return as_bits(std::fma(half_to_float(a >> 16), half_to_float(b >> 16), sum));
  };
  const auto dot2_bf16 = [](const Operation&, u32 a, u32 b, u32 c) {
    float sum = as_float(c);
    sum = std::fma(as_float(a << 16), as_float(b << 16), sum);
    return as_bits(std::fma(as_float(a & 0xffff0000), as_float(b & 0xffff0000), sum));
  };
  const auto dot4_signed = [](const Operation& op, u32 a, u32 b, u32 c) {
    // v_dot4_i32_iu8: neg_lo says which operands are signed; v_dot4_i32_i8: both.
    const u32 is_signed = op.variant != 0 ? op.negate_lo : 3;
    for (int i = 0; i < 32; i += 8) {
      const u32 x = a >> i & 0xff;
      const u32 y = b >> i & 0xff;
      const i32 p = (is_signed & 1) != 0 ? static_cast<std::int8_t>(x) : static_cast<i32>(x);
      const i32 q = (is_signed & 2) != 0 ? static_cast<std::int8_t>(y) : static_cast<i32>(y);
      c += static_cast<u32>(p * q);
    }
    return c;
  };
  const auto dot4_unsigned = [](const Operation&, u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
  };
  const auto dot8_unsigned = [](const Operation&, u32 a, u32 b, u32 c) {
    for (int i = 0; i < 32; i += 4) c += (a >> i & 0xf) * (b >> i & 0xf);
    return c;
  };
  const auto dot2_unsigned = [](const Operation&, u32 a, u32 b, u32 c) {
    return (a & 0xffff) * (b & 0xffff) + (a >> 16) * (b >> 16) + c;
  };
  table["v_dot2_f32_f16"] = special(&dot<decltype(dot2_f16)>);
  table["v_dot2c_f32_f16"] = table["v_dot2acc_f32_f16"] = accumulating(table["v_dot2_f32_f16"]);
  table["v_dot2_f32_bf16"] = special(&dot<decltype(dot2_bf16)>);
  table["v_dot2c_f32_bf16"] = accumulating(table["v_dot2_f32_bf16"]);
  table["v_dot4_i32_i8"] = special(&dot<decltype(dot4_signed)>);
  table["v_dot4c_i32_i8"] = accumulating(table["v_dot4_i32_i8"]);
  table["v_dot4_i32_iu8"] = special(&dot<decltype(dot4_signed)>, 1, 1);
  table["v_dot4_u32_u8"] = special(&dot<decltype(dot4_unsigned)>);
  table["v_dot8_u32_u4"] = special(&dot<decltype(dot8_unsigned)>);
  table["v_dot2_u32_u16"] = special(&dot<decltype(dot2_unsigned)>);
}

const Table& table() {
  static const Table all = [] {
    Table entries;
    add_floats(entries);
    add_conversions(entries);
    add_integers(entries);
    add_moves(entries);
    add_dots(entries);
    return entries;
  }();
  return all;
}

// ---- Translation ----

struct Comparison {
  Execute execute = nullptr;
  u32 relation = 0;
};

// "v_cmp_nlt_f32", "v_cmpx_ge_u16": the relation and the type.
std::optional<Comparison> comparison(std::string_view name) {
  const std::size_t underscore = name.rfind('_');
  if (underscore == name.npos) return std::nullopt;
  const std::string_view type = name.substr(underscore + 1);
  const std::string_view relation = name.substr(0, underscore);
  if (relation == "class") {
    if (type == "f16") return Comparison{&compare_class<B16>, 0};
    if (type == "f32") return Comparison{&compare_class<F32>, 0};
    if (type == "f64") return Comparison{&compare_class<F64>, 0};
    return std::nullopt;
  }
  static constexpr std::pair<std::string_view, u32> kRelations[] = {
      {"f", 0},    {"lt", 1},   {"eq", 2},   {"le", 3},   {"gt", 4},   {"lg", 5},
      {"ge", 6},   {"o", 7},    {"u", 8},    {"nge", 9},  {"nlg", 10}, {"ngt", 11},
      {"nle", 12}, {"neq", 13}, {"nlt", 14}, {"tru", 15}, {"t", 15},   {"ne", 13}};
  static constexpr std::pair<std::string_view, Execute> kTypes[] = {
      {"f16", &compare<F16>}, {"f32", &compare<F32>}, {"f64", &compare<F64>},
      {"i16", &compare<I16>}, {"u16", &compare<B16>}, {"i32", &compare<I32>},
      {"u32", &compare<B32>}, {"i64", &compare<I64>}, {"u64", &compare<B64>}};
  Comparison result;
  bool known = false;
  for (const auto& [text, bits] : kRelations) {
    if (text != relation) continue;
    result.relation = bits;
    known = true;
  }
  for (const auto& [text, execute] : kTypes) {
    if (text == type) result.execute = execute;
  }
  if (!known || result.execute == nullptr) return std::nullopt;
  return result;
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

}  // namespace

bool translate_vector(const Instruction& instruction, const Isa& isa, int lanes, Operation& op) {
  std::string_view name = instruction.mnemonic;
  if (name.starts_with("v_dual_")) {
    static std::map<std::string, std::string, std::less<>> single;
    static std::mutex lock;
    const std::lock_guard guard(lock);
    auto found = single.find(name);
    if (found == single.end()) {
      found = single.emplace(std::string(name), "v_" + std::string(name.substr(7))).first;
    }
    name = found->second;
  }
  if (!name.starts_with("v_") || !all_known(instruction)) return false;
  op.unit = Unit::vector;
  op.operands = instruction.operands;
  if (name.starts_with("v_cmp")) {
    const bool sets_exec = name.starts_with("v_cmpx_");
    const auto kind = comparison(name.substr(sets_exec ? 7 : 6));
    if (!kind) return false;
    op.execute = kind->execute;
    op.variant = kind->relation | (sets_exec ? 0x100 : 0);
    op.first_source = sets_exec && isa.major >= 10 ? 0 : 1;
    op.reads_doubles = name.ends_with("f64");
    if (op.operands.size() != op.first_source + 2U) return false;
  } else {
    const auto found = table().find(name);
    if (found == table().end()) return false;
    const Entry& entry = found->second;
    op.execute = entry.execute;
    op.variant = entry.variant;
    op.first_source = entry.destinations;
    op.shadow = entry.shadow;
    op.unit = entry.unit;
    op.reads_doubles = entry.doubles;
    op.zeroes_high = entry.is_half && isa.major == 9 && !entry.keeps_high;
    if (entry.accumulates && op.operands.size() == 3) op.operands.push_back(op.operands[0]);
    if (instruction.has("clamp") && entry.integer) return false;
    if (name.starts_with("v_cvt") && (name.find("8") != name.npos) && isa.has_ocp_fp8) {
      op.variant |= 2;
    }
    if (name.starts_with("v_bitop3")) op.offset = instruction.number("bitop3");
    if (name == "v_cvt_f32_fp8" || name == "v_cvt_f32_bf8") {
      op.offset = instruction.number("byte_sel");
      if (const auto list = instruction.list("op_sel")) {
        op.offset = bits_of(*list, 2) == 0 ? 0 : (*list)[0] * 2 + (*list)[1];
      }
    }
  }
  const std::size_t sources = op.operands.size() - op.first_source;
  const bool is_packed = name.starts_with("v_pk_");
  const bool is_mixed = name.starts_with("v_fma_mix") || name.starts_with("v_mad_mix");
  if (const auto list = instruction.list("op_sel")) {
    op.select = bits_of(*list, sources);
    if (!is_packed && list->size() > sources && list->back() != 0) op.select |= 0x80;
  }
  op.select_hi = is_mixed ? 0 : 7;
  if (const auto list = instruction.list("op_sel_hi")) op.select_hi = bits_of(*list, sources);
  if (const auto list = instruction.list("neg_lo")) op.negate_lo = bits_of(*list, sources);
  if (const auto list = instruction.list("neg_hi")) op.negate_hi = bits_of(*list, sources);
  op.clamp = instruction.has("clamp");
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
  return true;
}

}  // namespace kiln::amd
