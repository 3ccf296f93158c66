// Vector instructions as functions of a lane: from the values of the sources in it to the value of
// the result. vector_*.cpp are tables of them; lanewise.cpp executes them on a wave. Few headers,
// as most of the interpreter's compile time is spent on these tables.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tests/amd/isa/numbers.hpp"

namespace kiln::amd {

struct Wave;
struct Operation;

using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// How an operand is read and written, and which bits of it are a NaN.
enum class Type : std::uint8_t { none, b16, f16, b32, f32, b64, f64 };

constexpr bool is_real(Type type) {
  return type == Type::f16 || type == Type::f32 || type == Type::f64;
}
constexpr bool is_half(Type type) { return type == Type::b16 || type == Type::f16; }
constexpr bool is_pair(Type type) { return type == Type::b64 || type == Type::f64; }

// What a lane's bits are as a value. 16 bits are the low half of a word.
template <Type kType, class V>
struct OperandType {
  static constexpr Type type = kType;
  using Bits = std::conditional_t<sizeof(V) == 8, u64, u32>;
  using Value = V;
  static Value value(Bits bits) {
    if constexpr (std::is_integral_v<V>) {
      return static_cast<V>(bits);
    } else {
      return std::bit_cast<V>(bits);
    }
  }
  static Bits bits(Value value) {
    if constexpr (std::is_integral_v<V>) {
      return static_cast<std::make_unsigned_t<V>>(value);
    } else {
      return std::bit_cast<Bits>(value);
    }
  }
};
using B16 = OperandType<Type::b16, u16>;
using I16 = OperandType<Type::b16, i16>;
using B32 = OperandType<Type::b32, u32>;
using I32 = OperandType<Type::b32, i32>;
using F32 = OperandType<Type::f32, float>;
using B64 = OperandType<Type::b64, u64>;
using I64 = OperandType<Type::b64, i64>;
using F64 = OperandType<Type::f64, double>;
/// Halves are computed with as floats and rounded once.
struct F16 {
  static constexpr Type type = Type::f16;
  using Bits = u32;
  using Value = float;
  static Value value(Bits bits) { return half_to_float(bits & 0xffff); }
  static Bits bits(Value value) { return half_of(static_cast<double>(value)); }
};
struct F16Exact {  ///< a result that a float does not hold
  static constexpr Type type = Type::f16;
  using Bits = u32;
  using Value = double;
  static Bits bits(Value value) { return half_of(value); }
};

/// The sources and the result of all lanes, as `Bits` of their types.
struct LaneLoop {
  const void* in[3] = {};
  void* out = nullptr;
  int lanes = 64;  ///< 32 or 64
  u32 variant = 0;
  bool worst = false;   ///< transcendental functions err as they may
  u64 active = 0;       ///< lanes whose results are written
  u64 mask = 0;         ///< the source that is a bit of each lane: a carry, a condition
  u64 result_mask = 0;  ///< the result that is one
};

/// The bits of a lane in masks, for functions that have them.
struct MaskBits {
  bool in;
  bool out = false;
};

/// How unwritten bits of sources of 32 or 16 bits pass to the result. `value` and `unset` have a
/// word for each source; behind them stands the bit of the mask, or the variant where there is no
/// mask.
using Shadow = u32 (*)(const u32* value, const u32* unset);

enum class MaskSource : std::uint8_t { none, vcc, last_operand };

/// What an instruction does: `execute` reads operands as the types say, has `compute` go over the
/// lanes, and writes the result. Each function changes one property.
struct VectorEntry {
  void (*execute)(Wave&, const Operation&) = nullptr;
  void (*compute)(LaneLoop&) = nullptr;
  Shadow shadow = nullptr;  ///< null: a result is unwritten if anything of a source is
  Type result = Type::none;
  Type sources[3] = {};
  std::uint8_t source_count = 0;
  std::uint8_t destinations = 1;
  MaskSource mask = MaskSource::none;
  u32 variant = 0;
  std::int8_t low_source = -1;  ///< the 64-bit source whose low word alone makes the result's
  bool doubles = false;         ///< literals are the upper half of what they mean
  bool accumulates = false;     ///< the destination is the last source
  bool keeps_high = false;      ///< of 16 bits, and leaves the rest alone on gfx9, too
  bool selects = false;         ///< the result is the first or the second source
  bool transcendental = false;
  bool small_floats = false;  ///< of 8 bits, of which targets have different ones
  bool saturates = false;     ///< `clamp` is a part of what it computes

  constexpr VectorEntry accumulating() const {
    VectorEntry entry = *this;
    entry.accumulates = true;
    return entry;
  }
  constexpr VectorEntry keeping_high() const {
    VectorEntry entry = *this;
    entry.keeps_high = true;
    return entry;
  }
  constexpr VectorEntry shadowed(Shadow function) const {
    VectorEntry entry = *this;
    entry.shadow = function;
    return entry;
  }
  constexpr VectorEntry low_from(std::int8_t source) const {
    VectorEntry entry = *this;
    entry.low_source = source;
    return entry;
  }
  constexpr VectorEntry masked(MaskSource from) const {
    VectorEntry entry = *this;
    entry.mask = from;
    return entry;
  }
  constexpr VectorEntry to_mask() const {
    VectorEntry entry = *this;
    entry.destinations = 2;
    return entry;
  }
  constexpr VectorEntry of_doubles() const {
    VectorEntry entry = *this;
    entry.doubles = true;
    return entry;
  }
  constexpr VectorEntry with(u32 value) const {
    VectorEntry entry = *this;
    entry.variant = value;
    return entry;
  }
  constexpr VectorEntry of_small_floats(u32 format) const {
    VectorEntry entry = with(format);
    entry.small_floats = true;
    return entry;
  }
};

// What executes entries.
void run_lanewise(Wave& wave, const Operation& op);
void run_comparison(Wave& wave, const Operation& op);     ///< hits: lanes whose result & variant
void run_packed_halves(Wave& wave, const Operation& op);  ///< 16-bit types, for each half
void run_packed_words(Wave& wave, const Operation& op);   ///< 32-bit types, for each of two words
void run_mixed(Wave& wave, const Operation& op);  ///< floats from floats and halves (variant: Mix)

enum Mix : u32 { kMixFloat, kMixLow, kMixHigh };

/// In the variant of a comparison: it writes EXEC.
inline constexpr u32 kSetsExec = u32{1} << 31;

namespace detail {

// F is a function of the values, of (MaskBits&, values) or of (variant, values).
template <class F, class... V>
auto apply(LaneLoop& loop, int lane, V... values) {
  if constexpr (std::is_invocable_v<F, V...>) {
    return F{}(values...);
  } else if constexpr (std::is_invocable_v<F, MaskBits&, V...>) {
    MaskBits bits{(loop.mask >> lane & 1) != 0};
    const auto result = F{}(bits, values...);
    loop.result_mask |= u64{bits.out} << lane;
    return result;
  } else {
    return F{}(loop.variant, values...);
  }
}

template <class F, class D, class... S, std::size_t... I>
void each_lane(LaneLoop& loop, std::index_sequence<I...>) {
  for (int base = 0; base < loop.lanes; base += 32) {
    auto* const __restrict out = static_cast<typename D::Bits*>(loop.out) + base;
    for (int i = 0; i < 32; ++i) {  // of a known number, so that compilers make vectors of them
      out[i] = D::bits(static_cast<typename D::Value>(
          apply<F>(loop, base + i,
                   S::value((static_cast<const typename S::Bits*>(loop.in[I]) + base)[i])...)));
    }
  }
}

template <class F, class D, class... S>
void each_lane(LaneLoop& loop) {
  each_lane<F, D, S...>(loop, std::index_sequence_for<S...>());
}

// The worst that an error of less than one unit in the last place allows: of the two floats around
// the exact value now the nearer one and now the other. What a float holds is exact.
inline float erring(double exact, u32 source) {
  const auto nearest = static_cast<float>(exact);
  const auto rounded = static_cast<double>(nearest);
  const bool errs = ((source * 0x9e3779b1U ^ source >> 15) >> 31) != 0;
  if (!errs || !(std::fabs(rounded) >= 0x1p-126) || std::isinf(nearest) || rounded == exact) {
    return nearest;
  }
  // Away from zero one bit more.
  const bool away = (exact > rounded) == (rounded > 0);
  const float other = as_float(away ? as_bits(nearest) + 1 : as_bits(nearest) - 1);
  return std::isinf(other) ? nearest : other;
}

// The worst of v_rcp_f64 and its kin, which the documents promise 2^29 units in the last place:
// right, or nearly as much too large or too small. Subnormal results stay right.
inline double erring(double exact, u64 source) {
  constexpr u64 kMostUnits = (u64{1} << 29) - 1;
  if (!(std::fabs(exact) >= 0x1p-1021) || !(std::fabs(exact) < 0x1p1023)) return exact;
  switch (source * 0x9e3779b97f4a7c15U >> 62) {
    case 0: return as_double(as_bits(exact) - kMostUnits);
    case 1: return as_double(as_bits(exact) + kMostUnits);
    default: return exact;
  }
}

template <class F, class D, class S>
void each_active_lane(LaneLoop& loop) {
  const auto* const in = static_cast<const typename S::Bits*>(loop.in[0]);
  auto* const out = static_cast<typename D::Bits*>(loop.out);
  for (int lane = 0; lane < loop.lanes; ++lane) {
    out[lane] = 0;
    if ((loop.active >> lane & 1) == 0) continue;
    const double exact = F{}(S::value(in[lane]));
    if constexpr (std::is_same_v<D, F32>) {
      out[lane] = D::bits(loop.worst ? erring(exact, in[lane]) : static_cast<float>(exact));
    } else if constexpr (std::is_same_v<D, F64>) {
      out[lane] = D::bits(loop.worst ? erring(exact, in[lane]) : exact);
    } else {
      out[lane] = D::bits(static_cast<typename D::Value>(exact));
    }
  }
}

}  // namespace detail

/// D = function(S...), lane by lane.
template <class D, class... S, class F>
constexpr VectorEntry lanewise(F) {
  static_assert(sizeof...(S) <= 3);
  VectorEntry entry;
  entry.execute = &run_lanewise;
  entry.compute = &detail::each_lane<F, D, S...>;
  entry.result = D::type;
  int at = 0;
  ((entry.sources[at++] = S::type), ...);
  entry.source_count = sizeof...(S);
  entry.doubles = D::type == Type::f64 || ((S::type == Type::f64) || ...);
  return entry;
}

/// The same for functions that take long, of the unit that has them; they give the exact value.
template <class D, class S, class F>
constexpr VectorEntry transcendental(F function) {
  VectorEntry entry = lanewise<D, S>(function);
  entry.compute = &detail::each_active_lane<F, D, S>;
  entry.transcendental = true;
  return entry;
}

/// What no function of a lane is.
constexpr VectorEntry special(void (*execute)(Wave&, const Operation&), u32 variant = 0) {
  VectorEntry entry;
  entry.execute = execute;
  entry.variant = variant;
  return entry;
}

/// v_pk_*: what a lane computes, on each of two parts.
constexpr VectorEntry packed(VectorEntry entry) {
  entry.execute = is_half(entry.result) ? &run_packed_halves : &run_packed_words;
  return entry;
}

struct VectorRow {
  std::string_view names;  ///< with spaces between them
  VectorEntry entry;
};

// The tables, one for each subject.
std::span<const VectorRow> float_rows();
std::span<const VectorRow> integer_rows();
std::span<const VectorRow> conversion_rows();
std::span<const VectorRow> division_rows();
std::span<const VectorRow> move_rows();

/// Of a mnemonic, which is no comparison; null if there is no such instruction.
const VectorEntry* find_vector(std::string_view name);

/// "nlt_f32" of "v_cmp_nlt_f32": null if there is no such comparison. `variant` becomes the bits of
/// the relation.
const VectorEntry* find_comparison(std::string_view name, u32& variant);

}  // namespace kiln::amd
